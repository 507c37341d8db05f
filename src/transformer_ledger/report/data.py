"""Tables as the page's script reads them: by column, repeated texts once, integers beyond 2⁵³ as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from transformer_ledger.tables import TABLES, Column

# Columns of a verification table that the page shows of a case, in this order.
CASES = (
    *("leg", "case", "change", "quantity", "measured", "unchanged", "relation", "expected", "lower", "upper", "unit"),
    *("holds", "scope", "route", "other_route", "bound_source"),
)
KINDS = {"string": "text", "bool": "bool", "int64": "number", "float64": "number", "decimal128(38,0)": "number"}


def columns_of(name: str, rows: Sequence[Mapping[str, Any]] = ()) -> tuple[Column, ...]:
    """Columns of a table of results/ that hold anything in `rows`, as its schema orders and explains them."""
    known = {column.name: column for column in TABLES["verification"]}
    schema = (
        [known[column] for column in CASES]
        if name == "cases"
        else TABLES.get(name) or TABLES.get(name.split("/")[0], ())
    )
    return tuple(column for column in schema if any(row.get(column.name) not in (None, "") for row in rows))


def plain(value: Any) -> Any:
    """A value for JSON that JavaScript reads without loss: large integers and non-finite floats as text."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**53:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def encoded(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> dict[str, Any]:
    """`rows` by column; a column of texts that repeat is a list of distinct ones and a list of their indices."""
    out = []
    for column in columns:
        values = [plain(row.get(column.name)) for row in rows]
        entry: dict[str, Any] = {
            "name": column.name,
            "unit": "" if column.unit.startswith("see") else column.unit,
            "kind": KINDS.get(column.type, column.type),
            "meaning": column.meaning,
        }
        distinct = list(dict.fromkeys(value for value in values if isinstance(value, str)))
        if len(distinct) < len(values) / 2 and all(value is None or isinstance(value, str) for value in values):
            codes = {value: index for index, value in enumerate(distinct)}
            entry |= {"texts": distinct, "codes": [codes.get(value, -1) for value in values]}
        else:
            entry["values"] = values
        out.append(entry)
    return {"columns": out, "rows": len(rows)}
