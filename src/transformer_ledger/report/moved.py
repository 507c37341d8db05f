"""What `compare` found between two results folders, as a page in the report's style.

The report itself does not show it: its bytes follow from its inputs alone, and not from the run before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from transformer_ledger.report import layout, numbers, page
from transformer_ledger.report.layout import CODE, Cell, Format

SHOWN = 500
"""Rows of one kind in the page."""
WRAPPED = Format("text", lambda value: Cell(value, css="wrap"))


def _number(text: str) -> Cell:
    """A number that `compare` keeps as text, as the report shows numbers; a fraction, such as 1/3, to five digits."""
    value = Fraction(text) if "/" in text else int(text) if text.lstrip("-").isdigit() else float(text)
    return Cell(numbers.number(float(value) if isinstance(value, Fraction) else value), text)


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    named = row["row"]
    if named.startswith("{"):
        named = ", ".join(f"{key} {value}" for key, value in json.loads(named).items())
    values: dict[str, Any] = {key: row.get(key) for key in ("old", "new", "change")}
    if "there" in values.values():
        values |= {key: values[key] or "not there" for key in ("old", "new")}
    if row.get("change") is not None:  # only where both are numbers
        values = {key: _number(value) for key, value in values.items()}
    return {**row, **values, "table": row["table"] or named, "row": named if row["table"] else None}


def compute(kinds: Mapping[str, tuple[str, Sequence[Mapping[str, Any]]]], old: str, new: str) -> str:
    """HTML of the page: a table for each kind, {kind: (its title, rows of the table `compare`)}, as they are ordered."""
    columns = {
        "table": CODE,
        "row": WRAPPED,
        "column": CODE,
        "old": WRAPPED,
        "new": WRAPPED,
        "change": WRAPPED,
        "ratio": layout.number(4),
    }
    sections = []
    for kind, (title, rows) in kinds.items():
        more = layout.text("moved/more", css="note", count=len(rows), shown=SHOWN) if len(rows) > SHOWN else None
        made = layout.table(f"{kind}-rows", [_row(row) for row in rows[:SHOWN]], columns, "moved", title=title)
        if made:
            sections.append(layout.section(f"moved-{kind}", more, made, title=title.capitalize()))
    if not sections:
        nothing = layout.told("moved/nothing")
        sections = [layout.section("nothing", layout.text("moved/same"), title=nothing)]
    return page.alone(layout.told("moved/title"), layout.say("moved/lead", old=old, new=new), sections)
