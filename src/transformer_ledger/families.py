"""Small models, one for each family and feature that a formula speaks of: what every run executes besides its own models.

A config.json of each family is read by our reader and built by transformers. Its sizes are small and all different, so
that no two of them can be mistaken for each other. What a file may choose and no count depends on (activations, bases,
soft caps) is chosen so that transformers' function is the one that our decoder computes, where a file can say that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from transformer_ledger import huggingface
from transformer_ledger.model import Attention, Feedforward, FixedState, Indexer, Latent, Layer, ModelSpec

CONTEXT = 24
WORKLOADS = {"long": {"batch": 3, "context": 11}, "short": {"batch": 2, "context": 4}}

CACHE_DTYPES = ["bf16", "int4-g64"]
ADAMW = {"weights": "fp32", "gradients": "fp32", "optimizer": "adamw", "moments": "fp32"}
PACKED = {
    "rank": 3,
    "base": "nf4",
    "targets": ["attention.query", "attention.value", "feedforward.up", "feedforward.down"],
}
RECIPES: dict[str, dict[str, Any]] = {  # whose bytes depend on the shapes of tensors, and some that devices share
    "adafactor": ADAMW | {"optimizer": "adafactor"},
    "8-bit": ADAMW | {"moments": "int8-g256"},
    "zero-3": ADAMW | {"devices": 7, "zero_stage": 3},
    "adapters-zero-2": ADAMW | {"weights": "bf16", "devices": 7, "zero_stage": 2, "lora": PACKED},
    "adapters-zero-3": ADAMW | {"weights": "bf16", "devices": 7, "zero_stage": 3, "lora": PACKED},
}

GPT = {"vocab_size": 40, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT, "n_inner": 56}
PLAIN: dict[str, Any] = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
PLAIN |= {"max_position_embeddings": CONTEXT}
LLAMA = PLAIN | {"num_key_value_heads": 2, "intermediate_size": 56, "rms_norm_eps": 1e-3}
FALCON = PLAIN | {"ffn_hidden_size": 56, "layer_norm_epsilon": 1e-3, "bias": False, "alibi": False}
GEMMA = LLAMA | {
    "hidden_size": 16,
    "head_dim": 10,
    "tie_word_embeddings": False,
}  # √16, which scales embeddings, is exact
# transformers gives the norms of the latents this ε, whatever the file says.
LATENT = PLAIN | {"intermediate_size": 56, "num_key_value_heads": 4, "q_lora_rank": 20, "kv_lora_rank": 12}
LATENT |= {"qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 14, "rms_norm_eps": 1e-6}
LATENT |= {"n_routed_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "n_shared_experts": 2}
LATENT |= {"first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}
KIMI = {"num_heads": 6, "head_dim": 8, "short_conv_kernel_size": 3, "kda_layers": [1, 2], "full_attn_layers": [3]}
INDEXED = {"index_n_heads": 9, "index_head_dim": 8, "index_topk": 5}
DELTA = {"linear_num_value_heads": 6, "linear_num_key_heads": 2, "linear_key_head_dim": 9, "linear_value_head_dim": 7}
DELTA |= {"linear_conv_kernel_dim": 3}
MAMBA = {"mamba_n_heads": 8, "mamba_n_groups": 2, "mamba_d_state": 9, "mamba_d_conv": 3, "mamba_expand": 2}
ROPE = {"rope_type": "default", "rope_theta": 500.0}


@dataclass(frozen=True)
class Family:
    """One small model: a config.json, and what our decoder makes of it.

    Whether transformers computes what our decoder does: as it is, with `silent` experts (their output set to zero), or
    not at all, for a reason.
    """

    config: Mapping[str, Any]
    silent: bool = False
    other_function: str = ""

    def read(self, name: str) -> ModelSpec:
        """The description that every ledger and our decoder get."""
        return huggingface.read(name, dict(self.config))[0]


def _spec(
    attention: Mapping[str, Any] | None = None, feedforward: Mapping[str, Any] | None = None, **changes: Any
) -> ModelSpec:
    """A small Llama with some things changed."""
    layer = {key: changes.pop(key) for key in ("norms", "parallel", "post_norm") if key in changes}
    own = Attention(**{"heads": 4, "kv_heads": 2, "head_dim": 8} | dict(attention or {}))
    width: dict[str, Any] = {"kind": "gated", "width": 56} | dict(feedforward or {})
    feed = Feedforward(**width)
    plain: dict[str, Any] = {"d_model": 32, "vocabulary": 40, "context": CONTEXT, "positions": "rope"}
    plain |= {"norm_epsilon": 1e-3, "rope_base": 500.0}
    return ModelSpec(**{"name": "small", "layers": ((2, Layer(own, feed, **layer)),)} | plain | changes)


def _mixed(**changes: Any) -> ModelSpec:
    """The same with two layers that have a fixed state in place of one that attends."""
    sizes: dict[str, Any] = {"rule": "delta", "heads": 6, "groups": 2, "key_dim": 9, "value_dim": 7, "kernel": 3}
    spec = _spec()
    state = replace(spec.layers[0][1], mixer=FixedState(**sizes | changes))
    return replace(spec, layers=((2, state), (1, spec.layers[0][1])))


SHARED = {"experts": 6, "experts_per_token": 3, "width": 24, "shared_width": 20, "shared_gate": True}
TURNED_BY_TWO = "it rotates components 2i and 2i + 1 of a head, our decoder i and i + d/2"
ALIBI = "ALiBi adds a bias to the scores that our decoder leaves out"

FAMILIES: dict[str, Family] = {
    "gpt2": Family({"model_type": "gpt2", **GPT, "activation_function": "gelu", "layer_norm_epsilon": 1e-3}),
    "gpt_bigcode": Family({"model_type": "gpt_bigcode", **GPT, "activation_function": "gelu", "multi_query": True}),
    "gpt_neox": Family(
        {"model_type": "gpt_neox", **PLAIN, "intermediate_size": 56, "hidden_act": "gelu"}
        | {"rope_parameters": {**ROPE, "partial_rotary_factor": 1.0}, "hidden_dropout": 0.1}
    ),
    "opt": Family(
        {"model_type": "opt", **PLAIN, "ffn_dim": 56, "word_embed_proj_dim": 16, "activation_function": "gelu"}
        | {"pad_token_id": None}
    ),
    "opt, post-norm": Family(
        {"model_type": "opt", **PLAIN, "ffn_dim": 56, "activation_function": "gelu", "do_layer_norm_before": False}
        | {"enable_bias": False, "pad_token_id": None},
        other_function="its norms stand behind the residual sums, our decoder's behind attention and feed-forward",
    ),
    "bloom": Family(
        {"model_type": "bloom", "vocab_size": 40, "hidden_size": 32, "n_layer": 2, "n_head": 4, "seq_length": CONTEXT},
        other_function=ALIBI,
    ),
    "falcon": Family({"model_type": "falcon", **FALCON, "multi_query": True, "rope_parameters": ROPE}),
    "falcon, new architecture": Family(
        {"model_type": "falcon", **FALCON, "new_decoder_architecture": True, "num_kv_heads": 2, "rope_parameters": ROPE}
    ),
    "falcon, ALiBi": Family(
        {"model_type": "falcon", **FALCON, "alibi": True, "bias": True, "multi_query": False, "parallel_attn": False},
        other_function=ALIBI,
    ),
    "llama": Family(
        {"model_type": "llama", **LLAMA, "attention_bias": True, "mlp_bias": True, "rope_parameters": ROPE}
    ),
    "mistral": Family(
        {"model_type": "mistral", **LLAMA, "sliding_window": 5, "head_dim": 10, "attention_dropout": 0.1}
    ),
    "mixtral": Family(
        {"model_type": "mixtral", **LLAMA, "num_local_experts": 6, "num_experts_per_tok": 3, "sliding_window": None}
    ),
    "qwen2": Family(
        {"model_type": "qwen2", **LLAMA, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
        | {"tie_word_embeddings": True}
    ),
    "qwen2_moe": Family(  # the gate of the shared expert
        {"model_type": "qwen2_moe", **LLAMA, "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24}
        | {"shared_expert_intermediate_size": 20, "norm_topk_prob": True, "rope_parameters": ROPE}
    ),
    "qwen3": Family({"model_type": "qwen3", **LLAMA, "head_dim": 14}),
    "qwen3_moe": Family(
        {"model_type": "qwen3_moe", **LLAMA, "head_dim": 10, "num_experts": 6, "num_experts_per_tok": 3}
        | {"moe_intermediate_size": 24, "norm_topk_prob": True, "mlp_only_layers": [0]}
    ),
    "qwen3_next": Family(  # three layers with a fixed state, the second without experts, and one that attends
        {"model_type": "qwen3_next", **LLAMA, "num_hidden_layers": 4, "head_dim": 10, **DELTA, "mlp_only_layers": [1]}
        | {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24}
        | {"shared_expert_intermediate_size": 20, "rope_parameters": {**ROPE, "partial_rotary_factor": 1.0}},
    ),
    "qwen3_5_text": Family(
        {"model_type": "qwen3_5_text", **LLAMA, "head_dim": 10, **DELTA, "attention_bias": True}
        | {"layer_types": ["linear_attention", "full_attention"]}
        | {"rope_parameters": {**ROPE, "partial_rotary_factor": 1.0}},
    ),
    "qwen3_5_moe_text": Family(
        {"model_type": "qwen3_5_moe_text", **LLAMA, "head_dim": 10, **DELTA, "full_attention_interval": 2}
        | {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24}
        | {"shared_expert_intermediate_size": 20, "rope_parameters": {**ROPE, "partial_rotary_factor": 1.0}},
    ),
    "bamba": Family(
        {"model_type": "bamba", **LLAMA, **MAMBA, "attn_layer_indices": [1], "mamba_proj_bias": True, "mlp_bias": True}
        | {"pad_token_id": None, "rope_parameters": {**ROPE, "partial_rotary_factor": 1.0}},
    ),
    "falcon_h1": Family(  # each layer attends and has a fixed state beside it
        {
            "model_type": "falcon_h1",
            **LLAMA,
            **MAMBA,
            "mamba_d_ssm": 48,
            "projectors_bias": True,
            "mamba_d_head": "auto",
        }
    ),
    "falcon_h1, normed": Family(
        {"model_type": "falcon_h1", **LLAMA, **MAMBA, "mamba_d_ssm": None, "mamba_proj_bias": True, "mlp_bias": True}
        | {"mamba_rms_norm": True, "mamba_norm_before_gate": False}
    ),
    "granitemoehybrid": Family(
        {"model_type": "granitemoehybrid", **LLAMA, **MAMBA, "num_local_experts": 6, "num_experts_per_tok": 3}
        | {"layer_types": ["mamba", "attention"], "shared_intermediate_size": 20, "mamba_conv_bias": False}
        | {"attention_multiplier": 8**-0.5, "position_embedding_type": "rope", "rope_parameters": ROPE}
    ),
    "granitemoehybrid, dense": Family(
        {"model_type": "granitemoehybrid", **LLAMA, **MAMBA, "num_local_experts": 0, "num_experts_per_tok": 0}
        | {"layer_types": ["mamba", "attention"], "shared_intermediate_size": 20, "attention_multiplier": 8**-0.5}
    ),
    "nemotron_h": Family(  # a mixer or a feed-forward in each layer
        {"model_type": "nemotron_h", **PLAIN, "hybrid_override_pattern": "ME*-", "num_hidden_layers": 4}
        | {"num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 56, "mlp_hidden_act": "gelu"}
        | {"mamba_num_heads": 6, "mamba_head_dim": 7, "n_groups": 2, "ssm_state_size": 9, "conv_kernel": 3}
        | {"use_bias": True, "time_step_min": 1e-30, "layer_norm_epsilon": 1e-3, "pad_token_id": None}
        | {"n_routed_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24}
        | {"moe_shared_expert_intermediate_size": 20},
        silent=True,
    ),
    "gemma": Family({"model_type": "gemma", **GEMMA, "hidden_act": "silu", "hidden_activation": "silu"}),
    "gemma2": Family(
        {"model_type": "gemma2", **GEMMA, "hidden_activation": "silu"}
        | {"attn_logit_softcapping": None, "final_logit_softcapping": None, "query_pre_attn_scalar": 10}
        | {"sliding_window": 5}
    ),
    "gemma3_text": Family(
        {"model_type": "gemma3_text", **GEMMA, "hidden_activation": "silu", "sliding_window": 5}
        | {"query_pre_attn_scalar": 10, "sliding_window_pattern": 2}
        | {"rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE}}
    ),
    "phi3": Family({"model_type": "phi3", **LLAMA, "sliding_window": 5, "pad_token_id": None}),
    "olmo2": Family({"model_type": "olmo2", **LLAMA}),
    "olmo3": Family(
        {"model_type": "olmo3", **LLAMA, "sliding_window": 5, "num_hidden_layers": 4}
        | {"rope_parameters": {"full_attention": ROPE, "sliding_attention": ROPE}}
    ),
    "granite": Family({"model_type": "granite", **LLAMA, "mlp_bias": True, "attention_multiplier": 8**-0.5}),
    "smollm3": Family(
        {"model_type": "smollm3", **LLAMA, "no_rope_layers": [1, 1], "rope_parameters": ROPE, "pad_token_id": None}
    ),
    "cohere": Family(
        {"model_type": "cohere", **PLAIN, "num_key_value_heads": 2, "intermediate_size": 56, "logit_scale": 1.0}
        | {"tie_word_embeddings": False, "attention_bias": True, "pad_token_id": None},
        other_function=TURNED_BY_TWO,
    ),
    "phi": Family(
        {"model_type": "phi", **PLAIN, "intermediate_size": 56, "hidden_act": "gelu", "layer_norm_eps": 1e-3}
        | {"rope_parameters": {**ROPE, "partial_rotary_factor": 1.0}}
    ),
    "phimoe": Family(
        {"model_type": "phimoe", **LLAMA, "num_local_experts": 6, "attention_bias": True, "lm_head_bias": True}
        | {"rope_parameters": ROPE, "sliding_window": 5},
        silent=True,
    ),
    "stablelm": Family(
        {"model_type": "stablelm", **PLAIN, "num_key_value_heads": 2, "intermediate_size": 56, "use_qkv_bias": True}
        | {"layer_norm_eps": 1e-3, "rope_parameters": {**ROPE, "partial_rotary_factor": 1.0}}
    ),
    "gptj": Family(
        {"model_type": "gptj", **GPT, "rotary_dim": 8, "activation_function": "gelu"}, other_function=TURNED_BY_TWO
    ),
    "starcoder2": Family(
        {"model_type": "starcoder2", **PLAIN, "num_key_value_heads": 2, "intermediate_size": 56, "sliding_window": 5}
        | {"hidden_act": "gelu", "norm_epsilon": 1e-3, "rope_parameters": ROPE}
    ),
    "minimax_m2": Family(
        {"model_type": "minimax_m2", **LLAMA, "head_dim": 10, "num_local_experts": 6, "num_experts_per_tok": 3}
        | {"rope_parameters": ROPE},
        silent=True,
    ),
    "glm4_moe": Family(
        {
            "model_type": "glm4_moe",
            **LLAMA,
            "n_routed_experts": 6,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 24,
        }
        | {"n_shared_experts": 2, "first_k_dense_replace": 1, "use_qk_norm": True, "attention_bias": True}
        | {"rope_parameters": {**ROPE, "partial_rotary_factor": 1.0}},
        silent=True,
    ),
    "llama4_text": Family(  # a dense layer with chunks, one with experts and chunks, one with experts and all positions
        {"model_type": "llama4_text", **LLAMA, "head_dim": 10, "num_local_experts": 6, "num_experts_per_tok": 3}
        | {"num_hidden_layers": 4, "moe_layers": [1, 3], "intermediate_size_mlp": 48, "attention_chunk_size": 5}
        | {"use_qk_norm": False, "rope_parameters": ROPE},
        other_function=TURNED_BY_TWO,
    ),
    "gpt_oss": Family(
        {"model_type": "gpt_oss", **LLAMA, "head_dim": 10, "num_local_experts": 6, "num_experts_per_tok": 3}
        | {"sliding_window": 5, "rope_parameters": ROPE},
        silent=True,
    ),
    "kimi_linear": Family(  # two layers with a fixed state, the first without experts, and one that attends
        {"model_type": "kimi_linear", **LATENT, "q_lora_rank": None, "num_hidden_layers": 3, "pad_token_id": None}
        | {"linear_attn_config": KIMI, "n_routed_experts": None, "num_experts": 6},
        silent=True,
    ),
    "deepseek_v2": Family({"model_type": "deepseek_v2", **LATENT, "q_lora_rank": None, "head_dim": 6}, silent=True),
    "deepseek_v3": Family({"model_type": "deepseek_v3", **LATENT, "attention_bias": True}, silent=True),
    "deepseek_v32": Family({"model_type": "deepseek_v32", **LATENT, **INDEXED}, silent=True),
    "glm_moe_dsa": Family({"model_type": "glm_moe_dsa", **LATENT, **INDEXED, "attention_bias": True}, silent=True),
}


@cache
def layouts() -> dict[str, dict[str, Any]]:
    """Layouts of the families with a fixed state, which no model of the config has: its heads on 2 devices, and on 4,
    where groups are fewer than devices."""
    heads = {name: [state.heads for _, state in family.read(name).states()] for name, family in FAMILIES.items()}
    whole: dict[str, Any] = dict.fromkeys(("pipeline", "expert", "context", "microbatches"), 1)
    whole |= {"sequence_parallel": False, "checkpointing": "none", "attention": "fused"}
    own = {"state": ADAMW, "recipe": "adamw", "workload": "long", **WORKLOADS["long"], "cache_dtype": CACHE_DTYPES[0]}
    return {
        f"tensor {t}": {
            "layout": {"data": 2, "tensor": t, "zero_stage": 1, **whole},
            **own,
            "trained": False,
            "models": [name for name, every in heads.items() if every and not any(h % t for h in every)],
        }
        for t in (2, 4)
    }


@dataclass(frozen=True)
class Switch:
    """One thing that a description can say, and what the reference computes when it is told something else.

    `off` is the description with the one thing put back. `changes` are other arguments of its run: start and step of
    the positions, pairing, causal, tanh (GELU by its approximation), without (weights left out, by the end of the name).
    """

    spec: ModelSpec
    off: ModelSpec | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


def _switches() -> dict[str, Switch]:
    plain, latent = _spec(), Latent(query_rank=20, kv_rank=12, nope_dim=10, rope_dim=6, value_dim=14)
    learned = _spec(positions="learned", position_rows=CONTEXT + 2)
    mixture = _spec(feedforward=SHARED)
    index = {k: _spec({"kv_heads": 4, "latent": replace(latent, indexer=Indexer(9, 8, k))}) for k in (3, 4)}
    pairs: dict[str, tuple[ModelSpec, ModelSpec]] = {
        "rope_base": (plain, replace(plain, rope_base=10000.0)),
        "norm": (_spec(norm="layernorm"), plain),
        "norm_epsilon": (plain, replace(plain, norm_epsilon=1e-5)),
        "norm_epsilon, LayerNorm": (_spec(norm="layernorm"), _spec(norm="layernorm", norm_epsilon=1e-5)),
        "embedding_norm": (_spec(embedding_norm=True), plain),
        "final_norm": (plain, replace(plain, final_norm=False)),
        "position_rows": (learned, replace(learned, context=CONTEXT + 2)),
        "parallel": (_spec(parallel=True), plain),
        "post_norm": (_spec(post_norm=True), plain),
        "norms": (_spec(norms=4), plain),
        "query_key_norm, head": (_spec({"query_key_norm": "head"}), plain),
        "query_key_norm, full": (_spec({"query_key_norm": "full"}), plain),
        "window": (_spec({"window": 3}), _spec({"window": 4})),
        "chunked": (_spec({"window": 3, "chunked": True}), _spec({"window": 3})),
        "sinks": (_spec({"sinks": True}), plain),
        "gated": (_spec({"gated": True}), plain),
        "kernel": (_mixed(kernel=3), _mixed(kernel=2)),
        "experts_per_token": (mixture, _spec(feedforward=SHARED | {"experts_per_token": 2})),
        "shared_gate": (mixture, _spec(feedforward=SHARED | {"shared_gate": False})),
        "shared_width": (mixture, _spec(feedforward=SHARED | {"shared_gate": False, "shared_width": 0})),
        "latent": (_spec({"kv_heads": 4, "latent": latent}), _spec({"kv_heads": 4, "latent": latent}, rope_base=9.0)),
        "chosen": (index[3], index[4]),
    }
    every = dict.fromkeys(("query_bias", "key_bias", "value_bias", "output_bias"), True)
    return {name: Switch(spec, off) for name, (spec, off) in pairs.items()} | {
        "norm_bias": Switch(_spec(norm="layernorm", norm_bias=True), changes={"without": "norm.bias"}),
        "head_bias": Switch(_spec(head_bias=True), changes={"without": "head.bias"}),
        "key_bias": Switch(_spec(every), changes={"without": "key.bias"}),
        "feedforward_bias": Switch(_spec(feedforward={"bias": True}), changes={"without": "up.bias"}),
        "tied_head": Switch(_spec(tied_head=True), changes={"start": 1, "step": 2}),
        "positions": Switch(learned, changes={"start": 1}),
        "rotation": Switch(plain, changes={"step": -1}),
        "pairing": Switch(plain, changes={"pairing": "interleaved"}),
        "causal": Switch(plain, changes={"causal": False}),
        "activation": Switch(_spec(feedforward={"kind": "gelu"}), changes={"tanh": True}),
    }


SWITCHES = _switches()
