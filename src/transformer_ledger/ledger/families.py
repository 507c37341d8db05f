"""Every ledger on the small models of `families`: each family and feature, met by executions, in every run.

The rows of all ledgers that an execution or a second derivation met, one figure a row. What no model of the config has
(a latent, a window, sinks, a narrow embedding, a shared gate) is met here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from transformer_ledger.families import CACHE_DTYPES, FAMILIES, RECIPES, WORKLOADS, layouts
from transformer_ledger.ledger import (
    activations,
    agreement,
    conventions,
    kv_cache,
    layout,
    matmul,
    parameters,
    training_compute,
    training_state,
)
from transformer_ledger.ledger.counted import Rows
from transformer_ledger.shrunken import public
from transformer_ledger.tables import TABLES

# Ledger → what each of its difference columns is the difference of.
FIGURES = {
    "parameters": {
        "difference": "parameters",
        "active_difference": "active_parameters",
        "shape_difference": "parameters",
    },
    "training_state": {"difference": "bytes", "bytes_per_device_difference": "bytes_per_device"},
    "kv_cache": {
        "difference": "bytes",
        "bytes_per_token_difference": "bytes_per_token",
        "ratio_difference": "ratio_to_mha",
    },
    "matmul": {"difference": "flops", "multiply_adds_difference": "multiply_adds"},
    "training_compute": {
        "difference": "flops_exact",
        "parameters_difference": "parameters",
        "flops_6nd_difference": "flops_6nd",
        "days_difference": "days",
    },
    "activations": {"difference": "bytes"},
    "layout": {"difference": "bytes"},
    "conventions": {"difference": "value"},
    "agreement": {"difference": "ledger"},
}


def _ledgers(
    models: Mapping[str, Any], saved: Mapping[str, Any], runs: Mapping[str, Rows]
) -> Iterator[tuple[str, Rows]]:
    known = {name: public(family.config, family.read(name)) for name, family in FAMILIES.items()}
    own = {name: facts for name, facts in known.items() if facts}
    given = dict(models)
    yield "parameters", parameters.compute(given, runs)
    yield "training_state", training_state.compute(given, RECIPES, runs)
    yield "kv_cache", kv_cache.compute(given, WORKLOADS, CACHE_DTYPES, runs)
    yield "matmul", matmul.compute(given, WORKLOADS, runs)
    run = {"tokens": 7 * 11, "context": 11, "devices": 3, "flops_per_second_per_device": 13.0}
    trained = {name: {"model": name, "architecture": model, **run} for name, model in models.items()}
    yield "training_compute", training_compute.compute(trained, WORKLOADS, runs)
    yield "activations", activations.compute(given, WORKLOADS, dict(saved), own, runs)
    yield "layout", layout.compute(given, layouts(), runs)
    yield "conventions", conventions.compute(given, WORKLOADS, runs)
    yield "agreement", agreement.compute(given, WORKLOADS, CACHE_DTYPES, runs)


def compute(activations: dict[str, Any], families: Mapping[str, Rows]) -> list[dict[str, Any]]:
    """Rows of the table: one row a figure that was met."""
    runs: dict[str, list[Mapping[str, Any]]] = {name: [] for name in FAMILIES}
    for row in families["families"]:
        runs[row["model"]].append(row)
    models = {name: json.loads(json.dumps(family.read(name).to_json())) for name, family in FAMILIES.items()}
    made = []
    for ledger, rows in _ledgers(models, activations, runs):
        figures = FIGURES[ledger]
        names = [
            column.name
            for column in TABLES[f"ledger/{ledger}"]
            if column.type in ("string", "bool") and column.name not in ("model", "met_by", "counts", "elsewhere")
        ]
        for row in rows:
            case = json.dumps({name: row[name] for name in names if row.get(name)}, sort_keys=True, ensure_ascii=False)
            for column, figure in figures.items():
                if row[column] is not None:
                    own = {"ledger": ledger, "model": row["model"], "case": case, "figure": figure}
                    value, off = float(row[figure]), float(row[column])
                    made.append({**own, "value": value, "difference": off, "met_by": row["met_by"]})
    return made
