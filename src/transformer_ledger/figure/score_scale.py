"""Claim A4.3: saturation of the softmax, with and without the scale of the scores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from transformer_ledger.figure import drawing
from transformer_ledger.figure.scales import ticks
from transformer_ledger.report.numbers import short

Rows = Sequence[Mapping[str, Any]]


def saturation(rows: Rows) -> drawing.Picture | None:
    """Mean largest attention probability against d_k, scaled and unscaled."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["claim"] == "A4.3" and row["leg"] == "theorem" and row["quantity"] == "mean largest probability":
            found = json.loads(row["parameters"])
            series.setdefault(found["scores"], []).append((float(found["d_k"]), row["measured"]))
    series = {label: sorted(dict(points).items()) for label, points in series.items() if len(points) > 2}
    if not series:
        return None
    return drawing.Picture(
        drawing.lines,
        "Saturation of the softmax against dₖ",
        "Mean over rows of the largest attention probability, against the width of a head: "
        + "; ".join(
            f"{label} from {short(points[0][1], 3)} to {short(points[-1][1], 3)}" for label, points in series.items()
        )
        + ".",
        ("scores", "d_k", "mean largest probability"),
        series,
        {
            "x_label": "width of a head, dₖ",
            "y_label": "mean largest probability of a row",
            "x_scale": "log",
            "x_ticks": ticks([x for points in series.values() for x, _ in points]),
            "marks": True,
            "bottom": 0,
            "top": 1,
        },
    )


def compute(*, verification: Mapping[str, Rows]) -> dict[str, str]:
    """The files of the picture, {path: text}."""
    return drawing.files({"saturation": saturation(verification["score_scale"])})
