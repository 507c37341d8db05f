"""Without positions the last token of one causal layer cannot tell in which order the others came.

Claims A5.1 to A5.4.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np

from transformer_ledger import bounds
from transformer_ledger.cases import case
from transformer_ledger.model import ModelSpec, from_architecture
from transformer_ledger.reference import decoder
from transformer_ledger.reference.arithmetic import BACKENDS, RATIONAL, RUNNING, SEQUENTIAL

PRINTED_WORDS = ["el", "gos", "mossega", "l'", "home"]
PRINTED_INVARIANCE, PRINTED_CHANGE = "2.22e-16", "0.319"
RUNNING_ERROR = "running error bound of both orders, first order (Linnainmaa 1976)"
# The exact leg runs attention layers with residuals alone: norms and feed-forward act on each position by itself, so
# they change nothing in the argument and only lengthen the fractions. Weights are rounded to multiples of 1/2.
SMALL = {"d_model": 4, "heads": 1, "d_ff": 1, "vocabulary": 8, "norm": "rmsnorm", "feedforward": "gelu"}
GRID = 2


class Decoder:
    """One reference model with drawn weights, run on every order of the words; one layer, no positions unless said."""

    def __init__(self, architecture: dict[str, Any], seed: int, layers: int = 1, positions: str = "none"):
        keys = architecture | {"layers": layers, "positions": positions}
        self.spec: ModelSpec = from_architecture(f"{layers} layers, positions {positions}", keys)
        self.weights = decoder.initial(self.spec, seed)

    def logits(self, ids: Any, run: Any, causal: bool = True, positions: Any = None) -> Any:
        """(orders, words, V), the words where they stand."""
        return decoder.forward(self.spec, self.weights, ids, run, causal=causal, positions=positions)

    def rational(self, ids: Any, causal: bool = True) -> Any:
        """Exact last hidden states (orders, words, d) of the attention layers alone, with rounded weights."""
        weights = {name: RATIONAL.array(np.round(GRID * value) / GRID) for name, value in self.weights.items()}
        x = weights["token_embedding"][ids]
        visible = decoder.visibility(ids.shape[1], causal)
        for index, layer in enumerate(self.spec.each_layer()):
            mine, own = decoder.under(weights, f"layers.{index}.attention."), layer.attention
            turn = decoder.rotation(self.spec, own.head_dim, np.arange(ids.shape[1]), "interleaved", RATIONAL)
            joined, _ = decoder.attention(x, mine, own, visible, turn, RATIONAL)
            x = x + decoder.linear(joined, mine, "output", RATIONAL)
        return x

    def error(self, ids: Any, at: int, causal: bool = True, positions: Any = None) -> Any:
        """Running error bound of the logits at one place of one order: (V,)."""
        return self.logits(ids, RUNNING, causal, positions)[at].error


def orders(words: int) -> Any:
    """Every order of the words but the last, which stays: (orders, words), the given order first."""
    return np.array([[*order, words - 1] for order in permutations(range(words - 1))])


def followed(logits: Any, order: Any) -> Any:
    """Logits of each word wherever it stands: (orders, words, V), the words in their first order."""
    return np.take_along_axis(logits, np.argsort(order, axis=1)[..., None], axis=1)


def _changed(logits: Any) -> int:
    """Number of orders whose logits (orders, …) are not exactly those of the first."""
    return sum(bool((other != logits[0]).any()) for other in logits[1:])


def compute(words: list[str], architecture: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """Rows for A5.1 to A5.4: all orders of all `words` but the last, which stays last.

    `architecture` lacks layers and positions, which this job sets. Raises ValueError where the vocabulary is too small.
    """
    known = list(dict.fromkeys(words))
    if len(known) > architecture["vocabulary"]:
        raise ValueError(f"words: {len(known)} different words do not fit a vocabulary of {architecture['vocabulary']}")
    order = orders(len(words))
    ids = np.array([known.index(word) for word in words])[order]
    last = len(words) - 1
    text = f"{len(order)} orders of «{' '.join(words[:-1])}» before «{words[-1]}»"
    as_printed = words == PRINTED_WORDS
    one, two = Decoder(architecture, seed), Decoder(architecture, seed, layers=2)
    turned = Decoder(architecture, seed, positions="rope")
    # Every order adds up the same magnitudes, so where the exact values agree one bound serves all orders.
    bound_one, bound_two = 2 * one.error(ids[0], last), 2 * two.error(ids[0], last, causal=False)
    nowhere = np.zeros(len(words), int)
    bound_nowhere = 2 * turned.error(ids[0], last, positions=nowhere)
    bound_open = 2 * one.logits(ids[0], RUNNING, causal=False).error
    rows = _exact(len(words), seed)

    def unmoved(
        claim: str, name: str, leg: str, quantity: str, change: Any, bound: Any, **extra: Any
    ) -> dict[str, Any]:
        found, most = bounds.nearest(change, bound)
        return case(claim, name, leg, quantity, found, "<=", most, bound_source=RUNNING_ERROR, **extra)

    def moved(
        claim: str, name: str, leg: str, quantity: str, logits: Any, at: int, model: Decoder, **extra: Any
    ) -> dict[str, Any]:
        """The order that changes the logits at `at` most, against 100 times the bound of that pair of orders."""
        change = np.abs(logits[:, at] - logits[0, at]).max(axis=-1)
        most = int(np.argmax(change))
        bound = float((model.error(ids[0], at) + model.error(ids[most], at)).max())
        source = f"100 × {RUNNING_ERROR}"
        return case(claim, name, leg, quantity, change[most], ">=", 100 * bound, bound_source=source, **extra)

    largest = "largest change of the last position's logits"
    nearest = "change of the last position's logits nearest to its bound"
    for run in BACKENDS:
        first = run is SEQUENTIAL
        named: dict[str, Any] = {"backend": run.name}
        plain, rope, deep = (model.logits(ids, run) for model in (one, turned, two))
        still = plain[:, last] - plain[0, last]
        entry = np.unravel_index(int(np.argmax(np.abs(still))), still.shape)
        rows += [
            case(
                "A5.1",
                text,
                "floating",
                largest,
                np.abs(still).max(),
                "<=",
                bound_one[entry[1]],
                bound_source=RUNNING_ERROR,
                printed=PRINTED_INVARIANCE,
                headline=first,
                applicable=as_printed,
                **named,
            ),
            unmoved("A5.1", text, "floating", nearest, still, bound_one, **named),
            moved("A5.1", "with RoPE", "control", largest, rope, last, turned, **named),
            moved("A5.2", f"{text}, with RoPE", "floating", largest, rope, last, turned, headline=first, **named),
        ]
        if first:
            rows.append(_digits(text, float(np.abs(rope[:, last] - rope[0, last]).max()), as_printed))
        level = turned.logits(ids, run, positions=nowhere)[:, last]
        rows.append(
            unmoved("A5.2", "RoPE with every position 0", "control", nearest, level - level[0], bound_nowhere, **named)
        )
        follow = followed(plain, order)
        for at in range(last):
            place = f"{text}: position {at}, whatever stands there"
            rows.append(
                moved(
                    "A5.3",
                    place,
                    "floating",
                    "largest change of the position's logits",
                    plain,
                    at,
                    one,
                    headline=first and at == last - 1,
                    **named,
                )
            )
        for at, word in enumerate(words[:-1]):
            change = np.abs(follow[:, at] - follow[0, at]).max(axis=-1)
            most = int(np.argmax(change))
            moved_to = int(np.flatnonzero(order[most] == at)[0])
            bound = float((one.error(ids[0], at) + one.error(ids[most], moved_to)).max())
            rows.append(
                case(
                    "A5.3",
                    f"{text}: word {at} «{word}», wherever it stands",
                    "floating",
                    "largest change of the word's logits",
                    change[most],
                    ">=",
                    100 * bound,
                    bound_source=f"100 × {RUNNING_ERROR}",
                    **named,
                )
            )
        rows.append(
            unmoved("A5.3", f"{text}: position {last}, the last", "floating", nearest, still, bound_one, **named)
        )
        free = followed(one.logits(ids, run, causal=False), order)
        rows += [
            unmoved(
                "A5.3",
                "no mask, every word wherever it stands",
                "control",
                "change of a word's logits nearest to its bound",
                free - free[0],
                bound_open,
                **named,
            ),
            moved("A5.4", f"two layers, {text}", "floating", largest, deep, last, two, headline=first, **named),
        ]
        blind = two.logits(ids, run, causal=False)[:, last]
        rows.append(unmoved("A5.4", "two layers, no mask", "control", nearest, blind - blind[0], bound_two, **named))
    rows.append(
        case(
            "A5.1",
            "the text's figure beside our bound",
            "floating",
            largest,
            float(PRINTED_INVARIANCE),
            "<=",
            float(bound_one.max()),
            bound_source=RUNNING_ERROR,
            printed=PRINTED_INVARIANCE,
            applicable=as_printed,
        )
    )
    return rows


def _digits(text: str, change: float, as_printed: bool) -> dict[str, Any]:
    """Whether our change rounds to the printed digits."""
    half = 0.5 * 10.0 ** -len(PRINTED_CHANGE.split(".")[1])
    return case(
        "A5.2",
        f"{text}, with RoPE: the printed digits",
        "floating",
        "largest change of the last position's logits",
        change,
        "in",
        (float(PRINTED_CHANGE) - half, float(PRINTED_CHANGE) + half),
        scope="printed",
        bound_source="rounds to the printed digits",
        printed=PRINTED_CHANGE,
        backend=SEQUENTIAL.name,
        applicable=as_printed,
    )


def _exact(words: int, seed: int) -> list[dict[str, Any]]:
    """The same in rationals, on attention layers of a small width and as many words, all different."""
    order = orders(words)
    small = SMALL | {"context": words}
    one, two = Decoder(small, seed), Decoder(small, seed, layers=2)
    follow, free = followed(one.rational(order), order), followed(one.rational(order, causal=False), order)
    changed = "orders with another output at the last position"
    moving = "words with another output in some order"
    found = (
        ("A5.1", "one layer", "exact", changed, _changed(follow[:, -1]), "==", 0),
        (
            "A5.2",
            "one layer with RoPE",
            "exact",
            changed,
            _changed(Decoder(small, seed, positions="rope").rational(order)[:, -1]),
            ">=",
            1,
        ),
        (
            "A5.3",
            "one layer, every word wherever it stands",
            "exact",
            moving,
            sum(_changed(follow[:, at]) > 0 for at in range(words)),
            "==",
            words - 1,
        ),
        (
            "A5.3",
            "one layer, no mask, every word wherever it stands",
            "control",
            moving,
            sum(_changed(free[:, at]) > 0 for at in range(words)),
            "==",
            0,
        ),
        ("A5.4", "two layers", "exact", changed, _changed(two.rational(order)[:, -1]), ">=", 1),
        (
            "A5.4",
            "two layers, no mask",
            "control",
            changed,
            _changed(two.rational(order, causal=False)[:, -1]),
            "==",
            0,
        ),
    )
    source = "rational arithmetic, attention layers alone, (1 + (1+s)²)/2 for e^s"
    return [case(*row, bound_source=source, backend=RATIONAL.name) for row in found]
