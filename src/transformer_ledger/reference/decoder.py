"""The reference decoder in NumPy: small enough to be read, one function for every arithmetic.

Shapes: T tokens, V vocabulary, d model width, h query and h_kv key/value heads of width d_h, f feed-forward width.
Leading axes (a batch) pass through.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from transformer_ledger.model import Attention, Feedforward, FixedState, Layer, ModelSpec
from transformer_ledger.reference import rope, state
from transformer_ledger.reference.arithmetic import Array

Weights = Mapping[str, Array]


def shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor, in the order of the forward pass.

    A matrix is (inputs, outputs), one for each of E experts (E, inputs, outputs), and their biases are (E, 1, outputs).
    """
    d, d_e = spec.d_model, spec.embedding_width or spec.d_model
    out: dict[str, tuple[int, ...]] = {"token_embedding": (spec.vocabulary, d_e)}

    def linear(name: str, inputs: int, outputs: int, bias: bool, *experts: int) -> None:
        out[name] = (*experts, inputs, outputs)
        if bias:
            out[f"{name}.bias"] = (*experts, 1, outputs) if experts else (outputs,)

    def norm(name: str) -> None:
        out[name] = (d,)
        if spec.norm_bias:
            out[f"{name}.bias"] = (d,)

    if spec.positions == "learned":
        out["position_embedding"] = (spec.position_rows, d)
    if d_e != d:
        linear("embedding_projection", d_e, d, False)
    if spec.embedding_norm:
        norm("embedding_norm")
    for index, layer in enumerate(spec.each_layer()):
        feed, at = layer.feedforward, f"layers.{index}"
        norm(f"{at}.norm.0")
        if layer.state:
            _state_shapes(f"{at}.state", d, layer.state, out, linear)
        if isinstance(layer.mixer, Attention):
            _attention_shapes(f"{at}.attention", d, layer.mixer, out, linear)
        for number in range(1, layer.norms):
            norm(f"{at}.norm.{number}")
        if feed.kind == "none":
            continue
        experts = (feed.experts,) if feed.experts else ()
        if experts:
            linear(f"{at}.router", d, feed.experts, feed.router_bias)
        if feed.shared_gate:
            linear(f"{at}.shared_gate", d, 1, False)
        shared = ("shared_feedforward", feed.shared_width, False, ())
        for name, width, bias, lead in [("feedforward", feed.width, feed.bias, experts), *([shared] * bool(shared[1]))]:
            if feed.kind == "gated":
                linear(f"{at}.{name}.gate", d, width, bias, *lead)
            linear(f"{at}.{name}.up", d, width, bias, *lead)
            linear(f"{at}.{name}.down", width, d, bias, *lead)
    if spec.final_norm:
        norm("norm")
    if d_e != d:
        linear("head_projection", d, d_e, False)
    if not spec.tied_head:
        linear("head", d_e, spec.vocabulary, spec.head_bias)
    return out


def _state_shapes(
    at: str, d: int, own: FixedState, out: dict[str, tuple[int, ...]], linear: Callable[..., None]
) -> None:
    values, channelwise = own.heads * own.value_dim, own.rule == "kda"
    for name in ("gate", "steps") if channelwise else ():
        linear(f"{at}.{name}_down", d, own.key_dim, False)
        linear(f"{at}.{name}", own.key_dim, values, False)
    for name, width in (("input", own.channels), ("gate", values), ("rates", own.rates * own.heads)):
        if name != "gate" or not channelwise:
            linear(f"{at}.{name}", d, width, own.bias)
    out[f"{at}.convolution"] = (own.channels, own.kernel, 1)
    if own.convolution_bias:
        out[f"{at}.convolution.bias"] = (own.channels,)
    out |= {f"{at}.decay": (own.heads,), f"{at}.step": (own.steps,)}
    if own.rule == "ssm":
        out[f"{at}.skip"] = (own.heads,)
    if own.normed:
        out[f"{at}.norm"] = (values if own.rule == "ssm" else own.value_dim,)
    linear(f"{at}.output", values, d, own.output_bias)


def _attention_shapes(
    at: str, d: int, own: Attention, out: dict[str, tuple[int, ...]], linear: Callable[..., None]
) -> None:
    heads, kv, latent = own.heads * own.head_dim, own.kv_heads * own.head_dim, own.latent
    if latent:
        if latent.query_rank:
            linear(f"{at}.query_down", d, latent.query_rank, own.query_bias)
            out[f"{at}.query_down_norm"] = (latent.query_rank,)
        width = own.heads * (latent.nope_dim + latent.rope_dim)
        linear(f"{at}.query", latent.query_rank or d, width, own.query_bias and not latent.query_rank)
        if own.indexer:
            linear(f"{at}.indexer.query", latent.query_rank, own.indexer.heads * own.indexer.head_dim, False)
            linear(f"{at}.indexer.key", d, own.indexer.head_dim, False)
            out |= {f"{at}.indexer.key_norm{part}": (own.indexer.head_dim,) for part in ("", ".bias")}
            linear(f"{at}.indexer.shares", d, own.indexer.heads, False)
        linear(f"{at}.latent_down", d, latent.kv_rank + latent.rope_dim, own.key_bias)
        out[f"{at}.latent_norm"] = (latent.kv_rank,)
        linear(f"{at}.key", latent.kv_rank, own.heads * latent.nope_dim, False)
        linear(f"{at}.value", latent.kv_rank, own.heads * latent.value_dim, False)
    else:
        for name in ("query", *(["gate"] if own.gated else [])):
            linear(f"{at}.{name}", d, heads, own.query_bias)
        linear(f"{at}.key", d, kv, own.key_bias)
        linear(f"{at}.value", d, kv, own.value_bias)
    if own.query_key_norm != "none":
        full = own.query_key_norm == "full"
        out[f"{at}.query_norm"], out[f"{at}.key_norm"] = ((heads,), (kv,)) if full else ((own.head_dim,),) * 2
    if own.sinks:
        out[f"{at}.sinks"] = (own.heads,)
    linear(f"{at}.output", own.heads * latent.value_dim if latent else heads, d, own.output_bias)


def initial(spec: ModelSpec, seed: int) -> dict[str, Array]:
    """Untrained weights, drawn tensor by tensor from one generator, float64.

    Matrices are normal with variance 1/inputs, tables normal with variance 1, gains 1, biases 0.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    weights: dict[str, Array] = {}
    for name, shape in shapes(spec).items():
        if name.endswith("bias"):
            weights[name] = np.zeros(shape)
        elif len(shape) == 1:
            weights[name] = np.ones(shape)
        else:
            scale = 1.0 if name.endswith("embedding") else shape[-2] ** -0.5
            weights[name] = scale * generator.standard_normal(shape)
    return weights


def linear(x: Array, weights: Weights, name: str, run: Any) -> Array:
    """x·W, plus the bias where there is one."""
    out = run.matmul(x, weights[name])
    bias = weights.get(f"{name}.bias")
    return out if bias is None else out + bias


def visibility(tokens: int, causal: bool, own: Attention | None = None) -> Any:
    """(T, T), true where the query of a row may read the key of a column."""
    query, key = np.arange(tokens)[:, None], np.arange(tokens)
    window = (own and own.window) or tokens
    near = query // window == key // window if own and own.chunked else query - key < window
    return ((query >= key) | (not causal)) & near


def values_of(x: Array) -> Any:
    """The numbers of an array, without the bounds that an arithmetic carries with them."""
    return getattr(x, "value", x)


def heads_of(x: Array, heads: int) -> Array:
    """(…, T, heads·d_h) → (…, heads, T, d_h): head i owns the i-th run of d_h components."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).swapaxes(-2, -3)


def attention(
    x: Array, weights: Weights, own: Attention, visible: Any, turn: Any, run: Any, epsilon: float = 0.0
) -> tuple[Array, Array]:
    """Softmax attention on x (…, T, d): the concatenated heads (…, T, h·d_v) and the patterns (…, h, T, T).

    `weights` holds query, key, value and what else the model has (latents, norms, with `epsilon`, sinks); query head i
    reads key/value head ⌊i·h_kv/h⌋; `turn` rotates (…, T, d_h).
    """
    heads = _latent_heads if own.latent else _heads
    q, k, v = heads(x, weights, own, turn, run, epsilon)  # (…, h, T, d_h), …, (…, h, T, d_v)
    if own.indexer:
        visible = visible & _chosen(x, weights, own, visible, turn, run, epsilon)
    scale = run.array(1 / math.sqrt(q.shape[-1]))
    scores = run.matmul(q, k.swapaxes(-1, -2)) * scale
    if own.sinks:  # a key that every query sees and that has no value
        column = np.broadcast_to(np.arange(own.heads)[:, None, None], (*scores.shape[:-1], 1))
        visible = np.concatenate([np.broadcast_to(visible, scores.shape), np.ones(column.shape, bool)], -1)
        scores = run.join([scores, weights["sinks"][column]])
    pattern = run.softmax(scores, visible)[..., : k.shape[-2]]  # (…, h, T, T)
    joined = run.matmul(pattern, v).swapaxes(-2, -3)  # (…, T, h, d_v)
    joined = joined.reshape(*x.shape[:-1], own.heads * v.shape[-1])
    return joined * run.sigmoid(linear(x, weights, "gate", run)) if own.gated else joined, pattern


def _heads(
    x: Array, weights: Weights, own: Attention, turn: Any, run: Any, epsilon: float
) -> tuple[Array, Array, Array]:
    """Queries, keys and values of every query head."""

    def normed(name: str, heads: int) -> Array:
        projected = linear(x, weights, name, run)
        if own.query_key_norm == "none":
            return heads_of(projected, heads)
        full, gain = own.query_key_norm == "full", weights[f"{name}_norm"]
        projected = run.norm("rmsnorm", projected if full else heads_of(projected, heads), gain, None, epsilon)
        return heads_of(projected, heads) if full else projected

    q = turn(normed("query", own.heads))  # (…, h, T, d_h)
    k = turn(normed("key", own.kv_heads))  # (…, h_kv, T, d_h)
    v = heads_of(linear(x, weights, "value", run), own.kv_heads)
    if own.kv_heads != own.heads:
        group = np.arange(own.heads) * own.kv_heads // own.heads
        k, v = k[..., group, :, :], v[..., group, :, :]  # (…, h, T, d_h)
    return q, k, v


def _narrow(x: Array, weights: Weights, run: Any, epsilon: float) -> Array:
    """The query's latent (…, T, r_q)."""
    return run.norm("rmsnorm", linear(x, weights, "query_down", run), weights["query_down_norm"], None, epsilon)


def _chosen(x: Array, weights: Weights, own: Attention, visible: Any, turn: Any, run: Any, epsilon: float) -> Any:
    """(…, 1, T, T), true where an indexer lets the query of a row read the key of a column (DeepSeek-V3.2)."""
    assert own.latent
    assert own.indexer
    mine, rotated = under(weights, "indexer."), own.latent.rope_dim

    def turned(x: Array) -> Array:  # the first components of each head
        return run.join([turn(x[..., :rotated]), x[..., rotated:]])

    q = turned(heads_of(linear(_narrow(x, weights, run, epsilon), mine, "query", run), own.indexer.heads))
    k = run.norm("layernorm", linear(x, mine, "key", run), mine["key_norm"], mine["key_norm.bias"], epsilon)
    scores = run.matmul(q, turned(heads_of(k, 1)).swapaxes(-1, -2))  # (…, h_i, T, T)
    scores = scores * run.array(values_of(scores) > 0)
    shares = linear(x, mine, "shares", run)[..., None, :]  # (…, T, 1, h_i)
    found = values_of(run.matmul(shares, scores.swapaxes(-2, -3))[..., 0, :])  # (…, T, T)
    ranks = np.argsort(np.argsort(-np.where(visible, found, -np.inf), -1, "stable"), -1)
    return (ranks < own.indexer.chosen)[..., None, :, :]


def _latent_heads(
    x: Array, weights: Weights, own: Attention, turn: Any, run: Any, epsilon: float
) -> tuple[Array, Array, Array]:
    """The same out of latents (DeepSeek-V2, arXiv:2405.04434, section 2.1): one rotated key serves all heads."""
    assert own.latent is not None
    nope, rank = own.latent.nope_dim, own.latent.kv_rank

    def normed(x: Array, name: str) -> Array:  # RMSNorm, whatever the model's other norms are
        return run.norm("rmsnorm", x, weights[name], None, epsilon)

    narrow = _narrow(x, weights, run, epsilon) if own.latent.query_rank else x
    q = heads_of(linear(narrow, weights, "query", run), own.heads)  # (…, h, T, d_n + d_r)
    q = run.join([q[..., :nope], turn(q[..., nope:])])
    down = linear(x, weights, "latent_down", run)  # (…, T, r_kv + d_r)
    latent = normed(down[..., :rank], "latent_norm")
    shared = turn(heads_of(down[..., rank:], 1))[..., np.zeros(own.heads, int), :, :]  # (…, h, T, d_r)
    k = run.join([heads_of(linear(latent, weights, "key", run), own.heads), shared])
    return q, k, heads_of(linear(latent, weights, "value", run), own.heads)


def feedforward(x: Array, weights: Weights, own: Feedforward, run: Any) -> Array:
    """`gelu`: down(GELU(up(x))); `gated`: down(SiLU(gate(x)) ⊙ up(x))."""
    up = linear(x, weights, "up", run)
    hidden = run.silu(linear(x, weights, "gate", run)) * up if own.kind == "gated" else run.gelu(up)
    return linear(hidden, weights, "down", run)


def mixture(x: Array, weights: Weights, own: Feedforward, run: Any) -> Array:
    """The layer's feed-forward on x (…, T, d): dense, or every expert weighed by the softmax over the k highest scores.

    `weights` holds feedforward and, with experts, router, shared_feedforward and shared_gate.
    """
    if not own.experts:
        return feedforward(x, under(weights, "feedforward."), own, run)
    scores = linear(x, weights, "router", run)  # (…, T, E)
    routed = np.argsort(np.argsort(-values_of(scores), -1), -1) < own.experts_per_token
    shares = run.softmax(scores, routed)  # (…, T, E), 0 for the experts not routed to
    every = feedforward(x[..., None, :, :], under(weights, "feedforward."), own, run)  # (…, E, T, d)
    out = run.matmul(shares[..., None, :], every.swapaxes(-2, -3))[..., 0, :]
    if own.shared_width:
        shared = feedforward(x, under(weights, "shared_feedforward."), own, run)
        out = out + (shared * run.sigmoid(linear(x, weights, "shared_gate", run)) if own.shared_gate else shared)
    return out


def rotation(spec: ModelSpec, head_dim: int, positions: Any, pairing: str, run: Any) -> Callable[[Array], Array]:
    """What turns queries and keys (…, T, d_h) at `positions` (T,); the identity without rotary positions."""
    if spec.positions != "rope":
        return lambda x: x
    cos, sin = run.turns(positions, head_dim, spec.rope_base)  # (T, d_h/2)
    return lambda x: rope.rotate(x, cos, sin, pairing, run.join)


def under(weights: Weights, prefix: str) -> dict[str, Array]:
    """The weights whose names begin with `prefix`, named by the rest."""
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}


def attention_layers(spec: ModelSpec, weights: Weights, ids: Any, run: Any, causal: bool, positions: Any) -> Array:
    """Last hidden states (…, T, d) of the attention layers with their residuals alone, weights in the arithmetic.

    Norms and feed-forward act on each position by itself: they add nothing where positions are compared, and lengthen
    the fractions of an exact run.
    """
    x = weights["token_embedding"][ids]
    for index, layer in enumerate(spec.each_layer()):
        mine, own = under(weights, f"layers.{index}.attention."), layer.attention
        turn = rotation(spec, own.head_dim, positions, "interleaved", run)
        joined, _ = attention(x, mine, own, visibility(ids.shape[-1], causal, own), turn, run)
        x = x + linear(joined, mine, "output", run)
    return x


def block(x: Array, layer: Layer, norm: Any, attend: Any, feed: Any) -> Array:
    """One layer on the residual stream x (…, T, d), its norms where the family has them; `norm` takes x and a number."""
    if layer.mixer is None:
        return x + feed(norm(x, 0))
    if layer.feedforward.kind == "none":
        return x + attend(norm(x, 0))
    if layer.parallel:  # both read the same stream
        first = norm(x, 0)
        return x + attend(first) + feed(norm(x, 1) if layer.norms == 2 else first)
    if layer.post_norm:
        x = x + norm(attend(x), 0)
        return x + norm(feed(x), 1)
    if layer.norms == 4:
        x = x + norm(attend(norm(x, 0)), 1)
        return x + norm(feed(norm(x, 2)), 3)
    x = x + attend(norm(x, 0))
    return x + feed(norm(x, 1))


def embedded(spec: ModelSpec, own: Weights, ids: Array, positions: Array, run: Any) -> Array:
    """What the first layer reads, (…, T, d), before a norm of the embedding."""
    x = own["token_embedding"][ids]  # (…, T, d_e)
    if "embedding_projection" in own:
        x = linear(x, own, "embedding_projection", run)  # (…, T, d)
    if spec.positions == "learned":
        # OPT's table begins with two rows that no position uses.
        x = x + own["position_embedding"][positions + spec.position_rows - spec.context]
    return x


def forward(
    spec: ModelSpec,
    weights: Weights,
    ids: Any,
    run: Any,
    *,
    causal: bool = True,
    positions: Any = None,
    pairing: str = "interleaved",
    patterns: list[Array] | None = None,
) -> Array:
    """Logits (…, T, V) of the token ids (…, T), in the arithmetic `run`.

    `positions` (T,) are 0, 1, 2 … unless given; `patterns` collects every layer's attention pattern.
    """
    ids = np.asarray(ids)
    tokens = ids.shape[-1]
    positions = np.arange(tokens) if positions is None else np.asarray(positions)
    # Weights that are in the arithmetic already (a model in training) pass as they are.
    own = {name: run.array(value) if isinstance(value, np.ndarray) else value for name, value in weights.items()}

    def norm(x: Array, name: str) -> Array:
        return run.norm(spec.norm, x, own[name], own.get(f"{name}.bias"), spec.norm_epsilon)

    def attend(x: Array, layer: Layer, at: str) -> Array:
        if layer.state:
            held = under(own, f"{at}.state.")
            read = state.mix(x, held, layer.state, lambda x, name: linear(x, held, name, run), run, spec.norm_epsilon)
            out = linear(read, held, "output", run)
            return out + attention_of(x, layer, at) if layer.beside else out
        return attention_of(x, layer, at)

    def attention_of(x: Array, layer: Layer, at: str) -> Array:
        mine, latent = under(own, f"{at}.attention."), layer.attention.latent
        turn = rotation(spec, latent.rope_dim if latent else layer.attention.head_dim, positions, pairing, run)
        visible = visibility(tokens, causal, layer.attention)
        joined, pattern = attention(x, mine, layer.attention, visible, turn, run, spec.norm_epsilon)
        if patterns is not None:
            patterns.append(pattern)
        return linear(joined, mine, "output", run)

    x = embedded(spec, own, ids, positions, run)
    if spec.embedding_norm:
        x = norm(x, "embedding_norm")
    for index, layer in enumerate(spec.each_layer()):
        at = f"layers.{index}"
        x = block(
            x,
            layer,
            norm=lambda x, number, at=at: norm(x, f"{at}.norm.{number}"),
            attend=lambda x, layer=layer, at=at: attend(x, layer, at),
            feed=lambda x, layer=layer, at=at: mixture(x, under(own, f"{at}."), layer.feedforward, run),
        )
    if spec.final_norm:
        x = norm(x, "norm")
    if "head_projection" in own:
        x = linear(x, own, "head_projection", run)
    if spec.tied_head:
        return run.matmul(x, own["token_embedding"].swapaxes(-1, -2))
    return linear(x, own, "head", run)
