"""B4.1–B4.3: turned by an angle proportional to its position, a query meets a key by the difference of the two alone.

Symbolic: the reference decoder's own `rope.rotate` on symbols. Rounded: the same function in fp64 within its running
error bound, and experiment E1's rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from transformer_ledger import bounds, routes, tables
from transformer_ledger.evidence import Evidence, at_most, exactly
from transformer_ledger.formulas import architecture as formulas
from transformer_ledger.model import ModelError, from_architecture
from transformer_ledger.reference import rope
from transformer_ledger.reference.arithmetic import BLAS, RUNNING

PAIRING = rope.PAIRINGS[0]
ODD = {"layers": 1, "heads": 1, "d_ff": 1, "vocabulary": 1, "context": 1, "positions": "rope", "norm": "rmsnorm",
       "feedforward": "gelu"}  # fmt: skip
UNEQUAL = "entries that differ"
PRODUCTS = "dot products that differ"


# In symbols


def turned(pair: Any, angle: Any) -> Any:
    """A pair (…, 1, 2) of symbols turned by an angle; not at all where that is None."""
    import sympy

    if angle is None:
        return pair
    cosine, sine = (np.array([[f(angle)]], object) for f in (sympy.cos, sympy.sin))
    return rope.rotate(pair, cosine, sine, PAIRING, BLAS.join)


def rotation(angle: Any) -> Any:
    """R(angle), 2 × 2: its columns are the turned unit vectors."""
    return turned(np.array([[[1, 0]], [[0, 1]]], object), angle)[:, 0].T


def apart(p: Any, q: Any) -> int:
    """Entries in which two arrays of trigonometric polynomials differ, written out in exponentials."""
    import sympy

    pairs = zip(np.ravel(p), np.ravel(q), strict=True)
    return sum(sympy.expand((a - b).rewrite(sympy.exp)) != 0 for a, b in pairs)


def algebra(rows: Evidence) -> None:
    """B4.1 and B4.3 in symbols."""
    import sympy

    a, b, s = sympy.symbols("a b s", real=True)
    c, d = sympy.cos(b - a), sympy.sin(b - a)

    def entries(sign: int = 1) -> int:
        return apart(rotation(sign * a).T @ rotation(sign * b), np.array([[c, -d], [d, c]]))

    matrix = rows.of("B4.1", by=routes.SYMBOLS, against=routes.FORMULA, tried="R(a)ᵀR(b) against R(b − a)")
    matrix.equal(UNEQUAL, entries(), 0, headline=True)
    matrix.control("rotated in the opposite direction", UNEQUAL, entries, {"sign": -1}, exactly(0), key="backwards")

    q, k = (np.array([list(sympy.symbols(names, real=True))], object) for names in ("q1 q2", "k1 k2"))

    def dot(first: Any, second: Any) -> Any:
        return (turned(q, first) * turned(k, second)).sum()

    dots = rows.of("B4.3", by=routes.SYMBOLS, against=routes.FORMULA)
    for tried, change, angle, changed, second, wanted in (
        ("both at a, against no rotation", "only the key rotated", a, None, a, (q * k).sum()),
        ("at a + s and b + s, against a and b", "only the key shifted", a + s, a, b + s, dot(a, b)),
        ("at a and b, against the key at b − a alone", "the query not rotated", a, None, b, dot(None, b - a)),
    ):

        def differ(first: Any = angle, second: Any = second, wanted: Any = wanted) -> int:
            return apart(dot(first, second), wanted)

        here = dots.of(tried=tried)
        here.equal(PRODUCTS, differ(), 0)
        here.control(change, PRODUCTS, differ, {"first": changed}, exactly(0))


def convention(rows: Evidence, head_dims: Sequence[int], bases: Sequence[float], odd: Sequence[int]) -> None:
    """B4.2: any base in symbols, the table of frequencies, odd widths refused."""
    import mpmath
    import sympy

    m, n = sympy.symbols("m n", integer=True)
    i, theta, d_h = sympy.symbols("i theta d_h", positive=True)
    omega = formulas.rotary_frequency(i=i, theta=theta, d_h=d_h)

    def entries(power: int = 1) -> int:
        return apart(rotation(omega * m**power).T @ rotation(omega * n**power), rotation(omega * (n - m) ** power))

    symbols = rows.of(by=routes.SYMBOLS, against=routes.FORMULA, tried="any base θ, any pair i, any positions m and n")
    symbols.equal(UNEQUAL, entries(), 0, headline=True)
    symbols.control("angles that grow with the square of the position", UNEQUAL, entries, {"power": 2}, exactly(0))
    for head_dim, base in itertools.product(head_dims, bases):
        with mpmath.workdps(40):
            exact = [float(mpmath.power(base, mpmath.mpf(-2 * i) / head_dim)) for i in range(head_dim // 2)]
        bounded = bounds.rope_frequencies(head_dim, base, bounds.UNIT_ROUNDOFF["fp64"])
        limit = bounded.error + bounded.u * bounded.value  # and the rounding of the exact ones

        def off(base: float = base, head_dim: int = head_dim, exact: Any = exact) -> Any:
            return np.abs(rope.frequencies(head_dim, base) - exact)

        here = rows.of(
            by=routes.BLAS, against=routes.DECIMAL, head_dim=head_dim, base=base, source="running error bound"
        )
        here.within("distance from base^(−2i/d_h), at the frequency closest to its bound", off(), limit)
        here.control("a different base", "largest distance", lambda off=off, **more: off(**more).max(), {"base": 2 * base},
                     at_most(limit.max()))  # fmt: skip

    def refused(more: int = 0) -> int:
        count = 0
        for width in odd:
            try:
                rope.pairs(width + more, PAIRING)
            except ValueError:
                try:
                    from_architecture("odd", {**ODD, "d_model": width + more, "head_dim": width + more})
                except ModelError as error:
                    count += error.key == "head_dim"
        return count

    widths = rows.of(by=routes.ENUMERATION, against=routes.TEXT, head_dim=list(odd))
    widths.equal("odd widths rejected", refused(), len(odd))
    widths.control("widths one larger", "widths rejected", refused, {"more": 1}, exactly(len(odd)), exactly(0))


# In fp64


def columns(f: Any, omega: Any, positions: Any, join: Callable[[list[Any]], Any]) -> tuple[Any, ...]:
    """R₁₁, R₂₁, R₁₂, R₂₂ of every pair at `positions` (T, 1), each (T, d_h/2); `f` is NumPy or bounds."""
    head_dim = 2 * omega.shape[-1]
    first, second = rope.pairs(head_dim, PAIRING)
    angles = omega * positions
    out = []
    for one in (first, second):
        unit = np.zeros((len(positions), head_dim))
        unit[:, one] = 1
        x = rope.rotate(unit, f.cos(angles), f.sin(angles), PAIRING, join)
        out += [x[..., first], x[..., second]]
    return tuple(out)


def matrices(rows: Evidence, head_dims: Sequence[int], bases: Sequence[float], positions: Sequence[int]) -> None:
    """B4.1 in fp64: R(mω)ᵀR(nω) against R((n − m)ω) for all pairs of positions and all frequencies of a head."""
    m, n = (axis.ravel()[:, None].astype(float) for axis in np.meshgrid(positions, positions))

    def differences(f: Any, omega: Any, join: Any, sign: int = 1) -> tuple[Any, Any]:
        a, b = (columns(f, omega, sign * position, join) for position in (m, n))
        angle = omega * (n - m)
        return a[0] * b[0] + a[1] * b[1] - f.cos(angle), a[2] * b[0] + a[3] * b[1] - f.sin(angle)

    for head_dim, base in itertools.product(head_dims, bases):
        errors = differences(bounds, bounds.rope_frequencies(head_dim, base, RUNNING.u), RUNNING.join)
        limit = np.stack([entry.error for entry in errors])

        def off(sign: int = 1, head_dim: int = head_dim, base: float = base) -> Any:
            return np.abs(np.stack(differences(np, rope.frequencies(head_dim, base), BLAS.join, sign)))

        here = rows.of(by=routes.BLAS, against=routes.FORMULA, source="running error bound of both", head_dim=head_dim,
                       base=base, positions=list(positions))  # fmt: skip
        here.within("entry of R(a)ᵀR(b) − R(b − a) closest to its bound", off(), limit,
                    headline=(head_dim, base) == (head_dims[-1], bases[0]))  # fmt: skip
        here.control("rotated in the opposite direction", "largest entry of R(a)ᵀR(b) − R(b − a)",
                     lambda off=off, **more: off(**more).max(),
                     {"sign": -1}, at_most(limit.max()))  # fmt: skip


def dots(
    rows: Evidence, head_dims: Sequence[int], bases: Sequence[float], positions: Sequence[int], shift: int, seed: int
) -> None:
    """B4.2 and B4.3 in fp64, drawn vectors: both positions shifted, against what shifting must not be."""
    m, n = positions[-2:]
    for head_dim, base in itertools.product(head_dims, bases):
        q, k = np.random.Generator(np.random.PCG64([seed, head_dim])).standard_normal((2, 1, head_dim))
        omega, bounded = rope.frequencies(head_dim, base), bounds.rope_frequencies(head_dim, base, RUNNING.u)

        def product(
            f: Any, omega: Any, at: tuple[int | None, int], run: Any, power: int = 1, q: Any = q, k: Any = k
        ) -> Any:
            def turn(x: Any, position: int | None) -> Any:
                if position is None:
                    return x
                angles = omega * np.array([[float(position) ** power]])
                return rope.rotate(x, f.cos(angles), f.sin(angles), PAIRING, run.join)

            return (turn(run.array(q), at[0]) * turn(run.array(k), at[1])).sum()

        limit = sum(product(bounds, bounded, at, RUNNING).error.item() for at in ((m, n), (m + shift, n + shift)))

        def moved(
            first: int | None = m + shift,
            power: int = 1,
            product: Any = product,
            omega: Any = omega,
        ) -> float:
            before, after = (product(np, omega, at, BLAS, power) for at in ((m, n), (first, n + shift)))
            return abs(float(after - before))

        here = rows.of(by=routes.BLAS, source="running error bounds of both", head_dim=head_dim, base=base, positions=[m, n],
                       shift=shift)  # fmt: skip
        quantity, keeps = "change of the dot product", at_most(limit)
        here.within(quantity, moved(), limit)
        here.control("only the key shifted", quantity, moved, {"first": m}, keeps)
        here.control("the query not rotated", quantity, moved, {"first": None}, keeps)
        here.of("B4.2").control(
            "angles that grow with the square of the position", quantity, moved, {"power": 2}, keeps
        )


def read(rows: Evidence, made: Sequence[Mapping[str, Any]]) -> None:
    """B4.3 and B4.2: experiment E1's rows whose bound decides; of each kind, width, base and precision the nearest."""
    decisive = [row for row in made if row["decisive"]]
    e1 = rows.of(by=routes.SEQUENTIAL, against=routes.DECIMAL, source="bounds.carried_dot_bound")
    for (text, pairing, head_dim, base, dtype), group in tables.by(
        decisive, "case", "pairing", "head_dim", "base", "dtype"
    ).items():
        here = e1.of(
            tried=f"E1, {text}", pairing=pairing, head_dim=head_dim, dtype=dtype, **({"base": base} if base else {})
        )
        here.within("largest distance of observed, relative and shifted from the reference",
                    [row["difference"] for row in group], [row["bound"] for row in group], rows=len(group))  # fmt: skip
    for row in decisive:
        if row["base"] is None and row["dtype"] == "fp64":
            reach = row["bound"]
            e1.inside("dot product", row["observed"], row["reference"] - reach, row["reference"] + reach, headline=True,
                      tried=f"E1, {row['case']}", positions=[row["m"], row["n"]],
                      key="same" if row["m"] == row["n"] else "printed")  # fmt: skip
    for base, group in tables.by([row for row in decisive if row["base"]], "base").items():
        e1.of("B4.2").equal("E1's cases beyond their bound", sum(not row["holds"] for row in group), 0, leg="floating",
                            base=base, rows=len(group))  # fmt: skip


def compute(
    settings: Mapping[str, Any],
    experiment: Mapping[str, Sequence[Mapping[str, Any]]],
    head_dims: Sequence[int],
    bases: Sequence[float],
    odd_head_dims: Sequence[int],
    positions: Sequence[int],
    shift: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Rows of B4.1 to B4.3, the rounded ones also from experiment E1.

    Rotations of heads `head_dims` wide with `bases` are multiplied at all pairs of `positions`, and vectors drawn from
    `seed` at the last two of them, which `shift` then moves; `odd_head_dims` must be refused.
    """
    rows = Evidence("B4.1", settings)
    algebra(rows)
    convention(rows.of("B4.2"), head_dims, bases, odd_head_dims)
    matrices(rows, head_dims, bases, positions)
    dots(rows.of("B4.3"), head_dims, bases, positions, shift, seed)
    read(rows.of("B4.3"), experiment["rope_dot_product"])
    return rows.rows
