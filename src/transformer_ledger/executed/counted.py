"""Any decoder that transformers implements, built on the meta device and counted: the second tier, without a closed form.

Nothing here is derived, so nothing is held against it: a count says what transformers' model has and runs, with eager
attention and no fused kernels. Where layers keep a fixed state (state-space and gated linear layers), it is counted
beside the keys and values that grow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from transformer_ledger import huggingface
from transformer_ledger.executed.run import LAYERS, apart
from transformer_ledger.keys import SAME
from transformer_ledger.model import ModelError
from transformer_ledger.tables import TableError

PER_TOKEN = (
    "num_experts_per_tok",
    "top_k_experts",
    "num_experts_per_token",
    "moe_topk",
    "moe_k",
    "num_selected_experts",
)


def _checked(keys: Mapping[str, Any]) -> None:
    """Refuse sizes that no model has, which transformers takes as they come."""
    for name in {name for names in SAME for name in names}:
        value = keys.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and not 1 <= value < 2**31:
            raise ModelError(name, f"{value}; allowed: 1 to {2**31 - 1}")
    for name in SAME[1]:
        if isinstance(keys.get(name), int) and keys[name] > LAYERS:
            raise ModelError(name, f"{keys[name]} layers; models of up to {LAYERS} are built")


def _tensors(found: Any) -> Iterator[Any]:
    """Every tensor in an object's attributes, and in the mappings and lists among them."""
    import torch

    if isinstance(found, torch.Tensor):
        yield found
    elif isinstance(found, dict):
        for value in found.values():
            yield from _tensors(value)
    elif isinstance(found, list | tuple):
        for value in found:
            yield from _tensors(value)


def _held(cache: Any) -> Counter[str]:
    """Bytes in a cache: what grows with the sequence, and what does not."""
    held: Counter[str] = Counter()
    for layer in cache.layers:
        for name, value in vars(layer).items():
            kind = "state" if name.endswith("_states") else "bytes"
            held[kind] += sum(tensor.numel() * tensor.element_size() for tensor in _tensors(value) if tensor.dim())
    return held


def _component(path: str) -> str:
    """The ledger's component of a tensor where it has one, else its module's path without layer numbers."""
    from transformer_ledger.executed.count import CountError
    from transformer_ledger.executed.transformers_model import component_of

    owner, _, part = path.rpartition(".")
    owner = owner if part in ("weight", "bias") else path
    try:
        return component_of("." + owner)
    except CountError:
        return ".".join(name for name in owner.split(".") if not name.isdigit() and name not in ("model", "layers"))


def _parameters(model: Any) -> tuple[Counter[str], int | None, int]:
    """Parameters by component; the active ones, None where it is not known how many experts a token uses; and those of
    them that are experts'."""
    counts: Counter[str] = Counter()
    per_token = next((k for name in PER_TOKEN if (k := getattr(model.config, name, None))), None)
    active, routed = 0, 0
    for path, tensor in model.named_parameters():
        counts[_component(path)] += tensor.numel()
        if ".experts." in path and tensor.dim() >= 2:
            routed += tensor.numel() // tensor.shape[0] * (per_token or 0)
        else:
            active += tensor.numel()
    unknown = any(".experts." in path for path, _ in model.named_parameters()) and per_token is None
    return counts, None if unknown else active + routed, routed


def _work(model: Any, batch: int, context: int, training: bool) -> dict[str, int]:
    """FLOPs of the phases, and of the experts' part of the first; bytes of the cache after the last token."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import DynamicCache

    from transformer_ledger.executed.count import token_ids

    made: dict[str, int] = {}
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(token_ids(model, batch, context), use_cache=True)
    made["forward_flops"] = counter.get_total_flops()
    counts = counter.get_flop_counts()
    made["experts_flops"] = sum(sum(own.values()) for path, own in counts.items() if path.endswith(".experts"))
    cache, before = DynamicCache(config=model.config), Counter[str]()
    with torch.no_grad():
        if context > 1:
            model(token_ids(model, batch, context - 1), cache=cache, use_cache=True)
            before = _held(cache)
        with FlopCounterMode(display=False) as counter:
            model(token_ids(model, batch, 1), cache=cache, use_cache=True)
    made["decode_flops"], after = counter.get_total_flops(), _held(cache)
    made |= {"bytes": after["bytes"], "state_bytes": after["state"]}
    made["bytes_per_token"] = (after["bytes"] - before["bytes"]) // batch
    if training:
        with FlopCounterMode(display=False) as counter:
            given = model(token_ids(model, batch, context), use_cache=True)
            (given.logits if "logits" in given else given.last_hidden_state).sum().backward()
        made["training_flops"] = counter.get_total_flops()
    return made


def _unused(model: Any, config: Mapping[str, Any]) -> list[str]:
    """Keys that the class does not have, and without which it builds the same tensors."""
    from transformer_ledger.executed.transformers_model import build

    def shapes(built: Any) -> dict[str, Any]:
        return {name: tensor.shape for name, tensor in built.named_parameters()}

    own, known = huggingface.text_part(config, []), {*dir(model.config), *huggingface.QUIET, "quantization_config"}
    unknown = sorted(key for key in own if key not in known and own[key] is not None)
    return [key for key in unknown if shapes(build({k: v for k, v in own.items() if k != key})) == shapes(model)]


def _counted(config: Mapping[str, Any], batch: int, context: int, training: bool) -> dict[str, Any]:
    import torch
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    from transformer_ledger.executed.transformers_model import build

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()  # that kernels are missing is no news where nothing is computed
    if str(huggingface.text_part(config, []).get("model_type")) not in CONFIG_MAPPING_NAMES:
        raise TableError("the installed transformers has no such family either")
    try:
        model = build(config)
    except (MemoryError, TableError):
        raise
    except Exception as error:  # each class checks its keys in its own way
        raise TableError(f"transformers does not build it: {' '.join(str(error).split())[:300]}") from None
    counts, active, routed = _parameters(model)
    try:
        work = _work(model, batch, context, training)
    except (MemoryError, TableError):
        raise
    except Exception as error:  # code that asks for values cannot run on shapes alone
        raise TableError(f"transformers’ {type(model).__name__} does not run on shapes alone: {error}"[:300]) from None
    return {
        "class": type(model).__name__,
        "total": counts.total(),
        "active": active,
        "components": dict(counts),
        "every_expert_runs": routed > 0 and work.pop("experts_flops") > 2 * batch * context * routed,
        "unused": _unused(model, config),
        **{key: value for key, value in work.items() if key != "experts_flops"},
    }


def compute(name: str, config: Mapping[str, Any], batch: int, context: int, training: bool) -> dict[str, Any]:
    """Parameters, FLOPs (of a backward pass too where `training`) and bf16 cache bytes of transformers' model.

    In a process of its own, as `run.compute`. Raises ModelError for sizes that no model has, TableError where
    transformers cannot build or run it.
    """
    huggingface.task(config, [])
    _checked(huggingface.text_part(config, []))
    return apart(name, lambda: _counted(config, batch, context, training))
