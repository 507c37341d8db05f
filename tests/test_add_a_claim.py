"""docs/add-a-claim.md, followed word for word in a copy of the project."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from conftest import ROOT, copy_project, snakemake

from transformer_ledger import config, signature, tables

PAGE = (ROOT / "docs/add-a-claim.md").read_text(encoding="utf-8")
RECORD, MODULE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(SETTINGS,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
CLAIMS, NEXT = "src/transformer_ledger/claims/text_a.py", '    Claim(\n        "A8.1",'


@pytest.fixture(scope="module")
def followed(finished, tmp_path_factory):
    """A copy with the claim of the page, after `make dictionary` and a run on top of a finished one."""
    folder = copy_project(tmp_path_factory.mktemp("claim"))
    for part in ("results", ".snakemake"):
        shutil.copytree(finished / part, folder / part)
    for part in ("tests", "docs", "benchmarks"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    for part in ("README.md", "results/README.md", "pyproject.toml", "Makefile"):
        shutil.copy2(ROOT / part, folder / part)
    text = (folder / CLAIMS).read_text(encoding="utf-8")
    assert text.count(NEXT) == 1
    (folder / CLAIMS).write_text(text.replace(NEXT, RECORD + NEXT), encoding="utf-8")
    (folder / "src/transformer_ledger/verification/mask_pairs.py").write_text(MODULE, encoding="utf-8")
    text = (folder / "config.yaml").read_text(encoding="utf-8")
    head, block = SETTINGS.split("\n", 1)
    assert text.count(f"\n{head}\n") == 1
    (folder / "config.yaml").write_text(text.replace(f"\n{head}\n", f"\n{head}\n{block}"), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "transformer_ledger.documents"], cwd=folder, env=here(folder), check=True)
    done = snakemake(folder, "--configfile", "config.minimal.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def here(folder):
    return {**os.environ, "PYTHONPATH": str(folder / "src")}


def test_a_claim_is_one_record_one_short_module_and_one_block(followed):
    assert len(MODULE.splitlines()) < 60
    (row,) = [row for row in tables.read(followed / "results/claims.parquet") if row["claim"] == "A7.4"]
    assert (row["verdict"], row["legs"], row["reproduced"]) == ("confirmed", "exact, control", "reproduced")
    assert "55 pairs of 10 tokens" in row["why"]
    assert "there are 100." in row["why"]
    assert "surprises: 0" in (followed / "results/summary.txt").read_text()
    assert "T tokens have T(T+1)/2 pairs" in (followed / "results/report.html").read_text(encoding="utf-8")


def test_only_what_the_claim_concerns_ran(followed, finished):
    def kept(path):
        return (followed / path).stat().st_mtime == (finished / path).stat().st_mtime

    assert kept("results/verification/norms.parquet")
    assert not kept("results/claims.parquet")


def test_the_suite_of_the_copy_is_green(followed):
    concerned = ("test_claims.py", "test_text_a.py::test_registry", "test_config.py", "test_evidence.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/{name}" for name in concerned)]
    command += ["-k", "not snakemake and not whatever and not command_line"]  # the long ones, which run Snakemake
    done = subprocess.run(command, cwd=followed, env=here(followed), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:]


def test_the_sabotage_of_the_page_fails_when_it_is_switched_off(followed):
    code = """
import json, sys
from transformer_ledger.evidence import switched_off
from transformer_ledger.verification.mask_pairs import compute
with switched_off():
    print(json.dumps([row["holds"] for row in compute({}, [10, 64]) if row["leg"] == "control"]))
"""
    done = subprocess.run([sys.executable, "-c", code], env=here(followed), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [False, False]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"length": [10]}, "verification.mask_pairs.length: unknown key (did you mean 'lengths'?)"),
        ({}, "lengths"),
        ({"lengths": 10}, "verification.mask_pairs.lengths"),
        ({"lengths": ["ten"]}, "verification.mask_pairs.lengths[0]"),
    ],
)
def test_wrong_settings_of_an_added_verification_end_with_a_message(tmp_path, monkeypatch, settings, said):
    (tmp_path / "mask_pairs.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setattr(config, "VERIFICATIONS", tmp_path)
    config.schema.cache_clear()
    whole = yaml.safe_load((ROOT / "config.yaml").read_text(encoding="utf-8"))
    whole["verification"]["mask_pairs"] = settings
    monkeypatch.chdir(ROOT)
    try:
        with pytest.raises(config.ConfigError) as raised:
            config.load(whole, [])
    finally:
        monkeypatch.undo()
        config.schema.cache_clear()
    assert said in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_the_settings_of_a_verification_are_the_parameters_of_its_compute(tmp_path):
    """For the verifications that the schema describes, both say the same names."""
    described = config.schema()["properties"]["verification"]["properties"]
    for path in sorted(config.VERIFICATIONS.glob("[!_]*.py")):
        derived = signature.schema(path)
        own = set(config.resolved(described[path.stem])["properties"])
        assert own <= set(derived["properties"]) | {"models", "runs"}, path.stem
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="function named compute"):
        signature.schema(empty)
