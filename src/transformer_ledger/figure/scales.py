"""Ticks of the pictures' axes: (place, text) pairs at powers of two or ten."""

from __future__ import annotations

import math
from collections.abc import Sequence

from transformer_ledger.report.numbers import duration, plain, short, size

Ticks = list[tuple[float, str]]


def powers(low: int, high: int) -> list[int]:
    """The powers of two from `low` to `high`, and `high` itself."""
    out = [1 << k for k in range(low.bit_length() - 1, high.bit_length()) if low <= 1 << k <= high]
    return out if out and out[-1] == high else [*out, high]


def ticks(values: Sequence[float], most: int = 7) -> Ticks:
    """Powers of two in the range of `values`, not more than `most`."""
    low, high = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    step = max(1, math.ceil((high - low + 1) / most))
    return [(2.0**k, short(2**k) if k >= 0 else short(2.0**k)) for k in range(low, high + 1, step)]


def byte_ticks(values: Sequence[float]) -> Ticks:
    """Every fifth power of two in the range of `values`, as sizes; more of them where two would not be in it."""
    low, high = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    powers = range(low, max(high, low + 1) + 1)
    step = next(step for step in (5, 2, 1) if step == 1 or sum(k % step == 0 for k in powers) > 1)
    return [(2.0**k, memory(2**k)) for k in powers if k % step == 0]


def time_ticks(values: Sequence[float]) -> Ticks:
    """Powers of ten around `values`, as times."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [(10.0**k, time(10.0**k)) for k in range(low, high + 1)]


def time(seconds: float) -> str:
    """Seconds in words."""
    return plain(duration(seconds))


def memory(count: float) -> str:
    """Bytes in words."""
    return plain(size(int(count)))
