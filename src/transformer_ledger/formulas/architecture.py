"""Formulas that the two texts print for whole blocks. The ledgers add up single terms; the claims compare the two.

Sources: the texts' own formulas; Su et al. 2021, arXiv:2104.09864 (rotary frequencies); Ainslie et al. 2023,
arXiv:2305.13245 (groups); Shazeer 2020, arXiv:2002.05202 (gated width at equal budget).
"""

from __future__ import annotations

from typing import Any

from transformer_ledger.formulas.shim import ceiling_quotient, formula, quotient


@formula
def teaching_parameters(V: Any, d: Any, C: Any, L: Any, f: Any) -> Any:
    """The teaching decoder: untied head, learned positions, biases in feed-forward and norms only.  [parameter]"""
    return 2 * V * d + C * d + L * (4 * d**2 + 2 * d * f + f + 5 * d) + 2 * d


@formula
def attention_parameters(d: Any) -> Any:
    """Query, key, value and output weights of multi-head attention, whatever the number of heads.  [parameter]"""
    return 4 * d**2


@formula
def grouped_attention_parameters(d: Any, h_kv: Any, d_h: Any) -> Any:
    """Attention weights with h_kv key/value heads, if the query heads fill the width (h·d_h = d).  [parameter]"""
    return 2 * d**2 + 2 * d * h_kv * d_h


@formula
def attention_projections(B: Any, T: Any, d: Any) -> Any:
    """The four projections of multi-head attention in one layer, forward.  [FLOP]"""
    return 8 * B * T * d**2


@formula
def attention_scores_and_values(B: Any, T: Any, d: Any) -> Any:
    """QKᵀ and the weighted sum of V in one layer, every query against every key, forward.  [FLOP]"""
    return 4 * B * T**2 * d


@formula
def plain_feedforward(B: Any, T: Any, d: Any, f: Any) -> Any:
    """Up and down projection of one layer's plain feed-forward, forward.  [FLOP]"""
    return 4 * B * T * d * f


@formula
def gated_feedforward(B: Any, T: Any, d: Any, f: Any) -> Any:
    """Gate, up and down projection of one layer's gated feed-forward, forward.  [FLOP]"""
    return 6 * B * T * d * f


@formula
def head(B: Any, T: Any, V: Any, d: Any) -> Any:
    """Logits of every token, forward.  [FLOP]"""
    return 2 * B * T * V * d


@formula
def plain_feedforward_parameters(d: Any, f: Any) -> Any:
    """Weights of a plain feed-forward.  [parameter]"""
    return 2 * d * f


@formula
def plain_feedforward_biases(d: Any, f: Any) -> Any:
    """Biases of a plain feed-forward.  [parameter]"""
    return f + d


@formula
def gated_feedforward_parameters(d: Any, f: Any) -> Any:
    """Weights of a gated feed-forward.  [parameter]"""
    return 3 * d * f


@formula
def gated_feedforward_biases(d: Any, f: Any) -> Any:
    """Biases of a gated feed-forward.  [parameter]"""
    return 2 * f + d


@formula
def equal_budget_width(f: Any) -> Any:
    """Width of a gated feed-forward with the weights of a plain one f wide; 3 must divide 2f.  [component]"""
    return quotient(2 * f, 3)


@formula
def rounded_up_width(f: Any, m: Any) -> Any:
    """f rounded up to a multiple of m.  [component]"""
    return m * ceiling_quotient(f, m)


@formula
def attention_probabilities(B: Any, h: Any, T: Any, b: Any) -> Any:
    """One layer's attention probabilities, b bytes each.  [byte]"""
    return B * h * T**2 * b


@formula
def key_value_head(i: Any, g: Any) -> Any:
    """Key/value head that query head i reads in groups of g: ⌊i/g⌋.  [head]"""
    return i // g


@formula
def rotary_frequency(i: Any, theta: Any, d_h: Any) -> Any:
    """Angle per position of component pair i = 0 … d_h/2 − 1, for base theta.  [rad/token]"""
    return theta ** (-2 * i / d_h)
