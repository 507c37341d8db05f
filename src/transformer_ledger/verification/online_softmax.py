"""B8: attention that reads its keys in blocks, in any order, with a running maximum gives what the dense softmax gives.

Exact: in fractions with 2ˣ as the exponential, every partition of a row's keys in every order, forward and backward,
with the loop invariant after each block. Rounded: experiment E2's rows. A row with no visible key is defined as output
0 and log-sum-exp −∞.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from transformer_ledger.bounds import Array
from transformer_ledger.cases import case, differing
from transformer_ledger.experiment import blocked_softmax
from transformer_ledger.reference import online_softmax
from transformer_ledger.reference.precision import FP64, RATIONAL
from transformer_ledger.tables import TableError

TEXT = {
    "scores": [1000, 1001, 999, 1002],
    "values": [2, -1, 3, 4],
    "blocks": [[0, 1], [1, 3], [3, 4]],
}  # the row that the text prints its 1e-12 for
TEXT_DIFFERENCE = 1e-12
ORDERS = "partitions whose orders give different outputs"
ROUNDING = "bounds.softmax_row_bounds of both forms"


def ordered_partitions(keys: Sequence[int]) -> Iterator[list[tuple[int, ...]]]:
    """Every way to cut `keys` into blocks and to put the blocks in order: 1, 3, 13, 75, 541 … of them."""
    if not keys:
        yield []
    for size in range(1, len(keys) + 1):
        for block in itertools.combinations(keys, size):
            rest = [key for key in keys if key not in block]
            for others in ordered_partitions(rest):
                yield [block, *others]


def read(blocks: Sequence[Sequence[int]]) -> tuple[list[int], list[tuple[int, int]]]:
    """The keys in the order in which the blocks hold them, and the blocks as (begin, end) in that order."""
    order = [key for block in blocks for key in block]
    ends = list(itertools.accumulate(len(block) for block in blocks))
    return order, list(zip([0, *ends], ends, strict=False))


def definition(scores: Array, values: Array, keys: Sequence[int]) -> tuple[Any, Any, Any]:
    """m, Σ2^(s−m) and Σ2^(s−m)·v over `keys`, straight from their definition; −∞, 0, 0 over none."""
    if not keys:
        return -math.inf, Fraction(0), Fraction(0)
    m = max(scores[key] for key in keys)
    terms = [Fraction(2) ** int(scores[key] - m) for key in keys]
    return m, sum(terms), sum(term * values[key, 0] for term, key in zip(terms, keys, strict=True))


def unscaled(scores: Array, values: Array, blocks: Sequence[tuple[int, int]]) -> Any:
    """The loop with the rescaling left out: each block's terms stay relative to the maximum of their own time."""
    m, a, o = -math.inf, Fraction(0), Fraction(0)
    for begin, end in blocks:
        m = max(m, *scores[begin:end])
        for s, v in zip(scores[begin:end], values[begin:end, 0], strict=True):
            a, o = a + Fraction(2) ** int(s - m), o + Fraction(2) ** int(s - m) * v
    return o / a


def exact_rows(keys: int, masked_keys: int, seed: int) -> list[dict[str, Any]]:
    """B8.1 and B8.2 in fractions; up to `masked_keys` keys also with every set of visible keys."""
    rows = []
    changed = {"a block read twice": 0, "a block left out": 0}
    unequal = 0  # partitions whose orders differ once the rescaling is left out
    for n in range(1, keys + 1):
        generator = np.random.Generator(np.random.PCG64([seed, n]))
        scores = RATIONAL.array(generator.integers(-9, 10, n).tolist())
        values = RATIONAL.array(generator.integers(-9, 10, (n, 1)).tolist())
        subsets = list(itertools.product((True, False), repeat=n)) if n <= masked_keys else [(True,) * n]
        readings = states = wrong_output = wrong_state = wrong_gradient = 0
        results: dict[frozenset[frozenset[int]], set[Any]] = {}
        without_rescaling: dict[frozenset[frozenset[int]], set[Any]] = {}
        for visible in subsets:
            every = [key for key in range(n) if visible[key]]
            m, a, o = definition(scores, values, every)
            output = o / a if every else Fraction(0)
            weight = [Fraction(2) ** int(scores[i] - m) / a if visible[i] else Fraction(0) for i in range(n)]
            d_scores = [weight[i] * (values[i, 0] - output) for i in range(n)]
            for blocks in ordered_partitions(range(n)):
                order, spans = read(blocks)
                s, v, seen = scores[order], values[order], np.array(visible)[order]
                after = online_softmax.forward(s, v, spans, seen, RATIONAL)
                got = online_softmax.output(after[-1], RATIONAL)[0]
                readings += 1
                wrong_output += got != output
                for state, (_, end) in zip(after[1:], spans, strict=True):
                    held = (state.maximum, state.denominator, state.numerator[0])
                    states += 1
                    wrong_state += held != definition(scores, values, [key for key in order[:end] if visible[key]])
                back, back_values = online_softmax.backward(s, v, RATIONAL.array([1]), after[-1], spans, seen, RATIONAL)
                wrong_gradient += any(
                    back[place] != d_scores[key] or back_values[place, 0] != weight[key]
                    for place, key in enumerate(order)
                )
                if all(visible):
                    cut = frozenset(frozenset(block) for block in blocks)
                    results.setdefault(cut, set()).add(got)
                    without_rescaling.setdefault(cut, set()).add(unscaled(s, v, spans))
                    for name, other in (("a block read twice", [*spans, spans[0]]), ("a block left out", spans[1:])):
                        last = online_softmax.forward(s, v, other, seen, RATIONAL)[-1]
                        changed[name] += online_softmax.output(last, RATIONAL)[0] != output
        where = f"{n} keys" + (", every set of visible keys" if len(subsets) > 1 else "")
        where += ", every partition in every order"
        for tried, quantity, wrong in (
            (f"{readings} readings", "outputs that differ from the dense one", wrong_output),
            (f"{states} states", "states (m, a, o) that break the loop invariant", wrong_state),
            (f"{readings} readings", "readings with a gradient that differs from the dense one", wrong_gradient),
        ):
            rows.append(_exact("B8.1", f"{where}: {tried}", "exact", quantity, wrong))
        if n > 1:
            differ = sum(len(found) > 1 for found in results.values())
            rows.append(_exact("B8.2", f"{n} keys, {len(results)} partitions", "exact", ORDERS, differ))
        unequal += sum(len(found) > 1 for found in without_rescaling.values())
    rows += [
        _exact("B8.1", f"up to {keys} keys, {name}", "control", "readings with another output", count)
        for name, count in changed.items()
    ]
    return [*rows, _exact("B8.2", f"up to {keys} keys, rescaling left out", "control", ORDERS, unequal)]


def _exact(claim: str, where: str, leg: str, quantity: str, count: int) -> dict[str, Any]:
    """A count of differing results, 0 wanted; for a control 1 or more."""
    relation, expected = (">=", 1) if leg == "control" else ("==", 0)
    return case(claim, where, leg, quantity, int(count), relation, expected, backend="rational")


def rounded_rows(
    printed: Mapping[str, Any], drawn: Mapping[str, Any], dtypes: Sequence[str], digits: int
) -> list[dict[str, Any]]:
    """B8.1 and B8.2 in rounded arithmetic: blocked against dense, each row of E2 against its bound."""
    made = blocked_softmax.compute(printed, drawn, dtypes, digits)["experiment/blocked_softmax"]
    ascending = ("ascending", " ".join(map(str, range(len(printed["blocks"])))))
    groups: dict[tuple[str, str, str, str], list[Mapping[str, Any]]] = {}
    for row in made:
        if row["decisive"]:  # a wider bound would let wrong results pass
            key = ("B8.1" if row["order"] in ascending else "B8.2", row["case"], row["dtype"], row["quantity"])
            groups.setdefault(key, []).append(row)
    rows = []
    for (claim, where, dtype, quantity), group in groups.items():
        worst = max(group, key=_to_bound)
        rows.append(
            case(
                claim,
                f"{where}, {dtype}, worst of {len(group)} readings, {'in' if claim == 'B8.1' else 'out of'} order",
                "floating",
                f"largest difference between blocked and dense {quantity}",
                worst["difference"],
                "<=",
                worst["bound"],
                bound_source=ROUNDING,
                backend="sequential",
            )
        )
    beyond = sum(not row["holds"] for row in made)
    rows.append(
        _exact(
            "B8.1", f"all {len(made)} rounded readings", "exact", "readings with an entry beyond its own bound", beyond
        )
        | {"leg": "floating", "bound_source": ROUNDING, "backend": "sequential"}
    )
    return rows + _printed(printed, [row for row in made if row["case"] == "printed"], digits)


def _to_bound(row: Mapping[str, Any]) -> float:
    """Difference over bound; where the bound is 0 (one key, a masked row) both forms must agree exactly."""
    return float(row["difference"] / row["bound"]) if row["bound"] else math.inf if row["difference"] else 0.0


def _printed(printed: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], digits: int) -> list[dict[str, Any]]:
    """The text's own row in fp64, its 1e-12, and the changes that must break it."""
    ours = [row for row in rows if row["dtype"] == "fp64" and row["quantity"] == "output"]
    if not ours:
        return []
    first, applicable = ours[0], printed == TEXT
    scores, values = FP64.array(printed["scores"]), FP64.array(printed["values"])[:, None]
    blocks = [(begin, end) for begin, end in printed["blocks"]]
    out = [
        case(
            "B8.1",
            "the text's row",
            "floating",
            "difference between blocked and dense",
            first["difference"],
            "<=",
            TEXT_DIFFERENCE,
            bound_source="the text's own figure",
            printed="1e-12",
            backend="sequential",
            applicable=applicable,
        ),
        case(
            "B8.1",
            "the text's row",
            "floating",
            "blocked output",
            online_softmax.output(online_softmax.forward(scores, values, blocks)[-1])[0],
            "in",
            (first["reference"] - first["bound"], first["reference"] + first["bound"]),
            bound_source=f"reference of {digits} digits ± {ROUNDING}",
            backend="sequential",
            headline=True,
        ),
        case(
            "B8.2",
            f"the text's row, all {len(ours)} orders of its blocks",
            "floating",
            "largest distance from the reference",
            max(row["blocked_error"] for row in ours),
            "<=",
            max(row["bound"] for row in ours),
            bound_source=ROUNDING,
            backend="sequential",
            headline=True,
        ),
    ]
    if not applicable:
        return out  # another row need not overflow, nor have a block that can be missed
    out.append(
        case(
            "B8.1",
            "the text's row, no maximum taken off",
            "control",
            "results that are not a number",
            int(np.isnan(online_softmax.naive(scores, values)).sum()),
            ">=",
            1,
            backend="blas",
        )
    )
    for name, read_blocks in (("a block read twice", [*blocks, blocks[-1]]), ("a block left out", blocks[:-1])):
        last = online_softmax.forward(scores, values, read_blocks)[-1]
        out.append(
            case(
                "B8.1",
                f"the text's row, {name}",
                "control",
                "distance from the reference",
                abs(online_softmax.output(last)[0] - first["reference"]),
                ">=",
                100 * first["bound"],
                bound_source=f"100 × {ROUNDING}",
                backend="sequential",
            )
        )
    return out


def masked_late(scores: Array, values: Array, visible: Array) -> Array:
    """One block whose maximum was taken before the mask: the visible terms can all underflow, and 0/0 is left."""
    with np.errstate(invalid="ignore", under="ignore"):
        term = np.where(visible, np.exp(scores - scores.max()), 0.0)
        return np.asarray((term[:, None] * values).sum(axis=0) / term.sum())


def undefined_rows(printed: Mapping[str, Any], hidden_score: float) -> list[dict[str, Any]]:
    """B8.3 and B8.4: where the unguarded loop gives NaN, and what the guarded one is defined to give."""
    scores, values = FP64.array(printed["scores"]), FP64.array(printed["values"])[:, None]
    n = len(scores)
    blocks = [(begin, end) for begin, end in printed["blocks"]]
    none, every = np.zeros(n, bool), np.ones(n, bool)

    def unguarded(visible: Array) -> Any:
        state = online_softmax.empty(values.shape[1])
        for begin, end in blocks:
            part = slice(begin, end)
            state = online_softmax.unguarded(state, scores[part], values[part], visible[part])
        with np.errstate(invalid="ignore"):
            return state.numerator / state.denominator

    def guarded(visible: Array, s: Array = scores) -> online_softmax.State:
        return online_softmax.forward(s, values, blocks, visible)[-1]

    def nan(x: Any) -> int:
        return int(np.isnan(x).sum())

    def row(claim: str, where: str, leg: str, quantity: str, count: int, relation: str, wanted: int) -> dict[str, Any]:
        return case(claim, where, leg, quantity, count, relation, wanted, backend="sequential")

    not_a_number = "results that are not a number"
    # A hidden key far above the visible ones: every visible e^(s−m) underflows.
    tall, seen = np.append(scores, scores.max() + hidden_score), np.append(every, False)
    low = np.append(scores, scores.min())
    longer = np.append(values, [[1.0]], axis=0)
    late, first_hidden = masked_late(tall, longer, seen), every.copy()
    first_hidden[slice(*blocks[0])] = False
    empty = guarded(none)
    zero = np.zeros(values.shape[1])
    back = online_softmax.backward(scores, values, np.ones(values.shape[1]), empty, blocks, none)
    infinite = np.where(first_hidden, scores, -np.inf)
    with np.errstate(invalid="ignore"):
        start = np.exp(np.float64(-np.inf) - np.float64(-np.inf))
    rows = [
        row(
            "B8.3",
            f"mask after the maximum, hidden score {hidden_score:g} higher",
            "exact",
            not_a_number,
            nan(late),
            ">=",
            1,
        ),
        row("B8.3", "every key masked, unguarded loop", "exact", not_a_number, nan(unguarded(none)), ">=", 1),
        row(
            "B8.3",
            "every key masked, guarded loop",
            "exact",
            "bits other than output 0",
            differing(online_softmax.output(empty), zero),
            "bitwise",
            0,
        ),
        row(
            "B8.3",
            "every key masked, guarded loop",
            "exact",
            "log-sum-exp other than −∞",
            int(online_softmax.log_sum_exp(empty) != -math.inf),
            "==",
            0,
        ),
        row(
            "B8.3",
            "every key masked, guarded loop, backward",
            "exact",
            "gradients other than 0",
            sum(differing(part, np.zeros_like(part)) for part in back),
            "bitwise",
            0,
        ),
        row(
            "B8.3",
            "scores of −∞ in place of a mask",
            "exact",
            "bits other than the masked row's",
            differing(online_softmax.output(guarded(every, infinite)), online_softmax.output(guarded(first_hidden))),
            "bitwise",
            0,
        ),
        row(
            "B8.3",
            "mask after the maximum, hidden score below the others",
            "control",
            not_a_number,
            nan(masked_late(low, longer, seen)),
            "==",
            0,
        ),
        row(
            "B8.3",
            "every key masked, guarded loop",
            "control",
            not_a_number,
            nan(online_softmax.output(empty)),
            "==",
            0,
        ),
        row("B8.4", "exp(−∞ − (−∞))", "exact", not_a_number, nan(start), ">=", 1),
        row("B8.4", "first block masked, unguarded loop", "exact", not_a_number, nan(unguarded(first_hidden)), ">=", 1),
        row("B8.4", "first block visible, unguarded loop", "exact", not_a_number, nan(unguarded(every)), "==", 0),
        row(
            "B8.4",
            "first block masked, guarded loop",
            "control",
            not_a_number,
            nan(online_softmax.output(guarded(first_hidden))),
            "==",
            0,
        ),
    ]
    for claim, quantity in (("B8.3", not_a_number), ("B8.4", not_a_number)):
        next(row for row in rows if row["claim"] == claim and row["quantity"] == quantity)["headline"] = True
    return rows


def compute(
    printed: Mapping[str, Any],
    exact: Mapping[str, int],
    drawn: Mapping[str, Any],
    dtypes: Sequence[str],
    reference_digits: int,
    hidden_score: float,
) -> list[dict[str, Any]]:
    """Rows of B8.

    `printed` and `drawn` as in experiment.blocked_softmax; `exact`: keys, masked_keys and seed of the exact leg;
    `hidden_score`: how far above the visible scores the hidden one of B8.3 stands.
    """
    if math.exp(-hidden_score) > 0:
        raise TableError(f"verification.online_softmax.hidden_score: e^−{hidden_score:g} does not underflow; 746 does")
    return (
        exact_rows(exact["keys"], exact["masked_keys"], exact["seed"])
        + rounded_rows(printed, drawn, dtypes, reference_digits)
        + undefined_rows(printed, hidden_score)
    )
