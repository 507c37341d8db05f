"""B10: each change of a trained checkpoint is a change of its function or of its schedule, and which one is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformer_ledger.cases import case

LARGEST = "logit that changed most against its bound: its change"
BOUND = "running error bounds of both forms, fp64"
FAR = 100  # times the bound: a change of function stands this far off, or the two kinds would not be apart


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """One change: within its bound, or far beyond it, as the text says; either, where the text says nothing."""
    named: dict[str, Any] = {"bound_source": BOUND, "backend": "torch"}
    where, moved, bound = row["change"], row["bounded_change"], row["bound"]
    if row["control"] and not row["stated"]:
        return case("B10.1", where, "control", "largest change of all held-out logits", row["logit_change"], "==", 0.0)
    beyond = row["stated"] == "function" or (not row["stated"] and row["decided"] == "function")
    leg = "control" if row["control"] else "floating"
    if beyond:
        return case(
            "B10.1", where, leg, LARGEST, moved, ">=", FAR * bound, **{**named, "bound_source": f"{FAR} × {BOUND}"}
        )
    return case("B10.1", where, leg, LARGEST, moved, "<=", bound, **named)


def compute(study: Mapping[str, Sequence[Mapping[str, Any]]], scores: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of B10.1 and B10.2 from the rows of study/classification.

    `scores` are beginnings of the names of the changes that B10.2 speaks of.
    """
    rows = study["classification"]
    found = [_row(row) for row in rows]
    changes = [row for row in rows if not row["control"]]
    for decided in ("function", "schedule"):
        count = sum(row["decided"] == decided for row in changes)
        found.append(case("B10.1", "all changes", "exact", f"changes of {decided}", count, ">=", 1, headline=True))
    neither = sum(row["decided"] not in ("function", "schedule") for row in changes)
    found.append(case("B10.1", "all changes", "exact", "changes that are neither", neither, "==", 0))
    for row in rows:
        asked = any(row["change"].startswith(name) for name in scores)
        if not asked and not (row["control"] and not row["stated"]):
            continue
        named: dict[str, Any] = {"backend": "torch", "bound_source": f"{FAR} × {BOUND}"}
        if asked:
            quantity = "attention score of the first layer that changed most against its bound: its change"
            found += [
                case("B10.2", row["change"], "floating", quantity, row["score_change"], ">=", FAR * row["score_bound"],
                     headline=True, **named),
                case("B10.2", row["change"], "floating", LARGEST, row["bounded_change"], ">=", FAR * row["bound"], **named),
            ]  # fmt: skip
        else:
            found.append(
                case(
                    "B10.2",
                    row["change"],
                    "control",
                    "largest change of the first layer's scores",
                    row["score_change"],
                    "==",
                    0.0,
                )
            )
    return found
