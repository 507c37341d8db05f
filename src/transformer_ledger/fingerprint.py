"""What a job's code is: a hash over the syntax trees of every module it imports, and the packages those import.

Snakemake sees files named as inputs, not what Python imports. A hash of syntax trees changes when code changes and
stays when a comment, a blank line or a time stamp does, so an edit reruns the jobs that import the edited module and
no others.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.metadata
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

PACKAGE = "transformer_ledger"
SOURCE = Path(__file__).resolve().parent


def _file(module: str) -> Path | None:
    base = SOURCE.joinpath(*module.split(".")[1:])
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


_known: dict[str, tuple[str, list[str]]] = {}


def _tree(content: bytes) -> tuple[str, list[str]]:
    """Hash of a module's syntax tree, and every name that it imports."""
    key = hashlib.sha256(content).hexdigest()
    if key not in _known:
        tree = ast.parse(content)
        names: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names.add(node.module)
                names.update(f"{node.module}.{alias.name}" for alias in node.names)
        _known[key] = hashlib.sha256(ast.dump(tree).encode()).hexdigest(), sorted(names)
    return _known[key]


def learn(path: Path) -> None:
    """Take from `path` what was found in files with the same bytes, by this Python and this code, and keep it there.

    To parse the whole package takes a second, which every call of Snakemake would spend. A file that cannot be read,
    or is not as it was written, is made anew; one that cannot be written is done without.
    """

    def sealed(found: dict[str, tuple[str, list[str]]]) -> str:
        made_by = [sys.version, hashlib.sha256(Path(__file__).read_bytes()).hexdigest()]
        return hashlib.sha256(json.dumps([made_by, found], sort_keys=True).encode()).hexdigest()

    kept: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["seal"] == sealed(stored["found"]):
            kept = stored["found"]
    _known.update({key: (digest, names) for key, (digest, names) in kept.items()})
    files = [file.read_bytes() for file in SOURCE.rglob("*.py")]
    found = {hashlib.sha256(content).hexdigest(): _tree(content) for content in files}
    if found.keys() != kept.keys():
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps({"seal": sealed(found), "found": found}), encoding="utf-8")
            os.replace(partial, path)


@cache
def _module(module: str) -> tuple[str, frozenset[str], frozenset[str]]:
    """Hash of one module's syntax tree, the modules of this package it imports, and the top-level names of others."""
    path = _file(module)
    if path is None:
        return "", frozenset(), frozenset()
    digest, names = _tree(path.read_bytes())
    own = {name for name in names if name.split(".")[0] == PACKAGE and _file(name)}
    others = {name.split(".")[0] for name in names} - {PACKAGE} - sys.stdlib_module_names
    return digest, frozenset(own), frozenset(others)


@cache
def closure(module: str) -> frozenset[str]:
    """The module, and every module of this package that it imports, directly or not (imports inside functions too)."""
    seen: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(_module(name)[1])
    return frozenset(seen)


def sources(*modules: str) -> str:
    """Hash over the syntax trees of the import closure of `modules`."""
    names = sorted(set().union(*(closure(module) for module in modules)))
    return hashlib.sha256("".join(f"{name} {_module(name)[0]}\n" for name in names).encode()).hexdigest()


@cache
def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def packages(*modules: str) -> dict[str, str]:
    """Installed versions of the packages that the import closure of `modules` imports, Python's own included."""
    names = set().union(*(_module(name)[2] for module in modules for name in closure(module)))
    found = {name: version for name in sorted(names) if (version := _version(name))}
    return {"python": ".".join(map(str, sys.version_info[:3])), **found}


def content(*paths: str | Path) -> str:
    """Hash over the bytes of files that are not Python: templates, style sheets, scripts."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(hashlib.sha256(Path(path).read_bytes()).digest())
    return digest.hexdigest()
