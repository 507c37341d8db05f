"""Training N parameters on D tokens takes 6·N·D operations, and that gives the published time of Llama 3 70B.

The arithmetic is exact. The published device-hours are set against it, with the difference split into terms that add
up exactly. The 6 is counted on executed models, module by module: forward, weights' gradient, inputs' gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from transformer_ledger.cases import case
from transformer_ledger.formulas import training_compute as formulas
from transformer_ledger.formulas.architecture import attention_scores_and_values
from transformer_ledger.ledger import matmul
from transformer_ledger.ledger.counted import Rows, counts
from transformer_ledger.ledger.parameters import tensors, totals
from transformer_ledger.model import ModelSpec, from_architecture

# The text's own run and slider model; the figures it prints are not applicable to any other.
TEXT = {"parameters": 70 * 10**9, "tokens": 15 * 10**12, "devices": 16_000, "flops_per_second_per_device": 400 * 10**12}
SLIDERS = {"layers": 80, "d_model": 8192, "vocabulary": 128_256}
HOUR, DAY = 3600, 86_400
Row = dict[str, Any]


def _rounds_to(value: Fraction | int, half: Fraction | int) -> tuple[Fraction, Fraction]:
    """What a printed value stands for: half a unit of its last digit to either side."""
    return Fraction(value) - half, Fraction(value) + half


def _days(flops: int, devices: int, rate: Fraction) -> Fraction:
    return Fraction(formulas.seconds(Fraction(flops), devices, rate)) / DAY


def _arithmetic(text: Mapping[str, Any], sliders: Mapping[str, int]) -> list[Row]:
    """A9.1, A9.2, A9.6."""
    N, D, G, R = text["parameters"], text["tokens"], text["devices"], Fraction(text["flops_per_second_per_device"])
    same = dict(text) == TEXT
    flops = formulas.rule_flops(N, D)
    seconds = Fraction(formulas.seconds(Fraction(flops), G, R))
    size = formulas.rule_parameters(sliders["layers"], sliders["d_model"], sliders["vocabulary"])
    slider_flops = formulas.rule_flops(size, D)
    slider_same = same and dict(sliders) == SLIDERS
    case_ = f"{N:,} parameters, {D:,} tokens"
    machine = f"{G:,} devices at {float(R):.4g} FLOP/s"
    model = ", ".join(f"{key} {value:,}" for key, value in sliders.items())
    billion = 10**9
    return [
        case("A9.1", case_, "exact", "6·N·D", flops, "==", 63 * 10**23,
             bound_source="the text", unit="FLOP", printed="6.30e24", applicable=same, headline=True),
        case("A9.2", machine, "exact", "rate of all devices", G * R, "==", 64 * 10**17,
             bound_source="the text", unit="FLOP/s", printed="6.4e18", applicable=same),
        case("A9.2", machine, "exact", "time", seconds, "==", 984_375,
             bound_source="the text", unit="s", printed="984,375", applicable=same, headline=True),
        case("A9.2", machine, "exact", "time", float(seconds / DAY), "in",
             _rounds_to(Fraction(114, 10), Fraction(1, 20)), bound_source="the text", unit="day", printed="11.4",
             applicable=same, headline=True),
        case("A9.6", model, "exact", "parameters by the rule", size, "in",
             _rounds_to(65_480_000_000, billion // 200), bound_source="the text", unit="parameter", printed="65.48 G",
             applicable=slider_same, headline=True),
        case("A9.6", model, "exact", "tokens", D, "in", _rounds_to(15_000 * billion, 50 * billion),
             bound_source="the text", unit="token", printed="15.0 T", applicable=slider_same),
        case("A9.6", model, "exact", "6·N·D", slider_flops, "in", _rounds_to(589 * 10**22, 5 * 10**21),
             bound_source="the text", unit="FLOP", printed="5.89e24", applicable=slider_same, headline=True),
        case("A9.6", f"{model}, {machine}", "exact", "time", float(_days(slider_flops, G, R)), "in",
             _rounds_to(Fraction(107, 10), Fraction(1, 20)), bound_source="the text", unit="day", printed="10.7",
             applicable=slider_same, headline=True),
    ]  # fmt: skip


def _multiplied(spec: ModelSpec) -> int:
    """Weights that multiply one token: the active ones but lookups and norms; a tied head is the embedding's."""
    found = tensors(spec)
    lookup = ("position_embedding",) if spec.tied_head else ("token_embedding", "position_embedding")
    maps = [t for t in found if not t.bias and "norm" not in t.component and t.component not in lookup]
    return sum(t.active_parameters for t in maps)


def _published(
    text: Mapping[str, Any], runs: Mapping[str, Any], text_run: str, days: tuple[Any, Any], peak: float
) -> list[Row]:
    """A9.3: the text's time against the published device-hours, and the rates that those imply."""
    rows: list[Row] = []
    G, R = text["devices"], Fraction(text["flops_per_second_per_device"])
    span = Fraction(str(days[0])), Fraction(str(days[1]))
    for name, run in runs.items():
        spec = ModelSpec.from_json(run["architecture"])
        _, N = totals(spec)
        D, W = run["tokens"], run.get("published_device_hours")
        if not W:
            continue
        rule = formulas.rule_flops(N, D)
        implied = Fraction(formulas.implied_rate(Fraction(rule), W))
        rows.append(
            case("A9.3", f"{name}: {W:,} device-hours, {N:,} parameters, {D:,} tokens", "exact",
                 f"implied rate of one device, {name}", float(implied), "<=", Fraction(peak), scope="corrected",
                 bound_source="peak of the device", unit="FLOP/s")
        )  # fmt: skip
        if name != text_run:
            continue
        claimed, real = _days(formulas.rule_flops(text["parameters"], D), G, R), Fraction(W * HOUR, G * DAY)
        rounded = Fraction(formulas.implied_rate(Fraction(formulas.rule_flops(text["parameters"], D)), W))
        rows += [
            case("A9.3", f"{name}: {W:,} device-hours on {G:,} devices", "exact", "published time",
                 float(real), "in", span, bound_source="the text", unit="day", printed="about 11",
                 applicable=dict(text) == TEXT, headline=True),
            case("A9.3", f"{name}, with the text's {text['parameters']:,} parameters", "exact",
                 f"implied rate of one device ({float(R):.4g} assumed)", float(rounded), "<=", Fraction(peak),
                 scope="corrected", bound_source="peak of the device", unit="FLOP/s", headline=True),
        ]  # fmt: skip
        T = run.get("context") or spec.context
        forward = {product.component: 0 for product in matmul.products(spec, 1, T, T, "train")}
        for product in matmul.products(spec, 1, T, T, "train"):
            forward[product.component] += product.flops
        attention = 3 * Fraction(forward["attention.scores"] + forward["attention.values"], T) * D
        weights = sum(
            3 * flops for part, flops in forward.items() if part not in ("attention.scores", "attention.values")
        )
        run_flops = attention + Fraction(weights, T) * D

        def lasts(flops: Fraction) -> Fraction:
            return flops / (G * R) / DAY

        # The rate that the device-hours imply for all operations, attention's own among them.
        sustained = Fraction(formulas.implied_rate(run_flops, W))
        parts = {
            "the exact count of parameters": (
                lasts(Fraction(rule)) - claimed,
                lasts(Fraction(6 * (N - text["parameters"]) * D)),
            ),
            "embedding and norms, which multiply nothing": (
                lasts(Fraction(weights, T) * D - rule),
                -lasts(Fraction(6 * (N - _multiplied(spec)) * D)),
            ),
            f"attention's own products at {T:,} tokens": (
                lasts(run_flops) - lasts(Fraction(weights, T) * D),
                lasts(attention),
            ),
            "the rest: a rate other than assumed, restarts, other work": (
                real - lasts(run_flops),
                real * (1 - sustained / R),
            ),
        }
        rows += [
            case("A9.3", f"{name}: {part}", "exact", "days more than the text's", value, "==", again, scope="corrected",
                 bound_source="the term computed apart", unit="day")
            for part, (value, again) in parts.items()
        ]  # fmt: skip
        total = sum((again for _, again in parts.values()), Fraction(0))
        rows.append(
            case("A9.3", f"{name}, all terms", "exact", "days more than the text's", total, "==", real - claimed,
                 scope="corrected", bound_source="the device-hours", unit="day")
        )  # fmt: skip
    return rows


def _run(model: Any, fixed: Any, batch: int, tokens: int) -> tuple[Any, Any, int]:
    """FLOPs by module, forward and forward with backward, and the latter's total; `fixed` parameters do not learn."""
    from torch.utils.flop_counter import FlopCounterMode

    from transformer_ledger.executed import count

    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not fixed(name))
        parameter.grad = None
    with count.own_inputs(), FlopCounterMode(display=False) as counter:
        logits = model(count.token_ids(batch, tokens))
        forward = count.by_module(counter, model)
        logits.sum().backward()
        return forward, count.by_module(counter, model), counter.get_total_flops()


def _passes(model: Any, fixed: Any, batch: int, tokens: int) -> dict[str, tuple[int, int, int]]:
    """FLOPs by module: forward, weights' gradient, inputs' gradient; the parameters that `fixed` names do not learn.

    The inputs' gradient is what a backward pass runs when no multiplied weight asks for one; the weights' is the rest.
    Raises CountError where operations were booked to no module, or twice.
    """
    from transformer_ledger.executed import count

    multiplied = {f"{path}.weight" for path, _ in _maps(model)}
    forward, both, total = _run(model, fixed, batch, tokens)
    _, without, least = _run(model, lambda name: fixed(name) or name in multiplied, batch, tokens)
    for booked, counted in ((both, total), (without, least)):
        if sum(booked.values()) != counted:
            raise count.CountError(f"modules sum to {sum(booked.values())} of {counted} FLOPs")
    return {path: (forward[path], both[path] - without[path], without[path] - forward[path]) for path in forward}


def _maps(model: Any) -> list[tuple[str, Any]]:
    """The modules that multiply their input by weights: linear maps and experts."""
    from torch import nn

    from transformer_ledger.executed.decoder import Experts

    return [(path, module) for path, module in model.named_modules() if isinstance(module, (nn.Linear, Experts))]


def _used(spec: ModelSpec, path: str, module: Any) -> int:
    """Weights of the map at `path` that one token is multiplied by."""
    weight = module.weight
    if weight.dim() < 3:
        return int(weight.numel())
    layer = spec.each_layer()[int(path.split(".")[1])]
    return int(weight[0].numel()) * layer.feedforward.experts_per_token


PASSES = ("forward", "weights' gradient", "inputs' gradient")


def _dense(keys: Mapping[str, Any], batch: int, tokens: int) -> list[Row]:
    """A9.4, module by module."""
    from transformer_ledger.executed import count
    from transformer_ledger.executed.decoder import Product

    spec = from_architecture("dense", dict(keys))
    model = count.full_depth(spec)
    used = {path: _used(spec, path, module) * batch * tokens for path, module in _maps(model)}
    found = _passes(model, lambda name: False, batch, tokens)
    unit = "FLOP per weight and token"
    source = "the text"
    rows = [
        case(
            "A9.4",
            path,
            "exact",
            PASSES[i],
            Fraction(found[path][i], used[path]),
            "==",
            2,
            bound_source=source,
            unit=unit,
        )
        for path in used
        for i in range(3)
    ]
    every = sum(used.values())
    forward, *backward = (sum(found[path][i] for path in used) for i in range(3))
    rows += [
        case("A9.4", f"all {len(used)} maps", "exact", "forward", Fraction(forward, every), "==", 2,
             bound_source=source, unit=unit, printed="2", headline=True),
        case("A9.4", f"all {len(used)} maps", "exact", "backward", Fraction(sum(backward), every), "==", 4,
             bound_source=source, unit=unit, printed="4", headline=True),
    ]  # fmt: skip
    # Exceptions: what 6·N·D leaves out, what it counts too much.
    products = [path for path, module in model.named_modules() if isinstance(module, Product)]
    width = spec.layers[0][1].attention.heads * spec.layers[0][1].attention.head_dim
    own = spec.depth * attention_scores_and_values(batch, tokens, width)
    rows += [
        case("A9.4", "attention's own products, which no weight takes part in", "exact", "forward",
             sum(found[path][0] for path in products), "==", own, scope="corrected",
             bound_source="4·B·T²·d a layer", unit="FLOP"),
        case("A9.4", "attention's own products, which no weight takes part in", "exact", "backward",
             sum(sum(found[path][1:]) for path in products), "==", 2 * own, scope="corrected",
             bound_source="8·B·T²·d a layer", unit="FLOP"),
        case("A9.4", "embedding and norms", "exact", "forward and backward",
             sum(sum(flops) for path, flops in found.items() if path not in used and path not in products), "==", 0,
             scope="corrected", bound_source="a lookup and a rescaling multiply no matrix", unit="FLOP"),
    ]  # fmt: skip
    # The first maps read the embedding: where neither it nor the norm before them learns, no gradient is asked for.
    early = ("token_embedding.", "position_embedding.", "embedding_norm.", "layers.0.norm.0.")
    full, least = (
        _run(model, fixed, batch, tokens)[2] for fixed in (lambda name: False, lambda name: name.startswith(early))
    )
    first = [f"layers.0.attention.{part}" for part in ("query", "key", "value")]
    rows.append(
        case("A9.4", "first layer's query, key and value, embedding and first norm held fixed", "exact",
             "backward FLOPs fewer: the inputs' gradient", full - least, "==", 2 * sum(used[path] for path in first),
             scope="corrected", bound_source="2 a weight and token", unit="FLOP")
    )  # fmt: skip
    # Control: without the weights' gradients the backward pass is 2, not 4.
    frozen = _passes(model, lambda name: name in {f"{path}.weight" for path in used}, batch, tokens)
    changed = [path for path in used if sum(frozen[path][1:]) != 4 * used[path]]
    kept = Fraction(sum(sum(frozen[path][1:]) for path in used), every)
    rows += [
        case("A9.4", "weights held fixed", "control", "maps whose backward is not 4", len(changed), ">=", len(used)),
        case("A9.4", "weights held fixed", "exact", "backward", kept, "==", 2, scope="corrected",
             bound_source="inputs' gradient alone", unit=unit),
    ]  # fmt: skip
    return rows


def _mixture(keys: Mapping[str, Any], batch: int, tokens: int) -> list[Row]:
    """A9.5, part by part of an executed mixture of experts."""
    from transformer_ledger.executed import count

    spec = from_architecture("mixture", dict(keys))
    model = count.full_depth(spec)
    maps = dict(_maps(model))
    used = {path: _used(spec, path, module) for path, module in maps.items()}
    found = _passes(model, lambda name: False, batch, tokens)
    flops: dict[str, int] = {}
    active: dict[str, int] = {}
    for path in used:
        part = count.component_of(path).split(".")[0]
        flops[part] = flops.get(part, 0) + sum(found[path])
        active[part] = active.get(part, 0) + used[path]
    D = batch * tokens
    counted = sum(flops.values())
    # N: the active weights that multiply, by the ledger; the other active parameters are lookups, gains and biases.
    multiplying = {count.component_of(path) for path in used}
    ours = [tensor for tensor in tensors(spec) if tensor.component in multiplying and not tensor.bias]
    N = sum(tensor.active_parameters for tensor in ours)
    held = sum(tensor.parameters for tensor in ours)
    experts = spec.layers[0][1].feedforward
    name = f"{experts.experts} experts, {experts.experts_per_token} a token"
    return [
        case("A9.5", f"{name}, all maps", "exact", "forward and backward, per active weight and token",
             Fraction(counted, N * D), "==", 6, bound_source="the text", unit="FLOP", headline=True),
        *(
            case("A9.5", f"{name}: {part}", "exact", "forward and backward", flops[part], "==",
                 formulas.rule_flops(active[part], D), bound_source="6·N·D", unit="FLOP")
            for part in sorted(flops)
        ),
        case("A9.5", f"{name}, N = all parameters", "control", "6·N·D above the count",
             formulas.rule_flops(held, D) - counted, ">=", 1, unit="FLOP"),
    ]  # fmt: skip


def _executed(spec: ModelSpec, rows: Rows) -> list[Row]:
    """A9.5 at full size: training FLOPs of an executed model, workload by workload, attention's own products apart."""
    found = counts(rows)
    made = []
    attention = ("attention.scores", "attention.values")
    trained: dict[str, dict[str, int]] = {}
    for (quantity, workload, phase, component, _), value in found.items():
        if quantity == "flops" and phase == "train" and component != "total":
            trained.setdefault(workload, {})[component] = value
    parts = {key[3]: value for key, value in found.items() if key[0] == "active_parameters" and key[4] == "weight"}
    for workload, by_component in sorted(trained.items()):
        tokens = _tokens(spec, by_component)
        maps = {component: flops for component, flops in by_component.items() if component not in attention and flops}
        # A tied head multiplies by the embedding's table.
        N = sum(parts["token_embedding" if c == "head" and spec.tied_head else c] for c in maps)
        made.append(
            case("A9.5", f"{spec.name}, {workload}: {tokens:,} tokens", "exact", "forward and backward of all maps",
                 sum(maps.values()), "==", formulas.rule_flops(N, tokens), bound_source="6·N·D, N the active weights",
                 unit="FLOP")
        )  # fmt: skip
        every = sum(value for key, value in found.items() if key[0] == "active_parameters" and key[3] != "total")
        made.append(
            case("A9.5", f"{spec.name}, {workload}: lookups, gains and biases counted in N", "exact",
                 "6·N·D over the count", Fraction(formulas.rule_flops(every, tokens), sum(maps.values())), ">=", 1,
                 scope="corrected", bound_source="these parameters multiply no matrix")
        )  # fmt: skip
    return made


def _tokens(spec: ModelSpec, by_component: Mapping[str, int]) -> int:
    """Tokens of a workload, from the head's FLOPs: 6·V·d each."""
    return by_component["head"] // formulas.rule_flops(spec.vocabulary * (spec.embedding_width or spec.d_model), 1)


def compute(
    text: Mapping[str, Any],
    sliders: Mapping[str, int],
    published_days: tuple[float, float],
    runs: Mapping[str, Any],
    text_run: str,
    device_peak: float,
    models: Mapping[str, Any],
    counted: Mapping[str, int],
    dense: Mapping[str, Any],
    mixture: Mapping[str, Any],
    execution: Mapping[str, Rows],
) -> list[Row]:
    """Rows of the verification.

    `text`: parameters, tokens, devices, flops_per_second_per_device; `sliders`: layers, d_model, vocabulary;
    `published_days`: the days that count as the text's "about 11"; `counted`: batch and tokens of the counted runs of
    `dense` and `mixture` (architecture keys).
    """
    rows = _arithmetic(text, sliders) + _published(text, runs, text_run, published_days, device_peak)
    rows += _dense(dense, counted["batch"], counted["tokens"]) + _mixture(mixture, counted["batch"], counted["tokens"])
    for name, data in models.items():
        rows += _executed(ModelSpec.from_json(data), execution[name])
    return rows
