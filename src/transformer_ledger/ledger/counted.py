"""What the executed model counted, looked up for one row of a ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]
Key = tuple[str, str, str, str, str]


def counts(rows: Rows, implementation: str = "ours") -> dict[Key, int]:
    """Values of an execution table by (quantity, workload, phase, component, part); equal keys are added up."""
    out: dict[Key, int] = {}
    for row in rows:
        if row["implementation"] == implementation:
            names = ("quantity", "workload", "phase", "component", "part")
            key = tuple(row[name] or "" for name in names)
            out[key] = out.get(key, 0) + row["value"]  # type: ignore[index, arg-type]
    return out


def difference(ours: int, executed: int | None) -> int | None:
    """Ours minus executed, null where nothing was executed."""
    return None if executed is None else ours - executed
