"""results/formulas.json: the formulas as MathML and LaTeX, with their numbers for one model, and the calculator's functions.

SymPy works here; the page takes what it made, as text.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from transformer_ledger import symbolic
from transformer_ledger.formulas import activations as activations_formulas
from transformer_ledger.formulas import architecture, training_compute, training_state
from transformer_ledger.formulas import conventions as conventions_formulas
from transformer_ledger.formulas import kv_cache as kv_cache_formulas
from transformer_ledger.formulas import matmul as matmul_formulas
from transformer_ledger.formulas import parameters as parameters_formulas
from transformer_ledger.ledger import activations, kv_cache, matmul, parameters
from transformer_ledger.ledger.storage import bytes_per_number
from transformer_ledger.ledger.training_state import STEP_DTYPE
from transformer_ledger.model import ModelSpec
from transformer_ledger.notation import SYMBOLS
from transformer_ledger.report import calculator, numbers, whatif

Formula = Callable[..., Any]
FORMULA_MODULES = (
    parameters_formulas,
    training_state,
    kv_cache_formulas,
    matmul_formulas,
    training_compute,
    activations_formulas,
    architecture,
    conventions_formulas,
)


def example_numbers(
    specs: Mapping[str, ModelSpec], training_runs: Mapping[str, Any], wanted: str | None
) -> tuple[str, dict[str, Any]]:
    """(model, value of every symbol that it and its first training run give), for the numbers beside the formulas."""
    name = wanted if wanted is not None and wanted in specs else next(iter(specs))
    spec = specs[name]
    every, _ = parameters.totals(spec)
    T = min(spec.context, 4096)
    values: dict[str, Any] = {
        **calculator.sizes(spec),
        "B": 1,
        "T": T,
        "S": T,
        "b": 2,
        "N": every,
        "n": parameters.tensor_count(spec),
    }
    if "d_h" in values:
        values |= {"d_v": values["d_h"], "g": values["h"] // values["h_kv"]}
    run: Mapping[str, Any] = next((run for run in training_runs.values() if run.get("model") == name), {})
    keys = {"D": "tokens", "G": "devices", "R": "flops_per_second_per_device", "W": "published_device_hours"}
    values |= {symbol: run[key] for symbol, key in keys.items() if run.get(key)}
    return name, values


def _whole(value: Any) -> Any:
    """Of a quotient an integer where it is one, else a float; an integer as it is."""
    if not isinstance(value, float | Fraction):
        return value
    return int(value) if value % 1 == 0 else float(value)


def _called(spec: ModelSpec, B: int, T: int) -> set[Formula]:
    """Formulas by which the ledgers count a model's tensors, products, cache and own activations."""
    called: set[Formula] = {tensor.formula for tensor in parameters.tensors(spec)}
    for phase, counted in matmul.CONVENTIONS.items():
        for convention in counted:
            called |= {product.formula for product in matmul.products(spec, B, T, T, phase, convention)}
    for _, kind in spec.kinds():
        called |= {kv_cache.layer(kind.attention, policy)[0] for policy in kv_cache.POLICIES}
    for fused in (False, True):
        run = activations.Run(B, T, 2, fused, checkpointed=False)
        for *_, saved in activations.scopes(spec, run):
            called |= {part.formula for part in saved}
    return called


def _fitting(spec: ModelSpec) -> set[Formula]:
    """The texts' closed forms that describe the model."""
    kind = calculator.main_layer(spec)
    a, ff = kind.attention, kind.feedforward
    full_width = a.latent is None and a.heads * a.head_dim == spec.d_model
    plain, gated = (ff.kind == name and not ff.experts for name in ("gelu", "gated"))
    found = {
        architecture.attention_parameters: full_width and a.kv_heads == a.heads,
        architecture.grouped_attention_parameters: full_width,
        architecture.attention_projections: full_width and a.kv_heads == a.heads,
        architecture.attention_scores_and_values: full_width and a.window is None,
        architecture.plain_feedforward: plain,
        architecture.plain_feedforward_parameters: plain,
        architecture.plain_feedforward_biases: plain and ff.bias,
        architecture.equal_budget_width: plain,
        architecture.gated_feedforward: gated,
        architecture.gated_feedforward_parameters: gated,
        architecture.gated_feedforward_biases: gated and ff.bias,
        architecture.attention_probabilities: True,
        architecture.head: not spec.embedding_width,
        architecture.teaching_parameters: spec.positions == "learned"
        and parameters.totals(spec)[0]
        == architecture.teaching_parameters(spec.vocabulary, spec.d_model, spec.position_rows, spec.depth, ff.width),
    }
    return {formula for formula, fits in found.items() if fits}


def example_arguments(spec: ModelSpec, values: Mapping[str, Any]) -> dict[Formula, dict[str, Any]]:
    """What to put into each formula that says something about the model: nothing of what the model does not have.

    Sizes are those of the most frequent kind of layer, so that kind alone decides which formulas apply.
    """
    B, T, D = values["B"], values["T"], values.get("D")
    rule = {"F": training_compute.rule_flops(parameters.totals(spec)[1], D) if D else None}
    forward = {"F": matmul.total(spec, B, T, "prefill")}
    special: dict[Formula, dict[str, Any]] = {
        training_state.per_parameter: {},
        training_state.per_tensor: {"b": bytes_per_number(STEP_DTYPE)},
        training_state.sharded: {},
        training_state.adamw_fp32: {},
        kv_cache_formulas.multi_head: {},
        kv_cache_formulas.ratio_to_multi_head: {},
        matmul_formulas.causal_pairs: {},
        matmul_formulas.windowed_pairs: {},
        matmul_formulas.training: forward,
        matmul_formulas.multiply_adds: forward,
        training_compute.rule_parameters: {},
        training_compute.rule_flops: {},
        training_compute.exact_flops: {"F": matmul.total(spec, 1, T, "train")},
        conventions_formulas.standard_parameters: {},
        conventions_formulas.rule_forward: {"N": parameters.totals(spec)[1]},
        conventions_formulas.kaplan_attention: {},
        conventions_formulas.palm_attention: {},
        conventions_formulas.half_scores: {},
        conventions_formulas.softmax: {},
        training_compute.seconds: rule,
        training_compute.implied_rate: rule,
    }
    main = dataclasses.replace(spec, layers=((1, calculator.main_layer(spec)),))
    applying = _called(main, B, T) | _fitting(spec) | special.keys()
    return {formula: {**values, **special.get(formula, {})} for formula in applying}


def shown(examples: Mapping[Formula, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By module the formulas that give a number for their example: typeset, with unit, meaning and source."""
    out = []
    for module in FORMULA_MODULES:
        name = module.__name__.rsplit(".", 1)[1]
        own = [function for function in examples if function.__module__ == module.__name__]
        ordered = [function for function in vars(module).values() if function in own]
        entries = [entry for entry in (_formula(name, function, examples[function]) for function in ordered) if entry]
        lead, _, source = (inspect.getdoc(module) or "").partition("\n\n")
        lead = re.sub(r" Unit everywhere: \[[^\]]*\]\.", "", lead)
        if entries:
            out.append({"module": name, "lead": lead, "source": source.replace("\n", " "), "entries": entries})
    return out


def _formula(module: str, function: Formula, given: Mapping[str, Any]) -> dict[str, Any] | None:
    """A formula with its number; None where it gives none."""
    asked = list(inspect.signature(function).parameters)
    if any(given.get(symbol) is None for symbol in asked):
        return None
    try:
        value = _whole(function(**{symbol: given[symbol] for symbol in asked}))
    except ArithmeticError:  # a quotient that is no integer for this model
        return None
    document = inspect.getdoc(function) or ""
    unit = re.search(r"\[([^\]]*)\]\s*$", document)
    name = function.__name__
    try:
        typeset = symbolic.mathml(symbolic.as_written(function))
        tex = symbolic.latex(symbolic.as_written(function))
    except NotImplementedError:
        typeset, tex = f"<code>{name}</code>", ""
    return {
        "id": numbers.anchor("formula", module, name),
        "name": name,
        "mathml": typeset,
        "latex": tex,
        "unit": unit[1] if unit else "",
        "meaning": document[: unit.start()].strip() if unit else document,
        "value": value,
    }


def whole(models: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sum of a model's tensors as one formula, with the models that share it and what it gives for each."""
    shared: dict[str, dict[str, Any]] = {}
    for name, spec in calculator.specs(calculator.variable(models)).items():
        symbols = {size: symbolic.symbol(size) for size in calculator.sizes(spec)}
        every, _ = parameters.totals(whatif.vary(spec, symbols))
        typeset = symbolic.mathml(symbolic.arranged(every, "L"))
        entry = shared.setdefault(typeset, {"mathml": typeset, "models": []})
        entry["models"].append((name, parameters.totals(spec)[0]))
    return list(shared.values())


def compute(
    models: Mapping[str, Any], recipes: Mapping[str, Any], training_runs: Mapping[str, Any], model: str | None
) -> str:
    """The JSON text; the formulas' numbers are those of `model`, or of the first one whose sizes can be changed.

    `script` is the calculator's JavaScript, `symbols` the notation as MathML, `whole` each model's parameters as one
    formula, `modules` the formulas that say something about the example, `example` its name and its symbols' values.
    """
    specs = calculator.specs(calculator.variable(models))
    found: dict[str, Any] = {
        "script": whatif.script(calculator.every_model(models), recipes),
        "symbols": {name: f"<math>{symbolic.identifier(name)}</math>" for name in SYMBOLS},
        "whole": whole(models),
        "modules": [],
        "example": None,
    }
    if specs:
        name, values = example_numbers(specs, training_runs, model)
        found |= {"example": [name, values], "modules": shown(example_arguments(specs[name], values))}
    return json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
