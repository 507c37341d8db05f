"""B4: rotating query and key by an angle proportional to their position makes their product see the difference alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from transformer_ledger import bounds
from transformer_ledger.cases import case

Array = np.ndarray[Any, np.dtype[Any]]
STORED = {"fp64": 53, "fp32": 24, "bf16": 8}  # bits of the significand, the leading one included


def octaves(count: int, samples: int, generator: np.random.Generator) -> list[tuple[int, list[int]]]:
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


def computed_rotation(positions: Sequence[int], head_dim: int, base: float, dtype: str) -> tuple[Array, Array]:
    """cos and sin of position · ω_i with frequency, angle and result in `dtype`, as fp64 arrays (positions, d_h/2).

    For bf16 the frequencies come from fp32 and are rounded once, as where a model's buffers are cast.
    """
    import torch

    kind = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    wide = torch.float64 if dtype == "fp64" else torch.float32
    exponent = -2.0 * torch.arange(head_dim // 2, dtype=torch.float64) / head_dim
    frequency = torch.pow(torch.tensor(base, dtype=wide), exponent.to(wide)).to(kind)
    angle = torch.tensor(positions, dtype=torch.float64).to(kind)[:, None] * frequency
    return torch.cos(angle).double().numpy(), torch.sin(angle).double().numpy()


def rotation_bound(positions: Sequence[int], head_dim: int, base: float, dtype: str) -> Array:
    """Bound on the error of every cos and sin of `computed_rotation`: roundings of ω, position, angle and result; ≤ 2."""
    u = bounds.UNIT_ROUNDOFF[dtype]
    frequency = bounds.rope_frequencies(head_dim, base, bounds.UNIT_ROUNDOFF["fp64" if dtype == "fp64" else "fp32"])
    if dtype == "bf16":
        frequency = bounds.Bounded(frequency.value, frequency.error + u * frequency.value, u)
    position = np.asarray(positions, np.float64)[:, None]
    representable = np.array([[Fraction(p) == Fraction(_rounded(p, STORED[dtype]))] for p in positions])
    angle = bounds.Bounded(position, np.where(representable, 0.0, u * position), u) * frequency
    # |cos| ≤ 1, so the result's own rounding is at most one library error at 1.
    return np.minimum(angle.error + bounds.LIBRARY * u, 2.0)


def _rounded(integer: int, bits: int) -> int:
    """`integer` ≥ 0 rounded to `bits` significant bits, ties to even."""
    spare = max(integer.bit_length() - bits, 0)
    quotient, rest = divmod(integer, 2**spare)
    half = 2**spare // 2
    up = spare and (rest > half or (rest == half and quotient % 2))
    return (quotient + bool(up)) * 2**spare


class Reference:
    """cos and sin of position · base^(−2i/d_h) to `digits` decimal digits; equal angles are computed once."""

    def __init__(self, digits: int):
        import mpmath

        self._context = mpmath.mp.clone()
        self._context.dps = digits + 10  # ASSUME ten guard digits: positions lose six or seven of them
        self._known: dict[tuple[int, float, Fraction], tuple[Any, Any]] = {}

    def error(self, computed: tuple[Array, Array], positions: Sequence[int], head_dim: int, base: float) -> Array:
        """Larger error of cos and sin, (positions, d_h/2)."""
        out = np.empty(computed[0].shape)
        for row, position in enumerate(positions):
            for i in range(head_dim // 2):
                key = (position, base, Fraction(2 * i, head_dim))
                if key not in self._known:
                    exponent = self._context.mpf(key[2].numerator) / key[2].denominator
                    self._known[key] = self._context.cos_sin(position * self._context.power(base, -exponent))
                cosine, sine = self._known[key]
                out[row, i] = max(
                    abs(cosine - float(computed[0][row, i])), abs(sine - float(computed[1][row, i]))
                )
        return out


def rounding_rows(
    head_dims: Sequence[int],
    bases: Sequence[float],
    dtypes: Sequence[str],
    octaves_: Sequence[tuple[int, Sequence[int]]],
    exact_positions: Sequence[int],
    digits: int,
) -> list[dict[str, Any]]:
    """B4.4: largest error of the rotation at positions up to 2^k, each dtype, base and width, against its bound."""
    reference = Reference(digits)
    rows = []
    groups = [(position, [position], False) for position in exact_positions]
    groups += [(high, list(positions), True) for high, positions in octaves_]
    flat = [position for _, positions, _ in groups for position in positions]
    source = f"roundings of ω, position, angle and cosine; reference of {digits} digits"
    for dtype in dtypes:
        for base in bases:
            for head_dim in head_dims:
                errors = reference.error(computed_rotation(flat, head_dim, base, dtype), flat, head_dim, base)
                bound = rotation_bound(flat, head_dim, base, dtype)
                begin = 0
                for position, positions, octave in groups:
                    part = slice(begin, begin := begin + len(positions))
                    where = f"position={position} base={base:g} d_h={head_dim} dtype={dtype}"
                    rows.append(
                        case(
                            "B4.4",
                            where,
                            "floating",
                            "largest error of cos and sin" + (", positions of the octave" if octave else ""),
                            errors[part].max(),
                            "<=",
                            bound[part].max(),
                            bound_source=source,
                            backend="torch",
                        )
                    )
                rows.append(
                    case(
                        "B4.4",
                        f"all positions, base={base:g} d_h={head_dim} dtype={dtype}",
                        "floating",
                        "cosines and sines beyond their own bound",
                        int(np.count_nonzero(errors > bound)),
                        "==",
                        0,
                        bound_source=source,
                        backend="torch",
                    )
                )
                # A bound that stood still would be broken by the far positions: the error grows.
                near, far = 100 * float(rotation_bound([1], head_dim, base, dtype).max()), float(errors.max())
                if near < 2:
                    rows.append(
                        case(
                            "B4.4",
                            f"farthest positions against the bound of position 1, base={base:g} d_h={head_dim} dtype={dtype}",
                            "control",
                            "largest error of cos and sin",
                            far,
                            ">=",
                            near,
                            bound_source="100 × the bound of position 1",
                            backend="torch",
                        )
                    )
    return rows
