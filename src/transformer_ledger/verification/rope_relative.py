"""Rotary positions: the dot product sees the difference of the positions alone, and lengths stay.

Claims A6.1 to A6.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from transformer_ledger import bounds
from transformer_ledger.cases import case
from transformer_ledger.reference import rope
from transformer_ledger.reference.arithmetic import BACKENDS, RATIONAL, SEQUENTIAL
from transformer_ledger.verification import score_scale

PRINTED = {"head_dim": 24, "positions": 25}
PRINTED_SPREAD, PRINTED_LENGTH = "1.33e-15", "4.44e-16"
U = bounds.UNIT_ROUNDOFF["fp64"]
RUNNING_ERROR = "running error bound, first order (Linnainmaa 1976), with angle, cosine and sine"


def _join(parts: list[Any]) -> Any:
    return np.concatenate(parts, axis=-1)


def rotated(x: Any, positions: Any, base: float, pairing: str, factor: float = 1.0) -> Any:
    """The vector x (d_h,) turned to every position: (positions, d_h); `factor` stretches the rotation."""
    angles = positions[:, None] * rope.frequencies(x.shape[-1], base)
    tiled = np.broadcast_to(x, (len(positions), x.shape[-1]))
    return rope.rotate(tiled, factor * np.cos(angles), factor * np.sin(angles), pairing, _join)


def rotated_bound(x: Any, positions: Any, base: float, pairing: str) -> bounds.Bounded:
    """As `rotated`, with its bound. The frequencies are stored numbers, the same ones at every position."""
    angles = bounds.rounded(positions[:, None] * rope.frequencies(x.shape[-1], base), U)
    tiled = bounds.exact(np.broadcast_to(x, (len(positions), x.shape[-1])), U)
    return rope.rotate(tiled, bounds.cos(angles), bounds.sin(angles), pairing, bounds.concatenate)


def groups(scores: Any) -> dict[int, Any]:
    """q·k (positions, positions) of all pairs (m, n), grouped by m − n."""
    size = len(scores)
    return {offset: np.diagonal(scores, -offset) for offset in range(1 - size, size)}


def spread(scores: Any) -> float:
    """Largest minus smallest score of one difference m − n: the worst over all differences."""
    return max(float(np.ptp(group)) for group in groups(scores).values())


def _symbols(pairing: str) -> tuple[int, int]:
    """Terms left, for d_h = 4, of q·k at (m, n) less q·k at (m − n, 0), and of |q|² turned less |q|²."""
    import sympy

    m, n, *omega = sympy.symbols("m n omega1:3", real=True)
    q, k = (np.array(sympy.symbols(f"{name}1:5", real=True), dtype=object)[None] for name in "qk")

    def turn(x: Any, position: Any) -> Any:
        angles = [position * w for w in omega]
        cos, sin = (np.array([[f(angle) for angle in angles]], dtype=object) for f in (sympy.cos, sympy.sin))
        return rope.rotate(x, cos, sin, pairing, _join)[0]

    relative = turn(q, m) @ turn(k, n) - turn(q, m - n) @ k[0]
    # The addition theorem for (m − n)·ω, Pythagoras for the length; what is left is algebra.
    pythagoras = {sympy.sin(m * w) ** 2: 1 - sympy.cos(m * w) ** 2 for w in omega}
    length = sympy.expand(turn(q, m) @ turn(q, m) - q[0] @ q[0]).subs(pythagoras)
    relative = sympy.expand(sympy.expand_trig(sympy.expand(relative)))
    return score_scale.terms(relative), score_scale.terms(sympy.expand(length))


def _rational_turns(positions: int, head_dim: int) -> tuple[Any, Any]:
    """Cosines and sines (positions, d_h/2) of m·ω_i for angles whose cosine and sine are rational, exactly.

    (1 + it)²/(1 + t²) is a rotation for every rational t; pair i takes t = 1/(i + 2), position m its m-th power.
    """
    cos, sin = (np.empty((positions, head_dim // 2), dtype=object) for _ in range(2))
    for i in range(head_dim // 2):
        t = Fraction(1, i + 2)
        c, s = (1 - t * t) / (1 + t * t), 2 * t / (1 + t * t)
        x, y = Fraction(1), Fraction(0)
        for m in range(positions):
            cos[m, i], sin[m, i] = x, y
            x, y = x * c - y * s, x * s + y * c
    return cos, sin


def _turned(pairing: str, k: list[Any]) -> list[Any]:
    """A key of width 2 turned by a rational rotation."""
    cos, sin = (np.array([[Fraction(part, 5)]], dtype=object) for part in (3, 4))
    return list(rope.rotate(np.array([k], dtype=object), cos, sin, pairing, _join)[0])


def _exact(positions: int, head_dim: int, pairings: list[str], generator: np.random.Generator) -> list[dict[str, Any]]:
    rows = []
    q, k = (RATIONAL.array(generator.integers(-9, 10, head_dim)) for _ in range(2))
    cos, sin = _rational_turns(positions, head_dim)
    for pairing in pairings:
        relative, length = _symbols(pairing)
        turned_q, turned_k = (
            rope.rotate(np.broadcast_to(x, (positions, head_dim)), cos, sin, pairing, _join) for x in (q, k)
        )
        scores = groups(turned_q @ turned_k.T)
        found = (
            (
                "A6.1",
                "d_h=4, in symbols",
                "terms left of q·k at positions m, n less q·k at m − n, 0",
                relative,
                0,
                "symbolic",
            ),
            (
                "A6.2",
                "d_h=4, in symbols",
                "terms left of the rotated vector's squared length less the vector's",
                length,
                0,
                "symbolic",
            ),
            (
                "A6.1",
                f"d_h={head_dim}, rational rotations, positions 0 … {positions - 1}",
                "differences m − n with more than one value of q·k",
                sum(len(set(group)) > 1 for group in scores.values()),
                0,
                "rational",
            ),
            (
                "A6.2",
                f"d_h={head_dim}, rational rotations, positions 0 … {positions - 1}",
                "positions with another squared length",
                sum(x @ x != q @ q for x in turned_q),
                0,
                "rational",
            ),
            (
                "A6.3",
                "d=1, d_k=2, key turned by the angle with cosine 3/5 and sine 4/5",
                "variance of q·k",
                score_scale.variance(1, 2, partial(_turned, pairing)),
                2,
                "symbolic",
            ),
        )
        rows += [
            case(
                claim,
                f"{where}, {pairing}",
                "exact",
                quantity,
                value,
                "==",
                expected,
                bound_source="in symbols" if backend == "symbolic" else "rational arithmetic",
                backend=backend,
            )
            for claim, where, quantity, value, expected, backend in found
        ]
    return rows


def _relative(
    q: Any, k: Any, learned: Any, base: float, pairing: str, factor: float, text: bool, as_printed: bool
) -> list[dict[str, Any]]:
    """A6.1 and A6.2 for one head width and pairing; `learned` (positions, d_h) are absolute position vectors.

    `text`: the text's figures stand beside these; `as_printed`: the sizes are the ones they belong to.
    """
    head_dim, positions = len(q), np.arange(len(learned))
    name = f"d_h={head_dim}, {pairing}"
    turned_q, turned_k = (rotated(x, positions, base, pairing) for x in (q, k))
    bounded_q, bounded_k = (rotated_bound(x, positions, base, pairing) for x in (q, k))
    error = (bounded_q @ bounded_k.swapaxes(-1, -2)).error
    # Two scores of one group are apart by no more than their two errors.
    bound = max(float(np.sort(group)[-2:].sum()) for group in groups(error).values() if len(group) > 1)
    length_error = (
        bounds.sqrt((bounded_q * bounded_q).sum()).error
        + bounds.sqrt((bounds.exact(q, U) * bounds.exact(q, U)).sum()).error
    )
    rows = []
    for run in BACKENDS:

        def scores(a: Any, b: Any, run: Any = run) -> Any:
            return run.matmul(a, b.T)

        named: dict[str, Any] = {"backend": run.name}
        shown = run is SEQUENTIAL and text
        rows.append(
            case(
                "A6.1",
                name,
                "floating",
                "worst spread of q·k among pairs of one difference m − n",
                spread(scores(turned_q, turned_k)),
                "<=",
                bound,
                bound_source=f"{RUNNING_ERROR}, of two scores",
                printed=PRINTED_SPREAD if text else None,
                headline=shown,
                applicable=as_printed or not text,
                **named,
            )
        )
        broken = {
            "learned absolute vectors added instead": scores(q + learned, k + learned),
            "RoPE on the query only": scores(turned_q, np.broadcast_to(k, turned_k.shape)),
        }
        rows += [
            case(
                "A6.1",
                f"{name}, {change}",
                "control",
                "worst spread of q·k among pairs of one difference m − n",
                spread(value),
                ">=",
                100 * bound,
                bound_source="100 × the bound",
                **named,
            )
            for change, value in broken.items()
        ]

        def lengths(x: Any, run: Any = run) -> Any:
            return np.sqrt(run.total(x * x)[:, 0])

        own = lengths(q[None])
        change = lengths(turned_q) - own
        difference, most = bounds.nearest(change, length_error)
        stretched = lengths(rotated(q, positions, base, pairing, factor)) - own
        rows += [
            case(
                "A6.2",
                name,
                "floating",
                "change of the length at the position nearest to its bound",
                difference,
                "<=",
                most,
                bound_source=f"{RUNNING_ERROR}, of both lengths",
                **named,
            ),
            case(
                "A6.2",
                name,
                "floating",
                "largest change of the length over the positions",
                float(np.abs(change).max()),
                "<=",
                float(length_error[int(np.argmax(np.abs(change)))]),
                bound_source=f"{RUNNING_ERROR}, of both lengths",
                printed=PRINTED_LENGTH if text else None,
                headline=shown,
                applicable=as_printed or not text,
                **named,
            ),
            case(
                "A6.2",
                f"{name}, rotation times {factor:g}",
                "control",
                "smallest change of the length over the positions",
                float(np.abs(stretched).min()),
                ">=",
                100 * float(length_error.max()),
                bound_source="100 × the bound",
                **named,
            ),
        ]
    if text:
        rows += [
            case(
                claim,
                f"{name}: the text's figure beside our bound",
                "floating",
                quantity,
                float(printed),
                "<=",
                most,
                bound_source=RUNNING_ERROR,
                printed=printed,
                applicable=as_printed,
            )
            for claim, quantity, printed, most in (
                ("A6.1", "worst spread of q·k among pairs of one difference m − n", PRINTED_SPREAD, bound),
                ("A6.2", "largest change of the length over the positions", PRINTED_LENGTH, float(length_error.max())),
            )
        ]
    return rows


def _turns(positions: Any, base: float, pairing: str, factor: float = 1.0) -> Callable[[Any, int, Any], Any]:
    """For `score_scale.scores`: query and key of one draw turned to the positions (2, draws) drawn for it."""

    def turn(x: Any, which: int, start: Any) -> Any:
        own = positions[which, start : start + len(x), None, None]  # (draws, 1, 1)
        angles = own * rope.frequencies(x.shape[-1], base)  # (draws, 1, d_h/2)
        return rope.rotate(x, factor * np.cos(angles), factor * np.sin(angles), pairing, _join)

    return turn


def _deviations(
    generator: np.random.Generator, base: float, positions: int, pairing: str, factor: float, sample: dict[str, Any]
) -> list[dict[str, Any]]:
    """A6.3: A4's standard deviations once more, with query and key at positions drawn for each pair of projections."""
    d_model, widths, draws, pairs = (sample[key] for key in ("d_model", "widths", "weight_draws", "pairs"))
    confidence = sample["confidence"]
    source = score_scale.interval_source(confidence)
    rows = []
    where = generator.integers(0, positions, (2, draws))
    few = max(draws // 10, 2)
    # A rotation of normal projections is another draw of them, so the interval is that of A4.
    found, stretched = (
        score_scale.scores(generator, d_model, widths, count, pairs, turn=_turns(where, base, pairing, stretch))
        for count, stretch in ((draws, 1.0), (few, factor))
    )
    deviations = [float(found[..., j].std(ddof=1)) for j in range(len(widths))]
    intervals = [score_scale.interval(w, d_model, draws, pairs, confidence) for w in widths]
    quantity = "standard deviation of q·k with RoPE from √d_k"
    rows.append(score_scale.worst_row("A6.3", quantity, deviations, widths, intervals, source))
    for j, (w, (low, high)) in enumerate(zip(widths, intervals, strict=True)):
        root = math.sqrt(w)
        rows += [
            case(
                "A6.3",
                f"d_k={w}, {pairing}",
                "floating",
                "standard deviation of q·k/√d_k with RoPE",
                deviations[j] / root,
                "in",
                (low / root, high / root),
                bound_source=source,
                headline=j == len(widths) - 1,
            ),
            score_scale.half_width_row("A6.3", w, low, high, confidence, sample["half_width"]),
            case(
                "A6.3",
                f"d_k={w}, {pairing}, rotation times {factor:g}",
                "control",
                "distance of the standard deviation of q·k/√d_k from 1",
                abs(float(stretched[..., j].std(ddof=1)) / root - 1),
                ">=",
                100 * (high - low) / (2 * root),
                bound_source="100 × the interval's half-width",
            ),
        ]
    return rows


def compute(
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
    as_printed = {"head_dim": text_head_dim, "positions": positions} == PRINTED
    rows = _exact(positions, min(head_dims), pairings, generator)
    counted = groups(np.zeros((positions, positions)))
    rows += [
        case(
            "A6.1",
            f"positions 0 … {positions - 1}",
            "exact",
            quantity,
            value,
            "==",
            expected,
            bound_source=source,
            printed=printed,
            applicable=positions == PRINTED["positions"],
        )
        for quantity, value, expected, source, printed in (
            ("pairs (m, n)", sum(map(len, counted.values())), positions**2, "positions²", "625"),
            ("differences m − n", len(counted), 2 * positions - 1, "2·positions − 1", "49"),
        )
    ]
    for head_dim in head_dims:
        q, k = generator.standard_normal((2, head_dim))
        learned = generator.standard_normal((positions, head_dim))
        for pairing in pairings:
            text = head_dim == text_head_dim and pairing == pairings[0]
            rows += _relative(q, k, learned, base, pairing, factor, text, as_printed)
    return rows + _deviations(generator, base, positions, pairings[0], factor, scores)
