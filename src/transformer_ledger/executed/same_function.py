"""Our torch decoder is the function that the NumPy reference computes, and the one that transformers does.

Every executed count rests on our decoder, so it is held against two others with the same weights and tokens, all in
fp64: for each family a small model of transformers, whose weights are carried over, and for each switch of a
description a model of ours. Compared are the logits of the last position, once more with the positions decoded one by
one into a cache, and the mean loss over all positions; with latents, also the form that attends to them directly.

Two implementations may be apart by twice the running error bound of the reference: each may be off by as much, in
whatever order it sums.

# ASSUME no implementation rounds more often than the reference does, product by product and sum by sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from transformer_ledger import bounds
from transformer_ledger.evidence import PAST
from transformer_ledger.executed.cache import Cache
from transformer_ledger.executed.decoder import Decoder
from transformer_ledger.executed.transfer import Double, ours, reference
from transformer_ledger.executed.transformers_model import build
from transformer_ledger.families import FAMILIES, SWITCHES, Family, Switch
from transformer_ledger.model import ModelSpec
from transformer_ledger.reference import decoder
from transformer_ledger.reference.arithmetic import BLAS, OWN_TABLES, Blas

REFERENCE, TRANSFORMERS = "NumPy reference", "transformers"
Results = dict[str, Any]  # quantity → value


class TanhGelu(Blas):
    """NumPy's arithmetic with the tanh approximation in place of GELU."""

    def gelu(self, x: Any) -> Any:
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def draw(model: torch.nn.Module, seed: int) -> None:
    """Weights for every parameter, gains and biases off 1 and 0; matrices keep the size of what they multiply."""
    generator = np.random.Generator(np.random.PCG64(seed))
    for name, parameter in model.named_parameters():
        values = generator.standard_normal(parameter.shape)
        if parameter.dim() > 1 and "embed" not in name and not name.endswith("bias"):
            values *= parameter.shape[-1] ** -0.5
        elif parameter.dim() == 1:
            # Norms start from ones (Gemma's from zeros); others at random, which no two runs share.
            values = 0.2 * values + float(bool((parameter == 1).all()))
        parameter.data.copy_(torch.from_numpy(values))


def by_reference(
    spec: ModelSpec, weights: Mapping[str, Any], ids: Any, run: Any, *, start: int = 0, step: int = 1, **options: Any
) -> Results:
    """Last logits (V,) and mean loss by the NumPy reference; the last token is a target only."""
    positions = start + step * np.arange(len(ids) - 1)
    options = {"pairing": "half-split", **options, "positions": positions}
    logits = decoder.forward(spec, weights, ids[:-1], run, **options)
    return {"logits": logits[-1], "loss": run.cross_entropy(logits, ids[1:]).mean()}


def stepwise(model: Decoder, ids: Any, decoded: int) -> Any:
    """Last logits (V,) by our decoder, the last `decoded` positions run one by one into a cache."""
    tokens, cache = torch.from_numpy(ids[None, :-1]), Cache("fp64")
    with torch.no_grad():
        parts = tokens.split([tokens.shape[1] - decoded] + [1] * decoded, 1)
        return [model(part, cache) for part in parts][-1][0, -1].numpy()


def by_torch(model: Any, ids: Any) -> Results:
    """The same by a torch model."""
    with torch.no_grad():
        found = model(torch.from_numpy(ids[None, :-1]))
        logits = getattr(found, "logits", found)[0]
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(ids[1:]))
        return {"logits": logits[-1].numpy(), "loss": loss.numpy()}


def row(
    case: Mapping[str, Any], quantity: str, found: Any, other: str, expected: Any, bound: Any, changed: Any = None
) -> dict[str, Any]:
    """One row: the entry nearest to its bound, and how far the changed reference is from what was found."""
    difference, most = bounds.nearest(found - expected, 2 * bound)
    apart = None if changed is None else np.abs(np.asarray(found - changed))
    return {
        **case,
        "quantity": quantity,
        "other": other,
        "difference": difference,
        "bound": most,
        "changed_difference": None if apart is None else float(apart.max()),
        "holds": difference <= most and (apart is None or bool((apart > PAST * 2 * bound).any())),
    }


def compared(
    case: Mapping[str, Any], model: Decoder, ids: Any, decoded: int, changed: Results | None = None
) -> tuple[list[dict[str, Any]], Results, Results]:
    """Rows of our decoder against the reference, what it found, and the bounds."""
    weights = reference(model)
    expected = by_reference(model.spec, weights, ids, BLAS)
    bound = {name: value.error for name, value in by_reference(model.spec, weights, ids, OWN_TABLES).items()}
    found = by_torch(model, ids)
    tried = [("logits", "logits", found["logits"]), ("loss", "loss", found["loss"])]
    tried += [("decoded logits", "logits", stepwise(model, ids, decoded))]
    if any(a.latent for _, a in model.spec.attentions()):
        model.absorb(True)
        tried += [("absorbed logits", "logits", stepwise(model, ids, decoded))]
    made = [
        row(case, quantity, value, REFERENCE, expected[name], bound[name], changed and changed[name])
        for quantity, name, value in tried
    ]
    return made, found, bound


def of_family(name: str, family: Family, ids: Any, seed: int, decoded: int) -> Iterator[dict[str, Any]]:
    """Rows of one family: ours against the reference and, where it is the same function, against transformers."""
    case, spec = {"case": name, "family": family.config["model_type"], "switch": None}, family.read(name)
    if family.other_function:
        model = Decoder(spec).double()
        draw(model, seed)
        yield from compared(case, model, ids, decoded)[0]
        return
    with Double():
        theirs = build(family.config, device="cpu", dtype=torch.float64).double()
        draw(theirs, seed)
        if family.silent:
            for path, tensor in theirs.named_parameters():
                if ".experts." in path and "down_proj" in path:
                    tensor.data.zero_()
        expected = by_torch(theirs, ids)
    made, found, bound = compared(case, ours(theirs, spec, family.config["model_type"]), ids, decoded)
    yield from made
    for name, value in found.items():
        yield row(case, name, value, TRANSFORMERS, expected[name], bound[name])


def of_switch(name: str, switch: Switch, ids: Any, seed: int, decoded: int) -> list[dict[str, Any]]:
    """Rows of one switch; the reference that is told otherwise must be past the bound."""
    model = Decoder(switch.spec).double()
    draw(model, seed)
    changes = dict(switch.changes)
    left_out, run = changes.pop("without", None), TanhGelu() if changes.pop("tanh", False) else BLAS
    kept = {key: value for key, value in reference(model).items() if not (left_out and key.endswith(left_out))}
    changed = by_reference(switch.off or switch.spec, kept, ids, run, **changes)
    return compared({"case": name, "family": None, "switch": name}, model, ids, decoded, changed)[0]


def rows(tokens: int, decoded: int, seed: int) -> list[dict[str, Any]]:
    """Rows of the table: sequences of `tokens` predicted tokens, of which the last `decoded` are decoded one by one."""
    torch.set_num_threads(1)
    ids = np.random.Generator(np.random.PCG64(seed)).integers(0, 40, tokens + 1)
    made = [one for name, family in FAMILIES.items() for one in of_family(name, family, ids, seed, decoded)]
    return made + [one for name, switch in SWITCHES.items() for one in of_switch(name, switch, ids, seed, decoded)]
