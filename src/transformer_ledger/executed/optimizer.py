"""One real optimiser step under a training recipe, and the tensors that live on after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from transformer_ledger.executed.cache import DTYPES

# Names of the state entries of torch's optimisers, as the ledger calls them.
ITEMS = {
    "exp_avg": "first_moment",
    "exp_avg_sq": "second_moment",
    "max_exp_avg_sq": "largest_second_moment",
    "momentum_buffer": "first_moment",
    "row_var": "second_moment",
    "col_var": "second_moment",
    "variance": "second_moment",
    "step": "step",
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def _optimizer(name: str, tensors: list[Tensor]) -> torch.optim.Optimizer:
    if name in ("adamw", "adamw-amsgrad"):
        return torch.optim.AdamW(tensors, foreach=True, amsgrad=name == "adamw-amsgrad")
    if name in ("sgd", "sgd-momentum"):
        return torch.optim.SGD(tensors, lr=1e-3, momentum=0.9 if name == "sgd-momentum" else 0.0, foreach=True)
    if name == "adafactor":
        return torch.optim.Adafactor(tensors, foreach=False)
    raise ValueError(f"unknown optimizer {name!r}; known: adamw, adamw-amsgrad, sgd, sgd-momentum, adafactor")


# What a device keeps whole at each stage of ZeRO (arXiv:1910.02054, section 5): the rest, it keeps a share of.
WHOLE: dict[int, tuple[str, ...]] = {
    1: ("weights", "quantised_weights", "adapters", "gradients", "master_gradients", "step"),
    2: ("weights", "quantised_weights", "adapters", "step"),
    3: ("quantised_weights", "step"),
}


def fullest(item: str, kept: Sequence[tuple[int, list[Tensor]]], recipe: Mapping[str, Any]) -> int | None:
    """Bytes of one item on the device that holds most of it; `kept` has the tensors of each parameter and its copies.

    The devices share one flat tensor, cut into equal parts. None where an item is several tensors a parameter (moments
    in groups): no rule says how devices share their scales.
    """
    stage, devices = recipe.get("zero_stage") or 0, recipe.get("devices") or 1
    if stage and item not in WHOLE[stage]:
        if any(len({tensor.dtype for tensor in tensors}) > 1 for _, tensors in kept):
            return None
        flat = torch.cat([tensor.flatten().repeat(copies) for copies, tensors in kept for tensor in tensors])
        return max(part.clone().untyped_storage().nbytes() for part in flat.chunk(devices))
    return sum(copies * tensor.untyped_storage().nbytes() for copies, tensors in kept for tensor in tensors)


@contextmanager
def _numbers_from_meta() -> Iterator[None]:
    """Lets Adafactor read a norm from a meta tensor, as 1: it scales an update and shapes nothing."""
    item = Tensor.item
    with mock.patch.object(Tensor, "item", lambda tensor: 1.0 if tensor.is_meta else item(tensor)):
        yield


def _stored(value: Tensor, dtype: str) -> list[Tensor]:
    """A moment as the recipe stores it; int8-g256 is one byte a number and an fp32 scale for each 256 in a row."""
    name, _, group = dtype.partition("-g")
    if not group:
        return [value.to(DTYPES[name])]
    if name != "int8":
        raise ValueError(f"unknown dtype {dtype!r} for moments; known: {', '.join(DTYPES)}, and int8-g256")
    flat = value.flatten()
    blocks = torch.nn.functional.pad(flat, (0, -flat.numel() % int(group))).unflatten(0, (-1, int(group)))
    scale = blocks.abs().amax(1).float()
    codes = (blocks / scale.clamp(min=1e-30).unsqueeze(1) * 127 + 128).round().to(torch.uint8)
    return [codes.flatten()[: flat.numel()].clone(), scale]


def step(
    parameters: Sequence[torch.nn.Parameter], recipe: Mapping[str, Any]
) -> list[dict[tuple[str, str], list[Tensor]]]:
    """Step once from the gradients that `parameters` hold; returns, a parameter, the tensors kept by (item, dtype).

    `recipe` has the optimizer and the dtypes of weights, gradients, moments and, where it keeps a second copy,
    master_weights and master_gradients. The master weights are stepped where there are any, else the weights.
    """
    weights = [parameter.detach().to(DTYPES[recipe["weights"]], copy=True) for parameter in parameters]
    kept: list[dict[tuple[str, str], list[Tensor]]] = [{("weights", recipe["weights"]): [weight]} for weight in weights]
    stepped = weights
    master = recipe.get("master_weights")
    if master:
        stepped = [weight.to(DTYPES[master], copy=True) for weight in weights]
        for items, tensor in zip(kept, stepped, strict=True):
            items["master_weights", master] = [tensor]
    for parameter, items, target in zip(parameters, kept, stepped, strict=True):
        if parameter.grad is None:
            raise ValueError("a parameter without a gradient")
        for item in ("gradients", "master_gradients"):
            if recipe.get(item):
                gradient = parameter.grad.to(DTYPES[recipe[item]], copy=True)
                items[item, recipe[item]] = [gradient]
                # ASSUME gradients of another dtype than what is stepped are converted one at a time: nothing stays.
                target.grad = gradient.to(target.dtype)
    optimizer = _optimizer(recipe["optimizer"], stepped)
    with _numbers_from_meta():
        optimizer.step()
    for items, target in zip(kept, stepped, strict=True):
        for key, value in optimizer.state[target].items():
            if not isinstance(value, Tensor):
                continue  # SGD without momentum keeps a None
            # torch keeps moments in the type of what it steps; the recipe may store them otherwise.
            dtype = NAMES[value.dtype] if key == "step" else recipe["moments"]
            stored = [value] if key == "step" else _stored(value, dtype)
            items.setdefault((ITEMS[key], dtype), []).extend(stored)
    return kept
