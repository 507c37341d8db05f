"""Made-up rows of a verification table, for tests of what reads them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

LEGS = ("exact", "floating", "control")
SCOPES = ("stated", "conditioned", "corrected", "printed")
Number = int | float | Fraction


def _plain(value: Any) -> Number:
    """A NumPy, torch or SymPy number as int, Fraction or float."""
    if isinstance(value, (int, float, Fraction)) and not isinstance(value, bool):
        return value
    if getattr(value, "is_Rational", False):
        return Fraction(int(value.p), int(value.q))
    if hasattr(value, "item"):
        return _plain(value.item())
    if isinstance(value, bool):
        return int(value)
    return float(value)


def _float(value: Number | None) -> float | None:
    if value is None:
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _exact(value: Number | None) -> str | None:
    return str(value) if isinstance(value, (int, Fraction)) else None


def case(
    claim: str,
    case: str,
    leg: str,
    quantity: str,
    measured: Any,
    relation: str,
    expected: Any,
    *,
    scope: str = "stated",
    bound_source: str = "",
    printed: str | None = None,
    unit: str = "",
    backend: str = "",
    headline: bool = False,
    applicable: bool = True,
) -> dict[str, Any]:
    """One row of a verification table.

    `measured` and `expected` are int, Fraction, float or a NumPy/torch/SymPy number; for `in`, expected is (low, high).
    `bitwise` takes the number of values whose bits differ and wants `expected` 0. Integers and fractions are compared
    exactly. A control is phrased so that `holds` means "the break was seen". A NaN never holds.
    """
    if leg not in LEGS or scope not in SCOPES:
        raise ValueError(f"{claim}: leg {leg!r}, scope {scope!r}")
    value = _plain(measured)
    low: Number | None = None
    high: Number | None = None
    wanted: Number
    if relation == "in":
        low, high = _plain(expected[0]), _plain(expected[1])
        holds = low <= value <= high
        wanted = (low + high) / 2
    else:
        wanted = _plain(expected)
        if relation in ("bitwise", "=="):
            holds = value == wanted
        elif relation == "<=":
            holds = value <= wanted
        elif relation == ">=":
            holds = value >= wanted
        else:
            raise ValueError(f"{claim}: relation {relation!r}")
    return {
        "claim": claim,
        "case": case,
        "leg": leg,
        "scope": scope,
        "backend": backend,
        "quantity": quantity,
        "measured": _float(value),
        "relation": relation,
        "expected": _float(wanted),
        "lower": _float(low),
        "upper": _float(high),
        "measured_exact": _exact(value),
        "expected_exact": _exact(wanted),
        "bound_source": bound_source,
        "printed": printed,
        "unit": unit,
        "holds": bool(holds),
        "applicable": applicable,
        "headline": headline,
        "route": None,
        "other_route": None,
        "key": None,
        "reproduced": None,
    }
