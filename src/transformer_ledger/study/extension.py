"""Extensions of the model function, each trained for itself: which tensors change, what it costs, what it gains.

An extended model is a new model: the old checkpoint's result says nothing about it. Each is trained from scratch on the
same source with the same seeds, at two budgets: as many parameters as the base (the feed-forward's width gives way), and
as many training FLOPs (the number of steps gives way). Grouped queries are also converted from the trained base by
averaging heads, and trained on (Ainslie et al. 2023, arXiv:2305.13245, section 2.1), beside the base trained on as long.

Differences are taken seed by seed. A seed fixes the batches in their order, the first draw of every tensor, and the
held-out sequences; variant and base of one seed share them all (a tensor's draw where both have it in the same shape), so
that their luck cancels as far as it is shared. Student's interval for the mean of these differences is over the seeds, and
as each seed has held-out sequences of its own, over these too.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from transformer_ledger.ledger import kv_cache, matmul
from transformer_ledger.ledger import parameters as parameter_ledger
from transformer_ledger.model import ModelSpec
from transformer_ledger.study.source import KINDS, HeldOut, Source, held_out

CACHE_DTYPE = "bf16"


def student_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t distribution, from 1/2 up: P(t > q) = I_x(ν/2, 1/2)/2 with x = ν/(ν + q²)."""
    import mpmath

    def above(x: Any) -> Any:
        return mpmath.betainc(freedom / 2, 0.5, 0, x, True) - 2 * (1 - probability)

    x = mpmath.findroot(above, (0, 1), solver="bisect", tol=1e-28, maxsteps=200)
    return float(mpmath.sqrt(freedom / x - freedom))


def interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """Student's interval for the mean of independent values of one normal distribution; one value says nothing."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return -math.inf, math.inf
    reach = student_quantile(0.5 + confidence / 2, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return mean - reach, mean + reach


def smaller(spec: ModelSpec, sizes: Mapping[str, int]) -> ModelSpec:
    """The same kind of model in other sizes: layers, d_model, heads, d_ff, vocabulary, context."""
    from transformer_ledger.study.classification import with_layer

    head_dim = sizes["d_model"] // sizes["heads"]
    changed = with_layer(
        spec,
        attention={"heads": sizes["heads"], "kv_heads": sizes["heads"], "head_dim": head_dim},
        feedforward={"width": sizes["d_ff"]},
        d_model=sizes["d_model"],
        vocabulary=sizes["vocabulary"],
        context=sizes["context"],
        position_rows=sizes["context"],
    )
    return dataclasses.replace(changed, layers=((sizes["layers"], changed.layers[0][1]),))


def extended(spec: ModelSpec, extension: str, kv_heads: int) -> ModelSpec:
    """`spec` with rope, gqa, rmsnorm or gated, or with all of them (modern); base is `spec` itself."""
    from transformer_ledger.study.classification import equal_budget_width, with_layer

    chosen = ("rope", "gqa", "rmsnorm", "gated") if extension == "modern" else (extension,)
    for part in chosen:
        if part == "rope":
            spec = with_layer(spec, positions="rope", position_rows=0)
        elif part == "gqa":
            spec = with_layer(spec, attention={"kv_heads": kv_heads})
        elif part == "rmsnorm":
            spec = with_layer(spec, norm="rmsnorm", norm_bias=False)
        elif part == "gated":
            width = equal_budget_width(spec.layers[0][1].feedforward)
            spec = with_layer(spec, feedforward={"kind": "gated", "width": width})
        elif part != "base":
            raise ValueError(f"unknown extension {part!r}; known: base, rope, gqa, rmsnorm, gated, modern")
    return spec


def parameters(spec: ModelSpec) -> int:
    """Exact number of parameters."""
    return parameter_ledger.totals(spec)[0]


def at_parameters(spec: ModelSpec, target: int) -> ModelSpec:
    """The same model with the feed-forward width whose parameter count comes nearest to `target`."""
    from transformer_ledger.study.classification import with_layer

    def wide(width: int) -> ModelSpec:
        return with_layer(spec, feedforward={"width": width})

    first = parameters(wide(1))
    slope = parameters(wide(2)) - first  # the count is linear in the width
    return wide(max(1 + round((target - first) / slope), 1))


def tensor_rows(variant: str, old: ModelSpec, new: ModelSpec) -> list[dict[str, Any]]:
    """What becomes of every tensor."""
    import torch

    from transformer_ledger.executed.decoder import Decoder

    with torch.device("meta"):
        before, after = (dict(Decoder(spec).named_parameters()) for spec in (old, new))
    rows = []
    for name in [*before, *(name for name in after if name not in before)]:
        x, y = before.get(name), after.get(name)
        status = "new" if x is None else "gone" if y is None else "same" if x.shape == y.shape else "reshaped"
        shapes = ["" if t is None else " × ".join(map(str, t.shape)) for t in (x, y)]
        sizes = [0 if t is None else t.numel() for t in (x, y)]
        rows.append(
            {
                "variant": variant,
                "tensor": name,
                "status": status,
                "old_shape": shapes[0],
                "new_shape": shapes[1],
                "parameters_before": sizes[0],
                "parameters_after": sizes[1],
            }
        )
    return rows


@dataclasses.dataclass
class Trained:
    """The trainings of one variant at one budget: a model's description, its programme, and by seed and kind the held-out
    loss and that of the true source."""

    variant: str
    budget: str
    spec: ModelSpec
    programme: Any  # training.Programme
    steps_before: int = 0  # of the base that the weights were converted from
    losses: dict[int, dict[str, float]] = dataclasses.field(default_factory=dict)
    source_losses: dict[int, dict[str, float]] = dataclasses.field(default_factory=dict)

    @property
    def flops(self) -> int:
        """Of the steps with this model; what the base cost before a conversion is not in it."""
        return int(self.programme.steps * matmul.total(self.spec, self.programme.batch, self.programme.length, "train"))

    def evaluate(self, model: Any, data: HeldOut, seed: int) -> None:
        """Keep the held-out losses of the training of `seed`."""
        from transformer_ledger.study.training import evaluate

        self.losses[seed] = {kind: float(loss.mean()) for kind, loss in evaluate(model, data).items()}
        self.source_losses[seed] = {kind: float(data.loss[kind].mean()) for kind in KINDS}

    def excess(self, *kinds: str) -> list[float]:
        """Held-out loss minus the true source's, mean over `kinds`, seed by seed."""
        return [
            statistics.fmean(loss[kind] - self.source_losses[seed][kind] for kind in kinds)
            for seed, loss in self.losses.items()
        ]


def planned(
    base: ModelSpec, extensions: Sequence[str], kv_heads: int, plan: Any, uptraining_steps: int
) -> list[Trained]:
    """The trainings of one seed, the base's first, before they have run; those after a conversion come last."""

    def step_flops(spec: ModelSpec) -> int:
        return matmul.total(spec, plan.batch, plan.length, "train")

    runs = [Trained("base", "parameters", base, plan)]
    for name in extensions:
        spec = extended(base, name, kv_heads)
        runs.append(Trained(name, "parameters", at_parameters(spec, parameters(base)), plan))
        steps = round(plan.steps * step_flops(base) / step_flops(spec))
        runs.append(Trained(name, "compute", spec, dataclasses.replace(plan, steps=steps)))
    if uptraining_steps and "gqa" in extensions:
        for budget, steps in (("conversion", 0), ("up-training", uptraining_steps)):
            more = dataclasses.replace(plan, steps=steps, learning_rate=plan.learning_rate / 2)
            for name in ("base", "gqa"):
                runs.append(Trained(name, budget, extended(base, name, kv_heads), more, plan.steps))
    return runs


def _changes(run: Trained, base: Trained, confidence: float) -> dict[str, Any]:
    """What the excess changes against the base, seed by seed, with its interval: of both kinds together, and of each."""
    row: dict[str, Any] = {}
    for prefix, kinds in {"": KINDS, **{f"{kind}_": (kind,) for kind in KINDS}}.items():
        changes = [x - y for x, y in zip(run.excess(*kinds), base.excess(*kinds), strict=True)]
        low, high = interval(changes, confidence)
        row[f"{prefix}excess"] = statistics.fmean(run.excess(*kinds))
        row[f"{prefix}excess_change"] = statistics.fmean(changes)
        row[f"{prefix}excess_change_low"], row[f"{prefix}excess_change_high"] = low, high
    return {**row, "distinguishable": not row["excess_change_low"] <= 0 <= row["excess_change_high"]}


def _summary(run: Trained, base: Trained, floor: float, confidence: float) -> dict[str, Any]:
    """The row of study/extension."""
    values = run.excess(*KINDS)
    low, high = interval(values, confidence)
    plan, length = run.programme, run.programme.length
    cache = [kv_cache.cache_bytes(trained.spec, 1, length, CACHE_DTYPE, "needed") for trained in (run, base)]
    kept = [row for row in tensor_rows(run.variant, base.spec, run.spec) if row["status"] == "same"]
    origin = f"the base's weights after {run.steps_before} steps" if run.steps_before else ""
    trained = (
        f"AdamW, {plan.steps} steps of {plan.batch} × {length} tokens, {min(plan.warmup, plan.steps)} of warm-up to "
        f"{plan.learning_rate:g}, cosine to a tenth, weight decay {plan.weight_decay:g}"
    )
    return {
        "variant": run.variant,
        "budget": run.budget,
        "seeds": len(run.losses),
        "d_ff": run.spec.layers[0][1].feedforward.width,
        "parameters": parameters(run.spec),
        "parameter_change": parameters(run.spec) - parameters(base.spec),
        "steps": plan.steps,
        "tokens": plan.steps * plan.batch * length,
        "flops": run.flops,
        "flops_change": run.flops - base.flops,
        "cache_bytes": cache[0],
        "cache_bytes_change": cache[0] - cache[1],
        "checkpoint_parameters": sum(row["parameters_after"] for row in kept),
        "programme": ", ".join(part for part in (origin, trained if plan.steps else "not trained on") if part),
        "floor": floor,
        "loss": statistics.fmean(statistics.fmean(loss.values()) for loss in run.losses.values()),
        "excess_low": low,
        "excess_high": high,
        "spread": statistics.stdev(values) if len(values) > 1 else None,
        **_changes(run, base, confidence),
    }


def compute(
    models: Mapping[str, Any],
    sizes: Mapping[str, int],
    extensions: Sequence[str],
    kv_heads: int,
    source: Mapping[str, Any],
    programme: Mapping[str, Any],
    uptraining_steps: int,
    held_out_data: Mapping[str, int],
    seeds: Sequence[int],
    confidence: float,
) -> dict[str, list[dict[str, Any]]]:
    """Rows of study/extension, study/extension_tensors and study/extension_runs.

    The one model of `models` in other `sizes` is the base; `extensions` are rope, gqa, rmsnorm, gated, modern; `kv_heads`
    of gqa and modern; `source` and `programme` as in study.checkpoint; `uptraining_steps` 0 leaves up-training out;
    `confidence` of the intervals over the seeds.
    """
    import torch

    from transformer_ledger.study import training
    from transformer_ledger.study.classification import with_groups

    torch.set_num_threads(1)
    ((_, described),) = models.items()
    base = smaller(ModelSpec.from_json(described), sizes)
    origin, plan = Source(**source), training.Programme(**programme)
    floors = {kind: origin.floor(kind, plan.length) for kind in KINDS}

    runs = planned(base, extensions, kv_heads, plan, uptraining_steps)
    weights: dict[str, Any] = {}  # of the base of the seed at hand
    for seed in seeds:
        data = held_out(origin, held_out_data["sequences"], plan.length, held_out_data["seed"] + seed)
        for run in runs:
            model = training.fresh(run.spec, seed)
            if run.steps_before:
                model.load_state_dict(weights if run.variant == "base" else with_groups(base, weights, kv_heads)[1])
            training.train(model, origin, run.programme, seed + max(seeds) + 1 if run.steps_before else seed)
            run.evaluate(model, data, seed)
            if run is runs[0]:
                weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}

    bases = {run.budget: run for run in runs if run.variant == "base"}
    floor = statistics.fmean(floors.values())
    return {
        "study/extension": [_summary(run, bases.get(run.budget, runs[0]), floor, confidence) for run in runs],
        "study/extension_tensors": [
            row for run in runs if run.budget == "parameters" for row in tensor_rows(run.variant, base, run.spec)
        ],
        "study/extension_runs": [
            {
                "variant": run.variant,
                "budget": run.budget,
                "seed": seed,
                "source": kind,
                "loss": loss,
                "floor": floors[kind],
                "source_loss": run.source_losses[seed][kind],
                "excess": loss - run.source_losses[seed][kind],
            }
            for run in runs
            for seed, found in run.losses.items()
            for kind, loss in found.items()
        ],
    }
