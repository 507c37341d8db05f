"""FLOPs and time of each training run, by the rule 6·N·D and by the exact count of matrix products.

Each figure is found once more: N and the FLOPs of a sequence from what executed models counted (of two short sequences,
and the only parabola through the origin that meets both), times and rates in decimal arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

from transformer_ledger.formulas import training_compute as formulas
from transformer_ledger.ledger import matmul, parameters
from transformer_ledger.ledger.counted import DERIVED, NOTHING, Executed, Rows
from transformer_ledger.model import ModelSpec

SECONDS_PER_DAY = 86400
DIGITS = 60  # of the decimal arithmetic


def extrapolated(executed: Executed, workloads: Mapping[str, Any], T: int) -> Fraction | None:
    """Training FLOPs of one sequence of T tokens, a·T + b·T², from those counted at two other lengths."""
    lengths: dict[int, Fraction] = {}
    for name, load in workloads.items():
        counted = executed.count("flops", name, "train")
        if counted is not None:
            lengths[load["context"]] = Fraction(int(counted), load["batch"])
    if len(lengths) < 2:
        return None
    (s, F), (t, G) = sorted(lengths.items())[:2]
    b = (G / t - F / s) / (t - s)
    return (F / s - b * s) * T + b * T**2


def times(N: int, D: int, G: int | None, R: float | None, W: int | None) -> dict[str, Any]:
    """The rule for N parameters and D tokens, its time on G devices at R FLOP/s, and the rate that W device-hours imply.

    None where a device's figures are not given.
    """
    rule = formulas.rule_flops(N, D)
    seconds = formulas.seconds(rule, G, Fraction(R)) if G and R else None
    return {
        "flops_6nd": rule,
        "seconds": float(seconds) if seconds else None,
        "days": float(seconds / SECONDS_PER_DAY) if seconds else None,
        "implied_flops_per_second_per_device": formulas.implied_rate(rule, W) if W else None,
    }


def by_decimals(N: int, D: int, G: int | None, R: float | None, W: int | None) -> dict[str, Any]:
    """The rule, the time and the implied rate from N parameters and D tokens: forward 2, backward 4 FLOPs each."""
    with localcontext() as context:
        context.prec = DIGITS
        flops = 2 * Decimal(N) * D + 4 * Decimal(N) * D
        found: dict[str, Any] = {"flops_6nd": int(flops)}
        if G and R:
            days = flops / Decimal(R) / G / 24 / 60 / 60
            found |= {"days": float(days), "seconds": float(days * 24 * 60 * 60)}
        if W:
            found["implied_flops_per_second_per_device"] = float(flops / W / 60 / 60)
    return found


def compute(
    runs: dict[str, Any], workloads: dict[str, Any] | None = None, execution: Mapping[str, Rows] | None = None
) -> list[dict[str, Any]]:
    """Rows of the ledger: one row a run. `flops_exact` trains on sequences of `context` tokens, if given.

    # ASSUME a last sequence that is cut short costs by its share: the exact count is linear in the tokens.
    """
    rows = []
    for name, run in runs.items():
        spec = ModelSpec.from_json(run["architecture"])
        _, N = parameters.totals(spec)
        D, T = run["tokens"], run.get("context") or spec.context
        exact = formulas.exact_flops(matmul.total(spec, 1, T, "train"), D, T)
        G, R, W = run.get("devices"), run.get("flops_per_second_per_device"), run.get("published_device_hours")
        row = {
            "model": run["model"],
            "run": name,
            "parameters": N,
            "tokens": D,
            "context": T,
            "flops_exact": exact,
            "devices": G,
            "flops_per_second_per_device": R,
            "published_device_hours": W,
            **times(N, D, G, R, W),
        }
        executed = Executed((execution or {}).get(run["model"], []))
        sequence = extrapolated(executed, workloads or {}, T)
        again = {"parameters": executed.count("active_parameters")}
        again["flops_exact"] = None if sequence is None else int(sequence * D / T)
        again |= by_decimals(again["parameters"] or N, D, G, R, W)
        off = {key: None if other is None else row[key] - other for key, other in again.items()}
        rows.append(
            {
                **row,
                "extrapolated_flops": again["flops_exact"],
                "difference": off["flops_exact"],
                **{f"{key}_difference": value for key, value in off.items() if key != "flops_exact"},
                "met_by": NOTHING if off["parameters"] is None else DERIVED,
            }
        )
    return rows
