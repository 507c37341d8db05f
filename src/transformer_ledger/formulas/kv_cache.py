"""Bytes of keys and values, or of a fixed state, that one layer keeps. Unit everywhere: [byte].

Sources: Shazeer 2019, arXiv:1911.02150 (shared K/V heads); Ainslie et al. 2023, arXiv:2305.13245 (groups); DeepSeek-V2,
arXiv:2405.04434 (latent), and -V3.2, arXiv:2512.02556 (indexer); Yang et al. 2024, arXiv:2412.06464, and Dao and Gu
2024, arXiv:2405.21060 (fixed states).
"""

from __future__ import annotations

from typing import Any

from transformer_ledger.formulas.shim import formula, minimum


@formula
def full(B: Any, T: Any, h_kv: Any, d_h: Any, b: Any) -> Any:
    """Keys and values of T positions of B sequences.  [byte]"""
    return 2 * B * T * h_kv * d_h * b


@formula
def windowed(B: Any, T: Any, w: Any, h_kv: Any, d_h: Any, b: Any) -> Any:
    """Keys and values of the last w positions of B sequences.  [byte]"""
    return 2 * B * minimum(T, w) * h_kv * d_h * b


@formula
def windowed_between_steps(B: Any, T: Any, w: Any, h_kv: Any, d_h: Any, b: Any) -> Any:
    """The same between two steps: the next token adds its own key, so w − 1 old ones are enough.  [byte]"""
    return 2 * B * minimum(T, w - 1) * h_kv * d_h * b


@formula
def latent(B: Any, T: Any, r_kv: Any, d_r: Any, b: Any) -> Any:
    """Latent and shared rotated key of T positions of B sequences.  [byte]"""
    return B * T * (r_kv + d_r) * b


@formula
def latent_indexed(B: Any, T: Any, r_kv: Any, d_r: Any, d_i: Any, b: Any) -> Any:
    """The same, plus one indexer key per position (DeepSeek-V3.2).  [byte]"""
    return B * T * (r_kv + d_r + d_i) * b


@formula
def fixed_state(B: Any, g_s: Any, d_k: Any, h_s: Any, d_v: Any, K: Any, b: Any) -> Any:
    """Last K inputs of each convolution channel, and each head's fp32 state, for B sequences of any length.  [byte]"""
    return B * (2 * g_s * d_k + h_s * d_v) * K * b + 4 * B * h_s * d_k * d_v


@formula
def multi_head(B: Any, T: Any, h: Any, d_h: Any, d_v: Any, b: Any) -> Any:
    """Keys and values for every query head: the cache without shared heads and without a latent.  [byte]"""
    return B * T * h * (d_h + d_v) * b


@formula
def ratio_to_multi_head(h_kv: Any, h: Any) -> Any:
    """Cache with h_kv key/value heads, divided by one with a key/value head for each of h query heads.  [1]"""
    return h_kv / h
