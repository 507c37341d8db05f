"""The few lines that close a run: verdicts, differences, surprises, and where the page is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from transformer_ledger.claims.claim import VERDICTS

Rows = Sequence[Mapping[str, Any]]


def surprises(claims: Rows, verification: Mapping[str, Rows], ledger: Mapping[str, Rows]) -> list[str]:
    """One line for each unregistered verdict, each control that did not break and each ledger that differs."""
    found = [
        f"{row['claim']}: {row['verdict']} instead of {row['registered']} ({row['statement']})"
        for row in claims
        if row["surprise"]
    ]
    for name, rows in verification.items():
        found += [
            f"{row['claim']}: the control “{row['case']}” of {name} did not break the claim"
            for row in rows
            if row["leg"] == "control" and not row["holds"]
        ]
    for name, rows in ledger.items():
        off = [row for row in rows if row.get("difference")]
        if off:
            models = ", ".join(sorted({str(row["model"]) for row in off}))
            found.append(f"ledger {name}: {len(off)} of {len(rows)} rows differ from the executed model ({models})")
    return found


def compute(
    *,
    claims: Mapping[str, Rows],
    verification: Mapping[str, Rows],
    ledger: Mapping[str, Rows],
    experiment: Mapping[str, Rows],
) -> str:
    """The text of the summary; its last line begins with `surprises: 0` where there are none."""
    rows = claims["claims"]
    counts = Counter(row["verdict"] for row in rows)
    compared = [row for table in ledger.values() for row in table if row.get("difference") is not None]
    held = [row for table in experiment.values() for row in table if "holds" in row]
    found = surprises(rows, verification, ledger)
    found += [
        f"experiment {name}: {row['case']} is outside its bound"
        for name, table in experiment.items()
        for row in table
        if row.get("holds") is False
    ]
    lines = [
        "",
        "Transformer Ledger",
        f"  {len(rows)} claims: " + ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name]),
        f"  {len(compared):,} ledger rows held against executed models, "
        f"{sum(row['difference'] != 0 for row in compared):,} differ",
        f"  {len(held):,} experiment cases, {sum(not row['holds'] for row in held):,} outside their bound",
        "  page: results/report.html",
        f"  surprises: {len(found)}",
        *(f"    {line}" for line in found),
        "",
    ]
    return "\n".join(lines)
