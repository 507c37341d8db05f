"""Rotary positions: the dot product sees the difference of the positions alone, and lengths stay.

Claims A6.1 to A6.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np

from transformer_ledger import bounds, routes
from transformer_ledger.evidence import Evidence, Printed, at_most, between, exactly
from transformer_ledger.reference import rope
from transformer_ledger.reference.arithmetic import BACKENDS, RATIONAL, RUNNING, SEQUENTIAL
from transformer_ledger.reference.scores import Sample, Turn, variance
from transformer_ledger.symbolic import terms

U = bounds.UNIT_ROUNDOFF["fp64"]
RUNNING_ERROR = "running error bound, first order (Linnainmaa 1976), with angle, cosine and sine"
DIFFERENCES = {"positions": 25}
AS_PRINTED = {"text_head_dim": 24, "positions": 25, "base": 10000.0}
DRAWN = "query, key and pairing"


def groups(scores: Any) -> dict[int, Any]:
    """q·k (positions, positions) of all pairs (m, n), grouped by m − n."""
    size = len(scores)
    return {offset: np.diagonal(scores, -offset) for offset in range(1 - size, size)}


def spread(scores: Any) -> float:
    """Largest minus smallest score of one difference m − n: the worst over all differences."""
    return max(float(np.ptp(group)) for group in groups(scores).values())


@dataclass(frozen=True)
class Turns:
    """A query and a key (d_h,) turned to the positions 0, 1, 2 …, each to all of them: (positions, d_h)."""

    q: Any
    k: Any
    learned: Any  # absolute position vectors (positions, d_h)
    base: float
    pairing: str

    def rotated(self, x: Any, factor: float = 1.0) -> Any:
        """The vector turned to every position; `factor` stretches the rotation."""
        angles = np.arange(len(self.learned))[:, None] * rope.frequencies(len(x), self.base)
        tiled = np.broadcast_to(x, self.learned.shape)
        return rope.rotate(tiled, factor * np.cos(angles), factor * np.sin(angles), self.pairing, SEQUENTIAL.join)

    def bounded(self, x: Any) -> bounds.Bounded:
        """As `rotated`, with its bound. The frequencies are stored numbers, the same ones at every position."""
        positions = np.arange(len(self.learned))[:, None]
        angles = bounds.rounded(positions * rope.frequencies(len(x), self.base), U)
        tiled = bounds.exact(np.broadcast_to(x, self.learned.shape), U)
        return rope.rotate(tiled, bounds.cos(angles), bounds.sin(angles), self.pairing, RUNNING.join)

    def spread(self, run: Any, keys: str = "turned", added: bool = False) -> float:
        """Worst spread of q·k in one difference; `keys` may stand "still", `added` puts position vectors in its place."""
        q, k = (x + self.learned if added else self.rotated(x) for x in (self.q, self.k))
        if keys == "still":
            k = np.broadcast_to(self.k, q.shape)
        return spread(run.matmul(q, k.T))

    def lengths(self, run: Any, factor: float = 1.0) -> Any:
        """|q turned| − |q| at every position."""
        turned, own = (np.sqrt(run.total(x * x)[:, 0]) for x in (self.rotated(self.q, factor), self.q[None]))
        return turned - own


def _rounding(turns: Turns, factor: float, text: bool, spreads: Evidence) -> None:
    """A6.1 and A6.2 for one head width and pairing; `text`: the text's figures stand beside these."""
    bounded_q, bounded_k = turns.bounded(turns.q), turns.bounded(turns.k)
    error = (bounded_q @ bounded_k.swapaxes(-1, -2)).error
    # Two scores of one group are apart by no more than their two errors.
    bound = max(float(np.sort(group)[-2:].sum()) for group in groups(error).values() if len(group) > 1)
    own = bounds.exact(turns.q, U)
    length_error = bounds.sqrt((bounded_q * bounded_q).sum()).error + bounds.sqrt((own * own).sum()).error
    for run in BACKENDS:
        shown = text and run is SEQUENTIAL
        apart = spreads.of(by=routes.ARITHMETICS[run.name], source=RUNNING_ERROR)
        quantity = "largest spread of q·k among pairs with the same m − n"
        apart.within(quantity, turns.spread(run), bound)
        for name, change in (
            ("learned position vectors added in place of the rotation", {"added": True}),
            ("only the query rotated", {"keys": "still"}),
        ):
            apart.control(name, quantity, partial(turns.spread, run), change, at_most(bound),
                          key=f"{next(iter(change))}" if shown else None)  # fmt: skip
        kept, change = apart.of("A6.2"), turns.lengths(run)
        kept.within("change of the length, at the position closest to its bound", np.abs(change), length_error)
        kept.control(f"rotation times {factor:g}", "largest change of the length over the positions",
                     lambda run=run, **change: float(np.abs(turns.lengths(run, **change)).max()), {"factor": factor},
                     at_most(length_error.max()), key="stretched" if shown else None)  # fmt: skip
        if shown:
            digits = [Printed(text, AS_PRINTED, unpublished=DRAWN) for text in ("1.33e-15", "4.44e-16")]
            apart.prints(quantity, turns.spread(run), digits[0], headline=True, key="spread")
            kept.prints("largest change of the length over the positions", np.abs(change).max(), digits[1],
                        headline=True, key="length")  # fmt: skip


def _symbols(pairing: str, factor: int = 1, keys: str = "turned") -> tuple[int, int]:
    """Terms left, for d_h = 4, of q·k at (m, n) less q·k at (m − n, 0), and of |q|² turned less |q|²."""
    import sympy

    m, n, *omega = sympy.symbols("m n omega1:3", real=True)
    q, k = (np.array(sympy.symbols(f"{name}1:5", real=True), dtype=object)[None] for name in "qk")

    def turn(x: Any, position: Any) -> Any:
        angles = [position * w for w in omega]
        cos, sin = (np.array([[factor * f(angle) for angle in angles]], dtype=object) for f in (sympy.cos, sympy.sin))
        return rope.rotate(x, cos, sin, pairing, SEQUENTIAL.join)[0]

    relative = turn(q, m) @ turn(k, n if keys == "turned" else 0) - turn(q, m - n) @ k[0]
    # The addition theorem for (m − n)·ω, Pythagoras for the length; what is left is algebra.
    pythagoras = {sympy.sin(m * w) ** 2: 1 - sympy.cos(m * w) ** 2 for w in omega}
    length = sympy.expand(turn(q, m) @ turn(q, m) - q[0] @ q[0]).subs(pythagoras)
    return terms(sympy.expand_trig(sympy.expand(relative))), terms(length)


def _rational_turns(positions: int, head_dim: int) -> tuple[Any, Any]:
    """Cosines and sines (positions, d_h/2) of m·ω_i for angles whose cosine and sine are rational, exactly.

    (1 + it)²/(1 + t²) is a rotation for every rational t; pair i takes t = 1/(i + 2), position m its m-th power.
    """
    cos, sin = (np.full((positions, head_dim // 2), Fraction(start), dtype=object) for start in (1, 0))
    for i in range(head_dim // 2):
        t = Fraction(1, i + 2)
        c, s = (1 - t * t) / (1 + t * t), 2 * t / (1 + t * t)
        for m in range(1, positions):
            cos[m, i], sin[m, i] = cos[m - 1, i] * c - sin[m - 1, i] * s, cos[m - 1, i] * s + sin[m - 1, i] * c
    return cos, sin


def _exact(positions: int, head_dim: int, pairing: str, seed: int, spreads: Evidence) -> None:
    """In symbols, and in rationals at all pairs of positions."""
    generator = np.random.Generator(np.random.PCG64(seed))
    q, k = (RATIONAL.array(generator.integers(-9, 10, head_dim)) for _ in range(2))
    cos, sin = _rational_turns(positions, head_dim)

    def turned(x: Any, factor: int = 1) -> Any:
        tiled = np.broadcast_to(x, (positions, head_dim))
        return rope.rotate(tiled, factor * cos, factor * sin, pairing, RATIONAL.join)

    def several(keys: str = "turned") -> int:
        scores = turned(q) @ (turned(k) if keys == "turned" else np.broadcast_to(k, (positions, head_dim))).T
        return sum(len(set(group)) > 1 for group in groups(scores).values())

    def other(factor: int = 1) -> int:
        return sum(x @ x != q @ q for x in turned(q, factor))

    symbols = spreads.of(by=routes.SYMBOLS, against="addition theorem", head_dim=4)
    turns = spreads.of(by=routes.RATIONAL, against="one value for every difference", head_dim=head_dim)
    for where, quantity, of, claim, name, change in (
        (symbols, "terms of (q·k at positions m, n) − (q·k at positions m − n, 0) that do not cancel",
         lambda **c: _symbols(pairing, **c)[0],
         "A6.1", "only the query rotated", {"keys": "still"}),
        (symbols, "terms of (squared length after the rotation) − (squared length before) that do not cancel",
         lambda **c: _symbols(pairing, **c)[1], "A6.2", "rotation times 2", {"factor": 2}),
        (turns, "differences m − n with more than one value of q·k", several, "A6.1", "only the query rotated",
         {"keys": "still"}),
        (turns, "positions where the squared length differs", other, "A6.2", "rotation times 2", {"factor": 2}),
    ):  # fmt: skip
        here = where.of(claim)
        here.equal(quantity, of(), 0)
        here.control(name, quantity, of, change, exactly(0))


def _turning(where: Any, base: float, pairing: str, factor: float = 1.0) -> Turn:
    """For `Sample.products`: query and key of one draw turned to the positions (2, draws) drawn for it."""

    def turn(x: Any, which: int, start: int) -> Any:
        angles = where[which, start : start + len(x), None, None] * rope.frequencies(x.shape[-1], base)
        return rope.rotate(x, factor * np.cos(angles), factor * np.sin(angles), pairing, SEQUENTIAL.join)

    return turn


def _scale(
    sample: Sample, half_width: float, positions: int, base: float, pairing: str, factor: float, stays: Evidence
) -> None:
    """A6.3: A4's standard deviations once more, with query and key at positions drawn for each pair of projections."""
    where = np.random.Generator(np.random.PCG64([sample.seed, 1])).integers(0, positions, (2, sample.draws))

    def key_turned(k: list[Any], factor: int = 1) -> list[Any]:
        cos, sin = (np.array([[Fraction(factor * part, 5)]], dtype=object) for part in (3, 4))
        return list(rope.rotate(np.array([k], dtype=object), cos, sin, pairing, RATIONAL.join)[0])

    @cache
    def deviation(factor: float = 1.0) -> Any:
        # A rotation of normal projections is another draw of them, so the interval is that of A4.
        return sample.products(_turning(where, base, pairing, factor)).std(axis=0, ddof=1) / np.sqrt(sample.widths)

    def exact(factor: int = 1) -> Any:
        return variance(1, 2, partial(key_turned, factor=factor))

    symbols = stays.of(by=routes.SYMBOLS, against=routes.FORMULA, d_k=2, tried="key rotated by (3 + 4i)/5")
    symbols.equal("variance of q·k", exact(), 2)
    symbols.control("rotation times 2", "variance of q·k", exact, {"factor": 2}, exactly(2), exactly(8))
    for index, width in enumerate(sample.widths):
        low, high = sample.interval(width)
        here = stays.of(by=routes.SAMPLES, against=routes.SAMPLING, source=sample.source, d_k=width)
        of = lambda index=index, **change: float(deviation(**change)[index])  # noqa: E731
        here.inside("standard deviation of q·k/√d_k with RoPE", of(), low, high, headline=width == sample.widths[-1],
                    key=f"rope_{width}")  # fmt: skip
        here.control(f"rotation times {factor:g}", "standard deviation of q·k/√d_k with RoPE", of, {"factor": factor},
                     between(low, high), key=f"stretched_{width}")  # fmt: skip
    widest = max((high - low) / 2 for low, high in map(sample.interval, sample.widths))
    stays.within("half-width of the widest interval, relative", widest, half_width, by=routes.SAMPLING,
                 against="precision asked for in the settings")  # fmt: skip


def compute(
    settings: Mapping[str, Any],
    head_dims: list[int],
    text_head_dim: int,
    pairings: list[str],
    base: float,
    positions: int,
    factor: float,
    scores: dict[str, Any],
    seed: int,
) -> list[dict[str, Any]]:
    """Rows for A6.1 to A6.3.

    One normal q and k for every head width, at all pairs of `positions`; `factor` is the control's stretched rotation;
    `scores` is the sample of A6.3. The text's figures stand beside those of `text_head_dim` and the first pairing.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    spreads = Evidence("A6.1", settings)
    counted = groups(np.zeros((positions, positions)))
    spreads.prints("pairs (m, n)", sum(map(len, counted.values())), Printed("625", DIFFERENCES), by=routes.ENUMERATION)
    spreads.prints("differences m − n", len(counted), Printed("49", DIFFERENCES), by=routes.ENUMERATION)
    for pairing in pairings:
        _exact(positions, min(head_dims), pairing, seed, spreads.of(pairing=pairing))
    for head_dim in head_dims:
        q, k = generator.standard_normal((2, head_dim))
        learned = generator.standard_normal((positions, head_dim))
        for pairing in pairings:
            text = head_dim == text_head_dim and pairing == pairings[0]
            named = spreads.of(head_dim=head_dim, pairing=pairing)
            _rounding(Turns(q, k, learned, base, pairing), factor, text, named)
    draw = {"draws": scores["weight_draws"], "widths": tuple(scores["widths"]), "seed": seed}
    sample = Sample(scores["d_model"], pairs=scores["pairs"], confidence=scores["confidence"], **draw)
    stays = spreads.of("A6.3", pairing=pairings[0])
    _scale(sample, scores["half_width"], positions, base, pairings[0], factor, stays)
    return spreads.rows
