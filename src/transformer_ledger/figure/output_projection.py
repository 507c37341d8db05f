"""Claim A2.3: what each head contributes to one output."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from transformer_ledger.figure import drawing
from transformer_ledger.report.numbers import short

Rows = Sequence[Mapping[str, Any]]
MOST = 8  # heads that fit
TITLES = {"length": "length of each head’s contribution", "cosine": "its cosine to the whole output"}


def heads(rows: Rows) -> drawing.Picture | None:
    """Length of each head's contribution and its cosine to the whole output, for the most heads that fit."""
    shown: dict[int, dict[str, list[tuple[str, float]]]] = {}
    for row in rows:
        found = json.loads(row["parameters"]) if row["claim"] == "A2.3" else {}
        kind = (row["key"] or "").split("_")[0]
        if "head" in found and 1 < found["heads"] <= MOST and kind in TITLES:
            own = shown.setdefault(found["heads"], {})
            own.setdefault(TITLES[kind], []).append((str(found["head"]), row["measured"]))
    if not shown:
        return None
    count = max(shown)
    text = "; ".join(
        f"{title}: " + ", ".join(f"head {head} {short(value, 3)}" for head, value in pairs)
        for title, pairs in shown[count].items()
    )
    return drawing.Picture(
        drawing.bars,
        f"What each of {count} heads contributes to one output",
        text + ".",
        ("quantity", "head", "value"),
        shown[count],
        {"x_label": "head"},
    )


def compute(*, verification: Mapping[str, Rows]) -> dict[str, str]:
    """The files of the picture, {path: text}."""
    return drawing.files({"heads": heads(verification["output_projection"])})
