"""Parameters of each model, one row a tensor kind, each held against the tensors of the executed model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transformer_ledger.formulas import parameters as formulas
from transformer_ledger.formulas.text import text
from transformer_ledger.ledger.counted import Executed, Rows
from transformer_ledger.model import Attention, Feedforward, FixedState, Layer, ModelSpec


@dataclass(frozen=True)
class Tensor:
    """`copies` equal tensors: numbers in each by `formula` of `arguments`; `k` experts of the leading E are in use."""

    component: str
    shape: tuple[int, ...]
    copies: int
    bias: bool
    formula: Callable[..., int]
    arguments: Mapping[str, int]
    k: int | None = None

    @property
    def parameters(self) -> int:
        """Numbers in all copies."""
        return self.copies * self.formula(**self.arguments)

    @property
    def active_parameters(self) -> int:
        """The same, without the experts that a token is not routed to."""
        used = self.arguments if self.k is None else {**self.arguments, "E": self.k}
        return self.copies * self.formula(**used)


_Part = tuple[str, tuple[int, ...], bool, Callable[..., int], dict[str, int]]


def _latent_attention(d: int, a: Attention) -> Iterator[_Part]:
    assert a.latent is not None
    h, r_q, r_kv, d_r, d_v = a.heads, a.latent.query_rank, a.latent.kv_rank, a.latent.rope_dim, a.latent.value_dim
    d_h = a.latent.nope_dim + d_r
    if own := a.indexer:
        at, heads, width = "attention.indexer", {"h_i": own.heads}, {"d_i": own.head_dim}
        yield (
            f"{at}.query",
            (own.heads * own.head_dim, r_q),
            False,
            formulas.index_query,
            {"r_q": r_q, **heads, **width},
        )
        yield f"{at}.key", (own.head_dim, d), False, formulas.index_key, {"d": d, **width}
        for bias in (False, True):  # a LayerNorm, whatever the model's other norms are
            yield f"{at}.key_norm", (own.head_dim,), bias, formulas.per_index_component, width
        yield f"{at}.shares", (own.heads, d), False, formulas.index_shares, {"d": d, **heads}
    if r_q:
        yield "attention.query_down", (r_q, d), False, formulas.query_down, {"d": d, "r_q": r_q}
        if a.query_bias:
            yield "attention.query_down", (r_q,), True, formulas.per_query_rank, {"r_q": r_q}
        yield "attention.query_down_norm", (r_q,), False, formulas.per_query_rank, {"r_q": r_q}
        yield "attention.query", (h * d_h, r_q), False, formulas.query_up, {"r_q": r_q, "h": h, "d_h": d_h}
    else:
        yield "attention.query", (h * d_h, d), False, formulas.query, {"d": d, "h": h, "d_h": d_h}
        if a.query_bias:
            yield "attention.query", (h * d_h,), True, formulas.per_query_component, {"h": h, "d_h": d_h}
    yield "attention.latent_down", (r_kv + d_r, d), False, formulas.latent_down, {"d": d, "r_kv": r_kv, "d_r": d_r}
    if a.key_bias:
        arguments = {"r_kv": r_kv, "d_r": d_r}
        yield "attention.latent_down", (r_kv + d_r,), True, formulas.per_latent_component, arguments
    yield "attention.latent_norm", (r_kv,), False, formulas.per_latent_rank, {"r_kv": r_kv}
    arguments = {"r_kv": r_kv, "h": h, "d_h": d_h, "d_r": d_r}
    yield "attention.key", (h * (d_h - d_r), r_kv), False, formulas.key_up, arguments
    yield "attention.value", (h * d_v, r_kv), False, formulas.value_up, {"r_kv": r_kv, "h": h, "d_v": d_v}
    yield "attention.output", (d, h * d_v), False, formulas.latent_output, {"h": h, "d_v": d_v, "d": d}


def sizes(own: FixedState) -> dict[str, int]:
    """A fixed state's sizes, by the symbols of the formulas."""
    return {"g_s": own.groups, "d_k": own.key_dim, "h_s": own.heads, "d_v": own.value_dim}


def _fixed_state(d: int, own: FixedState) -> Iterator[_Part]:
    h, n, c, values = own.heads, own.rates, own.channels, own.heads * own.value_dim
    output, heads = {"h_s": h, "d_v": own.value_dim}, {"h_s": h}
    yield "state.input", (c, d), False, formulas.state_input, {"d": d, **sizes(own)}
    if own.rule == "kda":
        channels = {"h_s": h, "d_k": own.key_dim}
        for name in ("gate", "steps"):
            yield f"state.{name}_down", (own.key_dim, d), False, formulas.state_narrow, {"d": d, "d_k": own.key_dim}
            yield f"state.{name}", (values, own.key_dim), False, formulas.state_wide, channels
        yield "state.step", (own.steps,), False, formulas.per_state_channel, channels
    else:
        yield "state.gate", (values, d), False, formulas.state_gate, {"d": d, **output}
        yield "state.step", (h,), False, formulas.per_state_head, heads
    yield "state.rates", (n * h, d), False, formulas.state_rates, {"d": d, **heads, "n": n}
    if own.bias:
        yield "state.input", (c,), True, formulas.per_channel, sizes(own)
        yield "state.gate", (values,), True, formulas.per_state_output, output
        yield "state.rates", (n * h,), True, formulas.per_state_rate, {**heads, "n": n}
    yield "state.convolution", (c, 1, own.kernel), False, formulas.state_convolution, {**sizes(own), "K": own.kernel}
    if own.convolution_bias:
        yield "state.convolution", (c,), True, formulas.per_channel, sizes(own)
    for name in ("decay", *(["skip"] if own.rule == "ssm" else [])):
        yield f"state.{name}", (h,), False, formulas.per_state_head, heads
    if own.rule != "ssm":
        yield "state.norm", (own.value_dim,), False, formulas.per_state_value, {"d_v": own.value_dim}
    elif own.normed:
        yield "state.norm", (values,), False, formulas.per_state_output, output
    yield "state.output", (d, values), False, formulas.state_gate, {"d": d, **output}
    if own.output_bias:
        yield "state.output", (d,), True, formulas.per_model_component, {"d": d}


def _mixers(d: int, layer: Layer) -> Iterator[_Part]:
    for mixer in layer.mixers:
        yield from _attention(d, mixer) if isinstance(mixer, Attention) else _fixed_state(d, mixer)


def _attention(d: int, a: Attention) -> Iterator[_Part]:
    h, h_kv, d_h = a.heads, a.kv_heads, a.head_dim
    queries, keys = {"h": h, "d_h": d_h}, {"h_kv": h_kv, "d_h": d_h}
    if a.latent:
        yield from _latent_attention(d, a)
    else:
        yield "attention.query", (h * d_h, d), False, formulas.query, {"d": d, **queries}
        if a.query_bias:
            yield "attention.query", (h * d_h,), True, formulas.per_query_component, queries
        if a.gated:
            yield "attention.gate", (h * d_h, d), False, formulas.query, {"d": d, **queries}
            if a.query_bias:
                yield "attention.gate", (h * d_h,), True, formulas.per_query_component, queries
        for name, bias in (("attention.key", a.key_bias), ("attention.value", a.value_bias)):
            yield name, (h_kv * d_h, d), False, formulas.key_or_value, {"d": d, **keys}
            if bias:
                yield name, (h_kv * d_h,), True, formulas.per_key_component, keys
        yield "attention.output", (d, h * d_h), False, formulas.output, {**queries, "d": d}
    if a.output_bias:
        yield "attention.output", (d,), True, formulas.per_model_component, {"d": d}
    if a.query_key_norm == "head":
        for name in ("attention.query_norm", "attention.key_norm"):
            yield name, (d_h,), False, formulas.per_head_component, {"d_h": d_h}
    elif a.query_key_norm == "full":
        yield "attention.query_norm", (h * d_h,), False, formulas.per_query_component, queries
        yield "attention.key_norm", (h_kv * d_h,), False, formulas.per_key_component, keys
    if a.sinks:
        yield "attention.sinks", (h,), False, formulas.sinks, {"h": h}


def _feedforward(d: int, ff: Feedforward) -> Iterator[_Part]:
    f, E, f_s = ff.width, ff.experts, ff.shared_width
    inward = ("up", "gate") if ff.kind == "gated" else ("up",)
    if ff.kind == "none":
        return
    lead, count = ((E,), {"E": E}) if E else ((), {})
    weight = formulas.experts if E else formulas.feedforward
    hidden_bias = formulas.per_expert_hidden_component if E else formulas.per_hidden_component
    model_bias = formulas.per_expert_model_component if E else formulas.per_model_component
    for name in inward:
        yield f"feedforward.{name}", (*lead, f, d), False, weight, {**count, "d": d, "f": f}
        if ff.bias:
            yield f"feedforward.{name}", (*lead, f), True, hidden_bias, {**count, "f": f}
    yield "feedforward.down", (*lead, d, f), False, weight, {**count, "d": d, "f": f}
    if ff.bias:
        yield "feedforward.down", (*lead, d), True, model_bias, {**count, "d": d}
    if E:
        yield "router", (E, d), False, formulas.router, {"d": d, "E": E}
        if ff.router_bias:
            yield "router", (E,), True, formulas.per_expert, {"E": E}
    if f_s:
        for name in inward:
            yield f"shared_feedforward.{name}", (f_s, d), False, formulas.shared_feedforward, {"d": d, "f_s": f_s}
        yield "shared_feedforward.down", (d, f_s), False, formulas.shared_feedforward, {"d": d, "f_s": f_s}
    if ff.shared_gate:
        yield "shared_gate", (1, d), False, formulas.per_model_component, {"d": d}


def _norms(d: int, name: str, spec: ModelSpec) -> Iterator[_Part]:
    yield name, (d,), False, formulas.per_model_component, {"d": d}
    if spec.norm_bias:
        yield name, (d,), True, formulas.per_model_component, {"d": d}


def tensors(spec: ModelSpec) -> list[Tensor]:
    """Every tensor kind of the model once, with its copies; a tied head has no tensor of its own."""
    d, V, C = spec.d_model, spec.vocabulary, spec.position_rows
    d_e = spec.embedding_width or d
    found: list[tuple[_Part, int, int | None]] = [
        (("token_embedding", (V, d_e), False, formulas.token_embedding, {"V": V, "d": d_e}), 1, None)
    ]

    def add(parts: Iterator[_Part], copies: int, layer: Layer | None = None) -> None:
        for part in parts:
            routed = layer and layer.feedforward.experts and part[0].startswith("feedforward.")
            found.append((part, copies, layer.feedforward.experts_per_token if layer and routed else None))

    if spec.positions == "learned":
        arguments = {"C": C, "d": d}
        add(iter([("position_embedding", (C, d), False, formulas.position_embedding, arguments)]), 1)
    if spec.embedding_norm:
        add(_norms(d, "embedding_norm", spec), 1)
    if spec.embedding_width not in (0, d):
        arguments = {"d_e": d_e, "d": d}
        add(iter([("embedding_projection", (d, d_e), False, formulas.embedding_projection, arguments)]), 1)
        add(iter([("head_projection", (d_e, d), False, formulas.embedding_projection, arguments)]), 1)
    for count, layer in spec.kinds():
        add(_mixers(d, layer), count)
        add(_feedforward(d, layer.feedforward), count, layer)
        add(_norms(d, "norm", spec), count * layer.norms)
    if spec.final_norm:
        add(_norms(d, "norm", spec), 1)
    if spec.head_width and not spec.tied_head:
        arguments = {"V": spec.head_width, "d": d_e}
        add(iter([("head", (spec.head_width, d_e), False, formulas.token_embedding, arguments)]), 1)
    if spec.head_bias:
        add(iter([("head", (V,), True, formulas.per_token_of_vocabulary, {"V": V})]), 1)

    merged: dict[Any, Tensor] = {}
    for (component, shape, bias, formula, arguments), copies, k in found:
        key = (component, bias, shape, k)
        copies += merged[key].copies if key in merged else 0
        merged[key] = Tensor(component, shape, copies, bias, formula, arguments, k)
    return list(merged.values())


def totals(spec: ModelSpec) -> tuple[int, int]:
    """Parameters, and the active ones: all but those of the experts that a token is not routed to."""
    every = tensors(spec)
    return sum(t.parameters for t in every), sum(t.active_parameters for t in every)


def tensor_count(spec: ModelSpec) -> int:
    """Number of tensors, as an optimiser sees them: the experts of a layer are one tensor a projection."""
    return sum(t.copies for t in tensors(spec))


def joined(parts: list[tuple[int, str]]) -> str:
    """One text for a row that layers of several kinds share: `3 × (…) + 58 × (…)`; the bare text where there is one."""
    return parts[0][1] if len(parts) == 1 else " + ".join(f"{count} × ({part})" for count, part in parts)


def compute(models: dict[str, Any], execution: Mapping[str, Rows] | None = None) -> list[dict[str, Any]]:
    """Rows of the ledger: one row a component, its weights and biases apart, in all layers together.

    Where layers differ (dense before experts), shape and formula name each kind with its number of tensors.
    """
    rows = []
    for name, data in models.items():
        executed = Executed((execution or {}).get(name, []))
        grouped: dict[tuple[str, bool], list[Tensor]] = {}
        for tensor in tensors(ModelSpec.from_json(data)):
            grouped.setdefault((tensor.component, tensor.bias), []).append(tensor)
        for (component, bias), kinds in grouped.items():
            parameters = sum(t.parameters for t in kinds)
            active, part = sum(t.active_parameters for t in kinds), "bias" if bias else "weight"
            met = executed.met(parameters, "parameters", component=component, part=part)
            used = executed.met(active, "active_parameters", component=component, part=part)
            rows.append(
                {
                    "model": name,
                    "component": component,
                    "shape": joined([(t.copies, " × ".join(map(str, t.shape))) for t in kinds]),
                    "copies": sum(t.copies for t in kinds),
                    "bias": bias,
                    "formula": joined([(t.copies, text(t.formula)) for t in kinds]),
                    "parameters": parameters,
                    "active_parameters": active,
                    "executed": met["executed"],
                    "difference": met["difference"],
                    "active_difference": used["difference"],
                    "shape_difference": parameters - sum(math.prod(t.shape) * t.copies for t in kinds),
                    "met_by": met["met_by"],
                }
            )
    return rows
