"""results/provenance.json: the seals of all files, in one place, and the machine that made them."""

from __future__ import annotations

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


def compute(*, provenance: Mapping[str, Mapping[str, Any]]) -> str:
    """The JSON text. `provenance` is {file: its seal}, repeated as it is."""
    return json.dumps({"machine": machine(), "outputs": provenance}, indent=1, sort_keys=True) + "\n"
