"""Concatenated heads times W_O are the sum over heads of head h times its own rows of W_O.

Claims A2.1 to A2.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, reduce
from operator import add
from typing import Any

import numpy as np

from transformer_ledger import bounds, routes
from transformer_ledger.evidence import Evidence, Printed, at_most, differing, exactly
from transformer_ledger.model import Attention
from transformer_ledger.reference import decoder
from transformer_ledger.reference.arithmetic import BACKENDS, BLAS, RATIONAL, RUNNING, SEQUENTIAL

U = bounds.UNIT_ROUNDOFF["fp64"]
DOT = "2γ_d·Σ|x||W|, any order of summation on both sides (Higham 2002, (3.5))"
UNDIVIDED = "product of the concatenation, undivided"
GRID, EXACT_TOKENS = 4, 2  # the exact leg rounds to multiples of 1/4 and reads two tokens: short fractions
Layer = dict[str, Any]  # x (tokens, d) and the matrices query, key, value, output (d, d)


def joined(layer: Layer, heads: int, run: Any) -> Any:
    """The heads of causal attention beside each other, (tokens, d), as the reference decoder computes them."""
    x = layer["x"]
    own = Attention(heads, heads, layer["query"].shape[-1] // heads)
    return decoder.attention(x, layer, own, decoder.visibility(len(x), causal=True), lambda y: y, run)[0]


def table(x: Any, output: Any, heads: int, run: Any, shift: int = 0, interleaved: bool = False) -> list[Any]:
    """head_h·W_O^(h) of every head, (tokens, d) each; `x` (tokens, d) holds the heads beside each other.

    `shift` pairs a head with the rows of the head so many places on; `interleaved` takes every H-th component for a
    head, where its d_h components stand together.
    """
    own = np.arange(x.shape[-1]).reshape(heads, -1)
    taken = own.reshape(-1, heads).T if interleaved else own
    return [run.matmul(x[..., a], output[b]) for a, b in zip(taken, np.roll(own, -shift, axis=0), strict=True)]


def alone(layer: Layer, heads: int, run: Any, shift: int = 0) -> list[Any]:
    """As `table`, each head run as an attention of its own, from its own columns of W_Q, W_K and W_V."""
    own = np.split(np.arange(layer["x"].shape[-1]), heads)
    cut = [{name: layer[name][:, part] for name in ("query", "key", "value")} | {"x": layer["x"]} for part in own]
    rows = own[shift:] + own[:shift]
    return [run.matmul(joined(part, 1, run), layer["output"][row]) for part, row in zip(cut, rows, strict=True)]


def shares(x: Any, output: Any, heads: int, run: Any, shift: int = 0) -> Any:
    """Σ_h of head h's component along the output, as a part of the output's length: (tokens, 1), all 1."""
    x, output = run.array(x), run.array(output)
    whole = run.matmul(x, output)
    square = run.total(whole * whole)
    return reduce(add, [run.total(part * whole) / square for part in table(x, output, heads, run, shift)])


def _exact(layer: Layer, heads: int, projection: Evidence) -> None:
    """In rationals: every head run alone, against the decoder's layer."""
    rounded = {name: RATIONAL.array(np.round(GRID * value) / GRID) for name, value in layer.items()}
    rounded["x"] = rounded["x"][:EXACT_TOKENS]
    whole = RATIONAL.matmul(joined(rounded, heads, RATIONAL), rounded["output"])

    @cache
    def differ(shift: int = 0) -> int:
        return int(np.count_nonzero(reduce(add, alone(rounded, heads, RATIONAL, shift)) != whole))

    here = projection.of(by=routes.RATIONAL, against="the decoder's layer of all heads", heads=heads)
    quantity = "components of the layer's output that differ from the sum over heads, each head run separately"
    here.equal(quantity, differ(), 0)
    if heads == 1:
        here.of("A2.2").equal("components of the one contribution that differ from the output", differ(), 0)
    else:
        here.control("each head multiplied by the next head's rows", quantity, differ, {"shift": 1}, exactly(0))


def _floating(x: Any, output: Any, heads: int, run: Any, projection: Evidence) -> float:
    """The worst component's difference, which must lie within the bound."""
    bound = 2 * bounds.matmul_bound(x, output, U)

    def worst(**change: Any) -> float:
        return float(np.abs(reduce(add, table(x, output, heads, run, **change)) - run.matmul(x, output)).max())

    here = projection.of(by=routes.ARITHMETICS[run.name], source=DOT, heads=heads)
    apart = reduce(add, table(x, output, heads, run))
    here.agree("difference, at the component closest to its bound", apart, run.matmul(x, output), bound)
    changes = {"each head multiplied by the next head's rows": {"shift": 1}}
    if heads < len(output):  # heads of one component are interleaved and contiguous at once
        changes["heads taken as interleaved components"] = {"interleaved": True}
    for name, change in changes.items():
        here.control(name, "largest difference of a component", worst, change, at_most(float(bound.max())))
    return worst()


def _single(x: Any, output: Any, several: int, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A2.2: what the table of contributions says where there is one head."""
    single = Evidence("A2.2", settings, by=routes.BLAS, against=UNDIVIDED, heads=1)

    def rows(heads: int = 1) -> int:
        return len(table(x, output, heads, BLAS))

    def other(heads: int = 1) -> int:
        return differing(table(x, output, heads, BLAS)[0], BLAS.matmul(x, output))

    bits = "components of the first row whose bits differ from the output's"
    single.prints("rows of the table of contributions", rows(), Printed("1"), headline=True)
    single.equal(bits, other(), 0, leg="floating", source="the one contribution is the whole product")
    single.control(f"{several} heads", "rows of the table", rows, {"heads": several}, exactly(1))
    single.control(f"{several} heads", bits, other, {"heads": several}, exactly(0), key="several")
    return single.rows


def _shares(x: Any, output: Any, heads: int, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A2.3: the heads' shares in the output make up the whole; for the picture, the last token's, head by head."""
    shared = Evidence("A2.3", settings, by=routes.SEQUENTIAL, heads=heads,
                      source="running error bound, first order (Linnainmaa 1976)")  # fmt: skip
    bound = shares(x, output, heads, RUNNING).error

    def off(shift: int = 0) -> Any:
        return np.abs(shares(x, output, heads, SEQUENTIAL, shift) - 1)

    quantity = "|sum of the heads' shares − 1|"
    shared.within(f"{quantity}, at the token closest to its bound", off(), bound, headline=True, key="sum")
    shared.control("each head multiplied by the next head's rows", f"largest {quantity}", lambda **c: float(off(**c).max()),
                   {"shift": 1}, at_most(float(bound.max())), key="wrong")  # fmt: skip
    exact = shares(RATIONAL.array(x[-1:]), RATIONAL.array(output), heads, RATIONAL)[0, 0]
    shared.equal("sum of the heads' shares in the last token's output", exact, 1, by=routes.RATIONAL, against=UNDIVIDED)
    whole = (x @ output)[-1]
    for head, part in enumerate(table(x, output, heads, SEQUENTIAL)):
        length, reach = np.linalg.norm(part[-1]), np.linalg.norm(x[-1]) * np.linalg.norm(output)
        cosine = part[-1] @ whole / (length * np.linalg.norm(whole))
        each = shared.of(head=head, source="Cauchy–Schwarz")
        each.theorem("length of the head's contribution to the last token", length, 0, reach, key=f"length_{head}")
        each.theorem("cosine between the head's contribution and the output", cosine, -1.01, 1.01, key=f"cosine_{head}")
    return shared.rows


def compute(
    settings: Mapping[str, Any], d_model: int, heads: list[int], shown_heads: int, tokens: int, seed: int
) -> list[dict[str, Any]]:
    """Rows for A2.1 to A2.3, for every number of heads in `heads`.

    The concatenation is the output of causal attention with drawn weights on `tokens` normal vectors of width d_model.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    layer = {"x": generator.standard_normal((tokens, d_model))}
    names = ("query", "key", "value", "output")
    layer |= {name: d_model**-0.5 * generator.standard_normal((d_model, d_model)) for name in names}
    output = layer["output"]
    projection = Evidence("A2.1", settings)
    worst: dict[str, float] = {run.name: 0.0 for run in BACKENDS}
    for count in heads:
        _exact(layer, count, projection)
        x = joined(layer, count, BLAS)
        for run in BACKENDS if count > 1 else ():  # one head is the undivided product once more
            worst[run.name] = max(worst[run.name], _floating(x, output, count, run, projection))
    for run in BACKENDS:
        projection.prints(
            "largest difference of a component, for all H",
            worst[run.name],
            Printed("2.22e-16", {"d_model": 24}, unpublished="initial weights and tokens"),
            by=routes.ARITHMETICS[run.name],
            headline=run is SEQUENTIAL,
            key=f"worst_{run.name}",
        )
    x = joined(layer, shown_heads, BLAS)
    single = _single(x, output, shown_heads, settings) if 1 in heads else []
    return projection.rows + single + _shares(x, output, shown_heads, settings)
