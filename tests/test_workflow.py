"""What a Snakemake user does and meets: no-op, single targets, bad input, overlays, removed models, damaged files."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml
from conftest import ROOT, copy_project, snakemake
from faults import same

from transformer_ledger import fingerprint, huggingface, jobs, tables
from transformer_ledger.ledger import parameters
from transformer_ledger.report import quick

MINIMAL = ("--configfile", "config.minimal.yaml")


@pytest.fixture
def project(finished, tmp_path) -> Path:
    folder = tmp_path / "project"
    shutil.copytree(finished, folder)
    return folder


def test_a_finished_run_has_nothing_to_do(finished):
    done = snakemake(finished, *MINIMAL, "--dry-run", "--workflow-profile", "none")
    assert "Nothing to be done" in done.stdout + done.stderr


def test_snakemakes_own_report_works(project):
    done = snakemake(project, "--report", "report.html", *MINIMAL, cores=None)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "verification" in (project / "report.html").read_text()


def test_the_catalogue_of_workflows_finds_what_it_looks_for():
    """What its generator reads; it also runs `snakemake --lint` and `snakefmt --check`, as `make check` does."""
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert usage["software-stack-deployment"]["conda"] is True
    assert usage["report"] is True
    assert (ROOT / "config/README.md").read_text()
    assert (ROOT / "workflow/Snakefile").read_text()
    assert list((ROOT / "workflow/rules").glob("*.smk"))
    assert {"snakemake", "workflow"} <= set((ROOT / "README.md").read_text().lower().split())


def test_the_run_closes_with_a_summary(finished):
    text = (finished / "results/summary.txt").read_text()
    assert "surprises: 0" in text
    assert re.search(
        r"[\d,]+ ledger rows, compared with transformers \([\d,]+\), our module \([\d,]+\), .*; 0 differ", text
    )
    assert "results/report.html" in text


def test_every_table_carries_what_it_was_made_from(finished):
    record = json.loads((finished / "results/provenance.json").read_text())["outputs"]
    paths = sorted((finished / "results").rglob("*.parquet"))
    others = {"results/report.html", "results/formulas.json", "results/checkpoint/model.safetensors"}
    drawn = {path for path in record if path.endswith((".svg", ".csv"))}
    assert {"results/figure/cache.svg", "results/figure/cache-narrow.svg", "results/figure/cache.csv"} < drawn
    assert {str(path.relative_to(finished)) for path in paths} | others | drawn == set(record)
    for path in paths:
        metadata = tables.read_metadata(path)
        assert metadata["sources"]
        assert metadata["packages"]["python"]
        assert metadata["digest"] == record[str(path.relative_to(finished))]["digest"]
        assert str(finished) not in json.dumps(metadata)


def test_the_ledgers_of_my_own_model_alone(tmp_path):
    """One job in a fresh folder, nothing executed, that model alone."""
    folder = copy_project(tmp_path)
    target, own = "results/ledgers.html", "resources/models/qwen3-8b.json"
    done = snakemake(folder, target, "--config", f"own={own}")
    assert done.returncode == 0, done.stdout + done.stderr
    made = {str(path.relative_to(folder)) for path in (folder / "results").rglob("*") if path.is_file()}
    assert made == {target, "results/seals/ledgers.html.json"}
    text = (folder / target).read_text()
    spec, _ = huggingface.read("", json.loads((folder / own).read_text()))
    assert f"{parameters.totals(spec)[0]:,}" in text
    assert "qwen3-8b" in text
    assert "teaching" not in text
    assert "torch" not in fingerprint.packages("transformer_ledger.report.quick")


def test_every_picture_shows_numbers(finished):
    """A picture picks its rows by what a verification calls them; one that finds none would be left out in silence."""
    pictures = list((finished / "results").rglob("figure/*.csv"))
    assert len(pictures) > 10
    # The minimal config has two widths of a head, too few for a line.
    assert [path.name for path in pictures if path.read_text() == "no numbers\n"] == ["saturation.csv"]


def test_the_quick_page_has_the_ledgers_that_its_settings_are_made_for():
    assert tuple(quick.LEDGERS) == jobs.QUICK


def test_one_experiment_alone(project):
    target = "results/experiment/rope_dot_product.parquet"
    (project / target).unlink()
    done = snakemake(project, target, *MINIMAL)
    assert done.returncode == 0
    assert tables.read(project / target, "experiment/rope_dot_product")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--config", "models={teaching: {architecture: {layrs: 3}}}"], "did you mean 'layers'"),
        (["--config", "modles={}"], "did you mean 'models'"),
        (["--config", "workloads={w: {batch: 0, context: 8}}"], "workloads.w.batch"),
        (["results/ledger/nothing.parquet"], "results/ledger/nothing.parquet"),
    ],
)
def test_bad_input_is_one_message_and_loses_nothing(project, arguments, expected):
    before = {path: path.read_bytes() for path in (project / "results").rglob("*") if path.is_file()}
    done = snakemake(project, *arguments)
    text = done.stdout + done.stderr
    assert done.returncode != 0
    assert expected in text
    assert "Traceback" not in text
    assert {path: path.read_bytes() for path in (project / "results").rglob("*") if path.is_file()} == before


def test_code_in_a_config_never_runs(tmp_path):
    """YTE runs what begins with a question mark; a file of --configfile is refused before Snakemake reads it."""
    path, mark = tmp_path / "mine.yaml", tmp_path / "ran"
    path.write_text(f"shared: &shared {{__use_yte__: true}}\n<<: *shared\nx: ?open({str(mark)!r}, 'w').name\n")
    done = snakemake(ROOT, "--dry-run", "--configfile", str(path))
    assert done.returncode == 1
    assert done.stderr.endswith(
        "mine.yaml:1: __use_yte__: Snakemake would run Python from this file; a config is data\n"
    )
    assert not mark.exists()


def test_a_folder_without_a_config_is_named(tmp_path):
    done = snakemake(tmp_path, "--dry-run", "--snakefile", str(ROOT / "Snakefile"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        f"no config.yaml in {tmp_path}; run snakemake in the project's folder"
    )


def test_trouble_with_the_machine_is_one_line(tmp_path):
    """In the C locale too: no folder for results, no home for Snakemake's cache, a package that is not there."""
    folder = tmp_path / "a folder’s $name"
    folder.mkdir()
    copy_project(folder)
    (folder / "results").write_text("")
    (tmp_path / "jsonschema.py").write_text("raise ModuleNotFoundError(\"No module named 'jsonschema'\")")
    for variable, value, last in (
        ("PYTHONUTF8", "0", "results cannot be written: File exists"),
        ("HOME", "/proc/nobody", "/proc/nobody/.cache/snakemake: No such file or directory; set XDG_CACHE_HOME to"),
        ("PYTHONPATH", str(tmp_path), "No module named 'jsonschema'; `make results` installs what is needed"),
    ):
        done = snakemake(folder, "results/experiment/rope_dot_product.parquet", **{"LC_ALL": "C", variable: value})
        assert done.returncode == 1
        assert done.stderr.rstrip().splitlines()[-1].startswith(last)
        assert "Traceback" not in done.stderr


LONG = ("results/checkpoint/model.safetensors", "--config", "study={checkpoint: {programme: {steps: 1000000}}}")


def _until(holds):
    for _ in range(600):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError("did not come about in a minute")


def _at_work(folder):
    """Jobs of the run in `folder`: a job's working directory is its run's."""
    every = psutil.process_iter(["cwd", "cmdline"])
    here = [process.info["cmdline"] for process in every if process.info["cwd"] == str(folder)]
    return [command for command in here if "transformer_ledger" in command]


def test_a_run_is_alone_and_leaves_nothing_behind_when_it_is_stopped(project):
    """Ctrl-C is one line; a run that is killed takes its jobs along and leaves no lock; a second run is kept out."""
    command = [sys.executable, "-m", "snakemake", "--cores", "1", *LONG]
    for number in (signal.SIGKILL, signal.SIGINT):
        with open(project / "screen.txt", "w") as screen:
            run = subprocess.Popen(command, cwd=project, stdout=screen, stderr=screen, start_new_session=True)
        _until(lambda: _at_work(project))
        if number == signal.SIGKILL:
            second = snakemake(project, *LONG)
            assert second.returncode == 1
            assert f"another run is at work in {project}; wait" in second.stderr
            run.kill()
        else:
            os.killpg(run.pid, number)
        assert run.wait() != 0
        _until(lambda: not _at_work(project))
    text = (project / "screen.txt").read_text()
    last = text.rstrip().splitlines()[-1]
    assert last == "stopped by SIGINT: 0 of 1 jobs finished; the same command goes on from there"
    assert "Traceback" not in text
    assert "Error" not in text
    assert not list(project.rglob("*.partial"))


STARTED_AFTER = """
import signal, subprocess, sys, time
exec(open("workflow/rules/run.smk").read())
try:
    stop(signal.SIGINT, None)
except SystemExit:
    print(subprocess.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=20).returncode)
"""


def test_a_job_that_starts_while_the_run_is_stopped_is_ended_too():
    done = subprocess.run([sys.executable, "-c", STARTED_AFTER], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == [str(-signal.SIGTERM)], done.stderr[-2000:]


def test_a_removed_model_leaves_no_stale_table_and_says_so(project):
    stranger = project / "results/execution/mine.parquet"
    stranger.write_bytes(b"mine")
    done = snakemake(project, *MINIMAL, "--config", "models={modern: null}")
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    assert not (project / "results/execution/modern.parquet").exists()
    assert "removed results/execution/modern.parquet" in text
    assert "left results/execution/mine.parquet" in text
    assert stranger.exists()
    models = {row["model"] for row in tables.read(project / "results/ledger/parameters.parquet")}
    assert models
    assert "modern" not in models


def test_two_clean_runs_are_the_same_bytes(finished, tmp_path):
    """Whether a parent forks the jobs, as in the first, or each of them imports its packages itself."""
    again = copy_project(tmp_path)
    assert snakemake(again, *MINIMAL, "--config", "execution={preload: false}").returncode == 0
    assert (finished / "logs/fork.log").read_text() == ""
    assert not (again / "logs/fork.log").exists()
    files = sorted(path.relative_to(finished) for path in (finished / "results").rglob("*") if path.is_file())
    assert len(files) > 20
    for name in files:
        if not str(name).startswith(same.SHOW_TIMES):
            assert (again / name).read_bytes() == (finished / name).read_bytes(), name
