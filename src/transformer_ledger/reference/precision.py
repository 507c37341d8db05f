"""Arithmetics that the reference computations run in: fp64, fp32, an emulated bf16, and exact fractions.

Each offers `array` (take numbers in), `round` (after every operation), `exp`, and `sum` in index order. Code written
with them alone computes the same thing in each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from transformer_ledger.bounds import LIBRARY, SMALLEST_SUBNORMAL, UNIT_ROUNDOFF, Array


def round_bf16(x: Any) -> Array:
    """Nearest bfloat16 (8 significant bits, ties to even, the exponent range of fp32) of fp64 numbers, as fp64."""
    x = np.asarray(x, np.float64)
    bits = x.view(np.uint64)
    dropped = np.uint64(45)
    half = (np.uint64(1) << (dropped - np.uint64(1))) - np.uint64(1)
    nearest = (((bits + half + ((bits >> dropped) & np.uint64(1))) >> dropped) << dropped).view(np.float64)
    spacing = SMALLEST_SUBNORMAL["bf16"]
    with np.errstate(invalid="ignore"):
        nearest = np.where(np.abs(x) < 2.0**-126, np.rint(x / spacing) * spacing, nearest)
    nearest = np.where(np.abs(nearest) >= 2.0**128, np.copysign(np.inf, x), nearest)
    return np.where(np.isfinite(x), nearest, x)


def _same(x: Any) -> Any:
    return x


@dataclass(frozen=True)
class Arithmetic:
    """A working precision.

    `library` is the error of exp, sin, cos and power in units of u, `subnormal` the absolute error of underflow.
    """

    name: str
    dtype: Any  # NumPy type that carries the numbers
    round: Callable[[Any], Any]
    exp: Callable[[Any], Any]
    u: float
    subnormal: float
    library: float

    def array(self, x: Any) -> Array:
        """Numbers rounded into this arithmetic."""
        return np.asarray(self.round(np.asarray(x, self.dtype)))

    def sum(self, x: Array) -> Any:
        """Sum over the first axis in index order, rounded after every addition; 0 where there is nothing to add."""
        total = x[0] if len(x) else self.array(np.zeros(x.shape[1:]))
        for row in x[1:]:
            total = self.round(total + row)
        return total


FP64 = Arithmetic("fp64", np.float64, _same, np.exp, UNIT_ROUNDOFF["fp64"], SMALLEST_SUBNORMAL["fp64"], LIBRARY)
FP32 = Arithmetic("fp32", np.float32, _same, np.exp, UNIT_ROUNDOFF["fp32"], SMALLEST_SUBNORMAL["fp32"], LIBRARY)
# Every operation in fp64, then rounded: one rounding for each function too (the fp64 error is below 2^-40 of it).
BF16 = Arithmetic(
    "bf16",
    np.float64,
    round_bf16,
    lambda x: round_bf16(np.exp(x)),
    UNIT_ROUNDOFF["bf16"],
    SMALLEST_SUBNORMAL["bf16"],
    1 + 2.0**-40,
)
ARITHMETICS = {arithmetic.name: arithmetic for arithmetic in (FP64, FP32, BF16)}


def _power_of_two(x: Any) -> Any:
    return np.vectorize(lambda exponent: Fraction(2) ** int(exponent), otypes=[object])(x)


def _fractions(x: Any) -> Array:
    out = np.empty(np.shape(x), object)
    out[...] = np.vectorize(lambda number: Fraction(number), otypes=[object])(x) if np.size(x) else x
    return out


@dataclass(frozen=True)
class Rational(Arithmetic):
    """Exact fractions with 2ˣ as the exponential: integer scores stay rational."""

    def array(self, x: Any) -> Array:
        """Numbers as fractions."""
        return _fractions(np.asarray(x, object))


RATIONAL = Rational("rational", object, _same, _power_of_two, 0.0, 0.0, 0.0)
