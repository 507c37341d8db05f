"""Claim B4.4: error of the rotation against position."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from transformer_ledger.figure import drawing
from transformer_ledger.figure.scales import ticks
from transformer_ledger.report.numbers import short

Rows = Sequence[Mapping[str, Any]]


def rotation_error(rows: Rows) -> drawing.Picture | None:
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
    return drawing.Picture(
        drawing.lines,
        "Error of the rotation against position",
        "Largest error of cos and sin of the rotary angle, computed in each precision, against the position: "
        + "; ".join(
            f"{label}: {short(points[-1][1], 3)} at {short(int(points[-1][0]))}" for label, points in series.items()
        )
        + ".",
        ("precision", "position [token]", "largest error"),
        series,
        {
            "x_label": "position in tokens",
            "y_label": "largest error of cos and sin",
            "x_scale": "log",
            "y_scale": "log",
            "x_ticks": ticks([x for points in series.values() for x, _ in points]),
        },
    )


def compute(*, verification: Mapping[str, Rows]) -> dict[str, str]:
    """The files of the picture, {path: text}."""
    return drawing.files({"rotation-error": rotation_error(verification["rope_precision"])})
