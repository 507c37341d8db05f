"""Bytes that a forward pass saves for its backward pass, one tensor or a few of one layer. Unit everywhere: [byte].

Numbers take b = 2 bytes (bf16, fp16) but for what is kept in fp32 whatever the model's type: what an RMSNorm saves, the
rotation's angles, the fused kernel's log-sum-exp, the loss. Indices take 8 bytes, a mask 1.

Sources: Korthikanti et al. 2022, arXiv:2205.05198, section 4 (which tensors a layer saves, and what several devices cut
of them); Dao et al. 2022, arXiv:2205.14135 (fused attention saves no weights); Chen et al. 2016, arXiv:1604.06174 (checkpointing).
"""

from __future__ import annotations

from typing import Any

from transformer_ledger.formulas.shim import formula


@formula
def model_wide(B: Any, T: Any, d: Any, b: Any) -> Any:
    """Input of a linear map, of a LayerNorm or, checkpointed, of a whole layer.  [byte]"""
    return B * T * d * b


@formula
def embedding_wide(B: Any, T: Any, d_e: Any, b: Any) -> Any:
    """Input of the map from, or to, an embedding of another width.  [byte]"""
    return B * T * d_e * b


@formula
def layer_norm_statistics(B: Any, T: Any, b: Any) -> Any:
    """Mean and reciprocal deviation of every token.  [byte]"""
    return 2 * B * T * b


@formula
def rms_norm(B: Any, T: Any, d: Any) -> Any:
    """What an RMSNorm saves in fp32: its input, the normalised input, and one reciprocal root per token.  [byte]"""
    return 4 * B * T * (2 * d + 1)


@formula
def rms_norm_narrow(B: Any, T: Any, d: Any, b: Any) -> Any:
    """The same where the normalised input goes back to the model's type before its weight (transformers).  [byte]"""
    return 4 * B * T * (d + 1) + B * T * d * b


@formula
def rms_norm_plus_one(B: Any, T: Any, d: Any) -> Any:
    """An RMSNorm whose weight, 1 more than the parameter, is a tensor of its own in fp32 (transformers' Gemma).  [byte]"""
    return 4 * B * T * (2 * d + 1) + 4 * d


@formula
def query_norm(B: Any, T: Any, h: Any, d_h: Any) -> Any:
    """An RMSNorm of every query head by itself.  [byte]"""
    return 4 * B * T * h * (2 * d_h + 1)


@formula
def key_norm(B: Any, T: Any, h_kv: Any, d_h: Any) -> Any:
    """An RMSNorm of every key head by itself.  [byte]"""
    return 4 * B * T * h_kv * (2 * d_h + 1)


@formula
def query_norm_narrow(B: Any, T: Any, h: Any, d_h: Any, b: Any) -> Any:
    """The query's norm where the normalised input goes back to the model's type (transformers).  [byte]"""
    return 4 * B * T * h * (d_h + 1) + B * T * h * d_h * b


@formula
def key_norm_narrow(B: Any, T: Any, h_kv: Any, d_h: Any, b: Any) -> Any:
    """The key's norm where the normalised input goes back to the model's type (transformers).  [byte]"""
    return 4 * B * T * h_kv * (d_h + 1) + B * T * h_kv * d_h * b


@formula
def query_norm_plus_one(B: Any, T: Any, h: Any, d_h: Any) -> Any:
    """The query's norm with a weight that is 1 more than the parameter (transformers' Gemma).  [byte]"""
    return 4 * B * T * h * (2 * d_h + 1) + 4 * d_h


@formula
def key_norm_plus_one(B: Any, T: Any, h_kv: Any, d_h: Any) -> Any:
    """The key's norm with a weight that is 1 more than the parameter (transformers' Gemma).  [byte]"""
    return 4 * B * T * h_kv * (2 * d_h + 1) + 4 * d_h


@formula
def query_norm_full(B: Any, T: Any, h: Any, d_h: Any) -> Any:
    """An RMSNorm of all query heads together.  [byte]"""
    return 4 * B * T * (2 * h * d_h + 1)


@formula
def key_norm_full(B: Any, T: Any, h_kv: Any, d_h: Any) -> Any:
    """An RMSNorm of all key heads together.  [byte]"""
    return 4 * B * T * (2 * h_kv * d_h + 1)


@formula
def query_rank_norm(B: Any, T: Any, r_q: Any) -> Any:
    """An RMSNorm of the narrow query (latent attention).  [byte]"""
    return 4 * B * T * (2 * r_q + 1)


@formula
def latent_norm(B: Any, T: Any, r_kv: Any) -> Any:
    """An RMSNorm of the latent (latent attention).  [byte]"""
    return 4 * B * T * (2 * r_kv + 1)


@formula
def query_rank_norm_narrow(B: Any, T: Any, r_q: Any, b: Any) -> Any:
    """The narrow query's norm where the normalised input goes back to the model's type (transformers).  [byte]"""
    return 4 * B * T * (r_q + 1) + B * T * r_q * b


@formula
def latent_norm_narrow(B: Any, T: Any, r_kv: Any, b: Any) -> Any:
    """The latent's norm where the normalised input goes back to the model's type (transformers).  [byte]"""
    return 4 * B * T * (r_kv + 1) + B * T * r_kv * b


@formula
def query_rank_wide(B: Any, T: Any, r_q: Any, b: Any) -> Any:
    """Input of the query's second map (latent attention).  [byte]"""
    return B * T * r_q * b


@formula
def latent_wide(B: Any, T: Any, r_kv: Any, b: Any) -> Any:
    """Input of the maps from the latent to keys and values.  [byte]"""
    return B * T * r_kv * b


@formula
def queries(B: Any, T: Any, h: Any, d_h: Any, b: Any) -> Any:
    """Queries, or the heads' outputs (which the output map reads).  [byte]"""
    return B * T * h * d_h * b


@formula
def keys(B: Any, T: Any, h_kv: Any, d_h: Any, b: Any) -> Any:
    """Keys, or values.  [byte]"""
    return B * T * h_kv * d_h * b


@formula
def queries_keys_values(B: Any, T: Any, h: Any, h_kv: Any, d_h: Any, b: Any) -> Any:
    """Output of one map to queries, keys and values: a view of any of them keeps it all.  [byte]"""
    return B * T * (h + 2 * h_kv) * d_h * b


@formula
def picked_heads(m: Any) -> Any:
    """Where key and value stand behind a group's queries, m = 2 indices (transformers' Falcon picks them).  [byte]"""
    return 8 * m


@formula
def expanded_values(B: Any, T: Any, h: Any, d_v: Any, b: Any) -> Any:
    """Values, or the heads' outputs, of latent attention.  [byte]"""
    return B * T * h * d_v * b


@formula
def expanded_keys_values(B: Any, T: Any, h: Any, d_h: Any, d_r: Any, d_v: Any, b: Any) -> Any:
    """Output of the one map from the latent to keys and values: a view of the values keeps it all.  [byte]"""
    return B * T * h * (d_h - d_r + d_v) * b


@formula
def attention_weights(B: Any, T: Any, h: Any, b: Any) -> Any:
    """Softmax of the scores over all T keys of every query, masked or not.  [byte]"""
    return B * h * T**2 * b


@formula
def attention_weights_with_sinks(B: Any, T: Any, h: Any, b: Any) -> Any:
    """The same with the sink's share beside the keys'.  [byte]"""
    return B * h * T * (T + 1) * b


@formula
def attention_weights_wide(B: Any, T: Any, h: Any, b: Any) -> Any:
    """Softmax in fp32 and its copy in the model's type (transformers).  [byte]"""
    return B * h * T**2 * (4 + b)


@formula
def dropped_weights(B: Any, T: Any, h: Any, b: Any) -> Any:
    """Mask of a dropout of the attention weights, or the weights behind it.  [byte]"""
    return B * h * T**2 * b


@formula
def dropout_mask(B: Any, T: Any, d: Any, b: Any) -> Any:
    """Mask of a dropout of a tensor as wide as the model, divided by the share kept, as torch keeps it on a CPU.  [byte]"""
    return B * T * d * b


@formula
def capped_scores(B: Any, T: Any, h: Any, b: Any) -> Any:
    """Hyperbolic tangent of the scores, before the softmax (Gemma 2).  [byte]"""
    return B * h * T**2 * b


@formula
def largest_scores(B: Any, T: Any, h: Any) -> Any:
    """Which score of a query is the largest, or its sink (transformers' gpt-oss subtracts it).  [byte]"""
    return 8 * B * h * T


@formula
def log_sum_exp(B: Any, T: Any, h: Any) -> Any:
    """What a fused kernel keeps of a softmax: one number per query, in fp32.  [byte]"""
    return 4 * B * h * T


@formula
def additive_mask(T: Any, b: Any) -> Any:
    """The mask of a window as the fused kernel takes it: 0 or −∞ for every query and key.  [byte]"""
    return T**2 * b


@formula
def mask(T: Any) -> Any:
    """Attention mask: which keys are hidden from each query. Layers with the same window share one mask.  [byte]"""
    return T**2


@formula
def batch_mask(B: Any, T: Any, b: Any) -> Any:
    """The same for every sequence of a batch (transformers).  [byte]"""
    return B * T**2 * b


@formula
def batch_bias(B: Any, T: Any, h: Any, b: Any) -> Any:
    """Mask and distances of every head in one (transformers' Falcon with ALiBi); all layers share it.  [byte]"""
    return B * h * T**2 * b


@formula
def rotation(T: Any, d_h: Any) -> Any:
    """Cosine and sine of every position, in fp32; all layers share them.  [byte]"""
    return 8 * T * d_h


@formula
def rotation_narrow(T: Any, d_r: Any, b: Any) -> Any:
    """The same in the model's type, of the rotated part of a head (transformers).  [byte]"""
    return 2 * T * d_r * b


@formula
def rotation_pairs(T: Any, d_r: Any, b: Any) -> Any:
    """The same with one angle for both components of a pair (transformers' gpt-oss).  [byte]"""
    return T * d_r * b


@formula
def rotation_complex(T: Any, d_r: Any) -> Any:
    """The same as one complex number of twice fp32 per pair (transformers' DeepSeek-V2).  [byte]"""
    return 4 * T * d_r


@formula
def hidden(B: Any, T: Any, f: Any, b: Any) -> Any:
    """A tensor as wide as the feed-forward: gate, up, activation or product.  [byte]"""
    return B * T * f * b


@formula
def shared_hidden(B: Any, T: Any, f_s: Any, b: Any) -> Any:
    """The same of the shared experts.  [byte]"""
    return B * T * f_s * b


@formula
def routed(B: Any, T: Any, k: Any, d: Any, b: Any) -> Any:
    """Input of the routed experts, a row for each expert of a token, or their output.  [byte]"""
    return B * T * k * d * b


@formula
def routed_hidden(B: Any, T: Any, k: Any, f: Any, b: Any) -> Any:
    """A tensor as wide as an expert, a row for each expert of a token.  [byte]"""
    return B * T * k * f * b


@formula
def routes(B: Any, T: Any, k: Any, b: Any) -> Any:
    """Which experts a token takes, and their weights.  [byte]"""
    return B * T * k * (8 + b)


@formula
def model_wide_fp32(B: Any, T: Any, d: Any) -> Any:
    """Input of a router that computes in fp32 (transformers' DeepSeek).  [byte]"""
    return 4 * B * T * d


@formula
def router_probabilities(B: Any, T: Any, E: Any) -> Any:
    """Softmax, or sigmoid, of what the router says of every expert, in fp32 (transformers).  [byte]"""
    return 4 * B * T * E


@formula
def normalised_routes(B: Any, T: Any, k: Any) -> Any:
    """Probabilities of the chosen experts and their sum, in fp32 (transformers divides by it).  [byte]"""
    return 4 * B * T * (k + 1)


@formula
def route_indices(B: Any, T: Any, k: Any) -> Any:
    """Chosen experts, or an order of the rows, one row for each expert of a token (transformers).  [byte]"""
    return 8 * B * T * k


@formula
def route_weights(B: Any, T: Any, k: Any, b: Any) -> Any:
    """Weights of the chosen experts (transformers).  [byte]"""
    return B * T * k * b


@formula
def route_weights_wide(B: Any, T: Any, k: Any) -> Any:
    """The same in fp32.  [byte]"""
    return 4 * B * T * k


@formula
def expert_ends(E: Any) -> Any:
    """Where each expert's rows end, as a grouped kernel takes it (transformers).  [byte]"""
    return 4 * E


@formula
def best_of_groups(B: Any, T: Any, n_g: Any) -> Any:
    """The best, or second best, expert of every group (transformers' DeepSeek).  [byte]"""
    return 8 * B * T * n_g


@formula
def chosen_groups(B: Any, T: Any, k_g: Any) -> Any:
    """The groups that a token's experts may come from (transformers' DeepSeek).  [byte]"""
    return 8 * B * T * k_g


@formula
def hidden_experts(B: Any, T: Any, E: Any) -> Any:
    """Which experts are in other groups (transformers' DeepSeek).  [byte]"""
    return B * T * E


@formula
def shared_gate(B: Any, T: Any, b: Any) -> Any:
    """The gate of the shared expert, one number per token.  [byte]"""
    return B * T * b


@formula
def token_ids(B: Any, T: Any) -> Any:
    """Indices into the embedding table.  [byte]"""
    return 8 * B * T


@formula
def position_ids(T: Any) -> Any:
    """Indices into the position table.  [byte]"""
    return 8 * T


@formula
def batch_position_ids(B: Any, T: Any) -> Any:
    """The same for every sequence of a batch (transformers' OPT).  [byte]"""
    return 8 * B * T


@formula
def embedding_factor(b: Any) -> Any:
    """What the embedding is multiplied by (transformers' Gemma).  [byte]"""
    return b


@formula
def capped_logits(B: Any, T: Any, V: Any, b: Any) -> Any:
    """Hyperbolic tangent of the logits (Gemma 2).  [byte]"""
    return B * T * V * b


@formula
def loss(B: Any, T: Any, V: Any) -> Any:
    """Log-probabilities in fp32, the target tokens, and the divisor of the mean.  [byte]"""
    return 4 * B * T * V + 8 * B * T + 4


@formula
def loss_cut(B: Any, T: Any, V: Any) -> Any:
    """Where a device has V tokens of a larger vocabulary: their softmax in fp32, the target tokens, and which are elsewhere.  [byte]"""
    return 4 * B * T * V + 9 * B * T
