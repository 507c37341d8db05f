"""The extensions: loss against the compute of the training, and against the base with the same budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from transformer_ledger.figure import drawing
from transformer_ledger.report.numbers import short
from transformer_ledger.report.rows import budget

Rows = Sequence[Mapping[str, Any]]


def extension_curve(rows: Rows) -> drawing.Picture | None:
    """Held-out loss above the source's against the compute of the training, a line a variant, each point a training."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row["budget"] == "scratch":
            series.setdefault(row["variant"], []).append((float(row["flops"]) / 1e9, row["excess"]))
    if not series:
        return None
    text = "; ".join(
        f"{variant}: " + ", ".join(f"{short(y, 3)} at {short(x, 3)} GFLOP" for x, y in points)
        for variant, points in series.items()
    )
    return drawing.Picture(
        drawing.lines,
        "Held-out loss against the training’s compute",
        text + ".",
        ("variant", "training [GFLOP]", "loss above the source's [nat/token]"),
        series,
        {"x_label": "training, GFLOP", "y_label": "held-out loss above the source’s, nat per token", "marks": True},
    )


def extension_changes(rows: Rows) -> drawing.Picture | None:
    """Change of the loss against the base of the same budget, with its interval over the seeds."""
    groups: dict[str, list[tuple[str, float, float, float]]] = {}
    for row in rows:
        # What a conversion does before any training is many times the rest, and would be all that one sees.
        if row["variant"] != "base" and row["budget"] != "conversion" and row["excess_change"] is not None:
            ends = [math.nan if row[key] is None else row[key] for key in ("excess_change_low", "excess_change_high")]
            groups.setdefault(budget(row), []).append((row["variant"], row["excess_change"], ends[0], ends[1]))
    if not groups:
        return None
    text = "; ".join(
        f"{group}: "
        + ", ".join(
            f"{label} {short(value, 3)} ({short(low, 3)} to {short(high, 3)})" for label, value, low, high in own
        )
        for group, own in groups.items()
    )
    return drawing.Picture(
        drawing.intervals,
        "Held-out loss against the base",
        text + ".",
        ("budget", "variant", "change of loss [nat/token]", "low", "high"),
        groups,
        {"x_label": "held-out loss minus the base’s, nat per token"},
    )


def compute(*, study: Mapping[str, Rows]) -> dict[str, str]:
    """The files of the pictures, {path: text}."""
    rows = study["extension"]
    return drawing.files({"extension-curve": extension_curve(rows), "extensions": extension_changes(rows)})
