"""What moved between two results folders, exactly; and what a run says of it at its end."""

import json
import re
import shutil
from pathlib import Path

import pytest

from transformer_ledger import compare, seals, tables
from transformer_ledger.__main__ import main


@pytest.fixture
def results(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished / "results", tmp_path / "theirs"))


def rerecord(results: Path, change) -> None:
    """The record with a change, and its seal, as a run with this change would have left it."""
    path, place = results / "provenance.json", seals.place("provenance.json", results)
    record = json.loads(path.read_text())
    change(record["outputs"])
    path.write_text(json.dumps(record))
    place.write_text(json.dumps(json.loads(place.read_text()) | {"content_sha256": seals.digest(path)}))


def rewrite(results: Path, name: str, change) -> None:
    """A table with a change, as a job would have written it, and its record."""
    path = results / f"{name}.parquet"
    rows = tables.read(path)
    change(rows)
    tables.write(path, name if name in tables.TABLES else name.split("/")[0], rows, tables.read_metadata(path))
    made = {"content_sha256": seals.digest(path), "content_bytes": path.stat().st_size}
    rerecord(results, lambda outputs: outputs[f"results/{name}.parquet"].update(made))


def first(rows, **values):
    return next(row for row in rows if all(row[key] == value for key, value in values.items()))


def slower(rows):
    for row in rows[1:]:
        for column in ("q1_seconds", "median_seconds", "q3_seconds"):
            row[column] *= 64.0


def wider(rows):
    row = first(rows, leg="floating", relation="<=")
    row["expected"] *= 2
    row["measured"] += 2 * row["expected"]


def test_what_moved_is_exact(finished, results, tmp_path, capsys):
    old, more = finished / "results", 3 * 10**30
    assert main(["compare", str(old), str(results)]) == 0
    assert capsys.readouterr().out == "nothing moved\n"
    before = first(tables.read(results / "ledger/matmul.parquet"), model="gpt2", phase="train")["flops"]
    rewrite(results, "ledger/matmul", lambda rows: first(rows, model="gpt2", phase="train").update(flops=before + more))
    rewrite(results, "ledger/parameters", lambda rows: rows.pop())
    rewrite(results, "timing/norms", slower)
    rewrite(results, "verification/norms", wider)
    rewrite(results, "claims", lambda rows: first(rows, claim="A1.2").update(verdict="refuted"))
    rerecord(results, lambda outputs: outputs["results/claims.parquet"]["packages"].update(numpy="9"))
    rerecord(results, lambda outputs: outputs["results/claims.parquet"].update(sources="0"))
    rerecord(results, lambda outputs: outputs["results/verification/norms.parquet"]["settings"].update(seed=77))

    path, page = tmp_path / "moved.parquet", tmp_path / "moved.html"
    assert main(["compare", str(old), str(results), "--parquet", str(path), "--html", str(page)]) == 1
    assert "verdicts: 1\n  A1.2 confirmed → refuted\n" in capsys.readouterr().out
    rows = tables.read(path, "compare")
    assert rows == [
        {name.name: row.get(name.name) for name in tables.TABLES["compare"]}
        for row in compare.moved(compare.Folder(old), compare.Folder(results))
    ]
    by = tables.by(rows, "kind")
    assert by.keys() == compare.KINDS.keys() - {"file"}
    flops, gone = sorted(by["ledger"], key=lambda row: row["table"])
    assert (flops["old"], flops["new"], flops["change"]) == (str(before), str(before + more), str(more))
    assert (gone["table"], gone["old"], gone["new"]) == ("ledger/parameters", "there", None)
    assert len(by["timing"]) == len(tables.read(results / "timing/norms.parquet")) - 1
    assert {row["column"] for row in by["bound"]} == {"expected", "measured"}
    assert [(row["row"], row["new"]) for row in by["setting"]] == [("verification.norms.seed", "77")]
    assert [row["table"] for row in by["code"]] == ["claims"]
    (package,) = by["package"]
    assert (package["row"], package["new"]) == ("numpy", f"{package['old']} and 9")
    assert len(compare.brief(rows, "x").splitlines()) == 3
    html = page.read_text()
    contents = [part for part in (*compare.MOVED, *compare.CHANGED) if part != "file"]
    assert re.findall(r'<h2 id="moved-(\w+)"', html) == contents, "what moved, then what was changed"
    assert f'data-v="{more}"' in html, "the exact change"
    assert "confirmed" in html
    assert "refuted" in html
    assert f"{package['old']} and 9" in html, "a version is no number"
    assert not re.search(r'(?:src|href)="(?!#|data:)', html), "one file"


def test_a_run_says_what_moved_against_the_one_before(results, tmp_path):
    logs = tmp_path / "logs"
    assert compare.keep(results, logs) == ""
    rewrite(results, "claims", lambda rows: first(rows, claim="A1.2").update(verdict="refuted"))
    assert "moved: verdicts (1)\n" in compare.keep(results, logs)
    assert (logs / "compare.txt").read_text() == "verdicts: 1\n  A1.2 confirmed → refuted\n"
    assert compare.keep(results, logs) == "  against the run before: nothing moved"


def test_the_figures_that_are_compared_are_all_exact_figures_of_the_schemas():
    """Every count of a ledger but what it was held against, and what the row repeats of its settings."""
    against = re.compile(r"executed|derived|difference|recounted|published|extrapolated|searched|beyond|available")
    repeated = {
        "batch",
        "tokens",
        "context",
        "devices",
        "copies",
        "layers",
        "kv_heads",
        "head_dim",
        "zero_stage",
        "memory_bytes",
    }
    repeated |= {"data", "tensor", "pipeline", "expert", "microbatches", "length"}  # of a layout
    repeated |= {"multiply_adds", "stage"}  # half of the FLOPs; where in the pipeline the fullest device is
    held = {"ledger/families", "ledger/published"}  # of small models and of papers: no costs of the config
    schemas = {name: columns for name, columns in tables.TABLES.items() if name.startswith("ledger/")}
    assert compare.LEDGERS.keys() == schemas.keys() - held
    for name, (key, figures) in compare.LEDGERS.items():
        exact = [column.name for column in schemas[name] if column.type in ("int64", "decimal128(38,0)")]
        counts = [column for column in exact if not against.search(column) and column not in key]
        own = {"ledger/training_compute": repeated - {"tokens"}}.get(name, repeated)
        assert set(counts) - own == set(figures), name
        assert set(key) <= {column.name for column in schemas[name]}


def test_every_row_that_is_compared_has_a_name_of_its_own(finished):
    folder = compare.Folder(finished / "results")
    for name, (key, columns) in compare.LEDGERS.items():
        named = folder.rows(name, key)
        assert named
        assert not [row for row in named if '"repeat"' in row], name
        assert set(columns) <= next(iter(named.values())).keys()


def test_folders_that_cannot_be_compared_are_named(finished, results, tmp_path, capsys):
    assert main(["compare", str(tmp_path / "none"), str(results)]) == 2
    assert f"{tmp_path}/none/provenance.json: No such file" in capsys.readouterr().err
    rewrite(results, "ledger/matmul", lambda rows: rows.pop())
    path = results / "ledger/matmul.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    assert main(["compare", str(finished / "results"), str(results)]) == 2
    assert f"{path}: " in capsys.readouterr().err
