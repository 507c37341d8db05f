"""Naive, blocked and fused attention: error against the length."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transformer_ledger.figure import drawing
from transformer_ledger.figure.scales import Ticks
from transformer_ledger.report.numbers import short
from transformer_ledger.report.rows import relative_errors, widest
from transformer_ledger.tables import by

Rows = Sequence[Mapping[str, Any]]
Charts = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]


def attention_errors(rows: Rows) -> drawing.Picture | None:
    """Largest relative error of output and gradients against the length, by method, in the case of most lengths."""
    if not rows:
        return None
    case, own = widest(rows)
    charts: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for (dtype, logits), part in by(own, "dtype", "logits").items():
        for (method, length), found in by(part, "method", "length").items():
            error = max(relative_errors(found), default=0.0)
            if error > 0:
                charts.setdefault(f"{dtype}, {logits}", {}).setdefault(method, []).append((length, error))
    if not charts:
        return None
    return drawing.Picture(
        drawing.small_multiples,
        "Error of attention against the length",
        f"Largest relative root-mean-square error of output, dq, dk and dv, {case}; at the longest: {last(charts, short)}.",
        ("type and scores", "method", "tokens", "relative error"),
        charts,
        {"x_label": "tokens", "y_label": "relative error against fp64", "x_ticks": lengths(charts)},
    )


def last(charts: Charts, show: Callable[[float], str]) -> str:
    """The last point of every line in words."""
    return "; ".join(
        f"{heading}: " + ", ".join(f"{method} {show(points[-1][1])}" for method, points in series.items())
        for heading, series in charts.items()
    )


def lengths(charts: Charts) -> Ticks:
    """At most four of the lengths, the longest among them."""
    found = sorted({x for series in charts.values() for points in series.values() for x, _ in points})
    return [(x, short(int(x))) for x in found[::-1][:: math.ceil(len(found) / 4)]]


def compute(*, study: Mapping[str, Rows]) -> dict[str, str]:
    """The files of the picture, {path: text}."""
    return drawing.files({"attention-error": attention_errors(study["attention"])})
