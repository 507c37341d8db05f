"""Extensions of the model function, each trained for itself: which tensors change, what it costs, what it gains.

An extended model is a new model: the old checkpoint's result says nothing about it. Each is trained from scratch with as
many parameters as the base (the feed-forward's width gives way) and as many training FLOPs (the number of steps gives
way), at several budgets: a curve, each point a training of its own to the end of its own schedule. Its learning rate is
chosen before, from a grid, by its loss on sequences that are neither trained on nor held out. Grouped queries are also
converted from the trained base by averaging heads, and trained on (Ainslie et al. 2023, arXiv:2305.13245, section 2.1),
beside the base trained on as long.

Differences are taken seed by seed. A seed fixes the batches in their order, the first draw of every tensor, and the
held-out sequences; variant and base of one seed share them all (a tensor's draw where both have it in the same shape), so
that their luck cancels as far as it is shared. Student's interval for the mean of these differences is over the seeds, and
as each seed has held-out sequences of its own, over these too. With so many comparisons a few of their intervals would
miss by chance, so each is as wide as Bonferroni's inequality asks for all of them to hold together.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transformer_ledger.ledger import kv_cache, matmul
from transformer_ledger.ledger import parameters as parameter_ledger
from transformer_ledger.model import ModelSpec
from transformer_ledger.progress import Progress
from transformer_ledger.study.source import KINDS, VALIDATION, HeldOut, Source, held_out

Watch = Callable[[int, float | None], None]
Weights = Mapping[str, Any] | None
CACHE_DTYPE = "bf16"
BASE, SCRATCH, CONVERSION, UPTRAINING, SELECTION = "base", "scratch", "conversion", "up-training", "selection"
DISCLOSED = (
    "We chose these settings so that a difference could be seen. The model and the source are so small that every full "
    "training leaves the plateau on which it starts. Weights start at the scale 1/√(inputs). The position table starts as "
    "sinusoids. Each seed has its own held-out sequences. The results hold for these small models and this source. They "
    "say nothing about larger models."
)


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
    """Exact number of parameters, by formula."""
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
    share: float  # of the whole programme's compute
    spec: ModelSpec
    programme: Any  # training.Programme
    steps_before: int = 0  # of the base that the weights were converted from
    parameters: int = 0  # counted on the module that was trained
    losses: dict[int, dict[str, float]] = dataclasses.field(default_factory=dict)
    source_losses: dict[int, dict[str, float]] = dataclasses.field(default_factory=dict)

    @property
    def flops(self) -> int:
        """Of the steps with this model; what the base cost before a conversion is not in it."""
        return int(self.programme.steps * matmul.total(self.spec, self.programme.batch, self.programme.length, "train"))

    def run(
        self,
        source: Source,
        seed: int,
        data: HeldOut,
        watch: Watch,
        weights: Weights = None,
        batches: int | None = None,
    ) -> Any:
        """Train a model from `seed`, or on from `weights` with the seed `batches`; keep its losses on `data`. The model."""
        from transformer_ledger.study import training

        model = training.fresh(self.spec, seed)
        if weights is not None:
            model.load_state_dict(weights)
        training.train(model, source, self.programme, seed if batches is None else batches, watch)
        self.parameters = sum(tensor.numel() for tensor in model.parameters())
        self.losses[seed] = {kind: float(loss.mean()) for kind, loss in training.evaluate(model, data).items()}
        self.source_losses[seed] = {kind: float(data.loss[kind].mean()) for kind in KINDS}
        return model

    def excess(self, *kinds: str) -> list[float]:
        """Held-out loss minus the true source's, mean over `kinds`, seed by seed."""
        return [
            statistics.fmean(loss[kind] - self.source_losses[seed][kind] for kind in kinds)
            for seed, loss in self.losses.items()
        ]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is trained: the variants' models by name, the base's first, each with its programmes by budget."""

    specs: Mapping[str, ModelSpec]
    programme: Any  # training.Programme, the whole one of the base
    shares: Sequence[float]  # of it, rising: the budgets
    factors: Sequence[float]  # of its learning rate: the grid
    uptraining_steps: int
    grouped: ModelSpec | None  # the base with grouped queries, all else as it is

    def at(self, variant: str, share: float, factor: float = 1.0) -> Any:
        """The programme of a variant that costs as much as the base's share of the steps, to the nearest step."""
        base, own = (
            matmul.total(self.specs[name], self.programme.batch, self.programme.length, "train")
            for name in (BASE, variant)
        )
        steps = max(round(max(round(share * self.programme.steps), 1) * base / own), 1)
        return dataclasses.replace(self.programme, steps=steps, learning_rate=factor * self.programme.learning_rate)

    def selection(self) -> list[Trained]:
        """The trainings that choose the learning rates, at the largest budget."""
        share = self.shares[-1]
        return [
            Trained(variant, SELECTION, share, spec, self.at(variant, share, factor))
            for variant, spec in self.specs.items()
            for factor in self.factors
        ]

    def runs(self, rates: Mapping[str, float]) -> list[Trained]:
        """The trainings of one seed with each variant's learning rate; those after a conversion come last."""

        def at(variant: str, share: float) -> Any:
            return dataclasses.replace(self.at(variant, share), learning_rate=rates[variant])

        runs = [
            Trained(variant, SCRATCH, share, spec, at(variant, share))
            for share in self.shares
            for variant, spec in self.specs.items()
        ]
        if self.uptraining_steps and self.grouped:
            before = at(BASE, self.shares[-1])
            for budget, steps in ((CONVERSION, 0), (UPTRAINING, self.uptraining_steps)):
                more = dataclasses.replace(before, steps=steps, learning_rate=rates[BASE] / 2)
                for name, spec in ((BASE, self.specs[BASE]), ("gqa", self.grouped)):
                    runs.append(Trained(name, budget, steps / before.steps, spec, more, before.steps))
        return runs


def planned(
    base: ModelSpec,
    extensions: Sequence[str],
    kv_heads: int,
    programme: Any,
    budgets: Sequence[float],
    factors: Sequence[float],
    uptraining_steps: int,
) -> Plan:
    """The plan of the study; every variant has as many parameters as the base, to the nearest feed-forward width."""
    specs = {BASE: base}
    for name in extensions:
        specs[name] = at_parameters(extended(base, name, kv_heads), parameters(base))
    grouped = extended(base, "gqa", kv_heads) if "gqa" in extensions else None
    return Plan(specs, programme, budgets, factors, uptraining_steps, grouped)


def counted(total: int) -> Watch:
    """What counts the steps of all trainings and says how far they are."""
    progress, done = Progress(total, "steps"), itertools.count(1)

    def watch(step: int, loss: float | None) -> None:
        if step:
            progress(next(done))

    return watch


def best_rates(tried: Sequence[Trained]) -> dict[str, float]:
    """The learning rate of each variant whose training ended nearest to the source; one that ended nowhere is last."""
    best: dict[str, tuple[float, float]] = {}
    for run in tried:
        (excess,) = run.excess(*KINDS)
        found = (excess if math.isfinite(excess) else math.inf, run.programme.learning_rate)
        best[run.variant] = min(best.get(run.variant, found), found)
    return {variant: rate for variant, (_, rate) in best.items()}


def changes(run: Trained, base: Trained, confidence: float) -> dict[str, Any]:
    """What the excess changes against the base, seed by seed, with its interval: of both kinds together, and of each."""
    row: dict[str, Any] = {}
    for prefix, kinds in {"": KINDS, **{f"{kind}_": (kind,) for kind in KINDS}}.items():
        changed = [x - y for x, y in zip(run.excess(*kinds), base.excess(*kinds), strict=True)]
        low, high = interval(changed, confidence)
        row[f"{prefix}excess"] = statistics.fmean(run.excess(*kinds))
        row[f"{prefix}excess_change"] = statistics.fmean(changed)
        row[f"{prefix}excess_change_low"], row[f"{prefix}excess_change_high"] = low, high
    return {**row, "distinguishable": not row["excess_change_low"] <= 0 <= row["excess_change_high"]}


def described(run: Trained) -> str:
    """The training programme in words."""
    plan = run.programme
    origin = f"the base's weights after {run.steps_before} steps" if run.steps_before else ""
    trained = (
        f"AdamW, {plan.steps} steps of {plan.batch} × {plan.length} tokens, {min(plan.warmup, plan.steps)} of warm-up to "
        f"{plan.learning_rate:g}, cosine to a tenth, weight decay {plan.weight_decay:g}"
    )
    return ", ".join(part for part in (origin, trained if plan.steps else "not trained on") if part)


def in_budget(run: Trained, base: Trained) -> bool:
    """Whether what was trained is what was planned: as many parameters as the formula says and, from scratch, as many
    parameters and FLOPs as the base, to half a unit of the feed-forward's width and half a step."""
    from transformer_ledger.study.classification import with_layer

    kept = run.parameters == parameters(run.spec)
    if run.budget != SCRATCH:
        return kept
    wider = with_layer(run.spec, feedforward={"width": run.spec.layers[0][1].feedforward.width + 1})
    unit, step = parameters(wider) - parameters(run.spec), run.flops // run.programme.steps
    return kept and 2 * abs(run.parameters - base.parameters) <= unit and 2 * abs(run.flops - base.flops) <= step


def summary(run: Trained, base: Trained, floor: float, confidence: float, comparisons: int) -> dict[str, Any]:
    """The row of study/extension."""
    values, plan = run.excess(*KINDS), run.programme
    low, high = interval(values, confidence)
    cache = [kv_cache.cache_bytes(trained.spec, 1, plan.length, CACHE_DTYPE, "needed") for trained in (run, base)]
    kept = [row for row in tensor_rows(run.variant, base.spec, run.spec) if row["status"] == "same"]
    each = 1 - (1 - confidence) / comparisons
    return {
        "variant": run.variant,
        "budget": run.budget,
        "share": run.share,
        "seeds": len(run.losses),
        "d_ff": run.spec.layers[0][1].feedforward.width,
        "parameters": run.parameters,
        "parameter_change": run.parameters - base.parameters,
        "steps": plan.steps,
        "tokens": plan.steps * plan.batch * plan.length,
        "learning_rate": plan.learning_rate,
        "flops": run.flops,
        "flops_change": run.flops - base.flops,
        "cache_bytes": cache[0],
        "cache_bytes_change": cache[0] - cache[1],
        "checkpoint_parameters": sum(row["parameters_after"] for row in kept),
        "programme": described(run),
        "floor": floor,
        "loss": statistics.fmean(statistics.fmean(loss.values()) for loss in run.losses.values()),
        "excess_low": low,
        "excess_high": high,
        "spread": statistics.stdev(values) if len(values) > 1 else None,
        "comparisons": comparisons,
        "interval_confidence": each,
        "disclosed": DISCLOSED,
        "holds": in_budget(run, base) and high >= 0,
        **changes(run, base, each),
    }


def run_rows(runs: Sequence[Trained], floors: Mapping[str, float], chosen: Mapping[str, float]) -> list[dict[str, Any]]:
    """The rows of study/extension_runs, one a training and source; `chosen` are the variants' learning rates."""
    return [
        {
            "variant": run.variant,
            "budget": run.budget,
            "share": run.share,
            "steps": run.programme.steps,
            "learning_rate": run.programme.learning_rate,
            "chosen": run.programme.learning_rate == chosen[run.variant] if run.budget == SELECTION else None,
            "split": "validation" if run.budget == SELECTION else "held-out",
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
    ]


def compute(
    models: Mapping[str, Any],
    sizes: Mapping[str, int],
    extensions: Sequence[str],
    kv_heads: int,
    source: Mapping[str, Any],
    programme: Mapping[str, Any],
    budgets: Sequence[float],
    selection: Mapping[str, Any],
    uptraining_steps: int,
    held_out_data: Mapping[str, int],
    seeds: Sequence[int],
    confidence: float,
) -> dict[str, list[dict[str, Any]]]:
    """Rows of study/extension, study/extension_tensors and study/extension_runs.

    The one model of `models` in other `sizes` is the base; `extensions` are rope, gqa, rmsnorm, gated, modern; `kv_heads`
    of gqa and modern; `source` and `programme` as in study.checkpoint; `budgets`: shares of the programme's compute;
    `selection`: factors of its learning rate, sequences of each kind and seed of the trainings that choose among them;
    `uptraining_steps` 0 leaves up-training out; `confidence` of all intervals of differences together.
    """
    import torch

    from transformer_ledger.study.classification import with_groups
    from transformer_ledger.study.training import Programme

    torch.set_num_threads(1)
    ((_, described_model),) = models.items()
    base, origin = smaller(ModelSpec.from_json(described_model), sizes), Source(**source)
    length, floors = programme["length"], {kind: origin.floor(kind, programme["length"]) for kind in KINDS}
    plan = planned(base, extensions, kv_heads, Programme(**programme), budgets, selection["factors"], uptraining_steps)
    tried, seed = plan.selection(), selection["seed"]
    steps = len(seeds) * sum(run.programme.steps for run in plan.runs(dict.fromkeys(plan.specs, 1.0)))
    watch = counted(steps + sum(run.programme.steps for run in tried))
    validation = held_out(origin, selection["sequences"], length, seed, VALIDATION)
    for run in tried:
        run.run(origin, seed, validation, watch)
    rates = best_rates(tried)

    runs, weights = plan.runs(rates), dict[str, Any]()
    for seed in seeds:
        data = held_out(origin, held_out_data["sequences"], length, held_out_data["seed"] + seed)
        for run in runs:
            if run.steps_before:
                start = weights if run.variant == BASE else with_groups(base, weights, kv_heads)[1]
                run.run(origin, seed, data, watch, start, seed + max(seeds) + 1)
                continue
            model = run.run(origin, seed, data, watch)
            if run.variant == BASE:  # the largest budget comes last
                weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}

    bases = {(run.budget, run.share): run for run in runs if run.variant == BASE}
    comparisons = (1 + len(KINDS)) * (len(runs) - len(bases))
    floor = statistics.fmean(floors.values())
    return {
        "study/extension": [summary(run, bases[run.budget, run.share], floor, confidence, comparisons) for run in runs],
        "study/extension_tensors": [row for name, spec in plan.specs.items() for row in tensor_rows(name, base, spec)],
        "study/extension_runs": run_rows([*tried, *runs], floors, rates),
    }
