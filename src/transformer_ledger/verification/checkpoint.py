"""B5.5: averaging the key/value heads of a trained multi-head model into groups does not keep its function.

The model is the checkpoint that the pipeline trained. It is restored and evaluated again first, bit for bit. The control
makes the heads of every group equal before they are averaged: then, and then only, nothing may move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from transformer_ledger import bounds
from transformer_ledger.cases import case

BOUND = "running error bounds of both models, fp64"
FAR = 100


def _restored(known: Any) -> list[dict[str, Any]]:
    """The restored checkpoint is the model that was trained, and it was trained."""
    import torch

    from transformer_ledger.study.checkpoint import logits_hash
    from transformer_ledger.study.training import evaluate

    model = known.model()
    differ = int(logits_hash(model, known.held_out) != known.logits_hash)
    losses = {kind: float(loss.mean()) for kind, loss in evaluate(model, known.held_out).items()}
    with torch.no_grad():
        next(model.parameters()).view(-1)[0] += 2.0**-10  # the first number of the first tensor
    spoilt = int(logits_hash(model, known.held_out) != known.logits_hash)
    return [
        case("B5.5", "checkpoint restored", "exact", "held-out logits with another hash than after the training", differ,
             "bitwise", 0, backend="torch"),
        case("B5.5", "checkpoint restored, one weight moved by 2⁻¹⁰", "control", "held-out logits with another hash", spoilt,
             ">=", 1, backend="torch"),
        *(
            case("B5.5", f"checkpoint restored, {kind}", "exact", "held-out loss", loss, "==", known.losses[kind],
                 bound_source="as it was after the training", unit="nat/token", backend="torch")
            for kind, loss in losses.items()
        ),
        case("B5.5", "the checkpoint is a trained one", "floating", "mean held-out loss", float(np.mean(list(losses.values()))),
             "<=", math.log(known.source.tokens) / 2, bound_source="half the loss of a uniform guess among the tokens in use",
             unit="nat/token", backend="torch"),
    ]  # fmt: skip


def compute(
    checkpoint: str,
    kv_heads: Sequence[int],
    equal: int,
    blocks: Mapping[str, int],
    bounded: Mapping[str, int],
    confidence: float,
) -> list[dict[str, Any]]:
    """Rows of B5.5, from the checkpoint at the path `checkpoint`.

    `kv_heads`: numbers of heads to average into; `equal`: the number whose groups are made equal first in the control;
    `blocks`, `bounded` and `confidence` as in study.classification.
    """
    import torch

    from transformer_ledger.study import classification as study
    from transformer_ledger.study.checkpoint import restore
    from transformer_ledger.study.source import KINDS

    torch.set_num_threads(1)
    known = restore(checkpoint)
    bench = study.Bench(known, bounded["sequences"], bounded["tokens"], blocks)
    base = study.Form(known.spec, known.weights)
    ids = np.concatenate([known.held_out.ids[kind] for kind in KINDS])
    old = study.sequence_losses(base, ids)
    heads = known.spec.layers[0][1].attention.kv_heads
    named: dict[str, Any] = {"backend": "torch"}
    quantity = "logit that changed most against its bound: its change"
    rows = _restored(known)
    for number in kv_heads:
        after = study.Form(*study.with_groups(known.spec, known.weights, number))
        moved, bound = bench.change(base, after)
        where = f"{heads} heads averaged into {number}"
        low, high = bounds.mean_interval(study.sequence_losses(after, ids) - old, confidence)
        rows += [
            case("B5.5", where, "floating", quantity, moved, ">=", FAR * bound, bound_source=f"{FAR} × {BOUND}",
                 headline=number == equal, **named),
            case("B5.5", where, "floating", f"lower end of the {confidence} interval of the held-out loss's rise", low, ">=",
                 0.0, bound_source=f"no rise; upper end {high:.3g}", unit="nat/token", **named),
        ]  # fmt: skip
    same = study.Form(known.spec, study.heads_made_equal(known.spec, known.weights, equal))
    grouped = study.Form(*study.with_groups(same.spec, same.weights, equal))
    moved, bound = bench.change(same, grouped)
    rows.append(
        case("B5.5", f"heads of {equal} groups made equal, then averaged", "control", quantity, moved, "<=", bound,
             bound_source=BOUND, **named)
    )  # fmt: skip
    return rows
