"""Under the causal mask one forward pass gives every position the loss that its prefix alone gives.

Claims A7.1 to A7.3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from transformer_ledger import bounds, routes
from transformer_ledger.evidence import PAST, Evidence, Printed, at_least, at_most, between, differing, exactly
from transformer_ledger.model import ModelSpec, from_architecture
from transformer_ledger.reference import decoder
from transformer_ledger.reference.arithmetic import BLAS, RATIONAL, RUNNING, SEQUENTIAL
from transformer_ledger.verification.permutation import EXPONENTIAL, GRID, SMALL

RUNNING_ERROR = "running error bound of both passes, first order (Linnainmaa 1976)"
INTERVAL = "interval of a mean (Serfling 1980, 2.2.3)"
ZERO = Printed("0", {"tokens": 11})
PREFIXES = "a pass over each prefix"


def losses(spec: ModelSpec, weights: Any, ids: Any, run: Any, causal: bool = True) -> Any:
    """Loss (…, T) in nats of predicting each next id of `ids` (…, T + 1), in one forward pass."""
    return run.cross_entropy(decoder.forward(spec, weights, ids[..., :-1], run, causal=causal), ids[..., 1:])


def prefix_losses(spec: ModelSpec, weights: Any, ids: Any, run: Any, causal: bool = True) -> Any:
    """The same losses, each from a forward pass over its own prefix alone."""
    parts = []
    for end in range(1, ids.shape[-1]):
        logits = decoder.forward(spec, weights, ids[..., :end], run, causal=causal)
        parts.append(np.asarray(run.cross_entropy(logits[..., -1:, :], ids[..., end : end + 1])))
    return np.concatenate(parts, axis=-1)


def _exact(tokens: int, seed: int, told: Evidence) -> None:
    """In rationals, on two attention layers of a small width: outputs of one pass against those of the prefixes."""
    spec = from_architecture("A7", SMALL | {"context": tokens, "layers": 2, "positions": "none"})
    weights = {name: RATIONAL.array(np.round(GRID * w) / GRID) for name, w in decoder.initial(spec, seed).items()}
    ids = np.arange(tokens) % spec.vocabulary

    def last(end: int, causal: bool) -> Any:
        return decoder.attention_layers(spec, weights, ids[:end], RATIONAL, causal, np.arange(end))

    @cache
    def other(causal: bool) -> int:
        whole = last(tokens, causal)
        return sum(bool((whole[end - 1] != last(end, causal)[-1]).any()) for end in range(1, tokens + 1))

    quantity = "positions whose output differs from that of their prefix"
    here = told.of(by=routes.RATIONAL, against=PREFIXES, source=EXPONENTIAL, tokens=tokens)
    here.equal(quantity, other(True), 0, scope="conditioned")
    here.control("without the mask", quantity, lambda causal=True: other(causal), {"causal": False}, exactly(0))
    moved = here.of("A7.2", tried="without the mask")
    moved.beyond(quantity, other(False), 1, leg="exact", key="differ")
    moved.control(
        "with the mask", quantity, lambda causal=False: other(causal), {"causal": True}, at_least(1), exactly(0)
    )


def _passes(spec: ModelSpec, weights: Any, ids: Any, run: Any, told: Evidence) -> None:
    """A7.1 and A7.2 in one arithmetic: `sequential` sums in an order that does not depend on the shape."""
    bound = 2 * losses(spec, weights, ids, RUNNING).error
    open_bound = 2 * losses(spec, weights, ids, RUNNING, causal=False).error
    # Without a mask a prefix pass sees its prefix and no more: for its last position that is what the mask leaves.
    passes = {causal: (np.asarray(losses(spec, weights, ids, run, causal)),
                       prefix_losses(spec, weights, ids, run, causal)) for causal in (True, False)}  # fmt: skip

    def bits(causal: bool = True) -> int:
        return differing(*passes[causal])

    def apart(causal: bool = True) -> float:
        return float(np.abs(np.subtract(*passes[causal])).max())

    ordered = run is SEQUENTIAL
    here = told.of(by=routes.ARITHMETICS.get(run.name, routes.TORCH), against=PREFIXES, tokens=len(bound))
    quantity = "positions whose loss differs in any bit from that of their prefix"
    here.prints(quantity, bits(), ZERO, scope="conditioned" if ordered else "stated", headline=ordered,
                source="one fixed order of summation" if ordered else "kernels as shipped", key=f"bits_{run.name}")  # fmt: skip
    if ordered:
        means = [run.total(losses_[None])[0] / len(bound) for losses_ in passes[True]]
        here.bitwise("mean losses whose bits differ", *means, scope="conditioned")
        here.control("without the mask", quantity, bits, {"causal": False}, exactly(0))
    here.within("difference of the loss, at the position closest to its bound", np.abs(np.subtract(*passes[True])), bound, unit="nat",
                scope="conditioned", against=routes.BOUND, source=RUNNING_ERROR, key=f"apart_{run.name}")  # fmt: skip
    largest, most = "largest difference between a loss and that of the prefix", float(bound.max())
    here.control("without the mask", largest, apart, {"causal": False}, at_most(most), unit="nat")
    far = PAST * float(np.maximum(open_bound, bound).max())
    moved = here.of("A7.2", tried="without the mask", unit="nat", source=f"{PAST} × {RUNNING_ERROR}")
    moved.beyond(largest, apart(False), far, headline=ordered, key="open" if ordered else None)
    moved.control("with the mask", largest, partial(lambda causal=False: apart(causal)), {"causal": True}, at_least(far),
                  at_most(most), key="masked" if ordered else None)  # fmt: skip


class Copying:
    """A7.3: models from one initialisation, with the mask and without, read on windows that no training saw.

    `answers` (like `ids`) are what is to be predicted: the next letters, or, shuffled, letters that no input shows.
    """

    def __init__(self, spec: ModelSpec, ids: Any, cut: int, training: dict[str, Any], seed: int):
        self.spec, self.ids, self.cut, self.seed = spec, ids, cut, seed
        self.options = {key: training[key] for key in ("length", "batch", "steps", "learning_rate")}
        length = training["length"]
        starts = np.arange(cut, len(ids) - length, length)
        self.windows = starts[:, None] + np.arange(length + 1)
        self.trained = cache(self._trained)

    def answers(self, shuffled: bool) -> Any:
        return np.random.Generator(np.random.PCG64([self.seed, 2])).permutation(self.ids) if shuffled else self.ids

    def _trained(self, causal: bool, shuffled: bool = False) -> Any:
        from transformer_ledger.reference.training import train

        answers, start = self.answers(shuffled)[: self.cut], decoder.initial(self.spec, self.seed)
        return train(self.spec, start, self.ids[: self.cut], causal=causal, seed=self.seed + 1, answers=answers,
                     **self.options)  # fmt: skip

    def right(self, weights: Any, causal: bool, shuffled: bool = False) -> Any:
        """Share of the letters of each window that have the largest logit: (windows,)."""
        logits = decoder.forward(self.spec, weights, self.ids[self.windows[:, :-1]], BLAS, causal=causal)
        return (logits.argmax(axis=-1) == self.answers(shuffled)[self.windows[:, 1:]]).mean(axis=-1)

    def gain(self, shuffled: bool = False) -> Any:
        """Accuracy without the mask minus accuracy with it, window by window, each model trained as it is read."""
        open_, masked = (self.right(self.trained(causal, shuffled), causal, shuffled) for causal in (False, True))
        return open_ - masked

    def saved(self, alone: bool = False) -> Any:
        """Loss with the mask minus loss without it, window by window; `alone`: without it, but reading only the prefix."""
        ids, one = self.ids[self.windows], self.trained(False)
        open_ = prefix_losses(self.spec, one, ids, BLAS, False) if alone else losses(self.spec, one, ids, BLAS, False)
        return (losses(self.spec, self.trained(True), ids, BLAS) - open_).mean(axis=-1)


def _future(
    copying: Copying, initialisations: int, confidence: float, margin: float, better: float, told: Evidence
) -> None:
    """What seeing the future is worth to models without training and with it."""
    spec, guess, windows = copying.spec, math.log(copying.spec.vocabulary), copying.ids[copying.windows]
    drawn = [decoder.initial(spec, copying.seed + 1 + index) for index in range(initialisations)]
    gains = [(copying.right(w, False) - copying.right(w, True)).mean() for w in drawn]
    low, high = bounds.mean_interval(gains, confidence)
    level = f"{100 * confidence:g} % {INTERVAL}"
    quantity = "accuracy without the mask minus accuracy with it"
    here = told.of(by=routes.SAMPLES, against=routes.MARGIN, source=level)
    untrained = here.of(tried="untrained", initialisations=initialisations)
    untrained.beyond(f"{quantity}, lower end of the interval", low, better, key="untrained")
    untrained.within(f"{quantity}, end of the interval further from 0", max(abs(low), abs(high)), margin, scope="conditioned",
                     key="equivalent")  # fmt: skip
    for name, causal in (("with the mask", True), ("without the mask", False)):
        found = [losses(spec, w, windows, BLAS, causal).mean() for w in drawn]
        untrained.beyond(f"mean loss {name}, lower end of the interval", bounds.mean_interval(found, confidence)[0], guess, unit="nat",
                         scope="conditioned", against="ln V, the loss of guessing")  # fmt: skip
    # ASSUME losses of different windows of the held-out text count as independent.
    trained = here.of(tried="trained", windows=len(windows), length=windows.shape[1] - 1)
    trained.beyond(f"{quantity}, lower end of the interval", bounds.mean_interval(copying.gain(), confidence)[0], better, headline=True,
                   scope="conditioned", key="trained")  # fmt: skip
    trained.beyond("loss with the mask minus loss without it, lower end of the interval",
                   bounds.mean_interval(copying.saved(), confidence)[0],
                   margin, scope="conditioned", unit="nat")  # fmt: skip
    for name, causal in (("with the mask", True), ("without the mask", False)):
        found = losses(spec, copying.trained(causal), windows, BLAS, causal).mean()
        trained.within(f"mean loss {name}", found, guess, scope="conditioned", unit="nat",
                       against="ln V, the loss of guessing", key=f"loss_{name.split()[0]}")  # fmt: skip
    trained.control("the letters to be predicted are shuffled", quantity, lambda **c: float(copying.gain(**c).mean()),
                    {"shuffled": True}, at_least(better), between(-margin, margin), key="shuffled")  # fmt: skip
    trained.control("the model without the mask reads only the prefix", "loss without the mask minus loss with it",
                    lambda **c: -float(copying.saved(**c).mean()), {"alone": True}, at_most(-margin), at_least(0),
                    unit="nat", key="alone")  # fmt: skip


def compute(
    settings: Mapping[str, Any],
    architecture: dict[str, Any],
    tokens: int,
    initialisations: int,
    training: dict[str, Any],
    confidence: float,
    margin: float,
    better: float,
    seed: int,
    text: str,
) -> list[dict[str, Any]]:
    """Rows for A7.1 to A7.3.

    The characters of `text` are the tokens: the first `tokens` + 1 are A7.1's, the last `training.held_out` share is
    kept from training. `architecture` lacks vocabulary and context, which the text gives; `training.layers` is the
    depth of A7.3's models. Raises ValueError where the text is too short.
    """
    from transformer_ledger.reference.training import TORCH

    characters = sorted(set(text))
    ids = np.array([characters.index(character) for character in text])
    length = training["length"]
    cut = round(len(ids) * (1 - training["held_out"]))
    if len(ids) <= tokens or cut <= length or len(ids) - cut <= 2 * length:
        raise ValueError(f"text: {len(ids)} characters are too few for {tokens} tokens and windows of {length}")
    keys = architecture | {"vocabulary": len(characters), "context": max(tokens, length)}
    spec = from_architecture("A7", keys)
    told = Evidence("A7.1", settings)
    _exact(tokens, seed, told)
    for run in (SEQUENTIAL, BLAS, TORCH):
        _passes(spec, decoder.initial(spec, seed), ids[: tokens + 1], run, told)
    small = from_architecture("A7.3", keys | {"layers": training["layers"]})
    copying = Copying(small, ids, cut, training, seed)
    _future(copying, initialisations, confidence, margin, better, told.of("A7.3"))
    return told.rows
