"""results/provenance.json: for every output its settings, hashes and package versions, and the machine they ran on."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _blas() -> dict[str, Any]:
    import numpy as np

    build = np.show_config(mode="dicts")
    library = build["Build Dependencies"]["blas"] if build else {}
    return {"name": library.get("name"), "version": library.get("version")}


def machine() -> dict[str, Any]:
    """Processor, operating system, BLAS and threads of this process."""
    return {
        "processor": _processor(),
        "architecture": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "blas": _blas(),
        "threads": int(os.environ.get("OMP_NUM_THREADS", "1")),
        "cores": os.cpu_count(),
    }


def _hash(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def compute(*, provenance: Mapping[str, Mapping[str, Any]], page: str = "results/report.html") -> str:
    """The JSON text. `provenance` is {table: metadata stored in it}; `page` is hashed too, where it exists."""
    outputs = {
        path: {**metadata, "settings_sha256": _settings_hash(metadata), "content_sha256": _hash(path)}
        for path, metadata in sorted(provenance.items())
    }
    if Path(page).exists():
        outputs[page] = {"job": "report", "content_sha256": _hash(page)}
    return json.dumps({"machine": machine(), "outputs": outputs}, indent=1, sort_keys=True) + "\n"


def _settings_hash(metadata: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(metadata["settings"], sort_keys=True).encode()).hexdigest()
