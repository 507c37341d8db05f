"""What the page shows of the studies and of the clock: the rows of its summaries, and their pictures."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from transformer_ledger.report import pictures
from transformer_ledger.report.figures import byte_ticks
from transformer_ledger.report.numbers import duration, plain, short, size
from transformer_ledger.study.source import KINDS
from transformer_ledger.tables import by

Rows = Sequence[Mapping[str, Any]]
Tables = Mapping[str, Rows]
METHODS = ("naive", "blocked", "fused")
BUDGETS = {
    "scratch": "from scratch, with as many parameters and training FLOPs as the base",
    "conversion": "the base’s weights, converted",
    "up-training": "the base’s weights, converted and trained on",
}
CLOCKS = {
    "attention": "Naive, blocked and fused attention",
    "matmul_scaling": "Twice the length, twice the batch",
    "norms": "LayerNorm and RMSNorm",
}
SOURCES = {"markov": "second-order source", "recall": "associative recall", "both": "both sources"}


# ---------------------------------------------------------------------------------------------- the checkpoint


def source_title(name: str) -> str:
    """A source of training data in words."""
    return SOURCES.get(name, name)


def loss_summary(rows: Rows) -> list[Mapping[str, Any]]:
    """The last held-out row of each source."""
    return [own[-1] for own in by([row for row in rows if row["split"] == "held-out"], "source").values()]


def loss_curve(rows: Rows) -> Markup | None:
    """Held-out loss of each source and training loss against steps, with the floors that no model gets under."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        label = "training" if row["split"] == "training" else source_title(row["source"])
        series.setdefault(label, []).append((row["step"], row["loss"]))
    if not series:
        return None
    last = loss_summary(rows)
    values = [y for points in series.values() for _, y in points] + [row["floor"] for row in last]
    at = [k * 10**e for e in range(-3, 3) for k in (1, 1.5, 2, 3, 4, 5, 7) if min(values) <= k * 10**e <= max(values)]
    return pictures.lines(
        "picture-loss",
        "Loss of the checkpoint against its floor",
        "Loss in nats a token against optimiser steps, on a logarithmic scale; held-out at the end: "
        + "; ".join(
            f"{SOURCES.get(row['source'], row['source'])} {short(row['loss'], 4)}, floor {short(row['floor'], 4)}"
            for row in last
        )
        + ".",
        series,
        x_label="optimiser steps",
        y_label="loss, nat a token",
        y_scale="log",
        y_ticks=[(value, short(value)) for value in at],
        guides=[(row["floor"], f"floor of {SOURCES.get(row['source'], row['source'])}") for row in last],
    )


# ---------------------------------------------------------------------------------------------- extensions


def _outcome(row: Mapping[str, Any], source: str = "") -> str:
    """What the change comes to, of both sources or of one, given its interval over the seeds."""
    change, low, high = (row[f"{source}excess_change{end}"] for end in ("", "_low", "_high"))
    if row["variant"] == "base":
        return "—"
    if low <= 0 <= high:
        return "within the spread"
    return "worse" if change > 0 else "better"


def extension_summary(rows: Rows) -> list[dict[str, Any]]:
    """The variants by budget, each with what its difference from the base comes to."""
    return [{**row, "outcome": _outcome(row), "budget_text": _budget(row)} for row in rows]


def _budget(row: Mapping[str, Any]) -> str:
    part = f", {short(100 * row['share'], 3)} % of the compute" if row["budget"] == "scratch" else ""
    return BUDGETS[row["budget"]] + part


def extension_curve(rows: Rows) -> Markup | None:
    """Held-out loss above the source's against the compute of the training, a line a variant, each point a training."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["budget"] == "scratch":
            series.setdefault(row["variant"], []).append((float(row["flops"]), row["excess"]))
    if not series:
        return None
    return pictures.lines(
        "picture-extension-curve",
        "Held-out loss against the training’s compute",
        "; ".join(
            f"{variant}: " + ", ".join(f"{short(y, 3)} at {short(x, 3)} FLOP" for x, y in points)
            for variant, points in series.items()
        )
        + ".",
        series,
        x_label="training, FLOP",
        y_label="held-out loss above the source’s, nat a token",
        marks=True,
    )


def extension_verdicts(rows: Rows) -> str:
    """Which variants are better than the base at the largest budget, worse, and not told apart from it."""
    found: dict[str, list[str]] = {"better": [], "worse": [], "within the spread": []}
    scratch = [row for row in rows if row["budget"] == "scratch"]
    for row in scratch:
        if row["share"] == max(own["share"] for own in scratch) and row["variant"] != "base":
            found[_outcome(row)].append(row["variant"])
    if not any(found.values()):
        return ""
    better, worse, level = (", ".join(variants) or "none" for variants in found.values())
    return (
        f"At equal parameters, equal compute and the largest budget, better than the base: {better}. "
        f"Worse: {worse}. Not told apart from it: {level}."
    )


def extension_sources(rows: Rows) -> list[dict[str, Any]]:
    """The differences of each variant from the base on each source alone."""
    return [
        {
            **{key: row[key] for key in ("variant", "budget_text")},
            "title": source_title(kind),
            "excess": row[f"{kind}_excess"],
            "change": row[f"{kind}_excess_change"],
            "low": row[f"{kind}_excess_change_low"],
            "high": row[f"{kind}_excess_change_high"],
            "outcome": _outcome(row, f"{kind}_"),
        }
        for row in extension_summary(rows)
        if row["variant"] != "base"
        for kind in KINDS
    ]


def extension_changes(rows: Rows) -> Markup | None:
    """Change of the loss against the base of the same budget, with its interval over the seeds."""
    groups: dict[str, list[tuple[str, float, float, float]]] = {}
    for row in extension_summary(rows):
        # What a conversion does before any training is many times the rest, and would be all that one sees.
        if row["variant"] != "base" and row["budget"] != "conversion" and row["excess_change"] is not None:
            ends = [math.nan if row[key] is None else row[key] for key in ("excess_change_low", "excess_change_high")]
            groups.setdefault(row["budget_text"], []).append((row["variant"], row["excess_change"], ends[0], ends[1]))
    if not groups:
        return None
    return pictures.intervals(
        "picture-extensions",
        "Held-out loss against the base",
        "; ".join(
            f"{group}: "
            + ", ".join(
                f"{label} {short(value, 3)} ({short(low, 3)} to {short(high, 3)})" for label, value, low, high in own
            )
            for group, own in groups.items()
        )
        + ".",
        groups,
        x_label="held-out loss minus the base’s, nat a token; right of 0 is worse",
    )


def tensor_changes(rows: Rows) -> list[dict[str, Any]]:
    """One row a variant: which tensors it reshapes, adds and drops, those of all layers as one with their number."""
    out = []
    for variant, own in by(rows, "variant").items():
        changes: Counter[tuple[str, str, str]] = Counter()
        for row in own:
            if row["status"] != "same":
                shape = " → ".join(row[key] for key in ("old_shape", "new_shape") if row[key])
                changes[row["status"], re.sub(r"^layers[.][0-9]+[.]", "", row["tensor"]), shape] += 1
        out.append(
            {
                "variant": variant,
                "same": sum(row["parameters_after"] for row in own if row["status"] == "same"),
                "total": sum(row["parameters_after"] or 0 for row in own),
                "changes": [(*change, count) for change, count in changes.items()],
            }
        )
    return [row for row in out if row["changes"]]


# ---------------------------------------------------------------------------------------------- attention


def _widest(rows: Rows) -> tuple[str, Rows]:
    """The case that was run at most lengths, and its rows."""
    cases = by(rows, "case")
    case = max(cases, key=lambda name: len({row["length"] for row in cases[name]}))
    return case, cases[case]


def _errors(rows: Iterable[Mapping[str, Any]]) -> list[float]:
    """Relative errors, where there is something that they are relative to."""
    return [row["relative_rms_error"] for row in rows if row["relative_rms_error"] is not None]


def attention_error_summary(rows: Rows) -> list[dict[str, Any]]:
    """For each type, kind of logits and tensor the largest relative error of each method, over cases and lengths."""
    out = []
    for (dtype, logits, tensor), own in by(rows, "dtype", "logits", "tensor").items():
        ratios = [
            row["ratio_to_fused"] for row in own if row["method"] == "blocked" and row["ratio_to_fused"] is not None
        ]
        out.append(
            {
                "dtype": dtype,
                "logits": logits,
                "tensor": tensor,
                "errors": {
                    method: max(_errors(row for row in own if row["method"] == method), default=None)
                    for method in METHODS
                },
                "ratio": max(ratios, default=None),
            }
        )
    return out


def attention_errors(rows: Rows) -> tuple[Markup, str] | None:
    """Largest relative error of output and gradients against the length, by method; with the name of the case."""
    if not rows:
        return None
    case, own = _widest(rows)
    charts: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for (dtype, logits), part in by(own, "dtype", "logits").items():
        for (method, length), found in by(part, "method", "length").items():
            error = max(_errors(found), default=0.0)
            if error > 0:
                charts.setdefault(f"{dtype}, {logits}", {}).setdefault(method, []).append((length, error))
    if not charts:
        return None
    last = "; ".join(
        f"{heading}: " + ", ".join(f"{method} {short(points[-1][1], 3)}" for method, points in series.items())
        for heading, series in charts.items()
    )
    picture = pictures.small_multiples(
        "picture-attention-error",
        "Error of attention against the length",
        f"Largest relative root-mean-square error of output, dq, dk and dv, {case}; at the longest: {last}.",
        charts,
        x_label="tokens",
        y_label="relative error against fp64, worst of output, dq, dk, dv",
        x_ticks=_lengths(charts),
    )
    return picture, case


def _lengths(charts: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]) -> list[tuple[float, str]]:
    found = sorted({x for series in charts.values() for points in series.values() for x, _ in points})
    step = math.ceil(len(found) / 4)
    return [(x, short(int(x))) for x in found[::-1][::step]]


def _timed(rows: Rows) -> list[dict[str, Any]]:
    """Rows of timing/attention with the method, length and type of their case."""
    return [{**row, **json.loads(row["parameters"])} for row in rows]


def _against_length(rows: Rows, quantity: str) -> dict[str, dict[str, list[tuple[float, float]]]]:
    charts: dict[str, dict[str, list[tuple[float, float]]]] = {}
    several = len({row["dtype"] for row in rows}) > 1
    for row in sorted(rows, key=lambda row: row["length"]):
        if row[quantity]:
            heading = f"{row['part']}, {row['dtype']}" if several else row["part"]
            charts.setdefault(heading, {}).setdefault(row["method"], []).append((row["length"], row[quantity]))
    return charts


def attention_clock(rows: Rows) -> dict[str, Any]:
    """Time and memory of attention against the length: two pictures, the rows of the longest, what doubling does."""
    timed = _timed(rows)
    if not timed:
        return {}
    pictured: dict[str, Markup] = {}
    asked = {
        "time": ("median_seconds", "Time of attention against the length", "median time", plain_duration, _decades),
        "memory": ("peak_bytes", "Memory of attention against the length", "most held at once", plain_size, byte_ticks),
    }
    for name, (quantity, title, label, text, scale) in asked.items():
        charts = _against_length(timed, quantity)
        if charts:
            values = [y for series in charts.values() for points in series.values() for _, y in points]
            pictured[name] = pictures.small_multiples(
                f"picture-attention-{name}",
                title,
                "At the longest: "
                + "; ".join(
                    f"{heading}: " + ", ".join(f"{method} {text(points[-1][1])}" for method, points in series.items())
                    for heading, series in charts.items()
                )
                + ".",
                charts,
                x_label="tokens",
                y_label=label,
                x_ticks=_lengths(charts),
                y_ticks=scale(values),
            )
    longest = max(row["length"] for row in timed)
    return {"pictures": pictured, "longest": longest, "rows": [row for row in timed if row["length"] == longest]} | {
        "doubled": _doubled([row for row in timed if row["method"] == "blocked" and row["part"] == "forward"])
    }


def _doubled(rows: Rows) -> dict[str, Any] | None:
    """What the last doubling of the length multiplies of blocked attention's forward pass."""
    at = {row["length"]: row for row in rows}
    before, after = at.get(max(at, default=0) // 2), at.get(max(at, default=0))
    if not before or not after:
        return None
    quantities = {"flops": "operations", "median_seconds": "time", "peak_bytes": "memory"}
    return {
        "from": before["length"],
        "to": after["length"],
        "time_low": after["q1_seconds"] / before["q3_seconds"],
        "time_high": after["q3_seconds"] / before["q1_seconds"],
        **{name: float(after[key]) / float(before[key]) for key, name in quantities.items() if before[key]},
    }


def plain_duration(seconds: float) -> str:
    """A time as text alone."""
    return plain(duration(seconds))


def plain_size(bytes_: float) -> str:
    """A size as text alone."""
    return plain(size(int(bytes_)))


def _decades(values: Sequence[float]) -> list[tuple[float, str]]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [(10.0**k, plain_duration(10.0**k)) for k in range(low, high + 1)]


# ---------------------------------------------------------------------------------------------- the clock


def compared(rows: Rows) -> list[Mapping[str, Any]]:
    """The rows that are compared with another."""
    return [row for row in rows if row["baseline"] is not None]


def machine(rows: Rows) -> Mapping[str, Any] | None:
    """What the machine can do at best, with how many threads and warm-ups, as the first row has it; the repeats of all."""
    if not rows:
        return None
    return {**rows[0], "fewest": min(row["repeats"] for row in rows), "most": max(row["repeats"] for row in rows)}


def scaling(rows: Rows) -> Markup | None:
    """What doubling the length, and the batch, does to the time of each part, beside what it does to the count."""
    sizes = {row["case"]: json.loads(row["parameters"]) for row in rows}
    groups: dict[str, list[tuple[str, float, float]]] = {}
    for row in compared(rows):
        own, base = sizes[row["case"]], sizes[row["baseline"]]
        grown = [f"{name} × {short(own[name] / base[name])}" for name in own if own[name] != base[name]]
        if grown and row["expected_ratio"] is not None and row["measured_ratio"] is not None:
            label = f"{row['part']} ({row['bottleneck']})"
            groups.setdefault(", ".join(grown), []).append((label, row["expected_ratio"], row["measured_ratio"]))
    if not groups:
        return None
    text = "; ".join(
        f"{heading}: " + ", ".join(f"{label} counted {short(a)}, measured {short(b, 3)}" for label, a, b in own)
        for heading, own in groups.items()
    )
    return pictures.counted_and_measured(
        "picture-scaling",
        "Growth of count and time",
        text + ".",
        groups,
        x_label="times as much as the base case",
    )


def shown(study: Tables, timing: Tables) -> dict[str, Any]:
    """Everything of the studies and of the clock that the page's template asks for."""
    extension = study.get("extension", [])
    errors = attention_errors(study.get("attention", []))
    return {
        "classification": list(study.get("classification", [])),
        "loss": {"rows": loss_summary(study.get("loss", [])), "picture": loss_curve(study.get("loss", []))},
        "extension": {
            "rows": extension_summary(extension),
            "sources": extension_sources(extension),
            "verdicts": extension_verdicts(extension),
            "picture": extension_changes(extension),
            "curve": extension_curve(extension),
            "programmes": {
                programme: ", ".join(f"{row['variant']} ({row['budget_text']})" for row in own)
                for programme, own in by(extension_summary(extension), "programme").items()
                if programme
            },
            "comparisons": extension[0] if extension else None,
            "seeds": sorted({row["seeds"] for row in extension}),
            "tensors": tensor_changes(study.get("extension_tensors", [])),
        },
        "attention": {
            "rows": attention_error_summary(study.get("attention", [])),
            "picture": errors[0] if errors else None,
            "case": errors[1] if errors else "",
        },
        "clock": {name: {"machine": machine(rows), "rows": compared(rows)} for name, rows in timing.items() if rows},
        "attention_clock": attention_clock(timing.get("attention", [])),
        "scaling": scaling(timing.get("matmul_scaling", [])),
    }
