"""The formulas on the page: those that say something about one model, with the numbers that they give for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from transformer_ledger.claims.table import plural
from transformer_ledger.notation import SYMBOLS
from transformer_ledger.report import layout, numbers
from transformer_ledger.report.layout import CODE, COUNT, LONG, TEXT, Block, Cell, Section


def section(formulas: Mapping[str, Any], labels: Mapping[str, str]) -> Section:
    """All formulas of results/formulas.json that apply to its example, and the table of symbols."""
    if not formulas.get("example"):
        return layout.section("formulas", layout.text("sections/formulas/empty", css="note"))
    name, values = formulas["example"]
    parts = [
        Section(
            f"formulas-{numbers.anchor(module['module'])}",
            layout.told(f"formula-modules/{module['module']}"),
            [Block("formulas", {**module, "entries": [_entry(entry) for entry in module["entries"]]})],
        )
        for module in formulas["modules"]
    ]
    symbols = [
        {
            "symbol": Cell(Markup(formulas["symbols"][name]), name),
            "name": name,
            "meaning": symbol.meaning,
            "unit": symbol.unit,
            "value": values.get(name),
        }
        for name, symbol in SYMBOLS.items()
    ]
    columns = {"symbol": TEXT, "name": CODE, "meaning": LONG, "unit": TEXT, "value": COUNT}
    last = layout.section("symbols", layout.table("symbols-table", symbols, columns))
    said = layout.text("formulas", model=labels.get(name, name), tokens=numbers.short(values["T"]))
    return layout.section("formulas", said, sections=[*parts, last])


def whole(formulas: Mapping[str, Any], labels: Mapping[str, str]) -> Block:
    """Each model's parameters as one formula, with the models that share it."""
    shown = [
        {**_marked(entry), "models": [(labels.get(name, name), total) for name, total in entry["models"]]}
        for entry in formulas.get("whole", [])
    ]
    return Block("whole", {"formulas": shown})


def _entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A formula, its unit in the singular or plural that its number wants."""
    return {**_marked(entry), "unit": plural(entry["unit"], entry["value"]) if entry["unit"] else ""}


def _marked(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {**entry, "mathml": Markup(entry["mathml"])}
