"""FLOPs of one layer's matrix products in one forward pass over B sequences of T new tokens. Unit everywhere: [FLOP].

A multiply-add is 2 FLOPs. A projection of m inputs to n outputs costs 2·m·n per token (Kaplan et al. 2020,
arXiv:2001.08361, section 2.1); softmax, norms, activations, rotations and biases are no matrix products and are left
out, and an embedding lookup costs nothing. There are three conventions. full: each of T new tokens is compared with S
keys, as a dense kernel does with or without a mask. causal-exact: only the pairs that the mask allows count. absorbed:
latent attention when decoding, with the up-projections moved to the query and the output. For layers with a fixed-size
recurrent state (Gated DeltaNet, Kimi Delta Attention, Mamba-2) we count one recurrent step for each token: reading and
writing the state, and the convolution before it. Element-wise gates are not counted, and neither are the extra products
of a chunked scan. An indexer (DeepSeek-V3.2) scores all keys that the convention counts. In the full convention,
attention then counts all keys, because a dense kernel only masks those not selected; causal-exact and absorbed count
the selected keys only. No gradient passes through the selection, so an indexer costs no backward FLOPs.
"""

from __future__ import annotations

from typing import Any

from transformer_ledger.formulas.shim import formula, minimum, quotient


@formula
def causal_pairs(T: Any) -> Any:
    """Query–key pairs that a causal mask allows in a sequence of T tokens: 1 + 2 + … + T.  [pair]"""
    return quotient(T * (T + 1), 2)


@formula
def windowed_pairs(T: Any, w: Any) -> Any:
    """Causal pairs when a token sees itself and the w − 1 before it; w(w + 1)/2 + (T − w)·w where w ≤ T.  [pair]"""
    return causal_pairs(minimum(T, w)) + (T - minimum(T, w)) * minimum(T, w)


@formula
def chunked_pairs(T: Any, w: Any) -> Any:
    """Causal pairs when a token sees its own chunk of w tokens only, up to itself; the last chunk may be shorter.  [pair]"""
    return T // w * causal_pairs(w) + causal_pairs(T - T // w * w)


@formula
def training(F: Any) -> Any:
    """Forward and backward: the backward pass computes the inputs' and the weights' gradients, F each.  [FLOP]"""
    return 3 * F


@formula
def multiply_adds(F: Any) -> Any:
    """Multiply-adds of F FLOPs.  [multiply-add]"""
    return quotient(F, 2)


@formula
def query(B: Any, T: Any, d: Any, h: Any, d_h: Any) -> Any:
    """Query projection.  [FLOP]"""
    return 2 * B * T * d * h * d_h


@formula
def key_or_value(B: Any, T: Any, d: Any, h_kv: Any, d_h: Any) -> Any:
    """Key projection, or value projection.  [FLOP]"""
    return 2 * B * T * d * h_kv * d_h


@formula
def output(B: Any, T: Any, h: Any, d_h: Any, d: Any) -> Any:
    """Output projection.  [FLOP]"""
    return 2 * B * T * h * d_h * d


@formula
def scores(B: Any, T: Any, S: Any, h: Any, d_h: Any) -> Any:
    """QKᵀ, every new token against S keys; the weighted sum of V costs the same if its heads are as wide.  [FLOP]"""
    return 2 * B * T * S * h * d_h


@formula
def values(B: Any, T: Any, S: Any, h: Any, d_v: Any) -> Any:
    """Weighted sum of V where value heads are d_v wide.  [FLOP]"""
    return 2 * B * T * S * h * d_v


@formula
def scores_windowed(B: Any, T: Any, S: Any, w: Any, h: Any, d_h: Any) -> Any:
    """QKᵀ against the keys that a window keeps in the cache.  [FLOP]"""
    return 2 * B * T * minimum(S, w) * h * d_h


@formula
def values_windowed(B: Any, T: Any, S: Any, w: Any, h: Any, d_v: Any) -> Any:
    """Weighted sum of the values that a window keeps in the cache.  [FLOP]"""
    return 2 * B * T * minimum(S, w) * h * d_v


@formula
def scores_causal(B: Any, T: Any, h: Any, d_h: Any) -> Any:
    """QKᵀ over the pairs that the causal mask allows.  [FLOP]"""
    return 2 * B * causal_pairs(T) * h * d_h


@formula
def values_causal(B: Any, T: Any, h: Any, d_v: Any) -> Any:
    """Weighted sum of V over the pairs that the causal mask allows.  [FLOP]"""
    return 2 * B * causal_pairs(T) * h * d_v


@formula
def scores_causal_windowed(B: Any, T: Any, w: Any, h: Any, d_h: Any) -> Any:
    """QKᵀ over the pairs that the causal mask and a window allow.  [FLOP]"""
    return 2 * B * windowed_pairs(T, w) * h * d_h


@formula
def values_causal_windowed(B: Any, T: Any, w: Any, h: Any, d_v: Any) -> Any:
    """Weighted sum of V over the pairs that the causal mask and a window allow.  [FLOP]"""
    return 2 * B * windowed_pairs(T, w) * h * d_v


@formula
def scores_causal_chunked(B: Any, T: Any, w: Any, h: Any, d_h: Any) -> Any:
    """QKᵀ over the pairs that the causal mask and chunks of w tokens allow (Llama 4).  [FLOP]"""
    return 2 * B * chunked_pairs(T, w) * h * d_h


@formula
def values_causal_chunked(B: Any, T: Any, w: Any, h: Any, d_v: Any) -> Any:
    """Weighted sum of V over the pairs that the causal mask and chunks of w tokens allow (Llama 4).  [FLOP]"""
    return 2 * B * chunked_pairs(T, w) * h * d_v


@formula
def query_down(B: Any, T: Any, d: Any, r_q: Any) -> Any:
    """Latent attention: token to the query's latent.  [FLOP]"""
    return 2 * B * T * d * r_q


@formula
def query_up(B: Any, T: Any, r_q: Any, h: Any, d_h: Any) -> Any:
    """Latent attention: queries out of their latent.  [FLOP]"""
    return 2 * B * T * r_q * h * d_h


@formula
def latent_down(B: Any, T: Any, d: Any, r_kv: Any, d_r: Any) -> Any:
    """Latent attention: token to the cached latent and the shared rotated key.  [FLOP]"""
    return 2 * B * T * d * (r_kv + d_r)


@formula
def key_up(B: Any, S: Any, r_kv: Any, h: Any, d_h: Any, d_r: Any) -> Any:
    """Latent attention: the unrotated keys of all S positions out of the latent, at every step again.  [FLOP]"""
    return 2 * B * S * r_kv * h * (d_h - d_r)


@formula
def value_up(B: Any, S: Any, r_kv: Any, h: Any, d_v: Any) -> Any:
    """Latent attention: the values of all S positions out of the latent, at every step again.  [FLOP]"""
    return 2 * B * S * r_kv * h * d_v


@formula
def scores_absorbed(B: Any, T: Any, S: Any, h: Any, r_kv: Any, d_r: Any) -> Any:
    """Latent attention: queries mapped to the latent and compared with the cached latent itself.  [FLOP]"""
    return 2 * B * T * S * h * (r_kv + d_r)


@formula
def values_absorbed(B: Any, T: Any, S: Any, h: Any, r_kv: Any) -> Any:
    """Latent attention: weighted sum of the cached latents themselves.  [FLOP]"""
    return 2 * B * T * S * h * r_kv


@formula
def key_absorbed(B: Any, T: Any, r_kv: Any, h: Any, d_h: Any, d_r: Any) -> Any:
    """Latent attention: the new queries (or, for expansion, the new keys) through the key up-projection.  [FLOP]"""
    return 2 * B * T * r_kv * h * (d_h - d_r)


@formula
def value_absorbed(B: Any, T: Any, r_kv: Any, h: Any, d_v: Any) -> Any:
    """Latent attention: the new tokens' summed latents through the value up-projection.  [FLOP]"""
    return 2 * B * T * r_kv * h * d_v


@formula
def index_query(B: Any, T: Any, r_q: Any, h_i: Any, d_i: Any) -> Any:
    """Indexer: queries of its own out of the query's latent.  [FLOP]"""
    return 2 * B * T * r_q * h_i * d_i


@formula
def index_key(B: Any, T: Any, d: Any, d_i: Any) -> Any:
    """Indexer: token to the one key that its heads read.  [FLOP]"""
    return 2 * B * T * d * d_i


@formula
def index_shares(B: Any, T: Any, d: Any, h_i: Any) -> Any:
    """Indexer: projection of the token to one weight per indexer head.  [FLOP]"""
    return 2 * B * T * d * h_i


@formula
def index_scores(B: Any, T: Any, S: Any, h_i: Any, d_i: Any) -> Any:
    """Indexer: every new token's heads against all S keys, whatever is chosen of them.  [FLOP]"""
    return 2 * B * T * S * h_i * d_i


@formula
def index_sum(B: Any, T: Any, S: Any, h_i: Any) -> Any:
    """Indexer: weighted sum over its heads of their scores, for each query and key.  [FLOP]"""
    return 2 * B * T * S * h_i


@formula
def index_scores_causal(B: Any, T: Any, h_i: Any, d_i: Any) -> Any:
    """Indexer: its heads' scores over the pairs that the causal mask allows.  [FLOP]"""
    return 2 * B * causal_pairs(T) * h_i * d_i


@formula
def index_sum_causal(B: Any, T: Any, h_i: Any) -> Any:
    """Indexer: sum of its heads' scores over the pairs that the causal mask allows.  [FLOP]"""
    return 2 * B * causal_pairs(T) * h_i


@formula
def scores_chosen(B: Any, T: Any, S: Any, k_i: Any, h: Any, r_kv: Any, d_r: Any) -> Any:
    """Latent attention with an indexer: queries mapped to the latent and compared with the chosen latents alone.  [FLOP]"""
    return 2 * B * T * minimum(S, k_i) * h * (r_kv + d_r)


@formula
def values_chosen(B: Any, T: Any, S: Any, k_i: Any, h: Any, r_kv: Any) -> Any:
    """Latent attention with an indexer: weighted sum of the chosen latents alone.  [FLOP]"""
    return 2 * B * T * minimum(S, k_i) * h * r_kv


@formula
def latent_output(B: Any, T: Any, h: Any, d_v: Any, d: Any) -> Any:
    """Latent attention: output projection.  [FLOP]"""
    return 2 * B * T * h * d_v * d


@formula
def state_input(B: Any, T: Any, d: Any, g_s: Any, d_k: Any, h_s: Any, d_v: Any) -> Any:
    """Fixed state: projection to the channels of the convolution.  [FLOP]"""
    return 2 * B * T * d * (2 * g_s * d_k + h_s * d_v)


@formula
def state_gate(B: Any, T: Any, d: Any, h_s: Any, d_v: Any) -> Any:
    """Fixed state: gate of the heads' outputs, or their output projection.  [FLOP]"""
    return 2 * B * T * d * h_s * d_v


@formula
def state_rates(B: Any, T: Any, d: Any, h_s: Any, n: Any) -> Any:
    """Fixed state: n numbers per head, decay (Mamba-2), write strength (Kimi), or both (Gated DeltaNet).  [FLOP]"""
    return 2 * B * T * d * n * h_s


@formula
def state_narrow(B: Any, T: Any, d: Any, d_k: Any) -> Any:
    """Fixed state: down-projection to d_k numbers, for the output gate or the decay steps (Kimi).  [FLOP]"""
    return 2 * B * T * d * d_k


@formula
def state_wide(B: Any, T: Any, h_s: Any, d_k: Any) -> Any:
    """Fixed state: up-projection from d_k numbers to one per channel of each head (Kimi).  [FLOP]"""
    return 2 * B * T * d_k * h_s * d_k


@formula
def state_convolution(B: Any, T: Any, g_s: Any, d_k: Any, h_s: Any, d_v: Any, K: Any) -> Any:
    """Fixed state: each channel's own convolution over its last K inputs.  [FLOP]"""
    return 2 * B * T * (2 * g_s * d_k + h_s * d_v) * K


@formula
def state_product(B: Any, T: Any, h_s: Any, d_k: Any, d_v: Any) -> Any:
    """Fixed state, recurrent form: one product of a token with each head's state: write, read, or look up a key's value.  [FLOP]"""
    return 2 * B * T * h_s * d_k * d_v


@formula
def feedforward(B: Any, T: Any, d: Any, f: Any) -> Any:
    """One projection of a dense feed-forward: up, gate or down.  [FLOP]"""
    return 2 * B * T * d * f


@formula
def experts(B: Any, T: Any, k: Any, d: Any, f: Any) -> Any:
    """One projection of the k experts that each token uses.  [FLOP]"""
    return 2 * B * T * k * d * f


@formula
def shared_feedforward(B: Any, T: Any, d: Any, f_s: Any) -> Any:
    """One projection of the experts that every token passes through.  [FLOP]"""
    return 2 * B * T * d * f_s


@formula
def shared_gate(B: Any, T: Any, d: Any) -> Any:
    """The shared experts' gate, one number per token.  [FLOP]"""
    return 2 * B * T * d


@formula
def router(B: Any, T: Any, d: Any, E: Any) -> Any:
    """Scores of all experts.  [FLOP]"""
    return 2 * B * T * d * E


@formula
def embedding_projection(B: Any, T: Any, d_e: Any, d: Any) -> Any:
    """Projection between a narrower embedding and the model's width.  [FLOP]"""
    return 2 * B * T * d_e * d


@formula
def head(B: Any, T: Any, V: Any, d: Any) -> Any:
    """Logits of every new token; a tied head costs the same.  [FLOP]"""
    return 2 * B * T * V * d
