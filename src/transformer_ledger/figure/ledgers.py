"""The models side by side: parameters, what the rule misses of them, cache and attention's share against the length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformer_ledger.figure import drawing
from transformer_ledger.figure.scales import byte_ticks, powers, ticks
from transformer_ledger.ledger import kv_cache, matmul
from transformer_ledger.model import ModelSpec
from transformer_ledger.report.numbers import short
from transformer_ledger.report.parts import PARTS
from transformer_ledger.report.rows import CACHE_DTYPE, INNER, parameters

Rows = Sequence[Mapping[str, Any]]
Series = Mapping[str, Sequence[tuple[int, float]]]


def parameters_by_part(rows: Rows) -> drawing.Picture | None:
    """Each model's parameters cut into the parts of the model; rows as `rows.parameters` makes them."""
    shares = {row["model"]: {part: row["parts"].get(part, 0) for part in PARTS} for row in rows}
    if not shares:
        return None
    text = "; ".join(
        f"{label}: " + ", ".join(f"{part} {100 * n / max(1, sum(row.values())):.1f} %" for part, n in row.items() if n)
        for label, row in shares.items()
    )
    return drawing.Picture(
        drawing.stacked_shares,
        "Parameters by part of the model",
        text + ".",
        ("model", "part", "parameters"),
        shares,
    )


def rule_error(rows: Rows) -> drawing.Picture | None:
    """What the rule 12Ld² + Vd misses of each model's exact count; rows as `rows.parameters` makes them."""
    missed = [(row["model"], 100 * row["error"]) for row in rows if row["error"] is not None]
    if not missed:
        return None
    return drawing.Picture(
        drawing.diverging,
        "What the rule 12Ld² + Vd misses",
        "; ".join(f"{label} {value:+.3g} %" for label, value in missed) + ".",
        ("model", "exact count minus the rule [%]"),
        missed,
        {"x_label": "exact count minus the rule, % of the exact count"},
    )


def cache_against_context(specs: Mapping[str, ModelSpec]) -> drawing.Picture | None:
    """Cache of one sequence against its length, every model, by its label, up to its own context."""
    series: Series = {
        label: [(T, kv_cache.cache_bytes(spec, 1, T, CACHE_DTYPE, "needed")) for T in powers(16, spec.context)]
        for label, spec in specs.items()
        if spec.context >= 16
    }
    if not series:
        return None
    points = [point for line in series.values() for point in line]
    longest = {label: line[-1] for label, line in series.items()}
    return drawing.Picture(
        drawing.lines,
        "Key/value cache against context",
        "Bytes of keys and values of one sequence in bf16 against its length, each model up to its own context: "
        + "; ".join(
            f"{label} {short(size / 2**20, 3)} MiB at {short(T)} tokens" for label, (T, size) in longest.items()
        )
        + ".",
        ("model", "tokens", "cache [byte]"),
        series,
        {
            "x_label": "tokens in the sequence",
            "y_label": "cache of one sequence, bf16",
            "x_scale": "log",
            "y_scale": "log",
            "x_ticks": ticks([x for x, _ in points]),
            "y_ticks": byte_ticks([y for _, y in points]),
        },
    )


def _share(spec: ModelSpec, T: int) -> float:
    products = matmul.products(spec, 1, T, T, "prefill", "full")
    return sum(p.flops for p in products if p.component in INNER) / sum(p.flops for p in products)


def attention_share(specs: Mapping[str, ModelSpec], longest: int = 131072) -> drawing.Picture | None:
    """Share of attention's own products (scores and weighted values) in the forward pass against the length."""
    lengths = powers(64, longest)
    series = {label: [(T, 100 * _share(spec, T)) for T in lengths] for label, spec in specs.items()}
    if not series:
        return None
    at = {label: dict(line)[4096] for label, line in series.items()}
    return drawing.Picture(
        drawing.lines,
        "Share of scores and weighted values in the forward pass",
        "Percentage of the forward pass’s FLOPs spent on scores and weighted values, against the length, "
        "continued past each model’s context; at 4,096 tokens: "
        + "; ".join(f"{label} {short(value, 3)} %" for label, value in at.items())
        + ".",
        ("model", "tokens", "share [%]"),
        series,
        {
            "x_label": "tokens in the sequence",
            "y_label": "QKᵀ and weighted values, % of forward FLOPs",
            "x_scale": "log",
            "x_ticks": ticks(lengths),
            "bottom": 0,
            "top": 100,
        },
    )


def compute(models: Mapping[str, Mapping[str, Any]], *, ledger: Mapping[str, Rows]) -> dict[str, str]:
    """The files of the pictures, {path: text}; `models` gives each model's spec and label."""
    specs = {name: ModelSpec.from_json(model["spec"]) for name, model in models.items()}
    labels = {name: model["label"] for name, model in models.items()}
    own = [row for row in ledger["parameters"] if row["model"] in models]
    rows = [{**row, "model": labels[row["model"]]} for row in parameters(own, specs)]
    labelled = {labels[name]: spec for name, spec in specs.items()}
    return drawing.files(
        {
            "parameters": parameters_by_part(rows),
            "rule-error": rule_error(rows),
            "cache": cache_against_context(labelled),
            "attention-share": attention_share(labelled),
        }
    )
