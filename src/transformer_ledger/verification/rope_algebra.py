"""B4: rotating query and key by an angle proportional to their position makes their product see the difference alone.

Symbolic: the reference decoder's own `rope.rotate` on symbols. Rounded: experiment E1's rows, and the rotation's error
against position in three precisions. Angles belong in fp32 or fp64, never in bf16: that is what B4.4 measures.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from transformer_ledger import bounds
from transformer_ledger.bounds import Array
from transformer_ledger.cases import case
from transformer_ledger.experiment import rope_dot_product
from transformer_ledger.formulas import architecture as formulas
from transformer_ledger.model import ModelError, from_architecture
from transformer_ledger.reference import decoder, rope
from transformer_ledger.reference.arithmetic import BLAS, RUNNING

TEXT_BASE = 10000
STORED = {"fp64": 53, "fp32": 24, "bf16": 8}  # bits of the significand, the leading one included
COARSER = {"fp64": "fp32", "fp32": "bf16"}  # the precision whose angles must break the bound of the better one
PAIRING = rope.PAIRINGS[0]


# The algebra


def turned(pair: Any, angle: Any, cos: Callable[[Any], Any], sin: Callable[[Any], Any]) -> Any:
    """A pair (…, 1, 2) rotated by one angle, by the reference decoder's function."""
    cosine, sine = (np.array([[f(angle)]], object) for f in (cos, sin))
    return rope.rotate(pair, cosine, sine, PAIRING, BLAS.join)


def rotation(angle: Any) -> Any:
    """R(angle), 2 × 2, in symbols: the columns are the rotated unit vectors."""
    import sympy

    units = np.array([[[1, 0]], [[0, 1]]], object)
    return turned(units, angle, sympy.cos, sympy.sin)[:, 0].T


def _apart(p: Any, q: Any) -> int:
    """1 where two trigonometric polynomials differ, 0 where they are the same: written out in exponentials."""
    import sympy

    return int(sympy.expand((p - q).rewrite(sympy.exp)) != 0)


def algebra_rows() -> list[dict[str, Any]]:
    """B4.1 and B4.3 in symbols."""
    import sympy

    a, b, s = sympy.symbols("a b s", real=True)
    left, right, other = rotation(a).T @ rotation(b), rotation(b - a), rotation(-a).T @ rotation(-b)

    def row(claim: str, where: str, leg: str, quantity: str, count: int, relation: str, wanted: int) -> dict[str, Any]:
        return case(claim, where, leg, quantity, count, relation, wanted, backend="symbolic")

    entries = [(i, j) for i in range(2) for j in range(2)]
    rows = [
        row(
            "B4.1",
            f"R(a)ᵀR(b), entry ({i + 1}, {j + 1})",
            "exact",
            "differs from R(b − a)",
            _apart(left[i, j], right[i, j]),
            "==",
            0,
        )
        for i, j in entries
    ]
    backwards = rotation(a - b)
    rows += [
        row(
            "B4.1",
            "turned the other way",
            "control",
            "entries that differ from R(b − a)",
            sum(_apart(other[e], right[e]) for e in entries),
            ">=",
            1,
        ),
        row(
            "B4.1",
            "turned the other way",
            "exact",
            "entries that differ from R(a − b)",
            sum(_apart(other[e], backwards[e]) for e in entries),
            "==",
            0,
        ),
    ]
    q, k = (np.array([list(sympy.symbols(names, real=True))], object) for names in ("q1 q2", "k1 k2"))

    def dot(first: Any, second: Any) -> Any:
        x = q if first is None else turned(q, first, sympy.cos, sympy.sin)
        return (x * turned(k, second, sympy.cos, sympy.sin)).sum()

    plain, quantity = (q * k).sum(), "dot products that differ"
    rows += [
        row("B4.3", "both at a, against no rotation", "exact", quantity, _apart(dot(a, a), plain), "==", 0),
        row(
            "B4.3",
            "at a + s and b + s, against a and b",
            "exact",
            quantity,
            _apart(dot(a + s, b + s), dot(a, b)),
            "==",
            0,
        ),
        row(
            "B4.3",
            "q at a against k at b, against k at b − a alone",
            "exact",
            quantity,
            _apart(dot(a, b), dot(None, b - a)),
            "==",
            0,
        ),
        row(
            "B4.3",
            "the key alone rotated, against no rotation",
            "control",
            quantity,
            _apart(dot(None, a), plain),
            ">=",
            1,
        ),
        row("B4.3", "the key alone shifted", "control", quantity, _apart(dot(a, b + s), dot(a, b)), ">=", 1),
    ]
    i, theta, d_h = sympy.symbols("i theta d_h", positive=True)
    omega = formulas.rotary_frequency(i=i, theta=theta, d_h=d_h)
    rows += [
        row("B4.2", "ω_0", "exact", "terms that differ from 1", _apart(omega.subs(i, 0), sympy.Integer(1)), "==", 0),
        row(
            "B4.2",
            "ω_(i+1)/ω_i",
            "exact",
            "terms that differ from θ^(−2/d_h)",
            int(sympy.simplify(sympy.powsimp(omega.subs(i, i + 1) / omega / theta ** (-2 / d_h)) - 1) != 0),
            "==",
            0,
        ),
    ]
    return rows


def _worst(errors: Any, bound: Any) -> tuple[float, float]:
    """Error and bound of the entry that comes nearest to its bound."""
    errors, bound = np.broadcast_arrays(np.asarray(errors, float), np.asarray(bound, float))
    at = np.argmax(errors / np.where(bound > 0, bound, np.inf))
    return float(errors.flat[at]), float(bound.flat[at])


def matrix_rows(head_dims: Sequence[int], bases: Sequence[float], positions: Sequence[int]) -> list[dict[str, Any]]:
    """B4.1 in fp64: R(mω)ᵀR(nω) against R((n − m)ω) for all pairs of positions and all frequencies of a head."""
    u, rows = bounds.UNIT_ROUNDOFF["fp64"], []
    m, n = (axis.ravel()[:, None].astype(float) for axis in np.meshgrid(positions, positions))
    for head_dim in head_dims:
        for base in bases:
            omega = rope.frequencies(head_dim, base)
            bounded = bounds.rope_frequencies(head_dim, base, u)
            values, errors = [], []
            for number, f in ((omega, np), (bounded, bounds)):
                a, b, between = number * m, number * n, number * (n - m)
                entries = (
                    f.cos(a) * f.cos(b) + f.sin(a) * f.sin(b) - f.cos(between),
                    f.sin(a) * f.cos(b) - f.cos(a) * f.sin(b) + f.sin(between),
                )
                if f is np:
                    values = [np.abs(entry) for entry in entries]
                else:
                    errors = [entry.error for entry in entries]
            error, bound = _worst(values, errors)
            rows.append(
                case(
                    "B4.1",
                    f"d_h {head_dim}, base {base:g}, {len(m)} pairs of positions to {max(positions)}",
                    "floating",
                    "entry of R(a)ᵀR(b) − R(b − a) nearest to its bound",
                    error,
                    "<=",
                    bound,
                    bound_source="running error bound",
                    backend="blas",
                    headline=(head_dim, base) == (head_dims[-1], bases[0]),
                )
            )
    return rows


def convention_rows(
    head_dims: Sequence[int], odd: Sequence[int], bases: Sequence[float], made: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """B4.2: the table of frequencies, other bases through the same checks, odd widths refused."""
    u, rows = bounds.UNIT_ROUNDOFF["fp64"], []
    smallest = min(head_dims)
    for i, value in enumerate(rope.frequencies(smallest, TEXT_BASE)):
        bound = float(bounds.rope_frequencies(smallest, TEXT_BASE, u).error[i])
        wanted = float(formulas.rotary_frequency(i=i, theta=TEXT_BASE, d_h=smallest))
        rows.append(
            case(
                "B4.2",
                f"table, d_h {smallest}, base {TEXT_BASE}",
                "floating",
                f"ω_{i}",
                value,
                "in",
                (wanted - 2 * bound, wanted + 2 * bound),
                bound_source="10000^(−2i/d_h) ± running error bounds",
                backend="blas",
                unit="rad/token",
            )
        )
    drawn = [row for row in made if row["base"] is not None]
    for base in sorted({row["base"] for row in drawn}):
        own = [row for row in drawn if row["base"] == base]
        rows.append(
            case(
                "B4.2",
                f"E1 with base {base:g}: {len(own)} cases",
                "floating",
                "cases beyond their bound",
                sum(not row["holds"] for row in own),
                "==",
                0,
                bound_source="each case's own",
                backend="sequential",
                headline=True,
            )
        )
    refused = 0
    for width in odd:
        try:
            rope.pairs(width, PAIRING)
        except ValueError:
            try:
                from_architecture("odd", {**ODD, "d_model": width, "head_dim": width})
            except ModelError as error:
                refused += error.key == "head_dim"
    rows.append(
        case("B4.2", f"odd widths {', '.join(map(str, odd))}", "exact", "widths refused", refused, "==", len(odd))
    )
    return rows


ODD = {
    "layers": 1,
    "heads": 1,
    "d_ff": 1,
    "vocabulary": 1,
    "context": 1,
    "positions": "rope",
    "norm": "rmsnorm",
    "feedforward": "gelu",
}


def _dot(q: Any, k: Any, first: int | None, second: int, omega: Any, key_omega: Any, f: Any) -> Any:
    """Σ over pairs of the rotated q and k, both (half, 2); `first` None leaves q as it is. f is np or bounds."""
    c, s = f.cos(key_omega * float(second)), f.sin(key_omega * float(second))
    x, y = k[:, 0] * c - k[:, 1] * s, k[:, 0] * s + k[:, 1] * c
    p, r = q[:, 0], q[:, 1]
    if first is not None:
        c, s = f.cos(omega * float(first)), f.sin(omega * float(first))
        p, r = q[:, 0] * c - q[:, 1] * s, q[:, 0] * s + q[:, 1] * c
    return (p * x + r * y).sum()


def break_rows(
    head_dims: Sequence[int], bases: Sequence[float], positions: Sequence[int], shift: int, seed: int
) -> list[dict[str, Any]]:
    """Controls of B4.2 and B4.3 with drawn vectors: one side alone turned or shifted, two bases at once."""
    u, rows = bounds.UNIT_ROUNDOFF["fp64"], []
    m, n = positions[-2], positions[-1]
    second = bases[-1] if len(bases) > 1 else 2 * bases[0]
    for head_dim in head_dims:
        generator = np.random.Generator(np.random.PCG64([seed, head_dim]))
        q, k = (rope_dot_product.paired(x, PAIRING) for x in generator.standard_normal((2, head_dim)))
        omega, other = rope.frequencies(head_dim, bases[0]), rope.frequencies(head_dim, second)
        bounded = bounds.rope_frequencies(head_dim, bases[0], u)

        def dot(
            first: int | None, second: int, key_omega: Any = omega, q: Any = q, k: Any = k, omega: Any = omega
        ) -> float:
            return float(_dot(q, k, first, second, omega, key_omega, np))

        def bound(first: int | None, second: int, q: Any = q, k: Any = k, omega: Any = bounded) -> float:
            return float(_dot(bounds.exact(q, u), bounds.exact(k, u), first, second, omega, omega, bounds).error)

        both, limit = dot(m, n), 100 * (bound(m, n) + bound(m + shift, n + shift))
        for claim, name, value in (
            ("B4.3", f"the key alone shifted by {shift}", dot(m, n + shift)),
            ("B4.3", "the query not rotated", dot(None, n)),
            (
                "B4.2",
                f"query turned with base {bases[0]:g}, key with {second:g}, both shifted by {shift}",
                dot(m + shift, n + shift, other),
            ),
        ):
            before = dot(m, n, other) if claim == "B4.2" else both
            rows.append(
                case(
                    claim,
                    f"{name}, d_h {head_dim}, positions {m} and {n}",
                    "control",
                    "change of the dot product",
                    abs(value - before),
                    ">=",
                    limit,
                    bound_source="100 × running error bounds of both",
                    backend="blas",
                )
            )
    return rows


def experiment_rows(made: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """B4.3: experiment E1, the case nearest to its bound for each kind, width, base and precision."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in made:
        groups.setdefault((row["case"], row["pairing"], row["head_dim"], row["base"], row["dtype"]), []).append(row)
    rows = []
    for (name, pairing, head_dim, base, dtype), group in groups.items():
        worst = max(group, key=lambda row: row["difference"] / row["bound"])
        where = name if base is None else f"{name}, {pairing}, d_h {head_dim}, base {base:g}"
        rows.append(
            case(
                "B4.3",
                f"{where}, {dtype}, worst of {len(group)}",
                "floating",
                "largest distance of observed, relative and shifted from the reference",
                worst["difference"],
                "<=",
                worst["bound"],
                bound_source="bounds.carried_dot_bound",
                backend="sequential",
            )
        )
    for row in made:
        if row["base"] is None and row["dtype"] == "fp64":
            rows.append(
                case(
                    "B4.3",
                    f"{row['case']}, positions {row['m']} and {row['n']}",
                    "floating",
                    f"dot product, {row['case']}",
                    row["observed"],
                    "in",
                    (row["reference"] - row["bound"], row["reference"] + row["bound"]),
                    bound_source="reference ± bounds.carried_dot_bound",
                    backend="sequential",
                    headline=True,
                )
            )
    return rows


# Values


def _attend(x: Any, weights: Mapping[str, Any], heads: int, tables: tuple[Any, Any], run: Any, values: bool) -> Any:
    """Causal attention on x (T, d), queries and keys rotated by tables (T, d_h/2), with `values` the values too."""

    def turn(y: Any) -> Any:
        return rope.rotate(y, *tables, PAIRING, run.join)

    q, k, v = (decoder.heads_of(run.matmul(x, weights[name]), heads) for name in ("query", "key", "value"))
    q, k, v = turn(q), turn(k), turn(v) if values else v
    scores = run.matmul(q, k.swapaxes(-1, -2)) * run.array(1 / math.sqrt(q.shape[-1]))
    return run.matmul(run.softmax(scores, decoder.visibility(x.shape[0], True)), v)


def value_rows(heads: int, head_dim: int, tokens: int, shift: int, base: float, seed: int) -> list[dict[str, Any]]:
    """B4.5: the executed attention leaves its values alone; turning them makes the output depend on where it stands."""
    generator = np.random.Generator(np.random.PCG64([seed, tokens]))
    d, u = heads * head_dim, bounds.UNIT_ROUNDOFF["fp64"]
    x = generator.standard_normal((tokens, d))
    weights = {name: generator.standard_normal((d, d)) * d**-0.5 for name in ("query", "key", "value")}
    omega, bounded_omega = rope.frequencies(head_dim, base), bounds.rope_frequencies(head_dim, base, u)

    def output(start: int, values: bool) -> tuple[Any, Any]:
        positions = np.arange(start, start + tokens)[:, None].astype(float)
        tables = (np.cos(positions * omega), np.sin(positions * omega))
        angles = bounded_omega * positions
        bounded = {name: RUNNING.array(value) for name, value in weights.items()}
        error = _attend(
            RUNNING.array(x), bounded, heads, (bounds.cos(angles), bounds.sin(angles)), RUNNING, values
        ).error
        return _attend(x, weights, heads, tables, BLAS, values), error

    (here, error), (there, far_error) = output(0, False), output(shift, False)
    (turned_here, turned_error), (turned_there, turned_far_error) = output(0, True), output(shift, True)
    where = f"{heads} heads of {head_dim}, {tokens} tokens"
    moved, bound = _worst(np.abs(there - here), error + far_error)
    source = "running error bounds of both"
    return [
        *_untouched_rows(heads, head_dim, tokens, base, seed),
        case(
            "B4.5",
            f"all positions shifted by {shift}, {where}",
            "floating",
            "change of the output nearest to its bound",
            moved,
            "<=",
            bound,
            bound_source=source,
            backend="blas",
        ),
        case(
            "B4.5",
            f"values turned too, {where}",
            "control",
            "largest change of the output",
            np.abs(turned_here - here).max(),
            ">=",
            100 * (turned_error + error).max(),
            bound_source=f"100 × {source}",
            backend="blas",
        ),
        case(
            "B4.5",
            f"values turned too, all positions shifted by {shift}, {where}",
            "control",
            "largest change of the output",
            np.abs(turned_there - turned_here).max(),
            ">=",
            100 * (turned_error + turned_far_error).max(),
            bound_source=f"100 × {source}",
            backend="blas",
        ),
    ]


def _untouched_rows(heads: int, head_dim: int, tokens: int, base: float, seed: int) -> list[dict[str, Any]]:
    """What our executed attention really multiplies, against its projections, entry by entry."""
    import torch

    from transformer_ledger.executed.decoder import Decoder

    torch.manual_seed(seed)
    architecture = {
        "layers": 1,
        "d_model": heads * head_dim,
        "heads": heads,
        "head_dim": head_dim,
        "d_ff": 1,
        "vocabulary": 2,
        "context": tokens,
        "positions": "rope",
        "rope_base": base,
        "norm": "rmsnorm",
        "feedforward": "gelu",
    }
    model = Decoder(from_architecture("rotary", architecture))
    attention = model.get_submodule("layers.0.attention")
    projected: dict[str, Any] = {}
    used: dict[str, Any] = {}
    for name in ("query", "key", "value"):
        attention.get_submodule(name).register_forward_hook(lambda _, __, out, name=name: projected.update({name: out}))
    attention.get_submodule("scores").register_forward_pre_hook(
        lambda _, inputs: used.update(query=inputs[0] * math.sqrt(head_dim), key=inputs[1].transpose(-1, -2))
    )
    attention.get_submodule("values").register_forward_pre_hook(lambda _, inputs: used.update(value=inputs[1]))
    with torch.no_grad():
        model(torch.zeros(1, tokens, dtype=torch.long))
    rows = []
    for name in projected:
        before = projected[name].unflatten(-1, (heads, head_dim)).transpose(1, 2)
        # Position 0 is turned by nothing, so the positions after it are compared. The scale is taken off the query,
        # which leaves a rounding or two, so its change is counted from 100 roundings on.
        change = (used[name].view_as(before) - before).abs()[:, :, 1:]
        still = change <= 100 * bounds.UNIT_ROUNDOFF["fp32"] * before.abs()[:, :, 1:]
        count = int((change != 0).sum()) if name == "value" else int((~still).sum())
        relation, wanted = ("==", 0) if name == "value" else (">=", 1)
        rows.append(
            case(
                "B4.5",
                f"our executed attention, {heads} heads of {head_dim}, {tokens} tokens",
                "exact",
                f"entries of {name} that the rotation changes",
                count,
                relation,
                wanted,
                backend="torch",
                headline=name == "value",
            )
        )
    return rows


# Rounding against position


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
    """Bound on the error of every cos and sin of `computed_rotation`: ω, position, angle and result rounded; ≤ 2."""
    u, wide = bounds.UNIT_ROUNDOFF[dtype], bounds.UNIT_ROUNDOFF["fp64" if dtype == "fp64" else "fp32"]
    omega = rope.frequencies(head_dim, base)
    angle = np.abs(np.asarray(positions, np.float64)[:, None] * omega)
    error = bounds.angle_bound(angle, omega, base, wide, bounds.LIBRARY)
    if dtype == "bf16":  # ω, position and product are rounded to bf16 besides
        error = error + (angle + error) * math.expm1(bounds.gamma(3, u))
    # |cos| ≤ 1: the result's own rounding is at most a library error at 1, and two cosines are at most 2 apart.
    return np.asarray(np.minimum(error + bounds.LIBRARY * u, 2.0))


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


def _ends(groups: Sequence[tuple[int, Sequence[int], bool]]) -> list[tuple[int, Sequence[int]]]:
    """First and last octave: where each ends in the flat list of all positions, and its positions."""
    ends = list(itertools.accumulate(len(positions) for _, positions, _ in groups))
    every = [(end, positions) for end, (_, positions, octave) in zip(ends, groups, strict=True) if octave]
    return [every[0], every[-1]]


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
                    at = "up to this position" if octave else f"at {position}, {dtype}"
                    shown = (base, head_dim) == (bases[0], head_dims[-1]) and not octave and dtype != "fp64"
                    rows.append(
                        case(
                            "B4.4",
                            where,
                            "floating",
                            f"largest error of cos and sin {at}",
                            errors[part].max(),
                            "<=",
                            bound[part].max(),
                            bound_source=source,
                            backend="torch",
                            headline=shown,
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
                first, last = (errors[begin - len(positions) : begin] for begin, positions in _ends(groups))
                rows.append(
                    case(
                        "B4.4",
                        f"octave of {groups[-1][0]} against position 1, base={base:g} d_h={head_dim} dtype={dtype}",
                        "floating",
                        "growth of the largest error",
                        last.max() / first.max(),
                        ">=",
                        1,
                        bound_source="no growth",
                        backend="torch",
                    )
                )
                if dtype in COARSER:
                    other = reference.error(
                        computed_rotation(flat, head_dim, base, COARSER[dtype]), flat, head_dim, base
                    )
                    error, limit = _worst(other, bound)
                    rows.append(
                        case(
                            "B4.4",
                            f"angles in {COARSER[dtype]} held to the bound of {dtype}, base={base:g} d_h={head_dim}",
                            "control",
                            "largest error of cos and sin",
                            error,
                            ">=",
                            100 * limit,
                            bound_source=f"100 × the bound of {dtype}",
                            backend="torch",
                        )
                    )
    return rows


def limit_rows(
    dtypes: Sequence[str], head_dims: Sequence[int], bases: Sequence[float], context: int
) -> list[dict[str, Any]]:
    """B4.4, exactly: positions that a precision cannot tell apart, and pairs with angles that training never showed."""
    import torch

    rows = []
    for dtype in dtypes:
        kind = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
        candidates = (2**k + 1 for k in range(1, 63))
        first = next(n for n in candidates if int(torch.tensor(n, dtype=torch.int64).to(kind).item()) != n)
        rows.append(
            case(
                "B4.4",
                f"positions stored in {dtype}",
                "exact",
                f"first position that {dtype} takes for another one",
                first,
                "==",
                2 ** STORED[dtype] + 1,
                backend="torch",
                unit="token",
            )
        )
    for base in bases:
        for head_dim in head_dims:
            slow = int(np.count_nonzero(rope.frequencies(head_dim, base) * context < 2 * math.pi))
            rows.append(
                case(
                    "B4.4",
                    f"base={base:g} d_h={head_dim}, trained on {context} positions",
                    "exact",
                    f"of {head_dim // 2} pairs, those that never turn once",
                    slow,
                    ">=",
                    1,
                    backend="blas",
                    unit="pair",
                )
            )
    return rows


def compute(
    printed: Mapping[str, Any],
    drawn: Mapping[str, Any],
    dtypes: Sequence[str],
    reference_digits: int,
    odd_head_dims: Sequence[int],
    matrix_positions: Sequence[int],
    error: Mapping[str, Any],
    attention: Mapping[str, int],
    trained_context: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Rows of B4.

    `printed`, `drawn`, `dtypes` and `reference_digits` as in experiment.rope_dot_product; `odd_head_dims` must be
    refused; `matrix_positions` are taken in pairs for B4.1; `error`: head_dims, bases, dtypes, octaves, samples,
    exact_positions and digits of B4.4; `attention`: heads, head_dim, tokens and shift of B4.5; `trained_context` in
    tokens.
    """
    import torch

    torch.set_num_threads(1)
    made = rope_dot_product.compute(printed, drawn, dtypes, reference_digits)
    head_dims, bases = drawn["head_dims"], drawn["bases"]
    generator = np.random.Generator(np.random.PCG64(seed))
    groups = octaves(error["octaves"], error["samples"], generator)
    return (
        algebra_rows()
        + matrix_rows(head_dims, bases, matrix_positions)
        + convention_rows(head_dims, odd_head_dims, bases, made)
        + break_rows(head_dims, bases, matrix_positions, drawn["shift"], seed)
        + experiment_rows(made)
        + limit_rows(error["dtypes"], error["head_dims"], error["bases"], trained_context)
        + rounding_rows(
            error["head_dims"], error["bases"], error["dtypes"], groups, error["exact_positions"], error["digits"]
        )
        + value_rows(**attention, base=bases[0], seed=seed)
    )
