"""An experiment's errors as shares of their bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformer_ledger.figure import drawing
from transformer_ledger.report.numbers import short
from transformer_ledger.report.rows import counting, ratio


def margins(rows: Sequence[Mapping[str, Any]], group: str) -> drawing.Picture | None:
    """Each case that counts as a dot, by precision; its colour by the column `group`."""
    points = [(str(row["dtype"]), ratio(row), str(row[group])) for row in counting(rows)]
    if not points:
        return None
    return drawing.Picture(
        drawing.dots,
        "Measured error over its bound",
        f"Each of {len(points):,} cases as a dot: its error divided by the bound computed beforehand, by precision. "
        f"The largest is {short(max(share for _, share, _ in points), 3)}; a case outside its bound would lie right of 1.",
        ("precision", "error / bound", group),
        points,
        {"x_label": f"error / bound ({short(drawing.FLOOR, 1)} or less: left edge)", "limit": 1},
    )
