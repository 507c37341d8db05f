"""`transformer-ledger verify RESULTS`: whether a results folder is what its record says, wherever it was made.

Nothing runs and nothing is fetched. Each file is compared with its seal in provenance.json, each entry of the record with
its own hashes, and the code and packages of each file with those of this checkout.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from transformer_ledger import fingerprint, jobs, seals

UNRECORDED = tuple(path for job in jobs.LAST for path in jobs.outputs(job))  # their seals alone tell
RECORD = UNRECORDED[0]
FOREIGN = "README.md"  # tracked, made by no job
# kind of finding: (title of its lines where one stands for many files, what to do)
KINDS = {
    "missing": ("", "run snakemake in this folder's project, and it is made; or copy it again"),
    "changed": ("", "run snakemake in this folder's project, and it is made anew; or copy it again"),
    "extra": ("", "no job of this record made it: move it away"),
    "code": ("made by other code than this checkout's", "run snakemake, or check out the code that made them"),
    "package": ("made with other packages than these", "install the versions that are named, or run snakemake"),
}
SHOWN = 5  # differences of code and of packages
EPILOG = """exit code: 0 whole, and made by the code of this checkout;  1 a file is missing, changed or extra;
2 no record to compare it with;  3 whole, but made by other code or other packages"""


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be: a key of KINDS, the file in the folder, and in words what is wrong."""

    kind: str
    name: str
    why: str = ""


def load(results: Path) -> dict[str, Any]:
    """The outputs of a folder's record, {path: seal}. Raises OSError or seals.Fault where there is none to trust."""
    seals.check(RECORD, results)
    outputs = json.loads((results / "provenance.json").read_text(encoding="utf-8")).get("outputs")
    if not isinstance(outputs, dict) or not all(map(seals.whole, outputs.values())):
        raise seals.Fault("not a record of this version")
    return outputs


def _entry(record: Mapping[str, Any], path: str) -> Iterator[str]:
    """What is wrong with the record of one file, in itself."""
    entry = record[path]
    spec = {key: value for key, value in entry.items() if key not in ("digest", *seals.MEASURED)}
    if hashlib.sha256(jobs.canonical(spec).encode()).hexdigest() != entry["digest"]:
        yield "its settings, code and packages in the record are not those of its digest"
    if seals.settings_hash(entry["settings"]) != entry["settings_sha256"]:
        yield "its settings in the record are not those of their hash"
    for read, digest in entry["inputs"].items():
        other = record.get(read, {})
        if (other.get("digest"), other.get("content_sha256")) != (digest, entry["read"].get(read)):
            yield f"made from another {read} than the record has"


def _file(results: Path, path: str, seal: Mapping[str, Any] | None, record: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong with one file, held against the record's seal of it or, where that is None, against its own."""
    name = path.removeprefix("results/")
    try:
        seals.check(path, results, seal)
        if seal is not None and seals.read(path, results) != seal:
            yield Finding("changed", f"{seals.FOLDER}/{name}.json", "not the seal in the record")
    except FileNotFoundError:
        yield Finding("missing", name)
    except OSError as error:
        yield Finding("changed", name, str(error.strerror))
    except seals.Fault as fault:
        own = seals.digest(results / name)
        same = [other for other, entry in record.items() if entry["content_sha256"] == own]
        now = seals.read(path, results)
        if same:
            why = f"is {same[0]}"
        elif seal and now.get("content_sha256") == own:
            why = "of another run with the same settings" if now["digest"] == seal["digest"] else seals.OTHER
        else:
            why = str(fault)
        yield Finding("changed", name, why)


def _other(results: Path, path: str, record: Mapping[str, Any]) -> list[Finding]:
    """What a file that is not in the record was made from, and that is neither in the record nor the record."""
    known = {**record, RECORD: seals.read(RECORD, results)}
    read = seals.read(path, results).get("read", {})
    others = [name for name, digest in read.items() if known.get(name, {}).get("content_sha256") != digest]
    return [Finding("changed", path.removeprefix("results/"), f"made from another {name}") for name in others]


@cache
def _here(job: str, module: str) -> tuple[str, str | None, dict[str, str]]:
    """Code, other files and packages of a job in this checkout."""
    roots = (jobs.MAIN, f"{fingerprint.PACKAGE}.{module}")
    parts = jobs.parts(job)
    return fingerprint.sources(*roots), fingerprint.content(*parts) if parts else None, fingerprint.packages(*roots)


def _code(name: str, entry: Mapping[str, Any]) -> Iterator[Finding]:
    """How what made a file differs from this checkout."""
    sources, files, packages = _here(entry["job"], entry["module"])
    if (entry["sources"], entry.get("files")) != (sources, files):
        yield Finding("code", name, f"job {entry['job']}")
    for package, version in entry["packages"].items():
        if packages.get(package) != version:
            yield Finding("package", name, f"{package} {version}, here {packages.get(package) or 'none'}")


def findings(results: Path) -> list[Finding]:
    """Everything in `results` that is not as its record or this checkout has it; where the record is, as the seals have it.

    OSError where there is neither a record nor a seal.
    """
    found = []
    try:
        record = load(results)
    except (OSError, seals.Fault) as error:
        sealed = sorted((results / seals.FOLDER).rglob("*.json"))
        paths = [f"results/{path.relative_to(results / seals.FOLDER).with_suffix('')}" for path in sealed]
        record = {path: seal for path in paths if path not in UNRECORDED and (seal := seals.read(path, results))}
        if not record:
            raise
        missing = isinstance(error, FileNotFoundError)
        found.append(Finding("missing" if missing else "changed", "provenance.json", "" if missing else str(error)))
    for path, entry in sorted(record.items()):
        name = path.removeprefix("results/")
        here = [Finding("changed", name, why) for why in _entry(record, path)]
        found += here or [*_file(results, path, entry, record)] or [*_code(name, entry)]
    asked = [path for path in jobs.outputs(jobs.ASKED) if seals.place(path, results).exists()]
    for path in (*UNRECORDED[1:], *asked):
        found += [*_file(results, path, None, record)] or _other(results, path, record)
    files = {path.removeprefix("results/") for path in (*record, *UNRECORDED, *asked)}
    known = {FOREIGN, *files, *(f"{seals.FOLDER}/{name}.json" for name in files)}
    there = {path.relative_to(results).as_posix() for path in results.rglob("*") if not path.is_dir()}
    return found + [Finding("extra", name) for name in sorted(there - known)]


def text(results: Path, found: list[Finding]) -> str:
    """What was found, a line a file, and then what to do; files of other code or packages in one line."""
    lines = []
    for kind, (title, remedy) in KINDS.items():
        of = [one for one in found if one.kind == kind]
        whys = sorted({one.why for one in of})
        if title and of:
            more = f" and {len(whys) - SHOWN} more" if len(whys) > SHOWN else ""
            lines.append(f"{title}: {len({one.name for one in of})} files ({'; '.join(whys[:SHOWN])}{more})")
        else:
            lines += [f"{kind:8} {one.name}{': ' if one.why else ''}{one.why}" for one in of]
        lines += [f"         → {remedy}"] if of else []
    return "\n".join(lines or [f"{results}: every file is as its record says, and made by the code of this checkout"])


def main(arguments: list[str]) -> int:
    """The command; see EPILOG for what it returns."""
    parser = argparse.ArgumentParser(
        prog="transformer-ledger verify",
        description="Hold a results folder against its record, its seals and this checkout.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("results", type=Path, nargs="?", default=Path("results"), help="the folder (default: results)")
    results = parser.parse_args(arguments).results
    try:
        found = findings(results)
    except (OSError, seals.Fault) as error:
        print(f"{results / 'provenance.json'}: {getattr(error, 'strerror', None) or error}; run snakemake to make it")
        return 2
    print(text(results, found))
    if any(not KINDS[one.kind][0] for one in found):
        return 1
    return 3 if found else 0
