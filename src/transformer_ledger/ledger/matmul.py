"""FLOPs of the matrix products of each model, workload and phase, one row a component, each held against what ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from transformer_ledger.formulas import matmul as formulas
from transformer_ledger.formulas.text import text
from transformer_ledger.ledger.counted import Executed, Rows
from transformer_ledger.ledger.parameters import joined, sizes
from transformer_ledger.model import Attention, Feedforward, FixedState, Layer, ModelSpec

CONVENTIONS = {
    "prefill": ("full", "causal-exact"),
    "decode": ("full", "absorbed"),
    "train": ("full", "causal-exact"),
}
"""A decoded token sees its whole past, so causal-exact is full there; `absorbed` is for latent attention alone."""

RAN = {
    ("prefill", "full"): "prefill",
    ("decode", "full"): "decode",
    ("decode", "absorbed"): "decode_absorbed",
    ("train", "full"): "train",
}
"""Phase of the execution table that ran what a convention counts; no dense kernel runs causal-exact."""


@dataclass(frozen=True)
class Product:
    """One matrix product of `copies` layers: forward FLOPs of a layer by `formula` of `arguments`."""

    component: str
    copies: int
    formula: Callable[..., int]
    arguments: Mapping[str, int]

    @property
    def flops(self) -> int:
        """Forward FLOPs in all layers."""
        return self.copies * self.formula(**self.arguments)

    @property
    def forward_only(self) -> bool:
        """Whether a training step runs it forward alone: no gradient passes through an indexer's choice."""
        return self.component.startswith(INDEXER)

    @property
    def training_flops(self) -> int:
        """FLOPs of a training step in all layers."""
        return self.flops if self.forward_only else formulas.training(self.flops)


_Part = tuple[str, Callable[..., int], dict[str, int]]
INDEXER = "attention.indexer."


def _pairs(a: Attention, d_h: int, d_v: int, B: int, T: int, S: int, phase: str, convention: str) -> Iterator[_Part]:
    """Scores and weighted values."""
    key, value, w = {"h": a.heads, "d_h": d_h}, {"h": a.heads, "d_v": d_v}, a.window
    if phase == "decode":
        sizes = {"B": B, "T": T, "S": S}
        if w is None:
            yield "attention.scores", formulas.scores, {**sizes, **key}
            yield "attention.values", formulas.values, {**sizes, **value}
        else:  # the cache has let go of the positions that the window has left
            yield "attention.scores", formulas.scores_windowed, {**sizes, "w": w, **key}
            yield "attention.values", formulas.values_windowed, {**sizes, "w": w, **value}
    elif convention == "full":
        yield "attention.scores", formulas.scores, {"B": B, "T": T, "S": S, **key}
        yield "attention.values", formulas.values, {"B": B, "T": T, "S": S, **value}
    elif (w := a.reach) is None:
        yield "attention.scores", formulas.scores_causal, {"B": B, "T": T, **key}
        yield "attention.values", formulas.values_causal, {"B": B, "T": T, **value}
    elif a.chunked:
        yield "attention.scores", formulas.scores_causal_chunked, {"B": B, "T": T, "w": w, **key}
        yield "attention.values", formulas.values_causal_chunked, {"B": B, "T": T, "w": w, **value}
    else:
        yield "attention.scores", formulas.scores_causal_windowed, {"B": B, "T": T, "w": w, **key}
        yield "attention.values", formulas.values_causal_windowed, {"B": B, "T": T, "w": w, **value}


def _indexer(d: int, a: Attention, B: int, T: int, S: int, convention: str) -> Iterator[_Part]:
    assert a.latent
    assert a.indexer
    new, heads, width = {"B": B, "T": T}, {"h_i": a.indexer.heads}, {"d_i": a.indexer.head_dim}
    yield f"{INDEXER}query", formulas.index_query, {**new, "r_q": a.latent.query_rank, **heads, **width}
    yield f"{INDEXER}key", formulas.index_key, {**new, "d": d, **width}
    yield f"{INDEXER}shares", formulas.index_shares, {**new, "d": d, **heads}
    if convention == "causal-exact":
        yield f"{INDEXER}scores", formulas.index_scores_causal, {**new, **heads, **width}
        yield f"{INDEXER}sum", formulas.index_sum_causal, {**new, **heads}
    else:
        yield f"{INDEXER}scores", formulas.index_scores, {**new, "S": S, **heads, **width}
        yield f"{INDEXER}sum", formulas.index_sum, {**new, "S": S, **heads}


def _latent_attention(d: int, a: Attention, B: int, T: int, S: int, phase: str, convention: str) -> Iterator[_Part]:
    assert a.latent is not None
    h, r_q, r_kv, d_r, d_v = a.heads, a.latent.query_rank, a.latent.kv_rank, a.latent.rope_dim, a.latent.value_dim
    d_h, new, latent = a.latent.nope_dim + d_r, {"B": B, "T": T}, {"r_kv": r_kv, "h": h}
    if r_q:
        yield "attention.query_down", formulas.query_down, {**new, "d": d, "r_q": r_q}
        yield "attention.query", formulas.query_up, {**new, "r_q": r_q, "h": h, "d_h": d_h}
    else:
        yield "attention.query", formulas.query, {**new, "d": d, "h": h, "d_h": d_h}
    yield "attention.latent_down", formulas.latent_down, {**new, "d": d, "r_kv": r_kv, "d_r": d_r}
    if a.indexer:
        yield from _indexer(d, a, B, T, S, convention)
    if convention == "absorbed":
        yield "attention.key", formulas.key_absorbed, {**new, **latent, "d_h": d_h, "d_r": d_r}
        scores, values, seen = formulas.scores_absorbed, formulas.values_absorbed, {**new, "S": S}
        if a.indexer:
            scores, values, seen = formulas.scores_chosen, formulas.values_chosen, {**seen, "k_i": a.indexer.chosen}
        yield "attention.scores", scores, {**seen, **latent, "d_r": d_r}
        yield "attention.values", values, {**seen, **latent}
        yield "attention.value", formulas.value_absorbed, {**new, **latent, "d_v": d_v}
    else:
        yield "attention.key", formulas.key_up, {"B": B, "S": S, **latent, "d_h": d_h, "d_r": d_r}
        yield "attention.value", formulas.value_up, {"B": B, "S": S, **latent, "d_v": d_v}
        yield from _pairs(a, d_h, d_v, B, T, S, phase, convention)
    yield "attention.output", formulas.latent_output, {**new, "h": h, "d_v": d_v, "d": d}


def _attention(d: int, a: Attention, B: int, T: int, S: int, phase: str, convention: str) -> Iterator[_Part]:
    if a.latent:
        yield from _latent_attention(d, a, B, T, S, phase, convention)
        return
    h, h_kv, d_h = a.heads, a.kv_heads, a.head_dim
    for name in ("query", *(["gate"] if a.gated else [])):
        yield f"attention.{name}", formulas.query, {"B": B, "T": T, "d": d, "h": h, "d_h": d_h}
    yield "attention.key", formulas.key_or_value, {"B": B, "T": T, "d": d, "h_kv": h_kv, "d_h": d_h}
    yield "attention.value", formulas.key_or_value, {"B": B, "T": T, "d": d, "h_kv": h_kv, "d_h": d_h}
    yield from _pairs(a, d_h, d_h, B, T, S, phase, convention)
    yield "attention.output", formulas.output, {"B": B, "T": T, "h": h, "d_h": d_h, "d": d}


def _fixed_state(d: int, own: FixedState, B: int, T: int) -> Iterator[_Part]:
    new, output = {"B": B, "T": T}, {"h_s": own.heads, "d_v": own.value_dim}
    yield "state.input", formulas.state_input, {**new, "d": d, **sizes(own)}
    if own.rule == "kda":
        for name in ("gate", "steps"):
            yield f"state.{name}_down", formulas.state_narrow, {**new, "d": d, "d_k": own.key_dim}
            yield f"state.{name}", formulas.state_wide, {**new, "h_s": own.heads, "d_k": own.key_dim}
    else:
        yield "state.gate", formulas.state_gate, {**new, "d": d, **output}
    yield "state.rates", formulas.state_rates, {**new, "d": d, "h_s": own.heads, "n": own.rates}
    yield "state.convolution", formulas.state_convolution, {**new, **sizes(own), "K": own.kernel}
    for name in (*(["recall"] if own.rule != "ssm" else []), "write", "read"):
        yield f"state.{name}", formulas.state_product, {**new, "d_k": own.key_dim, **output}
    yield "state.output", formulas.state_gate, {**new, "d": d, **output}


def _mixers(d: int, layer: Layer, B: int, T: int, S: int, phase: str, convention: str) -> Iterator[_Part]:
    for mixer in layer.mixers:
        if isinstance(mixer, Attention):
            yield from _attention(d, mixer, B, T, S, phase, convention)
        else:
            yield from _fixed_state(d, mixer, B, T)


def _feedforward(d: int, ff: Feedforward, B: int, T: int) -> Iterator[_Part]:
    if ff.kind == "none":
        return
    inward = ("up", "gate") if ff.kind == "gated" else ("up",)
    new = {"B": B, "T": T}
    if ff.experts:
        yield "router", formulas.router, {**new, "d": d, "E": ff.experts}
    for name in (*inward, "down"):
        if ff.experts:
            arguments = {**new, "k": ff.experts_per_token, "d": d, "f": ff.width}
            yield f"feedforward.{name}", formulas.experts, arguments
        else:
            yield f"feedforward.{name}", formulas.feedforward, {**new, "d": d, "f": ff.width}
    if ff.shared_width:
        for name in (*inward, "down"):
            yield f"shared_feedforward.{name}", formulas.shared_feedforward, {**new, "d": d, "f_s": ff.shared_width}
    if ff.shared_gate:
        yield "shared_gate", formulas.shared_gate, {**new, "d": d}


def products(spec: ModelSpec, B: int, T: int, S: int, phase: str, convention: str = "full") -> list[Product]:
    """Forward matrix products of B sequences of T new tokens, the newest of which attends to S keys.

    prefill and train want T = S; decode runs T = 1 against a cache of S − 1 positions. `train` gives the forward pass
    as well: its FLOPs are 3 times these, but for an indexer's.
    """
    d, d_e = spec.d_model, spec.embedding_width or spec.d_model
    projection = {"B": B, "T": T, "d_e": d_e, "d": d}
    found: list[tuple[_Part, int]] = []
    if spec.embedding_width not in (0, d):
        found.append((("embedding_projection", formulas.embedding_projection, projection), 1))
    for count, layer in spec.kinds():
        found += [(part, count) for part in _mixers(d, layer, B, T, S, phase, convention)]
        found += [(part, count) for part in _feedforward(d, layer.feedforward, B, T)]
    if spec.embedding_width not in (0, d):
        found.append((("head_projection", formulas.embedding_projection, projection), 1))
    if spec.head_width:
        found.append((("head", formulas.head, {"B": B, "T": T, "V": spec.head_width, "d": d_e}), 1))

    merged: dict[Any, Product] = {}
    for (component, formula, arguments), copies in found:
        key = (component, formula, tuple(arguments.items()))
        copies += merged[key].copies if key in merged else 0
        merged[key] = Product(component, copies, formula, arguments)
    return list(merged.values())


def total(spec: ModelSpec, B: int, S: int, phase: str, convention: str = "full") -> int:
    """FLOPs of a whole phase: the sum of its rows."""
    run = products(spec, B, 1 if phase == "decode" else S, S, phase, convention)
    return sum(p.training_flops if phase == "train" else p.flops for p in run)


def visible_pairs(T: int, a: Attention) -> int:
    """Query-key pairs that a causal mask and a window, chunks or a choice leave in a sequence, counted query by query."""
    w = a.reach or T
    return sum(len(range(t - t % w if a.chunked else max(0, t + 1 - w), t + 1)) for t in range(T))


def masked(spec: ModelSpec, component: str, T: int, full: int) -> int:
    """FLOPs of a component where only visible pairs count, from its full count: scores and values shrink."""
    every, left = 0, 0
    for count, a in spec.attentions():
        numbers = _compared(component, a)
        every += count * numbers * T * T
        # An indexer scores whatever the mask alone leaves.
        left += count * numbers * visible_pairs(T, replace(a, latent=None) if INDEXER in component else a)
    return full * left // every if every else full


def _compared(component: str, a: Attention) -> int:
    """Multiply-adds of one query-key pair in a component of an attention; 0 where it works on tokens."""
    d_k, d_v = (a.latent.nope_dim + a.latent.rope_dim, a.latent.value_dim) if a.latent else (a.head_dim, a.head_dim)
    found = {"attention.scores": a.heads * d_k, "attention.values": a.heads * d_v}
    if a.indexer:
        found |= {f"{INDEXER}scores": a.indexer.heads * a.indexer.head_dim, f"{INDEXER}sum": a.indexer.heads}
    return found.get(component, 0)


def has_latent(spec: ModelSpec) -> bool:
    """Whether a layer caches a latent."""
    return any(a.latent for _, a in spec.attentions())


def compute(
    models: dict[str, Any], workloads: dict[str, Any], execution: Mapping[str, Rows] | None = None
) -> list[dict[str, Any]]:
    """Rows of the ledger; rows of one model, workload, phase and convention add up to its total.

    causal-exact is not what a dense model runs: its rows are derived again, from the executed full products and the
    pairs that a mask leaves, counted query by query.
    """
    rows = []
    for name, data in models.items():
        spec = ModelSpec.from_json(data)
        executed = Executed((execution or {}).get(name, []))
        for workload, load in workloads.items():
            B, S = load["batch"], load["context"]
            if spec.context < S:
                continue
            for phase, conventions in CONVENTIONS.items():
                T = 1 if phase == "decode" else S
                for convention in conventions:
                    if convention == "absorbed" and not has_latent(spec):
                        continue
                    grouped: dict[str, list[Product]] = {}
                    for product in products(spec, B, T, S, phase, convention):
                        grouped.setdefault(product.component, []).append(product)
                    for component, kinds in grouped.items():
                        forward = sum(p.flops for p in kinds)
                        formula = joined([(p.copies, text(p.formula)) for p in kinds])
                        if phase == "train" and not kinds[0].forward_only:
                            forward = sum(p.training_flops for p in kinds)
                            formula = joined([(p.copies, text(formulas.training, F=p.formula)) for p in kinds])
                        key = "flops", workload, RAN.get((phase, convention), ""), component
                        derived = None
                        if convention == "causal-exact":
                            full = executed.count("flops", workload, RAN[phase, "full"], component)
                            derived = full and masked(spec, component, S, full)
                        met = executed.met(forward, *key, derived=derived)
                        multiply_adds = formulas.multiply_adds(forward)
                        other = None if met["difference"] is None else forward - met["difference"]
                        rows.append(
                            {
                                "model": name,
                                "workload": workload,
                                "batch": B,
                                "tokens": T,
                                "context": S,
                                "phase": phase,
                                "component": component,
                                "formula": formula,
                                "convention": convention,
                                "multiply_adds": multiply_adds,
                                "flops": forward,
                                "executed_flops": met["executed"],
                                "derived_flops": derived,
                                "difference": met["difference"],
                                # torch's counter takes a multiply-add for 2
                                "multiply_adds_difference": None if other is None else multiply_adds - other // 2,
                                "met_by": met["met_by"],
                            }
                        )
    return rows
