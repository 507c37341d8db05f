"""Bytes that each recipe keeps between training steps for each model, held against the tensors of a real step.

A recipe with `lora` trains adapters alone (Hu et al. 2021, arXiv:2106.09685): r·(d_in + d_out) numbers beside each map that
it names, for each expert its own. The weights are frozen: they have no gradient and no optimiser state. With a base of nf4
(Dettmers et al. 2023, arXiv:2305.14314, without the second quantisation) the maps of attention and feed-forward take half a
byte a number and an fp32 scale for 64 of them; embedding, head, router, norms and biases stay as they are.

Activations, batches, work space and the allocator's reserve are not in it, and neither is anything of inference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from transformer_ledger.formulas import training_state as formulas
from transformer_ledger.formulas.shim import ceiling_quotient
from transformer_ledger.ledger.counted import Executed, Rows
from transformer_ledger.ledger.parameters import Tensor, tensors
from transformer_ledger.ledger.storage import split
from transformer_ledger.model import ModelSpec

OPTIMIZERS: dict[str, tuple[str, ...]] = {
    "sgd": (),
    "sgd-momentum": ("first_moment",),
    "adamw": ("first_moment", "second_moment", "step"),
    "adamw-amsgrad": ("first_moment", "second_moment", "largest_second_moment", "step"),
    "adafactor": ("second_moment", "step"),
}
"""Items that an optimiser keeps, as torch.optim holds them; `step` is one number a tensor."""

SHARDED_FROM = {"weights": 3, "adapters": 3, "gradients": 2, "master_gradients": 2, "step": 4, "quantised_weights": 4}
"""ZeRO stage from which the devices divide an item; every other item from stage 1, step counters never.

# ASSUME quantised weights are whole on every device, as their kernels take them.
"""

BASES = {"nf4": "int4-g64"}
"""Types of a frozen base, and what a number and its share of a scale take."""

STEP_DTYPE = "fp32"


def items(recipe: Mapping[str, Any]) -> dict[str, str]:
    """Item → dtype of a recipe, in the order of the ledger."""
    held = {"weights": recipe["weights"]}
    if lora := recipe.get("lora"):
        held |= {"quantised_weights": BASES[lora["base"]]} if lora["base"] else {}
        held["adapters"] = recipe["weights"]
    for name in ("master_weights", "gradients", "master_gradients"):
        if recipe.get(name):
            held[name] = recipe[name]
    for name in OPTIMIZERS[recipe["optimizer"]]:
        held[name] = STEP_DTYPE if name == "step" else recipe["moments"]
    return held


def adapters(every: Sequence[Tensor], lora: Mapping[str, Any]) -> list[Tensor]:
    """The two matrices, (r, d_in) and (d_out, r), beside each map that LoRA names."""
    found = []
    for tensor in every:
        if tensor.component in lora["targets"] and not tensor.bias:
            *experts, out, into = tensor.shape
            found += [
                replace(tensor, shape=(*experts, *sides)) for sides in ((lora["rank"], into), (out, lora["rank"]))
            ]
    return found


def _of(item: str, every: Sequence[Tensor], recipe: Mapping[str, Any]) -> Sequence[Tensor]:
    """The tensors that an item is kept of: all, or where adapters are trained, these or the frozen weights of one type."""
    lora = recipe.get("lora")
    if not lora:
        return every
    if item not in ("weights", "quantised_weights"):
        return adapters(every, lora)

    def quantised(tensor: Tensor) -> bool:
        maps = tensor.component.split(".")[0] in ("attention", "feedforward", "shared_feedforward")
        return bool(lora["base"]) and maps and not tensor.bias and len(tensor.shape) > 1

    return [tensor for tensor in every if quantised(tensor) == (item == "quantised_weights")]


def numbers(shape: tuple[Any, ...], item: str, optimizer: str) -> Any:
    """How many numbers an item holds for one tensor; Adafactor keeps the rows' and the columns' means of a matrix."""
    if item == "step":
        return 1
    if optimizer == "adafactor" and item == "second_moment" and len(shape) > 1:
        return formulas.factored(math.prod(shape[:-2]), *shape[-2:])
    return math.prod(shape)


def _divided(item: str, recipe: Mapping[str, Any]) -> bool:
    return bool(recipe.get("zero_stage", 0) >= SHARDED_FROM.get(item, 1))


def share(N: Any, b: Any, item: str, recipe: Mapping[str, Any]) -> Any:
    """Bytes of N numbers of b bytes on the device that holds most of them."""
    devices = recipe.get("devices", 1)
    return formulas.sharded(N, devices, b) if _divided(item, recipe) else formulas.per_parameter(N, b)


def item_bytes(every: Sequence[Tensor], item: str, dtype: str, recipe: Mapping[str, Any]) -> tuple[Any, Any]:
    """Bytes of an item of a recipe, and those of it on the device that holds most of it."""
    kept = [(t.copies, numbers(t.shape, item, recipe["optimizer"])) for t in _of(item, every, recipe)]
    if not kept:
        return 0, 0
    N = sum(copies * count for copies, count in kept)
    b, group = split(dtype)
    if group:  # groups do not reach over the end of a tensor; the scales go with the numbers, so each takes size / N
        stored = sum(copies * ceiling_quotient(count * b.numerator, b.denominator) for copies, count in kept)
        size = formulas.quantised(stored, 1, sum(copies * ceiling_quotient(count, group) for copies, count in kept))
        return size, ceiling_quotient(share(N, size, item, recipe), N) if _divided(item, recipe) else size
    size = (formulas.per_tensor if item == "step" else formulas.per_parameter)(N, b.numerator)
    return size, share(N, b.numerator, item, recipe)


def held_bytes(every: Sequence[Tensor], recipe: Mapping[str, Any]) -> tuple[Any, Any]:
    """Bytes of a recipe's whole state of some tensors, and on the device that holds most of it."""
    sizes = [item_bytes(every, item, dtype, recipe) for item, dtype in items(recipe).items()]
    return sum(size for size, _ in sizes), sum(fullest for _, fullest in sizes)


def compute(
    models: dict[str, Any], recipes: dict[str, Any], execution: Mapping[str, Rows] | None = None
) -> list[dict[str, Any]]:
    """Rows of the ledger: one row an item of a recipe of a model.

    `bytes_per_device` is the largest share where the recipe's ZeRO stage divides the item among its devices.
    """
    rows = []
    for name, data in models.items():
        every = tensors(ModelSpec.from_json(data))
        parameters = sum(t.parameters for t in every)
        executed = Executed((execution or {}).get(name, []))
        for recipe, held in recipes.items():
            for item, dtype in items(held).items():
                size, fullest = item_bytes(every, item, dtype, held)
                met = executed.met(size, "state_bytes", "", recipe, item, dtype)
                divided = executed.met(fullest, "state_bytes_per_device", "", recipe, item, dtype)
                each = None
                if met["executed"] is not None:
                    each = float(Fraction(size, parameters)) - met["executed"] / executed.count("parameters")
                rows.append(
                    {
                        "model": name,
                        "recipe": recipe,
                        "item": item,
                        "dtype": dtype,
                        "bytes_per_parameter": float(Fraction(size, parameters)),
                        "bytes": size,
                        "devices": held.get("devices", 1),
                        "bytes_per_device": fullest,
                        "executed_bytes": met["executed"],
                        "difference": met["difference"],
                        "bytes_per_device_difference": divided["difference"],
                        "bytes_per_parameter_difference": each,
                        "met_by": met["met_by"],
                    }
                )
    return rows
