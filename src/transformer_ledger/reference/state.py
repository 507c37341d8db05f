"""Mixers with a fixed state in NumPy, token by token: Gated DeltaNet, Kimi Delta Attention, Mamba-2, in every arithmetic.

Sources: Yang et al. 2024, arXiv:2412.06464, equation 10; Kimi Team 2025, arXiv:2510.26692, equation 1; Dao and Gu 2024,
arXiv:2405.21060, section 2. Shapes: T tokens, h heads in G groups, a state of d_k × d_v numbers a head. Leading axes (a
batch) pass through.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from transformer_ledger.model import FixedState
from transformer_ledger.reference.arithmetic import Array

Linear = Callable[[Array, str], Array]


def convolved(x: Array, weights: Mapping[str, Array], kernel: int, run: Any) -> Array:
    """Each channel's sum over its last `kernel` inputs, x (…, T, c): zeros stand before the first."""
    y, own = x.swapaxes(-1, -2), weights["convolution"]  # (…, c, T), (c, K, 1)
    out = y * own[:, kernel - 1]
    for back in range(1, min(kernel, y.shape[-1])):
        zeros = run.array(np.zeros((*y.shape[:-1], back)))
        out = out + run.join([zeros, y[..., : y.shape[-1] - back]]) * own[:, kernel - 1 - back]
    out = out.swapaxes(-1, -2)
    return out + weights["convolution.bias"] if "convolution.bias" in weights else out


def _heads(x: Array, own: FixedState, heads: int) -> Array:
    """(…, T, heads·width) → (…, h, T, width), a group's part for each of its heads."""
    split = x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads).swapaxes(-2, -3)
    return split[..., np.arange(own.heads) * heads // own.heads, :, :]


def _unit(x: Array, run: Any) -> Array:
    return x / run.root(run.total(x * x) + run.array(1e-6))


def scanned(q: Array, k: Array, v: Array, kept: Array, rate: Array, delta: bool, run: Any) -> Array:
    """What each token reads (…, h, T, d_v): q, k (…, h, T, d_k), v (…, h, T, d_v), rates (…, h, T).

    The shares `kept` are one a head, (…, h, T, 1), or one a row of the state, (…, h, T, d_k).
    """
    state, read = run.array(np.zeros((*k.shape[:-2], k.shape[-1], v.shape[-1]))), []
    for t in range(k.shape[-2]):
        at = slice(t, t + 1)
        key, value = k[..., at, :], v[..., at, :]  # (…, h, 1, d_k), (…, h, 1, d_v)
        state = state * kept[..., at, :].swapaxes(-1, -2)
        if delta:
            value = value - run.matmul(key, state)
        state = state + run.matmul(key.swapaxes(-1, -2), value * rate[..., at, None])
        read.append(run.matmul(q[..., at, :], state).swapaxes(-1, -2))  # (…, h, d_v, 1)
    return run.join(read).swapaxes(-1, -2)


def mix(x: Array, weights: Mapping[str, Array], own: FixedState, linear: Linear, run: Any, epsilon: float) -> Array:
    """What the layer's output map reads (…, T, h·d_v), of x (…, T, d); `linear` applies a map by its name."""
    delta, channelwise, narrow, h = own.rule != "ssm", own.rule == "kda", own.groups * own.key_dim, own.heads
    mixed = run.silu(convolved(linear(x, "input"), weights, own.kernel, run))
    q, k = (_heads(mixed[..., start : start + narrow], own, own.groups) for start in (0, narrow))
    v = _heads(mixed[..., 2 * narrow :], own, own.heads)
    rates = linear(x, "rates")  # (…, T, n·h)
    step = linear(linear(x, "steps_down"), "steps") if channelwise else rates[..., :h]
    step = _heads(run.softplus(step + weights["step"]), own, h)  # (…, h, T, 1 or d_k)
    kept = run.exp(-(run.exp(weights["decay"])[:, None, None] * step))
    rate = run.sigmoid(rates[..., -h:].swapaxes(-1, -2)) if delta else step[..., 0]
    if delta:
        q, k = _unit(q, run) * run.array(1 / math.sqrt(own.key_dim)), _unit(k, run)
    out = scanned(q, k, v, kept, rate, delta, run)
    if not delta:
        out = out + weights["skip"][:, None, None] * v
    out = out.swapaxes(-2, -3)  # (…, T, h, d_v), and the gate (…, T, h·d_v)
    gate = run.sigmoid(linear(linear(x, "gate_down"), "gate")) if channelwise else run.silu(linear(x, "gate"))
    if delta:
        return run.norm("rmsnorm", out, weights["norm"], None, epsilon).reshape(*gate.shape) * gate
    if not own.normed:
        return out.reshape(*gate.shape) * gate
    grouped = (out.reshape(*gate.shape) * gate).reshape(*gate.shape[:-1], own.groups, gate.shape[-1] // own.groups)
    return run.norm("rmsnorm", grouped, None, None, epsilon).reshape(*gate.shape) * weights["norm"]
