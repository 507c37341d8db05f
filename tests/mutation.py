"""make mutants: put one fault at a time into the code, run the jobs it concerns, and see whether the run notices.

A fault is noticed where the run itself says so: a claim whose verdict is another than registered, a control that no
longer breaks, a ledger that differs, a case outside its bound. A job that crashes has noticed nothing. The faults are
data: tests/mutants/*.yaml, one list entry each.
"""

from __future__ import annotations

import argparse
import json
import queue
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from conftest import copy_project, snakemake  # noqa: E402

from transformer_ledger import summary, tables  # noqa: E402
from transformer_ledger.claims import table as claims  # noqa: E402

TABLE = ROOT / "docs/mutants.md"
OUTCOMES = ROOT / "tests/mutants/outcomes.json"  # {name: [outcome, who noticed]}
STATE = ("results", ".snakemake")  # what a run leaves, put back after each fault


@dataclass(frozen=True)
class Mutant:
    """One fault: in `file` the text `find`, which stands there once, becomes `replace`; `jobs` are the files to remake.

    `equivalent` says why no figure can change. `ci` marks the few that the test suite runs, with the minimal config.
    """

    name: str
    file: str
    find: str
    replace: str
    jobs: tuple[str, ...]
    equivalent: str = ""
    ci: bool = False

    def applied(self, text: str) -> str:
        """The file's text with the fault in it. ValueError where `find` does not stand there exactly once."""
        if text.count(self.find) != 1:
            raise ValueError(f"{self.name}: {self.find!r} stands {text.count(self.find)} times in {self.file}")
        return text.replace(self.find, self.replace)


def mutants(folder: Path = ROOT / "tests/mutants") -> list[Mutant]:
    """All faults, by file and order. ValueError for an unknown key or a name that is used twice."""
    known = {field.name for field in fields(Mutant)}
    found: dict[str, Mutant] = {}
    for path in sorted(folder.glob("*.yaml")):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8")) or []:
            if set(entry) - known:
                raise ValueError(f"{path.name}: {entry['name']}: unknown keys {sorted(set(entry) - known)}")
            if entry["name"] in found:
                raise ValueError(f"{path.name}: two faults are called {entry['name']!r}")
            found[entry["name"]] = Mutant(**entry | {"jobs": tuple(entry["jobs"])})
    return list(found.values())


def noticed(folder: Path) -> list[str]:
    """What the tables of `folder` say against the code: the lines under `surprises` of a summary made from them."""
    rows: dict[str, dict[str, list[dict[str, object]]]] = {}
    for path in sorted((folder / "results").rglob("*.parquet")):
        kind = path.relative_to(folder / "results").parts[0].removesuffix(".parquet")
        rows.setdefault(kind, {})[path.stem] = tables.read(path)
    rows["claims"] = {"claims": claims.compute(verification=rows["verification"])}
    return summary.surprises(**{kind: rows.get(kind, {}) for kind in summary.READS})


def tried(mutant: Mutant, folder: Path, baseline: Path, *arguments: str) -> tuple[str, list[str]]:
    """Run one fault in `folder`, a copy of the project: (noticed, survived or crashed, what was said).

    `baseline` is a folder with the results of the code without the fault; `arguments` go to Snakemake.
    """
    for part in STATE:
        shutil.rmtree(folder / part, ignore_errors=True)
        shutil.copytree(baseline / part, folder / part)
    source = folder / mutant.file
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    source.write_text(mutant.applied(text), encoding="utf-8")
    try:
        done = snakemake(folder, *mutant.jobs, *arguments, cores="1")
        if done.returncode:
            return "crashed", [(done.stderr or done.stdout).strip()[-300:]]
        said = noticed(folder)
        return ("noticed" if said else "survived"), said
    except subprocess.TimeoutExpired:
        return "crashed", ["ran out of time"]
    finally:
        source.write_text(text, encoding="utf-8")


def table(outcomes: dict[str, tuple[str, str]]) -> str:
    """The Markdown of docs/mutants.md: `outcomes` gives for each fault's name (noticed, survived or crashed, who noticed)."""
    faults = mutants()
    missed = survivors(outcomes)
    equivalent = sum(bool(mutant.equivalent) for mutant in faults)
    lines = [
        "# Mutants",
        "",
        "Each line is one fault that `make mutants` put into the code, alone. The run noticed it where a claim got another "
        "verdict, a sabotage was not caught, a ledger differed or a case left its bound. A crash counts as not noticed.",
        "",
        f"{len(faults)} faults: {len(faults) - equivalent - len(missed)} noticed, {equivalent} equivalent (no figure can "
        f"change), {len(missed)} not noticed.",
        "",
        "| name | file | change | who noticed |",
        "|---|---|---|---|",
    ]
    for mutant in faults:
        outcome, who = outcomes.get(mutant.name, ("not tried", ""))
        change = f"`{_cell(mutant.find)}` → `{_cell(mutant.replace)}`"
        verdict = f"equivalent: {mutant.equivalent}" if mutant.equivalent else who if outcome == "noticed" else outcome
        lines.append(f"| {mutant.name} | {mutant.file} | {change} | {_cell(verdict)} |")
    return "\n".join(lines) + "\n"


def in_short(said: list[str]) -> str:
    """The first three of the lines that noticed a fault, none of them long, and how many more there were."""
    return "; ".join(line[:160] for line in said[:3]) + (f"; {len(said) - 3} more" if len(said) > 3 else "")


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("`", "'").split())


def survivors(outcomes: dict[str, tuple[str, str]]) -> dict[str, str]:
    """What came of each fault that should have been noticed and was not, of equivalent ones that were; or `not tried`."""
    found = {mutant.name: (outcomes.get(mutant.name, ("not tried", ""))[0], mutant.equivalent) for mutant in mutants()}
    return {name: got for name, (got, same) in found.items() if got != ("survived" if same else "noticed")}


def recorded() -> dict[str, tuple[str, str]]:
    """The outcomes of all faults that were tried before."""
    return json.loads(OUTCOMES.read_text(encoding="utf-8")) if OUTCOMES.exists() else {}


def record(tried_now: dict[str, tuple[str, str]]) -> dict[str, str]:
    """Put what was tried into the record, write docs/mutants.md from it, and return the survivors."""
    names = {mutant.name for mutant in mutants()}
    outcomes = {name: outcome for name, outcome in {**recorded(), **tried_now}.items() if name in names}
    OUTCOMES.write_text(json.dumps(outcomes, indent=0, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    TABLE.write_text(table(outcomes), encoding="utf-8")
    return survivors(outcomes)


def main() -> int:
    """Run all faults, or those named, two at a time; put the outcomes into the record and write docs/mutants.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="faults, or beginnings of their names (default: all)")
    parser.add_argument("--missing", action="store_true", help="only those that the record does not have as noticed")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--baseline", type=Path, default=ROOT, help="folder whose results/ were made by this code")
    options = parser.parse_args()
    wanted = [m for m in mutants() if not options.names or m.name.startswith(tuple(options.names))]
    if options.missing:
        wanted = [mutant for mutant in wanted if mutant.name in survivors(recorded())]
    if not (options.baseline / "results/summary.txt").exists():
        parser.error(f"{options.baseline} holds no finished run: run snakemake --cores 8 first")
    if before := noticed(options.baseline):
        parser.error("the run without a fault has surprises already: " + "; ".join(before))
    scratch = options.baseline / ".mutants"
    shutil.rmtree(scratch, ignore_errors=True)
    free: queue.Queue[Path] = queue.Queue()
    for number in range(options.workers):
        folder = scratch / str(number)
        folder.mkdir(parents=True)
        free.put(copy_project(folder))
    started, done = time.monotonic(), 0

    def run(mutant: Mutant) -> tuple[Mutant, str, list[str]]:
        nonlocal done
        folder = free.get()
        try:
            outcome, said = tried(mutant, folder, options.baseline)
        finally:
            free.put(folder)
        done += 1
        left = (time.monotonic() - started) / done * (len(wanted) - done)
        print(
            f"{done} of {len(wanted)}, about {left:.0f} s left: {outcome}: {mutant.name}: {'; '.join(said)[:200]}",
            flush=True,
        )
        return mutant, outcome, said

    with ThreadPoolExecutor(options.workers) as pool:
        outcomes = {mutant.name: (outcome, in_short(said)) for mutant, outcome, said in pool.map(run, wanted)}
    shutil.rmtree(scratch)
    bad = record(outcomes)
    print(*(f"{name}: {outcome}" for name, outcome in bad.items()), sep="\n", end="\n" if bad else "no survivor\n")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
