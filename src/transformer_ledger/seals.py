"""The seal of a file: what its job says of it, in results/seals/, one JSON file beside each file of results/.

It holds the job's spec, the size and SHA-256 of the file as it was written, and the SHA-256 of each file that the job
read. Who reads the file later holds it against its seal; nobody hashes it anew to call it right. Paths begin with
`results/`, wherever that folder lies now (`results`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = "seals"
OTHER = "made with other settings or other code"
MEASURED = ("settings_sha256", "content_sha256", "content_bytes", "read")  # beside the spec
_KEYS = {"job", "module", "settings", "sources", "packages", "inputs", "digest", *MEASURED}


class Fault(Exception):
    """A file that is not what its seal says; the message says what is wrong, without the file's name."""


def place(path: str, results: str | Path = "results") -> Path:
    """Where the seal of `path` lies."""
    return Path(results, FOLDER, f"{path.removeprefix('results/')}.json")


def text(spec: Mapping[str, Any], path: str, read: Mapping[str, str]) -> str:
    """The seal of a file just written by the job with this spec, which has read `read`, {path: SHA-256}."""
    seal = {
        **spec,
        "settings_sha256": settings_hash(spec["settings"]),
        "content_sha256": digest(path),
        "content_bytes": os.path.getsize(path),
        "read": dict(read),
    }
    return json.dumps(seal, indent=1, sort_keys=True) + "\n"


def settings_hash(settings: Mapping[str, Any]) -> str:
    """SHA-256 of settings as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def digest(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read(path: str, results: str | Path = "results") -> dict[str, Any]:
    """The seal of `path`; empty where there is none that can be read."""
    try:
        seal = json.loads(place(path, results).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return seal if whole(seal) else {}


def whole(seal: Any) -> bool:
    """Whether this is a seal of this version."""
    return isinstance(seal, dict) and seal.keys() >= _KEYS


def check(path: str, results: str | Path = "results", seal: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """The seal of a file that is as its job wrote it. OSError where the file cannot be read, Fault where it differs."""
    seal = read(path, results) if seal is None else seal
    file = Path(results, path.removeprefix("results/"))
    size, found = file.stat().st_size, digest(file)
    if not seal:
        raise Fault("without a seal of this version")
    if found != seal["content_sha256"]:
        short = f"{size:,} of {seal['content_bytes']:,} bytes are left"
        raise Fault(short if size < seal["content_bytes"] else "changed since it was written")
    return seal
