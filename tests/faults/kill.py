"""Runs that are killed at random moments: what is there afterwards is whole, nothing goes on, the same command ends it.

`python tests/faults/kill.py 200` starts a small workflow, kills it, looks, and starts it again, until it has killed so
often. After twenty kills, and at the end, it lets a run come to its end, compares every byte with a run that nothing
disturbed, and begins again with an empty folder. A second number is the seed of the draws.
"""

import collections
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))
from conftest import copy_project, snakemake

LONGEST = 20  # seconds until a run is killed
BETWEEN = 20  # kills before a run may come to its end
KEPT = ("embedding_lookup", "rope_relative", "rope_rotation", "online_softmax", "head_count")


def small(folder):
    """A project whose config leaves out the trainings, the timings and most verifications; for `folder`'s Snakemake."""
    overlay = yaml.safe_load((copy_project(folder) / "config.minimal.yaml").read_text())
    whole = yaml.safe_load((folder / "config.yaml").read_text())
    overlay["verification"] = {
        name: overlay["verification"].get(name) if name in KEPT else None for name in whole["verification"]
    }
    overlay["verification"] = {name: part for name, part in overlay["verification"].items() if part or name not in KEPT}
    for kind in ("timing", "study"):
        overlay[kind] = dict.fromkeys(whole[kind])
    (folder / "small.yaml").write_text(yaml.safe_dump(overlay))
    return folder


def here(folder):
    """The processes that work in `folder`."""
    return [process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(folder)]


def kill_group(run, draw):
    os.killpg(run.pid, signal.SIGKILL)


def kill_snakemake(run, draw):
    run.kill()


def kill_job(run, draw):
    """One job; then the run, which goes on with others, is stopped."""
    jobs = [
        child for child in psutil.Process(run.pid).children(recursive=True) if "transformer_ledger" in child.cmdline()
    ]
    if jobs:
        draw.choice(jobs).kill()
    time.sleep(draw.uniform(0, 3))
    run.send_signal(signal.SIGTERM)


def interrupt(run, draw):
    os.killpg(run.pid, signal.SIGINT)


def interrupt_twice(run, draw):
    os.killpg(run.pid, signal.SIGINT)
    time.sleep(draw.uniform(0, 1))
    if run.poll() is None:
        os.killpg(run.pid, signal.SIGINT)


def terminate(run, draw):
    run.terminate()


def hang_up(run, draw):
    os.killpg(run.pid, signal.SIGHUP)


WAYS = (kill_group, kill_snakemake, kill_job, interrupt, interrupt_twice, terminate, hang_up)


def contents(folder):
    files = (path for path in (folder / "results").rglob("*") if path.is_file() and path.suffix != ".partial")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def look(folder, clean, screen, way):
    """What is wrong after a run was ended by `way`."""
    for _ in range(50):
        if not here(folder):
            break
        time.sleep(0.1)
    else:
        yield f"{len(here(folder))} processes go on"
    for path, content in contents(folder).items():
        if clean.get(path) != content:
            yield f"{path} is not what a run makes that nothing disturbs"
    text = screen.read_text()
    if way not in (kill_group, kill_snakemake, hang_up) and "Job stats" in text:
        if "Traceback" in text:
            yield "a traceback on the screen"
        if way is not kill_job and not text.rstrip().splitlines()[-1].startswith("stopped by SIG"):
            yield f"its last line is {text.rstrip().splitlines()[-1]!r}"


def main(kills, seed):
    # A shell that starts this in the background, or nohup, lets it ignore them, and the runs would inherit that.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    draw = random.Random(seed)
    counts, wrong, whole, begun = collections.Counter(), [], 0, time.monotonic()
    with tempfile.TemporaryDirectory() as made:
        folder = small(Path(made).resolve())
        done = snakemake(folder, "--configfile", "small.yaml", limit=3600)
        assert done.returncode == 0, done.stdout + done.stderr
        clean = contents(folder)
        print(f"a run that nothing disturbs: {len(clean)} files, {time.monotonic() - begun:.0f} s", flush=True)
        command = [sys.executable, "-m", "snakemake", "--cores", "2", "--configfile", "small.yaml"]
        fresh = True
        while counts.total() < kills or not fresh:
            if fresh:
                for name in ("results", ".snakemake", "logs"):
                    shutil.rmtree(folder / name)
            screen, way, wait = folder / "screen.txt", draw.choice(WAYS), draw.uniform(0, LONGEST)
            with open(screen, "w") as written:
                run = subprocess.Popen(command, cwd=folder, stdout=written, stderr=written, start_new_session=True)
            kept = counts.total() - whole * BETWEEN
            try:
                fresh = run.wait(wait if counts.total() < kills and kept < BETWEEN else None) == 0
                if not fresh:
                    wrong.append(f"after kill {counts.total()}: a run fails: {screen.read_text()[-2000:]}")
                    break
                whole += 1
                now = contents(folder)
                other = [path for path in {**clean, **now} if clean.get(path) != now.get(path)]
                other += list((folder / "results").rglob("*.partial"))
                if other:
                    wrong.append(f"after kill {counts.total()}: a finished run made otherwise, or left: {other}")
                    print(wrong[-1], flush=True)
                continue
            except subprocess.TimeoutExpired:
                way(run, draw)
            try:
                ended = run.wait(60)
            except subprocess.TimeoutExpired:
                wrong.append(
                    f"kill {counts.total()}, {way.__name__} after {wait:.1f} s: does not end: {screen.read_text()[-300:]}"
                )
                print(wrong[-1], flush=True)
                os.killpg(run.pid, signal.SIGKILL)
                continue
            counts[way.__name__] += 1
            fresh = ended == 0  # came to its end in the same moment
            for what in look(folder, clean, screen, way):
                wrong.append(f"kill {counts.total()}, {way.__name__} after {wait:.1f} s: {what}")
                print(wrong[-1], flush=True)
            if counts.total() % 10 == 0:
                print(f"{counts.total()} kills, {whole} runs to their end, {len(wrong)} wrong", flush=True)
    print(*(f"{times} × {name}" for name, times in sorted(counts.items())), sep="\n")
    print(f"{counts.total()} kills, {whole} runs to their end, {len(wrong)} wrong, {time.monotonic() - begun:.0f} s")
    print(*wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
