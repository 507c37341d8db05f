"""Bounds of all that a formula meets on its way, and with them the polynomial that its result is of its arguments."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

LIMIT = 2**63  # what int64 holds is below it
Monomial = frozenset[tuple[Hashable, int]]  # atoms, each with its power
Terms = Mapping[Monomial, int]  # a polynomial: coefficients of monomials
UNIT: Monomial = frozenset()


def _plus(a: Terms, b: Terms) -> Terms:
    out = dict(a)
    for monomial, coefficient in b.items():
        out[monomial] = out.get(monomial, 0) + coefficient
    return {monomial: coefficient for monomial, coefficient in out.items() if coefficient}


def _joined(a: Monomial, b: Monomial) -> Monomial:
    if not (a and b):
        return a or b
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return frozenset(powers.items())


def _times(a: Terms, b: Terms) -> Terms:
    out: dict[Monomial, int] = {}
    for monomial, coefficient in a.items():
        for other, factor in b.items():
            both = _joined(monomial, other)
            out[both] = out.get(both, 0) + coefficient * factor
    return {monomial: coefficient for monomial, coefficient in out.items() if coefficient}


class Interval:
    """All integers from `low` to `high`, with the operations of a formula.

    `terms` is the polynomial that they are of atoms: of what the formula is given, and of what no + − × makes of other
    polynomials, ("//", a, b), ("/", a, b) or ("minimum", a, b). Raises OverflowError as soon as a value does not fit
    int64.
    """

    __slots__ = ("high", "low", "terms")

    def __init__(self, low: int, high: int, terms: Terms | None = None):
        if low < -LIMIT or high >= LIMIT:
            raise OverflowError(f"{low} … {high} passes int64")
        self.low, self.high = low, high
        self.terms: Terms = {frozenset({(object(), 1)}): 1} if terms is None else terms

    def _made(self, operation: str, other: Interval, *values: int) -> Interval:
        """What an operation makes, an atom, with the least and the greatest of some values for bounds."""
        atom = operation, frozenset(self.terms.items()), frozenset(other.terms.items())
        return Interval(min(values), max(values), {frozenset({(atom, 1)}): 1})

    def __add__(self, other: Any) -> Interval:
        b = interval(other)
        return Interval(self.low + b.low, self.high + b.high, _plus(self.terms, b.terms))

    def __neg__(self) -> Interval:
        return self * -1

    def __sub__(self, other: Any) -> Interval:
        return self + -interval(other)

    def __rsub__(self, other: Any) -> Interval:
        return interval(other) + -self

    def __mul__(self, other: Any) -> Interval:
        b = interval(other)
        values = [x * y for x in (self.low, self.high) for y in (b.low, b.high)]
        return Interval(min(values), max(values), _times(self.terms, b.terms))

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: Any) -> Interval:
        return self._divided("//", interval(other))

    def __rfloordiv__(self, other: Any) -> Interval:
        return interval(other) // self

    def quotient(self, other: Any) -> Interval:
        """The same where `other` must divide, which shows when values are put in."""
        return self._divided("/", interval(other))

    def _divided(self, operation: str, b: Interval) -> Interval:
        if b.low <= 0:
            raise OverflowError(f"a divisor from {b.low} to {b.high}")
        values = [x // y for x in (self.low, self.high) for y in (b.low, b.high)]
        return self if b.high == 1 else self._made(operation, b, *values)

    def minimum(self, other: Any) -> Interval:
        """The smaller of both."""
        b = interval(other)
        return self._made("minimum", b, min(self.low, b.low), min(self.high, b.high))

    def __pow__(self, power: int) -> Interval:
        ends = self.low**power, self.high**power
        terms: Terms = {UNIT: 1}
        for _ in range(power):
            terms = _times(terms, self.terms)
        return Interval(0 if self.low < 0 < self.high else min(ends), max(ends), terms)

    def __bool__(self) -> bool:
        if self.low <= 0 <= self.high and self.low != self.high:
            raise ValueError("some are 0 and some are not")
        return self.low != 0


def interval(value: Any) -> Interval:
    """The Interval that a value is, or that holds an integer."""
    return value if isinstance(value, Interval) else Interval(value, value, {UNIT: value} if value else {})
