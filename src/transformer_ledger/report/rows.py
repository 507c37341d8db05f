"""What the page and the pictures both read off the tables' rows, and what both call it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transformer_ledger.formulas import training_compute
from transformer_ledger.model import ModelSpec
from transformer_ledger.report.numbers import short
from transformer_ledger.report.parts import group
from transformer_ledger.tables import by

Row = Mapping[str, Any]
Rows = Sequence[Row]
CACHE_DTYPE = "bf16"  # of the cache where models are set side by side
INNER = ("attention.scores", "attention.values")
SOURCES = {"markov": "second-order Markov data", "recall": "associative recall", "both": "both sources"}
BUDGETS = {
    "scratch": "from scratch, {share} % of the compute",
    "conversion": "converted weights",
    "up-training": "converted weights, trained further",
}


def source(name: str) -> str:
    """A source of training data in words."""
    return SOURCES.get(name, name)


def budget(row: Row) -> str:
    """A budget of the extensions in words, with its share of the whole compute."""
    return BUDGETS[row["budget"]].format(share=short(100 * (row["share"] or 0), 3))


def parameters(rows: Rows, specs: Mapping[str, ModelSpec]) -> list[dict[str, Any]]:
    """One row a model of ledger/parameters: totals, parts and the rule 12Ld² + Vd against the exact count."""
    out = []
    for model, own in by(rows, "model").items():
        total = sum(row["parameters"] for row in own)
        parts: Counter[str] = Counter()
        for row in own:
            parts[group(row["component"])] += row["parameters"]
        spec = specs.get(model)
        rule = training_compute.rule_parameters(spec.depth, spec.d_model, spec.vocabulary) if spec else None
        out.append(
            {
                "model": model,
                "parameters": total,
                "active": sum(row["active_parameters"] for row in own),
                "parts": dict(parts),
                "rule": rule,
                "missed": None if rule is None else total - rule,
                "error": None if rule is None or not total else (total - rule) / total,
            }
        )
    return out


def counting(rows: Rows) -> list[Row]:
    """The rows that count: a bound so wide that wrong results would pass it decides nothing."""
    return [row for row in rows if row["decisive"]]


def ratio(row: Row) -> float:
    """Error of an experiment's case over its bound."""
    if row.get("ratio") is not None:
        return float(row["ratio"])
    bound, difference = row["bound"], row["difference"]
    return difference / bound if bound and difference is not None and math.isfinite(bound) else 0.0


def last_losses(rows: Rows) -> list[Row]:
    """The last held-out row of each source."""
    return [own[-1] for own in by([row for row in rows if row["split"] == "held-out"], "source").values()]


def widest(rows: Rows) -> tuple[str, Rows]:
    """The case of study/attention that was run at most lengths, and its rows."""
    cases = by(rows, "case")
    case = max(cases, key=lambda name: len({row["length"] for row in cases[name]}))
    return case, cases[case]


def relative_errors(rows: Iterable[Row]) -> list[float]:
    """Relative errors, where there is something that they are relative to."""
    return [row["relative_rms_error"] for row in rows if row["relative_rms_error"] is not None]
