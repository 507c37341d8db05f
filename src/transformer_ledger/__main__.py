"""The jobs' command line: the only place that reads arguments and writes files.

Every job gets one file with its spec, {"module": …, "settings": …, "sources": …, "packages": …, "inputs": …}. It reads
nothing else but its input files, each held against its seal, and it stores the spec in what it writes and in its seal.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import inspect
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transformer_ledger import fork, limits, seals

COMMANDS = {
    "size": "what a model costs, from its config.json, without a workflow",
    "compare": "what moved between two results folders",
    "verify": "whether a results folder is whole, unchanged and of this code",
}
RUN = "TRANSFORMER_LEDGER_RUN"  # environment: the process whose job this is
KINDS = (
    "execution",
    "families",
    "ledger",
    "verification",
    "experiment",
    "timing",
    "study",
    "claims",
    "answers",
    "maps",
)


def _checked(path: str, wanted: str) -> Mapping[str, Any]:
    """The seal of an input; refuses, by name, one that is damaged or of other settings or code than the spec says."""
    from transformer_ledger import tables

    try:
        seal = seals.check(path)
        if seal["digest"] != wanted:
            raise seals.Fault(seals.OTHER)
    except FileNotFoundError:
        raise tables.TableError(f"{path}: missing; run snakemake again to make it") from None
    except (OSError, seals.Fault) as error:
        reason = getattr(error, "strerror", None) or error
        raise tables.TableError(f"{path}: damaged ({reason}); run snakemake again to make it anew") from None
    return seal


def _call(function: Any, settings: dict[str, Any], inputs: Mapping[str, Mapping[str, Any]]) -> Any:
    """Call a job's function with its settings and with what its signature asks for; `inputs` are {path: seal}.

    A parameter named after a kind of table gets {stem: rows}; `settings` all settings in one mapping; `provenance`
    the seals; `figure` {stem: text} of the pictures; `formulas` what the one JSON file holds; `checkpoint` or `record` the
    path of the one input that is no table.
    """
    from transformer_ledger import tables

    accepted = inspect.signature(function).parameters
    read = [path for path in inputs if path.endswith(".parquet")]
    given: dict[str, Any] = {"provenance": inputs} if "provenance" in accepted else {}
    if "settings" in accepted and "settings" not in settings:
        given["settings"] = settings
    for name in accepted.keys() & {"checkpoint", "record"}:
        (given[name],) = inputs.keys() - set(read)
    if "figure" in accepted:
        given["figure"] = {Path(path).stem: Path(path).read_text("utf-8") for path in inputs if path.endswith(".svg")}
    if "formulas" in accepted and "formulas" not in settings:
        (path,) = (path for path in inputs if path.endswith(".json"))
        given["formulas"] = json.loads(Path(path).read_text("utf-8"))
    for kind in KINDS:
        if kind in accepted:
            own = [path for path in read if Path(path).parts[1].removesuffix(".parquet") == kind]
            given[kind] = {Path(path).stem: tables.read(path) for path in own}
    try:
        inspect.signature(function).bind(**settings, **given)
    except TypeError as error:
        raise tables.TableError(f"--spec: settings: {error}") from None
    return function(**settings, **given)


def _spec(address: str) -> dict[str, Any]:
    """The spec in a file, `path@digest` with the beginning of the digest that it must have; any, without one.

    Raises TableError where it is no spec, or another one: then a newer run has taken the place of this one.
    """
    from transformer_ledger import tables

    path, _, wanted = address.partition("@")
    try:
        spec = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise tables.TableError(f"--spec: {path}: {error.strerror}; each run writes it as it starts") from None
    except (ValueError, RecursionError) as error:
        raise tables.TableError(f"--spec: {path} is not JSON: {error}") from None
    if not isinstance(spec, dict) or not all(isinstance(spec.get(part), dict) for part in ("settings", "inputs")):
        raise tables.TableError(f"--spec: {path} has no mappings `settings` and `inputs`")
    content = {key: value for key, value in spec.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    if not hashlib.sha256(text.encode()).hexdigest().startswith(wanted):
        raise tables.TableError(f"--spec: {path} is no longer that of {wanted}; run snakemake again")
    return spec


def _write(path: str, made: Any, spec: dict[str, Any]) -> None:
    """Write one output: a table, or the text or bytes of another file."""
    from transformer_ledger import tables

    name = path.removeprefix("results/").removesuffix(".parquet")
    if not path.endswith(".parquet"):
        tables.write_bytes(path, made[path] if isinstance(made, dict) else made)
        return
    kind = name if name in tables.TABLES else name.split("/")[0]
    if isinstance(made, Iterator):
        tables.write_blocks(path, kind, made, spec)
        return
    if kind not in tables.TABLES:
        raise tables.TableError(f"{path}: no such table; known: {', '.join(tables.TABLES)}")
    tables.write(path, kind, made[name] if isinstance(made, dict) else made, spec)


def main(arguments: list[str] | None = None) -> int:
    """Run one job. Exit code 1 with one message where an input cannot be trusted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in COMMANDS:
        return int(importlib.import_module(f"transformer_ledger.{arguments[0]}").main(arguments[1:]))
    from transformer_ledger import tables  # here and above: `size` needs none, and would wait for it

    commands = [f"  transformer-ledger {name} --help: {what}" for name, what in COMMANDS.items()]
    parser = argparse.ArgumentParser(
        prog="transformer-ledger",
        description=__doc__,
        epilog="\n".join(["Commands that are no jobs:", *commands]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--directory", help="the folder in which the job runs: results/ and logs/ lie there")
    parser.add_argument(
        "--spec", required=True, help="file with the job's spec, seen from there; after @ the beginning of its digest"
    )
    parser.add_argument("--output", nargs="+", required=True, help="files to write, seen from here")
    options = parser.parse_args(arguments)
    job = options.spec
    if options.directory:
        options.output = [os.path.relpath(path, options.directory) for path in options.output]
        os.chdir(options.directory)
    try:
        spec = _spec(options.spec)
        job = spec.get("module")
        module = importlib.import_module(f"transformer_ledger.{job}")
        if not hasattr(module, "compute"):
            raise tables.TableError(f"{job} is no job: it has no compute()")
        inputs = {path: _checked(path, digest) for path, digest in spec["inputs"].items()}
        made = _call(module.compute, spec["settings"], inputs)
        _spec(options.spec)  # the job of a run that was killed may end in a later run
        for path in options.output:
            _write(path, made, spec)
            read = {path: seal["content_sha256"] for path, seal in inputs.items()}
            tables.write_bytes(seals.place(path), seals.text(spec, path, read))
    except ModuleNotFoundError as error:
        print(f"{job}: {error}", file=sys.stderr)
        return 1
    except tables.TableError as error:
        print(error, file=sys.stderr)
        return 1
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):  # torch's way to say it
            raise
        print(f"{job}: not enough memory for its settings; make their sizes smaller", file=sys.stderr)
        return 1
    return 0


def _packages(arguments: list[str]) -> dict[str, str]:
    """The packages that a job's spec names; none where there is no spec to read, which `main` then says."""
    try:
        path = arguments[arguments.index("--spec") + 1].partition("@")[0]
        return dict(json.loads(Path(path).read_text(encoding="utf-8"))["packages"])
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def command(forked: list[str] | None = None) -> int:
    """`main` as a process of its own, or as one that a parent has forked, with these arguments."""
    leader = os.environ.get(RUN)
    # Ctrl-C also reaches the jobs of a run: they leave it to the run to end them.
    signal.signal(signal.SIGINT, signal.SIG_IGN if leader else signal.SIG_DFL)
    if forked is None and fork.PLACE in os.environ:
        code = fork.ask(_packages(sys.argv[1:]))
        if code is not None:
            return code
    # Past the machine's memory the kernel would end some process or other.
    limits.memory(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `size … | head` ends without a word
    if leader:
        limits.follow(int(leader))
    return main(forked)


if __name__ == "__main__":
    sys.exit(command())
