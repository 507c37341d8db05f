"""Bytes of one stored number, by the name of its type."""

from __future__ import annotations

from fractions import Fraction

BITS = {"fp64": 64, "fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4, "int2": 2}
GROUP_BITS = 32  # a group of a quantised type keeps a scale and a zero point of 16 bits each


def bytes_per_number(dtype: str) -> Fraction:
    """Bytes of one number: bf16 is 2; int4-g64, quantised in groups of 64, is 4/8 + 32/(8·64) = 9/16.

    Raises ValueError for a name that is neither a key of BITS nor one of its integer types with -g and a group size.
    """
    name, _, group = dtype.partition("-g")
    if name not in BITS or (group and not (name.startswith("int") and group.isdigit() and int(group))):
        raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join(BITS)}, and int8, int4, int2 with a group as int4-g64")
    return Fraction(BITS[name], 8) + (Fraction(GROUP_BITS, 8 * int(group)) if group else 0)


def whole(size: int | Fraction) -> int:
    """A size in whole bytes: a started byte counts."""
    return -(-size.numerator // size.denominator)
