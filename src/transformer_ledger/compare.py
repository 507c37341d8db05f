"""`transformer-ledger compare OLD NEW`: what moved between two results folders, exactly.

Settings, code and packages come from the folders' records; verdicts, figures, bounds and timings from their tables.
Counts and bytes are compared as integers. A bound is compared with the other, and what was measured is said to have
moved where it moved by more than its bound; a timing where the quartiles of the two do not overlap.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from transformer_ledger import seals, tables, verify
from transformer_ledger.jobs import canonical

Row = dict[str, Any]
Keyed = dict[str, Mapping[str, Any]]
# table: (columns that name a row, figures that are compared)
LEDGERS = {
    "ledger/parameters": (("model", "component", "bias"), ("parameters", "active_parameters")),
    "ledger/training_state": (("model", "recipe", "item"), ("bytes", "bytes_per_device")),
    "ledger/kv_cache": (("model", "workload", "dtype", "policy"), ("bytes", "bytes_per_token")),
    "ledger/matmul": (("model", "workload", "phase", "component", "convention"), ("flops",)),
    "ledger/training_compute": (("model", "run"), ("parameters", "tokens", "flops_6nd", "flops_exact")),
    "ledger/activations": (
        ("model", "workload", "implementation", "dtype", "method", "checkpointed", "dropout", "scope", "kind"),
        ("bytes",),
    ),
    "ledger/fit": (
        ("model", "device", "question", "dtype", "cache_dtype", "policy", "workload", "recipe"),
        ("answer", "bytes"),
    ),
    "ledger/layout": (("model", "layout", "phase", "item"), ("bytes",)),
    "ledger/agreement": (("model", "implementation", "quantity", "workload", "phase", "policy"), ("ledger",)),
    "ledger/conventions": (("model", "quantity", "workload", "convention"), ("value",)),
}
BOUNDS = {
    "verification": (
        ("claim", "case", "leg", "scope", "route", "backend", "quantity", "parameters"),
        ("expected", "lower", "upper", "holds"),
    ),
    "experiment/rope_dot_product": (("case", "pairing", "head_dim", "base", "dtype", "m", "n"), ("bound", "holds")),
    "experiment/blocked_softmax": (
        ("case", "keys", "blocks", "order", "dtype", "pass", "quantity"),
        ("bound", "holds"),
    ),
    "experiment/decoder": (("case", "family", "switch", "quantity", "other"), ("bound", "holds")),
    "study/attention": (("case", "length", "dtype", "logits", "method", "tensor"), ("allowed_ratio", "holds")),
    "study/classification": (("key",), ("bound", "decided")),
    "study/extension": (("variant", "budget", "share"), ("distinguishable", "holds")),
}
TIMING = ("case", "part", "parameters")
OWN = ("verification", "experiment", "timing", "study")  # kinds whose settings are their own
KINDS = {
    "setting": "settings",
    "code": "jobs of other code",
    "package": "packages",
    "file": "files",
    "verdict": "verdicts",
    "ledger": "ledger figures",
    "bound": "bounds and outcomes",
    "timing": "timings beyond their spread",
}
CHANGED, MOVED = ("setting", "code", "package", "file"), ("verdict", "ledger", "bound", "timing")
SHOWN = 5


class Folder:
    """A results folder: its record, and its tables where they are as they were written."""

    def __init__(self, path: Path):
        """TableError, naming the file, where there is no record or it is damaged."""
        self.path = path
        try:
            self.record = verify.load(path)
        except (OSError, seals.Fault) as error:
            raise tables.TableError(f"{path}/provenance.json: {getattr(error, 'strerror', None) or error}") from None
        self.jobs = {entry["job"]: entry for entry in self.record.values()}

    def rows(self, name: str, key: Sequence[str]) -> Keyed:
        """The rows of a table by the JSON text of what names them; rows of one name are numbered."""
        path = f"results/{name}.parquet"
        if path not in self.record:
            return {}
        try:
            seals.check(path, self.path, self.record[path])
        except (OSError, seals.Fault) as error:
            raise tables.TableError(
                f"{self.path}/{name}.parquet: {getattr(error, 'strerror', None) or error}"
            ) from None
        seen: Counter[str] = Counter()
        out: Keyed = {}
        for row in tables.read(self.path / f"{name}.parquet"):
            named = {column: row[column] for column in key if row.get(column) is not None}
            seen[canonical(named)] += 1
            again = seen[canonical(named)]
            out[canonical({**named, **({"repeat": again} if again > 1 else {})})] = row
        return out


def _row(kind: str, table: str, row: str, column: str, old: Any, new: Any) -> Row:
    made: Row = {"kind": kind, "table": table, "row": row, "column": column}
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (old, new))
    if numbers and all(abs(value) < float("inf") for value in (old, new)):  # nan and inf have no exact difference
        change = Fraction(new) - Fraction(old)
        made |= {"change": str(change), "ratio": float(Fraction(new) / Fraction(old)) if old else None}
    text = [value if isinstance(value, str) or value is None else str(value) for value in (old, new)]
    return {**made, "old": text[0], "new": text[1]}


def _flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{key}.{name}" if key else str(name))
    else:
        yield key, value if isinstance(value, (int, float, str)) else canonical(value)


def _settings(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a job by dotted keys, as in the config."""
    kind, _, name = entry["job"].partition("/")
    out = {}
    for key, value in _flat(entry["settings"]):
        if kind == "execution" and key.split(".")[0] in ("model", "hf_config"):
            key = f"models.{name}.{key.removeprefix('model.')}"
        elif kind in OWN and key.split(".")[0] != "models":
            key = f"{kind}.{name}.{key}"
        out[key] = value
    return out


def _made(old: Folder, new: Folder) -> Iterator[Row]:
    """Files, settings, code and packages that differ."""
    for path in sorted(old.record.keys() ^ new.record.keys()):
        there = ("there", None) if path in old.record else (None, "there")
        yield _row("file", path.removeprefix("results/"), "", "", *there)
    changed: dict[tuple[str, Any, Any], list[str]] = {}
    for job in sorted(old.jobs.keys() & new.jobs.keys() - {"provenance"}):
        before, after = _settings(old.jobs[job]), _settings(new.jobs[job])
        for key in sorted(before.keys() | after.keys()):
            if before.get(key) != after.get(key):
                changed.setdefault((key, before.get(key), after.get(key)), []).append(job)
        one, other = old.jobs[job], new.jobs[job]
        for column in ("sources", "files"):
            if one.get(column) != other.get(column):
                yield _row("code", job, "", column, one.get(column), other.get(column))
    for (key, before_, after_), found in changed.items():
        yield _row("setting", ", ".join(found), key, "", before_, after_)
    packages = [_packages(side) for side in (old, new)]
    for name in sorted(packages[0].keys() | packages[1].keys()):
        versions = [side.get(name) for side in packages]
        if versions[0] != versions[1]:
            yield _row("package", "", name, "version", *versions)


def _packages(side: Folder) -> dict[str, str]:
    """The versions of each package that made files of a folder."""
    every: dict[str, set[str]] = {}
    for entry in side.record.values():
        for name, version in entry["packages"].items():
            every.setdefault(name, set()).add(version)
    return {name: " and ".join(sorted(versions)) for name, versions in every.items()}


def _pairs(old: Folder, new: Folder, name: str, key: Sequence[str]) -> Iterator[tuple[str, Any, Any]]:
    """Rows of a table by name, in either folder; nothing where the two tables are the same file."""
    path = f"results/{name}.parquet"
    before, after = (side.record.get(path, {}).get("content_sha256") for side in (old, new))
    if before == after:
        return
    rows = [old.rows(name, key), new.rows(name, key)]
    for named in dict.fromkeys([*rows[0], *rows[1]]):
        yield named, rows[0].get(named), rows[1].get(named)


def _figures(
    kind: str, old: Folder, new: Folder, name: str, key: Sequence[str], columns: Sequence[str]
) -> Iterator[Row]:
    for named, before, after in _pairs(old, new, name, key):
        if before is None or after is None:
            gone = ("there", None) if after is None else (None, "there")
            yield _row(kind, name, named, "row", *gone)
            continue
        for column in columns:
            if before.get(column) != after.get(column):
                yield _row(kind, name, named, column, before.get(column), after.get(column))
        limit = max(abs(row.get("expected") or 0.0) for row in (before, after))
        if before.get("leg") == "floating" and abs(after["measured"] - before["measured"]) > limit:
            yield _row(kind, name, named, "measured", before["measured"], after["measured"])


def _timings(old: Folder, new: Folder, name: str) -> Iterator[Row]:
    for named, before, after in _pairs(old, new, name, TIMING):
        if before and after:
            apart = before["q3_seconds"] < after["q1_seconds"] or after["q3_seconds"] < before["q1_seconds"]
            if apart:
                yield _row("timing", name, named, "median_seconds", before["median_seconds"], after["median_seconds"])


def moved(old: Folder, new: Folder) -> list[Row]:
    """Rows of the table `compare`: everything that differs between two results folders."""
    found = list(_made(old, new))
    for named, before, after in _pairs(old, new, "claims", ("claim",)):
        verdicts = [row["verdict"] if row else None for row in (before, after)]
        if verdicts[0] != verdicts[1]:
            found.append(_row("verdict", "claims", named, "verdict", *verdicts))
    for name, (key, columns) in LEDGERS.items():
        found += _figures("ledger", old, new, name, key, (*columns, "difference"))  # from what it was compared with
    files = sorted(path.removeprefix("results/").removesuffix(".parquet") for path in old.record.keys() | new.record)
    for name in files:
        if bounds := BOUNDS.get(name) or BOUNDS.get(name.split("/")[0]):
            found += _figures("bound", old, new, name, *bounds)
        elif name.startswith("timing/"):
            found += _timings(old, new, name)
    return found


def _said(row: Row) -> str:
    """One change in a line."""
    named = row["row"]
    if named.startswith("{"):
        named = " ".join(str(value) for value in json.loads(named).values())
    old, new = (text if text is None or len(text) <= 40 else f"{text[:39]}…" for text in (row["old"], row["new"]))
    if "there" in (row["old"], row["new"]):
        change = "gone" if row["new"] is None else "new"
    else:
        change = f"{old} → {new}"
        if row.get("ratio") is not None and row["kind"] in ("ledger", "timing"):
            change += f" (×{row['ratio']:.4g})"
    column = "" if row["column"] in ("verdict", "row", "sources", "version") else row["column"]
    table = row["table"] if row["kind"] not in ("setting", "verdict", "package") else ""
    return " ".join(filter(None, (table, named, column, change)))


def _largest(rows: list[Row]) -> list[Row]:
    """The rows with the greatest ratios first, up or down; those without one as they come."""
    return sorted(rows, key=lambda row: -max(ratio, 1 / ratio) if (ratio := row.get("ratio") or 0) > 0 else 0)


def text(rows: list[Row], shown: int = SHOWN) -> str:
    """What moved, by kind, the largest changes of each kind first."""
    lines = []
    for kind, words in KINDS.items():
        if found := [row for row in rows if row["kind"] == kind]:
            lines.append(f"{words}: {len(found):,}")
            lines += [f"  {_said(row)}" for row in _largest(found)[:shown]]
            lines += [f"  and {len(found) - shown:,} more"] if len(found) > shown else []
    return "\n".join(lines or ["nothing moved"])


def html(rows: list[Row], old: Path, new: Path) -> str:
    """The same as a page of its own in the report's style."""
    from transformer_ledger.report import moved as shown

    of = {kind: [row for row in rows if row["kind"] == kind] for kind in (*MOVED, *CHANGED)}
    return shown.compute({kind: (KINDS[kind], _largest(found)) for kind, found in of.items()}, str(old), str(new))


def brief(rows: list[Row], where: str) -> str:
    """The same in three lines at most: what was changed, what moved, and where to read more."""
    counts = Counter(row["kind"] for row in rows)

    def line(begin: str, kinds: Sequence[str]) -> str:
        parts = [f"{KINDS[kind]} ({counts[kind]:,})" for kind in kinds if counts[kind]]
        return f"  {begin}: {', '.join(parts) or 'nothing'}"

    if not rows:
        return "  against the run before: nothing moved"
    return "\n".join(
        [
            line("changed since the run before", CHANGED),
            line("moved", MOVED),
            f"  where: {where}",
        ]
    )


def keep(results: Path, logs: Path) -> str:
    """Compare `results` with the run before, whose tables lie in `logs`, write what moved, keep these tables instead.

    Returns the few lines for the end of a run; empty after the first run.
    """
    import shutil

    before, said = logs / "before", ""
    if (before / "provenance.json").exists():
        rows = moved(Folder(before), Folder(results))
        tables.write(logs / "compare.parquet", "compare", rows, {})
        tables.write_bytes(logs / "compare.txt", text(rows, 40) + "\n")
        said = brief(rows, f"{logs}/compare.txt and {logs}/compare.parquet")
    shutil.rmtree(before, ignore_errors=True)
    record = "provenance.json"
    kept = [path for path in results.rglob("*.parquet") if not path.is_relative_to(results / "sweep")]
    for path in (*kept, results / record, seals.place(record, results)):
        target = before / path.relative_to(results)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return said


def main(arguments: list[str]) -> int:
    """The command: 0 where nothing moved, 1 where something did, 2 where a folder cannot be read."""
    parser = argparse.ArgumentParser(
        prog="transformer-ledger compare",
        description="What moved between two results folders: settings, code, verdicts, figures, bounds, timings.",
        epilog="exit code: 0 nothing moved;  1 something did;  2 a folder cannot be read.  Results are not kept in git: "
        "to compare with a revision, run it in a worktree of its own.",
    )
    parser.add_argument("old", type=Path, help="the older results folder")
    parser.add_argument("new", type=Path, nargs="?", default=Path("results"), help="the newer one (default: results)")
    parser.add_argument("--parquet", type=Path, metavar="FILE", help="write every change as a table")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write them as a page")
    parser.add_argument("--all", action="store_true", help=f"print every change, not {SHOWN} of a kind")
    options = parser.parse_args(arguments)
    try:
        rows = moved(Folder(options.old), Folder(options.new))
        if options.parquet:
            tables.write(options.parquet, "compare", rows, {})
        if options.html:
            tables.write_bytes(options.html, html(rows, options.old, options.new))
    except tables.TableError as error:
        print(error, file=sys.stderr)
        return 2
    print(text(rows, len(rows) if options.all else SHOWN))
    return int(bool(rows))
