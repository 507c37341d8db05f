"""B7: F(x) = [SiLU(xW_g) ⊙ (xW_u)]W_d; its third matrix makes it half as large again, or two thirds as wide.

Executed: our torch feed-forward with drawn weights against the NumPy reference. Ledger: the formulas, in symbols and
against the executed tensors and operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from transformer_ledger.cases import case
from transformer_ledger.formulas import architecture as formulas
from transformer_ledger.model import Feedforward
from transformer_ledger.reference import decoder
from transformer_ledger.reference.arithmetic import BLAS, RATIONAL, RUNNING
from transformer_ledger.verification.teaching_parameters import terms

NAMES = ("gate", "up", "down")


def drawn(d: int, f: int, tokens: int, seed: int) -> tuple[Any, dict[str, Any]]:
    """Inputs (T, d) and weights W_g, W_u (d, f), W_d (f, d), of variance 1 and 1/inputs."""
    generator = np.random.Generator(np.random.PCG64(seed))
    shapes = {"gate": (d, f), "up": (d, f), "down": (f, d)}
    x = generator.standard_normal((tokens, d))
    return x, {name: generator.standard_normal(shape) * shape[0] ** -0.5 for name, shape in shapes.items()}


def _executed(x: Any, weights: Mapping[str, Any], kind: str = "gated") -> Any:
    """Our executed decoder's feed-forward with these weights, fp64."""
    import torch

    from transformer_ledger.executed.decoder import Feedforward as Module

    d, f = weights["up"].shape
    module = Module(d, kind, f, bias=False).double()
    with torch.no_grad():
        for name, weight in module.named_parameters():
            weight.copy_(torch.from_numpy(weights[name.removesuffix(".weight")].T.copy()))
        return module(torch.from_numpy(x)).numpy()


def _direct(x: Any, weights: Mapping[str, Any]) -> Any:
    """The text's formula written out with loops, in fractions, the SiLU's rational stand-in max(x, 0)."""

    def product(rows: Any, matrix: Any) -> list[list[Any]]:
        return [[sum(a * b for a, b in zip(row, column, strict=True)) for column in matrix.T] for row in rows]

    gate, up = product(x, weights["gate"]), product(x, weights["up"])
    hidden = [[max(g, Fraction(0)) * u for g, u in zip(a, b, strict=True)] for a, b in zip(gate, up, strict=True)]
    return np.array(product(hidden, weights["down"]), object)


def function_rows(d: int, f: int, tokens: int, seed: int) -> list[dict[str, Any]]:
    """B7.1: the executed module is the formula; other activations, no gate and swapped matrices are other functions."""
    x, weights = drawn(d, f, tokens, seed)
    own, plain = Feedforward("gated", f), Feedforward("gelu", f)

    def run(arithmetic: Any, weights: Mapping[str, Any] = weights, spec: Feedforward = own) -> Any:
        inside = {name: arithmetic.array(value) for name, value in weights.items()}
        return decoder.feedforward(arithmetic.array(x), inside, spec, arithmetic)

    result, bound = run(BLAS), run(RUNNING).error.max()
    where = f"d {d}, f {f}, {tokens} tokens"
    small = {name: value[:3, :3] for name, value in weights.items()}
    rational_x, rational = RATIONAL.array(x[:2, :3]), {name: RATIONAL.array(value) for name, value in small.items()}
    apart = np.count_nonzero(decoder.feedforward(rational_x, rational, own, RATIONAL) != _direct(rational_x, rational))

    class Gelu(type(BLAS)):  # type: ignore[misc]
        silu = BLAS.gelu

    swapped = {"gate": weights["up"], "up": weights["gate"], "down": weights["down"]}
    rows = [
        case(
            "B7.1",
            "3 × 3 corner, SiLU replaced by max(x, 0)",
            "exact",
            "entries that differ from the formula",
            int(apart),
            "==",
            0,
            backend="rational",
        ),
        case(
            "B7.1",
            f"our executed module, {where}",
            "floating",
            "largest difference from the formula",
            np.abs(_executed(x, weights) - result).max(),
            "<=",
            2 * bound,
            bound_source="2 × running error bound",
            backend="torch",
            headline=True,
        ),
    ]
    import torch

    from transformer_ledger.executed.decoder import Feedforward as Module

    with torch.device("meta"):
        module = Module(d, "gated", f, bias=False)
    wanted = {"gate": (d, f), "up": (d, f), "down": (f, d)}
    wrong = sum(tuple(module.get_parameter(f"{name}.weight").shape)[::-1] != shape for name, shape in wanted.items())
    rows.append(
        case(
            "B7.1",
            f"executed tensors, {where}",
            "exact",
            "shapes other than [d,f], [d,f], [f,d]",
            wrong,
            "==",
            0,
            backend="torch",
        )
    )
    source = "100 × both running error bounds"
    for name, leg, other in (
        ("GELU in place of SiLU", "floating", run(Gelu())),
        ("no gate: GELU(xW_u)W_d", "floating", run(BLAS, weights, plain)),
        ("W_g and W_u swapped", "control", run(BLAS, swapped)),
    ):
        rows.append(
            case(
                "B7.1",
                f"{name}, {where}",
                leg,
                "largest difference from the formula",
                np.abs(other - result).max(),
                ">=",
                200 * bound,
                bound_source=source,
                backend="blas",
            )
        )
    return rows


def _counted(d: int, f: int, kind: str, tokens: int) -> tuple[int, int]:
    """Weights of an executed feed-forward, and FLOPs that it runs on `tokens` tokens."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from transformer_ledger.executed.decoder import Feedforward as Module

    with torch.device("meta"):
        module = Module(d, kind, f, bias=False)
        x = torch.empty(tokens, d)
    with FlopCounterMode(display=False) as counter:
        module(x)
    return sum(parameter.numel() for parameter in module.parameters()), int(counter.get_total_flops())


def budget_rows(d_model: int, widths: Sequence[int], multiples: Sequence[int]) -> list[dict[str, Any]]:
    """B7.2: the equal-budget width, solved for; what rounding it costs; what biases change."""
    import sympy

    d, f, gated = sympy.symbols("d f f_gated", positive=True)
    weights = formulas.gated_feedforward_parameters(d=d, f=gated) - formulas.plain_feedforward_parameters(d=d, f=f)
    (solved,) = sympy.solve(weights, gated)
    biased = weights + formulas.gated_feedforward_biases(d=d, f=gated) - formulas.plain_feedforward_biases(d=d, f=f)
    (with_biases,) = sympy.solve(biased, gated)

    def symbolic(where: str, quantity: str, difference: Any, scope: str = "stated") -> dict[str, Any]:
        return case(
            "B7.2", where, "exact", quantity, terms(sympy.cancel(difference)), "==", 0, scope=scope, backend="symbolic"
        )

    rows = [
        case(
            "B7.2",
            "equal weights, solved for the gated width",
            "exact",
            "gated width over plain width",
            sympy.Rational(sympy.cancel(solved / f)),
            "==",
            Fraction(2, 3),
            backend="symbolic",
            headline=True,
        ),
        symbolic("f = 4d", "terms that differ from 8d/3", solved.subs(f, 4 * d) - sympy.Rational(8, 3) * d),
        symbolic(
            "the ledger's equal_budget_width",
            "terms that differ from the solution",
            formulas.equal_budget_width(f=f) - solved,
        ),
        symbolic(
            "biases counted: the width is f(2d + 1)/(3d + 2)",
            "terms that differ from the solution",
            with_biases - f * (2 * d + 1) / (3 * d + 2),
            "conditioned",
        ),
    ]
    third = 3 * d_model  # a width that 3 divides
    plain, _ = _counted(third, 4 * third, "gelu", 1)
    equal, _ = _counted(third, formulas.equal_budget_width(f=4 * third), "gated", 1)
    same, _ = _counted(third, 4 * third, "gated", 1)
    rows += [
        case(
            "B7.2",
            f"executed, d {third}, f 4d and 8d/3",
            "exact",
            "weights apart",
            equal - plain,
            "==",
            0,
            backend="torch",
            unit="parameter",
        ),
        case(
            "B7.2",
            f"executed, d {third}, both 4d wide",
            "control",
            "weights more",
            same - plain,
            ">=",
            1,
            backend="torch",
            unit="parameter",
        ),
    ]
    for width in widths:
        plain = formulas.plain_feedforward_parameters(d=width, f=4 * width)
        for m in multiples:
            # 8d/3 rounded up to a whole number, then to a multiple of m.
            rounded = formulas.rounded_up_width(f=-(-8 * width // 3), m=m)
            extra = formulas.gated_feedforward_parameters(d=width, f=rounded) - plain
            rows.append(
                case(
                    "B7.2",
                    f"d {width}, 8d/3 rounded up to a multiple of {m}: f {rounded}, {extra / plain:+.3%}",
                    "exact",
                    "weights that rounding adds",
                    extra,
                    "in",
                    (0, 3 * width * m),
                    backend="rational",
                    unit="parameter",
                    bound_source="less than m columns of three matrices",
                )
            )
    return rows


def ledger_rows(d_model: int, batch: int, length: int) -> list[dict[str, Any]]:
    """B7.3: weights and FLOPs of both kinds, at equal width and at equal budget, formula and executed."""
    d, f = 3 * d_model, 12 * d_model
    tokens = batch * length
    equal = formulas.equal_budget_width(f=f)
    plain = (
        formulas.plain_feedforward_parameters(d=d, f=f),
        formulas.plain_feedforward(B=batch, T=length, d=d, f=f),
    )
    rows = []
    for name, width, ratio in (("equal width", f, Fraction(3, 2)), ("equal budget", equal, Fraction(1))):
        gated = (
            formulas.gated_feedforward_parameters(d=d, f=width),
            formulas.gated_feedforward(B=batch, T=length, d=d, f=width),
        )
        executed = _counted(d, width, "gated", tokens)
        for i, (quantity, unit) in enumerate((("weights", "parameter"), ("FLOPs", "FLOP"))):
            where = f"{name}, d {d}, f {f} plain and {width} gated, B {batch}, T {length}"
            rows += [
                case(
                    "B7.3",
                    where,
                    "exact",
                    f"{quantity} of gated over plain, {name}",
                    Fraction(gated[i], plain[i]),
                    "==",
                    ratio,
                    headline=True,
                ),
                case(
                    "B7.3",
                    where,
                    "exact",
                    f"executed {quantity}",
                    executed[i],
                    "==",
                    gated[i],
                    backend="torch",
                    unit=unit,
                ),
            ]
    ungated = _counted(d, f, "gelu", tokens)
    rows += [
        case(
            "B7.3",
            f"the gate left out, d {d}, f {f}",
            "control",
            f"{quantity} over the plain one",
            Fraction(ungated[i], plain[i]),
            "==",
            1,
            backend="torch",
        )
        for i, quantity in enumerate(("weights", "FLOPs"))
    ]
    return rows


def compute(
    d_model: int,
    d_ff: int,
    tokens: int,
    widths: Sequence[int],
    multiples: Sequence[int],
    batch: int,
    length: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Rows of B7.

    `d_model`, `d_ff` and `tokens` of the executed function; `widths` of models whose equal-budget width is rounded up
    to `multiples`; `batch` and `length` of the compute ledger, at three times d_model so that 8d/3 is whole.
    """
    import torch

    torch.set_num_threads(1)
    return (
        function_rows(d_model, d_ff, tokens, seed)
        + budget_rows(d_model, widths, multiples)
        + ledger_rows(d_model, batch, length)
    )
