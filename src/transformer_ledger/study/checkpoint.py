"""The checkpoint that the other studies start from: one model, trained here on data whose best possible loss is known.

The file is safetensors (weights alone, nothing that runs when it is read). Its header tells how it was made: model,
source, programme, seeds, and the held-out losses with a hash of the logits, so that whoever restores it can check, bit
for bit, that it is the same model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from transformer_ledger.model import ModelSpec
from transformer_ledger.progress import Progress
from transformer_ledger.study.source import KINDS, HeldOut, Source, held_out, plausible

METADATA_KEY = "transformer_ledger"


@dataclass(frozen=True)
class Checkpoint:
    """A restored model and how it was made."""

    spec: ModelSpec
    weights: dict[str, Any]  # torch tensors by name
    source: Source
    length: int
    held_out: HeldOut
    losses: dict[str, float]  # held-out mean by kind, as written after the training  [nat/token]
    logits_hash: str

    def model(self) -> Any:
        """The decoder with these weights."""
        from transformer_ledger.executed.decoder import Decoder

        model = Decoder(self.spec)
        model.load_state_dict(self.weights)
        return model


def logits_hash(model: Any, data: HeldOut) -> str:
    """SHA-256 of the bytes of all held-out logits."""
    import torch

    digest = hashlib.sha256()
    with torch.no_grad():
        for kind in KINDS:
            digest.update(model(torch.as_tensor(data.ids[kind][:, :-1])).numpy().tobytes())
    return digest.hexdigest()


def restore(path: str) -> Checkpoint:
    """The checkpoint at `path`."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()[METADATA_KEY])
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    source = Source(**header["source"])
    data = held_out(source, header["held_out"]["sequences"], header["length"], header["held_out"]["seed"])
    losses = {kind: float.fromhex(value) for kind, value in header["losses"].items()}
    spec = ModelSpec.from_json(header["model"])
    return Checkpoint(spec, weights, source, header["length"], data, losses, header["logits_hash"])


def compute(
    models: Mapping[str, Any],
    source: Mapping[str, Any],
    programme: Mapping[str, Any],
    held_out_data: Mapping[str, int],
    evaluations: int,
    seed: int,
) -> dict[str, Any]:
    """Rows of study/loss, and the checkpoint's bytes, for the one model of `models`.

    `source` are Source's arguments, `programme` those of training.Programme, `held_out_data` has the number of sequences
    of each kind and their seed; the held-out loss is measured `evaluations` times, evenly, and before the first step.
    """
    import torch

    from transformer_ledger.study import training

    torch.set_num_threads(1)
    ((name, described),) = models.items()
    spec, origin, plan = ModelSpec.from_json(described), Source(**source), training.Programme(**programme)
    if origin.tokens > spec.vocabulary or plan.length > spec.context:
        raise ValueError(f"{name}: {origin.tokens} tokens or length {plan.length} do not fit the model")
    data = held_out(origin, held_out_data["sequences"], plan.length, held_out_data["seed"])
    model = training.fresh(spec, seed)
    every = max(plan.steps // evaluations, 1)
    rows: list[dict[str, Any]] = []
    batches: list[float] = []  # losses of the batches since the last evaluation

    progress = Progress(plan.steps, "steps")

    def watch(step: int, loss: float | None) -> None:
        progress(step)
        batches.extend([] if loss is None else [loss])
        if step % every and step != plan.steps:
            return
        shared = {"model": name, "step": step, "tokens": step * plan.batch * plan.length}
        shared["learning_rate"] = plan.rate(max(step - 1, 0))
        floors = {kind: origin.floor(kind, plan.length) for kind in KINDS}
        if batches:
            rows.append({**shared, "split": "training", "source": "both", "loss": sum(batches) / len(batches),
                         "floor": sum(floors.values()) / len(floors)})  # fmt: skip
            batches.clear()
        for kind, losses in training.evaluate(model, data).items():
            loss, own = float(losses.mean()), float(data.loss[kind].mean())
            holds = plausible(losses, data, kind, floors[kind])
            rows.append({**shared, "split": "held-out", "source": kind, "loss": loss, "floor": floors[kind],
                         "source_loss": own, "excess": loss - own, "holds": holds})  # fmt: skip

    training.train(model, origin, plan, seed, watch)
    header = {
        "model": described,
        "source": asdict(origin),
        "length": plan.length,
        "programme": asdict(plan),
        "seed": seed,
        "held_out": dict(held_out_data),
        "losses": {row["source"]: row["loss"].hex() for row in rows[-len(KINDS) :]},
        "logits_hash": logits_hash(model, data),
    }
    return {"study/loss": rows, "results/checkpoint/model.safetensors": _file(model, header)}


def _file(model: Any, header: Mapping[str, Any]) -> bytes:
    """The checkpoint's bytes. One key of metadata: the order of several would not be the same in every run."""
    from safetensors.torch import save

    weights = {path: tensor.detach().clone() for path, tensor in model.state_dict().items()}
    return bytes(save(weights, {METADATA_KEY: json.dumps(header, sort_keys=True)}))
