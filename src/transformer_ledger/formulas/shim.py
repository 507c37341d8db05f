"""What a formula needs beyond + − × and powers, for the kinds of argument that a formula takes.

A Python int gives an exact int; a NumPy array gives an exact table; a SymPy expression gives an expression; an Interval
gives bounds of all that the formula meets on its way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

LIMIT = 2**63  # what int64 holds is below it


class Interval:
    """All integers from `low` to `high`, with the operations of a formula.

    Raises OverflowError as soon as one of them does not fit int64: code that runs through on intervals never wraps on
    int64 arrays whose values lie in them.
    """

    __slots__ = ("high", "low")

    def __init__(self, low: int, high: int):
        if low < -LIMIT or high >= LIMIT:
            raise OverflowError(f"{low} … {high} passes int64")
        self.low, self.high = low, high

    @staticmethod
    def _of(*values: int) -> Interval:
        return Interval(min(values), max(values))

    def __add__(self, other: Any) -> Interval:
        b = interval(other)
        return Interval(self.low + b.low, self.high + b.high)

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __sub__(self, other: Any) -> Interval:
        b = interval(other)
        return Interval(self.low - b.high, self.high - b.low)

    def __rsub__(self, other: Any) -> Interval:
        return interval(other) - self

    def __mul__(self, other: Any) -> Interval:
        b = interval(other)
        return self._of(*(x * y for x in (self.low, self.high) for y in (b.low, b.high)))

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: Any) -> Interval:
        b = interval(other)
        if b.low <= 0:
            raise OverflowError(f"a divisor from {b.low} to {b.high}")
        return self._of(*(x // y for x in (self.low, self.high) for y in (b.low, b.high)))

    def __rfloordiv__(self, other: Any) -> Interval:
        return interval(other) // self

    def __pow__(self, power: int) -> Interval:
        return self._of(0 if self.low < 0 < self.high else self.low**power, self.low**power, self.high**power)

    def __bool__(self) -> bool:
        if self.low <= 0 <= self.high and self.low != self.high:
            raise ValueError("some are 0 and some are not")
        return self.low != 0


def interval(value: Any) -> Interval:
    """The bounds of an Interval, an integer or an array of integers that is not empty."""
    if isinstance(value, Interval):
        return value
    return Interval(int(value.min()), int(value.max())) if _array(value) else Interval(value, value)


def _symbolic(*values: Any) -> bool:
    return any(hasattr(value, "free_symbols") for value in values)


def _array(*values: Any) -> bool:
    return any(hasattr(value, "dtype") for value in values)


def minimum(a: Any, b: Any) -> Any:
    """The smaller of a and b."""
    if isinstance(a, Interval) or isinstance(b, Interval):
        x, y = interval(a), interval(b)
        return Interval(min(x.low, y.low), min(x.high, y.high))
    if _symbolic(a, b):
        import sympy

        return sympy.Min(a, b)
    if _array(a, b):
        import numpy

        return numpy.minimum(a, b)
    return min(a, b)


def exceeds(a: Any, b: Any) -> Any:
    """1 where the integer a is greater than the integer b, 0 where it is not."""
    if _symbolic(a, b):
        import sympy

        return sympy.Min(1, sympy.Max(0, a - b))
    return int(a > b)


def quotient(a: Any, b: Any) -> Any:
    """a / b where b divides a. Raises ArithmeticError where it does not: an integer is never rounded in silence."""
    if _symbolic(a):
        return a / b
    if isinstance(a, Interval) or isinstance(b, Interval):
        return interval(a) // b
    remainder = a % b != 0
    if remainder.any() if _array(a) else remainder:
        raise ArithmeticError(f"{b} does not divide {a}")
    return a // b


def ceiling_quotient(a: Any, b: Any) -> Any:
    """⌈a / b⌉."""
    if _symbolic(a, b):
        import sympy

        return sympy.ceiling(sympy.sympify(a) / b)
    return -(-a // b)


def _exact(value: Any) -> Any:
    if isinstance(value, int) or not _array(value) or getattr(value, "checked", False):
        return value
    if value.dtype.kind in "iu":
        return value.astype(object) if value.ndim else int(value)
    return value


def formula(function: Callable[..., Any]) -> Callable[..., Any]:
    """Guard a formula against NumPy's fixed-width integers, whose products wrap around without a word.

    Integer arrays become arrays of Python ints, so a result that passes 2⁶³ is right, and raises OverflowError where it
    is put back into an int64 array. `arrays.checked` gives arrays that are bounded before, which stay as they are.
    """

    @functools.wraps(function)
    def exact(*args: Any, **named: Any) -> Any:
        return function(*map(_exact, args), **{name: _exact(value) for name, value in named.items()})

    return exact
