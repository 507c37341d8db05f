"""The reference decoder in NumPy: small enough to be read, one function for every arithmetic.

Shapes: T tokens, V vocabulary, d model width, h query and h_kv key/value heads of width d_h, f feed-forward width.
Leading axes (a batch) pass through.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from transformer_ledger.model import Attention, Feedforward, ModelSpec
from transformer_ledger.reference import rope
from transformer_ledger.reference.arithmetic import Array

Weights = Mapping[str, Array]


def shapes(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor, in the order of the forward pass; a matrix is (inputs, outputs).

    Raises NotImplementedError for what this decoder leaves out: latent attention, experts, sinks, norms other than the
    two before attention and feed-forward and the final one.
    """
    d = spec.d_model
    out: dict[str, tuple[int, ...]] = {"token_embedding": (spec.vocabulary, d)}

    def linear(name: str, inputs: int, outputs: int, bias: bool) -> None:
        out[name] = (inputs, outputs)
        if bias:
            out[f"{name}.bias"] = (outputs,)

    def norm(name: str) -> None:
        out[name] = (d,)
        if spec.norm_bias:
            out[f"{name}.bias"] = (d,)

    if spec.positions == "learned":
        out["position_embedding"] = (spec.position_rows, d)
    for index, layer in enumerate(spec.each_layer()):
        own, feed, at = layer.attention, layer.feedforward, f"layers.{index}"
        special = own.latent or own.sinks or own.query_key_norm != "none" or feed.experts or layer.norms != 2
        if special or layer.parallel or layer.post_norm or spec.embedding_norm or spec.embedding_width not in (0, d):
            raise NotImplementedError(f"{spec.name}: the reference decoder has plain pre-norm layers only")
        norm(f"{at}.norm.0")
        linear(f"{at}.attention.query", d, own.heads * own.head_dim, own.query_bias)
        linear(f"{at}.attention.key", d, own.kv_heads * own.head_dim, own.key_bias)
        linear(f"{at}.attention.value", d, own.kv_heads * own.head_dim, own.value_bias)
        linear(f"{at}.attention.output", own.heads * own.head_dim, d, own.output_bias)
        norm(f"{at}.norm.1")
        if feed.kind == "gated":
            linear(f"{at}.feedforward.gate", d, feed.width, feed.bias)
        linear(f"{at}.feedforward.up", d, feed.width, feed.bias)
        linear(f"{at}.feedforward.down", feed.width, d, feed.bias)
    if spec.final_norm:
        norm("norm")
    if not spec.tied_head:
        linear("head", d, spec.vocabulary, spec.head_bias)
    return out


def initial(spec: ModelSpec, seed: int) -> dict[str, Array]:
    """Untrained weights, drawn tensor by tensor from one generator, float64.

    Matrices are normal with variance 1/inputs, tables normal with variance 1, gains 1, biases 0.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    weights: dict[str, Array] = {}
    for name, shape in shapes(spec).items():
        if len(shape) == 1:
            weights[name] = np.zeros(shape) if name.endswith("bias") else np.ones(shape)
        else:
            scale = 1.0 if name.endswith("embedding") else shape[0] ** -0.5
            weights[name] = scale * generator.standard_normal(shape)
    return weights


def linear(x: Array, weights: Weights, name: str, run: Any) -> Array:
    """x·W, plus the bias where there is one."""
    out = run.matmul(x, weights[name])
    bias = weights.get(f"{name}.bias")
    return out if bias is None else out + bias


def visibility(tokens: int, causal: bool, window: int | None = None) -> Any:
    """(T, T), true where the query of a row may read the key of a column."""
    behind = np.arange(tokens)[:, None] - np.arange(tokens)
    return ((behind >= 0) | (not causal)) & (behind < (window or tokens))


def heads_of(x: Array, heads: int) -> Array:
    """(…, T, heads·d_h) → (…, heads, T, d_h): head i owns the i-th run of d_h components."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).swapaxes(-2, -3)


def attention(x: Array, weights: Weights, own: Attention, visible: Any, turn: Any, run: Any) -> tuple[Array, Array]:
    """Softmax attention on x (…, T, d): the concatenated heads (…, T, h·d_h) and the patterns (…, h, T, T).

    `weights` holds query, key and value; query head i reads key/value head ⌊i·h_kv/h⌋; `turn` rotates (…, T, d_h).
    """
    q = turn(heads_of(linear(x, weights, "query", run), own.heads))  # (…, h, T, d_h)
    k = turn(heads_of(linear(x, weights, "key", run), own.kv_heads))  # (…, h_kv, T, d_h)
    v = heads_of(linear(x, weights, "value", run), own.kv_heads)
    if own.kv_heads != own.heads:
        group = np.arange(own.heads) * own.kv_heads // own.heads
        k, v = k[..., group, :, :], v[..., group, :, :]  # (…, h, T, d_h)
    scale = run.array(1 / math.sqrt(own.head_dim))
    pattern = run.softmax(run.matmul(q, k.swapaxes(-1, -2)) * scale, visible)  # (…, h, T, T)
    joined = run.matmul(pattern, v).swapaxes(-2, -3)  # (…, T, h, d_h)
    return joined.reshape(*x.shape[:-1], own.heads * own.head_dim), pattern


def feedforward(x: Array, weights: Weights, own: Feedforward, run: Any) -> Array:
    """`gelu`: down(GELU(up(x))); `gated`: down(SiLU(gate(x)) ⊙ up(x))."""
    up = linear(x, weights, "up", run)
    hidden = run.silu(linear(x, weights, "gate", run)) * up if own.kind == "gated" else run.gelu(up)
    return linear(hidden, weights, "down", run)


def rotation(spec: ModelSpec, head_dim: int, positions: Any, pairing: str, run: Any) -> Callable[[Array], Array]:
    """What turns queries and keys (…, T, d_h) at `positions` (T,); the identity without rotary positions."""
    if spec.positions != "rope":
        return lambda x: x
    angles = positions[:, None] * rope.frequencies(head_dim, spec.rope_base)  # (T, d_h/2)
    # The table of cosines is stored: like a weight it is what it is, and every pass reads the same one.
    cos, sin = run.array(np.cos(angles)), run.array(np.sin(angles))
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
        joined, _ = attention(x, mine, own, visibility(ids.shape[-1], causal, own.window), turn, run)
        x = x + linear(joined, mine, "output", run)
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

    x = own["token_embedding"][ids]  # (…, T, d)
    if spec.positions == "learned":
        # OPT's table begins with two rows that no position uses.
        x = x + own["position_embedding"][positions + spec.position_rows - spec.context]
    for index, layer in enumerate(spec.each_layer()):
        at = f"layers.{index}"
        turn = rotation(spec, layer.attention.head_dim, positions, pairing, run)
        visible = visibility(tokens, causal, layer.attention.window)
        mine = under(own, f"{at}.attention.")
        joined, pattern = attention(norm(x, f"{at}.norm.0"), mine, layer.attention, visible, turn, run)
        if patterns is not None:
            patterns.append(pattern)
        x = x + linear(joined, mine, "output", run)
        x = x + feedforward(norm(x, f"{at}.norm.1"), under(own, f"{at}.feedforward."), layer.feedforward, run)
    if spec.final_norm:
        x = norm(x, "norm")
    if spec.tied_head:
        return run.matmul(x, own["token_embedding"].swapaxes(-1, -2))
    return linear(x, own, "head", run)
