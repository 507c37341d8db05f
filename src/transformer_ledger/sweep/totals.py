"""The totals of all ledgers for one configuration, or for a whole grid of them: the ledgers' own functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformer_ledger.ledger import fit, kv_cache, matmul, parameters, training_state
from transformer_ledger.model import ModelSpec, described

PHASES = {"prefill": "prefill_flops", "decode": "decode_flops", "train": "training_flops"}
Source = ModelSpec | Mapping[str, Any]  # or a model's architecture keys


@dataclass(frozen=True)
class Kinds:
    """What is no size: types of weights and cache, and the training recipe, if there is one."""

    dtype: str
    cache_dtype: str
    recipe: Mapping[str, Any] | None


def _spec(source: Source) -> ModelSpec:
    return source if isinstance(source, ModelSpec) else described("", source)


def memory(source: Source, load: Mapping[str, Any], kinds: Kinds) -> dict[str, Any]:
    """Parameters, weights and cache."""
    spec = _spec(source)
    every, active = parameters.totals(spec)
    weights = fit.weight_bytes(spec, kinds.dtype)
    cache = kv_cache.cache_bytes(spec, load["batch"], load["context"], kinds.cache_dtype, "needed")
    sizes = {"parameters": every, "active_parameters": active, "weight_bytes": weights, "cache_bytes": cache}
    return {**sizes, "inference_bytes": weights + cache}


def work(source: Source, load: Mapping[str, Any], kinds: Kinds) -> dict[str, Any]:
    """FLOPs of every phase."""
    spec = _spec(source)
    return {name: matmul.total(spec, load["batch"], load["context"], phase) for phase, name in PHASES.items()}


def state(source: Source, load: Mapping[str, Any], kinds: Kinds) -> dict[str, Any]:
    """The recipe's state, over as many devices as it says where the load names none; empty without a recipe."""
    if kinds.recipe is None:
        return {}
    recipe = kinds.recipe if load["devices"] is None else {**kinds.recipe, "devices": load["devices"]}
    whole, fullest = training_state.held_bytes(parameters.tensors(_spec(source)), recipe)
    return {"state_bytes": whole, "state_bytes_per_device": fullest}


PARTS = (memory, work, state)
"""Each is bounded by itself: where FLOPs pass 2⁶³, bytes may not."""


def totals(source: Source, load: Mapping[str, Any], kinds: Kinds) -> dict[str, Any]:
    """Parameters, bytes [byte] and FLOPs [FLOP] by column of the table `sweep`, of `batch`, `context` and `devices`.

    Sizes are ints, or integer arrays that broadcast (inside `arrays.checked`, part by part).
    """
    return {name: value for part in PARTS for name, value in part(source, load, kinds).items()}
