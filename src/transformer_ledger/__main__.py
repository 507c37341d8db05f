"""The jobs' command line: the only place that reads arguments and writes files.

Every job gets one canonical JSON object, its spec: {"settings": …, "sources": …, "packages": …}. It reads nothing else
but its input tables, and it stores the spec in what it writes.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from transformer_ledger import limits

SIZE = "To size one config.json without a workflow: python -m transformer_ledger size --help"
KINDS = ("execution", "ledger", "verification", "experiment", "timing", "study", "claims")


def _checked(path: str, wanted: str) -> dict[str, Any]:
    """The metadata of an input table; refuses, by name, one made with other settings or sources than the spec says."""
    from transformer_ledger import tables

    metadata = tables.read_metadata(path)
    if metadata.get("digest") != wanted:
        raise tables.TableError(f"{path}: made with other settings or sources; delete it and run snakemake again")
    return metadata


def _call(function: Any, settings: dict[str, Any], paths: dict[str, str]) -> Any:
    """Call a job's function with its settings and with what its signature asks for.

    A parameter named after a kind of table gets {stem: rows}; `provenance` gets {path: metadata}; `checkpoint` gets the
    path of the one input that is no table.
    """
    from transformer_ledger import tables

    accepted = inspect.signature(function).parameters
    read = [path for path in paths if path.endswith(".parquet")]
    metadata = {path: _checked(path, paths[path]) for path in read}
    given: dict[str, Any] = {"provenance": metadata} if "provenance" in accepted else {}
    if "settings" in accepted:
        given["settings"] = settings
    if "checkpoint" in accepted:
        (given["checkpoint"],) = paths.keys() - set(read)
    for kind in KINDS:
        if kind in accepted:
            own = [path for path in read if Path(path).parts[1].removesuffix(".parquet") == kind]
            given[kind] = {Path(path).stem: tables.read(path) for path in own}
    try:
        inspect.signature(function).bind(**settings, **given)
    except TypeError as error:
        raise tables.TableError(f"--spec: settings: {error}") from None
    return function(**settings, **given)


def main(arguments: list[str] | None = None) -> int:
    """Run one job. Exit code 1 with one message where an input cannot be trusted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["size"]:  # the one command that is no job
        return int(importlib.import_module("transformer_ledger.size").main(arguments[1:]))
    from transformer_ledger import tables  # here and above: `size` needs none, and would wait for it

    parser = argparse.ArgumentParser(prog="transformer_ledger", description=__doc__, epilog=SIZE)
    parser.add_argument("module", help="module of the job, as ledger.parameters or verification.head_count")
    parser.add_argument("--spec", required=True, help="the job's canonical JSON")
    parser.add_argument("--output", nargs="+", required=True, help="files to write")
    options = parser.parse_args(arguments)
    try:
        spec = json.loads(options.spec)
    except (ValueError, RecursionError) as error:
        parser.error(f"--spec is not JSON: {error}")
    if not isinstance(spec, dict) or not all(isinstance(spec.get(part), dict) for part in ("settings", "inputs")):
        parser.error("--spec has no mappings `settings` and `inputs`")
    try:
        module = importlib.import_module(f"transformer_ledger.{options.module}")
        if not hasattr(module, "compute"):
            parser.error(f"{options.module} is no job: it has no compute()")
        made = _call(module.compute, spec["settings"], spec["inputs"])
        for path in options.output:
            name = path.removeprefix("results/").removesuffix(".parquet")
            if not path.endswith(".parquet"):
                tables.write_bytes(path, made[path] if isinstance(made, dict) else made)
                continue
            kind = name if name in tables.TABLES else name.split("/")[0]
            if kind not in tables.TABLES:
                raise tables.TableError(f"{path}: no such table; known: {', '.join(tables.TABLES)}")
            tables.write(path, kind, made[name] if isinstance(made, dict) else made, spec)
    except ModuleNotFoundError as error:
        print(f"{options.module}: {error}", file=sys.stderr)
        return 1
    except tables.TableError as error:
        print(error, file=sys.stderr)
        return 1
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):  # torch's way to say it
            raise
        print(f"{options.module}: not enough memory for its settings; make their sizes smaller", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    # Past the machine's memory the kernel would end some process or other.
    limits.memory(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `size … | head` ends without a word
    sys.exit(main())
