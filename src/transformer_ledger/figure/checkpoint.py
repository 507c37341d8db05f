"""The checkpoint's loss against its floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformer_ledger.figure import drawing
from transformer_ledger.report.numbers import short
from transformer_ledger.report.rows import last_losses, source

Rows = Sequence[Mapping[str, Any]]


def loss_curve(rows: Rows) -> drawing.Picture | None:
    """Held-out loss of each source and training loss against steps, with the floors that no model gets under."""
    series: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        label = "training" if row["split"] == "training" else source(row["source"])
        series.setdefault(label, []).append((row["step"], row["loss"]))
    if not series:
        return None
    last = last_losses(rows)
    values = [y for points in series.values() for _, y in points] + [row["floor"] for row in last]
    at = [k * 10**e for e in range(-3, 3) for k in (1, 1.5, 2, 3, 4, 5, 7) if min(values) <= k * 10**e <= max(values)]
    return drawing.Picture(
        drawing.lines,
        "Loss of the checkpoint against its floor",
        "Loss in nats a token against optimiser steps, on a logarithmic scale; held-out at the end: "
        + "; ".join(f"{source(row['source'])} {short(row['loss'], 4)}, floor {short(row['floor'], 4)}" for row in last)
        + ".",
        ("tokens", "step", "loss [nat/token]"),
        series,
        {
            "x_label": "optimiser steps",
            "y_label": "loss, nat per token",
            "y_scale": "log",
            "y_ticks": [(value, short(value)) for value in at],
            "guides": [(row["floor"], f"floor of {source(row['source'])}") for row in last],
        },
    )


def compute(*, study: Mapping[str, Rows]) -> dict[str, str]:
    """The files of the picture, {path: text}."""
    return drawing.files({"loss": loss_curve(study["loss"])})
