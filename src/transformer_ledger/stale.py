"""Tables of models and verifications that are no longer in the config."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from transformer_ledger import tables


def prune(current: Iterable[str], results: Path = Path("results")) -> None:
    """Remove tables of ours under `results` that are not among `current`, and say which were removed and which left.

    A file that does not carry our metadata was put there by somebody else: it stays.
    """
    for path in results.rglob("*.partial"):  # of a job that was killed while it wrote
        path.unlink()
    wanted = {Path(path) for path in current}
    for path in sorted(results.rglob("*.parquet")):
        if path in wanted:
            continue
        try:
            tables.read_metadata(path)
        except tables.TableError:
            print(f"left {path}: not made by this pipeline")
            continue
        path.unlink()
        print(f"removed {path}: no longer in the config")
