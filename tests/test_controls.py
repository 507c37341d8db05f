"""Every control of every verification fails when its change is switched off."""

import importlib
import importlib.resources

import pytest

from transformer_ledger import tables
from transformer_ledger.__main__ import _call
from transformer_ledger.evidence import CONTROL, switched_off

NAMES = sorted(
    path.stem
    for path in importlib.resources.files("transformer_ledger.verification").iterdir()
    if path.suffix == ".py" and path.stem != "__init__"
)


@pytest.mark.parametrize("name", NAMES)
def test_a_control_without_its_change_fails(finished, monkeypatch, name):
    monkeypatch.chdir(finished)
    table = f"results/verification/{name}.parquet"
    spec = tables.read_metadata(table)
    compute = importlib.import_module(f"transformer_ledger.verification.{name}").compute
    with switched_off():
        rows = [row for row in _call(compute, spec["settings"], spec["inputs"]) if row["leg"] == CONTROL]
    assert len(rows) == sum(row["leg"] == CONTROL for row in tables.read(table))
    assert rows
    assert not any(row["holds"] for row in rows)
