"""Run one model and count what really ran: parameters, operations, cache bytes, optimiser state, activations.

`ours` is our own torch decoder built from the ModelSpec; `transformers` is the public implementation of the model's
config.json. Both run on the meta device at full width, so no weight is ever allocated; activations are measured on the
CPU, on a small copy of either, and traced at full width.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from transformer_ledger import limits
from transformer_ledger.model import ModelSpec
from transformer_ledger.shrunken import COPY, public, public_config, shrunken
from transformer_ledger.tables import TableError

# The meta device holds shapes only: 126 layers at full width stay under 1 GiB with all imports, and take seconds.
MEMORY_BYTES = 4 * 2**30
LAYERS = 2048  # more takes minutes, and no published decoder comes near
SECONDS = 600.0
TIME_LIMIT = "TRANSFORMER_LEDGER_TIME_LIMIT"  # environment variable [s], which the workflow sets: no spec has it

Row = dict[str, Any]


def _seconds() -> float:
    """The time limit [s]. Raises TableError where the environment variable is no time."""
    given = os.environ.get(TIME_LIMIT) or str(SECONDS)
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 1e9:
        raise TableError(f"{TIME_LIMIT}: {given[:40]!r} is no time; allowed: seconds above 0, at most 1e9")
    return seconds


def _limited(name: str, work: Callable[[], Any], answer: Connection) -> None:
    """Do `work` under both limits, in a process of its own, and send what it made or the error that it raised.

    The kernel ends the process when the time is up: it may be deep in a call that hands nothing back to Python.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, _seconds())
    limits.memory(MEMORY_BYTES)
    limits.follow(os.getppid())
    try:
        made = work()
    except TableError as error:
        made = error
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        made = TableError(f"{name}: a tensor has more bytes than 64 bits can count; check its sizes")
    except MemoryError:
        made = TableError(f"{name}: running it takes more than {MEMORY_BYTES // 2**30} GiB; check its layers")
    answer.send(made)


def apart(name: str, work: Callable[[], Any]) -> Any:
    """What `work` makes in a forked process, so that an absurd model fails with a message, not with the machine."""
    context = multiprocessing.get_context("fork")
    answer, sender = context.Pipe(duplex=False)
    process = context.Process(target=_limited, args=(name, work, sender), daemon=True)
    process.start()
    sender.close()
    try:
        made = answer.recv()
    except EOFError:
        process.join()
        code = process.exitcode or 0
        if code == -signal.SIGALRM:
            limit = f"{_seconds():g} s, the time limit"
            made = TableError(
                f"{name}: running it takes more than {limit}; check its sizes or raise execution.time_limit"
            )
        elif code < 0:
            made = TableError(f"{name}: {signal.Signals(-code).name} ended its run; is there memory enough?")
        else:
            made = TableError(f"{name}: its run failed, as shown above")
    process.join()
    if isinstance(made, TableError):
        raise made
    return made


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


def _ours(
    spec: ModelSpec,
    workloads: Mapping[str, Any],
    recipes: Mapping[str, Any],
    dtypes: list[str],
    device: str = "meta",
) -> list[Row]:
    from transformer_ledger.executed import count

    rows = _rows(spec.name, "ours")
    whole, kinds = count.full_depth(spec, device), count.Kinds(spec, device)
    every, used = count.parameters(whole)
    made = rows("parameters", every) + rows("active_parameters", used)
    latent = any(a.latent for _, a in spec.attentions())
    for number, (name, load) in enumerate(workloads.items()):
        batch, context = load["batch"], load["context"]
        forward, both = count.forward_backward(kinds, batch, context)
        if number == 0:  # once a model, layer after layer: the shortcut by kinds counts the same
            walked = count.forward_flops(functools.partial(whole, count.token_ids(whole, batch, context)))
            if walked != forward.total():
                raise count.CountError(f"{spec.name}: {walked} FLOPs at full depth, {forward.total()} by kinds")
        made += rows("flops", forward, name, "prefill") + rows("flops", both, name, "train")
        decoded, held, added = count.decode_and_cache(kinds, batch, context, dtypes)
        made += rows("flops", decoded, name, "decode")
        if latent:
            kinds.model.absorb(True)
            made += rows("flops", count.decode(kinds, batch, context), name, "decode_absorbed")
            kinds.model.absorb(False)
        for dtype in dtypes:
            made += rows("cache_bytes", held[dtype], name, dtype, total=False)
            made += rows("cache_bytes_added", added[dtype], name, dtype, total=False)
    if not workloads:
        count.forward_backward(kinds, 1, 1)  # no workload fits: the recipes still need gradients
    for name, recipe in recipes.items():
        state, shares = count.state_bytes(kinds, recipe)
        made += rows("state_bytes", state, "", name)
        made += rows("state_bytes_per_device", shares, "", name, total=False)
    return made


def _activations(
    spec: ModelSpec,
    hf_config: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    workloads: Mapping[str, Any],
) -> list[Row]:
    """What the model saves for its backward pass, ours and transformers': a small copy on the CPU, and the model with
    each of `workloads`, traced. A traced total is that of all layers, of which two of each kind are traced."""
    from transformer_ledger.executed import activations

    batch, tokens = settings["batch"], settings["tokens"]
    small = shrunken(spec, settings["largest"], tokens)
    whole = replace(spec, layers=tuple((2, layer) for _, layer in spec.kinds()))
    known = public(hf_config, spec) if hf_config else None
    # A grouped kernel takes rows of whole 16 bytes only; a small copy has them.
    odd = any(layer.feedforward.experts and layer.feedforward.width % 8 for _, layer in spec.kinds())
    made: list[Row] = []

    def record(implementation: str, dtype: str, load: str, parts: activations.Parts) -> None:
        rows = _rows(spec.name, implementation)
        for method in dict.fromkeys(method for method, _ in parts):
            counts = {(part, dtype): size for (name, part), size in parts.items() if name == method}
            if load != COPY:
                more = (counts[f"layer {kind}", dtype] * (n - 2) for kind, (n, _) in enumerate(spec.kinds()))
                counts["total", dtype] += sum(more)
            made.extend(rows("activation_bytes", counts, load, method, total=False))

    def ways(implementation: str, described: ModelSpec, dtype: str) -> activations.Ways:
        if implementation == "ours":
            return activations.ours(described, dtype)
        return activations.transformers(public_config(described, hf_config or {}), dtype, described.dropout)

    for dtype in settings["dtypes"]:
        for implementation in ("ours", "transformers") if known else ("ours",):
            record(implementation, dtype, COPY, activations.measured(ways(implementation, small, dtype), batch, tokens))
            loads = {} if odd and implementation == "transformers" else workloads
            found = activations.traced(functools.partial(ways, implementation, whole, dtype), loads)
            for load, parts in found.items():
                record(implementation, dtype, load, parts)
    return made


def counted(
    spec: ModelSpec,
    hf_config: Mapping[str, Any] | None,
    workloads: Mapping[str, Any],
    recipes: Mapping[str, Any],
    cache_dtypes: list[str],
    activations: Mapping[str, Any] | None = None,
    device: str = "meta",
    layouts: Mapping[str, Any] | None = None,
) -> list[Row]:
    """Rows of one model, in this process."""
    import torch

    torch.set_num_threads(1)
    made = _ours(spec, workloads, recipes, cache_dtypes, device)
    if hf_config is not None:
        from transformer_ledger.executed import transformers_model

        make = _rows(spec.name, "transformers")
        made += transformers_model.rows(make, spec, hf_config, workloads, cache_dtypes, device)
    if activations is not None and spec.plain:
        # The small models of `families` run on the CPU: their copies are enough.
        made += _activations(spec, hf_config, activations, workloads if device == "meta" else {})
    if layouts:
        from transformer_ledger.executed import devices

        made += devices.rows(_rows(spec.name, "ours"), spec, layouts)
    return made


def compute(
    model: dict[str, Any],
    hf_config: dict[str, Any] | None,
    workloads: dict[str, dict[str, int]],
    recipes: dict[str, dict[str, Any]],
    cache_dtypes: list[str],
    activations: dict[str, Any] | None = None,
    layouts: dict[str, Any] | None = None,
) -> list[Row]:
    """Rows of the table `execution` for one model.

    `activations` says how large the copy is whose saved activations are measured; without it none is. `layouts` are those
    in which the model is spread over devices.

    It all happens in a process of its own. Raises TableError where the model has more than LAYERS layers, takes more
    than MEMORY_BYTES or too long, has a tensor past int64, or cannot be run by transformers; its kind CountError where
    a count cannot be trusted.
    """
    spec = ModelSpec.from_json(model)
    _seconds()
    if spec.depth > LAYERS:
        raise TableError(
            f"{spec.name}: {spec.depth} layers; models of up to {LAYERS} are run, take it out of the config"
        )
    return apart(
        spec.name, lambda: counted(spec, hf_config, workloads, recipes, cache_dtypes, activations, layouts=layouts)
    )
