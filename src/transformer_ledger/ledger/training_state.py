"""Bytes that each recipe keeps between training steps for each model, held against the tensors of a real step.

Activations, batches, work space and the allocator's reserve are not in it, and neither is anything of inference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from transformer_ledger.formulas import training_state as formulas
from transformer_ledger.ledger.counted import Executed, Rows
from transformer_ledger.ledger.parameters import tensors
from transformer_ledger.ledger.storage import split, whole
from transformer_ledger.model import ModelSpec

OPTIMIZERS: dict[str, tuple[str, ...]] = {
    "sgd": (),
    "sgd-momentum": ("first_moment",),
    "adamw": ("first_moment", "second_moment", "step"),
    "adamw-amsgrad": ("first_moment", "second_moment", "largest_second_moment", "step"),
    "adafactor": ("second_moment", "step"),
}
"""Items that an optimiser keeps, as torch.optim holds them; `step` is one number a tensor."""

SHARDED_FROM = {"weights": 3, "gradients": 2, "master_gradients": 2, "step": 4}
"""ZeRO stage from which the devices divide an item; every other item from stage 1, step counters never."""

STEP_DTYPE = "fp32"


def items(recipe: Mapping[str, Any]) -> dict[str, str]:
    """Item → dtype of a recipe, in the order of the ledger."""
    held = {"weights": recipe["weights"]}
    for name in ("master_weights", "gradients", "master_gradients"):
        if recipe.get(name):
            held[name] = recipe[name]
    for name in OPTIMIZERS[recipe["optimizer"]]:
        held[name] = STEP_DTYPE if name == "step" else recipe["moments"]
    return held


def numbers(shape: tuple[int, ...], item: str, optimizer: str) -> int:
    """How many numbers an item holds for one tensor; Adafactor keeps the rows' and the columns' means of a matrix."""
    if item == "step":
        return 1
    if optimizer == "adafactor" and item == "second_moment" and len(shape) > 1:
        return int(formulas.factored(math.prod(shape[:-2]), *shape[-2:]))
    return math.prod(shape)


def share(N: int, size: Fraction | int, item: str, recipe: Mapping[str, Any]) -> Fraction | int:
    """Bytes of an item of N numbers, `size` bytes in all, on the device that holds most of it."""
    divided = recipe.get("zero_stage", 0) >= SHARDED_FROM.get(item, 1)
    return formulas.sharded(N, recipe.get("devices", 1), Fraction(size, N)) if divided else size


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
                kept = [(t.copies, numbers(t.shape, item, held["optimizer"])) for t in every]
                N = sum(copies * count for copies, count in kept)
                b, group = split(dtype)
                if group:  # groups do not reach over the end of a tensor
                    n = sum(copies * -(-count // group) for copies, count in kept)
                    size = formulas.quantised(N, b, n)
                else:
                    size = formulas.per_tensor(N, b) if item == "step" else formulas.per_parameter(N, b)
                fullest = whole(share(N, size, item, held))
                met = executed.met(whole(size), "state_bytes", "", recipe, item, dtype)
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
                        "bytes": whole(size),
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
