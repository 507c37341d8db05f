"""Bytes that each recipe keeps between training steps for each model, held against the tensors of a real step.

Activations, batches, work space and the allocator's reserve are not in it, and neither is anything of inference.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from transformer_ledger.formulas import training_state as formulas
from transformer_ledger.ledger.counted import Rows, counts, difference
from transformer_ledger.ledger.parameters import tensors
from transformer_ledger.ledger.storage import bytes_per_number, whole
from transformer_ledger.model import ModelSpec

OPTIMIZERS: dict[str, tuple[str, ...]] = {
    "sgd": (),
    "sgd-momentum": ("first_moment",),
    "adamw": ("first_moment", "second_moment", "step"),
    "adamw-amsgrad": ("first_moment", "second_moment", "largest_second_moment", "step"),
}
"""Items that an optimiser keeps, as torch.optim holds them; `step` is one number a tensor."""

SHARDED_FROM = {"weights": 3, "gradients": 2, "master_gradients": 2, "step": 4}
"""ZeRO stage from which the devices divide an item among themselves; every other item from stage 1, step counters never."""

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


def compute(
    models: dict[str, Any], recipes: dict[str, Any], execution: Mapping[str, Rows] | None = None
) -> list[dict[str, Any]]:
    """Rows of the ledger: one row an item of a recipe of a model."""
    rows = []
    for name, data in models.items():
        every = tensors(ModelSpec.from_json(data))
        N, n = sum(t.parameters for t in every), sum(t.copies for t in every)
        executed = counts((execution or {}).get(name, []))
        for recipe, held in recipes.items():
            G, stage = held.get("devices", 1), held.get("zero_stage", 0)
            for item, dtype in items(held).items():
                b = bytes_per_number(dtype)
                size = formulas.per_tensor(n, b) if item == "step" else formulas.per_parameter(N, b)
                sharded = stage >= SHARDED_FROM.get(item, 1)
                share = formulas.sharded(N, G, b) if sharded else size
                counted = executed.get(("state_bytes", "", recipe, item, dtype))
                rows.append(
                    {
                        "model": name,
                        "recipe": recipe,
                        "item": item,
                        "dtype": dtype,
                        "bytes_per_parameter": float(Fraction(size, N)),
                        "bytes": whole(size),
                        "devices": G,
                        "bytes_per_device": whole(share),
                        "executed_bytes": counted,
                        "difference": difference(whole(size), counted),
                    }
                )
    return rows
