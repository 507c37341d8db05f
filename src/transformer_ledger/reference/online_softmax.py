"""One row of softmax attention read block by block (online softmax), forward and backward, beside the dense form.

The state after some blocks is m, the largest score seen, a = Σ e^(s−m) and o = Σ e^(s−m)·v over the keys seen: this is
the loop invariant. Source: M. Milakov, N. Gimelshein, arXiv:1805.02867; T. Dao et al., arXiv:2205.14135, algorithm 1.

A row whose keys are all masked is defined here as output 0 and log-sum-exp −∞: the state stays empty (m = −∞, a = 0).
Without that guard the first masked block gives e^(−∞−(−∞)), which is NaN.

Scores have shape (keys,), values (keys, d_v), visible (keys,), gradients of the output (d_v,); entries in the
arithmetic given. `blocks` lists (begin, end) in the order of reading.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transformer_ledger.bounds import Array
from transformer_ledger.reference.precision import FP64, Arithmetic

Blocks = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class State:
    """What the loop keeps: m (maximum), a (denominator), o (numerator, shape (d_v,))."""

    maximum: Any
    denominator: Any
    numerator: Array


def partition(keys: int, size: int) -> list[tuple[int, int]]:
    """Blocks of `size` keys in ascending order, the last one shorter where it must be."""
    return [(begin, min(begin + size, keys)) for begin in range(0, keys, size)]


def empty(width: int, arithmetic: Arithmetic = FP64) -> State:
    """The state before the first block: m = −∞, a = 0, o = 0."""
    zero = arithmetic.array(np.zeros(width, int))
    return State(-math.inf, zero.sum(), zero)


def update(state: State, scores: Array, values: Array, visible: Array, arithmetic: Arithmetic = FP64) -> State:
    """The state after one more block; a block without a visible key changes nothing."""
    rounded, exp = arithmetic.round, arithmetic.exp
    if not visible.any():
        return state
    s, v = scores[visible], values[visible]
    m = max(state.maximum, s.max())
    if m == -math.inf:  # visible scores of −∞ weigh nothing, as masked ones
        return state
    term = exp(rounded(s - m))
    a, o = arithmetic.sum(term), arithmetic.sum(rounded(term[:, None] * v))
    if state.maximum != -math.inf:
        kept = exp(rounded(state.maximum - m))
        a = rounded(rounded(state.denominator * kept) + a)
        o = rounded(rounded(state.numerator * kept) + o)
    return State(m, a, o)


def unguarded(state: State, scores: Array, values: Array, visible: Array, first_factor: bool = False) -> State:
    """`update` as it is often written, in fp64: −∞ for masked scores and no look at what is left. Gives NaN.

    With `first_factor` the factor of the empty state is set to 0, which is the one guard that text B has.
    """
    with np.errstate(invalid="ignore"):
        s = np.where(visible, scores, -np.inf)
        m = max(state.maximum, s.max())
        term, kept = np.exp(s - m), np.exp(np.float64(state.maximum) - m)
        kept = np.float64(0.0) if first_factor and state.maximum == -math.inf else kept
        return State(m, state.denominator * kept + term.sum(), state.numerator * kept + term @ values)


def output(state: State, arithmetic: Arithmetic = FP64) -> Array:
    """o/a, shape (d_v,); 0 for the empty state."""
    return state.numerator if state.maximum == -math.inf else arithmetic.round(state.numerator / state.denominator)


def log_sum_exp(state: State) -> float:
    """m + ln a; −∞ for the empty state."""
    return float(state.maximum) + math.log(state.denominator) if state.maximum != -math.inf else -math.inf


def forward(
    scores: Array, values: Array, blocks: Blocks, visible: Array | None = None, arithmetic: Arithmetic = FP64
) -> list[State]:
    """States after 0, 1, 2 … blocks; `output` of the last one is the row's output."""
    seen = np.ones(len(scores), bool) if visible is None else visible
    states = [empty(values.shape[1], arithmetic)]
    for begin, end in blocks:
        part = slice(begin, end)
        states.append(update(states[-1], scores[part], values[part], seen[part], arithmetic))
    return states


def backward(
    scores: Array,
    values: Array,
    gradient: Array,
    state: State,
    blocks: Blocks,
    visible: Array | None = None,
    arithmetic: Arithmetic = FP64,
) -> tuple[Array, Array]:
    """Gradients of the scores (keys,) and values (keys, d_v), from the gradient of the output and the last state.

    Block by block: p = e^(s−m)/a again, ∂v = p·g, ∂s = p·(g·v − g·output). m and a are kept, not their log-sum-exp:
    rounding m + ln a would cost a relative |m + ln a|·u of every p.
    """
    seen = np.ones(len(scores), bool) if visible is None else visible
    rounded = arithmetic.round
    d_scores, d_values = arithmetic.array(np.zeros(scores.shape, int)), arithmetic.array(np.zeros(values.shape, int))
    if state.maximum == -math.inf:
        return d_scores, d_values
    along = arithmetic.sum(rounded(gradient * output(state, arithmetic)))
    for begin, end in blocks:
        here = np.arange(begin, end)[seen[begin:end] & (scores[begin:end] > -math.inf)]
        if here.size:
            p = rounded(arithmetic.exp(rounded(scores[here] - state.maximum)) / state.denominator)
            d_values[here] = rounded(p[:, None] * gradient)
            toward = arithmetic.sum(rounded(gradient * values[here]).T)
            d_scores[here] = rounded(p * rounded(toward - along))
    return d_scores, d_values


def probabilities(scores: Array, visible: Array | None = None, arithmetic: Arithmetic = FP64) -> Array:
    """Dense softmax of the row, shape (keys,): maximum off, exponential, sum, division; all 0 for a masked row."""
    seen = (np.ones(len(scores), bool) if visible is None else visible) & (scores > -math.inf)
    p = arithmetic.array(np.zeros(scores.shape, int))
    if seen.any():
        term = arithmetic.exp(arithmetic.round(scores[seen] - scores[seen].max()))
        p[seen] = arithmetic.round(term / arithmetic.sum(term))
    return p


def dense(p: Array, values: Array, arithmetic: Arithmetic = FP64) -> Array:
    """Σ pᵢvᵢ, shape (d_v,)."""
    return np.asarray(arithmetic.sum(arithmetic.round(p[:, None] * values)))


def dense_backward(p: Array, values: Array, gradient: Array, arithmetic: Arithmetic = FP64) -> tuple[Array, Array]:
    """Gradients of the scores (keys,) and values (keys, d_v): ∂v = p·g, ∂s = p·(c − Σpc) with c = g·v."""
    rounded = arithmetic.round
    c = arithmetic.sum(rounded(gradient * values).T)
    mean = arithmetic.sum(rounded(p * c))
    return rounded(p * rounded(c - mean)), rounded(p[:, None] * gradient)


def naive(scores: Array, values: Array) -> Array:
    """Σ eˢv / Σ eˢ with no maximum taken off: inf/inf = NaN as soon as eˢ overflows, 0/0 where all of it underflows."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        term = np.exp(scores)
        return np.asarray((term[:, None] * values).sum(axis=0) / term.sum())
