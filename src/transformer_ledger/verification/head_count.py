"""The number of heads changes neither the weights of attention nor their number, but it changes the function.

Claims A3.1 to A3.3.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache, partial
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from transformer_ledger import routes
from transformer_ledger.evidence import EXACT, FLOATING, PAST, Evidence, at_least, at_most, differing, exactly
from transformer_ledger.formulas import architecture as formulas
from transformer_ledger.formulas import parameters
from transformer_ledger.model import ModelSpec, from_architecture
from transformer_ledger.reference import decoder
from transformer_ledger.reference.arithmetic import BACKENDS, RATIONAL, RUNNING, SEQUENTIAL

NINE_DIGITS = 5e-10  # half a unit in the ninth digit of a number from 1 to 10, relative to 1
GRID, EXACT_TOKENS = 8, 2  # the exact leg rounds weights to multiples of 1/8 and reads two tokens: short fractions
RUNNING_ERROR = "running error bound of both sides, first order (Linnainmaa 1976)"
EXPONENTIAL = "rational arithmetic, (1 + (1+s)²)/2 for e^s"


def shapes(d_model: int, heads: int, kv_heads: int | None = None) -> list[tuple[int, ...]]:
    """Shapes of the four matrices of one attention layer of the reference decoder."""
    keys = {"layers": 1, "d_model": d_model, "heads": heads, "kv_heads": kv_heads or heads, "d_ff": 1, "vocabulary": 1}
    kind = {"context": 1, "positions": "none", "norm": "rmsnorm", "feedforward": "gelu"}
    spec = from_architecture("attention", keys | kind)
    return [shape for name, shape in decoder.shapes(spec).items() if ".attention." in name]


def weights(d_model: int, heads: int, kv_heads: int | None = None) -> int:
    """Entries of the four matrices."""
    return sum(map(prod, shapes(d_model, heads, kv_heads)))


def _weights(widths: list[int], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A3.1: counted on the reference decoder's tensors, and in symbols on the ledger's formulas."""
    from transformer_ledger import symbolic

    counted = Evidence("A3.1", settings, by="tensors of the reference decoder", against=routes.FORMULA, unit="weight")
    d, h = symbolic.symbol("d"), symbolic.symbol("h")

    def left(h_kv: Any = h) -> int:
        four = [parameters.query(d, h, d / h), parameters.output(h, d / h, d)]
        return symbolic.terms(
            sum(four) + 2 * parameters.key_or_value(d, h_kv, d / h) - formulas.attention_parameters(d)
        )

    ledger = counted.of(by="the ledger's formulas, in SymPy", unit="", tried="d_h = d/H")
    remaining = "terms of (weights of the four projections) − 4d² that do not cancel"
    ledger.equal(remaining, left(), 0)
    ledger.control("one key/value head", remaining, left, {"h_kv": 1}, exactly(0))
    for width in widths:
        every = [heads for heads in range(1, width + 1) if width % heads == 0]
        four, here = formulas.attention_parameters(width), counted.of(d_model=width)
        counts = [weights(width, heads) for heads in every]
        here.equal("weights with as many heads as components", counts[-1], four, headline=width == widths[0],
                   key=f"weights_{width}")  # fmt: skip
        here.same("numbers of heads for which the number of weights differs", counts, [four] * len(every), unit="")
        square = [shapes(width, heads) for heads in every]
        here.same("numbers of heads with a matrix that is not d × d", square, [[(width, width)] * 4] * len(every),
                  unit="")  # fmt: skip
        here.control("one key/value head for all query heads", "weights", partial(weights, width, width),
                     {"kv_heads": 1}, exactly(four), key=f"one_{width}")  # fmt: skip
    return counted.rows


def _same_vector(specs: dict[int, ModelSpec], seed: int, other_seed: int) -> list[dict[str, Any]]:
    """A3.2: all parameters, one after the other, as drawn for every number of heads."""
    first, *others = specs

    def vector(heads: int, seed: int = seed) -> Any:
        return np.concatenate([value.ravel() for value in decoder.initial(specs[heads], seed).values()])

    alone = vector(first)
    norm = float(np.linalg.norm(alone))
    drawn = Evidence("A3.2", by="drawn for H heads", against=f"drawn for {first}",
                     source="one generator, tensors of the same sizes in the same order")  # fmt: skip

    def bits(**change: int) -> int:
        return differing(vector(others[-1], **change), alone)

    def apart(**change: int) -> float:
        return abs(float(np.linalg.norm(vector(others[-1], **change))) / norm - 1)

    for heads in others:
        drawn.bitwise("parameters whose bits differ", vector(heads), alone, heads=heads, unit="parameter",
                      headline=heads == others[-1])  # fmt: skip
    nine = drawn.of(tried="nine digits", heads=others[-1], against="nine digits, as printed")
    nine.within("relative difference of the parameter vectors' norms", apart(), NINE_DIGITS)
    nine.control("a different seed", "relative difference of the norms", apart, {"seed": other_seed},
                 at_most(NINE_DIGITS), key="seed")  # fmt: skip
    drawn.control("a different seed", "parameters whose bits differ", bits, {"seed": other_seed}, exactly(0),
                  heads=others[-1])  # fmt: skip
    return drawn.rows


def looking(run: Any, patterns: list[Any]) -> Any:
    """The arithmetic `run` in which all heads of layer i look by the first head of `patterns[i]` (h, T, T)."""
    tied, left = copy.copy(run), iter(patterns)
    tied.softmax = lambda scores, visible: next(left)[:1].repeat(scores.shape[-3], axis=-3)
    return tied


class Cuts:
    """One set of parameters, cut into every number of heads; `tied` cuts without effect on where the heads look."""

    def __init__(self, specs: dict[int, ModelSpec], seed: int, ids: Any):
        self.specs, self.ids = specs, ids
        self.first, *self.others = specs
        self.weights = decoder.initial(specs[self.first], seed)
        self.run = cache(self._run)

    def whole(self, heads: int, run: Any) -> tuple[Any, list[Any]]:
        """Logits of the last token and the patterns (h, T, T) of every layer."""
        patterns: list[Any] = []
        return decoder.forward(self.specs[heads], self.weights, self.ids, run, patterns=patterns)[-1], patterns

    def attention(self, heads: int, run: Any) -> tuple[Any, list[Any]]:
        """The same of the first attention alone, on rounded numbers in rationals."""
        own = decoder.under(self.weights, "layers.0.attention.") | {"x": self.weights["token_embedding"]}
        own = {name: RATIONAL.array(np.round(GRID * value) / GRID) for name, value in own.items()}
        x, visible = own["x"][self.ids[:EXACT_TOKENS]], decoder.visibility(EXACT_TOKENS, causal=True)
        cut = self.specs[heads].layers[0][1].attention
        joined, pattern = decoder.attention(x, own, cut, visible, lambda y: y, run)
        return decoder.linear(joined[-1:], own, "output", run)[0], [pattern]

    def _run(self, heads: int, run: Any, tied: bool = False) -> tuple[Any, Any]:
        """Output of the last token and its patterns (h, T) in the first layer; of the attention alone in rationals."""
        model = self.attention if run is RATIONAL else self.whole
        output, patterns = model(heads, looking(run, model(self.first, run)[1]) if tied else run)
        return output, patterns[0][:, -1, :]


def _functions(cuts: Cuts, settings: Mapping[str, Any], run: Any) -> list[dict[str, Any]]:
    """A3.3: the outputs move and the patterns are as many as the heads, unless the cut has no effect on them."""
    first, exact = cuts.first, run is RATIONAL
    told = Evidence("A3.3", settings, by=routes.ARITHMETICS[run.name], source=EXPONENTIAL if exact else RUNNING_ERROR)
    quantity = "components of the output that differ" if exact else "largest change of the last token's logits"
    change = "every head with the first head's pattern"

    def kinds(heads: int, tied: bool = False) -> int:
        return len({tuple(pattern) for pattern in cuts.run(heads, run, tied)[1]})

    def apart(heads: int, tied: bool = False) -> Any:
        a, b = (cuts.run(h, run, tied)[0] for h in (heads, first))
        return int(np.count_nonzero(a != b)) if exact else float(np.abs(a - b).max())

    def bound(heads: int, tied: bool) -> float:
        return sum(float(cuts.run(h, RUNNING, tied)[0].error.max()) for h in (heads, first))

    for heads in cuts.specs:
        here = told.of(heads=heads)
        here.equal("attention patterns of the last token", kinds(heads), heads, against="one pattern a head")
        if heads == 1:
            continue
        here.control(change, "attention patterns of the last token", partial(kinds, heads), {"tied": True},
                     exactly(heads), exactly(1))  # fmt: skip
        if not exact:
            patterns, error = cuts.run(heads, run)[1], cuts.run(heads, RUNNING)[1].error
            # Half the sum of absolute differences: the weight that would have to move (total variation).
            near = min(0.5 * float(np.abs(a - b).sum()) for a, b in combinations(patterns, 2))
            here.beyond("smallest distance between two heads' patterns (total variation)", near,
                        PAST * float(error.sum(axis=-1).max()), key=f"distance_{heads}" if run is SEQUENTIAL else None)  # fmt: skip
    for heads in cuts.others:
        moved = at_least(1) if exact else at_least(PAST * bound(heads, False))
        still = exactly(0) if exact else at_most(bound(heads, True))
        pair = told.of(heads=heads, than=first)
        pair.beyond(quantity, apart(heads), moved.low, leg=EXACT if exact else FLOATING,
                    headline=run is SEQUENTIAL and heads == cuts.others[0])  # fmt: skip
        pair.control(change, quantity, partial(apart, heads), {"tied": True}, moved, still,
                     key=f"tied_{heads}" if run is SEQUENTIAL else None)  # fmt: skip
    return told.rows


def compute(
    settings: Mapping[str, Any],
    architecture: dict[str, Any],
    heads: list[int],
    widths: list[int],
    tokens: int,
    seed: int,
    other_seed: int,
) -> list[dict[str, Any]]:
    """Rows for A3.1 to A3.3.

    `architecture` without its heads is built once for every number of `heads`; `widths` are the model widths whose
    attention weights are counted for every divisor; `tokens` random ids are read.
    """
    # ASSUME the text's models have as many key/value heads as query heads.
    specs = {
        count: from_architecture(f"H={count}", architecture | {"heads": count, "kv_heads": count}) for count in heads
    }
    ids = np.random.Generator(np.random.PCG64([seed, 1])).integers(0, architecture["vocabulary"], tokens)
    cuts = Cuts(specs, seed, ids)
    functions = [row for run in (RATIONAL, *BACKENDS) for row in _functions(cuts, settings, run)]
    return _weights(widths, settings) + _same_vector(specs, seed, other_seed) + functions
