"""Run one model and count what really ran: parameters, operations, cache bytes, optimiser state, activations.

`ours` is our own torch decoder built from the ModelSpec; `transformers` is the public implementation of the model's
config.json. Both run on the meta device at full width, so no weight is ever allocated; activations are measured on the
CPU, on a small copy of either.
"""

from __future__ import annotations

import functools
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from transformer_ledger.model import ModelSpec
from transformer_ledger.shrunken import COPY, public, public_config, shrunken
from transformer_ledger.tables import TableError

# The meta device holds shapes only: 126 layers at full width stay under 1 GiB with all imports.
MEMORY_BYTES = 4 * 2**30
LAYERS = 2048  # more takes minutes, and no published decoder comes near

Row = dict[str, Any]


@contextmanager
def _limited(name: str) -> Iterator[None]:
    """A limit on this process's heap, so that an absurd model fails with a message, not with the machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [limit for limit in (MEMORY_BYTES, soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        raise TableError(f"{name}: a tensor has more bytes than 64 bits can count; check its sizes") from None
    except MemoryError:
        raise TableError(f"{name}: running it takes more than {MEMORY_BYTES // 2**30} GiB; check its layers") from None
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _rows(model: str, implementation: str) -> Any:
    """A function that makes the rows of one quantity from counts by component or (component, part), with a total."""

    def rows(
        quantity: str, counts: Mapping[Any, int], workload: str = "", phase: str = "", total: bool = True
    ) -> list[Row]:
        keyed = {key if isinstance(key, tuple) else (key, ""): value for key, value in counts.items()}
        if total:
            keyed["total", ""] = sum(keyed.values())
        return [
            {
                "model": model,
                "implementation": implementation,
                "quantity": quantity,
                "workload": workload,
                "phase": phase,
                "component": component,
                "part": part,
                "value": value,
            }
            for (component, part), value in sorted(keyed.items())
        ]

    return rows


def _ours(spec: ModelSpec, workloads: Mapping[str, Any], recipes: Mapping[str, Any], dtypes: list[str]) -> list[Row]:
    from transformer_ledger.executed import count

    rows = _rows(spec.name, "ours")
    whole, kinds = count.full_depth(spec), count.Kinds(spec)
    every, used = count.parameters(whole)
    made = rows("parameters", every) + rows("active_parameters", used)
    latent = any(layer.attention.latent for _, layer in spec.layers)
    for number, (name, load) in enumerate(workloads.items()):
        batch, context = load["batch"], load["context"]
        forward, both = count.forward_backward(kinds, batch, context)
        if number == 0:  # once a model, layer after layer: the shortcut by kinds counts the same
            walked = count.forward_flops(functools.partial(whole, count.token_ids(batch, context)))
            if walked != forward.total():
                raise count.CountError(f"{spec.name}: {walked} FLOPs at full depth, {forward.total()} by kinds")
        made += rows("flops", forward, name, "prefill") + rows("flops", both, name, "train")
        made += rows("flops", count.decode(kinds, batch, context), name, "decode")
        if latent:
            kinds.model.absorb(True)
            made += rows("flops", count.decode(kinds, batch, context), name, "decode_absorbed")
            kinds.model.absorb(False)
        for dtype in dtypes:
            made += rows("cache_bytes", count.cache_bytes(kinds, batch, context, dtype), name, dtype, total=False)
    if not workloads:
        count.forward_backward(kinds, 1, 1)  # no workload fits: the recipes still need gradients
    for name, recipe in recipes.items():
        made += rows("state_bytes", count.state_bytes(kinds, recipe), "", name)
    return made


def _activations(spec: ModelSpec, hf_config: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> list[Row]:
    """What a small copy of the model saves for its backward pass, on the CPU, ours and transformers'."""
    from transformer_ledger.executed import activations

    batch, tokens = settings["batch"], settings["tokens"]
    small = shrunken(spec, settings["largest"], tokens)
    family = public(hf_config, spec)
    made: list[Row] = []
    for dtype in settings["dtypes"]:
        found = {"ours": activations.measured(small, batch, tokens, dtype)}
        if family:
            config = public_config(small, **family)
            found["transformers"] = activations.measured_transformers(config, batch, tokens, dtype)
        for implementation, parts in found.items():
            for method in dict.fromkeys(method for method, _ in parts):
                counts = {(part, dtype): size for (name, part), size in parts.items() if name == method}
                rows = _rows(spec.name, implementation)
                made += rows("activation_bytes", counts, COPY, method, total=False)
    return made


def compute(
    model: dict[str, Any],
    hf_config: dict[str, Any] | None,
    workloads: dict[str, dict[str, int]],
    recipes: dict[str, dict[str, Any]],
    cache_dtypes: list[str],
    activations: dict[str, Any] | None = None,
) -> list[Row]:
    """Rows of the table `execution` for one model.

    `activations` says how large the copy is whose saved activations are measured; without it none is.

    Raises TableError where the model has more than LAYERS layers, takes more than MEMORY_BYTES to describe or has a
    tensor past int64, CountError where a count cannot be trusted.
    """
    spec = ModelSpec.from_json(model)
    if spec.depth > LAYERS:
        raise TableError(
            f"{spec.name}: {spec.depth} layers; models of up to {LAYERS} are run, take it out of the config"
        )
    with _limited(spec.name):
        import torch

        torch.set_num_threads(1)
        made = _ours(spec, workloads, recipes, cache_dtypes)
        if hf_config is not None:
            from transformer_ledger.executed import transformers_model

            made += transformers_model.rows(_rows(spec.name, "transformers"), spec, hf_config, workloads, cache_dtypes)
        if activations is not None:
            made += _activations(spec, hf_config, activations)
    return made
