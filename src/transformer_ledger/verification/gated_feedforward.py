"""B7: F(x) = [SiLU(xW_g) ⊙ (xW_u)]W_d; its third matrix makes it half as large again, or two thirds as wide.

Executed: our torch feed-forward with drawn weights against the NumPy reference. Ledger: the formulas, in symbols and
against the executed tensors and operations.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from transformer_ledger import routes
from transformer_ledger.evidence import Evidence, Printed, at_most, exactly
from transformer_ledger.formulas import architecture as formulas
from transformer_ledger.model import Feedforward
from transformer_ledger.reference import decoder
from transformer_ledger.reference.arithmetic import BLAS, RATIONAL, RUNNING, Blas

LOOPS = "the text's formula in plain loops"
CORNER = 3  # rows and columns of the exact case
Weights = Mapping[str, Any]


class WithGelu(Blas):
    """The gate's activation exchanged."""

    silu = Blas.gelu


def sides(d: int, f: int) -> dict[str, tuple[int, int]]:
    """The text's shapes, (inputs, outputs)."""
    return {"gate": (d, f), "up": (d, f), "down": (f, d)}


def drawn(d: int, f: int, tokens: int, seed: int) -> tuple[Any, dict[str, Any]]:
    """Inputs (T, d) of variance 1 and weights of variance 1/inputs."""
    generator = np.random.Generator(np.random.PCG64(seed))
    x = generator.standard_normal((tokens, d))
    return x, {name: generator.standard_normal(shape) * shape[0] ** -0.5 for name, shape in sides(d, f).items()}


def swapped(weights: Weights) -> Weights:
    """W_g and W_u exchanged."""
    return {**weights, "gate": weights["up"], "up": weights["gate"]}


def module(d: int, f: int, kind: str, bias: bool = False) -> Any:
    """Our executed decoder's feed-forward."""
    import torch

    from transformer_ledger.executed.decoder import Feedforward as Module

    with torch.device("meta"):
        return Module(d, kind, f, bias)


def executed(x: Any, weights: Weights) -> Any:
    """What our gated module makes of x (T, d) with these weights, fp64."""
    import torch

    d, f = weights["up"].shape
    own = module(d, f, "gated")
    own.load_state_dict({f"{name}.weight": torch.from_numpy(w.T.copy()) for name, w in weights.items()}, assign=True)
    with torch.no_grad():
        return own(torch.from_numpy(x)).numpy()


def reference(x: Any, weights: Weights, run: Any = BLAS, kind: str = "gated") -> Any:
    """The reference decoder's feed-forward in the arithmetic `run`."""
    inside = {name: run.array(value) for name, value in weights.items()}
    return decoder.feedforward(run.array(x), inside, Feedforward(kind, weights["up"].shape[1]), run)


def loops(x: Any, weights: Weights) -> list[Fraction]:
    """The text's formula written out in fractions, the SiLU's rational stand-in max(x, 0)."""

    def product(rows: Any, matrix: Any) -> list[list[Fraction]]:
        columns = [list(map(Fraction, column)) for column in matrix.T]
        return [[sum((Fraction(a) * b for a, b in zip(row, column, strict=True)), Fraction(0)) for column in columns]
                for row in rows]  # fmt: skip

    gate, up = product(x, weights["gate"]), product(x, weights["up"])
    hidden = [[max(g, Fraction(0)) * u for g, u in zip(a, b, strict=True)] for a, b in zip(gate, up, strict=True)]
    return list(itertools.chain(*product(hidden, weights["down"])))


def function(rows: Evidence, d: int, f: int, tokens: int, seed: int) -> None:
    """B7.1: the executed module is the formula; other activations, no gate and swapped matrices are other functions."""
    x, weights = drawn(d, f, tokens, seed)
    corner = x[:2, :CORNER], {name: w[:CORNER, :CORNER] for name, w in weights.items()}

    def differ(change: Callable[[Weights], Weights] = dict) -> int:
        return int(np.count_nonzero(reference(corner[0], change(corner[1]), RATIONAL).ravel() != loops(*corner)))

    exact = rows.of(by=routes.RATIONAL, against=LOOPS, tried=f"{CORNER} × {CORNER} corner, SiLU replaced by max(x, 0)")
    quantity = "entries that differ from the formula"
    exact.equal(quantity, differ(), 0)
    exact.control("W_g and W_u swapped", quantity, differ, {"change": swapped}, exactly(0))

    limit = 2 * reference(x, weights, RUNNING).error
    ours = executed(x, weights)

    def off(change: Callable[[Weights], Weights] = dict, run: Any = BLAS, kind: str = "gated") -> float:
        return float(np.abs(ours - reference(x, change(weights), run, kind)).max())

    here = rows.of(
        by=routes.MODULE, against=routes.BLAS, source="2 × running error bound", d_model=d, d_ff=f, tokens=tokens
    )
    here.agree(
        "distance from the formula, at the entry closest to its bound",
        ours,
        reference(x, weights),
        limit,
        headline=True,
        key="module",
    )
    for name, key, changed in (
        ("W_g and W_u swapped", "swapped", {"change": swapped}),
        ("GELU in place of SiLU", "gelu", {"run": WithGelu()}),
        ("no gate: GELU(xW_u)W_d", "plain", {"kind": "gelu"}),
    ):
        here.control(name, "largest distance from the formula", off, changed, at_most(limit.max()), key=key)

    def wrong(kind: str = "gated") -> int:
        found = {name: tuple(w.shape)[::-1] for name, w in module(d, f, kind).named_parameters()}
        return sum(found.get(f"{name}.weight") != shape for name, shape in sides(d, f).items())

    shapes = rows.of(by=routes.TENSORS, against=routes.TEXT, d_model=d, d_ff=f)
    shapes.equal("matrices of other shapes than [d, f], [d, f], [f, d]", wrong(), 0)
    shapes.control("a plain feed-forward", "matrices of other shapes", wrong, {"kind": "gelu"}, exactly(0))


def counted(d: int, f: int, kind: str, tokens: int = 1) -> dict[str, int]:
    """Weights of an executed feed-forward, and FLOPs that it runs on `tokens` tokens."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    own = module(d, f, kind)
    with FlopCounterMode(display=False) as counter:
        own(torch.empty(tokens, d, device="meta"))
    return {"weights": sum(p.numel() for p in own.parameters()), "FLOPs": int(counter.get_total_flops())}


def ratio(d: Any, biases: bool = False, gated: Callable[..., Any] = formulas.gated_feedforward_parameters) -> Any:
    """Width of the gated feed-forward with as many weights as a plain one, over the plain one's, solved in symbols."""
    import sympy

    f, width = sympy.symbols("f width", positive=True)
    more = gated(d=d, f=width) - formulas.plain_feedforward_parameters(d=d, f=f)
    if biases:
        more += formulas.gated_feedforward_biases(d=d, f=width) - formulas.plain_feedforward_biases(d=d, f=f)
    (solved,) = sympy.solve(more, width)
    return sympy.cancel(solved / f)


def budget(rows: Evidence, d: int, widths: Sequence[int], multiples: Sequence[int]) -> None:
    """B7.2: the equal-budget width, solved for and executed; what rounding it costs; what biases change."""
    import sympy

    symbols, any_width = rows.of(by=routes.SYMBOLS, against=routes.TEXT), sympy.Symbol("d", positive=True)
    quantity, wanted = "gated width / plain width at equal weights", Fraction(2, 3)
    symbols.equal(quantity, ratio(any_width), wanted, headline=True, key="ratio")
    symbols.prints("gated width / d, if the plain width is 4d", 4 * ratio(any_width), Printed("8/3"), key="wide")
    symbols.of(against=routes.FORMULA).equal(
        "gated width for a plain width of 3", 3 * ratio(any_width), formulas.equal_budget_width(f=3)
    )
    for change, changed in (
        ("biases counted", {"biases": True}),
        ("no third matrix", {"gated": formulas.plain_feedforward_parameters}),
    ):
        symbols.control(change, quantity, lambda **more: ratio(d, **more), changed, exactly(wanted), d_model=d,
                        key=next(iter(changed)))  # fmt: skip
    plain = formulas.plain_feedforward_parameters(d=d, f=4 * d)
    here = rows.of(by=routes.TENSORS, against=routes.FORMULA, unit="parameter", d_model=d)

    def extra(f: int = formulas.equal_budget_width(f=4 * d)) -> int:
        return counted(d, f, "gated")["weights"] - plain

    here.equal("weights at gated width 8d/3 minus weights at plain width 4d", extra(), 0)
    for kind, biases in (("gated", formulas.gated_feedforward_biases), ("gelu", formulas.plain_feedforward_biases)):
        found = sum(p.numel() for name, p in module(d, 4 * d, kind, bias=True).named_parameters() if "bias" in name)
        here.equal("biases", found, biases(d=d, f=4 * d), feedforward=kind)
    here.control("gated width 4d", "weights minus those at plain width 4d", extra, {"f": 4 * d}, exactly(0))
    for width in widths:
        for m in multiples:
            # 8d/3 rounded up to a whole number, then to a multiple of m; the other way tries one multiple after another.
            f = formulas.rounded_up_width(f=-(-8 * width // 3), m=m)
            tried = next(n for n in itertools.count(m, m) if 3 * n >= 8 * width)
            more = rows.of(d_model=width, multiple=m)
            more.equal("8d/3 rounded up", f, tried, by=routes.FORMULA, against=routes.ENUMERATION, unit="component")
            added = counted(width, f, "gated")["weights"] - counted(width, 4 * width, "gelu")["weights"]
            more.equal("weights that rounding adds", added, width * (3 * tried - 8 * width), by=routes.TENSORS,
                       against=routes.ENUMERATION, unit="parameter")  # fmt: skip


def ledger(rows: Evidence, d: int, batch: int, length: int) -> None:
    """B7.3: weights and FLOPs of both kinds, at equal width and at equal budget, executed and by formula."""
    f = 4 * d
    plain = counted(d, f, "gelu", batch * length)
    by_formula = {
        "weights": lambda width: formulas.gated_feedforward_parameters(d=d, f=width),
        "FLOPs": lambda width: formulas.gated_feedforward(B=batch, T=length, d=d, f=width),
    }
    for name, width, wanted in (
        ("equal width", f, Fraction(3, 2)),
        ("equal budget", formulas.equal_budget_width(f=f), 1),
    ):
        here = rows.of(tried=name, d_model=d, d_ff=f, gated_d_ff=width, batch=batch, length=length)
        for quantity, route, unit in (("weights", routes.TENSORS, "parameter"), ("FLOPs", routes.COUNTER, "FLOP")):

            def over(kind: str = "gated", width: int = width, quantity: str = quantity) -> Fraction:
                return Fraction(counted(d, width, kind, batch * length)[quantity], plain[quantity])

            own = here.of(by=route, against=routes.TEXT)
            own.equal(f"{quantity}, gated / plain, at {name}", over(), wanted, headline=True,
                      key=f"{quantity}_{'width' if width == f else 'budget'}")  # fmt: skip
            own.control("without the gate", f"{quantity}, gated / plain", over, {"kind": "gelu"}, exactly(wanted))
            own.of(against=routes.FORMULA, unit=unit).equal(
                f"{quantity} of the gated layer",
                counted(d, width, "gated", batch * length)[quantity],
                by_formula[quantity](width),
            )


def compute(
    settings: Mapping[str, Any],
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
    rows = Evidence("B7.1", settings)
    function(rows, d_model, d_ff, tokens, seed)
    budget(rows.of("B7.2"), 3 * d_model, widths, multiples)
    ledger(rows.of("B7.3"), 3 * d_model, batch, length)
    return rows.rows
