"""The arithmetics that the reference decoder can be run in: the same model, other rounding.

`SEQUENTIAL` sums in one fixed order, as a plain loop does; `BLAS` uses NumPy's kernels as shipped; `running_error`
gives the a-priori bound on both; `RATIONAL` does not round at all. Array shapes are the decoder's.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from transformer_ledger import bounds
from transformer_ledger.reference import rope

Array = Any  # float64 arrays, bounds.Bounded or object arrays of Fractions, as the arithmetic has it


class Blas:
    """fp64 with NumPy's matrix products and sums as shipped: the kernels choose the order of summation by the shape."""

    name = "blas"
    norms = ("layernorm", "rmsnorm")

    def array(self, x: Any) -> Array:
        """A stored number or table in this arithmetic."""
        return np.asarray(x, np.float64)

    def matmul(self, a: Array, b: Array) -> Array:
        """A·B over the last two axes."""
        return a @ b

    def total(self, x: Array) -> Array:
        """Sum along the last axis, which stays with length 1."""
        return x.sum(axis=-1, keepdims=True)

    def join(self, parts: list[Array]) -> Array:
        """Concatenation along the last axis."""
        return np.concatenate(parts, axis=-1)

    def softmax(self, scores: Array, visible: Array) -> Array:
        """e^(s−m) / Σ e^(s−m) along the last axis over the visible entries; the hidden ones are 0."""
        hidden = np.where(visible, scores, -np.inf)
        term = np.exp(hidden - hidden.max(axis=-1, keepdims=True))
        return term / self.total(term)

    def root(self, x: Array) -> Array:
        """√x."""
        return np.sqrt(x)

    def norm(self, kind: str, x: Array, gain: Array | None, bias: Array | None, epsilon: Any) -> Array:
        """LayerNorm (var divides by n) or RMSNorm along the last axis; without a gain where there is none."""
        n = x.shape[-1]
        x = x - self.total(x) / n if kind == "layernorm" else x
        y = x / self.root(self.total(x * x) / n + epsilon)
        y = y if gain is None else y * gain
        return y if bias is None else y + bias

    def turns(self, positions: Array, head_dim: int, base: float) -> tuple[Array, Array]:
        """Cosines and sines (T, d_h/2) of the rotary angles at `positions` (T,).

        The tables are stored: like weights they are what they are, and every pass reads the same ones.
        """
        angles = positions[:, None] * rope.frequencies(head_dim, base)
        return self.array(np.cos(angles)), self.array(np.sin(angles))

    def exp(self, x: Array) -> Array:
        """e^x."""
        return np.exp(x)

    def softplus(self, x: Array) -> Array:
        """ln(1 + e^x)."""
        return np.log1p(np.exp(x))

    def silu(self, x: Array) -> Array:
        """x/(1 + e^(−x))."""
        return x / (1 + np.exp(-x))

    def sigmoid(self, x: Array) -> Array:
        """1/(1 + e^(−x))."""
        return 1 / (1 + np.exp(-x))

    def gelu(self, x: Array) -> Array:
        """x·(1 + erf(x/√2))/2."""
        return x * 0.5 * (1 + np.vectorize(math.erf, otypes=[np.float64])(x * math.sqrt(0.5)))

    def cross_entropy(self, logits: Array, targets: Any) -> Array:
        """ln Σ e^s − s_t along the last axis, in nats."""
        shifted = logits - logits.max(axis=-1, keepdims=True)
        chosen = np.take_along_axis(shifted, np.asarray(targets)[..., None], -1)
        return (np.log(self.total(np.exp(shifted))) - chosen)[..., 0]


class Sequential(Blas):
    """fp64 with every sum taken from 0 in order of the index, every product and every sum rounded: a plain loop.

    The loop runs over the summed axis only; the other axes are done at once, entry by entry, which changes no bit.
    NumPy rounds product and sum apart (two ufuncs), so no fused multiply-add comes in.
    """

    name = "sequential"

    def matmul(self, a: Array, b: Array) -> Array:
        shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        out = np.zeros(shape, np.result_type(a, b))
        for k in range(a.shape[-1]):
            out = out + a[..., :, k, None] * b[..., None, k, :]
        return out

    def total(self, x: Array) -> Array:
        out = np.zeros_like(x[..., :1])
        for k in range(x.shape[-1]):
            out = out + x[..., k : k + 1]
        return out


class Rational(Blas):
    """Exact rational arithmetic on arrays of Fractions, with rational stand-ins for what is irrational.

    e^s is (1 + (1+s)²)/2, positive for every s; 1/√(mean + ε) is 1/(mean + 1); SiLU and GELU are max(x, 0). An identity
    that holds because a function acts entry by entry, or vector by vector, holds for the stand-in as well.
    """

    name = "rational"

    def array(self, x: Any) -> Array:
        return np.vectorize(Fraction, otypes=[object])(x)

    def softmax(self, scores: Array, visible: Array) -> Array:
        term = np.where(visible, (1 + (1 + scores) * (1 + scores)) / 2, np.array(Fraction(0)))
        return term / self.total(term)

    def norm(self, kind: str, x: Array, gain: Array, bias: Array | None, epsilon: float) -> Array:
        n = x.shape[-1]
        x = x - self.total(x) / n if kind == "layernorm" else x
        y = x / (self.total(x * x) / n + 1) * gain
        return y if bias is None else y + bias

    def silu(self, x: Array) -> Array:
        return np.where(x > 0, x, np.array(Fraction(0)))

    gelu = silu


class Running(Blas):
    """Values that carry the first-order bound on their rounding error, for any order of summation (`bounds`)."""

    name = "running error bound"

    def __init__(self, u: float = bounds.UNIT_ROUNDOFF["fp64"]):
        self.u = u

    def array(self, x: Any) -> Array:
        return bounds.exact(x, self.u)

    def total(self, x: Array) -> Array:
        return x.sum(axis=-1, keepdims=True)

    def join(self, parts: list[Array]) -> Array:
        return bounds.concatenate(parts, axis=-1)

    def softmax(self, scores: Array, visible: Array) -> Array:
        return bounds.softmax(scores, visible)

    def norm(self, kind: str, x: Array, gain: Array, bias: Array | None, epsilon: float) -> Array:
        y = (bounds.layer_norm if kind == "layernorm" else bounds.rms_norm)(x, gain, epsilon=epsilon)
        return y if bias is None else y + bias

    def silu(self, x: Array) -> Array:
        return bounds.silu(x)

    def sigmoid(self, x: Array) -> Array:
        return 1.0 / (bounds.exp(-x) + 1.0)

    def exp(self, x: Array) -> Array:
        return bounds.exp(x)

    def root(self, x: Array) -> Array:
        return bounds.sqrt(x)

    def softplus(self, x: Array) -> Array:
        return bounds.log(bounds.exp(x) + 1.0)

    def gelu(self, x: Array) -> Array:
        return bounds.gelu(x)

    def cross_entropy(self, logits: Array, targets: Any) -> Array:
        return bounds.cross_entropy(logits, targets)


class OwnTables(Running):
    """The same where each side computes its rotary tables itself, so that they round as well."""

    def turns(self, positions: Array, head_dim: int, base: float) -> tuple[Array, Array]:
        angles = self.array(positions[:, None]) * bounds.rope_frequencies(head_dim, base, self.u)
        return bounds.cos(angles), bounds.sin(angles)


SEQUENTIAL, BLAS, RATIONAL, RUNNING, OWN_TABLES = Sequential(), Blas(), Rational(), Running(), OwnTables()
BACKENDS = (SEQUENTIAL, BLAS)
