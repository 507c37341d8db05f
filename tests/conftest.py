"""What the tests share: a copy of the project in which Snakemake can run, and the page in a real browser."""

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


OFFLINE = Path(__file__).parent / "faults" / "offline"


def snakemake(
    folder: Path, *arguments: str, cores: str | None = "2", limit: float = 600, **variables: str
) -> subprocess.CompletedProcess:
    """Run Snakemake in `folder` as a user would, its own package first on the path, and nobody to talk to.

    It may take `limit` [s]; `variables` go into its environment.
    """
    environment = {**os.environ, "PYTHONPATH": str(OFFLINE), **variables}
    command = [sys.executable, "-m", "snakemake", *(["--cores", cores] if cores else []), *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=limit)


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


# An architecture that costs nothing.
SMALL = {
    "layers": 2,
    "d_model": 16,
    "heads": 2,
    "d_ff": 32,
    "vocabulary": 11,
    "context": 64,
    "positions": "none",
    "norm": "rmsnorm",
    "feedforward": "gelu",
}

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def browser():
    if BROWSER is None and not os.environ.get("CI"):
        pytest.skip("no Chromium on this machine (Debian: apt install chromium); CI has one")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=SWITCHES)
        yield started
        started.close()


@pytest.fixture(scope="session")
def address(tmp_path_factory):
    import report_tables

    from transformer_ledger.report import page as report

    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report.compute(**report_tables.tables()), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def opened(browser, address):
    """Opens the page; the test fails where it logs an error or asks for anything but itself."""
    wrong: list[str] = []
    contexts = []

    def asks_elsewhere(url: str) -> bool:
        return url.split("#")[0] != address and not url.startswith(("data:", "blob:"))

    def open_page(hash_: str = "", width: int = 1400, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        made = context.new_page()
        made.on("console", lambda message: message.type in ("error", "warning") and wrong.append(message.text))
        made.on("pageerror", lambda error: wrong.append(str(error)))
        made.on("request", lambda request: wrong.append(request.url) if asks_elsewhere(request.url) else None)
        made.goto(address + hash_)
        return made

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []
