"""B6: LayerNorm takes the mean off and RMSNorm does not; with ε neither keeps quite still under a scale.

Both norms are written once, for any kind of number: symbols, fractions of roots, and numbers that count what is done to
them. torch's own norms are held against them with the running error bound.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from transformer_ledger import bounds
from transformer_ledger.cases import case
from transformer_ledger.formulas import norms as formulas
from transformer_ledger.tables import TableError

TEXT_VECTOR = [1, 3]
PRINTED_RMS = {0: "0.447", 1: "1.342"}  # RMSNorm of the text's vector, component by component
PRINTED_LAYER = {0: "-1", 1: "1"}
KINDS = ("layernorm", "rmsnorm")
Numbers = Sequence[Any]


def rms_norm(x: Numbers, epsilon: Any = 0, root: Callable[[Any], Any] = math.sqrt) -> list[Any]:
    """xᵢ / √(mean(x²) + ε).  [Zhang and Sennrich 2019, arXiv:1910.07467]"""
    scale = 1 / root(total([a * a for a in x]) / len(x) + epsilon)
    return [a * scale for a in x]


def layer_norm(x: Numbers, epsilon: Any = 0, root: Callable[[Any], Any] = math.sqrt) -> list[Any]:
    """RMSNorm of x − mean(x).  [Ba, Kiros and Hinton 2016, arXiv:1607.06450]"""
    mean = total(x) / len(x)
    return rms_norm([a - mean for a in x], epsilon, root)


def total(x: Numbers) -> Any:
    """Sum of one or more numbers, n − 1 additions."""
    out = x[0]
    for a in x[1:]:
        out = out + a
    return out


NORMS: dict[str, Callable[..., list[Any]]] = {"layernorm": layer_norm, "rmsnorm": rms_norm}


class Counted:
    """A number that notes in `done` every operation that it takes part in."""

    def __init__(self, done: Counter[str]):
        self.done = done

    def _note(self, name: str) -> Counted:
        self.done[name] += 1
        return self

    def __add__(self, other: Any) -> Counted:
        return self._note("add")

    def __sub__(self, other: Any) -> Counted:
        return self._note("subtract")

    def __mul__(self, other: Any) -> Counted:
        return self._note("multiply")

    def __truediv__(self, other: Any) -> Counted:
        return self._note("divide")

    def __rtruediv__(self, other: Any) -> Counted:
        return self._note("divide")

    def root(self) -> Counted:
        """A square root."""
        return self._note("root")


def operations(kind: str, width: int) -> int:
    """Scalar operations of one norm of one vector, with ε and without gain and bias, counted one by one."""
    done: Counter[str] = Counter()
    NORMS[kind]([Counted(done) for _ in range(width)], Counted(done), lambda x: x.root())
    return done.total()


def _stored(x: Any, dtype: str) -> Any:
    """A torch tensor of `dtype`."""
    import torch

    kinds = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}
    return torch.tensor(np.asarray(x, np.float64)).to(kinds[dtype])


def _rounded(x: Any, dtype: str) -> Any:
    """Numbers as `dtype` stores them, in float64."""
    return _stored(x, dtype).double().numpy()


def _torch(kind: str, x: Any, epsilon: float, dtype: str) -> Any:
    """torch's own norm of a vector (width,), as float64."""
    from torch.nn import functional

    tensor = _stored(x, dtype)
    norm = functional.layer_norm if kind == "layernorm" else functional.rms_norm
    return norm(tensor, tensor.shape, eps=epsilon).double().numpy()


def _bound(kind: str, x: Any, epsilon: float, dtype: str) -> Any:
    """Values in fp64 and the running error bound in `dtype`."""
    norm = bounds.layer_norm if kind == "layernorm" else bounds.rms_norm
    return norm(bounds.exact(x, bounds.UNIT_ROUNDOFF[dtype]), epsilon=epsilon)


def _root(x: Any) -> Any:
    """√x of a symbolic sum of squares, factored first, so that equal radicands look equal."""
    import sympy

    return sympy.sqrt(sympy.factor(x))


def _changed(a: Numbers, b: Numbers) -> int:
    """Components of two symbolic vectors that are not the same."""
    return sum(_differ(p, q) for p, q in zip(a, b, strict=True))


def _differ(p: Any, q: Any) -> bool:
    """Whether two expressions differ: expanded alike they do not; at one point they may be seen to; else simplified."""
    import sympy

    apart = sympy.expand(p - q)
    if apart == 0:
        return False
    names = sorted(apart.free_symbols, key=str)
    point = {name: sympy.Rational(sympy.prime(i + 3), 7) for i, name in enumerate(names)}
    seen = bool(abs(apart.subs(point).evalf(30)) > sympy.Float("1e-20"))
    return seen or sympy.simplify(apart) != 0


def vector_rows(vector: Sequence[float], epsilon: float) -> list[dict[str, Any]]:
    """B6.1: the text's vector, exactly, as printed, and with ε."""
    import sympy

    x = [sympy.nsimplify(a) for a in vector]
    applicable = list(vector) == TEXT_VECTOR
    mean_square = total([a * a for a in x]) / len(x)
    made = {kind: NORMS[kind](x, 0, _root) for kind in KINDS}
    root = sympy.sqrt(mean_square)
    said = f"({', '.join(map(str, x))})"

    def row(
        where: str, leg: str, quantity: str, measured: Any, relation: str, wanted: Any, **more: Any
    ) -> dict[str, Any]:
        return case("B6.1", f"{where} of {said}", leg, quantity, measured, relation, wanted, **more)

    rows = [
        row(
            "root mean square",
            "exact",
            "its square",
            mean_square,
            "==",
            5,
            printed="√5",
            backend="symbolic",
            applicable=applicable,
        ),
        row(
            "RMSNorm",
            "exact",
            "Σy²/n of the output",
            sympy.nsimplify(total([y * y for y in made["rmsnorm"]]) / len(x)),
            "==",
            1,
            backend="symbolic",
        ),
    ]
    for kind, printed in (("rmsnorm", PRINTED_RMS), ("layernorm", PRINTED_LAYER)):
        for i, text in printed.items():
            if i >= len(x):
                continue
            digits = len(text.partition(".")[2])
            half = Fraction(1, 2 * 10**digits) if digits else Fraction(0)
            value = made[kind][i]
            measured = value if value.is_Rational else float(value)
            interval = (Fraction(text) - half, Fraction(text) + half)
            rows.append(
                row(
                    kind,
                    "exact",
                    f"component {i + 1}",
                    measured,
                    "in",
                    interval,
                    printed=text,
                    backend="symbolic",
                    bound_source="half a unit of the printed digit",
                    applicable=applicable,
                    headline=True,
                )
            )
            bounded = _bound(kind, vector, 0.0, "fp64")
            rows.append(
                row(
                    f"torch's {kind}",
                    "floating",
                    f"component {i + 1}, distance from the exact one",
                    abs(_torch(kind, vector, 0.0, "fp64")[i] - float(value)),
                    "<=",
                    bounded.error[i],
                    bound_source="running error bound",
                    backend="torch",
                )
            )
            with_epsilon = float(_torch(kind, vector, epsilon, "fp64")[i])
            # |y(0) − y(ε)| ≤ |y|·ε/(2r²), as 1 − 1/√(1+t) ≤ t/2; r² is the mean square of what is divided.
            spread = mean_square if kind == "rmsnorm" else mean_square - (total(x) / len(x)) ** 2
            limit = abs(float(value)) * epsilon / (2 * float(spread)) + bounded.error[i]
            rows.append(
                row(
                    f"torch's {kind}, ε {epsilon:g}",
                    "floating",
                    f"component {i + 1}, distance from ε = 0",
                    abs(with_epsilon - float(value)),
                    "<=",
                    limit,
                    bound_source="|y|·ε/(2r²), and running error bound",
                    backend="torch",
                )
            )
    # Dividing by n − 1 is another norm, and so is a root of the sum.
    n = len(x)
    sample = [y * sympy.sqrt(sympy.Rational(n - 1, n)) for y in made["layernorm"]]
    rows += [
        row(
            "LayerNorm with the variance over n − 1",
            "control",
            "components that change",
            _changed(sample, made["layernorm"]),
            ">=",
            1,
            backend="symbolic",
        ),
        row(
            "RMSNorm with a sum in place of the mean",
            "control",
            "components that change",
            _changed([a / (root * sympy.sqrt(n)) for a in x], made["rmsnorm"]),
            ">=",
            1,
            backend="symbolic",
        ),
    ]
    return rows


def shift_rows(
    vector: Sequence[float], constant: float, symbols: Sequence[int], width: int, dtypes: Sequence[str], seed: int
) -> list[dict[str, Any]]:
    """B6.2: one constant on every component, in symbols with and without ε, and in torch."""
    import sympy

    c, epsilon = sympy.Symbol("c", nonzero=True, real=True), sympy.Symbol("epsilon", positive=True)
    rows = []
    for n in symbols:
        x = list(sympy.symbols(f"x1:{n + 1}", real=True))
        for name, value in (("ε = 0", 0), ("any ε", epsilon)):
            for kind, wanted in (("layernorm", 0), ("rmsnorm", n)):
                components = _changed(NORMS[kind]([a + c for a in x], value, _root), NORMS[kind](x, value, _root))
                rows.append(
                    case(
                        "B6.2",
                        f"{kind} of {n} symbols, all + c, {name}",
                        "exact",
                        "components that change",
                        components,
                        "==",
                        wanted,
                        backend="symbolic",
                    )
                )
        uneven = [x[0] + c, *x[1:]]
        rows.append(
            case(
                "B6.2",
                f"layernorm of {n} symbols, the first one + c alone",
                "control",
                "components that change",
                _changed(layer_norm(uneven, 0, _root), layer_norm(x, 0, _root)),
                ">=",
                1,
                backend="symbolic",
            )
        )
    drawn = np.random.Generator(np.random.PCG64(seed)).standard_normal(width)
    for name, full in (("the text's vector", np.asarray(vector, np.float64)), (f"{width} normal components", drawn)):
        for dtype in dtypes:
            x = _rounded(full, dtype)
            stored = _rounded(x + constant, dtype)
            for kind in KINDS:
                change = np.abs(_torch(kind, stored, 0.0, dtype) - _torch(kind, x, 0.0, dtype)).max()
                # Storing x + c rounds it: the exact norms of what was stored stand that far apart.
                moved = _shift_bound(x, constant, bounds.UNIT_ROUNDOFF[dtype])
                bound = (_bound(kind, stored, 0.0, dtype).error + _bound(kind, x, 0.0, dtype).error).max() + moved
                text = name == "the text's vector" and dtype == dtypes[0]
                rows.append(
                    case(
                        "B6.2",
                        f"torch's {kind}, {name}, all + {constant:g}, {dtype}",
                        "floating",
                        "largest change" + (" of LayerNorm" if kind == "layernorm" else " of RMSNorm"),
                        change,
                        "<=" if kind == "layernorm" else ">=",
                        bound,
                        bound_source="running error bounds of both, and the rounding of x + c",
                        backend="torch",
                        headline=text,
                    )
                )
    return rows


def _shift_bound(x: Any, constant: float, u: float) -> float:
    """Bound on how far rounding x + c, where it is stored, moves the norm of it."""
    return float(bounds.layer_norm(bounds.exact(x, u) + constant).error.max())


def scale_rows(
    symbols: Sequence[int],
    width: int,
    epsilons: Sequence[float],
    scales: Sequence[float],
    dtypes: Sequence[str],
    seed: int,
) -> list[dict[str, Any]]:
    """B6.3: a positive factor on every component; with ε, N(a·x; ε) is N(x; ε/a²)."""
    import sympy

    a, epsilon = sympy.symbols("a epsilon", positive=True)
    rows = []
    for n in symbols:
        x = list(sympy.symbols(f"x1:{n + 1}", real=True))
        scaled, turned = [a * b for b in x], [-a * b for b in x]
        for kind in KINDS:
            norm = NORMS[kind]
            plain = norm(x, 0, _root)

            def row(
                where: str, leg: str, count: int, relation: str, wanted: int, kind: str = kind, n: int = n
            ) -> dict[str, Any]:
                return case(
                    "B6.3",
                    f"{kind} of {n} symbols, {where}",
                    leg,
                    "components that change",
                    count,
                    relation,
                    wanted,
                    backend="symbolic",
                )

            rows += [
                row("all × a, ε = 0", "exact", _changed(norm(scaled, 0, _root), plain), "==", 0),
                row(
                    "all × a, any ε", "exact", _changed(norm(scaled, epsilon, _root), norm(x, epsilon, _root)), "==", n
                ),
                row(
                    "all × a with ε against ε/a²",
                    "exact",
                    _changed(norm(scaled, epsilon, _root), norm(x, epsilon / a**2, _root)),
                    "==",
                    0,
                ),
                row("all × −a, ε = 0", "control", _changed(norm(turned, 0, _root), plain), ">=", 1),
            ]
    drawn = np.random.Generator(np.random.PCG64(seed)).standard_normal(width)
    for dtype in dtypes:
        u = bounds.UNIT_ROUNDOFF[dtype]
        x = _rounded(drawn, dtype)
        for scale in scales:
            y = _rounded(x * scale, dtype)
            for kind in KINDS:
                exact_norm = bounds.layer_norm if kind == "layernorm" else bounds.rms_norm
                for value in epsilons:
                    was, now = _torch(kind, x, value, dtype), _torch(kind, y, value, dtype)
                    change = np.abs(now - was).max()
                    # The change that the identity N(a·x; ε) = N(x; ε/a²) predicts, and what rounding may add to it.
                    predicted = np.abs(
                        exact_norm(bounds.exact(x, u), epsilon=value / scale**2).value
                        - _bound(kind, x, value, dtype).value
                    ).max()
                    once = bounds.exact(x, u) * scale  # a·x is rounded where it is stored
                    rounding = (_bound(kind, x, value, dtype).error + exact_norm(once, epsilon=value).error).max()
                    rows.append(
                        case(
                            "B6.3",
                            f"torch's {kind}, {width} components × {scale:g}, ε {value:g}, {dtype}",
                            "floating",
                            "largest change",
                            change,
                            "in",
                            (max(predicted - rounding, 0.0), predicted + rounding),
                            bound_source="N(a·x; ε) = N(x; ε/a²), ± running error bounds",
                            backend="torch",
                            headline=(dtype, scale, kind) == (dtypes[0], scales[0], "rmsnorm"),
                        )
                    )
    return rows


def operation_rows(widths: Sequence[int]) -> list[dict[str, Any]]:
    """B6.4: operations counted one by one; how long they take is in results/timing/norms.parquet."""
    rows = []
    for width in widths:
        counted = {kind: operations(kind, width) for kind in KINDS}
        for kind, formula in (("layernorm", formulas.layer_norm_operations), ("rmsnorm", formulas.rms_norm_operations)):
            rows.append(
                case(
                    "B6.4",
                    f"{kind}, width {width}",
                    "exact",
                    f"operations of {kind}",
                    counted[kind],
                    "==",
                    formula(d=width),
                    unit="operation",
                    headline=width == widths[-1],
                )
            )
        saved = counted["layernorm"] - counted["rmsnorm"]
        rows += [
            case("B6.4", f"width {width}", "exact", "operations that RMSNorm saves", saved, ">=", 1, unit="operation"),
            case(
                "B6.4",
                f"width {width}, LayerNorm of a vector whose mean is known to be 0",
                "control",
                "operations that RMSNorm saves",
                operations("rmsnorm", width) - counted["rmsnorm"],
                "==",
                0,
                unit="operation",
            ),
        ]
    return rows


def compute(
    vector: Sequence[float],
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
    return (
        vector_rows(vector, epsilon)
        + shift_rows(vector, constant, symbols, width, dtypes, seed)
        + scale_rows(symbols, width, epsilons, scales, dtypes, seed)
        + operation_rows(operation_widths)
    )
