"""Bytes that numbers take when they are stored as a named type."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from transformer_ledger.formulas.shim import ceiling_quotient

BITS = {"fp64": 64, "fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4, "int2": 2}
GROUP_BYTES = 4  # a group of a quantised type keeps a scale and a shift of 16 bits each, or one scale in fp32

BLOCKS = {"q4_0": (32, 18), "q4_1": (32, 20), "q5_0": (32, 22), "q5_1": (32, 24), "q8_0": (32, 34), "iq4_nl": (32, 18)}
BLOCKS |= {"q2_k": (256, 84), "q3_k": (256, 110), "q4_k": (256, 144), "q5_k": (256, 176), "q6_k": (256, 210)}
BLOCKS |= {"mxfp4": (32, 17), "nvfp4": (16, 9)}
"""Numbers that are stored in a block, and its bytes, constants and all: the types of GGUF files (ggml-common.h), and two of
the Open Compute Project's and of Nvidia's."""


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


def known(dtype: str) -> str:
    """The same name, lower case. Raises ValueError where no number is stored as that."""
    if dtype.lower() not in BLOCKS:
        try:
            split(dtype)
        except ValueError as error:
            raise ValueError(f"{error}; or, by block, {', '.join(BLOCKS)}") from None
        return dtype
    return dtype.lower()


def bytes_per_number(dtype: str) -> Fraction:
    """Bytes of one of many numbers, with its share of its group's constants: bf16 is 2, int4-g64 is 1/2 + 4/64."""
    if dtype in BLOCKS:
        return Fraction(BLOCKS[dtype][1], BLOCKS[dtype][0])
    size, group = split(dtype)
    return size + (Fraction(GROUP_BYTES, group) if group else 0)


def row_bytes(width: Any, dtype: str) -> Any:
    """Bytes of `width` numbers stored side by side: whole bytes, and whole groups with their constants."""
    if dtype in BLOCKS:
        numbers, block = BLOCKS[dtype]
        return -(-width // numbers) * block
    size, group = split(dtype)
    if not group:
        return ceiling_quotient(width * size.numerator, size.denominator)
    groups = ceiling_quotient(width, group)
    return ceiling_quotient(groups * group * size.numerator, size.denominator) + groups * GROUP_BYTES


def whole(size: int | Fraction) -> int:
    """A size in whole bytes: a started byte counts."""
    return -(-size.numerator // size.denominator)
