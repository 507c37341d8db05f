"""What fits, found by trying: the second route to the answers of `fit`.

No formula of bytes is used. Weights, training state and the cache of a workload are what the executed model held; a
cache of other lengths is added up layer by layer from the positions that are still kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from transformer_ledger.ledger.counted import Executed
from transformer_ledger.ledger.storage import BITS, bytes_per_number, row_bytes, split, whole
from transformer_ledger.model import ModelSpec

Found = dict[str, Any]

# What each device keeps whole at a stage of ZeRO (arXiv:1910.02054, section 5).
WHOLE = {
    1: {"weights", "quantised_weights", "adapters", "gradients", "master_gradients", "step"},
    2: {"weights", "quantised_weights", "adapters", "step"},
    3: {"quantised_weights", "step"},
}


def room(device: Mapping[str, Any]) -> int:
    """Whole bytes of a device's memory that its reserve leaves."""
    memory = Decimal(device["memory_bytes"])
    return int(memory - memory * Decimal(str(device["reserve"])))


def furthest(fits: Callable[[int], bool], most: int) -> int:
    """The most that fits, up to `most`, in steps that halve as soon as one more does not fit; more never fits better."""
    reached, step = 0, 1 << most.bit_length()
    while step:
        while reached + step <= most and fits(reached + step):
            reached += step
        step //= 2
    return reached


def cache(spec: ModelSpec, T: int, dtype: str, policy: str) -> int:
    """Bytes of one sequence of T positions, layer by layer."""
    total = 0
    for count, a in spec.attentions():
        kept = T
        if a.window and policy == "needed":
            kept = len(range(max(0, T - a.window), T))
        widths = (a.latent.kv_rank, a.latent.rope_dim) if a.latent else (a.kv_heads * a.head_dim,) * 2
        total += count * kept * sum(row_bytes(width, dtype) for width in widths)
    for count, own in spec.states():
        inputs = own.channels * own.kernel * max(16, BITS.get(dtype, 0)) // 8
        total += count * (inputs + own.heads * own.key_dim * own.value_dim * 4)
    return total


def inference(spec: ModelSpec, executed: Executed, space: int, row: Mapping[str, Any]) -> Found | None:
    """The answer to one question about weights and cache; None where nothing was executed."""
    N = executed.count("parameters")
    if N is None:
        return None
    held = whole(Fraction(int(N)) * bytes_per_number(row["dtype"]))
    dtype, policy = row["cache_dtype"], row["policy"]
    if row["question"] == "longest context":
        most = spec.context
    else:
        counted = executed.count("cache_bytes", row["workload"], dtype, policy)
        if counted is None:
            return None
        one, rest = divmod(int(counted), row["executed_batch"])
        assert not rest, "the sequences of a batch hold equally many bytes"
        most = 1 + max(0, space)

    def used(n: int) -> int:
        return held + (cache(spec, n, dtype, policy) if row["question"] == "longest context" else n * one)

    answer = furthest(lambda n: used(n) <= space, most)
    limit = (
        "weights" if held > space else "context" if (row["question"], answer) == ("longest context", most) else "memory"
    )
    return {"answer": answer, "limit": limit, "bytes": used(answer), "bytes_beyond": used(answer + 1)}


def training(executed: Executed, space: int, recipe: str, stage: int) -> Found | None:
    """The fewest devices that hold a recipe's state; None where no optimiser was run."""
    items = {
        (component, part): int(size)
        for found in executed.by.values()
        for (quantity, _, phase, component, part), size in found.items()
        if (quantity, phase) == ("state_bytes", recipe) and component != "total"
    }
    N = executed.count("parameters")
    if not items or N is None:
        return None

    trained = sum(size // int(bytes_per_number(dtype)) for (item, dtype), size in items.items() if item == "adapters")

    def share(devices: int) -> int:
        total, numbers = 0, trained or int(N)
        for (item, dtype), size in items.items():
            if item in WHOLE[stage]:
                total += size
            elif split(dtype)[1]:  # numbers in groups: the scales go with them
                total += whole(Fraction(len(range(0, numbers, devices)) * size, numbers))
            else:
                each = int(bytes_per_number(dtype))
                total += len(range(0, size // each, devices)) * each
        return total

    most = int(N)
    too_few = furthest(lambda devices: share(devices) > space, most)
    if too_few == most:
        return {"answer": None, "limit": "undivided", "bytes": share(most), "bytes_beyond": None}
    answer = too_few + 1
    return {
        "answer": answer,
        "limit": "memory",
        "bytes": share(answer),
        "bytes_beyond": share(too_few) if too_few else None,
    }
