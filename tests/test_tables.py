"""Tables: exact integers, atomic writes, damage noticed, and the data dictionary held against the schemas."""

import json
import math
import os
import random
import re
import resource
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from transformer_ledger import tables
from transformer_ledger.__main__ import main

ROOT = Path(__file__).parents[1]
COMPUTE = {"model": "m", "run": "r", "parameters": 70 * 10**9, "flops_6nd": 6_350_000_000_000_000_000_000_001}


def test_integers_past_float_and_int64_come_back_exact(tmp_path):
    path = tmp_path / "t.parquet"
    tables.write(path, "ledger/training_compute", [COMPUTE], {"a": 1})
    (row,) = tables.read(path, "ledger/training_compute")
    assert row["flops_6nd"] == COMPUTE["flops_6nd"]
    assert row["days"] is None
    assert tables.read_metadata(path) == {"a": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parameters": 2**63}, "parameters: 9223372036854775808 does not fit int64 (model m, run r)"),
        ({"parameters": -(2**63) - 1}, "does not fit int64"),
        ({"flops_6nd": 10**38}, "does not fit decimal128"),
        ({"parameters": 1.0}, "parameters: 1.0 is not an integer"),
        ({"parameters": True}, "parameters: True is not an integer"),
        ({"flops_6nd": 1e21}, "is not an integer"),
        ({"model": ("m",)}, "model: tuple is neither text nor a number"),
        ({"parametres": 1}, "no such column in ledger/training_compute: parametres"),
    ],
)
def test_wrong_values_are_refused_and_leave_nothing(tmp_path, change, message):
    path = tmp_path / "t.parquet"
    with pytest.raises(tables.TableError, match=re.escape(message)):
        tables.write(path, "ledger/training_compute", [COMPUTE | change], {})
    assert not list(tmp_path.iterdir())


def test_every_type_comes_back_with_its_nulls(tmp_path):
    rows = [
        {"model": "né — ∞", "component": "", "bias": True, "parameters": -(2**63), "copies": 2**63 - 1},
        {"model": None, "component": "x", "bias": None, "parameters": None, "copies": 0},
        {"model": "", "component": None, "bias": False, "parameters": 0, "copies": None},
    ] * 7
    tables.write(tmp_path / "t.parquet", "ledger/parameters", rows, {})
    for read, wrote in zip(tables.read(tmp_path / "t.parquet", "ledger/parameters"), rows, strict=True):
        assert {key: read[key] for key in wrote} == wrote
    big = [{"flops_6nd": sign * (10**38 - 1), "days": value} for sign in (1, -1) for value in (0.1, math.inf, -0.0)]
    tables.write(tmp_path / "u.parquet", "ledger/training_compute", big, {})
    read = tables.read(tmp_path / "u.parquet")
    assert [(row["flops_6nd"], repr(row["days"])) for row in read] == [
        (row["flops_6nd"], repr(row["days"])) for row in big
    ]
    tables.write(tmp_path / "v.parquet", "claims", [], {})
    assert tables.read(tmp_path / "v.parquet", "claims") == []


def test_a_job_does_not_import_pandas():
    code = """if True:
        import sys, tempfile
        from transformer_ledger import tables
        path = tempfile.mkdtemp() + "/t.parquet"
        tables.write(path, "claims", [{"claim": "A1.1", "surprise": False}], {})
        tables.read(path, "claims")
        sys.exit("pandas" in sys.modules)"""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


def test_two_writes_are_the_same_bytes(tmp_path):
    for name, metadata in (("a", {"x": 1, "y": 2}), ("b", {"y": 2, "x": 1})):
        tables.write(tmp_path / name, "ledger/training_compute", [COMPUTE] * 50, metadata)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_no_flipped_byte_reads_back_as_another_value(tmp_path):
    path = tmp_path / "t.parquet"
    rows = [COMPUTE | {"tokens": number} for number in range(1000)]
    tables.write(path, "ledger/training_compute", rows, {"a": 1})
    good, right = path.read_bytes(), tables.read(path)
    draw = random.Random(0)
    noticed = 0
    for _ in range(200):
        damaged = bytearray(good)
        damaged[draw.randrange(len(good))] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        try:
            assert tables.read(path, "ledger/training_compute") == right
        except tables.TableError as error:
            noticed += 1

            assert "delete it and run snakemake again" in str(error)  # noqa: PT017
    assert noticed > 50  # the others hit bytes that carry no value (statistics, padding)


@pytest.mark.parametrize("content", [b"", b"not parquet at all", None])
def test_missing_and_broken_files_are_named(tmp_path, content):
    path = tmp_path / "t.parquet"
    if content is not None:
        path.write_bytes(content)
    for reader in (tables.read, tables.read_metadata):
        with pytest.raises(tables.TableError, match=str(path)):
            reader(path)


def test_a_table_of_other_columns_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    tables.write(path, "ledger/training_compute", [COMPUTE], {})
    with pytest.raises(tables.TableError, match="not a ledger/matmul table"):
        tables.read(path, "ledger/matmul")


def test_every_column_is_documented_and_typed():
    for table, columns in tables.TABLES.items():
        assert len({column.name for column in columns}) == len(columns), table
        for column in columns:
            assert column.type in tables.TYPES
            assert len(column.meaning) > 5, (table, column.name)


def test_the_contract_columns_are_there():
    contract = json.loads((ROOT / "tests/contract.json").read_text())
    for table, columns in contract.items():
        assert set(columns) <= {column.name for column in tables.TABLES[table]}, table


def test_the_data_dictionary_is_that_of_the_schemas():
    text = (ROOT / "results/README.md").read_text(encoding="utf-8")
    assert tables.dictionary() in text, "run `make dictionary`"


def test_pandas_reads_a_table_without_a_helper(tmp_path):
    import pandas as pd

    path = tmp_path / "t.parquet"
    tables.write(path, "ledger/training_compute", [COMPUTE], {})
    assert int(pd.read_parquet(path)["flops_6nd"][0]) == COMPUTE["flops_6nd"]
    columns = tables.TABLES["ledger/training_compute"]
    about = [(field.name, field.metadata) for field in pq.read_schema(path)]
    assert [name for name, _ in about] == [column.name for column in columns]
    assert [said[b"description"].decode() for _, said in about] == [column.meaning for column in columns]
    assert [said.get(b"unit", b"").decode() for _, said in about] == [column.unit for column in columns]


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "taken" / "by").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "taken", tmp_path / "file" / "below"):
        with pytest.raises(tables.TableError, match=r"cannot be written \((Is a directory|File exists)\)"):
            tables.write(path, "claims", [], {})
        with pytest.raises(tables.TableError, match="cannot be written"):
            tables.write_bytes(path, "text")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["by", "file", "taken"]


def test_where_there_is_no_room_nothing_is_left(tmp_path):
    """As on a full disk: what is there stays, and what was begun goes."""
    path = tmp_path / "claims.parquet"
    tables.write(path, "claims", [], {})
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(tables.TableError, match=r"claims\.parquet: cannot be written \(.*File too large"):
            tables.write(path, "claims", [], {})
        with pytest.raises(tables.TableError, match=r"cannot be written \(File too large\)"):
            tables.write_bytes(path, "text" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [before]


def _spec_file(folder, module, text):
    """A job's spec as a file; `text` is its JSON without the module."""
    path = folder / "spec.json"
    path.write_text(text.replace("{", f'{{"module": "{module}", ', 1) if text.startswith('{"') else text)
    return path


WRONG_JOBS = {
    ("ledger.parameters", "{bad", "x.parquet"): "spec.json is not JSON: ",
    ("ledger.parameters", "[]", "x.parquet"): "spec.json has no mappings",
    ("ledger.parameters", '{"settings": {}, "inputs": {}}', "x.parquet"): "missing a required argument: 'models'",
    ("ledger.nope", '{"settings": {}, "inputs": {}}', "x.parquet"): "No module named 'transformer_ledger.ledger.nope'",
    ("tables", '{"settings": {}, "inputs": {}}', "x.parquet"): "tables is no job",
    (
        "ledger.parameters",
        '{"settings": {"models": {}}, "inputs": {}}',
        "results/x.parquet",
    ): "results/x.parquet: no such",
    ("claims.table", '{"settings": {}, "inputs": {"results/a/b.parquet": ""}}', "x.parquet"): "b.parquet: missing",
}


@pytest.mark.parametrize("case", WRONG_JOBS, ids=range(len(WRONG_JOBS)))
def test_a_wrong_job_is_one_message(tmp_path, monkeypatch, capsys, case):
    monkeypatch.chdir(tmp_path)
    module, spec, output = case
    try:
        code = main(["--spec", str(_spec_file(tmp_path.parent, module, spec)), "--output", output])
    except SystemExit as stopped:
        code = stopped.code
    assert code
    assert WRONG_JOBS[case] in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_too_little_memory_is_one_message(tmp_path):
    settings = {"d_model": 8, "heads": 1, "batch": 65536, "length": 2**20, "repeats": {}, "seed": 0}  # 2 TiB of inputs
    spec = _spec_file(tmp_path, "timing.matmul_scaling", json.dumps({"settings": settings, "inputs": {}}))
    command = [sys.executable, "-m", "transformer_ledger", "--spec", str(spec), "--output", "x.parquet"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.endswith("timing.matmul_scaling: not enough memory for its settings; make their sizes smaller\n")
