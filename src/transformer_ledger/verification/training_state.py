"""B2: fp32 AdamW keeps 16 bytes a parameter; other recipes keep other amounts, and activations are not part of it.

Every byte is read from the storage of a real tensor after a real step: of our decoder on the CPU here, and of every
recipe in the config by the execution jobs.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from transformer_ledger.cases import case
from transformer_ledger.formulas import kv_cache as cache_formulas
from transformer_ledger.formulas import training_state as formulas
from transformer_ledger.ledger.parameters import tensor_count, totals
from transformer_ledger.ledger.storage import split
from transformer_ledger.model import ModelSpec
from transformer_ledger.verification.teaching_parameters import Shape, said, teaching

TEXT_BYTES = 16  # a parameter, fp32 AdamW
MOMENTS = ("exp_avg", "exp_avg_sq")


def _trained(shape: Shape, batch: int, length: int, seed: int, optimizer: str) -> tuple[dict[str, int], int]:
    """Bytes by item after one real fp32 step, and the bytes that the forward pass saved for the backward pass."""
    import torch

    from transformer_ledger.executed.cache import storage_bytes
    from transformer_ledger.executed.decoder import Decoder

    torch.manual_seed(seed)
    model = Decoder(teaching(shape))
    parameters = list(model.parameters())
    saved: list[Any] = []

    def keep(tensor: Any) -> Any:
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = model(torch.randint(shape["vocabulary"], (batch, length)))
        targets = torch.randint(shape["vocabulary"], (batch * length,))
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets)
    own = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    activations = storage_bytes(tensor for tensor in saved if tensor.untyped_storage().data_ptr() not in own)
    loss.backward()
    made: torch.optim.Optimizer
    made = torch.optim.AdamW(parameters) if optimizer == "adamw" else torch.optim.SGD(parameters)
    made.step()
    state = list(made.state.values())
    held = {
        "weights": storage_bytes(parameter.data for parameter in parameters),
        "gradients": storage_bytes(parameter.grad for parameter in parameters if parameter.grad is not None),
        "step": storage_bytes(entries["step"] for entries in state if "step" in entries),
    }
    for name in MOMENTS:
        held[name] = storage_bytes(entries[name] for entries in state if name in entries)
    return held, activations


def _inference(shape: Shape, batch: int, length: int, seed: int) -> tuple[int, int]:
    """Bytes of weights and of the fp32 key/value cache after one forward pass without gradients."""
    import torch

    from transformer_ledger.executed.cache import Cache, storage_bytes
    from transformer_ledger.executed.decoder import Decoder

    torch.manual_seed(seed)
    model, cache = Decoder(teaching(shape)), Cache("fp32")
    with torch.no_grad():
        model(torch.randint(shape["vocabulary"], (batch, length)), cache)
    return storage_bytes(parameter.data for parameter in model.parameters()), cache.bytes()


def _row(
    claim: str, where: str, leg: str, quantity: str, measured: Any, relation: str, wanted: Any, **more: Any
) -> dict[str, Any]:
    return case(claim, where, leg, quantity, measured, relation, wanted, backend="torch", **more)


def _step_rows(shape: Shape, batches: Sequence[int], length: int, seed: int) -> list[dict[str, Any]]:
    """B2.1 on a real step, and what of B2.2 a batch changes."""
    spec = teaching(shape)
    N, n = totals(spec)[0], tensor_count(spec)
    measured = {batch: _trained(shape, batch, length, seed, "adamw") for batch in batches}
    held, _ = measured[batches[0]]
    without_step = sum(size for item, size in held.items() if item != "step")
    rows = [
        _row(
            "B2.1",
            f"one AdamW step in fp32, {said(shape)}",
            "exact",
            "bytes a parameter, step counters apart",
            Fraction(without_step, N),
            "==",
            TEXT_BYTES,
            unit="byte/parameter",
            printed="16",
            headline=True,
        ),
        _row(
            "B2.1",
            f"one AdamW step in fp32, {said(shape)}",
            "exact",
            "bytes without the step counters",
            without_step,
            "==",
            formulas.adamw_fp32(N),
            unit="byte",
        ),
        _row(
            "B2.1",
            f"one AdamW step in fp32: its step counters, one fp32 number a tensor, {n} tensors",
            "exact",
            "bytes of step counters",
            held["step"],
            "==",
            formulas.per_tensor(n, 4),
            unit="byte",
        ),
    ]
    for item, wanted in (("weights", 4), ("gradients", 4), *((name, 4) for name in MOMENTS)):
        quantity = f"bytes a parameter of {item}"
        size = Fraction(held[item], N)
        rows.append(
            _row(
                "B2.1",
                f"one AdamW step in fp32, {said(shape)}",
                "exact",
                quantity,
                size,
                "==",
                wanted,
                unit="byte/parameter",
            )
        )
    plain = sum(_trained(shape, batches[0], length, seed, "sgd")[0].values())
    rows.append(
        _row(
            "B2.1",
            "SGD without momentum",
            "control",
            "bytes a parameter",
            Fraction(plain, N),
            "==",
            8,
            unit="byte/parameter",
        )
    )
    states = {sum(held.values()) for held, _ in measured.values()}
    rows.append(
        _row(
            "B2.2",
            f"batches of {', '.join(map(str, batches))}",
            "exact",
            "different sizes of the state",
            len(states),
            "==",
            1,
        )
    )
    for batch, (_, activations) in measured.items():
        rows.append(
            _row(
                "B2.2",
                f"saved activations of {batch} sequences of {length} tokens, {said(shape)}",
                "exact",
                "bytes of activations, none of them in the 16 a parameter",
                activations,
                ">=",
                1,
                unit="byte",
            )
        )
    rising = [measured[batch][1] for batch in sorted(measured)]
    rows.append(
        _row(
            "B2.2",
            f"activations of batches of {', '.join(map(str, sorted(measured)))}",
            "exact",
            "larger batches that save no more",
            sum(b <= a for a, b in itertools.pairwise(rising)),
            "==",
            0,
        )
    )
    weights, cache = _inference(shape, batches[0], length, seed)
    kept = spec.layers[0][1].attention
    rows += [
        _row(
            "B2.2",
            "inference in fp32: weights",
            "exact",
            "bytes",
            weights,
            "==",
            formulas.per_parameter(N, 4),
            unit="byte",
        ),
        _row(
            "B2.2",
            f"inference in fp32: key/value cache of {batches[0]} sequences of {length} tokens",
            "exact",
            "bytes",
            cache,
            "==",
            spec.depth * cache_formulas.full(B=batches[0], T=length, h_kv=kept.kv_heads, d_h=kept.head_dim, b=4),
            unit="byte",
        ),
    ]
    return rows


def _recipe_rows(name: str, spec: ModelSpec, executed: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """B2.2: what each recipe of the config keeps, read from real tensors by the model's execution job."""
    N, n = totals(spec)[0], tensor_count(spec)
    recipes: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in executed:
        if row["quantity"] == "state_bytes" and row["component"] != "total":
            recipes.setdefault(row["phase"], {})[row["component"]] = row
    rows, others = [], 0
    for recipe, items in recipes.items():
        state = {item: row for item, row in items.items() if item != "step"}
        others += sum(row["value"] for row in state.values()) != TEXT_BYTES * N
        # Quantised items come with constants of their groups, and a second moment without a first one is factored
        # (Adafactor): what they hold is the ledger's business. The others hold one number a parameter.
        factored = {"second_moment"} - ({"second_moment"} if "first_moment" in state else set())
        plain = {item: row for item, row in state.items() if not split(row["part"])[1] and item not in factored}
        kept = ", ".join(f"{item} {row['part']}" for item, row in plain.items())
        rows.append(
            _row(
                "B2.2",
                f"{name}, recipe {recipe}: {kept}",
                "exact",
                "bytes a parameter",
                Fraction(sum(row["value"] for row in plain.values()), N),
                "==",
                sum((split(row["part"])[0] for row in plain.values()), Fraction(0)),
                unit="byte/parameter",
            )
        )
        if "step" in items:
            quantity, size = f"bytes of the step counters of {n} tensors", items["step"]["value"]
            wanted = formulas.per_tensor(n, 4)
            rows.append(_row("B2.2", f"{name}, recipe {recipe}", "exact", quantity, size, "==", wanted, unit="byte"))
    if recipes:
        quantity = f"of {len(recipes)} recipes, those with another amount than 16 bytes a parameter"
        rows.append(_row("B2.2", f"{name}, step counters apart", "exact", quantity, others, ">=", 1, headline=True))
    return rows


def compute(
    models: Mapping[str, Any],
    shape: Shape,
    batches: Sequence[int],
    length: int,
    seed: int,
    execution: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> list[dict[str, Any]]:
    """Rows of B2.

    `models` {name: ModelSpec JSON} with their execution tables; `shape` is stepped here for `batches` of sequences of
    `length` tokens.
    """
    import torch

    torch.set_num_threads(1)
    rows = _step_rows(shape, batches, length, seed)
    for name, data in models.items():
        rows += _recipe_rows(name, ModelSpec.from_json(data), (execution or {}).get(name, []))
    # What the claim says of other recipes does not hold of the recipe that it excepts.
    N = totals(teaching(shape))[0]
    held, _ = _trained(shape, batches[0], length, seed, "adamw")
    same = sum(size for item, size in held.items() if item != "step")
    rows.append(
        _row(
            "B2.2",
            "fp32 AdamW in place of another recipe",
            "control",
            "bytes apart from 16 a parameter",
            same - TEXT_BYTES * N,
            "==",
            0,
            unit="byte",
        )
    )
    return rows
