"""One set of pins: environment.yml, pyproject.toml and what is installed."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
# The same project under conda-forge's and bioconda's names.
CONDA = {"matplotlib-base": "matplotlib", "pytorch": "torch", "snakemake-minimal": "snakemake"}


def pins():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return dict(line.split("==") for line in project["dependencies"] + project["optional-dependencies"]["pipeline"])


def test_environment_yml_holds_the_same_pins():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    found = {CONDA.get(name, name): version for name, version in (line.split("=", 1) for line in conda)}
    assert found.pop("python") == "3.11"
    assert found == pins()


def test_every_pin_is_exact_and_installed():
    for name, version in pins().items():
        assert re.fullmatch(r"[0-9][0-9.]*", version), name
        assert importlib.metadata.version(name).split("+")[0] == version


def test_no_lock_file_and_no_address():
    assert not [name for name in ("uv.lock", "pixi.lock", "package-lock.json", "yarn.lock") if (ROOT / name).exists()]
    assert "://" not in (ROOT / "environment.yml").read_text()


def test_a_closed_form_imports_no_more_than_the_core():
    code = (
        "import sys\n"
        "for name in PIPELINE: sys.modules[name] = None\n"
        "from transformer_ledger.__main__ import main\n"
        "sys.exit(main(['size', 'resources/models/gpt2.json', 'resources/models/gpt-oss-20b.json']))"
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = {line.split("==")[0] for line in project["dependencies"]}
    names = {"yaml" if name == "pyyaml" else name for name in set(pins()) - core}
    command = [sys.executable, "-c", f"PIPELINE = {sorted(names)}\n{code}"]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": "src"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_citation_is_that_of_the_package():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # what the format demands
    assert (citation["version"], citation["license"]) == (project["version"], project["license"])
