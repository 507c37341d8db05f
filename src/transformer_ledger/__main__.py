"""The jobs' command line: the only place that reads arguments and writes files.

Every job gets one canonical JSON object, its spec: {"settings": …, "sources": …, "packages": …}. It reads nothing else
but its input tables, and it stores the spec in what it writes.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import Any

from transformer_ledger import tables


def _inputs(paths: list[str], expected: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Rows of every input table; refuses, by name, a file made with other settings or sources than `expected` says."""
    rows = {}
    for path in paths:
        wanted = expected.get(path)
        if wanted is not None and tables.read_metadata(path).get("digest") != wanted:
            raise tables.TableError(f"{path}: made with other settings or sources; delete it and run snakemake again")
        rows[path] = tables.read(path)
    return rows


def _call(function: Any, settings: dict[str, Any], inputs: dict[str, Any]) -> Any:
    """Call a job's function with its settings and with those input tables that its signature asks for by kind."""
    accepted = inspect.signature(function).parameters
    given: dict[str, Any] = {}
    for kind in ("execution", "verification", "ledger", "experiment", "claims", "timing", "study"):
        if kind in accepted:
            found = {path: rows for path, rows in inputs.items() if Path(path).parts[1].removesuffix(".parquet") == kind}
            given[kind] = {Path(path).stem: rows for path, rows in found.items()}
    return function(**settings, **given)


def main(arguments: list[str] | None = None) -> int:
    """Run one job. Exit code 1 with one message where an input cannot be trusted."""
    parser = argparse.ArgumentParser(prog="transformer_ledger", description=__doc__)
    parser.add_argument("module", help="module of the job, as ledger.parameters or verification.head_count")
    parser.add_argument("--spec", required=True, help="the job's canonical JSON")
    parser.add_argument("--input", nargs="*", default=[], help="input tables")
    parser.add_argument("--output", nargs="+", required=True, help="files to write")
    options = parser.parse_args(arguments)
    spec = json.loads(options.spec)
    try:
        module = importlib.import_module(f"transformer_ledger.{options.module}")
        inputs = _inputs(options.input, spec.get("inputs", {}))
        made = _call(module.compute, spec["settings"], inputs)
        for path in options.output:
            name = path.removeprefix("results/").removesuffix(".parquet")
            if not path.endswith(".parquet"):
                tables.write_text(path, made[path] if isinstance(made, dict) else made)
                continue
            kind = name if name in tables.TABLES else name.split("/")[0]
            tables.write(path, kind, made[name] if isinstance(made, dict) else made, spec)
    except tables.TableError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
