"""Formulas of other tools and papers that cannot be computed by adding rows of a ledger.

Sources: Kaplan et al. 2020, arXiv:2001.08361, section 2.1 (12Ld², 2N and its attention term); Chowdhery et al. 2022,
arXiv:2204.02311, appendix B (12LHQT); Hoffmann et al. 2022, arXiv:2203.15556, appendix F (softmax).
"""

from __future__ import annotations

from typing import Any

from transformer_ledger.formulas.shim import formula


@formula
def standard_parameters(L: Any, d: Any) -> Any:
    """Non-embedding parameters of the standard shape: h·d_h = d, feed-forward width 4d.  [parameter]"""
    return 12 * L * d**2


@formula
def rule_forward(B: Any, T: Any, N: Any) -> Any:
    """The rule for a forward pass: 2 FLOPs for each parameter and token.  [FLOP]"""
    return 2 * N * B * T


@formula
def kaplan_attention(B: Any, T: Any, h: Any, d_h: Any) -> Any:
    """Kaplan's attention term of one layer, forward: scores and values over half the pairs.  [FLOP]"""
    return 2 * B * T**2 * h * d_h


@formula
def palm_attention(B: Any, T: Any, h: Any, d_h: Any) -> Any:
    """PaLM's attention term of one layer, forward and backward: 12HQT per token.  [FLOP]"""
    return 12 * B * T**2 * h * d_h


@formula
def half_scores(B: Any, T: Any, S: Any, h: Any, d_h: Any) -> Any:
    """QKᵀ where every token sees half of S keys; the weighted sum of V costs as much.  [FLOP]"""
    return B * T * S * h * d_h


@formula
def softmax(B: Any, T: Any, h: Any) -> Any:
    """Softmax of one layer at 3 operations per score.  [FLOP]"""
    return 3 * B * h * T**2
