"""What fits into a device: the longest context, the largest batch, and the fewest devices that train a model.

In one device: all weights, and the keys and values of one sequence (longest context) or of sequences as long as a
workload's (largest batch). Over several: a recipe's training state, divided as ZeRO does it. Nothing else is counted:
activations, logits, work space, fragmentation and what an engine sets aside must find room in the device's reserve.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from transformer_ledger.formulas.shim import ceiling_quotient
from transformer_ledger.formulas.training_state import per_parameter
from transformer_ledger.ledger import search, training_state
from transformer_ledger.ledger.counted import DERIVED, NOTHING, Executed, Rows
from transformer_ledger.ledger.kv_cache import cache_bytes
from transformer_ledger.ledger.parameters import totals
from transformer_ledger.ledger.storage import bytes_per_number
from transformer_ledger.model import ModelSpec

FULLY_SHARDED = 3  # ZeRO stage of a recipe that names none
ENGINES = ("needed", "reserved")  # policies of a cache that an engine may follow; they differ where there is a window


def available(device: Mapping[str, Any]) -> int:
    """Bytes of a device's memory that may be filled; the reserve is taken as the decimal that is written."""
    return int(device["memory_bytes"] * (1 - Fraction(str(device["reserve"]))))


def weight_bytes(spec: ModelSpec, dtype: str) -> Any:
    """Bytes of one copy of the weights, the last byte begun counting whole.

    # ASSUME every tensor is stored in the one type, norms and embeddings too, and nothing is kept beside it.
    """
    b = bytes_per_number(dtype)
    return ceiling_quotient(per_parameter(totals(spec)[0], b.numerator), b.denominator)


def longest_context(spec: ModelSpec, room: int, dtype: str, policy: str) -> int:
    """Most positions of one sequence, up to the model's context, whose keys and values fit into `room` bytes."""
    too_long = bisect_left(
        range(1, spec.context + 1), True, key=lambda T: cache_bytes(spec, 1, T, dtype, policy) > room
    )
    return too_long if room >= 0 else 0


def largest_batch(spec: ModelSpec, context: int, room: int, dtype: str, policy: str) -> int:
    """Most sequences of `context` positions whose keys and values fit into `room` bytes: each takes the same."""
    return max(room, 0) // cache_bytes(spec, 1, context, dtype, policy)


def fewest_devices(share: Callable[[int], int], room: int, most: int) -> int | None:
    """Least number of devices, up to `most`, whose largest share fits into `room` bytes; None where there is none.

    More devices never have a larger share, and the first guess is too small unless it fits: a share of the whole.
    """
    if share(most) > room:
        return None
    least = min(-(-share(1) // room), most)
    high = least
    while share(high) > room:
        high = min(2 * high, most)
    return least + bisect_left(range(least, high + 1), True, key=lambda devices: share(devices) <= room)


def state_share(model: Any, recipe: Mapping[str, Any], stage: int) -> Callable[[int], int]:
    """Bytes of a recipe's state on the device that holds most of it, by number of devices: the ledger's own rows."""

    def share(devices: int) -> int:
        divided = {**recipe, "devices": devices, "zero_stage": stage}
        return sum(row["bytes_per_device"] for row in training_state.compute({"": model}, {"": divided}))

    return share


def _inference(
    spec: ModelSpec, room: int, weights: str, cache: str, policy: str, workloads: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    held = weight_bytes(spec, weights)
    row = {"dtype": weights, "cache_dtype": cache, "policy": policy}

    def used(batch: int, context: int) -> int:
        return held + (cache_bytes(spec, batch, context, cache, policy) if batch and context else 0)

    def limit(answer: int, most: int | None = None) -> str:
        return "weights" if held > room else "context" if answer == most else "memory"

    context = longest_context(spec, room - held, cache, policy)
    yield {
        **row,
        "question": "longest context",
        "batch": 1,
        "answer": context,
        "limit": limit(context, spec.context),
        "bytes": used(1, context),
        "bytes_beyond": used(1, context + 1),
    }
    for name, load in workloads.items():
        if load["context"] > spec.context:
            continue
        batch = largest_batch(spec, load["context"], room - held, cache, policy)
        yield {
            **row,
            "question": "largest batch",
            "workload": name,
            "context": load["context"],
            "answer": batch,
            "limit": limit(batch),
            "bytes": used(batch, load["context"]),
            "bytes_beyond": used(batch + 1, load["context"]),
        }


def _training(model: Any, spec: ModelSpec, room: int, recipes: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, recipe in recipes.items():
        stage = recipe.get("zero_stage") or FULLY_SHARDED
        share = state_share(model, recipe, stage)
        devices = fewest_devices(share, room, totals(spec)[0])
        yield {
            "question": "fewest devices",
            "dtype": recipe["weights"],
            "recipe": name,
            "zero_stage": stage,
            "answer": devices,
            "limit": "memory" if devices else "undivided",
            "bytes": share(devices) if devices else share(totals(spec)[0]),
            "bytes_beyond": share(devices - 1) if devices and devices > 1 else None,
        }


def _met(row: Mapping[str, Any], found: Mapping[str, Any] | None) -> dict[str, Any]:
    """A row against what trying found; no answer counts as 0."""
    if found is None:
        return {
            "searched": None,
            "difference": None,
            "bytes_difference": None,
            "limit_difference": None,
            "met_by": NOTHING,
        }
    held, beyond = (row[name] or 0 for name in ("bytes", "bytes_beyond"))
    return {
        "searched": found["answer"],
        "difference": (row["answer"] or 0) - (found["answer"] or 0),
        "bytes_difference": held + beyond - found["bytes"] - (found["bytes_beyond"] or 0),
        "limit_difference": int(row["limit"] != found["limit"]),
        "met_by": DERIVED,
    }


def _again(
    spec: ModelSpec, executed: Executed, described: Mapping[str, Any], row: Mapping[str, Any], loads: Mapping[str, Any]
) -> dict[str, Any]:
    room = search.room(described)
    if "recipe" in row:
        return _met(row, search.training(executed, room, row["recipe"], row["zero_stage"]))
    batch = loads[row["workload"]]["batch"] if "workload" in row else 1
    return _met(row, search.inference(spec, executed, room, {**row, "executed_batch": batch}))


def compute(
    models: dict[str, Any],
    devices: dict[str, Any],
    weight_dtypes: list[str],
    workloads: dict[str, Any],
    cache_dtypes: list[str],
    recipes: dict[str, Any],
    execution: Mapping[str, Rows] | None = None,
) -> list[dict[str, Any]]:
    """Rows of the table: one row a question about one model on one kind of device.

    Each answer is found once more by trying (`search`), with the bytes that the executed model held.
    """
    rows = []
    for name, data in models.items():
        spec, executed = ModelSpec.from_json(data), Executed((execution or {}).get(name, []))
        windowed = any(a.window for _, a in spec.attentions())
        for device, described in devices.items():
            room = available(described)
            found = [
                row
                for weights in weight_dtypes
                for cache in cache_dtypes
                for policy in (ENGINES if windowed else ENGINES[:1])
                for row in _inference(spec, room, weights, cache, policy, workloads)
            ]
            found += _training(data, spec, room, recipes)
            own = {
                "model": name,
                "device": device,
                "memory_bytes": described["memory_bytes"],
                "available_bytes": room,
            }
            rows += [{**own, **row, **_again(spec, executed, described, row, workloads)} for row in found]
    return rows
