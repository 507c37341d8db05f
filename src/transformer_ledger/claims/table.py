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
from transformer_ledger.evidence import ASIDE, CONTROL, EXACT, FLOATING, OUTCOMES

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


class Figure:
    """A row as a claim's reason names it: {key}, {key:.3g}, {key.expected}, {key.unchanged:.2f}, {key.printed}."""

    def __init__(self, row: Mapping[str, Any], column: str = "measured"):
        self.row, self.column = row, column

    def __getattr__(self, column: str) -> Figure:
        if column not in self.row:
            raise AttributeError(column)
        return Figure(self.row, column)

    def __format__(self, spec: str) -> str:
        exact = self.row.get(f"{self.column}_exact")
        value = self.row[self.column] if exact is None else Fraction(exact)
        if value is None or isinstance(value, str):
            return str(value)
        if spec:
            whole = isinstance(value, Fraction) and value.denominator == 1
            return format(int(value) if whole else float(value), spec)
        return shown({"measured": self.row[self.column], "measured_exact": exact, "unit": self.row["unit"]})


class _Figures(dict[str, Figure]):
    """The figures of one claim by key; one that the run's settings did not make is a dash."""

    def __missing__(self, key: str) -> Any:
        return _Missing()


class _Missing:
    def __getattr__(self, column: str) -> _Missing:
        return self

    def __format__(self, spec: str) -> str:
        return "—"


def told(text: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """A claim's reason or equation with the run's numbers put in."""
    return text.format_map(_Figures({row["key"]: Figure(row) for row in rows if row["key"]}))


def _outcome(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """The worst outcome of a claim's printed figures that apply."""
    found = [OUTCOMES.index(row["reproduced"]) for row in rows if row["reproduced"] and row["applicable"]]
    return OUTCOMES[max(found)] if found else None


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
        legs = [row for row in own if row["leg"] in (EXACT, FLOATING)]
        controls = [row for row in own if row["leg"] == CONTROL]
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
                "why": told(claim.why, own) or None,
                "equation": told(claim.equation, own) or None,
                "reproduced": _outcome(legs),
                "legs": ", ".join(leg for leg in (EXACT, FLOATING, CONTROL) if any(row["leg"] == leg for row in own)),
                "cases": len(legs),
                "asides": sum(row["leg"] in ASIDE for row in own),
                "controls": len(controls),
                "controls_broken": sum(row["holds"] for row in controls),
                "measured_to_bound": _largest_ratio([row for row in legs if row["leg"] == FLOATING]),
                "control_to_threshold": _smallest_margin(controls),
                "verification": claim.verification,
            }
        )
    return rows
