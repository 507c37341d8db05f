"""The page: every table, picture, formula and claim in one self-contained HTML file.

It reads its input tables and settings alone: no clock, no path, no network. Whatever comes from them is escaped.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from transformer_ledger import symbolic
from transformer_ledger.claims import text_a, text_b
from transformer_ledger.claims.claim import VERDICTS
from transformer_ledger.claims.table import plural
from transformer_ledger.formulas import activations as activations_formulas
from transformer_ledger.formulas import architecture, training_compute, training_state
from transformer_ledger.formulas import conventions as conventions_formulas
from transformer_ledger.formulas import kv_cache as kv_cache_formulas
from transformer_ledger.formulas import matmul as matmul_formulas
from transformer_ledger.formulas import parameters as parameters_formulas
from transformer_ledger.huggingface import TEXT_PART
from transformer_ledger.ledger import activations, conventions, kv_cache, matmul, parameters
from transformer_ledger.ledger.storage import bytes_per_number
from transformer_ledger.ledger.training_state import STEP_DTYPE
from transformer_ledger.model import ModelSpec
from transformer_ledger.notation import SYMBOLS
from transformer_ledger.report import claimfigures, figures, numbers, studies, whatif
from transformer_ledger.report.data import columns_of, encoded
from transformer_ledger.report.parts import group
from transformer_ledger.shrunken import COPY
from transformer_ledger.summary import surprises
from transformer_ledger.tables import by

Row = Mapping[str, Any]
Rows = Sequence[Row]
Tables = Mapping[str, Rows]
Formula = Callable[..., Any]

TITLES = {"A": text_a.TITLE, "B": text_b.TITLE}
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
MODULE_TITLES = {
    "parameters": "Parameters of one tensor",
    "training_state": "Training state",
    "kv_cache": "Key/value cache of one layer",
    "matmul": "Matrix products of one layer",
    "training_compute": "A whole training run",
    "activations": "Activations kept for the backward pass",
    "architecture": "The texts’ closed forms",
    "conventions": "Other conventions",
}
SCRIPTS = (
    "elements",
    "appearance",
    "tables",
    "navigation",
    "draw",
    "amounts",
    "quantities",
    "configfile",
    "controls",
    "results",
    "calculator",
    "plays",
    "start",
)
"""Modules of the page's script: `elements` comes first, for all use it, and `start` last."""
MARKS = {
    "confirmed": "✓",
    "conditional": "◐",
    "refuted": "✗",
    "not reproducible": "≈",
    "not settled": "○",
    "not applicable": "–",
}
MEANINGS = {
    "confirmed": "holds as stated",
    "conditional": "holds under a condition that the text omits",
    "refuted": "does not hold; the right value is given",
    "not reproducible": "the property holds, the printed digits depend on an unpublished start",
    "not settled": "not measured, or a control did not break it",
    "not applicable": "the settings were edited away from the printed ones",
}
CONVENTION_CAPTIONS = {
    "parameters": "Parameters by convention, × ours beside",
    "active parameters": "Active parameters of a mixture by convention, × ours beside",
    "weights": "Weights in bf16 by convention, × ours beside",
    "KV cache": "KV cache in bf16 by convention, bytes for each token of the length, × ours beside",
    "forward pass": "FLOPs of a forward pass by convention",
    "decoded token": "FLOPs of the last token of the length, decoded, by convention",
    "training step": "FLOPs of a training step, forward and backward, by convention",
}


def specs(models: Mapping[str, Any]) -> dict[str, ModelSpec]:
    """The models' descriptions by name."""
    return {name: ModelSpec.from_json(model["spec"]) for name, model in models.items()}


def parameters_summary(rows: Rows, models: Mapping[str, ModelSpec]) -> list[dict[str, Any]]:
    """One row a model: totals, parts and the rule 12Ld² + Vd against the exact count."""
    out = []
    for model, own in by(rows, "model").items():
        total = sum(row["parameters"] for row in own)
        parts: Counter[str] = Counter()
        for row in own:
            parts[group(row["component"])] += row["parameters"]
        spec = models.get(model)
        rule = training_compute.rule_parameters(spec.depth, spec.d_model, spec.vocabulary) if spec else None
        counted = [row for row in own if row["executed"] is not None]
        out.append(
            {
                "model": model,
                "parameters": total,
                "active": sum(row["active_parameters"] for row in own),
                "parts": dict(parts),
                "rule": rule,
                "missed": None if rule is None else total - rule,
                "error": None if rule is None or not total else (total - rule) / total,
                "compared": len(counted),
                "differ": sum(row["difference"] != 0 for row in counted),
            }
        )
    return out


def state_summary(rows: Rows) -> dict[str, Any]:
    """Recipes with their items, and bytes that each model keeps on one device (the fullest) under each recipe.

    Bytes for one parameter stand as (least, most) of all models; `together` leaves the step counters out.
    """
    recipes: dict[str, dict[str, tuple[str, tuple[float, float]]]] = {}
    for (recipe, item), own in by(rows, "recipe", "item").items():
        recipes.setdefault(recipe, {})[item] = own[0]["dtype"], _range(row["bytes_per_parameter"] for row in own)
    together: dict[str, Counter[str]] = {}
    for row in rows:
        if row["item"] != "step":
            together.setdefault(row["recipe"], Counter())[row["model"]] += row["bytes_per_parameter"]
    sums: dict[str, Counter[str]] = {}
    for row in rows:
        sums.setdefault(row["model"], Counter())[row["recipe"]] += row["bytes_per_device"]
    items = list(dict.fromkeys(item for held in recipes.values() for item in held))
    devices = {row["recipe"]: row["devices"] for row in rows}
    return {
        "recipes": recipes,
        "items": items,
        "together": {recipe: _range(models.values()) for recipe, models in together.items()},
        "models": sums,
        "devices": devices,
    }


def _range(values: Iterable[float]) -> tuple[float, float]:
    found = list(values)
    return min(found), max(found)


def cache_summary(rows: Rows) -> dict[str, Any]:
    """One row a model: bytes at each workload, in the first cache dtype, what attention needs.

    What the newest token adds, and the ratio, depend on the context where there are windows: they are at the smallest.
    """
    dtype = rows[0]["dtype"] if rows else ""
    needed = [row for row in rows if row["dtype"] == dtype and row["policy"] == "needed"]
    loads = {
        row["workload"]: (row["batch"], row["context"])
        for row in sorted(needed, key=lambda r: (r["batch"], r["context"]))
    }
    context = min((T for _, T in loads.values()), default=None)
    models = {
        model: {
            "kv_heads": own[0]["kv_heads"],
            "head_dim": own[0]["head_dim"],
            **next(
                (
                    {"ratio": row["ratio_to_mha"], "bytes_per_token": row["bytes_per_token"]}
                    for row in own
                    if row["context"] == context
                ),
                {"ratio": None, "bytes_per_token": None},
            ),
            "at": {row["workload"]: row["bytes"] for row in own},
        }
        for model, own in by(needed, "model").items()
    }
    return {"dtype": dtype, "workloads": loads, "context": context, "models": models}


def matmul_summary(rows: Rows) -> list[dict[str, Any]]:
    """One row a model and workload: totals of the phases, and attention's own share of the prefill."""
    out = []
    for (model, workload), own in by(rows, "model", "workload").items():

        def total(phase: str, convention: str = "full", parts: Iterable[str] = (), own: Rows = own) -> int | None:
            chosen = [
                row["flops"]
                for row in own
                if row["phase"] == phase
                and row["convention"] == convention
                and (not parts or row["component"] in parts)
            ]
            return sum(chosen) if chosen else None

        prefill, inner = total("prefill"), total("prefill", parts=("attention.scores", "attention.values"))
        out.append(
            {
                "model": model,
                "workload": workload,
                "batch": own[0]["batch"],
                "context": own[0]["context"],
                "prefill": prefill,
                "causal": total("prefill", "causal-exact"),
                "decode": total("decode"),
                "train": total("train"),
                "share": inner / prefill if prefill and inner is not None else None,
            }
        )
    return out


def agreement_summary(rows: Rows) -> list[dict[str, Any]]:
    """One row an implementation and quantity: totals compared, models, and how many differ."""
    return [
        {
            "implementation": implementation,
            "quantity": quantity,
            "models": len({row["model"] for row in own}),
            "compared": len(own),
            "differ": sum(row["difference"] != 0 for row in own),
        }
        for (implementation, quantity), own in by(rows, "implementation", "quantity").items()
    ]


def activations_summary(rows: Rows) -> list[dict[str, Any]]:
    """One row a model at its longest workload: totals by method and checkpointing, and what was measured of its copy."""
    out = []
    for model, own in by(rows, "model").items():
        counted = [row for row in own if row["difference"] is not None]
        loads = [row for row in own if row["workload"] != COPY and row["implementation"] == "ours"]
        if not loads:
            continue
        longest = max(loads, key=lambda row: (row["context"], -row["batch"]))
        at = [row for row in loads if row["workload"] == longest["workload"] and row["dtype"] == longest["dtype"]]
        totals = {(row["method"], row["checkpointed"]): row["bytes"] for row in at if row["scope"] == "total"}
        out.append(
            {
                "model": model,
                "batch": longest["batch"],
                "context": longest["context"],
                "dtype": longest["dtype"],
                "totals": [totals.get((method, kept)) for method in ("eager", "fused") for kept in (False, True)],
                "logits": next((row["bytes"] for row in at if row["scope"] == "logits"), None),
                "compared": len(counted),
                "differ": sum(row["difference"] != 0 for row in counted),
            }
        )
    return out


def fit_summary(rows: Rows) -> dict[str, Any]:
    """What fits, by model: context and batch on every device, and the devices that train it, on the smallest one.

    Of types and policies the first are shown, and the batch at the model's longest workload.
    """
    if not rows:
        return {}
    run = [row for row in rows if row["recipe"] is None and row["policy"] == "needed"]
    types = [(row["dtype"], row["cache_dtype"]) for row in run[:1]]
    run = [row for row in run if (row["dtype"], row["cache_dtype"]) in types]
    trained = [row for row in rows if row["recipe"] is not None]
    sizes = {row["device"]: (row["memory_bytes"], row["available_bytes"]) for row in rows}
    devices = dict(sorted(sizes.items(), key=lambda pair: pair[1]))
    smallest = next(iter(devices))
    cells: dict[str, dict[str, dict[str, Row]]] = {}
    for (model, device, question), own in by(run, "model", "device", "question").items():
        chosen = max(own, key=lambda row: (row["context"] or 0, row["workload"] or ""))
        cells.setdefault(model, {}).setdefault(device, {})[question] = chosen
    training: dict[str, dict[str, Row]] = {}
    for row in trained:
        if row["device"] == smallest:
            training.setdefault(row["model"], {})[row["recipe"]] = row
    return {
        "types": types[0] if types else None,
        "devices": devices,
        "models": cells,
        "smallest": smallest,
        "recipes": {row["recipe"]: row["zero_stage"] for row in trained},
        "training": training,
    }


def conventions_summary(rows: Rows) -> list[dict[str, Any]]:
    """One entry a quantity: what each convention gives for each model, at the model's longest workload.

    Of a cache the cells hold the bytes for one token of that length, as calculators print them; of FLOPs, beside our
    own, the ratio alone.
    """
    out = []
    for quantity, own in by(rows, "quantity").items():
        names = {row["convention"] for row in own}
        shown: dict[str, dict[str, Any]] = {}
        for model, every in by(own, "model").items():
            longest = max(every, key=lambda row: (row["context"] or 0, -(row["batch"] or 0)))
            B, T = longest["batch"], longest["context"]
            tokens = B * T if quantity == "KV cache" else 1
            cells = {
                row["convention"]: (_quotient(row["value"], tokens), row["ratio_to_ours"])
                for row in every
                if row["workload"] == longest["workload"]
            }
            shown[model] = {"batch": B, "context": T, "cells": cells}
        out.append(
            {
                "quantity": quantity,
                "caption": CONVENTION_CAPTIONS[quantity],
                "ratios": own[0]["unit"] == "FLOP",
                "columns": [c for c in conventions.CONVENTIONS if c.quantity == quantity and c.name in names],
                "sized": quantity not in conventions.UNSIZED,
                "models": shown,
            }
        )
    return out


def _quotient(value: int, tokens: int) -> int | float:
    return value / tokens if value % tokens else value // tokens


def models_summary(models: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a model: its architecture and what it costs, from the ledgers' functions."""
    out = []
    for name, spec in specs(models).items():
        kinds = spec.kinds()
        main = max(kinds, key=lambda pair: pair[0])[1]
        attention, feedforward = main.attention, main.feedforward
        every, active = parameters.totals(spec)
        T = min(spec.context, 4096)
        forward = matmul.total(spec, 1, T, "prefill")
        out.append(
            {
                "model": name,
                "label": models[name].get("label") or name,
                "notes": (notes := _notes(models[name].get("notes"))),
                "text_part": any(TEXT_PART in note for note in notes),
                "layers": spec.depth,
                "kinds": len(kinds),
                "d": spec.d_model,
                "h": attention.heads,
                "h_kv": attention.kv_heads,
                "d_h": attention.head_dim,
                "latent": attention.latent.kv_rank + attention.latent.rope_dim if attention.latent else None,
                "window": attention.window,
                "f": feedforward.width,
                "experts": f"{feedforward.experts_per_token} of {feedforward.experts}" if feedforward.experts else None,
                "feedforward": feedforward.kind,
                "norm": {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}.get(spec.norm, spec.norm),
                "positions": {"rope": "RoPE"}.get(spec.positions, spec.positions),
                "vocabulary": spec.vocabulary,
                "context": spec.context,
                "tied": spec.tied_head,
                "parameters": every,
                "active": active,
                "cache": kv_cache.cache_bytes(spec, 1, T, "bf16", "needed"),
                "forward": forward,
                "per_token": forward / T,
                "length": T,
            }
        )
    return out


def whole_formulas(models: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The sum of a model's tensors as one formula, with the models that share it and what it gives for each."""
    shared: dict[str, dict[str, Any]] = {}
    for name, spec in specs(models).items():
        symbols = {size: symbolic.symbol(size) for size in whatif.sizes(spec)}
        every, _ = parameters.totals(whatif.vary(spec, symbols))
        typeset = symbolic.mathml(symbolic.arranged(every, "L"))
        entry = shared.setdefault(typeset, {"mathml": Markup(typeset), "models": []})
        entry["models"].append((models[name].get("label") or name, parameters.totals(spec)[0]))
    return list(shared.values())


def _notes(notes: Any) -> list[str]:
    return [] if not notes else [notes] if isinstance(notes, str) else [str(note) for note in notes]


def example_numbers(
    models: Mapping[str, Any], training_runs: Mapping[str, Any], wanted: str | None
) -> tuple[str, dict[str, Any]]:
    """(model, value of every symbol that it and its first training run give), for the numbers beside the formulas."""
    if not models:
        return "", {}
    name = wanted if wanted is not None and wanted in models else next(iter(models))
    spec = specs(models)[name]
    every, _ = parameters.totals(spec)
    T = min(spec.context, 4096)
    values: dict[str, Any] = {
        **whatif.sizes(spec),
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
    return int(value) if isinstance(value, float) and value.is_integer() else value


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
    kind = whatif.main_layer(spec)
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
    main = dataclasses.replace(spec, layers=((1, whatif.main_layer(spec)),))
    applying = _called(main, B, T) | _fitting(spec) | special.keys()
    return {formula: {**values, **special.get(formula, {})} for formula in applying}


def formulas_shown(examples: Mapping[Formula, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every formula by module: typeset, with its unit, meaning, source and the number it gives for its example."""
    out = []
    for module in FORMULA_MODULES:
        name = module.__name__.rsplit(".", 1)[1]
        entries = []
        for function_name, function in vars(module).items():
            if not hasattr(function, "__wrapped__") or function.__module__ != module.__name__:
                continue
            entries.append(_formula(name, function_name, function, examples.get(function, {})))
        text = inspect.getdoc(module) or ""
        lead, _, source = text.partition("\n\n")
        lead = re.sub(r" Unit everywhere: \[[^\]]*\]\.", "", lead)
        title = MODULE_TITLES.get(name, name)
        out.append(
            {"module": name, "title": title, "lead": lead, "source": source.replace("\n", " "), "entries": entries}
        )
    return out


def _formula(module: str, name: str, function: Formula, given: Mapping[str, Any]) -> dict[str, Any]:
    document = inspect.getdoc(function) or ""
    unit = re.search(r"\[([^\]]*)\]\s*$", document)
    asked = list(inspect.signature(function).parameters)
    value = None
    if all(given.get(symbol) is not None for symbol in asked):
        try:
            value = _whole(function(**{symbol: given[symbol] for symbol in asked}))
        except ArithmeticError:  # a quotient that is no integer for this model
            value = None
    try:
        typeset = Markup(symbolic.mathml(symbolic.as_written(function)))
        tex = symbolic.latex(symbolic.as_written(function))
    except NotImplementedError:
        typeset, tex = Markup("<code>{}</code>").format(name), ""
    return {
        "id": numbers.anchor("formula", module, name),
        "name": name,
        "mathml": typeset,
        "latex": tex,
        "unit": unit[1] if unit else "",
        "meaning": document[: unit.start()].strip() if unit else document,
        "arguments": asked,
        "value": value,
    }


def claims_shown(claims: Rows) -> list[dict[str, Any]]:
    """The claims by text and by section of the text."""
    out = []
    for source, own in by(claims, "source").items():
        sections = [
            {"section": section, "id": numbers.anchor("section", source, section), "claims": rows}
            for section, rows in by(own, "section").items()
        ]
        out.append({"source": source, "title": TITLES.get(source, source), "sections": sections, "claims": own})
    return out


def cases_data(verification: Tables, limit: int) -> dict[str, dict[str, Any]]:
    """For each claim its measured cases as an encoded table; of more than `limit`, the decisive and an even sample."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    for rows in verification.values():
        for row in rows:
            grouped.setdefault(row["claim"], []).append(_case(row))
    out = {}
    for claim, rows in grouped.items():
        kept = rows
        if len(rows) > limit:
            decisive = [
                i for i, row in enumerate(rows) if row["leg"] == "control" or row["headline"] or not row["holds"]
            ]
            rest = [i for i in range(len(rows)) if i not in set(decisive)]
            room = max(0, limit - len(decisive))
            sample = {rest[i * len(rest) // room] for i in range(room)} if room and rest else set()
            kept = [rows[i] for i in sorted({*decisive[:limit], *sample})]
        out[claim] = encoded(kept, columns_of("cases", kept)) | {"total": len(rows)}
    return out


def _case(row: Row) -> dict[str, Any]:
    expected = row["expected_exact"] if row["expected_exact"] is not None else row["expected"]
    relation = "differing bits" if row["relation"] == "bitwise" else row["relation"]
    measured = row["measured_exact"] if row["measured_exact"] is not None else row["measured"]
    return {
        **{
            key: row[key]
            for key in (
                "leg",
                "scope",
                "backend",
                "case",
                "quantity",
                "lower",
                "upper",
                "unit",
                "bound_source",
                "holds",
                "headline",
            )
        },
        "measured": measured,
        "relation": relation,
        "expected": expected,
    }


def differences(ledger: Tables) -> tuple[int, int]:
    """(ledger rows that differ from the executed model, rows compared with one)."""
    compared = [row for rows in ledger.values() for row in rows if row.get("difference") is not None]
    return sum(row["difference"] != 0 for row in compared), len(compared)


def full_tables(kinds: Mapping[str, Tables], limit: int) -> dict[str, dict[str, Any]]:
    """Every table that the page holds in full, encoded, by its name in results/."""
    out = {}
    for kind, tables in kinds.items():
        for stem, rows in tables.items():
            if rows:
                name = f"{kind}/{stem}"
                out[name] = encoded(rows[:limit], columns_of(name, rows)) | {"total": len(rows)}
    return out


def policy(scripts: Iterable[str]) -> str:
    """A Content-Security-Policy that runs these scripts only and fetches nothing."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts
    )
    rest = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {hashes}; {rest}"


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("transformer_ledger.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "anchor": numbers.anchor,
        "number": numbers.number,
        "duration": numbers.duration,
        "linked": numbers.linked,
        "plural": plural,
        "prose": numbers.prose,
        "percent": lambda value, digits=3: "—" if value is None else numbers.percent(value, digits),
        "short": numbers.short,
        "size": numbers.size,
        "math": lambda name: Markup(f"<math>{symbolic.identifier(name)}</math>"),
    }
    return environment


def _file(name: str) -> str:
    return resources.files("transformer_ledger.report").joinpath(name).read_text(encoding="utf-8")


def compute(
    *,
    models: Mapping[str, Any] | None = None,
    workloads: Mapping[str, Any] | None = None,
    training_runs: Mapping[str, Any] | None = None,
    recipes: Mapping[str, Any] | None = None,
    cache_dtypes: Sequence[str] | None = None,
    devices: Mapping[str, Mapping[str, Any]] | None = None,
    report: Mapping[str, Any] | None = None,
    claims: Tables | None = None,
    verification: Tables | None = None,
    ledger: Tables | None = None,
    experiment: Tables | None = None,
    timing: Tables | None = None,
    study: Tables | None = None,
    provenance: Mapping[str, Mapping[str, Any]] | None = None,
) -> str:
    """HTML of the page. Any argument may be missing or empty: what rests on it is left out or said to be missing."""
    models, recipes, report = models or {}, recipes or {}, report or {}
    verification, ledger, experiment, timing = verification or {}, ledger or {}, experiment or {}, timing or {}
    study, provenance, training_runs = study or {}, provenance or {}, training_runs or {}
    rows = list((claims or {}).get("claims", []))
    described = specs(models)
    labels = {name: model.get("label") or name for name, model in models.items()}
    differ, compared = differences(ledger)
    held = [row for table in experiment.values() for row in table if row.get("decisive")]
    broken = [row for table in verification.values() for row in table if row["leg"] == "control"]

    summaries: dict[str, Any] = {
        "parameters": parameters_summary(ledger.get("parameters", []), described),
        "state": state_summary(ledger.get("training_state", [])),
        "cache": cache_summary(ledger.get("kv_cache", [])),
        "matmul": matmul_summary(ledger.get("matmul", [])),
        "training": list(ledger.get("training_compute", [])),
        "activations": activations_summary(ledger.get("activations", [])),
        "fit": fit_summary(ledger.get("fit", [])),
        "conventions": conventions_summary(ledger.get("conventions", [])),
        "agreement": agreement_summary(ledger.get("agreement", [])),
    }
    start, device = report.get("whatif", {}), whatif.first_device(devices or {})
    calculated = whatif.every_model(models)
    example, values = example_numbers(models, training_runs, start.get("model"))
    limit = report.get("rows_per_table", 3000)
    data: dict[str, Any] = {
        "tables": full_tables({"ledger": ledger, "experiment": experiment, "study": study, "timing": timing}, limit),
        "cases": cases_data(verification, report.get("cases_per_claim", 200)),
        "symbols": {name: f"{s.meaning}{f' [{s.unit}]' if s.unit else ''}" for name, s in SYMBOLS.items()},
        "whatif": whatif.described(calculated, training_runs, recipes, list(cache_dtypes or []), devices or {}, start),
    }
    scripts = [whatif.script(calculated, recipes), "\n".join(_file(f"script/{name}.js") for name in SCRIPTS)]
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=report.get("title", "Transformer Ledger"),
            titles=TITLES,
            style=Markup(_file("style.css") + _file("whatif.css")),
            scripts=[Markup(text) for text in scripts],
            policy=policy(scripts),
            data=Markup(whatif.quoted(data)),
            tables=data["tables"],
            case_totals={claim: table["total"] for claim, table in data["cases"].items()},
            claims=rows,
            counts=[(verdict, sum(row["verdict"] == verdict for row in rows)) for verdict in VERDICTS],
            marks=MARKS,
            meanings=MEANINGS,
            texts=claims_shown(rows),
            surprises=surprises(
                claims=claims or {},
                verification=verification,
                ledger=ledger,
                experiment=experiment,
                study=study,
                timing=timing,
            ),
            differ=differ,
            compared=compared,
            held=len(held),
            outside=sum(not row["holds"] for row in held),
            controls=len(broken),
            unbroken=sum(not row["holds"] for row in broken),
            summaries=summaries,
            conventions=conventions.CONVENTIONS,
            experiments=figures.experiments(experiment, provenance),
            pictures=figures.pictures_of_models(described, labels, summaries["parameters"]),
            claim_pictures=figures.pictures_of_rows(verification),
            labels=labels,
            models=models_summary(models),
            whole_formulas=whole_formulas(models),
            formulas=formulas_shown(example_arguments(described[example], values) if example else {}),
            symbols=SYMBOLS,
            example=example,
            values=values,
            timing=timing,
            study=study,
            studies=studies.shown(study, timing),
            source_title=studies.source_title,
            clock_titles=studies.CLOCKS,
            provenance=provenance_shown(provenance),
            packages=_packages(provenance),
            has_whatif=bool(models and recipes),
            tries=claimfigures.tries(models, recipes),
            plays=claimfigures.plays(models, recipes),
            device=device,
        )
    )


def provenance_shown(provenance: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row an output: its path, job, and the digests of its spec and sources."""
    return [
        {
            "path": path,
            "digest": str(metadata.get("digest", "")),
            "sources": _digest(metadata.get("sources")),
            "inputs": len(metadata.get("inputs") or ()),
        }
        for path, metadata in sorted(provenance.items())
    ]


def _digest(sources: Any) -> str:
    return (
        sources
        if isinstance(sources, str)
        else hashlib.sha256(whatif.quoted(sources).encode()).hexdigest()
        if sources
        else ""
    )


def _packages(provenance: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for metadata in provenance.values():
        packages = metadata.get("packages")
        found |= packages if isinstance(packages, Mapping) else {}
    return dict(sorted(found.items()))
