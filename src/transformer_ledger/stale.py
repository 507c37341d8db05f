"""Files of models and verifications that are no longer in the config."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from transformer_ledger import seals


def prune(current: Iterable[str], results: Path = Path("results")) -> None:
    """Remove what our jobs made under `results` and is not among `current`, with its seals; say what went and what stayed.

    A table that is not as a seal of ours says was put there by somebody else: it stays.
    """
    for partial in results.rglob("*.partial"):  # of a job that was killed while it wrote
        partial.unlink()
    wanted = set(current)
    folder = results / seals.FOLDER
    sealed = [path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.json")]
    tables = [path.relative_to(results).as_posix() for path in results.rglob("*.parquet")]
    for name in sorted({*sealed, *tables}):
        path = f"results/{name}"
        if path in wanted:
            continue
        try:
            seals.check(path, results)
            os.unlink(results / name)
            print(f"removed {path}: no longer in the config")
        except FileNotFoundError:
            pass
        except (OSError, seals.Fault):
            print(f"left {path}: not as this pipeline made it")
            continue
        seals.place(path, results).unlink(missing_ok=True)
