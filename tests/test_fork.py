"""A job that a parent forks is the same job: its output, its exit code; without a parent it runs by itself."""

import os
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
from conftest import ROOT

from transformer_ledger import fork

SERVER = """
import sys
from pathlib import Path
from transformer_ledger import fork
fork.PARENTS = {"torch": (), "transformers": ()}
fork.serve(Path(sys.argv[1], "torch"))
"""
CLIENT = "import sys; from transformer_ledger import fork; sys.exit(fork.ask({'torch': ''}))"


@pytest.fixture
def parent(tmp_path):
    """A parent that has imported nothing, and the environment of those who ask it."""
    folder = tmp_path / "s"
    folder.mkdir()
    environment = {**os.environ, **fork.ENVIRONMENT, fork.PLACE: str(folder), "PYTHONPATH": str(ROOT / "src")}
    process = psutil.Popen([sys.executable, "-c", SERVER, str(folder), "transformers"], env=environment)
    until((folder / "transformers").exists)
    yield process, environment
    process.kill()
    process.wait()


def until(holds):
    for _ in range(1200):
        if found := holds():
            return found
        time.sleep(0.05)
    raise AssertionError("did not come about in a minute")


def run(command, environment):
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def test_a_forked_job_prints_and_ends_as_it_would_alone(parent, tmp_path):
    environment = parent[1]
    alone = {key: value for key, value in environment.items() if key != fork.PLACE}
    spec = ["--spec", str(tmp_path / "none.json"), "--output", "x"]
    for arguments in (["verify", "--help"], ["verify", str(tmp_path)], spec):
        direct = run([sys.executable, "-m", "transformer_ledger", *arguments], alone)
        forked = run([sys.executable, "-c", CLIENT, *arguments], environment)
        assert (forked.returncode, forked.stdout, forked.stderr) == (direct.returncode, direct.stdout, direct.stderr)


def test_a_job_and_the_one_that_asks_for_it_end_together(parent, tmp_path):
    process, environment = parent
    before = process.children()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # a spec that nobody writes: the job waits for it
    command = [sys.executable, "-c", CLIENT, "--spec", str(pipe), "--output", "x"]
    for killed in (0, 1):
        client = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        (job,) = until(lambda: set(process.children()) - set(before))
        until(lambda job=job: job.num_threads() > 1)  # it has begun, and watches the one that asked
        os.kill((job.pid, client.pid)[killed], signal.SIGKILL)
        said = client.communicate(timeout=60)[1]
        assert killed or (said, client.returncode) == ("the job was killed\n", 1)
        until(lambda: process.children() == before)


def test_without_a_parent_a_job_runs_by_itself(tmp_path, monkeypatch):
    for name, value in fork.THREADS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(fork.PLACE, str(tmp_path))
    assert fork.ask({"torch": ""}) is None
    assert fork.ask({}) is None


def test_a_parent_serves_its_own_code_only(parent, tmp_path):
    """A run within a run, of another checkout, would else get this one's code under the other one's hashes."""
    other = tmp_path / "src"
    shutil.copytree(ROOT / "src", other)
    asked = run([sys.executable, "-c", "import sys; from transformer_ledger import fork; print(fork.ask({'torch': ''}))"],
                parent[1] | {"PYTHONPATH": str(other)})  # fmt: skip
    assert asked.stdout == "None\n", asked.stderr


@pytest.mark.parametrize("slow", ["torch", "transformers.models.llama.modeling_llama"])
def test_a_parent_ends_with_its_run_in_the_midst_of_its_imports(tmp_path, slow):
    names = ["numpy", "torch", "transformers.models.llama.modeling_llama", "transformers.models.llama"]
    packages = dict.fromkeys([*names, "transformers.models", "transformers"], "")
    begun = tmp_path / "begun"
    packages[slow] = f"import os, time\nopen({str(begun)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    for name, text in packages.items():
        file = tmp_path.joinpath("packages", *name.split("."), "__init__.py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    code = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'transformer_ledger.fork', *sys.argv[1:]])"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'packages'}:{ROOT / 'src'}"}
    run = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), "transformers"], env=environment)
    try:
        importing = psutil.Process(int(until(lambda: begun.exists() and begun.read_text())))
    finally:
        run.kill()
        run.wait()
    assert importing.wait(timeout=60) is None  # not ours to wait for: gone
