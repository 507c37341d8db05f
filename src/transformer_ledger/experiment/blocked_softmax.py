"""Reading a softmax row block by block gives what the dense form gives, to within rounding, forward and backward.

Both forms in each precision, every operation rounded, against a high-precision reference on the numbers as stored in
that precision. The bounds are computed from the inputs before either form runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from transformer_ledger import bounds
from transformer_ledger.bounds import Array
from transformer_ledger.reference import online_softmax
from transformer_ledger.reference.precision import ARITHMETICS, FP64, Arithmetic

QUANTITIES = (("forward", "output"), ("backward", "score gradient"), ("backward", "value gradient"))


@dataclass(frozen=True)
class Reference:
    """An array to high precision: `high` + `low` in fp64 (106 bits), and its first entry as a decimal."""

    high: Array
    low: Array
    decimal: str

    def distance(self, x: Array) -> Array:
        """|x − reference|, entry by entry."""
        return np.abs((x.astype(np.float64) - self.high) - self.low)


def _split(x: Array, digits: int) -> Reference:
    import mpmath

    high = x.astype(np.float64)
    low = np.vectorize(lambda exact, near: float(exact - near), otypes=[float])(x, high)
    return Reference(high, low, mpmath.nstr(x.ravel()[0], digits - 10))


def reference(scores: Array, values: Array, gradient: Array, visible: Array, digits: int) -> list[Reference]:
    """Output and both gradients of the dense row, computed in mpmath to `digits` digits; 0 for a masked row."""
    import mpmath

    with mpmath.workdps(digits):
        number = np.vectorize(lambda x: mpmath.mpf(float(x)), otypes=[object])
        s, v, g = number(scores), number(values), number(gradient)
        p = np.full(len(s), mpmath.mpf(0), object)
        if visible.any():
            largest = max(s[visible])
            p[visible] = [mpmath.exp(x - largest) for x in s[visible]]
            p = p / p.sum()
        output = p @ v
        return [_split(x, digits) for x in (output, p * (v @ g - output @ g), p[:, None] * g)]


def _bound(
    scores: Array, values: Array, gradient: Array, visible: Array, blocks: Sequence[int], arithmetic: Arithmetic
) -> tuple[Array, Array, Array]:
    """Bounds of output and both gradients, of the dense form where there are no `blocks`; 0 for what is masked."""
    v = values.astype(np.float64)
    full = (np.zeros(v.shape[1]), np.zeros(len(v)), np.zeros(v.shape))
    if not visible.any():
        return full
    output, *gradients = bounds.softmax_row_bounds(
        scores[visible].astype(np.float64),
        v[visible],
        gradient.astype(np.float64),
        blocks or [int(visible.sum())],
        arithmetic.u,
        arithmetic.library,
        arithmetic.subnormal,
        dense=not blocks,
    )
    full[1][visible], full[2][visible] = gradients
    return output, full[1], full[2]


def rows_of(
    case: str,
    order: str,
    scores: Array,
    values: Array,
    gradient: Array,
    visible: Array,
    blocks: online_softmax.Blocks,
    arithmetic: Arithmetic,
    exact: Sequence[Reference],
) -> list[dict[str, Any]]:
    """Three rows (output, score gradient, value gradient) for one way of reading one row of scores."""
    seen = [int(visible[begin:end].sum()) for begin, end in blocks]
    dense_bound = _bound(scores, values, gradient, visible, [], arithmetic)
    read_bound = _bound(scores, values, gradient, visible, [n for n in seen if n], arithmetic)

    p = online_softmax.probabilities(scores, visible, arithmetic)
    dense = (
        online_softmax.dense(p, values, arithmetic),
        *online_softmax.dense_backward(p, values, gradient, arithmetic),
    )
    last = online_softmax.forward(scores, values, blocks, visible, arithmetic)[-1]
    read = (
        online_softmax.output(last, arithmetic),
        *online_softmax.backward(scores, values, gradient, last, blocks, visible, arithmetic),
    )
    naive = online_softmax.naive(scores[visible].astype(np.float64), values[visible].astype(np.float64))[0]

    rows = []
    for i, (direction, quantity) in enumerate(QUANTITIES):
        apart = np.abs(dense[i].astype(np.float64) - read[i].astype(np.float64))
        far, near = exact[i].distance(dense[i]), exact[i].distance(read[i])
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios = np.concatenate([(far / dense_bound[i]).ravel(), (near / read_bound[i]).ravel()])
        bound, size = (dense_bound[i] + read_bound[i]).max(), np.abs(exact[i].high).max()
        rows.append(
            {
                "case": case,
                "keys": len(scores),
                "blocks": " ".join(f"[{begin},{end})" for begin, end in sorted(blocks)),
                "order": order,
                "dtype": arithmetic.name,
                "pass": direction,
                "quantity": quantity,
                "dense": float(dense[i].ravel()[0]),
                "blocked": float(read[i].ravel()[0]),
                "reference": exact[i].high.ravel()[0],
                "reference_decimal": exact[i].decimal,
                "dense_error": far.max(),
                "blocked_error": near.max(),
                "naive": naive if quantity == "output" else None,
                "difference": apart.max(),
                "bound": bound,
                "size": size,
                "decisive": bounds.decides(bound, size),
                "ratio": np.nanmax(ratios) if np.isfinite(ratios).any() else 0.0,
                "holds": bool((far <= dense_bound[i]).all() and (near <= read_bound[i]).all()),
            }
        )
    return rows


def hidden(mask: str, keys: int, first: tuple[int, int], generator: np.random.Generator) -> Array:
    """Visible keys (keys,) under a mask: none, prefix (a causal row's tail hidden), scattered, first-block or all."""
    visible = np.ones(keys, bool)
    if mask == "prefix":
        visible[(keys + 1) // 2 :] = False
    elif mask == "scattered":
        visible[generator.permutation(keys)[: keys // 2]] = False
    elif mask == "first-block":
        visible[slice(*first)] = False
    elif mask == "all":
        visible[:] = False
    return visible


def printed_rows(printed: Mapping[str, Any], dtypes: Sequence[str], digits: int) -> list[dict[str, Any]]:
    """The text's row in every order of its blocks."""
    blocks = [(begin, end) for begin, end in printed["blocks"]]
    rows = []
    for name in dtypes:
        arithmetic = ARITHMETICS[name]
        scores, values = arithmetic.array(printed["scores"]), arithmetic.array(printed["values"])[:, None]
        gradient, visible = arithmetic.array([1]), np.ones(len(scores), bool)
        exact = reference(scores, values, gradient, visible, digits)
        same = np.array_equal(scores.astype(np.float64), printed["scores"])
        case = "printed" if same else f"printed, scores rounded to {name}"
        for order in itertools.permutations(range(len(blocks))):
            read = [blocks[i] for i in order]
            text = " ".join(map(str, order))
            rows += rows_of(case, text, scores, values, gradient, visible, read, arithmetic, exact)
    return rows


def drawn_rows(drawn: Mapping[str, Any], dtypes: Sequence[str], digits: int) -> list[dict[str, Any]]:
    """Normal scores, values and gradients over kinds of scores, sizes, masks, block sizes, orders and precisions."""
    rows = []
    kinds = enumerate(drawn["scores"])
    for (kind, (mean, deviation)), keys, size in itertools.product(kinds, drawn["keys"], drawn["block_sizes"]):
        generator = np.random.Generator(np.random.PCG64([drawn["seed"], kind, keys, size]))
        score, value, upstream = (
            mean + deviation * generator.standard_normal(keys),
            generator.standard_normal((keys, drawn["value_dim"])),
            generator.standard_normal(drawn["value_dim"]),
        )
        blocks = online_softmax.partition(keys, size)
        orders = {"ascending": blocks, "shuffled": [blocks[i] for i in generator.permutation(len(blocks))]}
        wanted = [order for order in drawn["orders"] if len(blocks) > 1 or order == "ascending"]
        masks = {mask: hidden(mask, keys, blocks[0], generator) for mask in drawn["masks"]}
        for (mask, visible), name in itertools.product(masks.items(), dtypes):
            arithmetic = ARITHMETICS[name]
            scores, values, gradient = (arithmetic.array(x) for x in (score, value, upstream))
            exact = reference(scores, values, gradient, visible, digits)
            case = f"drawn, scores {mean:g} ± {deviation:g}, masked: {mask}"
            for order in wanted:
                rows += rows_of(case, order, scores, values, gradient, visible, orders[order], arithmetic, exact)
    return rows


def allowed_rows(dtypes: Sequence[str], digits: int) -> list[dict[str, Any]]:
    """Two keys of nearly equal scores and opposite values, with exponentials as wrong as the bound allows.

    A real library is far better than that, so without these rows a bound that forgets its exponentials would stand.
    """
    rows = []
    for name in dtypes:
        arithmetic = ARITHMETICS[name]
        off = arithmetic.dtype(
            (arithmetic.library - 1) * arithmetic.u
        )  # the last u is lost when the product is rounded

        def exp(x: Any, plain: Any = arithmetic.exp, off: Any = off, rounded: Any = arithmetic.round) -> Any:
            return rounded(plain(x) * np.where(np.asarray(x) == 0, 1 - off, 1 + off))

        scores, values = arithmetic.array([0, 0.1]), arithmetic.array([-1, 1])[:, None]
        gradient, visible = arithmetic.array([1]), np.ones(2, bool)
        exact = reference(scores, values, gradient, visible, digits)
        case = "two keys, exponentials as wrong as the bound allows"
        wrong = replace(arithmetic, exp=exp)
        rows += rows_of(case, "ascending", scores, values, gradient, visible, [(0, 2)], wrong, exact)
    return rows


def states(printed: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The loop's state after each block of the text's row, in fp64 and in the text's order."""
    scores, values = FP64.array(printed["scores"]), FP64.array(printed["values"])[:, None]
    after = online_softmax.forward(scores, values, [(begin, end) for begin, end in printed["blocks"]])[1:]
    return [
        {
            "block": i,
            "begin": begin,
            "end": end,
            "maximum": state.maximum,
            "denominator": state.denominator,
            "numerator": state.numerator[0],
        }
        for i, ((begin, end), state) in enumerate(zip(printed["blocks"], after, strict=True))
    ]


def compute(
    printed: Mapping[str, Any], drawn: Mapping[str, Any], dtypes: Sequence[str], reference_digits: int
) -> dict[str, list[dict[str, Any]]]:
    """Rows of experiment/blocked_softmax and experiment/blocked_softmax_states.

    `printed`: the text's scores, values and blocks. `drawn`: seed, scores ([mean, standard deviation] each), keys,
    value_dim, block_sizes, orders (ascending, shuffled) and masks (see `hidden`) of random rows.
    """
    rows = printed_rows(printed, dtypes, reference_digits) + allowed_rows(dtypes, reference_digits)
    rows += drawn_rows(drawn, dtypes, reference_digits)
    return {"experiment/blocked_softmax": rows, "experiment/blocked_softmax_states": states(printed)}
