"""What doubling the length, and the batch, does to the time of matrix products, beside what it does to their count."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from transformer_ledger.figure import drawing
from transformer_ledger.report.numbers import short

Rows = Sequence[Mapping[str, Any]]


def scaling(rows: Rows) -> drawing.Picture | None:
    """Growth of count and time of each part, by what grew."""
    sizes = {row["case"]: json.loads(row["parameters"]) for row in rows}
    groups: dict[str, list[tuple[str, float, float]]] = {}
    for row in rows:
        if row["baseline"] is None or row["expected_ratio"] is None or row["measured_ratio"] is None:
            continue
        own, base = sizes[row["case"]], sizes[row["baseline"]]
        grown = [f"{name} × {short(own[name] / base[name])}" for name in own if own[name] != base[name]]
        if grown:
            label = f"{row['part']} ({row['bottleneck']})"
            groups.setdefault(", ".join(grown), []).append((label, row["expected_ratio"], row["measured_ratio"]))
    if not groups:
        return None
    text = "; ".join(
        f"{heading}: " + ", ".join(f"{label} counted {short(a)}, measured {short(b, 3)}" for label, a, b in own)
        for heading, own in groups.items()
    )
    return drawing.Picture(
        drawing.counted_and_measured,
        "Growth of count and time",
        text + ".",
        ("what grows", "part", "by the count", "by the clock"),
        groups,
        {"x_label": "times as much as the base case"},
    )


def compute(*, timing: Mapping[str, Rows]) -> dict[str, str]:
    """The files of the picture, {path: text}."""
    return drawing.files({"scaling": scaling(timing["matmul_scaling"])}, "timing/figure")
