"""A small copy of a decoder, which keeps its structure: what can be run for real where the model itself cannot.

Also its config.json for transformers, and what of that file decides which tensors transformers' model saves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from transformer_ledger.huggingface import text_part
from transformer_ledger.model import Attention, Dropout, Feedforward, Latent, Layer, ModelSpec
from transformer_ledger.rotary import ROTARY

COPY = "small copy"  # what stands in the place of a workload's name


def _attention(a: Attention, largest: Mapping[str, int]) -> Attention:
    kv_heads = min(a.kv_heads, max(2, largest["kv_heads"]))  # one alone is another structure
    latent = a.latent and Latent(
        query_rank=min(a.latent.query_rank, largest["rank"]),
        kv_rank=min(a.latent.kv_rank, largest["rank"]),
        nope_dim=min(a.latent.nope_dim, largest["head_dim"]),
        rope_dim=min(a.latent.rope_dim, largest["head_dim"]),
        value_dim=min(a.latent.value_dim, largest["head_dim"]),
    )
    return replace(
        a,
        heads=kv_heads * min(a.heads // a.kv_heads, largest["group"]),
        kv_heads=kv_heads,
        head_dim=min(a.head_dim, largest["head_dim"]),
        window=a.window and min(a.window, largest["window"]),
        latent=latent,
    )


def _feedforward(ff: Feedforward, largest: Mapping[str, int]) -> Feedforward:
    experts = min(ff.experts, max(2, largest["experts"]))  # DeepSeek compares two of a group
    width = max(8, min(ff.width, largest["d_ff"]) // 8 * 8)  # a grouped kernel wants rows of whole 16 bytes
    return replace(
        ff,
        width=width,
        experts=experts,
        experts_per_token=min(ff.experts_per_token, experts),
        # As many shared experts as the model has; DeepSeek has them all of one width.
        shared_width=ff.shared_width // ff.width * width or min(ff.shared_width, width),
    )


def _heads_width(layer: Layer) -> int:
    return layer.attention.heads * layer.attention.head_dim


def shrunken(spec: ModelSpec, largest: Mapping[str, int], context: int) -> ModelSpec:
    """`spec` with its sizes cut to `largest`, one layer of each kind run twice, and a context of `context`.

    Kept are all that decides which tensors there are: norms, biases, positions, windows, groups, latents, experts.
    `largest` has d_model, kv_heads, group (query heads that share a key/value head), head_dim, rank, d_ff, experts,
    vocabulary, window.
    """
    kinds = dict.fromkeys(
        Layer(
            _attention(layer.attention, largest),
            _feedforward(layer.feedforward, largest),
            layer.norms,
            layer.parallel,
            layer.post_norm,
        )
        for _, layer in spec.kinds()
    )
    narrow = spec.embedding_width not in (0, spec.d_model)
    first = next(iter(kinds))
    unit = math.lcm(first.attention.heads, 8)
    d_model = max(unit, min(spec.d_model, largest["d_model"]) // unit * unit)  # Gemma 3 wants its heads to divide it
    experts = any(layer.feedforward.experts for _, layer in spec.layers)
    if all(_heads_width(layer) == spec.d_model for _, layer in spec.layers) and not experts:
        d_model = _heads_width(first)  # transformers' GPT-2 has no other
    if all(layer.feedforward.width == 4 * spec.d_model for _, layer in spec.layers):  # its BLOOM neither
        kinds = {replace(layer, feedforward=replace(layer.feedforward, width=4 * d_model)): None for layer in kinds}
    return replace(
        spec,
        d_model=d_model,
        embedding_width=d_model // 2 if narrow else 0,
        vocabulary=min(spec.vocabulary, largest["vocabulary"]),
        context=context,
        position_rows=spec.position_rows and context + spec.position_rows - spec.context,
        layers=tuple((2, layer) for layer in kinds),
    )


# What decides which tensors transformers saves and stands in no spec: keys of config.json with its defaults.
PUBLIC: dict[str, dict[str, Any]] = {
    "gpt2": {"activation_function": "gelu_new", "reorder_and_upcast_attn": False},
    "gpt_bigcode": {"activation_function": "gelu_pytorch_tanh"},
    "gpt_neox": {"hidden_act": "gelu", "partial_rotary_factor": 0.25},
    "opt": {"activation_function": "relu"},
    "bloom": {"activation": "gelu"},
    "falcon": {"activation": "gelu", "alibi": False, "multi_query": True, "new_decoder_architecture": False},
    "llama": {"hidden_act": "silu"},
    "mistral": {"hidden_act": "silu"},
    "mixtral": {"hidden_act": "silu"},
    "qwen2": {"hidden_act": "silu"},
    "qwen3": {"hidden_act": "silu"},
    "qwen3_moe": {"hidden_act": "silu", "norm_topk_prob": False},
    "gemma": {"hidden_act": "gelu_pytorch_tanh"},
    "gemma2": {
        "hidden_activation": "gelu_pytorch_tanh",
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
    "gemma3_text": {"hidden_activation": "gelu_pytorch_tanh", "final_logit_softcapping": None},
    "olmo2": {"hidden_act": "silu"},
    "phi3": {"hidden_act": "silu", "partial_rotary_factor": 1.0},
    "gpt_oss": {"hidden_act": "silu"},
    "deepseek_v2": {"hidden_act": "silu", "topk_method": "greedy", "n_group": None, "topk_group": None},
    "deepseek_v3": {"hidden_act": "silu", "norm_topk_prob": True, "n_group": 8, "topk_group": 4},
}

ACTIVATIONS = {"gelu": 2, "gelu_new": 5, "gelu_fast": 8, "gelu_pytorch_tanh": 2, "relu": 1, "silu": 2}
"""Tensors as wide as the feed-forward that an activation and the map behind it save; some are spelt out in steps."""

_ACTIVATION_KEYS = ("activation_function", "hidden_activation", "hidden_act", "activation")

# transformers has no fused attention for them, or torch no kernel: values narrower than keys, one key for all queries.
_EAGER = ("bloom", "gemma2", "gpt_oss", "deepseek_v2", "deepseek_v3")

Facts = dict[str, Any]


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a config.json says of its rotary positions, in new files and in old ones."""
    return dict(config.get("rope_parameters") or config.get("rope_scaling") or {})


def public(hf_config: Mapping[str, Any] | None, spec: ModelSpec) -> Facts | None:
    """What decides, beside the spec, which tensors transformers' model saves: its type and the values of its PUBLIC.

    None for a model that is not predicted: of another family, with an activation that is not counted here, with GPT-2's
    reordered attention, a router that reports a loss of its own or is noisy in training, or Falcon's new architecture
    with ALiBi or one key/value head (no published model has either).
    """
    config = text_part(hf_config or {}, [])
    kind = config.get("model_type", "")
    if kind not in PUBLIC:
        return None
    given = {**config, **_rope(config)}
    if "rotary_pct" in given:
        given.setdefault("partial_rotary_factor", given["rotary_pct"])
    facts = {key: given.get(key, default) for key, default in PUBLIC[kind].items()}
    (key,) = (key for key in _ACTIVATION_KEYS if key in facts)
    facts = {"model_type": kind, "activation": facts.pop(key), **facts}
    one_head = any(layer.attention.kv_heads == 1 for _, layer in spec.layers)
    new_falcon = facts.get("new_decoder_architecture") and (one_head or facts["alibi"])
    if (
        new_falcon
        or facts.get("reorder_and_upcast_attn")
        or config.get("output_router_logits")
        or config.get("router_jitter_noise")
    ):
        return None
    return facts if facts["activation"] in ACTIVATIONS else None


def fuses(facts: Mapping[str, Any]) -> bool:
    """Whether transformers' model runs on torch's fused kernel when it is asked to, given what `public` knows of it."""
    falcon = facts["model_type"] == "falcon"
    one_key = falcon and facts.get("multi_query", True) and not facts.get("new_decoder_architecture")
    return facts["model_type"] not in _EAGER and not one_key


def ways(facts: Mapping[str, Any] | None, dropout: Dropout) -> Iterator[tuple[str, bool, bool]]:
    """(eager or fused, whether layers are checkpointed, whether dropout is on) of each way in which activations are counted.

    `facts` are what `public` knows of transformers' model, None for our decoder; torch's fused kernel for the CPU has no
    dropout of the weights.
    """
    fused = facts is None or fuses(facts)
    for dropping in (False, True) if dropout.any else (False,):
        for method in ("eager", "fused") if fused and not (dropping and dropout.weights) else ("eager",):
            for checkpointed in (False, True):
                yield method, checkpointed, dropping


def way(method: str, checkpointed: bool, dropping: bool) -> str:
    """Its name in the execution table: eager, fused-checkpointed, eager-dropout."""
    return method + "-checkpointed" * checkpointed + "-dropout" * dropping


def rotated(facts: Mapping[str, Any], a: Attention) -> int:
    """Width of the rotated part of a query: one pair at least, of however small a copy."""
    return a.latent.rope_dim if a.latent else max(2, int(a.head_dim * facts.get("partial_rotary_factor", 1)) // 2 * 2)


def groups(facts: Mapping[str, Any], experts: int) -> tuple[int, int]:
    """Groups of a layer's experts, and how many of them a token is routed in; fewer where the experts are too few."""
    if not facts.get("n_group"):
        return 0, 0
    count = next(n for n in range(facts["n_group"], 0, -1) if experts % n == 0 and (n == 1 or experts >= 2 * n))
    return count, min(facts["topk_group"], count)


def _copied_sizes(spec: ModelSpec, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a small copy's config.json, each by all the names that families give to it."""
    layers = spec.each_layer()
    a, windows = layers[0].attention, [layer.attention.window for layer in layers]
    dense = [i for i, layer in enumerate(layers) if not layer.feedforward.experts]
    ff = next((layer.feedforward for layer in layers if layer.feedforward.experts), layers[0].feedforward)
    sizes: dict[str, Any] = {
        "hidden_size n_embd n_embed": spec.d_model,
        "num_hidden_layers n_layer": spec.depth,
        "num_attention_heads n_head": a.heads,
        "num_key_value_heads num_kv_heads": a.kv_heads,
        "intermediate_size n_inner ffn_dim ffn_hidden_size": layers[dense[0] if dense else 0].feedforward.width,
        "max_position_embeddings n_positions seq_length": spec.context,
        "vocab_size": spec.vocabulary,
        "word_embed_proj_dim": spec.embedding_width or spec.d_model,
        "bos_token_id eos_token_id pad_token_id": None,
    }
    if a.latent:
        sizes |= {"q_lora_rank": a.latent.query_rank or None, "kv_lora_rank": a.latent.kv_rank}
        sizes |= {"qk_nope_head_dim": a.latent.nope_dim, "qk_rope_head_dim head_dim": a.latent.rope_dim}
        sizes |= {"v_head_dim": a.latent.value_dim}
    elif (family := ROTARY.get(facts["model_type"])) and not family.fills:  # in the others the heads fill the width
        sizes |= {"head_dim": a.head_dim}
    if "partial_rotary_factor" in facts:
        sizes |= {"partial_rotary_factor rotary_pct": rotated(facts, a) / a.head_dim}
    if any(windows):
        sizes |= {"sliding_window": max(filter(None, windows)), "max_window_layers": 0}
    if len(set(windows)) > 1:
        sizes |= {"layer_types": ["sliding_attention" if window else "full_attention" for window in windows]}
    if ff.experts:
        sizes |= {"num_experts num_local_experts n_routed_experts": ff.experts}
        sizes |= {"num_experts_per_tok": ff.experts_per_token, "moe_intermediate_size": ff.width}
        sizes |= {"mlp_only_layers": dense, "decoder_sparse_step": 1, "first_k_dense_replace": len(dense)}
        sizes |= {"n_shared_experts": ff.shared_width // ff.width}
    if facts.get("n_group"):
        sizes["n_group"], sizes["topk_group"] = groups(facts, ff.experts)
    return {name: value for names, value in sizes.items() for name in names.split()}


def public_config(spec: ModelSpec, hf_config: Mapping[str, Any]) -> dict[str, Any]:
    """The config.json of a small copy for transformers, of a model that `public` knows: the sizes of `spec`, all else as
    `hf_config` has it."""
    config = text_part(hf_config, [])
    config.pop("layer_types", None)
    facts, a = public(hf_config, spec), spec.layers[0][1].attention
    assert facts is not None
    for key in ("rope_parameters", "rope_scaling"):
        if config.get(key):  # a list has a factor for each pair of components
            pairs = rotated(facts, a) // 2
            config[key] = {name: x[:pairs] if isinstance(x, list) else x for name, x in config[key].items()}
            config[key].pop("partial_rotary_factor", None)
    return config | _copied_sizes(spec, facts)
