"""What met one figure of a ledger: the count of an executed model, or a second derivation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]
Key = tuple[str, str, str, str, str]

TRANSFORMERS, MODULE, DERIVED, PUBLISHED = "transformers", "our module", "second derivation", "published"
NOTHING = "nothing"
MET_BY = (TRANSFORMERS, MODULE, DERIVED, PUBLISHED, NOTHING)
"""What a figure met, the strongest first; where transformers counted, our module did so too, or has no such figure."""


def counts(rows: Rows, implementation: str = "ours") -> dict[Key, int]:
    """Values of an execution table by (quantity, workload, phase, component, part); equal keys are added up."""
    out: dict[Key, int] = {}
    for row in rows:
        if row["implementation"] == implementation:
            names = ("quantity", "workload", "phase", "component", "part")
            key = tuple(row[name] or "" for name in names)
            out[key] = out.get(key, 0) + row["value"]  # type: ignore[index, arg-type]
    return out


class Executed:
    """The counts of one model: both implementations', each by (quantity, workload, phase, component, part)."""

    def __init__(self, rows: Rows):
        self.by = {TRANSFORMERS: counts(rows, "transformers"), MODULE: counts(rows)}

    def count(
        self, quantity: str, workload: str = "", phase: str = "", component: str = "total", part: str = ""
    ) -> Any:
        """One count, transformers' where there is one; None where nothing ran."""
        key = (quantity, workload, phase, component, part)
        return next((found[key] for found in self.by.values() if key in found), None)

    def met(
        self,
        value: Any,
        quantity: str,
        workload: str = "",
        phase: str = "",
        component: str = "total",
        part: str = "",
        derived: Any = None,
    ) -> dict[str, Any]:
        """`executed`, `derived`, `difference` and `met_by` of a figure: against transformers, our module, `derived`.

        The difference is that from the first of them that differs.
        """
        key, total = (quantity, workload, phase, component, part), (quantity, workload, phase, "total", "")
        # What is missing where a total was counted was not there: 0.
        ran = {n: counted.get(key, 0) for n, counted in self.by.items() if key in counted or total in counted}
        found = ran if derived is None else {**ran, DERIVED: derived}
        # The first that differs is shown, else the first.
        executed = next((count for count in ran.values() if count != value), next(iter(ran.values()), None))
        other = next((count for count in found.values() if count != value), value)
        return {
            "executed": executed,
            "derived": derived,
            "difference": value - other if found else None,
            "met_by": next(iter(found), NOTHING),
        }
