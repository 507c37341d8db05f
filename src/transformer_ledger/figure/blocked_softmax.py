"""Experiment E2: the state after each block of keys, and the errors of all cases as shares of their bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from transformer_ledger.figure import drawing, margins
from transformer_ledger.report.numbers import short

Rows = Sequence[Mapping[str, Any]]
NAMES = {"maximum": "running maximum m", "denominator": "denominator a", "numerator": "numerator o"}
OUTPUT = "output so far, o / a"


def states(rows: Rows, cases: Rows) -> drawing.Picture | None:
    """Maximum, denominator, numerator and output of the text's row after each block, and the output of dense attention."""
    if not rows:
        return None
    rows = sorted(rows, key=lambda row: row["block"])
    printed = [row for row in cases if str(row["case"]).startswith("printed") and row["pass"] == "forward"]
    keys = [f"[{row['begin']}, {row['end']})" for row in rows]
    charts = {title: [(key, row[name]) for key, row in zip(keys, rows, strict=True)] for name, title in NAMES.items()}
    charts[OUTPUT] = [
        (key, row["numerator"] / row["denominator"] if row["denominator"] else math.nan)
        for key, row in zip(keys, rows, strict=True)
    ]
    return drawing.Picture(
        drawing.panels,
        "State after each block",
        "; ".join(
            f"after {key}: m {short(row['maximum'])}, a {short(row['denominator'], 6)}, o {short(row['numerator'], 6)}"
            for key, row in zip(keys, rows, strict=True)
        )
        + ".",
        ("quantity", "keys", "value"),
        charts,
        {"goals": {OUTPUT: float(printed[0].get("reference_decimal") or printed[0]["reference"])} if printed else {}},
    )


def compute(*, experiment: Mapping[str, Rows]) -> dict[str, str]:
    """The files of the pictures, {path: text}."""
    cases = experiment["blocked_softmax"]
    drawn = states(experiment["blocked_softmax_states"], cases)
    return drawing.files({"softmax": drawn, "softmax-margin": margins.margins(cases, "pass")})
