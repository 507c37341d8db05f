"""The minimal config run here, and on a real Slurm of one node: the same bytes, but for what shows the time or the machine.

`python tests/cluster/run.py TARGET …` runs only what the targets need.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
import slurm  # noqa: E402
from conftest import copy_project, snakemake  # noqa: E402
from faults.same import SHOW_TIMES  # noqa: E402


def made(folder: Path, *arguments: str, **variables: str) -> dict[str, bytes]:
    """What a run in `folder` makes, as {path: bytes}."""
    folder.mkdir()
    begun = time.monotonic()
    given = [*sys.argv[1:], "--configfile", "config.minimal.yaml", *arguments]
    done = snakemake(copy_project(folder), *given, limit=3000, **variables)
    (folder / "log").write_text(done.stdout + done.stderr, encoding="utf-8")
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    submitted = (done.stdout + done.stderr).count("has been submitted with SLURM jobid")
    paths = sorted(path.relative_to(folder) for path in (folder / "results").rglob("*") if path.is_file())
    print(f"{folder.name}: {len(paths)} files, {submitted} jobs of Slurm, {time.monotonic() - begun:.0f} s", flush=True)
    return {str(path): (folder / path).read_bytes() for path in paths}


def main() -> int:
    if lacking := slurm.missing():
        print(f"missing: {', '.join(lacking)} (Debian: apt-get install slurm-wlm munge)", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as parent:
        here = made(Path(parent, "here"))
        with slurm.cluster() as environment:
            variables = {name: environment[name] for name in ("SLURM_CONF", "PATH")}
            there = made(Path(parent, "slurm"), "--profile", "profiles/slurm", PYTHONPATH="", **variables)
    held = [path for path in here if not path.startswith(SHOW_TIMES)]
    differ = [path for path in held if here[path] != there.get(path)]
    print(f"{len(held)} files compared, {len(differ)} differ", *differ, sep="\n")
    return int(bool(differ) or here.keys() != there.keys())


if __name__ == "__main__":
    os.environ.pop("SLURM_JOB_ID", None)
    sys.exit(main())
