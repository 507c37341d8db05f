"""Bytes that numbers take when they are stored as a named type."""

from __future__ import annotations

import re
from fractions import Fraction

BITS = {"fp64": 64, "fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4, "int2": 2}
GROUP_BYTES = 4  # a group of a quantised type keeps a scale and a shift of 16 bits each, or one scale in fp32


def split(dtype: str) -> tuple[Fraction, int]:
    """Bytes of one number without its group's constants, and the group's size (0: no groups): int4-g64 is ½ and 64.

    Raises ValueError for a name that is neither a key of BITS nor one of its integer types with -g and a group size.
    """
    name, grouped, group = dtype.partition("-g")
    if name not in BITS or (grouped and not (name.startswith("int") and re.fullmatch("[1-9][0-9]{0,5}", group))):
        raise ValueError(
            f"unknown dtype {dtype[:40]!r}; known: {', '.join(BITS)}, and int8, int4, int2 in groups as int4-g64"
        )
    return Fraction(BITS[name], 8), int(group or 0)


def bytes_per_number(dtype: str) -> Fraction:
    """Bytes of one of many numbers, with its share of its group's constants: bf16 is 2, int4-g64 is 1/2 + 4/64."""
    size, group = split(dtype)
    return size + (Fraction(GROUP_BYTES, group) if group else 0)


def row_bytes(width: int, dtype: str) -> int:
    """Bytes of `width` numbers stored side by side: whole bytes, and whole groups with their constants."""
    size, group = split(dtype)
    if not group:
        return whole(width * size)
    groups = -(-width // group)
    return whole(groups * group * size) + groups * GROUP_BYTES


def whole(size: int | Fraction) -> int:
    """A size in whole bytes: a started byte counts."""
    return -(-size.numerator // size.denominator)
