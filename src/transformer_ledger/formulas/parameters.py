"""Parameters in one tensor. Each kind of tensor has its own formula. Unit everywhere: [parameter].

Sources: Vaswani et al. 2017, arXiv:1706.03762 (attention, feed-forward, embeddings); Ainslie et al. 2023,
arXiv:2305.13245 (grouped K/V heads); Shazeer 2020, arXiv:2002.05202 (gated feed-forward); DeepSeek-V2, arXiv:2405.04434
(latent attention) and -V3.2, arXiv:2512.02556 (indexer); Jiang et al. 2024, arXiv:2401.04088 (experts); Yang et al. 2024,
arXiv:2412.06464 (Gated DeltaNet), Dao and Gu 2024, arXiv:2405.21060 (Mamba-2) and Kimi Team 2025, arXiv:2510.26692 (Kimi
Delta Attention), with the tensors of transformers' modules deepseek_v32, qwen3_next, nemotron_h and kimi_linear.
"""

from __future__ import annotations

from typing import Any

from transformer_ledger.formulas.shim import formula


@formula
def token_embedding(V: Any, d: Any) -> Any:
    """Embedding table, one row for each token of the vocabulary; a separate head is as large.  [parameter]"""
    return V * d


@formula
def position_embedding(C: Any, d: Any) -> Any:
    """Table of learned positions.  [parameter]"""
    return C * d


@formula
def embedding_projection(d_e: Any, d: Any) -> Any:
    """Projection between a narrower embedding and the model's width (OPT-350m).  [parameter]"""
    return d_e * d


@formula
def query(d: Any, h: Any, d_h: Any) -> Any:
    """Query projection; the output projection is as large where the value heads are as wide.  [parameter]"""
    return d * h * d_h


@formula
def key_or_value(d: Any, h_kv: Any, d_h: Any) -> Any:
    """Key projection, or value projection.  [parameter]"""
    return d * h_kv * d_h


@formula
def output(h: Any, d_h: Any, d: Any) -> Any:
    """Output projection.  [parameter]"""
    return h * d_h * d


@formula
def per_query_component(h: Any, d_h: Any) -> Any:
    """Bias of the query projection, or norm over all query heads at once.  [parameter]"""
    return h * d_h


@formula
def per_key_component(h_kv: Any, d_h: Any) -> Any:
    """Bias of the key or value projection, or norm over all key heads at once.  [parameter]"""
    return h_kv * d_h


@formula
def per_head_component(d_h: Any) -> Any:
    """Norm over one head, shared by the heads.  [parameter]"""
    return d_h


@formula
def sinks(h: Any) -> Any:
    """One learned logit for each head (gpt-oss).  [parameter]"""
    return h


@formula
def query_down(d: Any, r_q: Any) -> Any:
    """Latent attention: projection of the token to the query's latent.  [parameter]"""
    return d * r_q


@formula
def query_up(r_q: Any, h: Any, d_h: Any) -> Any:
    """Latent attention: queries out of their latent.  [parameter]"""
    return r_q * h * d_h


@formula
def latent_down(d: Any, r_kv: Any, d_r: Any) -> Any:
    """Latent attention: projection of the token to the cached latent and the shared rotated key.  [parameter]"""
    return d * (r_kv + d_r)


@formula
def key_up(r_kv: Any, h: Any, d_h: Any, d_r: Any) -> Any:
    """Latent attention: the unrotated part of every head's key out of the latent.  [parameter]"""
    return r_kv * h * (d_h - d_r)


@formula
def value_up(r_kv: Any, h: Any, d_v: Any) -> Any:
    """Latent attention: every head's value out of the latent.  [parameter]"""
    return r_kv * h * d_v


@formula
def latent_output(h: Any, d_v: Any, d: Any) -> Any:
    """Latent attention: output projection.  [parameter]"""
    return h * d_v * d


@formula
def per_query_rank(r_q: Any) -> Any:
    """Latent attention: norm, or bias, of the query's latent.  [parameter]"""
    return r_q


@formula
def per_latent_rank(r_kv: Any) -> Any:
    """Latent attention: norm of the cached latent.  [parameter]"""
    return r_kv


@formula
def per_latent_component(r_kv: Any, d_r: Any) -> Any:
    """Latent attention: bias of the projection to the latent and the shared rotated key.  [parameter]"""
    return r_kv + d_r


@formula
def index_query(r_q: Any, h_i: Any, d_i: Any) -> Any:
    """Indexer: queries of its own out of the query's latent.  [parameter]"""
    return r_q * h_i * d_i


@formula
def index_key(d: Any, d_i: Any) -> Any:
    """Indexer: projection of the token to the one key that its heads read.  [parameter]"""
    return d * d_i


@formula
def index_shares(d: Any, h_i: Any) -> Any:
    """Indexer: projection of the token to one weight per indexer head.  [parameter]"""
    return d * h_i


@formula
def per_index_component(d_i: Any) -> Any:
    """Indexer: gain, or bias, of the key's norm.  [parameter]"""
    return d_i


@formula
def state_input(d: Any, g_s: Any, d_k: Any, h_s: Any, d_v: Any) -> Any:
    """Fixed state: projection to the channels of the convolution (a group's keys and queries, a head's values).  [parameter]"""
    return d * (2 * g_s * d_k + h_s * d_v)


@formula
def state_gate(d: Any, h_s: Any, d_v: Any) -> Any:
    """Fixed state: gate of the heads' outputs; the output projection is as large.  [parameter]"""
    return d * h_s * d_v


@formula
def state_rates(d: Any, h_s: Any, n: Any) -> Any:
    """Fixed state: n numbers per head, decay (Mamba-2), write strength (Kimi), or both (Gated DeltaNet).  [parameter]"""
    return d * n * h_s


@formula
def state_narrow(d: Any, d_k: Any) -> Any:
    """Fixed state: down-projection to d_k numbers, for the output gate or the decay steps (Kimi).  [parameter]"""
    return d * d_k


@formula
def state_wide(h_s: Any, d_k: Any) -> Any:
    """Fixed state: up-projection from d_k numbers to one per channel of each head (Kimi).  [parameter]"""
    return d_k * h_s * d_k


@formula
def state_convolution(g_s: Any, d_k: Any, h_s: Any, d_v: Any, K: Any) -> Any:
    """Fixed state: each channel's own convolution over its last K inputs.  [parameter]"""
    return (2 * g_s * d_k + h_s * d_v) * K


@formula
def per_channel(g_s: Any, d_k: Any, h_s: Any, d_v: Any) -> Any:
    """Fixed state: bias of the convolution, or of the projection to it.  [parameter]"""
    return 2 * g_s * d_k + h_s * d_v


@formula
def per_state_head(h_s: Any) -> Any:
    """Fixed state: per head, log decay rate, bias of the decay step, or skip weight (Mamba-2).  [parameter]"""
    return h_s


@formula
def per_state_channel(h_s: Any, d_k: Any) -> Any:
    """Fixed state: offset of each channel's step (Kimi).  [parameter]"""
    return h_s * d_k


@formula
def per_state_rate(h_s: Any, n: Any) -> Any:
    """Fixed state: bias of the projection to n numbers per head.  [parameter]"""
    return n * h_s


@formula
def per_state_value(d_v: Any) -> Any:
    """Fixed state: norm of a head's output, shared by the heads (Gated DeltaNet).  [parameter]"""
    return d_v


@formula
def per_state_output(h_s: Any, d_v: Any) -> Any:
    """Fixed state: norm over all heads' outputs (Mamba-2), or bias of their gate.  [parameter]"""
    return h_s * d_v


@formula
def feedforward(d: Any, f: Any) -> Any:
    """One projection of a dense feed-forward: up, gate or down.  [parameter]"""
    return d * f


@formula
def experts(E: Any, d: Any, f: Any) -> Any:
    """One projection of all experts of a layer; with E = k, of the experts that a token uses.  [parameter]"""
    return E * d * f


@formula
def per_hidden_component(f: Any) -> Any:
    """Bias of a feed-forward's up or gate projection.  [parameter]"""
    return f


@formula
def per_expert_hidden_component(E: Any, f: Any) -> Any:
    """Bias of all experts' up or gate projection.  [parameter]"""
    return E * f


@formula
def per_expert_model_component(E: Any, d: Any) -> Any:
    """Bias of all experts' down projection.  [parameter]"""
    return E * d


@formula
def shared_feedforward(d: Any, f_s: Any) -> Any:
    """One projection of the experts that every token passes through.  [parameter]"""
    return d * f_s


@formula
def router(d: Any, E: Any) -> Any:
    """Router: projection of the token to one score per expert.  [parameter]"""
    return d * E


@formula
def per_expert(E: Any) -> Any:
    """Bias of the router.  [parameter]"""
    return E


@formula
def per_model_component(d: Any) -> Any:
    """Norm, bias of a projection to the model's width, or gate of the shared experts.  [parameter]"""
    return d


@formula
def per_token_of_vocabulary(V: Any) -> Any:
    """Bias of the head.  [parameter]"""
    return V
