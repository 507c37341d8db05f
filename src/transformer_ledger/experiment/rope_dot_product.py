"""The dot product of a rotated query and a rotated key depends on the difference of their positions alone.

Three computations of it in each precision, q at m against k at n, q against k at n − m, and both positions shifted,
against a high-precision reference of the first. Inputs are the numbers as stored in that precision; the angle is exact
in the reference, so the rounding of frequencies and positions is part of the error and of the bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from transformer_ledger import bounds
from transformer_ledger.bounds import Array
from transformer_ledger.reference.precision import ARITHMETICS, Arithmetic

PAIRINGS = ("interleaved", "half-split")


@dataclass(frozen=True)
class Rotation:
    """Frequencies ω_i = base^(−2i/d_h); for d_h = 2 and `base` None one given frequency (as the decimal written)."""

    head_dim: int
    base: float | None
    frequency: float = 1.0

    def frequencies(self, arithmetic: Arithmetic) -> Array:
        """ω as computed in the arithmetic, shape (d_h/2,)."""
        if self.base is None:
            return arithmetic.array([self.frequency])
        exponents = arithmetic.array(-2.0 * np.arange(self.head_dim // 2) / self.head_dim)
        return np.asarray(arithmetic.round(np.power(arithmetic.array(self.base), exponents)))

    def turn(self, pairs: Array, position: int, arithmetic: Arithmetic) -> Array:
        """Pairs (half, 2) turned to `position`, every operation rounded."""
        rounded = arithmetic.round
        angles = rounded(arithmetic.array(position) * self.frequencies(arithmetic))
        c, s = rounded(np.cos(angles)), rounded(np.sin(angles))
        x, y = pairs[:, 0], pairs[:, 1]
        first, second = rounded(rounded(x * c) - rounded(y * s)), rounded(rounded(x * s) + rounded(y * c))
        return np.stack([first, second], axis=-1)

    def bound(self, pairs: Array, position: int, arithmetic: Arithmetic) -> tuple[Array, Array]:
        """The turned pairs and the bound on each computed component's distance from them."""
        base, size = self.base, self.head_dim
        omega = np.array([self.frequency]) if base is None else base ** (-2.0 * np.arange(size // 2) / size)
        angles = position * omega
        error = bounds.angle_bound(angles, omega, base, arithmetic.u, arithmetic.library)
        return bounds.rotation_bound(pairs.astype(np.float64), angles, error, arithmetic.u, arithmetic.library)


@cache
def _turns(rotation: Rotation, position: int, digits: int) -> list[tuple[Any, Any]]:
    """cos and sin of position·ω to `digits` digits."""
    import mpmath

    with mpmath.workdps(digits):
        if rotation.base is None:
            omegas = [mpmath.mpf(repr(rotation.frequency))]
        else:
            size, base = rotation.head_dim, mpmath.mpf(rotation.base)
            omegas = [base ** (-mpmath.mpf(2 * i) / size) for i in range(size // 2)]
        return [(mpmath.cos(position * omega), mpmath.sin(position * omega)) for omega in omegas]


def reference(rotation: Rotation, q: Array, k: Array, m: int, n: int, digits: int) -> Any:
    """q turned to m against k turned to n, both (half, 2), as an mpmath number of `digits` digits."""
    import mpmath

    with mpmath.workdps(digits):
        total = mpmath.mpf(0)
        turned = zip(q.tolist(), k.tolist(), _turns(rotation, m, digits), _turns(rotation, n, digits), strict=True)
        for (q1, q2), (k1, k2), (c, s), (e, t) in turned:
            total += (q1 * c - q2 * s) * (k1 * e - k2 * t) + (q1 * s + q2 * c) * (k1 * t + k2 * e)
        return total


def _dot(a: Array, b: Array, arithmetic: Arithmetic) -> float:
    return float(arithmetic.sum(arithmetic.round(a * b).ravel()))


def row(
    case: str,
    pairing: str,
    rotation: Rotation,
    arithmetic: Arithmetic,
    q: Array,
    k: Array,
    positions: tuple[int, int],
    shift: int,
    digits: int,
) -> dict[str, Any]:
    """One row of the table; q and k are pairs (half, 2) as stored in the arithmetic."""
    import mpmath

    m, n = positions
    exact = reference(rotation, q, k, m, n, digits)
    none = (q.astype(np.float64), np.zeros(1))

    def computed(first: int | None, second: int) -> tuple[float, float]:
        """The dot product, and the bound on its error; `first` None leaves q as it is."""
        a = q if first is None else rotation.turn(q, first, arithmetic)
        value = _dot(a, rotation.turn(k, second, arithmetic), arithmetic)
        turned, error = none if first is None else rotation.bound(q, first, arithmetic)
        return value, bounds.carried_dot_bound(turned, error, *rotation.bound(k, second, arithmetic), arithmetic.u)

    pairs = [computed(m, n), computed(None, n - m), computed(m + shift, n + shift)]
    with mpmath.workdps(digits):
        distances = [float(abs(mpmath.mpf(value) - exact)) for value, _ in pairs]
    bound = max(bound for _, bound in pairs)
    return {
        "case": case,
        "pairing": pairing,
        "head_dim": rotation.head_dim,
        "base": rotation.base,
        "dtype": arithmetic.name,
        "m": m,
        "n": n,
        "observed": pairs[0][0],
        "relative": pairs[1][0],
        "shifted": pairs[2][0],
        "reference": float(exact),
        "reference_decimal": mpmath.nstr(exact, digits - 10),
        "difference": max(distances),
        "bound": bound,
        "decisive": bounds.decides(bound, abs(float(exact))),
        "holds": all(distance <= bound for distance, (_, bound) in zip(distances, pairs, strict=True)),
    }


def paired(x: Array, pairing: str) -> Array:
    """A head's vector (d_h,) as pairs (d_h/2, 2): (x_2i, x_2i+1) interleaved, (x_i, x_(i+d_h/2)) half-split."""
    return x.reshape(-1, 2) if pairing == PAIRINGS[0] else x.reshape(2, -1).T


def compute(
    printed: Mapping[str, Any], drawn: Mapping[str, Any], dtypes: Sequence[str], reference_digits: int
) -> list[dict[str, Any]]:
    """Rows of experiment/rope_dot_product.

    `printed`: the text's q, k (two components), frequency, positions m and n, shift, and the angle that both are turned
    by in the second case. `drawn`: seed, head_dims, bases, pairings, positions [m, n] and shift of normal vectors.
    """
    rows = []
    for name in dtypes:
        arithmetic = ARITHMETICS[name]
        q, k = (arithmetic.array(printed[side]).reshape(1, 2) for side in ("q", "k"))
        for case, frequency, positions in (
            ("printed", printed["frequency"], (printed["m"], printed["n"])),
            ("printed, one angle for both", printed["equal_angle"], (1, 1)),
        ):
            text = Rotation(2, None, float(frequency))
            rows.append(row(case, PAIRINGS[0], text, arithmetic, q, k, positions, printed["shift"], reference_digits))
    for head_dim in drawn["head_dims"]:
        generator = np.random.Generator(np.random.PCG64([drawn["seed"], head_dim]))
        vectors = generator.standard_normal((2, head_dim))
        for base in drawn["bases"]:
            for pairing in drawn["pairings"]:
                for m, n in drawn["positions"]:
                    for name in dtypes:
                        arithmetic = ARITHMETICS[name]
                        q, k = (paired(arithmetic.array(x), pairing) for x in vectors)
                        rotation = Rotation(head_dim, float(base))
                        rows.append(
                            row("drawn", pairing, rotation, arithmetic, q, k, (m, n), drawn["shift"], reference_digits)
                        )
    return rows
