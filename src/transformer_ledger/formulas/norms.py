"""Scalar operations and bytes of a norm over one vector of width d, with ε, without gain and bias.

Sources: Ba, Kiros and Hinton 2016, arXiv:1607.06450 (LayerNorm); Zhang and Sennrich 2019, arXiv:1910.07467 (RMSNorm).
An addition, a product, a quotient and a root count as 1 each.
"""

from __future__ import annotations

from typing import Any

from transformer_ledger.formulas.shim import formula


@formula
def rms_norm_operations(d: Any) -> Any:
    """d squares, d − 1 additions, mean, ε, root, d quotients.  [FLOP]"""
    return 3 * d + 2


@formula
def layer_norm_operations(d: Any) -> Any:
    """The same after d − 1 additions, a quotient and d subtractions for the mean.  [FLOP]"""
    return 5 * d + 2


@formula
def norm_bytes(d: Any, b: Any) -> Any:
    """The vector read once and the result written once, b bytes each: the same for both norms.  [byte]"""
    return 2 * d * b
