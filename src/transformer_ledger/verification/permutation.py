"""Without positions the last token of one causal layer cannot tell in which order the others came.

Claims A5.1 to A5.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from itertools import permutations
from typing import Any

import numpy as np

from transformer_ledger import routes
from transformer_ledger.evidence import EXACT, FLOATING, PAST, Evidence, Printed, at_least, at_most, exactly
from transformer_ledger.model import from_architecture
from transformer_ledger.reference import decoder
from transformer_ledger.reference.arithmetic import BACKENDS, RATIONAL, RUNNING, SEQUENTIAL

RUNNING_ERROR = "running error bound of both orders, first order (Linnainmaa 1976)"
EXPONENTIAL = "rational arithmetic, attention layers alone, (1 + (1+s)²)/2 for e^s"
WORDS = {"words": ["el", "gos", "mossega", "l'", "home"]}
UNCHANGED, CHANGED = (
    Printed(text, WORDS, unpublished="initial weights and the model's size") for text in ("2.22e-16", "0.319")
)
# The exact leg's model; its weights are rounded to multiples of 1/2.
SMALL = {"d_model": 4, "heads": 1, "d_ff": 1, "vocabulary": 8, "norm": "rmsnorm", "feedforward": "gelu"}
GRID = 2
MOVES: dict[
    str, tuple[dict[str, Any], str, dict[str, Any]]
] = {  # claims that something moves: the model, and the one change that makes it stay
    "A5.2": ({"positions": "rope"}, "all positions 0", {"nowhere": True}),
    "A5.3": ({}, "without the mask", {"causal": False}),
    "A5.4": ({"layers": 2}, "without the mask", {"causal": False}),
}


class Orders:
    """Models with drawn weights that read every order of the words but the last, which stays; the given order first.

    A model is named by `layers`, `positions`, `causal`, and `nowhere`: every word at position 0.
    """

    def __init__(self, words: list[str], architecture: dict[str, Any], seed: int):
        known = list(dict.fromkeys(words))
        self.order = np.array([[*order, len(words) - 1] for order in permutations(range(len(words) - 1))])
        self.ids = np.array([known.index(word) for word in words])[self.order]
        self.words, self.architecture, self.seed, self.last = words, architecture, seed, len(words) - 1
        self.read = cache(self._read)

    def _read(
        self,
        run: Any,
        index: int | None = None,
        *,
        layers: int = 1,
        positions: str = "none",
        causal: bool = True,
        nowhere: bool = False,
    ) -> Any:
        """Logits (orders, words, V), or of one order; in rationals hidden states (orders, words, d) of a small model."""
        exact = run is RATIONAL
        keys = (SMALL | {"context": self.last + 1}) if exact else self.architecture
        spec = from_architecture("A5", keys | {"layers": layers, "positions": positions})
        weights = decoder.initial(spec, self.seed)
        places = np.zeros(self.last + 1, int) if nowhere else np.arange(self.last + 1)
        if exact:
            weights = {name: RATIONAL.array(np.round(GRID * value) / GRID) for name, value in weights.items()}
            return decoder.attention_layers(spec, weights, self.order, run, causal, places)
        ids = self.ids if index is None else self.ids[index]
        return decoder.forward(spec, weights, ids, run, causal=causal, positions=places)

    def changes(self, run: Any, word: int, **model: Any) -> Any:
        """|output − output in the first order| of one word wherever it stands: (orders, V)."""
        at = np.argmax(self.order == word, axis=1)
        own = self.read(run, **model)[np.arange(len(at)), at]
        return np.abs(own - own[0])

    def change(self, run: Any, word: int, **model: Any) -> Any:
        """The largest change; in rationals the number of orders that change anything."""
        moved = self.changes(run, word, **model)
        return int((moved != 0).any(axis=-1).sum()) if run is RATIONAL else float(moved.max())

    def bound(self, run: Any, word: int, **model: Any) -> Any:
        """Bound (V,) on the rounding of both outputs, of the first order and of the one that changes most."""
        most = int(np.argmax(self.changes(run, word, **model).max(axis=-1)))
        places = [(index, int(np.argmax(self.order[index] == word))) for index in (0, most)]
        return sum(self.read(RUNNING, index, **model)[at].error for index, at in places)


def _stays(orders: Orders, run: Any, invariant: Evidence) -> None:
    """A5.1, and the last position's part of A5.3."""
    word, name, change = orders.last, "rotary positions", {"positions": "rope"}
    if run is RATIONAL:
        here = invariant.of(against="the given order", source=EXPONENTIAL)
        quantity = "orders that change the output at the last position"
        here.equal(quantity, orders.change(run, word), 0)
        here.control(name, quantity, partial(orders.change, run, word), change, exactly(0))
        return
    bound, quantity = orders.bound(run, word), "largest change of the last position's logits"
    for claim in ("A5.1", "A5.3"):
        invariant.of(claim, source=RUNNING_ERROR, tried="the last position" if claim == "A5.3" else None).within(
            "change of the last position's logits, at the one closest to its bound", orders.changes(run, word), bound
        )
    invariant.control(name, quantity, partial(orders.change, run, word), change, at_most(bound.max()),
                      key="rotated" if run is SEQUENTIAL else None)  # fmt: skip
    invariant.prints(quantity, orders.change(run, word), UNCHANGED, headline=run is SEQUENTIAL,
                     key=f"still_{run.name}")  # fmt: skip


def _moves(orders: Orders, run: Any, claim: str, word: int, moving: Evidence) -> None:
    """One word's output moves with the order, and stays under the claim's one change."""
    model, name, change = MOVES[claim]
    exact, last = run is RATIONAL, word == orders.last
    of_whom = "the last position's logits" if last else f"the logits of «{orders.words[word]}»"
    quantity = "orders that change the output" if exact else f"largest change of {of_whom}"
    of = partial(orders.change, run, word, **model)
    moved = at_least(1 if exact else PAST * float(orders.bound(run, word, **model).max()))
    still = exactly(0) if exact else at_most(float(orders.bound(run, word, **model | change).max()))
    here = moving.of(claim, against="the given order", source=EXPONENTIAL if exact else f"{PAST} × {RUNNING_ERROR}",
                     word=orders.words[word], **model)  # fmt: skip
    shown = {"headline": last or word == orders.last - 1, "key": f"moved_{word}"} if run is SEQUENTIAL else {}
    here.beyond(quantity, of(), moved.low, leg=EXACT if exact else FLOATING, **shown)
    here.control(name, quantity, of, change, moved, still, key=f"control_{word}" if shown else None)
    if claim == "A5.2" and not exact:
        here.prints("largest change of the last position's logits", of(), CHANGED, key=f"printed_{run.name}")


def compute(
    settings: Mapping[str, Any], words: list[str], architecture: dict[str, Any], seed: int
) -> list[dict[str, Any]]:
    """Rows for A5.1 to A5.4: all orders of all `words` but the last, which stays last.

    `architecture` lacks layers and positions, which this job sets. Raises ValueError where the vocabulary is too small.
    """
    if len(set(words)) > architecture["vocabulary"]:
        raise ValueError(
            f"words: {len(set(words))} different words do not fit a vocabulary of {architecture['vocabulary']}"
        )
    orders = Orders(words, architecture, seed)
    invariant = Evidence("A5.1", settings, orders=len(orders.order))
    for run in (RATIONAL, *BACKENDS):
        here = invariant.of(by=routes.ARITHMETICS[run.name])
        _stays(orders, run, here)
        for claim in MOVES:
            for word in range(orders.last) if claim == "A5.3" else (orders.last,):
                _moves(orders, run, claim, word, here)
    return invariant.rows
