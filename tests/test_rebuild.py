"""Exact rebuilds: each edit of the config, a source or the page's parts, and the jobs that a dry run then lists."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from conftest import snakemake

LEDGERS = ["parameters", "training_state", "kv_cache", "matmul", "agreement"]  # read every model
TAIL = {"provenance", "summary"}
PAGE = {"report"} | TAIL
CLAIMS = {"claims"} | PAGE


def ledgers(*names):
    return {f"ledger/{name}" for name in names}


@pytest.fixture(scope="module")
def project(finished, tmp_path_factory) -> Path:
    """The finished run again, its overlay merged into config.yaml, so that an edit is an edit of one file."""
    folder = tmp_path_factory.mktemp("rebuild") / "project"
    shutil.copytree(finished, folder)
    config = merged(*(yaml.safe_load((folder / name).read_text()) for name in ("config.yaml", "config.minimal.yaml")))
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    assert dry(folder) == set()
    return folder


def merged(base, over):
    """What Snakemake makes of a config file and an overlay; an entry set to null goes."""
    out = dict(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] = merged(out[key], value)
        elif value is None and isinstance(out.get(key), dict):
            out.pop(key)
        else:
            out[key] = value
    return out


def dry(folder: Path) -> set[str]:
    """The jobs that a dry run lists, by output."""
    done = snakemake(folder, "--dry-run", "--printshellcmds", "--workflow-profile", "none")
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    found = set(re.findall(r"--output results/(\S+?)\.\w+ ", text))
    assert found or "Nothing to be done" in text, text
    return found


def edit_config(change):
    """An edit of config.yaml by a function of the loaded config."""

    def edit(folder: Path):
        path = folder / "config.yaml"
        config = yaml.safe_load(path.read_text())
        change(config)
        path.write_text(yaml.safe_dump(config, sort_keys=False))

    return edit


def put(*keys, value):
    def change(config):
        for key in keys[:-1]:
            config = config[key]
        assert config[keys[-1]] != value, "the edit must change something"
        config[keys[-1]] = value

    return edit_config(change)


def swap(*keys, one, other):
    def change(config):
        for key in keys:
            config = config[key]
        config[one], config[other] = config[other], config[one]

    return edit_config(change)


def reorder(config):
    """Every mapping backwards."""
    for key, value in list(config.items()):
        del config[key]
        if isinstance(value, dict):
            reorder(value)
    return config


def reverse(value):
    return {key: reverse(value[key]) for key in reversed(value)} if isinstance(value, dict) else value


def reversed_config(folder: Path):
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(reverse(yaml.safe_load(path.read_text())), sort_keys=False))


def append(name: str, text: str):
    """Text added to the end of a file."""

    def edit(folder: Path):
        path = folder / name
        assert path.exists(), name
        path.write_text(path.read_text() + text)

    return edit


def code(module: str):
    """One statement more in a module."""
    return append(f"src/transformer_ledger/{module}.py", "\n_EDITED = True\n")
