"""What the tests share: a copy of the project in which Snakemake can run without touching this one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[1]
PARTS = (
    "Snakefile",
    "workflow",
    "src",
    "config.yaml",
    "config.minimal.yaml",
    "environment.yml",
    "profiles",
    "resources",
)


def copy_project(target: Path) -> Path:
    """Copy what a run needs into `target`."""
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, target / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy2(source, target / part)
    return target


def snakemake(folder: Path, *arguments: str, cores: str | None = "2") -> subprocess.CompletedProcess:
    """Run Snakemake in `folder` as a user would, its own package first on the path."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-m", "snakemake", *(["--cores", cores] if cores else []), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """A copy of the project in which the minimal config has run to its end. Tests must not change it: copy it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "finished"
    with FileLock(f"{folder}.lock"):  # one run for all workers
        if not (folder / "results/summary.txt").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            done = snakemake(copy_project(folder), "--configfile", "config.minimal.yaml")
            assert done.returncode == 0, done.stdout + done.stderr
    return folder
