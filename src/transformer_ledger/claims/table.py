"""The claims table: every claim of both texts, settled or not, with its verdict and what it rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from transformer_ledger import tables
from transformer_ledger.claims import text_a, text_b
from transformer_ledger.claims.claim import Claim, verdict

CLAIMS: tuple[Claim, ...] = text_a.CLAIMS + text_b.CLAIMS


def plural(unit: str, value: Any) -> str:
    """A unit beside its number: one parameter, two parameters; 1 byte/parameter, 16 bytes/parameter; FLOP stays."""
    if unit == "1":
        return ""
    counted, slash, of = unit.partition("/")
    stays = value == 1 or not counted.islower() or counted in ("s", "rad")
    return unit if stays else f"{counted}s{slash}{of}"


def shown(row: Mapping[str, Any]) -> str:
    """A case's measured value as text: exact integers grouped, long ones and floats to six digits, with the unit."""
    exact = row["measured_exact"]
    value = Fraction(exact) if exact is not None else row["measured"]
    if exact is not None and "/" not in exact:
        text = f"{int(exact):,}" if len(exact) <= 15 else f"{Decimal(exact).normalize():.6g}"
    elif exact is not None and len(exact) <= 12:
        text = exact
    else:
        text = f"{float(value):.6g}"
    return f"{text} {plural(row['unit'], value)}".strip()


def _labelled(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Headline rows with what they measured; the case is named where two rows measured the same thing."""
    count = Counter(row["quantity"] for row in rows)
    return [
        (f"{row['quantity']} ({row['case']})" if count[row["quantity"]] > 1 else row["quantity"], row) for row in rows
    ]


def _largest_ratio(rows: Sequence[Mapping[str, Any]]) -> float | None:
    ratios = [row["measured"] / row["expected"] for row in rows if row["relation"] == "<=" and row["expected"] > 0]
    return max(ratios, default=None)


def _smallest_margin(rows: Sequence[Mapping[str, Any]]) -> float | None:
    margins = [row["measured"] / row["expected"] for row in rows if row["relation"] == ">=" and row["expected"] > 0]
    return min(margins, default=None)


def compute(*, verification: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Rows of the claims table, one for every claim in the registry, from the rows of every verification table.

    A case whose claim is not in the registry raises ValueError.
    """
    grouped = tables.by([row for rows in verification.values() for row in rows], "claim")
    unknown = set(grouped) - {claim.id for claim in CLAIMS}
    if unknown:
        raise ValueError(f"cases for claims that are not in the registry: {', '.join(sorted(unknown))}")
    rows = []
    for claim in CLAIMS:
        own = grouped.get(claim.id, [])
        legs = [row for row in own if row["leg"] != "control"]
        controls = [row for row in own if row["leg"] == "control"]
        headlines = [row for row in own if row["headline"]] or legs[:1]
        found = verdict(claim, own)
        rows.append(
            {
                "claim": claim.id,
                "source": claim.id[0],
                "section": claim.section,
                "statement": claim.statement,
                "printed": claim.printed,
                "value": "; ".join(f"{label}: {shown(row)}" for label, row in _labelled(headlines)) or None,
                "verdict": found,
                "registered": claim.registered,
                # A claim that no verification measured is open, not surprising; neither is one with edited settings.
                "surprise": bool(own) and found not in (claim.registered, "not applicable"),
                "condition": claim.condition if found in ("conditional", "refuted", "not reproducible") else None,
                "cases": len(legs),
                "controls": len(controls),
                "controls_broken": sum(row["holds"] for row in controls),
                "measured_to_bound": _largest_ratio([row for row in legs if row["leg"] == "floating"]),
                "control_to_threshold": _smallest_margin(controls),
                "verification": claim.verification,
            }
        )
    return rows
