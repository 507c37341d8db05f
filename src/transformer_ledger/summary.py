"""The few lines that close a run: verdicts, differences, surprises, and where the page is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from transformer_ledger.claims.claim import VERDICTS
from transformer_ledger.evidence import CONTROL
from transformer_ledger.ledger.counted import MET_BY

Rows = Sequence[Mapping[str, Any]]
Tables = Mapping[str, Rows]
READS = ("claims", "verification", "ledger", "experiment", "study", "timing")
"""Kinds of tables in which a run can be surprised."""
# Columns that name a row of an experiment, a study or a timing.
NAMED = (
    "case",
    "part",
    "length",
    "dtype",
    "logits",
    "tensor",
    "quantity",
    "variant",
    "budget",
    "share",
    "source",
    "step",
)


def met_by(ledger: Tables) -> dict[str, int]:
    """How many rows of all ledgers each kind of evidence confirmed: transformers, our module, …, nothing."""
    counted = Counter(row["met_by"] for rows in ledger.values() for row in rows)
    return {name: counted[name] for name in MET_BY}


def differs(row: Mapping[str, Any]) -> bool:
    """Whether any difference of a ledger's row is not 0: `difference`, or a column that ends in it."""
    return any(row[key] for key in row if key.endswith("difference"))


def differing(ledger: Tables) -> dict[str, Rows]:
    """The rows of each ledger where any difference is not 0."""
    return {name: list(filter(differs, rows)) for name, rows in ledger.items()}


def surprises(
    *, claims: Tables, verification: Tables, ledger: Tables, experiment: Tables, study: Tables, timing: Tables
) -> list[str]:
    """One line for each unregistered verdict, unbroken control, ledger that differs and row outside its bound."""
    found = [
        f"{row['claim']}: {row['verdict']} instead of {row['registered']} ({row['statement']})"
        for row in claims.get("claims", [])
        if row["surprise"]
    ]
    for name, rows in verification.items():
        found += [
            f"{row['claim']}: the control “{row['case']}” of {name} did not break the claim"
            for row in rows
            if row["leg"] == CONTROL and not row["holds"]
        ]
    for name, off in differing(ledger).items():
        if off:
            models = ", ".join(sorted({str(row.get("model") or row.get("subject")) for row in off}))
            found.append(
                f"ledger {name}: {len(off)} of {len(ledger[name])} rows differ from what they were compared with ({models})"
            )
    for kind, tables in (("experiment", experiment), ("study", study), ("timing", timing)):
        found += [
            f"{kind} {name}: {', '.join(str(row[key]) for key in NAMED if key in row)} is outside its bound"
            for name, rows in tables.items()
            for row in rows
            if row.get("holds") is False or row.get("difference" if kind == "timing" else "")
        ]
    return found


def compute(
    *, claims: Tables, verification: Tables, ledger: Tables, experiment: Tables, study: Tables, timing: Tables
) -> str:
    """The text of the summary; its last line begins with `surprises: 0` where there are none."""
    rows = claims["claims"]
    counts = Counter(row["verdict"] for row in rows)
    met, off = met_by(ledger), sum(len(rows) for rows in differing(ledger).values())
    functions = experiment.get("decoder", [])
    held = [row for table in experiment.values() for row in table if row.get("decisive")]
    judged = [row for table in study.values() for row in table if row.get("holds") is not None]
    found = surprises(
        claims=claims, verification=verification, ledger=ledger, experiment=experiment, study=study, timing=timing
    )
    lines = [
        "",
        "Transformer Ledger",
        f"  {len(rows)} claims: " + ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name]),
        f"  {sum(met.values()):,} ledger rows, compared with "
        + ", ".join(f"{name} ({number:,})" for name, number in met.items())
        + f"; {off:,} differ",
        f"  {len(functions):,} comparisons of our decoder with the NumPy reference and transformers, "
        f"{sum(not row['holds'] for row in functions):,} outside their bound",
        f"  {len(held):,} experiment cases, {sum(not row['holds'] for row in held):,} outside their bound",
        f"  {len(judged):,} rows of studies judged by a rule, {sum(not row['holds'] for row in judged):,} against it",
        "  page: results/report.html",
        f"  surprises: {len(found)}",
        *(f"    {line}" for line in found),
        "",
    ]
    return "\n".join(lines)
