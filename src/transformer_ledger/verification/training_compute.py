"""Training N parameters on D tokens takes 6·N·D operations, and that gives the published time of Llama 3 70B.

Claims A9.1 to A9.6. The 6 is counted on executed models, module by module: forward, weights' gradient, inputs' gradient.
The published device-hours are set against the text's days, with what makes up the difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache, partial
from typing import Any

from transformer_ledger import routes
from transformer_ledger.evidence import Evidence, Printed, between, exactly, outside
from transformer_ledger.formulas import training_compute as formulas
from transformer_ledger.formulas.architecture import attention_scores_and_values
from transformer_ledger.formulas.matmul import training
from transformer_ledger.ledger import matmul
from transformer_ledger.ledger.counted import Rows, counts
from transformer_ledger.ledger.parameters import tensors, totals
from transformer_ledger.model import ModelSpec, from_architecture

RUN = {"text.parameters": 70 * 10**9, "text.tokens": 15 * 10**12}
MACHINE = RUN | {"text.devices": 16_000, "text.flops_per_second_per_device": 400 * 10**12}
SLIDERS = MACHINE | {"sliders.layers": 80, "sliders.d_model": 8192, "sliders.vocabulary": 128_256}
"""The text's own run, machine and slider model, which its figures were printed for."""
HOUR, DAY, TERA = 3600, 86_400, 10**12
ABOUT = Fraction(1, 10)  # ASSUME "about 6·N·D" is within a tenth of what the weights do, attention's own products apart
OWN = ("attention.scores", "attention.values")
PASSES = ("forward", "weights' gradient", "inputs' gradient")
PER_WEIGHT = "FLOP per weight and token"


def _days(flops: Any, devices: int, rate: Any) -> float:
    """Days that `flops` take, in fractions until it is rounded once."""
    return float(Fraction(formulas.seconds(Fraction(flops), devices, Fraction(rate))) / DAY)


def _arithmetic(proof: Evidence, text: Mapping[str, Any], sliders: Mapping[str, int]) -> None:
    """A9.2, A9.6 and what A9.1 prints."""
    N, D, G, R = text["parameters"], text["tokens"], text["devices"], Fraction(text["flops_per_second_per_device"])
    flops = formulas.rule_flops(N, D)
    proof.of("A9.1").prints("6·N·D", flops, Printed("6.30e24", RUN), unit="FLOP", headline=True, key="flops")

    def seconds(devices: int = G) -> Fraction:
        return Fraction(formulas.seconds(Fraction(flops), devices, R))

    machine = proof.of("A9.2", unit="s", devices=G)
    machine.prints("rate of all devices", G * R, Printed("6.4e18", MACHINE), unit="FLOP/s", key="rate")
    machine.prints("time", seconds(), Printed("984,375", MACHINE), headline=True, key="seconds")
    machine.prints("time in days", _days(flops, G, R), Printed("11.4", MACHINE), unit="day", headline=True, key="days")
    machine.control("half the devices", "time", seconds, {"devices": G // 2}, exactly(6 * N * D / (G * R)))

    size = partial(formulas.rule_parameters, d=sliders["d_model"], V=sliders["vocabulary"])
    model = proof.of("A9.6", **sliders)
    printed, work = Printed("65.48", SLIDERS, scale=10**9), formulas.rule_flops(size(sliders["layers"]), D)
    model.prints("parameters by the rule", size(sliders["layers"]), printed, unit="parameter", headline=True, key="N")
    model.prints("tokens", D, Printed("15.0", SLIDERS, scale=10**12), unit="token")
    model.prints("6·N·D", work, Printed("5.89e24", SLIDERS), unit="FLOP", headline=True, key="flops")
    model.prints("time", _days(work, G, R), Printed("10.7", SLIDERS), unit="day", headline=True, key="days")
    model.control("one layer more", "parameters by the rule", lambda more=0: size(sliders["layers"] + more), {"more": 1},
                  printed.region, outside(printed.region.low, printed.region.high), unit="parameter")  # fmt: skip


@cache
def _counted(spec: ModelSpec, T: int) -> tuple[int, int]:
    """Training FLOPs of one sequence of T tokens, counted on the executed model: of weights, of attention's own."""
    from transformer_ledger.executed import count

    found = count.forward_backward(count.Kinds(spec), 1, T)[1]
    own = sum(found[component] for component in OWN)
    return found.total() - own, own


def _derived(spec: ModelSpec, T: int) -> tuple[int, int]:
    """The same by the ledger's formulas."""
    own = training(sum(p.flops for p in matmul.products(spec, 1, T, T, "train") if p.component in OWN))
    return matmul.total(spec, 1, T, "train") - own, own


def _rule(proof: Evidence, name: str, run: Mapping[str, Any], shown: bool) -> tuple[tuple[int, int], tuple[int, int]]:
    """A9.1 for one run: the rule beside the exact count, whose two parts are returned by both routes."""
    spec = ModelSpec.from_json(run["architecture"])
    T, D, N = run.get("context") or spec.context, run["tokens"], totals(spec)[1]
    ran, closed = _counted(spec, T), _derived(spec, T)
    here = proof.of("A9.1", name=name, length=T, by=routes.COUNTER, against=routes.LEDGER)
    here.same("differing counts of the FLOPs of weights and of attention's own products", ran, closed)
    rule = formulas.rule_flops(N, D)
    exact = formulas.exact_flops(sum(closed), D, T)
    here.equal("6·N·D / all matrix products", float(rule / Fraction(sum(ran) * D, T)), float(Fraction(rule, exact)),
               headline=shown, key="over_exact" if shown else None)  # fmt: skip
    if shown:

        def ratio(operations: int = 6) -> Fraction:
            return Fraction(rule * operations, 6) / Fraction(ran[0] * D, T)

        about = here.of(against=routes.TEXT, source="about: within a tenth")
        quantity = "N·D operations / counted operations of the weights"
        about.inside(quantity, float(ratio()), 1 - ABOUT, 1 + ABOUT, operations=6, key="over_weights")
        for operations, words in ((2, "only the forward pass"), (8, "the forward pass run twice")):
            about.control(words, quantity, ratio, {"operations": operations}, between(1 - ABOUT, 1 + ABOUT),
                          outside(1 - ABOUT, 1 + ABOUT), operations=operations)  # fmt: skip
    return ran, closed


def _published(
    proof: Evidence, text: Mapping[str, Any], runs: Mapping[str, Any], text_run: str, device_peak: float
) -> None:
    """A9.3: the text's time against the published device-hours, what makes the difference, and the implied rates."""
    N, D, G, R = text["parameters"], text["tokens"], text["devices"], text["flops_per_second_per_device"]
    claim = proof.of("A9.3", scope="corrected", unit="day", by=routes.PUBLISHED)
    for name, run in runs.items():
        parts = _rule(proof, name, run, name == text_run)
        spec = ModelSpec.from_json(run["architecture"])
        T, W = run.get("context") or spec.context, run.get("published_device_hours")
        if not W:
            continue
        sizes = {"": totals(spec)[1]} | ({"the text's N": N} if name == text_run else {})
        for words, size in sizes.items():
            implied = formulas.implied_rate(Fraction(formulas.rule_flops(size, run["tokens"])), W)
            claim.within("implied rate of one device", float(implied / TERA), device_peak / TERA, tried=words, name=name,
                         device_hours=W, unit="TFLOP/s", against="the device's data sheet", leg="exact",
                         key="rate" if words else f"rate_{_key(name)}")  # fmt: skip
        if name != text_run:
            continue
        real, claimed = float(Fraction(W * HOUR, G * DAY)), formulas.rule_flops(N, D)
        claim.prints("time from the published GPU-hours", real, Printed("11", MACHINE, rounded=True), device_hours=W, devices=G,
                     headline=True, key="days")  # fmt: skip
        implied = formulas.implied_rate(Fraction(claimed), W)
        claim.equal("time at the implied rate", _days(claimed, G, implied), real, by=routes.FORMULA,
                    against=routes.PUBLISHED, devices=G)  # fmt: skip
        ran, closed = ([Fraction(part * run["tokens"], T) for part in found] for found in parts)
        more = claim.of(by=routes.COUNTER, against=routes.LEDGER)
        for key, term, left in (("weights", 0, claimed), ("attention", 1, 0)):
            more.equal("days in addition to the text's", *(_days(found[term] - left, G, R) for found in (ran, closed)),
                       term=f"{key}, counted exactly", key=key)  # fmt: skip
        # What the two leave is the rate's: it follows, and is shown only.
        rest, every = real - _days(sum(ran), G, R), real - _days(claimed, G, R)
        more.repetition(
            "days in addition to the text's", rest, rest, term="a lower rate than assumed", key="lower_rate"
        )
        more.repetition("days in addition to the text's", every, every, term="all", key="more")

        def lasts(hours: Any = W) -> float:
            return float(Fraction(hours * HOUR, G * DAY))

        assumed = Fraction(claimed) / Fraction(R) / HOUR
        claim.control("the GPU-hours that the assumed rate would give", "time from the published GPU-hours", lasts, {"hours": assumed},
                      exactly(float(Fraction(W, 24 * G))), devices=G, key="assumed")  # fmt: skip


def _key(name: str) -> str:
    return name.replace("-", "_").replace(".", "_")


def _run(
    model: Any, fixed: Callable[[str], bool], batch: int, tokens: int, booked: bool = True
) -> tuple[Counter[str], Counter[str], int]:
    """FLOPs by module, forward and forward with backward, and the latter's total; `fixed` parameters do not learn.

    Raises CountError where operations are to be `booked` to modules and some were to none, or to two.
    """
    from torch.utils.flop_counter import FlopCounterMode

    from transformer_ledger.executed import count

    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not fixed(name))
        parameter.grad = None
    with count.own_inputs(), FlopCounterMode(display=False) as counter:
        logits = model(count.token_ids(model, batch, tokens))
        forward = count.by_module(counter, model)
        logits.sum().backward()
        both = count.by_module(counter, model)
    if booked and sum(both.values()) != counter.get_total_flops():
        raise count.CountError(f"modules sum to {sum(both.values())} of {counter.get_total_flops()} FLOPs")
    return forward, both, counter.get_total_flops()


def _used(model: Any) -> dict[str, int]:
    """Weights that one token is multiplied by, for each module that multiplies its input: linear maps and experts."""
    from torch import nn

    from transformer_ledger.executed import count
    from transformer_ledger.executed.decoder import Experts

    layers, used = model.spec.each_layer(), {}
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear):
            used[path] = int(module.weight.numel())
        elif isinstance(module, Experts):
            layer = layers[count.layer_of(path) or 0]
            used[path] = int(module.weight[0].numel()) * layer.feedforward.experts_per_token
    return used


def _dense(proof: Evidence, keys: Mapping[str, Any], batch: int, tokens: int) -> None:
    """A9.4, module by module."""
    from transformer_ledger.executed import count
    from transformer_ledger.executed.decoder import Product

    spec = from_architecture("dense", dict(keys))
    model = count.full_depth(spec)
    work = {path: weights * batch * tokens for path, weights in _used(model).items()}
    weights = {f"{path}.weight" for path in work}
    six = proof.of("A9.4", unit=PER_WEIGHT, by=routes.COUNTER)

    def passes(fixed: Callable[[str], bool] = lambda name: False) -> dict[str, tuple[int, int, int]]:
        """FLOPs by module: forward, weights' gradient, and inputs' gradient, which alone runs when no weight learns."""
        forward, both, _ = _run(model, fixed, batch, tokens)
        _, without, _ = _run(model, lambda name: fixed(name) or name in weights, batch, tokens)
        return {path: (forward[path], both[path] - without[path], without[path] - forward[path]) for path in forward}

    def per_weight(first: int, last: int, **change: Any) -> Fraction:
        found = passes(**change)
        return Fraction(sum(sum(found[path][first:last]) for path in work), sum(work.values()))

    found = passes()
    for i, name in enumerate(PASSES):
        apart = [Fraction(found[path][i], work[path]) for path in work]
        six.same(f"modules whose count is not 2, {name}", apart, [2] * len(work), unit="module", modules=len(work))
    six.prints("forward", per_weight(0, 1), Printed("2"), headline=True, key="forward")
    six.prints("backward", per_weight(1, 3), Printed("4"), headline=True, key="backward")
    six.control("frozen weights", "backward", lambda **change: per_weight(1, 3, **change),
                {"fixed": lambda name: name in weights}, exactly(4), exactly(2), key="frozen")  # fmt: skip

    # Exceptions: what 6·N·D leaves out, what it counts too much.
    beside = six.of(scope="corrected", unit="FLOP", against=routes.FORMULA)
    products = [path for path, module in model.named_modules() if isinstance(module, Product)]
    width = spec.layers[0][1].attention.heads * spec.layers[0][1].attention.head_dim
    own = spec.depth * attention_scores_and_values(batch, tokens, width)
    for name, first, last, times in (("forward", 0, 1, 1), ("backward", 1, 3, 2)):
        counted = sum(sum(found[path][first:last]) for path in products)
        beside.equal(f"attention's own products, {name}", counted, times * own, source="4·B·T²·d a layer and pass")
    rest = sum(sum(flops) for path, flops in found.items() if path not in work and path not in products)
    beside.equal("embedding and norms, forward and backward", rest, 0, against=routes.TEXT)
    early = ("token_embedding.", "position_embedding.", "embedding_norm.", "layers.0.norm.0.")
    every: tuple[Callable[[str], bool], ...] = (lambda name: False, lambda name: name.startswith(early))
    full, least = (_run(model, fixed, batch, tokens, booked=False)[2] for fixed in every)
    first_maps = sum(work[f"layers.0.attention.{part}"] for part in ("query", "key", "value"))
    beside.equal("backward FLOPs saved if no layer before the first maps is trained", full - least, 2 * first_maps)


def _mixture(proof: Evidence, keys: Mapping[str, Any], batch: int, tokens: int) -> None:
    """A9.5 on a small mixture, component by component."""
    from transformer_ledger.executed import count

    spec = from_architecture("mixture", dict(keys))
    model, D = count.full_depth(spec), batch * tokens
    _, both, _ = _run(model, lambda name: False, batch, tokens)
    flops: Counter[str] = Counter()
    for path in _used(model):
        flops[count.component_of(path)] += both[path]
    experts = spec.layers[0][1].feedforward
    mixture = proof.of("A9.5", unit="FLOP", by=routes.COUNTER, against=routes.LEDGER,
                       experts=experts.experts, per_token=experts.experts_per_token)  # fmt: skip
    ours = [tensor for tensor in tensors(spec) if tensor.component in flops and not tensor.bias]
    for part in sorted(flops):
        active = sum(tensor.active_parameters for tensor in ours if tensor.component == part)
        mixture.equal("forward and backward", flops[part], formulas.rule_flops(active, D), component=part)

    def per_weight(attribute: str = "active_parameters") -> Fraction:
        return Fraction(flops.total(), D * sum(getattr(tensor, attribute) for tensor in ours))

    six = mixture.of(unit=PER_WEIGHT, against=routes.TEXT)
    quantity = "forward and backward, per active weight and token"
    six.equal(quantity, per_weight(), 6, headline=True, key="active")
    six.control("all experts in N", quantity, per_weight, {"attribute": "parameters"}, exactly(6), key="all")


def _executed(proof: Evidence, spec: ModelSpec, rows: Rows, workloads: Mapping[str, Mapping[str, int]]) -> None:
    """A9.5 at full size: training FLOPs of an executed model, workload by workload, attention's own products apart."""
    ours = counts(rows)
    active = {key[3]: value for key, value in ours.items() if key[0] == "active_parameters" and key[4] == "weight"}
    for implementation, route in (("ours", routes.MODULE), ("transformers", routes.TRANSFORMERS)):
        trained: dict[str, dict[str, int]] = {}
        for (quantity, workload, phase, component, _), value in counts(rows, implementation).items():
            if quantity == "flops" and phase == "train" and component not in ("total", *OWN) and value:
                trained.setdefault(workload, {})[component] = value
        for workload, found in trained.items():
            tokens = workloads[workload]["batch"] * workloads[workload]["context"]
            # A tied head multiplies by the embedding's table.
            N = sum(active["token_embedding" if c == "head" and spec.tied_head else c] for c in found)
            proof.equal("forward and backward of all maps", sum(found.values()), formulas.rule_flops(N, tokens),
                        by=route, model=spec.name, tokens=tokens)  # fmt: skip


def compute(
    settings: Mapping[str, Any],
    text: Mapping[str, Any],
    sliders: Mapping[str, int],
    runs: Mapping[str, Any],
    text_run: str,
    device_peak: float,
    models: Mapping[str, Any],
    counted: Mapping[str, int],
    dense: Mapping[str, Any],
    mixture: Mapping[str, Any],
    workloads: Mapping[str, Mapping[str, int]],
    execution: Mapping[str, Rows],
) -> list[dict[str, Any]]:
    """Rows of the verification.

    `text`: parameters, tokens, devices, flops_per_second_per_device; `sliders`: layers, d_model, vocabulary; `counted`:
    batch and tokens of the counted runs of `dense` and `mixture` (architecture keys).
    """
    import torch

    torch.set_num_threads(1)
    proof = Evidence("A9.5", settings, by=routes.FORMULA, against=routes.TEXT)
    _arithmetic(proof, text, sliders)
    _published(proof, text, runs, text_run, device_peak)
    _dense(proof, dense, **counted)
    _mixture(proof, mixture, **counted)
    for name, data in models.items():
        full = proof.of(unit="FLOP", against=routes.FORMULA, source="6·N·D, N the active weights")
        _executed(full, ModelSpec.from_json(data), execution[name], workloads)
    return proof.rows
