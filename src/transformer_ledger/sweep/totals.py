"""The totals of all ledgers for one configuration, or for a whole grid of them: the ledgers' own functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformer_ledger.ledger import fit, kv_cache, matmul, parameters, training_state
from transformer_ledger.model import ModelSpec, described


def totals(
    spec: ModelSpec | Mapping[str, Any],
    batch: Any,
    context: Any,
    dtype: str,
    cache_dtype: str,
    recipe: Mapping[str, Any] | None,
    devices: Any = None,
) -> dict[str, Any]:
    """Parameters, bytes [byte] and FLOPs [FLOP] by column of the table `sweep`; `spec` may be architecture keys.

    Sizes are ints, or integer arrays that broadcast (inside `arrays.checked`). `devices` share the state of a recipe;
    where there are none, as many as the recipe says. Without a recipe there is no state.
    """
    if not isinstance(spec, ModelSpec):
        spec = described("", spec)
    every, active = parameters.totals(spec)
    weights = fit.weight_bytes(spec, dtype)
    cache = kv_cache.cache_bytes(spec, batch, context, cache_dtype, "needed")
    found = {
        "parameters": every,
        "active_parameters": active,
        "weight_bytes": weights,
        "cache_bytes": cache,
        "inference_bytes": weights + cache,
        "prefill_flops": matmul.total(spec, batch, context, "prefill"),
        "decode_flops": matmul.total(spec, batch, context, "decode"),
        "training_flops": matmul.total(spec, batch, context, "train"),
    }
    if recipe is not None:
        divided = recipe if devices is None else {**recipe, "devices": devices}
        found["state_bytes"], found["state_bytes_per_device"] = training_state.totals(spec, divided)
    return found
