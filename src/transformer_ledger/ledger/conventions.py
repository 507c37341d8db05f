"""Other numbers for the same model: what each convention counts, who counts so, and how far it is from ours.

A number that a paper, a model card or a calculator gives is looked up here by its value or its ratio to ours. Ours are
the totals of the other ledgers; of FLOPs there are two, full and causal-exact. A convention is a rule, and a row says
what it gives; applied to the counts of the executed model (`recounted`), the rule must give the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from transformer_ledger.formulas import conventions as formulas
from transformer_ledger.formulas.kv_cache import full
from transformer_ledger.formulas.matmul import head, multiply_adds, training
from transformer_ledger.formulas.training_compute import rule_flops, rule_parameters
from transformer_ledger.ledger import matmul
from transformer_ledger.ledger.counted import DERIVED, NOTHING, Executed, Rows
from transformer_ledger.ledger.fit import weight_bytes
from transformer_ledger.ledger.kv_cache import cache_bytes, multi_head_bytes, state_bytes
from transformer_ledger.ledger.parameters import tensors, totals
from transformer_ledger.ledger.recounted import Counts, recount
from transformer_ledger.model import Attention, Feedforward, Layer, ModelSpec

DTYPE = "bf16"  # of weights and cache
QUANTITIES = {
    "parameters": "parameter",
    "active parameters": "parameter",
    "weights": "byte",
    "KV cache": "byte",
    "forward pass": "FLOP",
    "decoded token": "FLOP",
    "training step": "FLOP",
}
"""Quantity → unit, in the order of the table."""

UNSIZED = ("parameters", "active parameters", "weights")  # the same at every workload
TABLES_OF_INPUT = ("token_embedding", "position_embedding")
EXPANSION = ("attention.key", "attention.value")  # of a latent
PAIRS = ("attention.scores", "attention.values")


@dataclass(frozen=True)
class Convention:
    """One way to count a quantity: the number of `value` for B sequences of T tokens, where it `applies`."""

    quantity: str
    name: str
    counts: str
    value: Callable[[ModelSpec, int, int], int]
    elsewhere: str = ""
    ours: bool = False
    applies: Callable[[ModelSpec], bool] = lambda _: True


def _has_experts(spec: ModelSpec) -> bool:
    return any(layer.feedforward.experts for _, layer in spec.kinds())


def _has_window(spec: ModelSpec) -> bool:
    return any(a.window for _, a in spec.attentions())


def _shares_heads(spec: ModelSpec) -> bool:
    return any(a.kv_heads < a.heads and not a.latent for _, a in spec.attentions())


def _is_tied(spec: ModelSpec) -> bool:
    return spec.tied_head


def _is_untied(spec: ModelSpec) -> bool:
    return not spec.tied_head


def _has_position_table(spec: ModelSpec) -> bool:
    return spec.positions == "learned"


def narrowed(spec: ModelSpec) -> ModelSpec:
    """The model with heads ⌊d/h⌋ wide and no latent: what a program sees that knows neither."""

    def change(layer: Layer) -> Layer:
        a = layer.mixer
        if isinstance(a, Attention):
            a = replace(a, head_dim=spec.d_model // a.heads, latent=None)
        return replace(layer, mixer=a)

    return replace(spec, layers=tuple((n, change(layer)) for n, layer in spec.layers))


def _is_narrowed(spec: ModelSpec) -> bool:
    return narrowed(spec) != spec and all(a.heads <= spec.d_model for _, a in spec.attentions())


def _one_expert(spec: ModelSpec) -> ModelSpec:
    """The model with one dense feed-forward, as wide as an expert, for all experts of a layer."""

    def change(ff: Feedforward) -> Feedforward:
        return replace(ff, experts=0, experts_per_token=0, router_bias=False) if ff.experts else ff

    def dense(layer: Layer) -> Layer:
        return replace(layer, feedforward=change(layer.feedforward))

    return replace(spec, layers=tuple((n, dense(layer)) for n, layer in spec.layers))


def _without(spec: ModelSpec, *components: str) -> tuple[int, int]:
    """Parameters, and active ones, without some components. A tied head leaves with the token table."""
    kept = [tensor for tensor in tensors(spec) if tensor.component not in components]
    return sum(tensor.parameters for tensor in kept), sum(tensor.active_parameters for tensor in kept)


def _non_embedding(spec: ModelSpec) -> tuple[int, int]:
    return _without(spec, *TABLES_OF_INPUT, "head")


def _untabled(spec: ModelSpec) -> tuple[int, int]:
    return _without(spec, *TABLES_OF_INPUT)


def _forward(spec: ModelSpec, B: int, T: int, convention: str = "full") -> int:
    return matmul.total(spec, B, T, "prefill", convention)


def _of(spec: ModelSpec, B: int, T: int, *components: str) -> int:
    """Forward FLOPs of some components, full."""
    return sum(p.flops for p in matmul.products(spec, B, T, T, "prefill") if p.component in components)


def _trained(spec: ModelSpec, B: int, T: int, forward: int) -> int:
    """FLOPs of a training step, of its forward pass."""
    choosing = sum(p.flops for p in matmul.products(spec, B, T, T, "prefill") if p.forward_only)
    return int(training(forward - choosing)) + choosing


def _widths(spec: ModelSpec) -> Iterator[tuple[int, Attention, int, int]]:
    """(layers, attention, width of a query head, width of a value head) of each kind of layer."""
    for count, a in spec.attentions():
        d_h = a.latent.nope_dim + a.latent.rope_dim if a.latent else a.head_dim
        yield count, a, d_h, a.latent.value_dim if a.latent else a.head_dim


def _half(spec: ModelSpec, B: int, T: int, windowed: bool) -> int:
    """Forward FLOPs where a token sees half of all keys, or half of its window."""
    found = _forward(spec, B, T) - _of(spec, B, T, *PAIRS)
    for count, a, *widths in _widths(spec):
        S = min(T, a.window) if windowed and a.window else T
        found += count * sum(formulas.half_scores(B=B, T=T, S=S, h=a.heads, d_h=width) for width in widths)
    return found


def _attention_term(spec: ModelSpec, B: int, T: int, term: Callable[..., int]) -> int:
    return sum(count * term(B=B, T=T, h=a.heads, d_h=d_h) for count, a, d_h, _ in _widths(spec))


def _looked_up(spec: ModelSpec, B: int, T: int) -> int:
    """Forward FLOPs with the lookup as a product by one-hot rows, which costs what the head costs."""
    return _forward(spec, B, T) + int(head(B=B, T=T, V=spec.vocabulary, d=spec.embedding_width or spec.d_model))


def _appendix_f(spec: ModelSpec, B: int, T: int) -> int:
    softmax = sum(count * formulas.softmax(B=B, T=T, h=a.heads) for count, a, *_ in _widths(spec))
    return _looked_up(spec, B, T) + int(softmax)


def _latent_twice(spec: ModelSpec, B: int, T: int) -> int:
    kinds = ((count, a.latent) for count, a in spec.attentions())
    grown = sum(count * full(B=B, T=T, h_kv=1, d_h=latent.kv_rank, b=2) for count, latent in kinds if latent)
    return grown + int(state_bytes(spec, B, "bf16"))


def _new_token_expanded(spec: ModelSpec, B: int, T: int) -> int:
    """FLOPs of a decoded token where older keys and values lie expanded in the cache."""
    every, new = (matmul.products(spec, B, 1, S, "decode") for S in (T, 1))
    return sum(p.flops for p in every if p.component not in EXPANSION) + sum(
        p.flops for p in new if p.component in EXPANSION
    )


KAPLAN = "Kaplan et al. 2020, arXiv:2001.08361"
HOFFMANN = "Hoffmann et al. 2022 (Chinchilla), arXiv:2203.15556, appendix F"
PALM = "PaLM, arXiv:2204.02311, appendix B"
NARAYANAN = "Narayanan et al. 2021, arXiv:2104.04473"
MEGATRON = "Megatron-LM: num_floating_point_operations"
MIXTRAL = "Mixtral’s 13B, arXiv:2401.04088"
NO_HEAD_DIM = "transformers’ Llama class, if the file has no head_dim"

CONVENTIONS = (
    Convention(
        "parameters",
        "every tensor",
        "Every tensor once; a tied head has none of its own.",
        lambda spec, B, T: totals(spec)[0],
        "transformers: num_parameters()",
        ours=True,
    ),
    Convention(
        "parameters",
        "without input tables",
        "Without the tables that a token and its position are looked up in; the head stays.",
        lambda spec, B, T: _untabled(spec)[0],
        "transformers: num_parameters(exclude_embeddings=True)",
        applies=_is_untied,
    ),
    Convention(
        "parameters",
        "non-embedding",
        "Without token table, position table and head.",
        lambda spec, B, T: _non_embedding(spec)[0],
        f"{KAPLAN} (N); Pythia, arXiv:2304.01373, table 1; Qwen3’s model cards; "
        "with a tied head, transformers: num_parameters(exclude_embeddings=True)",
    ),
    Convention(
        "parameters",
        "without position table",
        "Every tensor but the learned positions.",
        lambda spec, B, T: _without(spec, "position_embedding")[0],
        "nanoGPT: get_num_params()",
        applies=_has_position_table,
    ),
    Convention(
        "parameters",
        "tied head twice",
        "A tied head as if it had a tensor of its own.",
        lambda spec, B, T: totals(replace(spec, tied_head=False))[0],
        "a sum over PyTorch’s state_dict(), which lists a shared tensor under both names",
        applies=_is_tied,
    ),
    Convention(
        "parameters",
        "12Ld²",
        "A standard shape: h·d_h = d, feed-forward width 4d; no embeddings.",
        lambda spec, B, T: int(formulas.standard_parameters(spec.depth, spec.d_model)),
        KAPLAN,
    ),
    Convention(
        "parameters",
        "12Ld² + Vd",
        "A standard shape: h·d_h = d, feed-forward width 4d; one token table.",
        lambda spec, B, T: int(rule_parameters(spec.depth, spec.d_model, spec.vocabulary)),
        f"{NARAYANAN}, equation 2, with 13Ld and the position table besides",
    ),
    Convention(
        "parameters",
        "width d/h",
        "Heads taken as d/h wide, whatever the file says; no latent.",
        lambda spec, B, T: totals(narrowed(spec))[0],
        NO_HEAD_DIM,
        applies=_is_narrowed,
    ),
    Convention(
        "parameters",
        "experts in use",
        "The active parameters quoted as the model’s size: experts that a token is not routed to are left out.",
        lambda spec, B, T: totals(spec)[1],
        MIXTRAL,
        applies=_has_experts,
    ),
    Convention(
        "parameters",
        "one expert",
        "One feed-forward of an expert’s width in each layer, as if the mixture were a dense model.",
        lambda spec, B, T: totals(_one_expert(spec))[0],
        applies=_has_experts,
    ),
    Convention(
        "active parameters",
        "every tensor in use",
        "Every tensor but the experts that a token is not routed to.",
        lambda spec, B, T: totals(spec)[1],
        MIXTRAL,
        ours=True,
        applies=_has_experts,
    ),
    Convention(
        "active parameters",
        "without input tables",
        "Tensors in use without the token table, of which a token reads one row; the head stays.",
        lambda spec, B, T: _untabled(spec)[1],
        "gpt-oss’s model card, arXiv:2508.10925 (3.61B and 5.13B)",
        applies=lambda spec: _has_experts(spec) and _is_untied(spec),
    ),
    Convention(
        "active parameters",
        "non-embedding",
        "Tensors in use without token table, position table and head.",
        lambda spec, B, T: _non_embedding(spec)[1],
        applies=_has_experts,
    ),
    Convention(
        "weights",
        "bf16",
        "2 bytes for every parameter; a GB is 10⁹ bytes, a GiB 2³⁰.",
        lambda spec, B, T: weight_bytes(spec, DTYPE),
        ours=True,
    ),
    Convention(
        "weights",
        "GiB called GB",
        "The bytes divided by 2³⁰ but labelled GB; we show how many bytes that label then means.",
        lambda spec, B, T: weight_bytes(spec, DTYPE) * 10**9 // 2**30,
        "Hugging Face’s memory estimator (space hf-accelerate/model-memory-usage)",
    ),
    Convention(
        "weights",
        "tied head twice",
        "A tied head stored beside the token table.",
        lambda spec, B, T: weight_bytes(replace(spec, tied_head=False), DTYPE),
        applies=_is_tied,
    ),
    Convention(
        "KV cache",
        "needed",
        "bf16 keys and values that attention can still read: the last w in a layer with a window; a latent in their place.",
        lambda spec, B, T: cache_bytes(spec, B, T, DTYPE, "needed"),
        "vLLM’s hybrid cache manager",
        ours=True,
    ),
    Convention(
        "KV cache",
        "reserved",
        "The whole length in every layer: windows ignored.",
        lambda spec, B, T: cache_bytes(spec, B, T, DTYPE, "reserved"),
        "vLLM with its hybrid cache manager disabled",
        applies=_has_window,
    ),
    Convention(
        "KV cache",
        "between steps",
        "w − 1 positions of a layer with a window, because the next token adds its own.",
        lambda spec, B, T: cache_bytes(spec, B, T, DTYPE, "dynamic"),
        "transformers: DynamicCache",
        applies=_has_window,
    ),
    Convention(
        "KV cache",
        "width d/h",
        "Heads taken as d/h wide, the whole length in every layer; no latent.",
        lambda spec, B, T: cache_bytes(narrowed(spec), B, T, DTYPE, "reserved"),
        NO_HEAD_DIM,
        applies=_is_narrowed,
    ),
    Convention(
        "KV cache",
        "every query head",
        "A key and a value for each query head, the whole length in every layer.",
        lambda spec, B, T: multi_head_bytes(spec, B, T, DTYPE),
        "multi-head attention, which grouped queries are compared with, arXiv:2305.13245",
        applies=_shares_heads,
    ),
    Convention(
        "KV cache",
        "latent expanded",
        "The keys and values of all heads in place of the latent.",
        lambda spec, B, T: multi_head_bytes(spec, B, T, DTYPE),
        "multi-head attention, which the latent is compared with, arXiv:2405.04434",
        applies=matmul.has_latent,
    ),
    Convention(
        "KV cache",
        "latent twice",
        "The latent as key and again as value, without the rotated key.",
        _latent_twice,
        applies=matmul.has_latent,
    ),
    Convention(
        "forward pass",
        "full",
        "Every query against every key, which is what a dense kernel runs; a multiply-add is 2, a lookup 0.",
        _forward,
        f"torch: FlopCounterMode, eager attention; {PALM}",
        ours=True,
    ),
    Convention(
        "forward pass",
        "causal-exact",
        "The T(T + 1)/2 pairs that the mask allows, w(w + 1)/2 + (T − w)w with a window.",
        lambda spec, B, T: _forward(spec, B, T, "causal-exact"),
        ours=True,
    ),
    Convention(
        "forward pass",
        "T²/2",
        "Half of all pairs in every layer: windows ignored.",
        lambda spec, B, T: _half(spec, B, T, windowed=False),
        f"{MEGATRON}; FlashAttention-2’s benchmarks, arXiv:2307.08691",
    ),
    Convention(
        "forward pass",
        "w/2",
        "Half of a window’s keys for every token, half of all pairs in the layers without one.",
        lambda spec, B, T: _half(spec, B, T, windowed=True),
        applies=_has_window,
    ),
    Convention(
        "forward pass",
        "2N",
        "2 FLOPs for each active parameter and token, embeddings among them; no attention.",
        lambda spec, B, T: int(formulas.rule_forward(B, T, totals(spec)[1])),
    ),
    Convention(
        "forward pass",
        "2N + attention",
        "2 FLOPs for each active non-embedding parameter and token, and half of all pairs, values as wide as keys; no head.",
        lambda spec, B, T: (
            int(formulas.rule_forward(B, T, _non_embedding(spec)[1]))
            + _attention_term(spec, B, T, formulas.kaplan_attention)
        ),
        f"{KAPLAN}: 2N + 2·n_layer·n_ctx·d_attn per token",
    ),
    Convention(
        "forward pass",
        "one row of logits",
        "The head runs only for the last token of each sequence, as in a prefill before generation.",
        lambda spec, B, T: _forward(spec, B, T) - _of(spec, B, T, "head") + _of(spec, B, 1, "head"),
        "transformers: generate(), logits_to_keep = 1; nanoGPT without targets",
    ),
    Convention(
        "forward pass",
        "lookup as product",
        "The token table multiplied by one-hot rows, 2TVd more.",
        _looked_up,
    ),
    Convention(
        "forward pass",
        "lookup and softmax",
        "The token table multiplied by one-hot rows, and 3 operations per score for the softmax.",
        _appendix_f,
        HOFFMANN,
    ),
    Convention(
        "forward pass",
        "multiply-adds",
        "A multiply-add as 1.",
        lambda spec, B, T: int(multiply_adds(_forward(spec, B, T))),
        "fvcore: FlopCountAnalysis, which calls them flops; DeepSpeed’s profiler: MACs",
    ),
    Convention(
        "forward pass",
        "no router",
        "The experts’ scores left out.",
        lambda spec, B, T: _forward(spec, B, T) - _of(spec, B, T, "router"),
        MEGATRON,
        applies=_has_experts,
    ),
    Convention(
        "forward pass",
        "width d/h",
        "Heads taken as d/h wide; no latent.",
        lambda spec, B, T: _forward(narrowed(spec), B, T),
        NO_HEAD_DIM,
        applies=_is_narrowed,
    ),
    Convention(
        "decoded token",
        "full",
        "One new token for each sequence; a latent is expanded anew for every position.",
        lambda spec, B, T: matmul.total(spec, B, T, "decode"),
        "transformers 5, torch: FlopCounterMode",
        ours=True,
    ),
    Convention(
        "decoded token",
        "absorbed",
        "Scores and values on the latent itself, the up-projections applied to queries and outputs.",
        lambda spec, B, T: matmul.total(spec, B, T, "decode", "absorbed"),
        "DeepSeek-V2, arXiv:2405.04434, section 2.1",
        applies=matmul.has_latent,
    ),
    Convention(
        "decoded token",
        "new token expanded",
        "Only the latent of the new token is expanded; keys and values of older tokens are cached.",
        _new_token_expanded,
        applies=matmul.has_latent,
    ),
    Convention(
        "decoded token",
        "2N",
        "2 FLOPs for each active parameter, embeddings among them; no attention.",
        lambda spec, B, T: int(formulas.rule_forward(B, 1, totals(spec)[1])),
    ),
    Convention(
        "training step",
        "full",
        "3 × the full forward pass.",
        lambda spec, B, T: matmul.total(spec, B, T, "train"),
        "torch: FlopCounterMode, eager attention, forward and backward",
        ours=True,
    ),
    Convention(
        "training step",
        "causal-exact",
        "3 × the causal-exact forward pass.",
        lambda spec, B, T: matmul.total(spec, B, T, "train", "causal-exact"),
        ours=True,
    ),
    Convention(
        "training step",
        "T²/2, no router",
        "3 × a forward pass over half of all pairs, windows and router ignored.",
        lambda spec, B, T: _trained(spec, B, T, _half(spec, B, T, windowed=False) - _of(spec, B, T, "router")),
        f"{MEGATRON}, which for a latent adds 6 FLOPs for each weight of its norms",
    ),
    Convention(
        "training step",
        "6ND",
        "6 FLOPs for each active parameter and token, embeddings among them; no attention.",
        lambda spec, B, T: int(rule_flops(totals(spec)[1], B * T)),
        "Hoffmann et al. 2022, arXiv:2203.15556; our training compute",
    ),
    Convention(
        "training step",
        "6ND, non-embedding",
        "6 FLOPs for each active non-embedding parameter and token; no attention, no head.",
        lambda spec, B, T: int(rule_flops(_non_embedding(spec)[1], B * T)),
        f"{KAPLAN}: C ≈ 6NBS",
    ),
    Convention(
        "training step",
        "6ND, every expert",
        "6 FLOPs for each parameter and token, experts not routed to among them.",
        lambda spec, B, T: int(rule_flops(totals(spec)[0], B * T)),
        applies=_has_experts,
    ),
    Convention(
        "training step",
        "total_flos",
        "6 FLOPs for each parameter and token, with every expert but no input tables, and so no tied head.",
        lambda spec, B, T: int(rule_flops(_untabled(spec)[0], B * T)),
        "transformers: Trainer",
    ),
    Convention(
        "training step",
        "6N + 12LHQT",
        "6 FLOPs for each active parameter and token, and every query against every key, values as wide as keys.",
        lambda spec, B, T: (
            int(rule_flops(totals(spec)[1], B * T)) + _attention_term(spec, B, T, formulas.palm_attention)
        ),
        f"{PALM}; nanoGPT: estimate_mfu(), its N without the position table",
    ),
    Convention(
        "training step",
        "2ND",
        "2 FLOPs for each active parameter and token: a forward pass, mistaken for a training step.",
        lambda spec, B, T: int(formulas.rule_forward(B, T, totals(spec)[1])),
    ),
    Convention(
        "training step",
        "recomputed",
        "Each layer runs forward twice, as with activation checkpointing: the hardware FLOPs.",
        lambda spec, B, T: matmul.total(spec, B, T, "train") + _forward(spec, B, T) - _of(spec, B, T, "head"),
        f"{NARAYANAN}, equation 3",
    ),
    Convention(
        "training step",
        "lookup as product",
        "3 × a forward pass with the lookup as a product: embedding and head 12Vd per token, where ours are 6Vd.",
        lambda spec, B, T: _trained(spec, B, T, _looked_up(spec, B, T)),
        f"{HOFFMANN}, which adds the softmax",
    ),
    Convention(
        "training step",
        "width d/h",
        "Heads taken as d/h wide; no latent.",
        lambda spec, B, T: matmul.total(narrowed(spec), B, T, "train"),
        NO_HEAD_DIM,
        applies=_is_narrowed,
    ),
)


def compute(
    models: dict[str, Any], workloads: dict[str, Any], execution: Mapping[str, Rows] | None = None
) -> list[dict[str, Any]]:
    """Rows of the table: one row a model, quantity, workload (where it matters) and convention that applies."""
    rows = []
    for name, data in models.items():
        spec, executed = ModelSpec.from_json(data), Executed((execution or {}).get(name, []))
        fitting = {load: sizes for load, sizes in workloads.items() if sizes["context"] <= spec.context}
        for quantity, unit in QUANTITIES.items():
            counted = [c for c in CONVENTIONS if c.quantity == quantity and c.applies(spec)]
            for workload, sizes in {None: {}}.items() if quantity in UNSIZED else fitting.items():
                B, T = sizes.get("batch"), sizes.get("context")
                values = [c.value(spec, B or 0, T or 0) for c in counted]
                counts = Counts(spec, executed, workload, B or 0, T or 0)
                again = [recount(quantity, c.name, counts) for c in counted]
                rows += [
                    {
                        "model": name,
                        "quantity": quantity,
                        "workload": workload,
                        "batch": B,
                        "context": T,
                        "convention": c.name,
                        "ours": c.ours,
                        "value": value,
                        "unit": unit,
                        "ratio_to_ours": value / values[0],
                        "counts": c.counts,
                        "elsewhere": c.elsewhere or None,
                        "recounted": other,
                        "difference": None if other is None else value - other,
                        "met_by": NOTHING if other is None else DERIVED,
                    }
                    for c, value, other in zip(counted, values, again, strict=True)
                ]
    return rows
