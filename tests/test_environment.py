"""One set of pins: environment.yml, pyproject.toml and what is installed."""

import importlib.metadata
import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
# The same project under conda-forge's and bioconda's names.
CONDA = {"matplotlib-base": "matplotlib", "pytorch": "torch", "snakemake-minimal": "snakemake"}


def pins():
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return dict(line.split("==") for line in lines)


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
