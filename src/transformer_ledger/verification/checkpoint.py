"""B5.5: averaging the key/value heads of a trained multi-head model into groups does not keep its function.

The model is the checkpoint that the pipeline trained, restored and evaluated again first. Where the heads of every group
are made alike before they are averaged, then, and then only, nothing may move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from transformer_ledger import bounds, routes
from transformer_ledger.evidence import PAST, Evidence, at_least, at_most, exactly

BOUND = "running error bounds of both models, fp64"


def restored(rows: Evidence, known: Any) -> None:
    """The restored checkpoint is the model that was trained, bit for bit, and it was trained."""
    import torch

    from transformer_ledger.study.checkpoint import logits_hash
    from transformer_ledger.study.training import evaluate

    def differ(by: float = 0.0) -> int:
        model = known.model()
        with torch.no_grad():
            next(model.parameters()).view(-1)[0] += by  # the first number of the first tensor
        return int(logits_hash(model, known.held_out) != known.logits_hash)

    here = rows.of(tried="checkpoint restored", against="the model after its training")
    here.repetition("held-out logits whose hash differs", differ(), 0)
    here.control(
        "one weight changed by 2⁻¹⁰", "held-out logits whose hash differs", differ, {"by": 2.0**-10}, exactly(0)
    )
    losses = {kind: float(loss.mean()) for kind, loss in evaluate(known.model(), known.held_out).items()}
    for kind, loss in losses.items():
        here.repetition("held-out loss", loss, known.losses[kind], data=kind, unit="nat/token")
    rows.within("mean held-out loss", np.mean(list(losses.values())), math.log(known.source.tokens) / 2, unit="nat/token",
                source="half the loss of a uniform guess among the tokens in use", key="loss")  # fmt: skip


def compute(
    settings: Mapping[str, Any],
    checkpoint: str,
    kv_heads: Sequence[int],
    equal: int,
    blocks: Mapping[str, int],
    bounded: Mapping[str, int],
    confidence: float,
) -> list[dict[str, Any]]:
    """Rows of B5.5, from the checkpoint at the path `checkpoint`.

    `kv_heads`: numbers of heads to average into; `equal`: the number whose groups are made alike first in the control;
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
    alike = study.Form(known.spec, study.heads_made_equal(known.spec, known.weights, equal))
    rows = Evidence("B5.5", settings, by=routes.MODULE)
    restored(rows, known)

    def change(before: study.Form = base, number: int = equal) -> float:
        """Largest change of a logit, divided by the bound of both models."""
        moved, bound = bench.change(before, study.Form(*study.with_groups(before.spec, before.weights, number)))
        return moved / bound

    ids = np.concatenate([known.held_out.ids[kind] for kind in KINDS])
    old = study.sequence_losses(base, ids)
    heads = known.spec.layers[0][1].attention.kv_heads
    quantity = "largest change of a logit, divided by its bound"
    for number in kv_heads:
        here, named = rows.of(heads=heads, kv_heads=number), number == equal
        here.beyond(quantity, change(number=number), PAST, source=BOUND, headline=named, key="moved" if named else None)
        after = study.Form(*study.with_groups(known.spec, known.weights, number))
        low, _ = bounds.mean_interval(study.sequence_losses(after, ids) - old, confidence)
        here.beyond("rise of the held-out loss, lower end of the interval", low, 0.0, source="no rise", unit="nat/token",
                    confidence=confidence, key="rise" if named else None)  # fmt: skip
    rows.control("the heads of each group made equal first", quantity, change, {"before": alike}, at_least(PAST), at_most(1),
                 source=BOUND, heads=heads, kv_heads=equal, key="alike")  # fmt: skip
    return rows.rows
