"""What each job costs: every job of config.yaml run several times as a process of its own, median and spread.

`make bench` prints processor seconds and wall seconds a job, the dearest first. It writes into a temporary folder.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from transformer_ledger import jobs  # noqa: E402
from transformer_ledger.config import load  # noqa: E402

THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def cost(command: list[str], folder: Path) -> tuple[float, float]:
    """Processor and wall seconds of one process."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, env=os.environ | THREADS | {"PYTHONPATH": str(ROOT / "src")})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--jobs", nargs="*", help="only these, as ledger/matmul")
    options = parser.parse_args()
    os.chdir(ROOT)
    config = load(yaml.safe_load(Path("config.yaml").read_text(encoding="utf-8")), [Path("config.yaml")])
    plan = jobs.Plan(config)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if Path("results").is_dir():
            shutil.copytree("results", folder / "results")
        rows = []
        for job in options.jobs or plan.names:
            spec = folder / "spec.json"
            spec.write_text(jobs.canonical(plan.spec(job)), encoding="utf-8")
            command = [sys.executable, "-m", "transformer_ledger", "--spec", str(spec), "--output", *jobs.outputs(job)]
            times = [cost(command, folder) for _ in range(options.repeats)]
            rows.append((job, [used for used, _ in times], [wall for _, wall in times]))
            print(".", end="", file=sys.stderr, flush=True)
    print(f"\n{'job':38} {'processor s':>24} {'wall s':>24}   median (least – most) of {options.repeats}")
    for job, used, wall in sorted(rows, key=lambda row: -statistics.median(row[1])):
        shown = [f"{statistics.median(x):7.2f} ({min(x):.2f} – {max(x):.2f})" for x in (used, wall)]
        print(f"{job:38} {shown[0]:>24} {shown[1]:>24}")
    print(f"{'all, processor':38} {sum(statistics.median(used) for _, used, _ in rows):7.2f}")


if __name__ == "__main__":
    main()
