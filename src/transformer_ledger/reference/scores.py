"""Scores of tokens and projections as drawn, before any training: sampled, with the interval that they should keep.

Tokens have independent components of mean 0 and variance 1, projections (d, d_k) independent entries of variance 1/d,
so the components of query and key have variance 1: what a normalised residual and a usual initialisation amount to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from transformer_ledger import bounds
from transformer_ledger.model import Attention
from transformer_ledger.reference import decoder
from transformer_ledger.reference.arithmetic import BLAS, Blas

AT_ONCE = 50  # draws held in memory together
Turn = Callable[[Any, int, int], Any]


class Scaled(Blas):
    """BLAS in which the scores' factor 1/√d_k is raised to `power`: 1 as it is, 0 no factor, 2 for 1/d_k."""

    def __init__(self, power: int = 1):
        self.power = power

    def array(self, x: Any) -> Any:
        return super().array(x) ** self.power


@dataclass(frozen=True)
class Sample:
    """`draws` pairs of projections for the increasing head `widths`, `pairs` token pairs for each.

    A narrower head takes the first columns of the widest one's projections. `variance` is that of the tokens'
    components, 1 unless the condition is to be broken.
    """

    d_model: int
    widths: tuple[int, ...]
    draws: int
    pairs: int
    seed: int
    confidence: float
    variance: float = 1.0

    def products(self, turn: Turn | None = None) -> Any:
        """q·k of every token pair at every width: (draws·pairs, widths).

        `turn` gets q (draws, pairs, d_k) and 0, or k and 1, and the number of the first draw, and returns them rotated.
        """
        generator = np.random.Generator(np.random.PCG64(self.seed))
        found = []
        for start in range(0, self.draws, AT_ONCE):
            draws = min(AT_ONCE, self.draws - start)
            weights = generator.standard_normal((2, draws, self.d_model, self.widths[-1])) * self.d_model**-0.5
            tokens = generator.standard_normal((2, draws, self.pairs, self.d_model)) * self.variance**0.5
            q, k = tokens @ weights  # (draws, pairs, widest) each
            if turn is None:
                found.append(np.add.reduceat(q * k, [0, *self.widths[:-1]], axis=-1).cumsum(axis=-1))
            else:
                turned = [(turn(q[..., :w], 0, start) * turn(k[..., :w], 1, start)).sum(axis=-1) for w in self.widths]
                found.append(np.stack(turned, axis=-1))
        return np.concatenate(found).reshape(-1, len(self.widths))

    def interval(self, width: int) -> tuple[float, float]:
        """Where the standard deviation of q·k/√d_k must lie, around 1; those of all widths hold together.

        Bonferroni: each is wider, so that all together have the confidence asked for.
        """
        return bounds.standard_deviation_interval(
            1.0,
            self.draws * self.pairs,
            bounds.projected_dot_kurtosis(width, self.d_model),
            together(self.confidence, len(self.widths)),
            self.pairs,
            bounds.projected_dot_correlation(width, self.d_model),
        )

    @property
    def source(self) -> str:
        """What the interval is called."""
        return (
            f"sampling interval of a standard deviation (Serfling 1980, 2.2.3; Kish 1965, 5.4), {len(self.widths)} "
            f"together at {100 * self.confidence:g} % (Bonferroni)"
        )


def together(confidence: float, intervals: int) -> float:
    """Confidence of each of several intervals that all hold at once with `confidence`, by Bonferroni."""
    return 1 - (1 - confidence) / intervals


def attend(tokens: Any, query: Any, key: Any, run: Any = BLAS) -> Any:
    """Patterns (…, T, T) of one unmasked head of the reference decoder: tokens (…, T, d), projections (…, d, d_k)."""
    visible = decoder.visibility(tokens.shape[-2], causal=False)
    weights = {"query": query, "key": key, "value": query}
    return decoder.attention(tokens, weights, Attention(1, 1, query.shape[-1]), visible, lambda x: x, run)[1][
        ..., 0, :, :
    ]


def factor(width: int, power: int = 1) -> float:
    """What the reference decoder multiplies q·k by before the softmax: a head whose every q·k is 1 shows it."""
    run: Any = Scaled(power)
    run.softmax = lambda scores, visible: scores
    unit = np.eye(1, width)
    return float(attend(np.ones((1, 1)), unit, unit, run)[0, 0])


def variance(d_model: int, d_k: int, turn: Callable[[list[Any]], list[Any]] = list, tokens: int = 1) -> Any:
    """Variance of q·k, exactly: its square in monomials, each replaced by its moment; `turn` turns the key.

    `tokens` is the variance of a token's components.
    """
    import sympy

    x, y = sympy.symbols(f"x:{d_model}"), sympy.symbols(f"y:{d_model}")
    a, b = (sympy.symbols(f"{name}:{d_model * d_k}") for name in "ab")
    q = [sum(x[i] * a[i * d_k + j] for i in range(d_model)) for j in range(d_k)]
    k = turn([sum(y[i] * b[i * d_k + j] for i in range(d_model)) for j in range(d_k)])
    square = sympy.Poly(sum(q[j] * k[j] for j in range(d_k)) ** 2, *x, *y, *a, *b)
    total = sympy.Integer(0)
    for powers, times in square.terms():
        if all(power % 2 == 0 for power in powers):  # 0 or 2: E z² is the variance of z; any odd power has mean 0
            large, small = sum(powers[: 2 * d_model]) // 2, sum(powers[2 * d_model :]) // 2
            total += times * tokens**large * sympy.Rational(1, d_model) ** small
    return total
