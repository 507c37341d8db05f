"""Every total of the ledgers against both implementations: our torch module and, where there is one, transformers'."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from transformer_ledger.ledger import kv_cache, matmul, parameters
from transformer_ledger.ledger.counted import MODULE, TRANSFORMERS, Rows, counts
from transformer_ledger.model import ModelSpec

IMPLEMENTATIONS = ("ours", "transformers")


def _totals(
    spec: ModelSpec, workloads: dict[str, Any], cache_dtypes: list[str]
) -> Iterator[tuple[str, str, str, str, int]]:
    """(quantity, workload, phase, component of the execution table, total) of all that a model's ledgers add up to."""
    every, active = parameters.totals(spec)
    yield "parameters", "", "", "total", every
    yield "active_parameters", "", "", "total", active
    for name, load in workloads.items():
        B, T = load["batch"], load["context"]
        if spec.context < T:
            continue
        for (phase, convention), ran in matmul.RAN.items():
            if convention == "full" or matmul.has_latent(spec):
                yield "flops", name, ran, "total", matmul.total(spec, B, T, phase, convention)
        for dtype in cache_dtypes:
            for policy in kv_cache.POLICIES if spec.states() else [p for p in kv_cache.POLICIES if p != "state"]:
                yield "cache_bytes", name, dtype, policy, kv_cache.cache_bytes(spec, B, T, dtype, policy)


def compute(
    models: dict[str, Any],
    workloads: dict[str, Any],
    cache_dtypes: list[str],
    execution: Mapping[str, Rows] | None = None,
) -> list[dict[str, Any]]:
    """Rows of the table: one row a total that an implementation counted."""
    rows = []
    for name, data in models.items():
        spec = ModelSpec.from_json(data)
        totals = list(_totals(spec, workloads, cache_dtypes))
        for implementation in IMPLEMENTATIONS:
            executed = counts((execution or {}).get(name, []), implementation)
            for quantity, workload, phase, component, ledger in totals:
                counted = executed.get((quantity, workload, phase, component, ""))
                if counted is None:
                    continue
                rows.append(
                    {
                        "model": name,
                        "implementation": implementation,
                        "quantity": quantity,
                        "workload": workload,
                        "phase": phase,
                        "policy": component if quantity == "cache_bytes" else "",
                        "ledger": ledger,
                        "executed": counted,
                        "difference": ledger - counted,
                        "met_by": TRANSFORMERS if implementation == "transformers" else MODULE,
                    }
                )
    return rows
