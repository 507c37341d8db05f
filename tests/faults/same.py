"""The same bytes everywhere: the minimal config run plainly, and run with everything different that may not matter.

The second run has another number of cores and of OpenMP threads, another seed of Python's hashes, another time zone and
locale, and a folder whose name has spaces, quotes and other letters. Timings differ, and so do the page, which shows
them, `provenance.json`, which records the machine, the RO-Crate, which repeats it, and the seals of what is a timing or
was made from one.
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from conftest import copy_project, snakemake

SHOWING = ("timing/", "report.html", "provenance.json", "ro-crate-metadata.json")
SHOW_TIMES = tuple(f"results/{folder}{name}" for folder in ("", "seals/") for name in SHOWING)
# Which name the timings, and the record of them, that they have read.
SHOW_TIMES += ("results/seals/summary.txt.json", "results/seals/workflow.smk.json")
RUNS = {
    "plain": ("1", {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8"}),
    "a folder’s $name, 'quoted'": (
        "8",
        {"OMP_NUM_THREADS": "3", "PYTHONHASHSEED": "4711", "TZ": "Asia/Kathmandu", "LC_ALL": "C", "PYTHONUTF8": "0"},
    ),
}


def made(folder, cores, variables):
    """What a run in `folder` makes, as {path: bytes}."""
    folder.mkdir()
    begun = time.monotonic()
    done = snakemake(copy_project(folder), "--configfile", "config.minimal.yaml", cores=cores, limit=3600, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    paths = sorted(path.relative_to(folder) for path in (folder / "results").rglob("*") if path.is_file())
    print(f"{folder.name}: {len(paths)} files, {time.monotonic() - begun:.0f} s", flush=True)
    return {str(path): (folder / path).read_bytes() for path in paths}


def main():
    with tempfile.TemporaryDirectory() as parent:
        one, other = (made(Path(parent, name), *how) for name, how in RUNS.items())
    held = [path for path in one if not path.startswith(SHOW_TIMES)]
    differ = [path for path in held if one[path] != other.get(path)]
    print(f"{len(held)} files held against each other, {len(differ)} differ", *differ, sep="\n")
    return bool(differ) or one.keys() != other.keys()


if __name__ == "__main__":
    sys.exit(main())
