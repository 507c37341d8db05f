"""B8: attention that reads its keys in blocks, in any order, with a running maximum gives what the dense softmax gives.

Exact: in fractions with 2ˣ as the exponential, every partition of a row's keys in every order, forward and backward,
with the loop invariant after each block. Rounded: experiment E2's rows. A row with no visible key is defined as output
0 and log-sum-exp −∞.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from transformer_ledger import bounds, routes, tables
from transformer_ledger.bounds import Array
from transformer_ledger.evidence import Evidence, Printed, at_most, differing, exactly
from transformer_ledger.reference import online_softmax as loop
from transformer_ledger.reference.precision import FP64, RATIONAL

TEXT = {
    "printed.scores": [1000, 1001, 999, 1002],
    "printed.values": [2, -1, 3, 4],
    "printed.blocks": [[0, 1], [1, 3], [3, 4]],
}  # the row that the text prints its 1e-12 for
DEFINITION = "definition in fractions"
NAN = "results that are not a number"
Spans = list[tuple[int, int]]


def unchanged(spans: Spans) -> Spans:
    """The blocks as they are."""
    return spans


def first_twice(spans: Spans) -> Spans:
    """The first block read again at the end."""
    return [*spans, spans[0]]


def without_first(spans: Spans) -> Spans:
    """The first block left out."""
    return spans[1:]


def overlapping(spans: Spans) -> Spans:
    """The last block begins one key early, so that one key is read twice."""
    return [*spans[:-1], (max(spans[-1][0] - 1, 0), spans[-1][1])]


def ordered_partitions(keys: Sequence[int]) -> Iterator[list[tuple[int, ...]]]:
    """Every way to cut `keys` into blocks and to put the blocks in order: 1, 3, 13, 75, 541 … of them."""
    if not keys:
        yield []
    for size in range(1, len(keys) + 1):
        for block in itertools.combinations(keys, size):
            rest = [key for key in keys if key not in block]
            for others in ordered_partitions(rest):
                yield [block, *others]


class Row:
    """A small row of integer scores and values in fractions, some of its keys masked, and its dense softmax."""

    def __init__(self, n: int, seed: int, visible: Sequence[bool]):
        generator = np.random.Generator(np.random.PCG64([seed, n]))
        self.scores = RATIONAL.array(generator.integers(-9, 10, n).tolist())
        self.values = RATIONAL.array(generator.integers(-9, 10, (n, 1)).tolist())
        self.visible = np.array(visible)
        m, a, o = self.definition(range(n))
        self.output = o / a if a else Fraction(0)
        self.weights = [Fraction(2) ** int(s - m) / a if seen else Fraction(0)
                        for s, seen in zip(self.scores, visible, strict=True)]  # fmt: skip

    def definition(self, keys: Sequence[int]) -> tuple[Any, Any, Any]:
        """m, Σ2^(s−m) and Σ2^(s−m)·v over the visible ones of `keys`, straight from their definition; −∞, 0, 0 over none."""
        seen = [key for key in keys if self.visible[key]]
        m = max((self.scores[key] for key in seen), default=-math.inf)
        terms = [Fraction(2) ** int(self.scores[key] - m) for key in seen]
        return m, sum(terms), sum(term * self.values[key, 0] for term, key in zip(terms, seen, strict=True))

    def read(self, blocks: Sequence[Sequence[int]], change: Callable[[Spans], Spans]) -> tuple[Any, int, int]:
        """The output with these blocks, the states that break the loop invariant, and the gradients that are off."""
        order = [key for block in blocks for key in block]
        ends = list(itertools.accumulate(len(block) for block in blocks))
        spans = change(list(zip([0, *ends], ends, strict=False)))
        s, v, seen = self.scores[order], self.values[order], self.visible[order]
        after = loop.forward(s, v, spans, seen, RATIONAL)
        states = sum(
            (state.maximum, state.denominator, state.numerator[0]) != self.definition(order[:end])
            for state, (_, end) in zip(after[1:], spans, strict=True)
        )
        back, values = loop.backward(s, v, RATIONAL.array([1]), after[-1], spans, seen, RATIONAL)
        gradients = sum(
            back[place] != self.weights[key] * (self.values[key, 0] - self.output)
            or values[place, 0] != self.weights[key]
            for place, key in enumerate(order)
        )
        return loop.output(after[-1], RATIONAL)[0], states, gradients


def exact(rows: Evidence, keys: int, masked_keys: int, seed: int) -> None:
    """B8.1, B8.2 and B8.4 in fractions; up to `masked_keys` keys also with every set of visible keys."""
    for n in range(1, keys + 1):
        subsets = list(itertools.product((True, False), repeat=n)) if n <= masked_keys else [(True,) * n]
        masked = [Row(n, seed, visible) for visible in subsets]
        cuts = list(ordered_partitions(range(n)))

        def wrong(
            change: Callable[[Spans], Spans] = unchanged, masked: Sequence[Row] = masked, cuts: Any = cuts
        ) -> tuple[int, ...]:
            """Readings with another output, and states and gradients that are off, over all rows and blocks."""
            found = [(row.output, *row.read(blocks, change)) for row in masked for blocks in cuts]
            return sum(x[0] != x[1] for x in found), sum(x[2] for x in found), sum(x[3] for x in found)

        def orders(
            change: Callable[[Spans], Spans] = unchanged, masked: Sequence[Row] = masked, cuts: Any = cuts
        ) -> int:
            """Partitions of the unmasked row whose orders give different outputs."""
            found: dict[frozenset[Any], set[Any]] = {}
            for blocks in cuts:
                found.setdefault(frozenset(blocks), set()).add(masked[0].read(blocks, change)[0])
            return sum(len(outputs) > 1 for outputs in found.values())

        here = rows.of(by=routes.RATIONAL, against=DEFINITION, keys=n, masks=len(subsets), ordered_partitions=len(cuts))
        quantities = (
            "outputs that differ from the dense one",
            "states (m, a, o) that break the loop invariant",
            "gradients that are wrong",
        )
        for quantity, count in zip(quantities, wrong(), strict=True):
            here.equal(quantity, count, 0)
        here.of("B8.4").equal(quantities[0], wrong()[0], 0, headline=n == keys)
        if n > 1:
            here.of("B8.2").equal("partitions whose orders give different outputs", orders(), 0)
        if n == keys:
            changes = {
                "a block read twice": first_twice,
                "a block left out": without_first,
                "a key read twice": overlapping,
            }
            for claim, names in (("B8.1", tuple(changes)[:2]), ("B8.4", tuple(changes)[1:])):
                for name in names:
                    here.of(claim).control(name, quantities[0], lambda wrong=wrong, **more: wrong(**more)[0],
                                           {"change": changes[name]}, exactly(0))  # fmt: skip
            here.of("B8.2").control("the first block read twice", "partitions whose orders give different outputs", orders,
                                    {"change": first_twice}, exactly(0))  # fmt: skip


def read(rows: Evidence, made: Sequence[Mapping[str, Any]]) -> float:
    """B8.1 and B8.2: experiment E2's rows whose bound decides; a row's later orders for B8.2. The text's row's bound."""
    decisive = [row for row in made if row["decisive"]]
    e2 = rows.of(by=routes.SEQUENTIAL, source="bounds.softmax_row_bounds of both forms")
    later = [
        row for same in tables.by(decisive, "case", "keys", "blocks", "dtype", "quantity").values() for row in same[1:]
    ]
    for claim, own in (("B8.1", decisive), ("B8.2", later)):
        for (dtype, quantity), group in tables.by(own, "dtype", "quantity").items():
            e2.of(claim).within(f"blocked {quantity}: largest distance from the dense one", [row["difference"] for row in group],
                                [row["bound"] for row in group], against="dense softmax", tried="E2", dtype=dtype,
                                rows=len(group))  # fmt: skip
    e2.equal("results of E2 beyond their own bounds", sum(not row["holds"] for row in decisive), 0, leg="floating",
             against=routes.DECIMAL, rows=len(decisive))  # fmt: skip
    text = [row for row in decisive if (row["case"], row["dtype"], row["quantity"]) == ("printed", "fp64", "output")]
    row = text[0]
    e2.prints("blocked output's distance from the dense one", row["difference"], Printed("1e-12", TEXT, most=True), leg="floating",
              tried="the text's row", key="apart")  # fmt: skip
    e2.inside("blocked output", row["blocked"], row["reference"] - row["bound"], row["reference"] + row["bound"],
              against=routes.DECIMAL, tried="the text's row", headline=True, key="blocked")  # fmt: skip
    e2.of("B8.2").within("largest distance from the reference", [row["blocked_error"] for row in text],
                         [row["bound"] for row in text], against=routes.DECIMAL, tried="the text's row", orders=len(text),
                         headline=True, key="orders")  # fmt: skip
    return float(row["bound"])


def states(rows: Evidence, printed: Mapping[str, Any], made: Sequence[Mapping[str, Any]]) -> None:
    """B8.1: experiment E2's states of the text's row keep the loop invariant, term by term in mpmath."""
    import mpmath

    scores, values = printed["scores"], printed["values"]
    seen: list[int] = []
    for row in made:
        seen += range(row["begin"], row["end"])
        m = max(scores[key] for key in seen)
        with mpmath.workdps(40):
            terms = [(mpmath.exp(scores[key] - m), values[key]) for key in seen]
            a, o, size = (float(mpmath.fsum(x)) for x in zip(*((e, e * v, e * abs(v)) for e, v in terms), strict=True))
        # An exponential and two roundings of its argument's size a block, then a product and the sums.
        roundings = len(seen) + (row["block"] + 1) * math.ceil(
            bounds.LIBRARY + 2 + 2 * (m - min(scores[key] for key in seen))
        )
        limit = bounds.gamma(roundings, FP64.u)
        here = rows.of(by=routes.SEQUENTIAL, against=routes.DECIMAL, tried="the text's row", block=row["block"],
                       source="γₙ of the roundings")  # fmt: skip
        here.equal("m", row["maximum"], m, leg="floating")
        here.agree(
            "error of a or o, the one closest to its bound",
            [row["denominator"], row["numerator"]],
            [a, o],
            [limit * a, limit * size],
        )


class Loop:
    """The text's row in fp64, read by a form of the loop."""

    def __init__(self, printed: Mapping[str, Any]):
        self.scores, self.values = FP64.array(printed["scores"]), FP64.array(printed["values"])[:, None]
        self.blocks = [(begin, end) for begin, end in printed["blocks"]]
        self.every = np.ones(len(self.scores), bool)
        self.dense = loop.dense(loop.probabilities(self.scores), self.values)

    def hidden(self, keys: slice) -> Array:
        """Visible keys where these are masked."""
        seen = self.every.copy()
        seen[keys] = False
        return seen

    def output(self, visible: Array, guard: str = "") -> Array:
        """Output with no guard, the text's ("factor"), or the reference's, which passes over empty blocks ("blocks")."""
        if guard == "blocks":
            return loop.output(loop.forward(self.scores, self.values, self.blocks, visible)[-1])
        state = loop.empty(1)
        for begin, end in self.blocks:
            part = slice(begin, end)
            state = loop.unguarded(state, self.scores[part], self.values[part], visible[part], guard == "factor")
        with np.errstate(invalid="ignore"):
            return np.asarray(state.numerator / state.denominator)


def masked_late(scores: Array, values: Array, visible: Array) -> Array:
    """One block whose maximum was taken before the mask: the visible terms can all underflow, and 0/0 is left."""
    with np.errstate(invalid="ignore", under="ignore"):
        term = np.where(visible, np.exp(scores - scores.max()), 0.0)
        return np.asarray((term[:, None] * values).sum(axis=0) / term.sum())


def nan(x: Array) -> int:
    """Entries that are not a number."""
    return int(np.isnan(x).sum())


def broken(rows: Evidence, text: Loop, bound: float) -> None:
    """B8.1: what must change the text's row in fp64."""

    def apart(blocks: Spans = text.blocks) -> float:
        return float(abs(loop.output(loop.forward(text.scores, text.values, blocks)[-1]) - text.dense)[0])

    here = rows.of(by=routes.SEQUENTIAL, tried="the text's row")
    for name, blocks in (
        ("a block read twice", [*text.blocks, text.blocks[-1]]),
        ("a block left out", text.blocks[:-1]),
    ):
        here.control(name, "distance from the dense output", apart, {"blocks": blocks}, at_most(bound),
                     source="bounds.softmax_row_bounds of both forms", against="dense softmax", key=name.split()[-1])  # fmt: skip


def late(rows: Evidence, text: Loop, hidden_score: float) -> None:
    """B8.3: one block masked after its maximum, and rows with no visible key."""

    def after_maximum(above: float = hidden_score) -> int:
        scores, values = np.append(text.scores, text.scores.max() + above), np.append(text.values, [[1.0]], axis=0)
        return nan(masked_late(scores, values, np.append(text.every, False)))

    here = rows.of(by=routes.SEQUENTIAL, against=routes.TEXT)
    masked = here.of(tried="masked after the block's maximum", hidden_score_above=hidden_score)
    masked.equal(NAN, after_maximum(), 1, headline=True)
    masked.control("the hidden score below the others", NAN, after_maximum, {"above": -1.0}, exactly(1), exactly(0))
    none = ~text.every

    def unguarded(visible: Array = none) -> int:
        return nan(text.output(visible))

    row = here.of(tried="every key masked")
    row.equal(NAN, unguarded(), 1)
    row.control("one visible key", NAN, unguarded, {"visible": ~text.hidden(slice(0, 1))}, exactly(1), exactly(0))
    defined = row.of(against="what the reference defines")
    empty = loop.forward(text.scores, text.values, text.blocks, none)[-1]
    defined.bitwise("outputs whose bits differ from 0", text.output(none, "blocks"), np.zeros(1))
    defined.equal("log-sum-exp other than −∞", loop.log_sum_exp(empty) != -math.inf, 0, leg="floating")
    back = loop.backward(text.scores, text.values, np.ones(1), empty, text.blocks, none)
    defined.equal(
        "gradients other than 0", sum(differing(part, np.zeros_like(part)) for part in back), 0, leg="floating"
    )
    seen = text.hidden(slice(*text.blocks[0]))
    infinite = loop.forward(np.where(seen, text.scores, -np.inf), text.values, text.blocks)[-1]
    defined.of(tried="scores of −∞ in place of a mask").bitwise(
        "values whose bits differ from the masked row's", loop.output(infinite), text.output(seen, "blocks")
    )


def start(rows: Evidence, text: Loop) -> None:
    """B8.4, our remark: the text's guard sets the first factor to 0, which is needless or not enough."""
    seen = text.hidden(slice(*text.blocks[0]))
    here = rows.of(by=routes.SEQUENTIAL, against="no guard")
    here.bitwise("values whose bits the text's guard changes", text.output(text.every, "factor"), text.output(text.every),
                 tried="first block visible")  # fmt: skip

    def results(visible: Array = text.every, guard: str = "factor") -> int:
        return nan(text.output(visible, guard))

    hidden = here.of(against=routes.TEXT)
    hidden.control("the first block masked, only the text's guard", NAN, results, {"visible": seen}, exactly(0), exactly(1),
                   key="guard")  # fmt: skip
    hidden.equal(NAN, results(seen, "blocks"), 0, tried="first block masked, empty blocks skipped")


def compute(
    settings: Mapping[str, Any],
    experiment: Mapping[str, Sequence[Mapping[str, Any]]],
    printed: Mapping[str, Any],
    keys: int,
    masked_keys: int,
    hidden_score: float,
    seed: int,
) -> list[dict[str, Any]]:
    """Rows of B8, the rounded ones from experiment E2.

    `printed`: the text's row, as E2 has it; rows of up to `keys` keys drawn from `seed` are read in fractions, up to
    `masked_keys` with every mask; `hidden_score`: how far above the visible scores the hidden one of B8.3 stands.
    """
    if math.exp(-hidden_score) > 0:
        raise tables.TableError(
            f"verification.online_softmax.hidden_score: e^−{hidden_score:g} does not underflow; 746 does"
        )
    rows, text = Evidence("B8.1", settings), Loop(printed)
    exact(rows, keys, masked_keys, seed)
    bound = read(rows, experiment["blocked_softmax"])
    states(rows, printed, experiment["blocked_softmax_states"])
    broken(rows, text, bound)
    late(rows.of("B8.3"), text, hidden_score)
    start(rows.of("B8.4"), text)
    return rows.rows
