"""results/ledgers.html: the ledgers, the calculator and the formulas of some models, in one job and without any torch.

Nothing runs here, so nothing is compared: these are the closed forms that a whole run holds against executed models.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from transformer_ledger.ledger import (
    activations,
    conventions,
    fit,
    kv_cache,
    matmul,
    parameters,
    training_compute,
    training_state,
)
from transformer_ledger.report import algebra, page
from transformer_ledger.tables import TABLES

LEDGERS = {
    "parameters": parameters,
    "training_state": training_state,
    "kv_cache": kv_cache,
    "matmul": matmul,
    "activations": activations,
    "training_compute": training_compute,
    "fit": fit,
    "conventions": conventions,
}
SECTIONS = ("what-if", "ledgers", "models", "formulas", "glossary")


def _rows(name: str, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows with every column of their table, as a file would hold them."""
    return [{column.name: row.get(column.name) for column in TABLES[f"ledger/{name}"]} for row in rows]


def compute(ledgers: Mapping[str, Any], formulas: Mapping[str, Any], page_settings: Mapping[str, Any]) -> str:
    """HTML of the page; the settings are those of the jobs that make the same parts of the whole page."""
    made = {name: _rows(name, LEDGERS[name].compute(**settings)) for name, settings in ledgers.items()}
    typeset = json.loads(algebra.compute(**formulas))
    return page.compute(**page_settings, ledger=made, formulas=typeset, parts=SECTIONS)
