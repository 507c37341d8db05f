"""A small copy of a decoder, which keeps its structure: what can be run for real where the model itself cannot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from transformer_ledger.model import Attention, Feedforward, Latent, Layer, ModelSpec

COPY = "small copy"  # what stands in the place of a workload's name


def _attention(a: Attention, largest: Mapping[str, int]) -> Attention:
    kv_heads = min(a.kv_heads, largest["kv_heads"])
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
    experts = min(ff.experts, largest["experts"])
    return replace(
        ff,
        width=min(ff.width, largest["d_ff"]),
        experts=experts,
        experts_per_token=min(ff.experts_per_token, experts),
        shared_width=min(ff.shared_width, largest["d_ff"]),
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
    d_model = min(spec.d_model, largest["d_model"])
    if all(_heads_width(layer) == spec.d_model for _, layer in spec.layers):  # transformers' GPT-2 has no other
        d_model = _heads_width(next(iter(kinds)))
    return replace(
        spec,
        d_model=d_model,
        embedding_width=d_model // 2 if narrow else 0,
        vocabulary=min(spec.vocabulary, largest["vocabulary"]),
        context=context,
        position_rows=spec.position_rows and context + spec.position_rows - spec.context,
        layers=tuple((1, layer) for _ in range(2) for layer in kinds),
    )


PUBLIC = {"gpt2": "activation_function", "llama": "hidden_act", "qwen2": "hidden_act"}
"""Model types of transformers whose saved tensors are predicted, and the key of their activation."""

ACTIVATIONS = {"gelu": 2, "gelu_new": 5, "silu": 4}
"""Tensors as wide as the feed-forward that are saved: silu's layer has a gate, gelu_new is spelt out in eight steps."""


def public(hf_config: Mapping[str, Any] | None, spec: ModelSpec) -> dict[str, str] | None:
    """Model type and activation of a model whose saved tensors in transformers are predicted; None for any other.

    Left out are windows, experts, norms of queries and keys, latents and other families: each saves tensors of its own.
    """
    key = PUBLIC.get((hf_config or {}).get("model_type", ""))
    if hf_config is None or key is None or any(layer.attention.window for _, layer in spec.layers):
        return None
    activation = hf_config.get(key) or ("gelu_new" if spec.norm == "layernorm" else "silu")
    if hf_config.get("reorder_and_upcast_attn") or activation not in ACTIVATIONS:
        return None
    return {"model_type": hf_config["model_type"], "activation": activation}


def public_config(spec: ModelSpec, model_type: str, activation: str) -> dict[str, Any]:
    """The config.json of a small copy for transformers, of a model that `public` knows."""
    layer = spec.layers[0][1]
    a, ff = layer.attention, layer.feedforward
    shared: dict[str, Any] = {"vocab_size": spec.vocabulary, "tie_word_embeddings": spec.tied_head}
    shared |= {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    if model_type == "gpt2":
        sizes = {"n_embd": spec.d_model, "n_layer": spec.depth, "n_head": a.heads, "n_inner": ff.width}
        sizes |= {"n_positions": spec.context}
        return {**shared, **sizes, "model_type": model_type, PUBLIC[model_type]: activation}
    return {
        **shared,
        "model_type": model_type,
        "hidden_size": spec.d_model,
        "num_hidden_layers": spec.depth,
        "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads,
        "head_dim": a.head_dim,
        "intermediate_size": ff.width,
        "max_position_embeddings": spec.context,
        "attention_bias": a.query_bias,
        PUBLIC[model_type]: activation,
    }
