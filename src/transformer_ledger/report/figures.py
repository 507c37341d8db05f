"""Which picture is drawn from which rows: the step between the tables and `pictures`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from transformer_ledger.ledger import kv_cache, matmul
from transformer_ledger.model import ModelSpec
from transformer_ledger.report import pictures
from transformer_ledger.report.numbers import plain, short, size
from transformer_ledger.report.parts import PARTS

Rows = Sequence[Mapping[str, Any]]
CACHE_DTYPE = "bf16"


def powers(low: int, high: int) -> list[int]:
    """The powers of two from `low` to `high`, and `high` itself."""
    out = [1 << k for k in range(low.bit_length() - 1, high.bit_length()) if low <= 1 << k <= high]
    return out if out and out[-1] == high else [*out, high]


def ticks(values: Sequence[float], most: int = 7) -> list[tuple[float, str]]:
    """Powers of two (or of ten) in the range of `values` as axis ticks, not more than `most`."""
    low, high = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    step = max(1, math.ceil((high - low + 1) / most))
    return [(2.0**k, short(2**k) if k >= 0 else short(2.0**k)) for k in range(low, high + 1, step)]


def byte_ticks(values: Sequence[float]) -> list[tuple[float, str]]:
    """Every fifth power of two in the range of `values`, as sizes; more of them where two would not be in it."""
    low, high = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    powers = range(low, max(high, low + 1) + 1)
    step = next(step for step in (5, 2, 1) if step == 1 or sum(k % step == 0 for k in powers) > 1)
    return [(2.0**k, plain(size(2**k))) for k in powers if k % step == 0]


def cache_against_context(specs: Mapping[str, ModelSpec], labels: Mapping[str, str]) -> Markup | None:
    """Cache of one sequence against its length, every model up to its own context."""
    series = {
        labels[name]: [(T, kv_cache.cache_bytes(spec, 1, T, CACHE_DTYPE, "needed")) for T in powers(16, spec.context)]
        for name, spec in specs.items()
        if spec.context >= 16
    }
    if not series:
        return None
    points = [point for line in series.values() for point in line]
    longest = {label: line[-1] for label, line in series.items()}
    return pictures.lines(
        "picture-cache",
        "Key/value cache against context",
        "Bytes of keys and values of one sequence in bf16 against its length, each model up to its own context: "
        + "; ".join(
            f"{label} {short(size_ / 2**20, 3)} MiB at {short(T)} tokens" for label, (T, size_) in longest.items()
        )
        + ".",
        series,
        x_label="tokens in the sequence",
        y_label="cache of one sequence, bf16",
        x_scale="log",
        y_scale="log",
        x_ticks=ticks([x for x, _ in points]),
        y_ticks=byte_ticks([y for _, y in points]),
    )


def attention_share(specs: Mapping[str, ModelSpec], labels: Mapping[str, str], longest: int = 131072) -> Markup | None:
    """Share of attention's own products (scores and weighted values) in the forward pass against the length."""
    lengths = powers(64, longest)

    def share(spec: ModelSpec, T: int) -> float:
        products = matmul.products(spec, 1, T, T, "prefill", "full")
        own = sum(p.flops for p in products if p.component in ("attention.scores", "attention.values"))
        return own / sum(p.flops for p in products)

    series = {labels[name]: [(T, 100 * share(spec, T)) for T in lengths] for name, spec in specs.items()}
    if not series:
        return None
    at = {label: dict(line)[4096] for label, line in series.items()}
    return pictures.lines(
        "picture-attention-share",
        "Share of scores and weighted values in the forward pass",
        "Percentage of the forward pass’s FLOPs spent on scores and weighted values, against the length, "
        "continued past each model’s context; at 4,096 tokens: "
        + "; ".join(f"{label} {short(value, 3)} %" for label, value in at.items())
        + ".",
        series,
        x_label="tokens in the sequence",
        y_label="QKᵀ and weighted values, % of forward FLOPs",
        x_scale="log",
        x_ticks=ticks(lengths),
        bottom=0,
        top=100,
    )


def parameters_by_part(summary: Rows) -> Markup | None:
    """Each model's parameters cut into the parts of the model."""
    shares = {row["model"]: {part: row["parts"].get(part, 0) for part in PARTS} for row in summary}
    if not shares:
        return None
    text = "; ".join(
        f"{label}: " + ", ".join(f"{part} {100 * n / max(1, sum(row.values())):.1f} %" for part, n in row.items() if n)
        for label, row in shares.items()
    )
    return pictures.stacked_shares("picture-parameters", "Parameters by part of the model", text + ".", shares)


def rotation_error(rows: Rows) -> Markup | None:
    """Largest error of cosine and sine against position, by precision and base."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        found = json.loads(row["parameters"]) if row["claim"] == "B4.4" else {}
        if "up_to" in found:
            label = f"{found['dtype']}, base {short(int(found['base']))}"
            series.setdefault(label, []).append((float(found["up_to"]), row["measured"]))
    # One width: the widest; several widths differ by less than the line is thick.
    series = {
        label: sorted({x: max(y for p, y in points if p == x) for x, _ in points}.items())
        for label, points in series.items()
    }
    series = {label: points for label, points in series.items() if len(points) > 2}
    if not series:
        return None
    xs = [x for points in series.values() for x, _ in points]
    return pictures.lines(
        "picture-rotation-error",
        "Error of the rotation against position",
        "Largest error of cos and sin of the rotary angle, computed in each precision, against the position: "
        + "; ".join(
            f"{label}: {short(points[-1][1], 3)} at {short(int(points[-1][0]))}" for label, points in series.items()
        )
        + ".",
        series,
        x_label="position in tokens",
        y_label="largest error of cos and sin",
        x_scale="log",
        y_scale="log",
        x_ticks=ticks(xs),
    )


def saturation(rows: Rows) -> Markup | None:
    """Mean largest attention probability against d_k, scaled and unscaled."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["claim"] == "A4.3" and row["leg"] == "theorem" and row["quantity"] == "mean largest probability":
            found = json.loads(row["parameters"])
            series.setdefault(found["scores"], []).append((float(found["d_k"]), row["measured"]))
    series = {label: sorted(dict(points).items()) for label, points in series.items() if len(points) > 2}
    if not series:
        return None
    return pictures.lines(
        "picture-saturation",
        "Saturation of the softmax against dₖ",
        "Mean over rows of the largest attention probability, against the width of a head: "
        + "; ".join(
            f"{label} from {short(points[0][1], 3)} to {short(points[-1][1], 3)}" for label, points in series.items()
        )
        + ".",
        series,
        x_label="width of a head, dₖ",
        y_label="mean largest probability of a row",
        x_scale="log",
        x_ticks=ticks([x for points in series.values() for x, _ in points]),
        marks=True,
        bottom=0,
        top=1,
    )


def head_contributions(rows: Rows, most: int = 8) -> Markup | None:
    """Length of each head's contribution and its cosine to the whole output, for the most heads that fit."""
    shown: dict[int, dict[str, list[tuple[str, float]]]] = {}
    for row in rows:
        found = json.loads(row["parameters"]) if row["claim"] == "A2.3" else {}
        if "head" in found and 1 < found["heads"] <= most:
            kind = row["key"].split("_")[0]  # length or cosine
            shown.setdefault(found["heads"], {}).setdefault(kind, []).append((str(found["head"]), row["measured"]))
    if not shown:
        return None
    count = max(shown)
    groups = {kind: pairs for kind, pairs in shown[count].items() if kind in ("length", "cosine")}
    titles = {"length": "length of each head’s contribution", "cosine": "its cosine to the whole output"}
    text = "; ".join(
        f"{titles[kind]}: " + ", ".join(f"head {head} {short(value, 3)}" for head, value in pairs)
        for kind, pairs in groups.items()
    )
    title = f"What each of {count} heads contributes to one output"
    charts = {titles[kind]: pairs for kind, pairs in groups.items()}
    return pictures.bars("picture-heads", title, text + ".", charts, x_label="head")


def rule_error(summary: Rows) -> Markup | None:
    """What the rule 12Ld² + Vd misses of each model's exact count."""
    rows = [(row["model"], 100 * row["error"]) for row in summary if row["error"] is not None]
    if not rows:
        return None
    text = "; ".join(f"{label} {value:+.3g} %" for label, value in rows)
    return pictures.diverging(
        "picture-rule-error",
        "What the rule 12Ld² + Vd misses",
        text + ".",
        rows,
        x_label="exact count minus the rule, % of the exact count",
    )


def of_claims(verification: Mapping[str, Rows]) -> dict[str, Markup]:
    """The picture of a claim, by the claim's id."""
    rows = [row for table in verification.values() for row in table]
    found = {"A2.3": head_contributions(rows), "A4.3": saturation(rows), "B4.4": rotation_error(rows)}
    return {claim: picture for claim, picture in found.items() if picture}
