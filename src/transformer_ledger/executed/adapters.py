"""LoRA on our decoder: its weights frozen, two narrow matrices beside each map that is named, and what a step leaves."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from transformer_ledger.executed.cache import DTYPES
from transformer_ledger.executed.decoder import Experts
from transformer_ledger.executed.optimizer import step

PACKED = ("attention", "feedforward", "shared_feedforward")
"""Parts of a layer whose maps a quantised base packs."""


def _beside(module: Any, forward: Any, x: Tensor, *chosen: Any) -> Any:
    """The map, and what its adapter adds: up(down(x)); of an expert, its own two matrices."""
    down, up = module.lora_down, module.lora_up
    if down.dim() == 2:
        return forward(x, *chosen) + x @ down.t() @ up.t()
    down, up = down[chosen[0]], up[chosen[0]]  # a pair a row
    return forward(x, *chosen) + (up @ (down @ x.unsqueeze(-1))).squeeze(-1)


def adapt(model: nn.Module, rank: int, targets: list[str], component: Any) -> None:
    """Freeze `model`, and put an adapter beside each map whose component is one of `targets`."""
    model.requires_grad_(False)
    module: Any
    for path, module in list(model.named_modules()):
        if component(path) in targets and isinstance(module, (nn.Linear, Experts)):
            *experts, out, into = module.weight.shape
            module.lora_down = nn.Parameter(module.weight.new_empty(*experts, rank, into))
            module.lora_up = nn.Parameter(module.weight.new_zeros(*experts, out, rank))
            module.forward = functools.partial(_beside, module, module.forward)  # type: ignore[method-assign]


def packed(weight: Tensor) -> list[Tensor]:
    """A weight in 4 bits, two codes a byte, and an fp32 scale for each 64 in a row (nf4)."""
    flat = weight.flatten()
    blocks = nn.functional.pad(flat, (0, -flat.numel() % 64)).unflatten(0, (-1, 64))
    scale = blocks.abs().amax(1).float()
    codes = (blocks / scale.clamp(min=1e-30).unsqueeze(1) * 7 + 8).round().to(torch.uint8).flatten()[: flat.numel()]
    pairs = nn.functional.pad(codes, (0, flat.numel() % 2)).unflatten(0, (-1, 2))
    return [pairs[:, 0] << 4 | pairs[:, 1], scale]


def kept(model: nn.Module, recipe: Mapping[str, Any]) -> Iterator[tuple[str, dict[tuple[str, str], list[Tensor]]]]:
    """Path and tensors kept by (item, dtype) of each parameter of an adapted `model` after a backward pass.

    What has a gradient is stepped; all else is frozen, and only kept.
    """
    named = dict(model.named_parameters())
    trained = {path: tensor for path, tensor in named.items() if tensor.grad is not None}
    dtype, base = recipe["weights"], recipe["lora"]["base"]
    for path, items in zip(trained, step(list(trained.values()), recipe) if trained else [], strict=True):
        items["adapters", dtype] = items.pop(("weights", dtype))
        yield path, items
    for path, tensor in named.items():
        if path in trained:
            continue
        holder = model.get_submodule(path.rpartition(".")[0])
        maps = isinstance(holder, (nn.Linear, Experts)) and path.endswith(".weight")
        if base and maps and any(part in PACKED for part in path.split(".")):
            yield path, {("quantised_weights", "int4-g64"): packed(tensor.detach())}
        else:
            yield path, {("weights", dtype): [tensor.detach().to(DTYPES[dtype], copy=True)]}
