"""What a claim is, and how its verdict follows from the measured cases. No verdict is decided anywhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformer_ledger.evidence import ASIDE, CONTROL

VERDICTS = ("confirmed", "conditional", "refuted", "not reproducible", "not settled", "not applicable")


@dataclass(frozen=True)
class Claim:
    """One assertion of a text.

    `registered` is the verdict that the shipped settings should give; anything else is a surprise. `condition` is the
    condition that the text omits, or why the claim is refuted or not reproducible. `why` says in two to five sentences
    why the claim comes out so, `equation` is what governs it; both hold the run's numbers in braces: {key} is the
    measured value of the row with that key and its unit, {key:.3g} the bare number so formatted, {key.expected},
    {key.unchanged}, {key.printed} another column of the row.
    """

    id: str
    section: str  # subject of the text's section
    verification: str  # module and config key that settles it
    statement: str  # in our words, one sentence
    printed: str | None
    registered: str
    condition: str | None = None
    why: str = ""
    equation: str = ""


def verdict(claim: Claim, cases: Sequence[Mapping[str, Any]]) -> str:
    """The verdict on `claim` from the rows of its verification.

    - no case, a control that did not break, no control, or a case whose two sides came by one route: not settled;
    - every applicable stated case holds: confirmed, unless digits that nobody can reproduce were printed (scope
      printed), or the settings were edited away from the printed ones;
    - a stated case fails: conditional where the conditioned cases exist and all hold, else refuted.

    Repetitions and theorems count for nothing.
    """
    controls = [row for row in cases if row["leg"] == CONTROL]
    measured = [row for row in cases if row["leg"] not in (CONTROL, *ASIDE)]
    legs = [row for row in measured if row["applicable"]]
    edited = len(legs) < len(measured)
    if not legs:
        return "not applicable" if edited else "not settled"
    if not controls or not all(row["holds"] for row in controls):
        return "not settled"
    if any(row["route"] and row["route"] == row["other_route"] for row in legs):
        return "not settled"  # one route compared with itself
    scoped = {
        scope: [row for row in legs if row["scope"] == scope]
        for scope in ("stated", "conditioned", "corrected", "printed")
    }
    if not all(row["holds"] for row in scoped["corrected"]):
        return "not settled"  # our own right value does not stand
    if all(row["holds"] for row in scoped["stated"]):
        if not all(row["holds"] for row in scoped["conditioned"]):
            return "not settled"
        if not all(row["holds"] for row in scoped["printed"]):
            return "not reproducible"
        return "not applicable" if edited else "confirmed"
    if scoped["conditioned"] and all(row["holds"] for row in scoped["conditioned"]):
        return "conditional"
    return "refuted"
