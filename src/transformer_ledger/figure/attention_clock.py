"""Naive, blocked and fused attention: time and memory against the length."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transformer_ledger.figure import drawing, scales
from transformer_ledger.figure.attention import last, lengths

Rows = Sequence[Mapping[str, Any]]


def against_length(
    rows: Rows,
    quantity: str,
    label: str,
    show: Callable[[float], str],
    ticks: Callable[[Sequence[float]], scales.Ticks],
) -> drawing.Picture | None:
    """A column of timing/attention against the length."""
    timed = sorted(({**row, **json.loads(row["parameters"])} for row in rows), key=lambda row: row["length"])
    several = len({row["dtype"] for row in timed}) > 1
    charts: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in timed:
        if row[quantity]:
            heading = f"{row['part']}, {row['dtype']}" if several else row["part"]
            charts.setdefault(heading, {}).setdefault(row["method"], []).append((row["length"], row[quantity]))
    if not charts:
        return None
    values = [y for series in charts.values() for points in series.values() for _, y in points]
    return drawing.Picture(
        drawing.small_multiples,
        f"{label.capitalize()} of attention against the length",
        f"At the longest: {last(charts, show)}.",
        ("part", "method", "tokens", quantity),
        charts,
        {"x_label": "tokens", "y_label": label, "x_ticks": lengths(charts), "y_ticks": ticks(values)},
    )


def compute(*, timing: Mapping[str, Rows]) -> dict[str, str]:
    """The files of the pictures, {path: text}."""
    rows = timing["attention"]
    time = against_length(rows, "median_seconds", "median time", scales.time, scales.time_ticks)
    memory = against_length(rows, "peak_bytes", "memory", scales.memory, scales.byte_ticks)
    return drawing.files({"attention-time": time, "attention-memory": memory}, "timing/figure")
