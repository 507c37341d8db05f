"""FLOPs and time of a whole training run.

Source of the rules: Kaplan et al. 2020, arXiv:2001.08361, section 2.1 and table 1.
"""

from __future__ import annotations

from typing import Any

from transformer_ledger.formulas.shim import formula, quotient


@formula
def rule_parameters(L: Any, d: Any, V: Any) -> Any:
    """The rule for a decoder's size: 4d² attention and 8d² feed-forward weights per layer, one embedding.  [parameter]"""
    return 12 * L * d**2 + V * d


@formula
def rule_flops(N: Any, D: Any) -> Any:
    """The rule for training: 2 FLOPs forward and 4 backward for each parameter and token.  [FLOP]"""
    return 6 * N * D


@formula
def exact_flops(F: Any, D: Any, T: Any) -> Any:
    """FLOPs of a training on D tokens, if one sequence of T tokens costs F. Each run in the ledger has its own T.  [FLOP]"""
    return quotient(F, T) * D


@formula
def seconds(F: Any, G: Any, R: Any) -> Any:
    """Time of a training run of F FLOPs (here 6ND) on G devices that sustain R each.  [s]"""
    return F / (G * R)


@formula
def implied_rate(F: Any, W: Any) -> Any:
    """Rate that each device sustained if a training run of F FLOPs (here 6ND) took W device-hours.  [FLOP/s]"""
    return F / (3600 * W)
