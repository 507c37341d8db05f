"""Rotary positions in both pairings, for any kind of number (RoFormer, arXiv:2104.09864, section 3.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

PAIRINGS = ("interleaved", "half-split")


def pairs(head_dim: int, pairing: str) -> tuple[Any, Any]:
    """Indices of the first and of the second component of each rotated pair, (d_h/2,) each.

    `interleaved` pairs 2i with 2i+1 (RoFormer), `half-split` i with i + d_h/2 (GPT-NeoX, Llama in transformers).
    """
    if head_dim % 2:
        raise ValueError(f"head_dim {head_dim} is odd; rotary positions pair the components, so it must be even")
    if pairing not in PAIRINGS:
        raise ValueError(f"pairing {pairing!r}; one of {', '.join(PAIRINGS)}")
    index = np.arange(head_dim)
    return (index[0::2], index[1::2]) if pairing == "interleaved" else (index[: head_dim // 2], index[head_dim // 2 :])


def frequencies(head_dim: int, base: float) -> Any:
    """ω_i = base^(−2i/d_h), i = 0 … d_h/2−1, in radians a token."""
    return base ** (-2.0 * np.arange(head_dim // 2) / head_dim)


def rotate(x: Any, cos: Any, sin: Any, pairing: str, join: Callable[[list[Any]], Any]) -> Any:
    """Every pair (a, b) of x (…, T, d_h) turned to (a·cos − b·sin, a·sin + b·cos); cos and sin are (T, d_h/2).

    `join` concatenates along the last axis. Any numbers will do: floats, Fractions, SymPy expressions, bounded values.
    """
    first, second = pairs(x.shape[-1], pairing)
    a, b = x[..., first], x[..., second]
    turned = join([a * cos - b * sin, a * sin + b * cos])
    return turned[..., np.argsort(np.concatenate([first, second]))]
