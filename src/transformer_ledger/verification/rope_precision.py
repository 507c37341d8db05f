"""B4.4: a rotation can be computed at any position, and its rounding error grows with the position.

Angles belong in fp32 or fp64, never in bf16. The error of every cosine and sine is measured against mpmath, and the bound
is computed first; where it is no smaller than the cosines themselves it says nothing, and the row is shown apart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from transformer_ledger import bounds, routes
from transformer_ledger.bounds import Array
from transformer_ledger.evidence import PAST, Evidence, at_least, at_most, exactly
from transformer_ledger.reference import rope

BITS = {"fp64": 53, "fp32": 24, "bf16": 8}  # of the significand, the leading one included
COARSER = {"fp64": "fp32", "fp32": "bf16"}
LARGEST = 2.0  # distance of two cosines
FLAT = 10  # times the error at position 1: an error that grows no more does not follow the position
Groups = Sequence[tuple[int, Sequence[int]]]  # a position, and the positions up to it that are tried, or it alone


def kind(dtype: str) -> Any:
    """The torch type."""
    import torch

    return {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}[dtype]


def sampled(count: int, samples: int, generator: np.random.Generator) -> list[tuple[int, list[int]]]:
    """(2^k, positions drawn from 2^(k−1)+1 … 2^k, the last one always among them), k = 0 … count."""
    out = []
    for k in range(count + 1):
        low, high = 2**k // 2 + 1, 2**k
        if high - low < samples:
            out.append((high, list(range(low, high + 1))))
        else:
            drawn = generator.integers(low, high, samples - 1).tolist()
            out.append((high, sorted({*drawn, high})))
    return out


def computed(
    positions: Sequence[int], head_dim: int, base: float, dtype: str, angles: str | None = None
) -> tuple[Array, Array]:
    """cos and sin of position · ω_i in `dtype`, the angle in `angles` (the same), as fp64 arrays (positions, d_h/2).

    For bf16 the frequencies come from fp32 and are rounded once, as where a model's buffers are cast.
    """
    import torch

    own, last = kind(angles or dtype), kind(dtype)
    wide = torch.float64 if own is torch.float64 else torch.float32
    exponent = -2.0 * torch.arange(head_dim // 2, dtype=torch.float64) / head_dim
    frequency = torch.pow(torch.tensor(base, dtype=wide), exponent.to(wide)).to(own)
    angle = torch.tensor(positions, dtype=torch.float64).to(own)[:, None] * frequency
    return torch.cos(angle).to(last).double().numpy(), torch.sin(angle).to(last).double().numpy()


def rotation_bound(positions: Sequence[int], head_dim: int, base: float, dtype: str) -> Array:
    """Bound on the error of every cos and sin of `computed`: ω, position, angle and result rounded; ≤ 2."""
    u, wide = bounds.UNIT_ROUNDOFF[dtype], bounds.UNIT_ROUNDOFF["fp64" if dtype == "fp64" else "fp32"]
    omega = rope.frequencies(head_dim, base)
    angle = np.abs(np.asarray(positions, np.float64)[:, None] * omega)
    error = bounds.angle_bound(angle, omega, base, wide, bounds.LIBRARY)
    if dtype == "bf16":  # ω, position and product are rounded to bf16 besides
        error = error + (angle + error) * math.expm1(bounds.gamma(3, u))
    # |cos| ≤ 1: the result's own rounding is at most a library error at 1, and two cosines are at most 2 apart.
    return np.asarray(np.minimum(error + bounds.LIBRARY * u, LARGEST))


class Reference:
    """cos and sin of position · base^(−2i/d_h) to `digits` decimal digits; equal angles are computed once.

    Each is kept as the nearest fp64 number and the fp64 number nearest to the rest: 106 bits.
    """

    def __init__(self, digits: int):
        import mpmath

        self._context = mpmath.mp.clone()
        self._context.dps = digits + 10  # ASSUME ten guard digits: positions lose six or seven of them
        self._known: dict[tuple[int, float, Fraction], list[float]] = {}

    def _table(self, position: int, base: float, exponent: Fraction) -> list[float]:
        key = (position, base, exponent)
        if key not in self._known:
            power = self._context.power(base, -self._context.mpf(exponent.numerator) / exponent.denominator)
            pair = self._context.cos_sin(position * power)
            self._known[key] = [part for exact in pair for part in (float(exact), float(exact - float(exact)))]
        return self._known[key]

    def error(self, computed: tuple[Array, Array], positions: Sequence[int], head_dim: int, base: float) -> Array:
        """Larger error of cos and sin, (positions, d_h/2)."""
        exponents = [Fraction(2 * i, head_dim) for i in range(head_dim // 2)]
        exact = np.array([[self._table(position, base, exponent) for exponent in exponents] for position in positions])
        cosine, sine = (np.abs((exact[..., 2 * k] - computed[k]) + exact[..., 2 * k + 1]) for k in (0, 1))
        return np.maximum(cosine, sine)


def errors(rows: Evidence, reference: Reference, octaves_: Groups, single: Groups, shown: bool, head_dim: int, base: float,
           dtype: str) -> None:  # fmt: skip
    """Largest error at each position against its bound; how it grows; and a coarser type's angles."""
    groups = [*octaves_, *single]
    flat = [position for _, positions in groups for position in positions]
    limit = rotation_bound(flat, head_dim, base, dtype)

    def off(dtype: str = dtype, angles: str | None = None) -> Array:
        return reference.error(computed(flat, head_dim, base, dtype, angles), flat, head_dim, base)

    found, quantity, end = off(), "largest error of cos and sin", 0
    here = rows.of(head_dim=head_dim, base=base, dtype=dtype)
    decisive = limit <= bounds.DECISIVE_SHARE  # of the largest cosine
    here.within(
        "error of the cosine or sine closest to its bound", found[decisive], limit[decisive], tried="all positions"
    )
    for index, (position, positions) in enumerate(groups):
        part = slice(end, end := end + len(positions))
        largest, most = found[part].max(), limit[part].max()
        octave = index < len(octaves_)
        at = here.of(None, **{"up_to" if octave else "position": position})
        if bounds.decides(most, 1.0):
            named = shown and not octave and dtype == "fp32"
            at.within(quantity, largest, most, headline=named, key=f"at_{position}" if named else None)
        else:
            at.theorem(quantity, largest, 0, LARGEST, source="two cosines are no further apart")

    def growth(angles: str | None = None) -> float:
        own = off(angles=angles)
        start = sum(len(positions) for _, positions in octaves_[:-1])
        return float(own[start : start + len(octaves_[-1][1])].max() / own[0].max())

    grown = "largest error up to the last position / error at position 1"
    last = here.of(from_1_to=octaves_[-1][0], source=f"{PAST} × the error at position 1")
    last.beyond(grown, growth(), PAST, key=f"growth_{dtype}" if shown else None)
    if dtype != "fp64":
        last.control("the angle in fp64, only its cosine rounded", grown, growth, {"angles": "fp64"}, at_least(PAST),
                     at_most(FLAT), key=f"flat_{dtype}" if shown else None)  # fmt: skip
    if dtype in COARSER:

        def to_bound(dtype: str = dtype) -> float:
            return float((off(dtype) / limit).max())

        here.control(
            f"angles in {COARSER[dtype]}",
            "largest error, divided by its bound",
            to_bound,
            {"dtype": COARSER[dtype]},
            at_most(1),
        )


def limits(
    rows: Evidence, dtypes: Sequence[str], head_dims: Sequence[int], bases: Sequence[float], context: int
) -> None:
    """Positions that a precision cannot tell apart, and pairs with angles that training never showed."""
    import torch

    for dtype in dtypes:

        def first_lost(dtype: str = dtype) -> int:
            candidates = (2**k + 1 for k in range(1, 63))
            return next(n for n in candidates if int(torch.tensor(n, dtype=torch.int64).to(kind(dtype)).item()) != n)

        here = rows.of(
            by=routes.TORCH, against=routes.FORMULA, unit="token", dtype=dtype, source="bits of the significand"
        )
        quantity, wanted = "first position that is stored as a different number", 2 ** BITS[dtype] + 1
        here.equal(quantity, first_lost(), wanted, key=f"lost_{dtype}")
        if dtype in COARSER:
            here.control(
                f"stored in {COARSER[dtype]}", quantity, first_lost, {"dtype": COARSER[dtype]}, exactly(wanted)
            )
    for base, head_dim in itertools.product(bases, head_dims):

        def slow(context: float = context, head_dim: int = head_dim, base: float = base) -> int:
            return int(np.count_nonzero(rope.frequencies(head_dim, base) * context < 2 * math.pi))

        # base^(−2i/d_h)·context < 2π where i > d_h/2 · log(context/2π)/log(base).
        turning = math.floor(head_dim / 2 * math.log(context / (2 * math.pi)) / math.log(base)) + 1
        pairs = rows.of(
            by=routes.BLAS, against=routes.FORMULA, unit="pair", head_dim=head_dim, base=base, context=context
        )
        quantity = "pairs that do not complete a turn"
        shown = (base, head_dim) == (bases[0], head_dims[-1])
        pairs.equal(quantity, slow(), head_dim // 2 - min(max(turning, 0), head_dim // 2),
                    key="slow" if shown else None)  # fmt: skip
        pairs.control("a context in which the slowest pair completes a turn", quantity, slow,
                      {"context": 2 * math.pi * base}, at_least(1),
                      exactly(0), key="turned" if shown else None)  # fmt: skip


def compute(
    settings: Mapping[str, Any],
    head_dims: Sequence[int],
    bases: Sequence[float],
    dtypes: Sequence[str],
    octaves: int,
    samples: int,
    exact_positions: Sequence[int],
    reference_digits: int,
    trained_context: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Rows of B4.4.

    Errors of the rotation of heads `head_dims` wide with `bases` in `dtypes`, at `samples` positions in each octave up to
    2^`octaves` and at `exact_positions`; pairs that turn less than once in `trained_context` tokens.
    """
    import torch

    torch.set_num_threads(1)
    rows = Evidence("B4.4", settings)
    limits(rows, dtypes, head_dims, bases, trained_context)
    source = f"roundings of ω, position, angle and cosine; reference of {reference_digits} digits"
    generator = np.random.Generator(np.random.PCG64(seed))
    up_to, single = sampled(octaves, samples, generator), [(position, [position]) for position in exact_positions]
    reference = Reference(reference_digits)
    for dtype, base, head_dim in itertools.product(dtypes, bases, head_dims):
        shown = (base, head_dim) == (bases[0], head_dims[-1])
        errors(rows.of(by=routes.TORCH, source=source), reference, up_to, single, shown, head_dim, base, dtype)
    return rows.rows
