"""Token sequences whose best possible loss is known: a random second-order source, and associative recall.

Each sequence is of one kind, drawn with equal chance, and the two kinds share no token, so the first token tells which
it is. A model reads tokens 0 … T−1 and predicts tokens 1 … T.

- `markov`: S symbols; the next one is drawn from a distribution that belongs to the last two (a table drawn once from
  the seed). The first two follow the stationary distribution of pairs.
- `recall`: first one fact for each of K keys, in random order, a fact (key, value) being one token; then key, value,
  key, value, …, keys drawn freely, each followed by the value that the facts gave it. Facts and keys cannot be
  predicted; values can be known for certain.

No predictor has a lower expected loss than the entropy of what it predicts, given what it has seen (Shannon 1948,
section 7; Cover and Thomas, Elements of Information Theory, 2nd edition, theorem 5.4.1 and section 4.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from transformer_ledger import bounds

Array = np.ndarray[Any, np.dtype[Any]]
KINDS = ("markov", "recall")
DRAWN_AT_ONCE = 64  # batches
ROUNDING = 1e-9  # of a mean loss [nat/token]: recall loses the same in every sequence, and its interval has no width
TRAINING, HELD_OUT, VALIDATION = 1, 2, 3  # what a stream of random numbers is for


def stream(seed: int, purpose: int) -> np.random.Generator:
    """Random numbers for one purpose: equal seeds of a training and of held-out data must not draw the same sequences."""
    return np.random.Generator(np.random.PCG64([seed, purpose]))


@dataclass(frozen=True)
class Source:
    """Both kinds of sequences. Token ids: S symbols, then K keys, then V values, then K·V facts."""

    symbols: int
    concentration: float  # of the Dirichlet distribution that the rows of the table are drawn from; small: predictable
    keys: int
    values: int
    seed: int

    @property
    def tokens(self) -> int:
        """Ids in use, 0 … tokens − 1."""
        return self.symbols + self.keys + self.values + self.keys * self.values

    @cached_property
    def table(self) -> Array:
        """(S, S, S): probability of the next symbol after two."""
        generator = np.random.Generator(np.random.PCG64(self.seed))
        return generator.dirichlet(np.full(self.symbols, self.concentration), (self.symbols, self.symbols))

    @cached_property
    def pairs(self) -> Array:
        """(S, S): stationary probability of two symbols in a row, the solution of π = πP with Σπ = 1."""
        S = self.symbols
        step = np.zeros((S, S, S, S))  # (a, b) → (b, c)
        for b in range(S):
            step[:, b, b, :] = self.table[:, b, :]
        system = step.reshape(S * S, S * S).T - np.eye(S * S)
        system[-1] = 1.0
        wanted = np.zeros(S * S)
        wanted[-1] = 1.0
        return np.linalg.solve(system, wanted).reshape(S, S)

    @cached_property
    def second(self) -> Array:
        """(S, S): probability of the second symbol after the first."""
        return self.pairs / self.pairs.sum(1, keepdims=True)

    @property
    def entropy_rate(self) -> float:
        """Entropy of the next symbol after two, Σ π(a, b) H(table[a, b]).  [nat]"""
        return float((self.pairs[..., None] * _surprise(self.table)).sum())

    def floor(self, kind: str, length: int) -> float:
        """Lowest expected mean loss of `length` predictions.  [nat/token]"""
        if kind == "markov":
            first = float((self.pairs.sum(1)[:, None] * _surprise(self.second)).sum())
            return (first + (length - 1) * self.entropy_rate) / length
        K = self.keys
        facts = sum(math.log(K - i) + math.log(self.values) for i in range(1, min(K, length + 1)))
        return (facts + len(range(K, length + 1, 2)) * math.log(K)) / length

    def draw(self, generator: np.random.Generator, kind: str, sequences: int, length: int) -> tuple[Array, Array]:
        """Ids (sequences, length + 1), and the source's own loss −ln p of the last `length` of them."""
        drawn = self._markov if kind == "markov" else self._recall
        return drawn(generator, sequences, length)

    def batches(self, generator: np.random.Generator, sequences: int, length: int) -> Iterator[Array]:
        """Ids (sequences, length + 1), again and again; half of the sequences are of either kind, markov first."""
        half = sequences // 2
        while True:  # many at once: drawing a few sequences costs as much
            drawn = [
                self.draw(generator, kind, DRAWN_AT_ONCE * n, length)[0].reshape(DRAWN_AT_ONCE, n, length + 1)
                for kind, n in zip(KINDS, (sequences - half, half), strict=True)
            ]
            yield from np.concatenate(drawn, 1)

    def _markov(self, generator: np.random.Generator, sequences: int, length: int) -> tuple[Array, Array]:
        S = self.symbols
        uniform = generator.random((sequences, length + 1))
        ids = np.empty((sequences, length + 1), np.int64)
        loss = np.empty((sequences, length))
        rows = np.broadcast_to(self.pairs.sum(1), (sequences, S))
        for t in range(length + 1):
            # The number of cumulated probabilities below a uniform number; the last one is 1 up to rounding.
            ids[:, t] = np.minimum((rows.cumsum(1) < uniform[:, t, None]).sum(1), S - 1)
            if t:
                loss[:, t - 1] = -np.log(rows[np.arange(sequences), ids[:, t]])
            rows = self.table[ids[:, t - 1], ids[:, t]] if t else self.second[ids[:, 0]]
        return ids, loss

    def _recall(self, generator: np.random.Generator, sequences: int, length: int) -> tuple[Array, Array]:
        K, V = self.keys, self.values
        asked = max(length + 2 - K, 0) // 2
        order = generator.random((sequences, K)).argsort(1)
        value_of = generator.integers(0, V, (sequences, K))
        keys = generator.integers(0, K, (sequences, asked))
        facts = self.symbols + K + V + order * V + np.take_along_axis(value_of, order, 1)
        values = self.symbols + K + np.take_along_axis(value_of, keys, 1)
        answers = np.stack([self.symbols + keys, values], -1).reshape(sequences, -1)
        loss = [math.log(K - i) + math.log(V) for i in range(K)] + [math.log(K), 0.0] * asked
        ids = np.concatenate([facts, answers], 1)[:, : length + 1]
        return ids, np.tile(loss[1 : length + 1], (sequences, 1))


def _surprise(p: Array) -> Array:
    """−p ln p, 0 where p is 0."""
    return np.where(p > 0, -p * np.log(np.where(p > 0, p, 1.0)), 0.0)


@dataclass(frozen=True)
class HeldOut:
    """Sequences that no training sees: ids and the source's own loss, by kind."""

    ids: dict[str, Array]
    loss: dict[str, Array]


def plausible(losses: Array, data: HeldOut, kind: str, floor: float) -> bool:
    """Whether losses (sequences, T) on the held-out sequences of a kind can be a predictor's: the interval of the source's
    own mean loss on them holds the floor, and the predictor's mean is not below the source's by more than its interval."""
    own = data.loss[kind].mean(1)
    (low, high), (_, above) = bounds.mean_interval(own), bounds.mean_interval(losses.mean(1) - own)
    return low - ROUNDING <= floor <= high + ROUNDING and above >= -ROUNDING


def held_out(source: Source, sequences: int, length: int, seed: int, purpose: int = HELD_OUT) -> HeldOut:
    """`sequences` of each kind."""
    generator = stream(seed, purpose)
    drawn = {kind: source.draw(generator, kind, sequences, length) for kind in KINDS}
    return HeldOut({kind: ids for kind, (ids, _) in drawn.items()}, {kind: loss for kind, (_, loss) in drawn.items()})
