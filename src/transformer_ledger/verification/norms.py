"""B6: LayerNorm takes the mean off and RMSNorm does not; with ε neither keeps quite still under a scale.

The reference decoder's norm runs on symbols and on numbers that count what is done to them; torch's own norms are held
against it within the running error bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from transformer_ledger import bounds, routes
from transformer_ledger.evidence import PAST, Evidence, Printed, at_least, at_most, exactly
from transformer_ledger.formulas import norms as formulas
from transformer_ledger.reference.arithmetic import BLAS, Blas
from transformer_ledger.tables import TableError

KINDS = {"layernorm": formulas.layer_norm_operations, "rmsnorm": formulas.rms_norm_operations}
PRINTED = {"layernorm": ("-1", "1"), "rmsnorm": ("0.447", "1.342")}  # of the vector (1, 3)
TEXT = {"vector": [1, 3]}
MOVED = "components that change"


class Symbols(Blas):
    """SymPy expressions; radicands are factored, so that equal ones look equal."""

    def root(self, x: Any) -> Any:
        import sympy

        return np.vectorize(lambda entry: sympy.sqrt(sympy.factor(entry)), otypes=[object])(x)


class Counted:
    """A number that counts the operations it takes part in."""

    done = 0

    def _operation(self, *_: Any) -> Counted:
        Counted.done += 1
        return self

    __add__ = __sub__ = __mul__ = __truediv__ = sqrt = _operation


def operations(width: int, kind: str) -> int:
    """Scalar operations of the reference's norm of one vector, with ε and without gain and bias, one by one."""
    Counted.done = 0
    BLAS.norm(kind, np.array([Counted() for _ in range(width)]), None, None, Counted())
    return Counted.done


def named(n: int) -> Any:
    """n real symbols as a vector."""
    import sympy

    return np.array(sympy.symbols(f"x1:{n + 1}", real=True), object)


def apart(a: Any, b: Any) -> int:
    """Components of two symbolic vectors that differ: expanded, else at one point, else simplified."""
    import sympy

    def differ(p: Any, q: Any) -> bool:
        rest = sympy.expand(p - q)
        names = sorted(rest.free_symbols, key=str)
        point = {name: sympy.Rational(sympy.prime(i + 3), 7) for i, name in enumerate(names)}
        seen = bool(abs(rest.subs(point).evalf(30)) > sympy.Float("1e-20"))
        return seen or (rest != 0 and sympy.simplify(rest) != 0)

    return sum(differ(p, q) for p, q in zip(a, b, strict=True))


def shipped(kind: str, x: Any, epsilon: float, dtype: str = "fp64") -> Any:
    """torch's own norm of a vector (width,) stored in `dtype`, as float64."""
    import torch
    from torch.nn import functional

    tensor = torch.tensor(np.asarray(x, np.float64)).to({"fp64": torch.float64, "fp32": torch.float32}[dtype])
    norm = functional.layer_norm if kind == "layernorm" else functional.rms_norm
    return norm(tensor, tensor.shape, eps=epsilon).double().numpy()


def bounded(kind: str, x: Any, epsilon: float) -> Any:
    """The norm of a bounded vector, with the running error bound."""
    return (bounds.layer_norm if kind == "layernorm" else bounds.rms_norm)(x, epsilon=epsilon)


def text_rows(rows: Evidence, given: Sequence[int], epsilon: float) -> None:
    """B6.1: the text's vector in symbols, as printed, and in torch, with and without ε."""
    import sympy

    x, exact = np.array([sympy.Integer(a) for a in given], object), Symbols()
    root = x[0] / exact.norm("rmsnorm", x, None, None, 0)[0]
    rows.prints("square of RMSNorm's divisor, printed as a root", root**2, Printed("5", TEXT), by=routes.SYMBOLS)
    for kind in KINDS:
        here = rows.of(norm=kind)
        for i, text in enumerate(PRINTED[kind][: len(given)]):
            value = exact.norm(kind, x, None, None, 0)[i]
            here.prints(f"component {i + 1}", value if value.is_Rational else float(value), Printed(text, TEXT),
                        by=routes.SYMBOLS, headline=True, key=f"{kind}_{i + 1}")  # fmt: skip
        for value in (0.0, epsilon):
            y = bounded(kind, bounds.exact(given, bounds.UNIT_ROUNDOFF["fp64"]), value)
            limit = y.error + y.u * np.abs(y.value)  # and the rounding of the exact components

            def off(kind: str = kind, value: float = value, own: str = kind, own_epsilon: float = value) -> Any:
                exactly = exact.norm(own, x, None, None, sympy.Rational(str(own_epsilon))).astype(float)
                return np.abs(shipped(kind, given, value) - exactly)

            torch = here.of(by=routes.TORCH, against=routes.SYMBOLS, source="running error bound", epsilon=value)
            torch.within("distance from the exact component, at the one closest to its bound", off(), limit)
            (other,) = KINDS.keys() - {kind}
            for change, changed in (
                (f"compared with {other}", {"own": other}),
                ("compared with ε = 0.1", {"own_epsilon": 0.1}),
            ):
                torch.control(change, "largest distance from the exact components", lambda off=off, **more: off(**more).max(),
                              changed, at_most(limit.max()))  # fmt: skip


def shifts(
    rows: Evidence, widths: Sequence[int], vectors: Mapping[str, Any], constant: float, dtypes: Sequence[str]
) -> None:
    """B6.2: one constant on every component, in symbols with and without ε, and in torch."""
    import sympy

    c, exact = sympy.Symbol("c", nonzero=True, real=True), Symbols()
    for n in widths:
        for epsilon in (0, sympy.Symbol("epsilon", positive=True)):
            x = named(n)

            def moved(kind: str = "layernorm", shifted: Any = x + c, x: Any = x, epsilon: Any = epsilon) -> int:
                return apart(exact.norm(kind, shifted, None, None, epsilon), exact.norm(kind, x, None, None, epsilon))

            here = rows.of(by=routes.SYMBOLS, against=routes.TEXT, components=n, epsilon=str(epsilon))
            here.equal(MOVED, moved(), 0, norm="layernorm")
            here.equal(MOVED, moved("rmsnorm"), n, norm="rmsnorm")
            here.control("the mean not subtracted", MOVED, moved, {"kind": "rmsnorm"}, exactly(0), exactly(n))
            uneven = np.array([x[0] + c, *x[1:]], object)
            here.control("only the first component shifted", MOVED, moved, {"shifted": uneven}, exactly(0))
    for name, full in vectors.items():
        for dtype in dtypes:
            x, kept = (
                np.asarray(full),
                bounds.exact(full, bounds.UNIT_ROUNDOFF[dtype]),
            )  # x + c is rounded where it is stored
            limit = (bounded("layernorm", kept + constant, 0.0).error + bounded("layernorm", kept, 0.0).error).max()

            def change(kind: str = "layernorm", x: Any = x, dtype: str = dtype) -> float:
                return float(np.abs(shipped(kind, x + constant, 0.0, dtype) - shipped(kind, x, 0.0, dtype)).max())

            here = rows.of(
                by=routes.TORCH, source="running error bounds of both", vector=name, shift=constant, dtype=dtype
            )
            shown = (name, dtype) == ("text", dtypes[0])
            here.within(
                "largest change of LayerNorm", change(), limit, headline=shown, key="layernorm" if shown else None
            )
            here.control("the mean not subtracted", "largest change", change, {"kind": "rmsnorm"}, at_most(limit),
                         key="rmsnorm" if shown else None)  # fmt: skip


def factors(rows: Evidence, widths: Sequence[int]) -> None:
    """B6.3 in symbols: a positive factor on every component; with ε, N(a·x; ε) is N(x; ε/a²)."""
    import sympy

    a, epsilon = sympy.symbols("a epsilon", positive=True)
    exact = Symbols()
    for n in widths:
        for kind in KINDS:
            x = named(n)

            def moved(epsilon: Any = 0, factor: Any = a, other: Any = None, kind: str = kind, x: Any = x) -> int:
                before = exact.norm(kind, x, None, None, epsilon if other is None else other)
                return apart(exact.norm(kind, factor * x, None, None, epsilon), before)

            here = rows.of(by=routes.SYMBOLS, against=routes.TEXT, norm=kind, components=n, tried="all × a > 0")
            here.equal(MOVED, moved(), 0, epsilon="0")
            here.equal(MOVED, moved(epsilon), n, epsilon="any")
            here.control("ε > 0", MOVED, moved, {"epsilon": epsilon}, exactly(0), exactly(n))
            here.control("a negative factor", MOVED, moved, {"factor": -a}, exactly(0))
            here.of(against=routes.FORMULA).equal(
                "components that differ from those with ε/a²", moved(epsilon, a, epsilon / a**2), 0
            )


def scaled(rows: Evidence, x: Any, scales: Sequence[float], epsilons: Sequence[float], dtypes: Sequence[str]) -> None:
    """B6.3 in torch: the change that N(a·x; ε) = N(x; ε/a²) predicts, a being the factor, and what rounding adds."""
    for dtype in dtypes:
        kept = bounds.exact(x, bounds.UNIT_ROUNDOFF[dtype])
        for kind in KINDS:
            for factor in scales:
                for epsilon in epsilons:
                    y = kept * factor  # rounded where it is stored
                    limit = (bounded(kind, y, epsilon).error + bounded(kind, kept, epsilon).error).max()

                    def off(power: int = 2, kind: str = kind, factor: float = factor, epsilon: float = epsilon,
                            kept: Any = kept, dtype: str = dtype) -> float:  # fmt: skip
                        expected = bounded(kind, kept, epsilon / factor**power).value
                        return float(np.abs(shipped(kind, kept.value * factor, epsilon, dtype) - expected).max())

                    here = rows.of(by=routes.TORCH, norm=kind, factor=factor, epsilon=epsilon, dtype=dtype)
                    here.within(
                        "largest distance from the norm with ε/a²", off(), limit, source="running error bounds of both"
                    )
                    change = np.abs(
                        shipped(kind, kept.value * factor, epsilon, dtype) - shipped(kind, kept.value, epsilon, dtype)
                    )
                    shown = (dtype, factor, kind) == (dtypes[0], scales[0], "rmsnorm")
                    if epsilon == 0:
                        here.within(
                            "largest change", change.max(), limit, source="running error bounds of both", headline=shown
                        )
                    elif (factor, dtype) == (scales[0], dtypes[0]):
                        here.beyond(
                            "largest change",
                            change.max(),
                            PAST * limit,
                            headline=shown,
                            key=f"{kind}_moved" if epsilon == epsilons[-1] else None,
                        )
                        here.control("ε/a in place of ε/a²", "largest distance from the norm with ε/a²", off, {"power": 1},
                                     at_most(limit))  # fmt: skip


def counts(rows: Evidence, widths: Sequence[int]) -> None:
    """B6.4: operations counted one by one; how long they take is in results/timing/norms.parquet."""
    for width in widths:
        here = rows.of(by=routes.ENUMERATION, against=routes.FORMULA, width=width)
        for kind, formula in KINDS.items():
            shown = width == widths[-1]
            here.equal(f"operations of {kind}", operations(width, kind), formula(d=width), headline=shown,
                       key=kind if shown else None)  # fmt: skip
        here.control("the mean subtracted too", "operations", lambda kind="rmsnorm", width=width: operations(width, kind),
                     {"kind": "layernorm"}, exactly(KINDS["rmsnorm"](d=width)), at_least(KINDS["layernorm"](d=width)))  # fmt: skip


def compute(
    settings: Mapping[str, Any],
    vector: Sequence[int],
    constant: float,
    epsilon: float,
    symbols: Sequence[int],
    width: int,
    dtypes: Sequence[str],
    epsilons: Sequence[float],
    scales: Sequence[float],
    operation_widths: Sequence[int],
    seed: int,
) -> list[dict[str, Any]]:
    """Rows of B6.

    `vector`, `constant` and `epsilon` of the text's example; `symbols` widths of the symbolic leg; `width` components
    drawn from `seed` and run in `dtypes`, times `scales`, with `epsilons`; `operation_widths` whose operations are
    counted.
    """
    import torch

    if len(set(vector)) == 1 or constant == 0:
        raise TableError("verification.norms: the components of vector must differ from one another, constant from 0")
    torch.set_num_threads(1)
    # Exact in every dtype.
    drawn = np.random.Generator(np.random.PCG64(seed)).standard_normal(width).astype(np.float32).astype(np.float64)
    rows = Evidence("B6.1", settings)
    text_rows(rows, vector, epsilon)
    shifts(rows.of("B6.2"), symbols, {"text": np.asarray(vector, float), "drawn": drawn}, constant, dtypes)
    factors(rows.of("B6.3"), symbols)
    scaled(rows.of("B6.3"), drawn, scales, epsilons, dtypes)
    counts(rows.of("B6.4"), operation_widths)
    return rows.rows
