"""Under the causal mask one forward pass gives every position the loss that its prefix alone gives.

Claims A7.1 to A7.3.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from transformer_ledger import bounds
from transformer_ledger.cases import case, differing
from transformer_ledger.model import ModelSpec, from_architecture
from transformer_ledger.reference import decoder
from transformer_ledger.reference.arithmetic import BLAS, RATIONAL, RUNNING, SEQUENTIAL
from transformer_ledger.verification import permutation

PRINTED_TOKENS = 11
RUNNING_ERROR = "running error bound of both passes, first order (Linnainmaa 1976)"
LOWER = "lower end of the {:g} % interval"
INTERVAL = "interval of a mean (Serfling 1980, 2.2.3)"


def lower_end(values: Any, confidence: float) -> float:
    """Lower end of the interval of the values' mean: where it is above 0, the mean is."""
    return bounds.mean_interval(values, confidence)[0]


def losses(spec: ModelSpec, weights: Any, ids: Any, run: Any, causal: bool) -> Any:
    """Loss (…, T) in nats of predicting each next id of `ids` (…, T + 1), in one forward pass."""
    ids = np.asarray(ids)
    return run.cross_entropy(decoder.forward(spec, weights, ids[..., :-1], run, causal=causal), ids[..., 1:])


def prefix_losses(spec: ModelSpec, weights: Any, ids: Any, run: Any, causal: bool) -> Any:
    """The same losses, each from a forward pass over its own prefix alone."""
    ids = np.asarray(ids)
    parts = []
    for end in range(1, ids.shape[-1]):
        logits = decoder.forward(spec, weights, ids[..., :end], run, causal=causal)
        parts.append(np.asarray(run.cross_entropy(logits[..., -1:, :], ids[..., end : end + 1])))
    return np.concatenate(parts, axis=-1)


def _exact(tokens: int, seed: int) -> list[dict[str, Any]]:
    """In rationals, on two attention layers of a small width: outputs of one pass against those of the prefixes."""
    model = permutation.Decoder(permutation.SMALL | {"context": tokens}, seed, layers=2)
    ids = np.arange(tokens)[None] % model.spec.vocabulary

    def other(causal: bool) -> int:
        whole = model.rational(ids, causal)[0]
        prefixes = [model.rational(ids[:, : end + 1], causal)[0, -1] for end in range(tokens)]
        return sum(bool((a != b).any()) for a, b in zip(whole, prefixes, strict=True))

    quantity = "positions with another output than their prefix gives"
    masked, open_ = other(causal=True), other(causal=False)
    found = (
        ("A7.1", f"causal mask, {tokens} positions", "exact", quantity, masked, "==", 0),
        ("A7.1", f"no mask, {tokens} positions", "control", quantity, open_, ">=", 1),
        ("A7.2", f"no mask, {tokens} positions", "exact", quantity, open_, ">=", 1),
    )
    source = "rational arithmetic, attention layers alone, (1 + (1+s)²)/2 for e^s"
    return [case(*row, bound_source=source, backend=RATIONAL.name) for row in found]


def _passes(spec: ModelSpec, weights: Any, ids: Any, tokens: int) -> list[dict[str, Any]]:
    from transformer_ledger.reference.training import TORCH

    as_printed = tokens == PRINTED_TOKENS
    bound = 2 * losses(spec, weights, ids, RUNNING, causal=True).error
    open_bound = 2 * losses(spec, weights, ids, RUNNING, causal=False).error
    bits = "positions whose loss differs in any bit from their prefix's"
    rows = []
    for run in (SEQUENTIAL, BLAS, TORCH):
        first = run is SEQUENTIAL
        whole = np.asarray(losses(spec, weights, ids, run, causal=True))
        prefixes = prefix_losses(spec, weights, ids, run, causal=True)
        unmasked = np.asarray(losses(spec, weights, ids, run, causal=False))
        # Without a mask a prefix pass sees its prefix and no more: for its last position that is what the mask leaves.
        open_prefixes = prefix_losses(spec, weights, ids, run, causal=False)
        named: dict[str, Any] = {"backend": run.name}
        place = f"causal mask, {tokens} positions"
        rows.append(
            case(
                "A7.1",
                place,
                "floating",
                bits,
                differing(whole, prefixes),
                "bitwise",
                0,
                scope="conditioned" if first else "stated",
                bound_source="one fixed order of summation" if first else "kernels as shipped",
                printed="0",
                headline=first,
                applicable=as_printed,
                **named,
            )
        )
        if first:
            means = [run.total(part[None])[0] / tokens for part in (whole, prefixes)]
            rows.append(
                case(
                    "A7.1",
                    place,
                    "floating",
                    "mean losses whose bits differ",
                    differing(*means),
                    "bitwise",
                    0,
                    scope="conditioned",
                    bound_source="one fixed order of summation",
                    printed="0",
                    applicable=as_printed,
                    **named,
                )
            )
        difference, most = bounds.nearest(whole - prefixes, bound)
        rows.append(
            case(
                "A7.1",
                place,
                "floating",
                "difference of the loss nearest to its bound",
                difference,
                "<=",
                most,
                scope="conditioned",
                bound_source=RUNNING_ERROR,
                printed="0",
                unit="nat",
                headline=run is BLAS,
                **named,
            )
        )
        change = np.abs(unmasked - open_prefixes)
        broken = {
            "quantity": "largest difference between a loss and its prefix's",
            "measured": change.max(),
            "relation": ">=",
            "expected": 100 * float(np.maximum(open_bound, bound).max()),
            "bound_source": f"100 × {RUNNING_ERROR}",
            "unit": "nat",
            **named,
        }
        open_place = f"no mask, {tokens} positions"
        rows += [
            case("A7.1", open_place, "control", **broken),
            case("A7.2", open_place, "floating", headline=first, **broken),
            case(
                "A7.2",
                "the mask put back",
                "control",
                "difference of the loss nearest to its bound",
                difference,
                "<=",
                most,
                bound_source=RUNNING_ERROR,
                unit="nat",
                **named,
            ),
        ]
        if first:
            rows.append(
                case(
                    "A7.1",
                    open_place,
                    "control",
                    bits,
                    differing(unmasked, open_prefixes),
                    ">=",
                    1,
                    bound_source="bit for bit",
                    **named,
                )
            )
    return rows


def _right(spec: ModelSpec, weights: Any, windows: Any, causal: bool) -> Any:
    """Share of the tokens of each window that have the largest logit: (windows,)."""
    logits = decoder.forward(spec, weights, windows[:, :-1], BLAS, causal=causal)
    return (logits.argmax(axis=-1) == windows[:, 1:]).mean(axis=-1)


def _untrained(
    spec: ModelSpec, windows: Any, initialisations: int, confidence: float, seed: int
) -> list[dict[str, Any]]:
    """What the open future is worth to a model that has learned nothing."""
    lower = LOWER.format(100 * confidence)
    gains, masked, open_ = [], [], []
    for index in range(initialisations):
        weights = decoder.initial(spec, seed + 1 + index)
        gains.append((_right(spec, weights, windows, False) - _right(spec, weights, windows, True)).mean())
        masked.append(losses(spec, weights, windows, BLAS, causal=True).mean())
        open_.append(losses(spec, weights, windows, BLAS, causal=False).mean())
    place = f"untrained, {initialisations} initialisations"
    rows = [
        case(
            "A7.3",
            place,
            "floating",
            f"share of right predictions without the mask less with it, {lower}",
            lower_end(gains, confidence),
            ">=",
            0,
            bound_source=f"{INTERVAL}; a drawn head treats all characters alike, so 0 is what is left",
        )
    ]
    guess = math.log(spec.vocabulary)
    rows += [
        case(
            "A7.3",
            f"{place}, {name}",
            "floating",
            f"mean loss, {lower}",
            lower_end(found, confidence),
            ">=",
            guess,
            scope="conditioned",
            bound_source="ln V, the loss of guessing: nothing is predicted without training",
            unit="nat",
        )
        for name, found in (("with the mask", masked), ("without the mask", open_))
    ]
    return rows


def _trained(
    spec: ModelSpec, ids: Any, windows: Any, training: dict[str, Any], confidence: float, seed: int
) -> list[dict[str, Any]]:
    """Two models from one initialisation, trained on the same windows with and without the mask."""
    from transformer_ledger.reference.training import train

    lower = LOWER.format(100 * confidence)
    start = decoder.initial(spec, seed)
    keys = ("length", "batch", "steps", "learning_rate")
    options = {key: training[key] for key in keys} | {"seed": seed + 1}
    masked = train(spec, start, ids, causal=True, **options)
    open_ = train(spec, start, ids, causal=False, **options)
    # ASSUME losses of different windows of the held-out text count as independent.
    with_mask = losses(spec, masked, windows, BLAS, causal=True).mean(axis=-1)
    without = losses(spec, open_, windows, BLAS, causal=False).mean(axis=-1)
    alone = prefix_losses(spec, open_, windows, BLAS, causal=False).mean(axis=-1)
    gain = _right(spec, open_, windows, False) - _right(spec, masked, windows, True)
    place = f"trained, {len(windows)} held-out windows of {windows.shape[1] - 1} characters"
    guess = math.log(spec.vocabulary)
    rows = [
        case(
            "A7.3",
            place,
            "floating",
            f"mean loss {name}",
            found.mean(),
            "<=",
            guess,
            scope="conditioned",
            bound_source="ln V, the loss of guessing",
            unit="nat",
            headline=True,
        )
        for name, found in (("with the mask", with_mask), ("without the mask", without))
    ]
    rows += [
        case(
            "A7.3",
            place,
            "floating",
            f"{quantity}, {lower}",
            lower_end(found, confidence),
            ">=",
            0,
            scope="conditioned",
            bound_source=INTERVAL,
            unit=unit,
        )
        for quantity, found, unit in (
            ("loss with the mask less without it", with_mask - without, "nat"),
            ("share of right predictions without the mask less with it", gain, ""),
        )
    ]
    rows.append(
        case(
            "A7.3",
            f"{place}, trained without the mask and given the prefix alone",
            "control",
            f"its loss less that of the model trained with the mask, {lower}",
            lower_end(alone - with_mask, confidence),
            ">=",
            0,
            bound_source=f"{INTERVAL}; where there is no future to copy the advantage is gone",
            unit="nat",
        )
    )
    return rows


def compute(
    architecture: dict[str, Any],
    tokens: int,
    initialisations: int,
    training: dict[str, Any],
    confidence: float,
    seed: int,
    text: str,
) -> list[dict[str, Any]]:
    """Rows for A7.1 to A7.3.

    The characters of `text` are the tokens: the first `tokens` + 1 are A7.1's, the last `training.held_out` share is
    kept from training. `architecture` lacks vocabulary and context, which the text gives; `training.layers` is the
    depth of A7.3's models. Raises ValueError where the text is too short.
    """
    characters = sorted(set(text))
    ids = np.array([characters.index(character) for character in text])
    length = training["length"]
    cut = round(len(ids) * (1 - training["held_out"]))
    starts = np.arange(0, len(ids) - cut - length, length)
    if len(ids) <= tokens or cut <= length or len(starts) < 2:
        raise ValueError(f"text: {len(ids)} characters are too few for {tokens} tokens and windows of {length}")
    keys = architecture | {"vocabulary": len(characters), "context": max(tokens, length)}
    spec = from_architecture("A7", keys)
    small = from_architecture("A7.3", keys | {"layers": training["layers"]})
    windows = ids[cut:][starts[:, None] + np.arange(length + 1)]
    rows = _exact(tokens, seed) + _passes(spec, decoder.initial(spec, seed), ids[: tokens + 1], tokens)
    rows += _untrained(small, windows, initialisations, confidence, seed)
    return rows + _trained(small, ids[:cut], windows, training, confidence, seed)
