"""What a formula needs beyond + − × and powers, for the kinds of argument that a formula takes.

A Python int gives an exact int; a NumPy array gives an exact table; a SymPy expression gives an expression; an Interval
gives bounds of all that the formula meets on its way, and the result as a polynomial.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from transformer_ledger.formulas.interval import Interval, interval


def _symbolic(*values: Any) -> bool:
    return any(hasattr(value, "free_symbols") for value in values)


def _array(*values: Any) -> bool:
    return any(hasattr(value, "dtype") for value in values)


def minimum(a: Any, b: Any) -> Any:
    """The smaller of a and b."""
    if isinstance(a, Interval) or isinstance(b, Interval):
        return interval(a).minimum(b)
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
        return interval(a).quotient(b)
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
