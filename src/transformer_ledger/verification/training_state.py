"""fp32 AdamW keeps 16 bytes a parameter; other recipes keep other amounts, and activations are not part of it.

Claims B2.1 and B2.2. Every byte is read from the storage of a real tensor after a real step: of our decoder on the CPU
here, and of every recipe in the config by the execution jobs.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from transformer_ledger import routes
from transformer_ledger.evidence import Evidence, Printed, exactly
from transformer_ledger.formulas import training_state as formulas
from transformer_ledger.ledger.parameters import tensor_count, totals
from transformer_ledger.ledger.storage import split
from transformer_ledger.model import ModelSpec
from transformer_ledger.verification.teaching_parameters import Shape, teaching

KEPT = {"weights": 4, "gradients": 4, "exp_avg": 4, "exp_avg_sq": 4}
"""What the text's 16 bytes are: 4 for the weight, 4 for the gradient, 8 for the two moments."""
UNIT = "byte/parameter"


@dataclass(frozen=True)
class Trainer:
    """Our decoder of a shape in fp32, fed with sequences of `length` tokens."""

    shape: Shape
    length: int
    seed: int

    def step(self, batch: int, optimizer: str = "AdamW") -> tuple[dict[str, int], int]:
        """Bytes by item after one step, and the bytes that the forward pass saved for the backward pass."""
        import torch

        from transformer_ledger.executed.cache import storage_bytes
        from transformer_ledger.executed.decoder import Decoder

        torch.manual_seed(self.seed)
        model = Decoder(teaching(self.shape))
        parameters = list(model.parameters())
        saved: list[Any] = []

        def keep(tensor: Any) -> Any:
            saved.append(tensor)
            return tensor

        tokens = torch.randint(self.shape["vocabulary"], (batch, self.length))
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        own = {parameter.untyped_storage().data_ptr() for parameter in parameters}
        activations = storage_bytes(tensor for tensor in saved if tensor.untyped_storage().data_ptr() not in own)
        loss.backward()
        stepped = getattr(torch.optim, optimizer)(parameters, lr=1e-3)
        stepped.step()
        held = {
            "weights": storage_bytes(parameter.data for parameter in parameters),
            "gradients": storage_bytes(parameter.grad for parameter in parameters if parameter.grad is not None),
        }
        for item in ("exp_avg", "exp_avg_sq", "step"):
            held[item] = storage_bytes(kept[item] for kept in stepped.state.values() if item in kept)
        return held, activations


def _stepped(proof: Evidence, trainer: Trainer, batches: Sequence[int]) -> None:
    """B2.1 on a real step, and what of B2.2 a batch changes."""
    spec = teaching(trainer.shape)
    N, n = totals(spec)[0], tensor_count(spec)
    measured = {batch: trainer.step(batch) for batch in batches}
    held = measured[batches[0]][0]

    def per_parameter(optimizer: str = "AdamW") -> Fraction:
        kept = trainer.step(batches[0], optimizer)[0]
        return Fraction(sum(kept[item] for item in KEPT), N)

    state = proof.of("B2.1", unit=UNIT, tried="one AdamW step in fp32", **trainer.shape)
    quantity = "bytes per parameter, without step counters"
    state.prints(quantity, per_parameter(), Printed("16"), headline=True, key="adamw")
    for item, wanted in KEPT.items():
        state.equal(f"bytes per parameter of {item}", Fraction(held[item], N), wanted, against=routes.TEXT, key=item)
    whole = sum(held[item] for item in KEPT)
    state.equal("bytes without the step counters", whole, formulas.adamw_fp32(N), unit="byte")
    state.equal("bytes of step counters, one number per tensor", held["step"], formulas.per_tensor(n, 4), unit="byte",
                tensors=n, key="step")  # fmt: skip
    state.control("SGD without momentum", quantity, per_parameter, {"optimizer": "SGD"}, exactly(16), exactly(8),
                  key="sgd")  # fmt: skip

    apart = proof.of("B2.2", unit="byte", **trainer.shape)
    sizes = {sum(kept.values()) for kept, _ in measured.values()}
    apart.equal("different sizes of the state", len(sizes), 1, against=routes.TEXT, batches=list(batches), unit="")
    saved = {batch: activations for batch, (_, activations) in sorted(measured.items())}
    for batch, activations in saved.items():
        apart.beyond("bytes of activations, which the 16 per parameter do not include", activations, 1, leg="exact",
                     against=routes.TEXT, batch=batch, length=trainer.length, key=f"activations_{batch}")  # fmt: skip
    fewer = sum(b <= a for a, b in itertools.pairwise(saved.values()))
    apart.equal(
        "larger batches whose activations are not larger", fewer, 0, against=routes.TEXT, batches=list(saved), unit=""
    )


def _recipes(proof: Evidence, name: str, spec: ModelSpec, executed: Sequence[Mapping[str, Any]]) -> None:
    """B2.2: what each recipe of the config keeps, read from real tensors by the model's execution job."""
    N, n = totals(spec)[0], tensor_count(spec)
    recipes: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in executed:
        if row["quantity"] == "state_bytes" and row["component"] != "total":
            recipes.setdefault(row["phase"], {})[row["component"]] = row
    here, other = proof.of("B2.2", unit=UNIT, model=name, tried="after a real step"), set()
    for recipe, items in recipes.items():
        if "adapters" in items:  # the statement is about trainings of all parameters
            continue
        state = {item: row for item, row in items.items() if item != "step"}
        amount = Fraction(sum(row["value"] for row in state.values()), N)
        other |= {recipe} - ({recipe} if amount == sum(KEPT.values()) else set())
        # Quantised items come with constants of their groups, and a second moment without a first one is factored
        # (Adafactor): what they hold is the ledger's business. The others hold one number a parameter.
        factored = {"second_moment"} - ({"second_moment"} if "first_moment" in state else set())
        plain = {item: row for item, row in state.items() if not split(row["part"])[1] and item not in factored}
        kept = Fraction(sum(row["value"] for row in plain.values()), N)
        wanted = sum((split(row["part"])[0] for row in plain.values()), Fraction(0))
        here.equal(
            "bytes per parameter", kept, wanted, recipe=recipe, items=[f"{i} {r['part']}" for i, r in plain.items()]
        )
        if "step" in items:
            here.equal("bytes of step counters", items["step"]["value"], formulas.per_tensor(n, 4), recipe=recipe,
                       tensors=n, unit="byte")  # fmt: skip
    if recipes:
        here.beyond("recipes that do not need 16 bytes per parameter", len(other), 1, leg="exact", unit="",
                    against=routes.TEXT, headline=True, key="other")  # fmt: skip
        here.repetition("recipes that ran", len(recipes), len(recipes), unit="", key="recipes")


def _control(proof: Evidence, spec: ModelSpec, mixed: str = "bf16") -> None:
    """B2.2: a recipe in bf16 does not keep 16 bytes; the same step with every item in fp32 does."""
    from transformer_ledger.executed import count

    kinds, N = count.Kinds(spec), totals(spec)[0]
    count.forward_backward(kinds, 1, 1)

    def per_parameter(dtype: str = mixed) -> Fraction:
        recipe = {"weights": dtype, "gradients": dtype, "moments": dtype, "optimizer": "adamw"}
        held, _ = count.state_bytes(kinds, recipe)
        return Fraction(sum(size for (item, _), size in held.items() if item != "step"), N)

    proof.of("B2.2", unit=UNIT, against=routes.FORMULA).control(
        "every item in fp32", "bytes per parameter of AdamW", per_parameter, {"dtype": "fp32"},
        exactly(4 * split(mixed)[0]), exactly(16), tried="weights, gradients and moments in bf16", key="bf16")  # fmt: skip


def compute(
    settings: Mapping[str, Any],
    models: Mapping[str, Any],
    shape: Shape,
    batches: Sequence[int],
    length: int,
    seed: int,
    execution: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> list[dict[str, Any]]:
    """Rows of B2.1 and B2.2.

    `models` {name: ModelSpec JSON} with their execution tables; `shape` is stepped here for `batches` of sequences of
    `length` tokens.
    """
    import torch

    torch.set_num_threads(1)
    proof = Evidence("B2.1", settings, by=routes.TENSORS, against=routes.FORMULA)
    _stepped(proof, Trainer(shape, length, seed), batches)
    _control(proof, teaching(shape))
    for name, data in models.items():
        _recipes(proof, name, ModelSpec.from_json(data), (execution or {}).get(name, []))
    return proof.rows
