"""The studies and the timings on the page: their summaries, tables and pictures."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from transformer_ledger.report import layout
from transformer_ledger.report.layout import COUNT, SIZE, TEXT, TIME, YES, Block, Cell, Section
from transformer_ledger.report.numbers import anchor, duration, number, short
from transformer_ledger.report.rows import budget, last_losses, relative_errors, source, widest
from transformer_ledger.study.source import KINDS
from transformer_ledger.tables import by

Rows = Sequence[Mapping[str, Any]]
Tables = Mapping[str, Rows]
METHODS = ("naive", "blocked", "fused")
KINDS_OF_CHANGE = ("expression", "sharing", "activation", "storage", "schedule")
WORSE, BETTER, LEVEL = "worse", "better", "no clear difference"


def sections(study: Tables, timing: Tables) -> list[Section | None]:
    """One section a study; attention's timing stands in its study."""
    return [
        _classification(study.get("classification", [])),
        _loss(study.get("loss", [])),
        _extension(study),
        _attention(study.get("attention", []), timing.get("attention", [])),
    ]


def clocks(timing: Tables) -> list[Section | None]:
    """One section for each set of timings that is no part of a study."""
    return [_clock(name, rows) for name, rows in timing.items() if name != "attention" and rows]


SIGNED = layout.number(3)
ENDS = layout.interval(lambda value: number(value, 2))


# ---------------------------------------------------------------------------------------------- function or schedule


def _classification(rows: Rows) -> Section | None:
    if not rows:
        return None
    shown = [
        {
            **row,
            "change": Cell(Markup('{} <span class="of">control</span>').format(row["change"]), row["change"])
            if row["control"]
            else row["change"],
            "decided": Cell(row["decided"], row["decided"], css=f"decided {row['decided']}"),
            "stated": Cell(row["stated"], row["stated"], css="off")
            if row["stated"] and row["stated"] != row["decided"]
            else row["stated"],
            "what": ", ".join(kind for kind in KINDS_OF_CHANGE if row[kind]),
            "interval": (row["loss_change_low"], row["loss_change_high"]),
        }
        for row in rows
    ]
    columns = {
        "change": TEXT,
        "decided": TEXT,
        "stated": TEXT,
        "change_to_bound": SIGNED,
        "what": layout.LONG,
        "loss_change": SIGNED,
        "interval": layout.interval(lambda value: number(value, 3)),
        "loads_as_is": YES,
        "retraining_needed": YES,
    }
    stated = [row for row in rows if row["stated"]]
    agreeing = sum(row["stated"] == row["decided"] for row in stated)
    return layout.section(
        "function-or-schedule",
        layout.text("function-or-schedule"),
        layout.text("sections/function-or-schedule/found", agreeing=agreeing, stated=len(stated)) if stated else None,
        layout.table("summary-classification", shown, columns),
        layout.full("study/classification"),
    )


# ---------------------------------------------------------------------------------------------- the checkpoint


def _loss(rows: Rows) -> Section | None:
    last = [{**row, "source": source(row["source"])} for row in last_losses(rows)]
    if not last:
        return None
    losses = dict.fromkeys(("loss", "floor", "source_loss"), layout.number(4))
    return layout.section(
        "checkpoint",
        layout.text("checkpoint"),
        layout.figure("loss"),
        layout.table(
            "summary-loss",
            last,
            {"source": TEXT, "excess": layout.number(4), **losses, "steps": COUNT, "tokens": COUNT},
        ),
        layout.full("study/loss"),
    )


# ---------------------------------------------------------------------------------------------- extensions


def outcome(row: Mapping[str, Any], kind: str = "") -> str:
    """What a change comes to, on both sources or on one, given its interval over the seeds."""
    change, low, high = (row[f"{kind}excess_change{end}"] for end in ("", "_low", "_high"))
    if row["variant"] == "base" or None in (low, high):
        return ""
    return LEVEL if low <= 0 <= high else WORSE if change > 0 else BETTER


def extension_summary(rows: Rows) -> list[dict[str, Any]]:
    """The variants by budget, each with what its difference from the base comes to."""
    return [
        {
            **row,
            "budget": budget(row),
            "outcome": outcome(row),
            "change": row["excess_change"] if row["variant"] != "base" else None,
            "interval": (row["excess_change_low"], row["excess_change_high"])
            if row["variant"] != "base"
            else (None, None),
        }
        for row in rows
    ]


def extension_verdicts(rows: Rows) -> list[str]:
    """For each budget one sentence: which variants are better than its base, worse, not told apart from it."""
    out = []
    for name, own in by(extension_summary(rows), "budget").items():
        found: dict[str, list[str]] = {BETTER: [], WORSE: [], LEVEL: []}
        for row in own:
            if row["outcome"]:
                found[row["outcome"]].append(row["variant"])
        told = [
            layout.told(
                f"outcomes/{key.replace(' ', '-')}/{'many' if len(variants) > 1 else 'one'}",
                variants=layout.listed(variants),
            )
            for key, variants in found.items()
            if variants
        ]
        if told:
            out.append(layout.told("outcomes/budget", budget=str(name).capitalize(), told="; ".join(told)))
    return out


def extension_sources(rows: Rows) -> list[dict[str, Any]]:
    """The differences of each variant from the base on each source alone."""
    return [
        {
            "variant": row["variant"],
            "budget": budget(row),
            "source": source(kind),
            "outcome": outcome(row, f"{kind}_"),
            "change": row[f"{kind}_excess_change"],
            "interval": (row[f"{kind}_excess_change_low"], row[f"{kind}_excess_change_high"]),
            "excess": row[f"{kind}_excess"],
        }
        for row in rows
        if row["variant"] != "base"
        for kind in KINDS
    ]


def tensor_changes(rows: Rows) -> list[dict[str, Any]]:
    """One row a variant: which tensors it reshapes, adds and drops, those of all layers as one with their number."""
    out = []
    for variant, own in by(rows, "variant").items():
        changes: Counter[tuple[str, str, str]] = Counter()
        for row in own:
            if row["status"] != "same":
                shape = " → ".join(row[key] for key in ("old_shape", "new_shape") if row[key])
                changes[row["status"], re.sub(r"^layers[.][0-9]+[.]", "", row["tensor"]), shape] += 1
        lines = [
            Markup('<span class="of">{}</span> <code>{}</code> {}{}').format(
                *change, f", {count} times" if count > 1 else ""
            )
            for change, count in changes.items()
        ]
        if lines:
            out.append(
                {
                    "variant": variant,
                    "total": sum(row["parameters_after"] or 0 for row in own),
                    "same": sum(row["parameters_after"] for row in own if row["status"] == "same"),
                    "changes": Cell(Markup("; <br>").join(lines), css="wrap"),
                }
            )
    return out


def _extension(study: Tables) -> Section | None:
    rows = extension_summary(study.get("extension", []))
    if not rows:
        return None
    differences = {"outcome": TEXT, "change": SIGNED, "interval": ENDS, "excess": SIGNED}
    costs = {
        "spread": layout.number(2),
        "parameters": COUNT,
        "flops": layout.number(4),
        "cache_bytes": SIZE,
        "d_ff": COUNT,
        "learning_rate": COUNT,
    }
    parameters = [row["parameters"] for row in rows]
    most: Counter[str] = Counter()
    for row in study["extension"]:
        most[row["budget"]] = max(most[row["budget"]], row["tokens"] or 0)
    scale = {
        "parameters": f"{short(min(parameters))} to {short(max(parameters))}",
        "tokens": short(most["scratch"]),
        "more": short(most["up-training"]),
        "seeds": layout.listed(sorted({row["seeds"] for row in rows})),
        "comparisons": rows[0]["comparisons"],
        "confidence": short(100 * rows[0]["interval_confidence"], 4),
        "together": short(100 * (1 - rows[0]["comparisons"] * (1 - rows[0]["interval_confidence"])), 4),
    }
    programmes = [
        {
            "programme": Cell(programme, css="wrap"),
            "variants": Cell("; ".join(f"{row['variant']}, {row['budget']}" for row in own), css="wrap"),
        }
        for programme, own in by(rows, "programme").items()
    ]
    variant = {"variant": TEXT, "budget": TEXT}
    return layout.section(
        "extensions",
        layout.text("extensions", **scale),
        layout.text("outcomes/line", line=" ".join(extension_verdicts(study["extension"]))),
        layout.text("sections/extensions/method", **scale),
        Block("text", {"html": rows[0]["disclosed"], "css": "note"}),
        layout.figure("extension-curve"),
        layout.figure("extensions"),
        layout.table("summary-extension", rows, variant | differences | costs, seeds=scale["seeds"]),
        layout.table(
            "summary-extension-sources", extension_sources(study["extension"]), variant | {"source": TEXT} | differences
        ),
        layout.table("summary-programmes", programmes, {"programme": TEXT, "variants": TEXT}),
        layout.full("study/extension"),
        layout.table(
            "summary-tensors",
            tensor_changes(study.get("extension_tensors", [])),
            {"variant": TEXT, "total": COUNT, "same": COUNT, "changes": TEXT},
        ),
        layout.full("study/extension_tensors"),
        layout.full("study/extension_runs"),
    )


# ---------------------------------------------------------------------------------------------- attention


def attention_error_summary(rows: Rows) -> list[dict[str, Any]]:
    """For each type, kind of logits and tensor the largest relative error of each method, over cases and lengths."""
    out = []
    for (dtype, logits, tensor), own in by(rows, "dtype", "logits", "tensor").items():
        ratios = [
            row["ratio_to_fused"] for row in own if row["method"] == "blocked" and row["ratio_to_fused"] is not None
        ]
        errors = {m: max(relative_errors(row for row in own if row["method"] == m), default=None) for m in METHODS}
        allowed = max((row["allowed_ratio"] for row in own if row["allowed_ratio"] is not None), default=None)
        judged = [row["holds"] for row in own if row["holds"] is not None]
        out.append(
            {"dtype": dtype, "logits": logits, "tensor": tensor, **errors}
            | {"ratio": max(ratios, default=None), "allowed": allowed, "holds": all(judged) if judged else None}
        )
    return out


def _timed(rows: Rows) -> list[dict[str, Any]]:
    """Rows of timing/attention with the method, length and type of their case."""
    return [{**row, **json.loads(row["parameters"])} for row in rows]


def doubled(rows: Rows) -> dict[str, Any] | None:
    """What the last doubling of the length multiplies of blocked attention's forward pass."""
    at = {row["length"]: row for row in rows if row["method"] == "blocked" and row["part"] == "forward"}
    before, after = at.get(max(at, default=0) // 2), at.get(max(at, default=0))
    if not before or not after:
        return None
    quantities = {"flops": "operations", "median_seconds": "time", "peak_bytes": "memory"}
    growth = {
        name: short(float(after[key]) / float(before[key]), 3) if before[key] else "—"
        for key, name in quantities.items()
    }
    ends = {
        "low": short(after["q1_seconds"] / before["q3_seconds"], 3),
        "high": short(after["q3_seconds"] / before["q1_seconds"], 3),
    }
    return {"before": short(before["length"]), "after": short(after["length"]), **growth, **ends}


def _attention(rows: Rows, timing: Rows) -> Section | None:
    if not rows and not timing:
        return None
    methods = dict.fromkeys(METHODS, layout.number(3))
    return layout.section(
        "blocked-attention",
        layout.text("blocked-attention"),
        layout.figure("attention-error", case=widest(rows)[0]) if rows else None,
        layout.table(
            "summary-attention",
            attention_error_summary(rows),
            {
                "dtype": TEXT,
                "logits": TEXT,
                "tensor": TEXT,
                "holds": YES,
                "ratio": SIGNED,
                "allowed": SIGNED,
                **methods,
            },
        ),
        layout.full("study/attention"),
        sections=[_attention_clock(_timed(timing))] if timing else [],
    )


def _attention_clock(timed: Rows) -> Section:
    growth = doubled(timed)
    longest = max(row["length"] for row in timed)
    return layout.section(
        "blocked-attention-clock",
        layout.text("blocked-attention-clock", **_machine(timed)),
        layout.text("sections/blocked-attention-clock/doubled", **growth) if growth else None,
        layout.figure("attention-time"),
        layout.figure("attention-memory"),
        _clock_table("attention", [row for row in timed if row["length"] == longest and row["baseline"] is not None]),
        layout.full("timing/attention"),
    )


# ---------------------------------------------------------------------------------------------- the clock


def _machine(rows: Rows) -> dict[str, Any]:
    """What the machine can do at best, and how the rows were timed, in words."""
    first = rows[0]
    fewest, most = (pick(row["repeats"] for row in rows) for pick in (min, max))
    return {
        "flops": short(first["peak_flops_per_second"] / 1e9, 3),
        "bytes": short(first["peak_bytes_per_second"] / 1e9, 3),
        "threads": layout.counted(first["threads"], "thread"),
        "device": first["device"],
        "repeats": f"{fewest} to {most}" if fewest < most else fewest,
        "warmups": layout.counted(first["warmups"], "warm-up"),
        "interleaved": first["interleaved"],
        "spread": short(100 * first["spread_wanted"], 2),
    }


def _clock_table(name: str, rows: Rows) -> Block | None:
    shown = [
        {**row, "quartiles": (row["q1_seconds"], row["q3_seconds"]), "interval": (row["ratio_low"], row["ratio_high"])}
        for row in rows
    ]
    ratio = layout.number(3)
    columns = {
        "case": TEXT,
        "part": TEXT,
        "outcome": TEXT,
        "measured_ratio": ratio,
        "interval": layout.interval(lambda value: number(value, 3)),
        "expected_ratio": ratio,
        "baseline": TEXT,
        "median_seconds": TIME,
        "quartiles": layout.interval(duration),
        "expected_seconds": TIME,
        "bottleneck": TEXT,
        "peak_bytes": SIZE,
    }
    return layout.table(f"summary-clock-{anchor(name)}", shown, columns, key="clock")


def slower(rows: Rows) -> list[str]:
    """The cases that clearly took longer than what they are compared with although they run fewer operations."""
    return [
        layout.told("sections/clock-norms/slower-case", ratio=short(row["measured_ratio"], 3), **row)
        for row in rows
        if row["baseline"] is not None and row["expected_ratio"] < 1 and row["outcome"] == "longer"
    ]


def _clock(name: str, rows: Rows) -> Section:
    known = f"clock-{anchor(name)}" in layout.words()["sections"]
    key = f"clock-{anchor(name)}" if known else "clock-other"
    late = slower(rows) if name == "norms" else []
    said = "sections/clock-norms/slower" if late else "sections/clock-norms/faster"
    return layout.section(
        f"clock-{anchor(name)}",
        layout.text(key, **_machine(rows)),
        layout.text(said, cases=layout.listed(late)) if name == "norms" else None,
        layout.figure("scaling") if name == "matmul_scaling" else None,
        _clock_table(name, [row for row in rows if row["baseline"] is not None]),
        layout.full(f"timing/{name}"),
        title=layout.told(f"sections/{key}/title", name=name.replace("_", " ")),
    )
