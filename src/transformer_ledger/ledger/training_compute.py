"""FLOPs and time of each training run, by the rule 6·N·D and by the exact count of matrix products."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from transformer_ledger.formulas import training_compute as formulas
from transformer_ledger.ledger import matmul, parameters
from transformer_ledger.model import ModelSpec

SECONDS_PER_DAY = 86400


def compute(runs: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of the ledger: one row a run. `flops_exact` trains on sequences of `context` tokens, if given.

    # ASSUME a last sequence that is cut short costs by its share: the exact count is linear in the tokens.
    """
    rows = []
    for name, run in runs.items():
        spec = ModelSpec.from_json(run["architecture"])
        _, N = parameters.totals(spec)
        D, T = run["tokens"], run.get("context") or spec.context
        rule = formulas.rule_flops(N, D)
        exact = formulas.exact_flops(matmul.total(spec, 1, T, "train"), D, T)
        G, R, W = run.get("devices"), run.get("flops_per_second_per_device"), run.get("published_device_hours")
        seconds = float(formulas.seconds(rule, G, Fraction(R))) if G and R else None
        rows.append(
            {
                "model": run["model"],
                "run": name,
                "parameters": N,
                "tokens": D,
                "context": T,
                "flops_6nd": rule,
                "flops_exact": exact,
                "devices": G,
                "flops_per_second_per_device": R,
                "seconds": seconds,
                "days": seconds / SECONDS_PER_DAY if seconds else None,
                "published_device_hours": W,
                "implied_flops_per_second_per_device": formulas.implied_rate(rule, W) if W else None,
            }
        )
    return rows
