"""The same bytes everywhere: the minimal config run plainly, and run with everything different that may not matter.

The second run has another number of cores and of OpenMP threads, another seed of Python's hashes, another time zone and
locale, and a folder whose name has spaces, quotes and other letters. Timings differ, and so does what shows them: the
page; `provenance.json` records the machine.
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from conftest import copy_project, snakemake

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
    shows_time = ("results/timing/", "results/provenance.json", "results/report.html")
    held = [path for path in one if not path.startswith(shows_time)]
    differ = [path for path in held if one[path] != other.get(path)]
    print(f"{len(held)} files held against each other, {len(differ)} differ", *differ, sep="\n")
    return bool(differ) or one.keys() != other.keys()


if __name__ == "__main__":
    sys.exit(main())
