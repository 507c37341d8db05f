"""The ledgers on the page: each with its summary, its picture and its table.

A summary stands here and not in the ledger's own module, so that a change of the page makes no ledger anew.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from typing import Any

from markupsafe import Markup

from transformer_ledger.ledger import conventions, kv_cache, matmul, parameters
from transformer_ledger.ledger.counted import MET_BY, NOTHING
from transformer_ledger.model import ModelSpec
from transformer_ledger.report import layout, numbers
from transformer_ledger.report.layout import (
    COUNT,
    DIFFER,
    LARGE,
    LONG,
    PARAMETERS,
    PERCENT,
    SIZE,
    TEXT,
    YES,
    Block,
    Cell,
    Column,
    Format,
    Rows,
    Section,
)
from transformer_ledger.report.rows import CACHE_DTYPE, INNER
from transformer_ledger.report.rows import parameters as parameters_summary
from transformer_ledger.shrunken import COPY
from transformer_ledger.summary import differs
from transformer_ledger.tables import by

LONGEST = 4096  # tokens at which models are set side by side, or a model's whole context if that is shorter


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What the sections of the ledgers are made from: tables, specs and labels of the models that the page shows, by name.

    `everything` are the tables of all models.
    """

    ledger: Mapping[str, Rows]
    specs: Mapping[str, ModelSpec]
    labels: Mapping[str, str]
    everything: Mapping[str, Rows]

    def rows(self, name: str) -> Rows:
        """The rows of a ledger, none where it was not made."""
        return self.ledger.get(name, [])

    def mixed(self) -> list[str]:
        """Labels of the models for which neither activations nor the calculator's fields are given."""
        return [self.labels[name] for name, spec in self.specs.items() if not spec.plain]

    def labelled(self, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Rows in which a model goes by its label."""
        return [{**row, "model": self.labels.get(row["model"], row["model"])} for row in rows]


def sections(given: Inputs) -> list[Section]:
    """One section a ledger."""
    costs = (_parameters, _state, _cache, _matmul, _training, _activations, _fit)
    return [make(given) for make in (*costs, _evidence, _agreement, _conventions)]


def _differ(rows: Rows) -> Cell:
    return layout.differing(sum(map(differs, rows)), sum(row["difference"] is not None for row in rows))


# ---------------------------------------------------------------------------------------------- parameters


def _parameters(given: Inputs) -> Section:
    own = by(given.rows("parameters"), "model")
    summed = parameters_summary(given.rows("parameters"), given.specs)
    rows = given.labelled([{**row, "differ": _differ(own[row["model"]])} for row in summed])
    columns = {"model": TEXT, **dict.fromkeys(("parameters", "active", "rule", "missed"), PARAMETERS)}
    return layout.section(
        "parameters",
        layout.text("parameters"),
        layout.figure("parameters", "parameters"),
        layout.table("summary-parameters", rows, columns | {"error": PERCENT, "differ": DIFFER}),
        layout.figure("rule-error", "rule"),
        layout.full("ledger/parameters"),
    )


# ---------------------------------------------------------------------------------------------- training state


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
    return {
        "recipes": recipes,
        "items": list(dict.fromkeys(item for held in recipes.values() for item in held if item != "step")),
        "together": {recipe: _range(models.values()) for recipe, models in together.items()},
        "models": sums,
        "devices": {row["recipe"]: row["devices"] for row in rows},
    }


def _range(values: Iterable[float]) -> tuple[float, float]:
    found = list(values)
    return min(found), max(found)


def _shares(given: Inputs, state: Mapping[str, Any]) -> tuple[dict[str, Format | Column], Rows]:
    """Training state on one device, models against recipes: whichever are fewer stand side by side."""
    models, devices = state["models"], state["devices"]
    spread = {recipe: f"each of {count} devices" if count > 1 else "" for recipe, count in devices.items()}
    if len(devices) <= len(models):
        rows = given.labelled({"model": model, **own} for model, own in models.items())
        return {"model": TEXT, **{recipe: Column(recipe, SIZE, unit) for recipe, unit in spread.items()}}, rows
    named = Markup('{} <span class="of">{}</span>')
    across = [
        {
            "recipe": Cell(named.format(recipe, unit), recipe),
            **{model: own.get(recipe) for model, own in models.items()},
        }
        for recipe, unit in spread.items()
    ]
    return {"recipe": TEXT, **{model: Column(given.labels.get(model, model), SIZE) for model in models}}, across


def _state(given: Inputs) -> Section:
    state = state_summary(given.rows("training_state"))
    ends = layout.interval(lambda value: numbers.number(value, 4))
    recipes = [
        {"recipe": recipe, "together": state["together"][recipe]}
        | {
            item: dataclasses.replace(
                ends(sizes), html=Markup('{} <span class="of">{}</span>').format(ends(sizes).html, dtype)
            )
            for item, (dtype, sizes) in held.items()
            if item != "step"
        }
        for recipe, held in state["recipes"].items()
    ]
    items = {item: Column(item.replace("_", " "), ends, "bytes") for item in state["items"]}
    columns, rows = _shares(given, state)
    return layout.section(
        "training-state",
        layout.text("training-state"),
        layout.table("summary-recipes", recipes, {"recipe": TEXT, "together": ends, **items}),
        layout.table("summary-training-state", rows, columns),
        layout.full("ledger/training_state"),
    )


# ---------------------------------------------------------------------------------------------- cache


def cache_summary(rows: Rows) -> dict[str, Any]:
    """One row a model: bytes at each workload, in the first cache dtype, what attention needs.

    What the newest token adds, and the ratio, depend on the context where there are windows: they are at the smallest.
    """
    dtype = rows[0]["dtype"] if rows else ""
    needed = [row for row in rows if row["dtype"] == dtype and row["policy"] == "needed"]
    ordered = sorted(needed, key=lambda row: (row["batch"], row["context"]))
    loads = {row["workload"]: (row["batch"], row["context"]) for row in ordered}
    context = min((T for _, T in loads.values()), default=None)
    models = []
    for own in by(needed, "model").values():
        short = next((row for row in own if row["context"] == context), {})
        models.append(
            {
                **{key: own[0][key] for key in ("model", "kv_heads", "head_dim")},
                "ratio": short.get("ratio_to_mha"),
                "bytes_per_token": short.get("bytes_per_token"),
                **{f"at {row['workload']}": row["bytes"] for row in own},
            }
        )
    return {"dtype": dtype, "workloads": loads, "context": context, "models": models}


def _cache(given: Inputs) -> Section:
    cache = cache_summary(given.rows("kv_cache"))
    columns: dict[str, Format | Column] = {
        "model": TEXT,
        "kv_heads": COUNT,
        "head_dim": COUNT,
        "bytes_per_token": SIZE,
        "ratio": layout.number(4),
    }
    loads = {
        f"at {name}": Column(f"{batch} × {numbers.short(T)}", SIZE, "sequences × tokens", f"workload {name}")
        for name, (batch, T) in cache["workloads"].items()
    }
    context = numbers.short(cache["context"])
    return layout.section(
        "kv-cache",
        layout.text("kv-cache"),
        layout.figure("cache", "cache"),
        layout.table(
            "summary-kv-cache", given.labelled(cache["models"]), columns | loads, dtype=cache["dtype"], context=context
        ),
        layout.full("ledger/kv_cache"),
    )


# ---------------------------------------------------------------------------------------------- matrix products


def matmul_summary(rows: Rows) -> list[dict[str, Any]]:
    """One row a model and workload: totals of the phases, and attention's share of the prefill."""
    out = []
    for (model, workload), own in by(rows, "model", "workload").items():
        found: Counter[tuple[str, str]] = Counter()
        for row in own:
            found[row["phase"], row["convention"]] += row["flops"]
        inner = [
            row["flops"]
            for row in own
            if row["phase"] == "prefill" and row["convention"] == "full" and row["component"] in INNER
        ]
        prefill = found.get(("prefill", "full"))
        out.append(
            {
                "model": model,
                "workload": workload,
                "batch": own[0]["batch"],
                "context": own[0]["context"],
                "prefill": prefill,
                "causal": found.get(("prefill", "causal-exact")),
                "decode": found.get(("decode", "full")),
                "train": found.get(("train", "full")),
                "share": 100 * sum(inner) / prefill if prefill and inner else None,
            }
        )
    return out


def _matmul(given: Inputs) -> Section:
    columns = {
        "model": TEXT,
        **dict.fromkeys(("batch", "context"), COUNT),
        "prefill": LARGE,
        "share": layout.number(3),
        **dict.fromkeys(("causal", "decode", "train"), LARGE),
    }
    return layout.section(
        "matmul",
        layout.text("matmul"),
        layout.figure("attention-share", "share"),
        layout.table("summary-matmul", given.labelled(matmul_summary(given.rows("matmul"))), columns),
        layout.full("ledger/matmul"),
    )


# ---------------------------------------------------------------------------------------------- training compute


def _training(given: Inputs) -> Section:
    rows = [
        {
            **row,
            "ratio": row["flops_6nd"] / row["flops_exact"] if row["flops_exact"] else None,
            "rate": (row["implied_flops_per_second_per_device"] or 0) / 1e12 or None,
            "assumed": (row["flops_per_second_per_device"] or 0) / 1e12 or None,
        }
        for row in given.rows("training_compute")
    ]
    columns = {
        "run": TEXT,
        "model": TEXT,
        "tokens": LARGE,
        **dict.fromkeys(("context", "flops_6nd", "flops_exact"), COUNT),
        "ratio": layout.number(4),
        "devices": COUNT,
        "assumed": layout.number(4),
        "days": layout.number(4),
        "published_device_hours": COUNT,
        "rate": layout.number(4),
    }
    return layout.section(
        "training-compute",
        layout.text("training-compute"),
        layout.table("summary-training-compute", given.labelled(rows), columns),
        layout.full("ledger/training_compute"),
    )


# ---------------------------------------------------------------------------------------------- activations


def activations_summary(rows: Rows) -> list[dict[str, Any]]:
    """A row a model at its longest workload, with and without its dropout: totals by method and checkpointing, and what
    was measured."""
    out = []
    for (_, dropout), own in by(rows, "model", "dropout").items():
        loads = [row for row in own if row["workload"] != COPY and row["implementation"] == "ours"]
        if not loads:
            continue
        longest = max(loads, key=lambda row: (row["context"], -row["batch"]))
        at = [row for row in loads if row["workload"] == longest["workload"] and row["dtype"] == longest["dtype"]]
        out.append(
            {
                **{key: longest[key] for key in ("model", "batch", "context", "dtype")},
                **{
                    f"{row['method']}{', checkpointed' if row['checkpointed'] else ''}": row["bytes"]
                    for row in at
                    if row["scope"] == "total"
                },
                "dropout": layout.told(f"sections/activations/dropout-{'on' if dropout else 'off'}"),
                "logits": next((row["bytes"] for row in at if row["scope"] == "logits"), None),
                "differ": _differ(own),
            }
        )
    return out


def _activations(given: Inputs) -> Section:
    rows, mixed = activations_summary(given.rows("activations")), given.mixed()
    sizes = ("eager", "eager, checkpointed", "fused", "fused, checkpointed", "logits")
    columns = {
        "model": TEXT,
        "dropout": TEXT,
        **dict.fromkeys(sizes, SIZE),
        "batch": COUNT,
        "context": COUNT,
        "differ": DIFFER,
    }
    return layout.section(
        "activations",
        layout.text("activations"),
        layout.text("sections/activations/mixed", models=layout.listed(mixed)) if mixed else None,
        layout.table("summary-activations", given.labelled(rows), columns),
        layout.full("ledger/activations"),
    )


# ---------------------------------------------------------------------------------------------- what fits


def fit_summary(rows: Rows) -> dict[str, Any]:
    """What fits, by model: context and batch on every device, and the devices that train it, on the smallest one.

    Of types and policies the first are shown, and the batch at the model's longest workload.
    """
    run = [row for row in rows if row["recipe"] is None and row["policy"] == "needed"]
    types = [(row["dtype"], row["cache_dtype"]) for row in run[:1]]
    run = [row for row in run if (row["dtype"], row["cache_dtype"]) in types]
    sizes = {row["device"]: (row["memory_bytes"], row["available_bytes"]) for row in rows}
    devices = dict(sorted(sizes.items(), key=lambda pair: pair[1]))
    smallest = next(iter(devices), None)
    cells: dict[str, dict[str, dict[str, Any]]] = {}
    for (model, device, question), own in by(run, "model", "device", "question").items():
        chosen = max(own, key=lambda row: (row["context"] or 0, row["workload"] or ""))
        cells.setdefault(model, {}).setdefault(device, {})[question] = chosen
    training: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["recipe"] is not None and row["device"] == smallest:
            training.setdefault(row["model"], {})[row["recipe"]] = row
    return {
        "types": types[0] if types else ("", ""),
        "devices": devices,
        "models": cells,
        "smallest": smallest,
        "recipes": {row["recipe"]: row["zero_stage"] for row in rows if row["recipe"] is not None},
        "training": training,
    }


def _answer(row: Mapping[str, Any] | None) -> Cell | None:
    """How much fits, or no and why."""
    if row is None:
        return None
    if not row["answer"]:
        return Cell(Markup('<span class="none">no</span>'), "no", title=layout.told(f"fit/{row['limit']}"))
    shown = numbers.number(row["answer"])
    if row["limit"] == "context":
        shown = Markup('{} <span class="of">all</span>').format(shown)
        return Cell(shown, row["answer"], title=layout.told("fit/context"))
    return Cell(shown, row["answer"])


def _room(memory: tuple[int, int]) -> dict[str, str]:
    return {"all": numbers.short(memory[0] / 1e9), "room": numbers.short(memory[1] / 1e9)}


def _fit(given: Inputs) -> Section:
    fit = fit_summary(given.rows("fit"))
    rows = [
        {
            "model": model,
            "length": next(iter(own.values())).get("largest batch", {}).get("context"),
            **{
                f"{question} {device}": _answer(row) for device, asked in own.items() for question, row in asked.items()
            },
        }
        for model, own in fit["models"].items()
    ]
    asked = {
        question: {
            f"{question} {device}": Column(device, COUNT, "", layout.told(f"fit/{question}", **_room(memory)))
            for device, memory in fit["devices"].items()
        }
        for question in ("longest context", "largest batch")
    }
    training = [
        {"model": model, **{recipe: _answer(row) for recipe, row in own.items()}}
        for model, own in fit["training"].items()
    ]
    stages = {recipe: Column(recipe, COUNT, f"ZeRO {stage}") for recipe, stage in fit["recipes"].items()}
    weights, cache = fit["types"]
    room = _room(fit["devices"].get(fit["smallest"], (0, 0)))
    return layout.section(
        "fit",
        layout.text("fit"),
        layout.table(
            "summary-fit", given.labelled(rows), {"model": TEXT, **asked["longest context"]}, weights=weights, cache=cache
        ),
        layout.table("summary-fit-batch", given.labelled(rows), {"model": TEXT, "length": COUNT, **asked["largest batch"]},
                     weights=weights, cache=cache),
        layout.table("summary-fit-training", given.labelled(training), {"model": TEXT, **stages}, device=fit["smallest"], **room),
        layout.full("ledger/fit"),
        layout.table("summary-layout", given.labelled(layout_summary(given.rows("layout"))),
                     {"model": TEXT, "layout": TEXT, "devices": COUNT,
                      **dict.fromkeys(("state", "activations", "training", "cache", "inference"), SIZE), "differ": DIFFER}),
    )  # fmt: skip


def layout_summary(rows: Rows) -> list[dict[str, Any]]:
    """One row a model and layout: what the fullest device holds in training and in inference."""
    out = []
    for (model, name), own in by(rows, "model", "layout").items():
        held = {(row["phase"], row["item"]): row["bytes"] for row in own}
        active = held.get(("training", "activations"))
        out.append(
            {
                "model": model,
                "layout": name,
                "devices": own[0]["devices"],
                "activations": active,
                "state": held["training", "all"] - (active or 0),
                "training": held["training", "all"],
                "cache": held["inference", "cache"],
                "inference": held["inference", "all"],
                "differ": _differ(own),
            }
        )
    return out


# ---------------------------------------------------------------------------------------------- what met the figures


def evidence_summary(ledger: Mapping[str, Rows]) -> list[dict[str, Any]]:
    """One row for each ledger: its rows by what confirmed them, and how many differ."""
    return [
        {"ledger": layout.told(f"ledgers/{name}"), **Counter(row["met_by"] for row in rows), "differ": _differ(rows)}
        for name, rows in ledger.items()
        if rows
    ]


def families_summary(rows: Rows) -> list[dict[str, Any]]:
    """One row for each small model: its figures by what confirmed them, and how many differ."""
    return [
        {"model": model, **Counter(row["met_by"] for row in own), "differ": _differ(own)}
        for model, own in by(rows, "model").items()
    ]


def rows_alone(ledger: Mapping[str, Rows]) -> list[str]:
    """Ledgers with rows that were compared with nothing, and how many rows: 12 rows of activations."""
    names = layout.words()["ledgers"]
    counts = {name: sum(row["met_by"] == NOTHING for row in rows) for name, rows in ledger.items()}
    return [f"{layout.counted(count, 'row')} of {names[name].lower()}" for name, count in counts.items() if count]


def _evidence(given: Inputs) -> Section:
    met = dict.fromkeys(MET_BY, COUNT) | {"differ": DIFFER}
    summary = evidence_summary(given.everything)
    nothing = rows_alone(given.everything)
    published = {"subject": TEXT, "quantity": TEXT, "convention": TEXT, "published": COUNT, "value": COUNT}
    printed = [
        {**row, "published": _as_published(row["published"]), "value": _as_published(row["published"], row["value"])}
        for row in given.rows("published")
    ]
    return layout.section(
        "evidence",
        layout.text("evidence"),
        layout.text(f"sections/evidence/nothing{'' if nothing else '-all'}", ledgers=layout.listed(nothing)),
        layout.table("met-by", summary, {"ledger": TEXT, **met}),
        layout.table("met-by-families", families_summary(given.rows("families")), {"model": TEXT, **met}),
        layout.table("published", printed, {**published, "unit": TEXT, "holds": YES, "source": LONG}),
    )


def _as_published(text: str, value: float | None = None) -> Cell:
    """A value, else the figure itself, to the digits that the figure's source prints."""
    shown = float(text) if value is None else value
    digits = len(text.partition("e")[0].replace(".", ""))
    if text.isdigit():
        brief = numbers.grouped(round(shown))
    elif shown < 1e4:
        brief = f"{float(f'{shown:.{digits - 1}e}'):,.{max(0, digits - 1 - math.floor(math.log10(shown)))}f}"
    else:
        brief = numbers.scientific(shown, digits)
    return Cell(numbers.two(brief, text if value is None else numbers.exact(value)), shown)


# ---------------------------------------------------------------------------------------------- agreement


def agreement_summary(rows: Rows) -> list[dict[str, Any]]:
    """One row an implementation and quantity: totals compared, models, and how many differ."""
    return [
        {
            "implementation": layout.told(f"implementations/{implementation}"),
            "quantity": quantity.replace("_", " "),
            "models": len({row["model"] for row in own}),
            "compared": len(own),
            "differ": sum(row["difference"] != 0 for row in own),
        }
        for (implementation, quantity), own in by(rows, "implementation", "quantity").items()
    ]


def _agreement(given: Inputs) -> Section:
    columns = {"implementation": TEXT, "quantity": TEXT, "models": COUNT, "compared": COUNT, "differ": DIFFER}
    return layout.section(
        "agreement",
        layout.text("agreement"),
        layout.table("summary-agreement", agreement_summary(given.rows("agreement")), columns),
        layout.full("ledger/agreement"),
    )


# ---------------------------------------------------------------------------------------------- conventions


def conventions_summary(rows: Rows) -> list[dict[str, Any]]:
    """One entry a quantity: what each convention gives for each model, at the model's longest workload.

    Of a cache the cells hold the bytes for one token of that length, as calculators print them; of FLOPs, beside our
    count, the ratio alone.
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
                "ratios": own[0]["unit"] == "FLOP",
                "columns": [c for c in conventions.CONVENTIONS if c.quantity == quantity and c.name in names],
                "models": shown,
            }
        )
    return out


def _quotient(value: int, tokens: int) -> int | float:
    return value / tokens if value % tokens else value // tokens


def _convention_cell(entry: Mapping[str, Any], name: str, value: Any, ratio: float) -> Cell:
    first = name == entry["columns"][0].name
    if entry["ratios"] and not first:
        return Cell(numbers.number(ratio, 4), ratio)
    shown = (
        numbers.size(value, True)
        if entry["quantity"] == "weights"
        else numbers.large(value, "B" if "parameters" in entry["quantity"] else "G")
    )
    if not first:
        shown = Markup('{} <span class="of below">{} of ours</span>').format(shown, numbers.short(ratio, 4))
    return Cell(shown, value)


def _convention_table(given: Inputs, entry: Mapping[str, Any]) -> Block | None:
    rows = [
        {
            "model": model,
            "size": f"{own['batch']} × {numbers.short(own['context'])}" if own["context"] else None,
            **{f"by {name}": _convention_cell(entry, name, *cell) for name, cell in own["cells"].items()},
        }
        for model, own in entry["models"].items()
    ]
    columns = {
        f"by {column.name}": Column(
            column.name, COUNT, "ours" if not index else "ratio to ours" if entry["ratios"] else "", column.counts
        )
        for index, column in enumerate(entry["columns"])
    }
    anchor = f"conventions-{numbers.anchor(entry['quantity'])}"
    return layout.table(anchor, given.labelled(rows), {"model": TEXT, **columns, "size": TEXT})


def _conventions(given: Inputs) -> Section:
    known = [
        {
            "quantity": row.quantity,
            "name": Cell(Markup('{} <span class="of">ours</span>').format(row.name), row.name)
            if row.ours
            else row.name,
            "counts": row.counts,
            "elsewhere": row.elsewhere,
        }
        for row in conventions.CONVENTIONS
    ]
    return layout.section(
        "conventions",
        layout.text("conventions"),
        layout.table("conventions-table", known, {"quantity": TEXT, "name": TEXT, "counts": LONG, "elsewhere": LONG}),
        *(_convention_table(given, entry) for entry in conventions_summary(given.rows("conventions"))),
        layout.full("ledger/conventions"),
    )


# ---------------------------------------------------------------------------------------------- models


NAMES = {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm", "rope": "RoPE"}


def models_summary(specs: Mapping[str, ModelSpec]) -> list[dict[str, Any]]:
    """One row a model: its architecture, of its most frequent kind of layer, and what it costs, from the ledgers' functions."""
    out = []
    for name, spec in specs.items():
        main = max(spec.kinds(), key=lambda pair: pair[0])[1]
        attention = max(spec.attentions(), key=lambda pair: pair[0], default=(0, None))[1]
        feedforward = main.feedforward
        every, active = parameters.totals(spec)
        T = min(spec.context, LONGEST)
        experts = f"{feedforward.experts_per_token} of {feedforward.experts}" if feedforward.experts else None
        out.append(
            {
                "model": name,
                "layers": spec.depth,
                "d": spec.d_model,
                "h": attention and attention.heads,
                "h_kv": attention and attention.kv_heads,
                "d_h": attention and attention.head_dim,
                "feedforward": feedforward.kind,
                "f": feedforward.width,
                "experts": experts,
                "norm": NAMES.get(spec.norm, spec.norm),
                "positions": NAMES.get(spec.positions, spec.positions),
                "vocabulary": spec.vocabulary,
                "context": spec.context,
                "tied": layout.told("tied/yes" if spec.tied_head else "tied/no"),
                "parameters": every,
                "active": active,
                "cache": kv_cache.cache_bytes(spec, 1, T, CACHE_DTYPE, "needed"),
                "per_token": matmul.total(spec, 1, T, "prefill") / T,
                "length": T,
            }
        )
    return out


def side_by_side(given: Inputs, text_parts: Container[str]) -> list[Block | None]:
    """The models' costs, then their architectures; of some models the text part alone is counted."""
    rows = given.labelled(models_summary(given.specs))
    marked = Markup('{} <span class="of">text part</span>')
    rows = [
        {**row, "model": Cell(marked.format(row["model"]), row["model"])} if row["model"] in text_parts else row
        for row in rows
    ]
    costs = {"model": TEXT, "parameters": PARAMETERS, "active": PARAMETERS, "cache": SIZE, "per_token": LARGE}
    costs |= {"length": COUNT}
    sizes = dict.fromkeys(("layers", "d", "h", "h_kv", "d_h"), COUNT)
    rest = {"feedforward": TEXT, "f": COUNT, "experts": TEXT, "norm": TEXT, "positions": TEXT}
    shapes = {"model": TEXT, **sizes, **rest, "vocabulary": COUNT, "context": COUNT, "tied": TEXT}
    return [layout.table("models-table", rows, costs), layout.table("models-shapes", rows, shapes)]
