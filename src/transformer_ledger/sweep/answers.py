"""What a sweep answers: its Pareto front, the best configuration for each question, and the least value on a map.

The shards are read a row group at a time, and of it only the columns that are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from transformer_ledger import tables
from transformer_ledger.progress import Progress

Place = tuple[str, int, int]  # file, row group, row


class Chunk:
    """One row group of a shard."""

    def __init__(self, path: str, group: int, table: pa.Table):
        self.path, self.group, self.table = path, group, table

    def numbers(self, column: str) -> Any:
        """Integers of a column."""
        return tables.integers(self.table[column])

    def admitted(self, question: Mapping[str, Any]) -> Any:
        """Rows that a question admits, by number."""
        kept = np.ones(len(self.table), bool)
        for column, value in question["where"].items():
            kept &= pc.fill_null(pc.equal(self.table[column], pa.scalar(value)), False).to_numpy()
        for column, most in question["at_most"].items():
            kept &= self.numbers(column) <= most
        return np.flatnonzero(kept)


class Best:
    """The best row of a question: the least (or most) of each column in turn, the first row among equals."""

    def __init__(self, question: Mapping[str, Any]):
        self.question, self.rows = question, 0
        self.found: tuple[list[int], Place] | None = None
        self.signs = [(column, -1) for column in question["most"]] + [(column, 1) for column in question["least"]]

    def see(self, chunk: Chunk) -> None:
        """Take a chunk's rows into account."""
        left = chunk.admitted(self.question)
        self.rows += len(left)
        values = []
        for column, sign in self.signs:
            if not len(left):
                return
            of = sign * chunk.numbers(column)[left]
            values.append(int(of.min()))
            left = left[of == of.min()]
        if self.found is None or values < self.found[0]:
            self.found = values, (chunk.path, chunk.group, int(left[0]))


class Front:
    """Rows that no other beats in one of two columns without losing in the other; the first among equals."""

    def __init__(self, question: Mapping[str, Any]):
        self.question = question
        self.signs = [(column, 1) for column in question["least"]] + [(column, -1) for column in question["most"]]
        self.x, self.y, self.at, self.rows = np.zeros(0, np.int64), np.zeros(0, np.int64), list[Place](), 0

    def see(self, chunk: Chunk) -> None:
        """Take a chunk's rows into account."""
        new = chunk.admitted(self.question)
        (x, y) = (sign * chunk.numbers(column) for column, sign in self.signs)
        self.rows += len(new)
        if len(self.x):  # what the front beats already: the best y of all that are no worse in x
            before = np.searchsorted(self.x, x[new], side="right") - 1
            new = new[(before < 0) | (y[new] < self.y[np.maximum(before, 0)])]
        x, y = np.concatenate([self.x, x[new]]), np.concatenate([self.y, y[new]])
        at = [*self.at, *((chunk.path, chunk.group, int(row)) for row in new)] if len(new) else self.at
        order = np.argsort(y, kind="stable")
        order = order[np.argsort(x[order], kind="stable")]
        x, y = x[order], y[order]
        least = np.minimum.accumulate(y)
        kept = np.append(True, y[1:] < least[:-1]) if len(y) else np.zeros(0, bool)
        self.x, self.y, self.at = x[kept], y[kept], [at[i] for i in order[kept]]


class Map:
    """The least value of a column for every pair of two sizes."""

    def __init__(self, x: str, y: str, value: str):
        self.x, self.y, self.value = x, y, value
        self.least: dict[tuple[int, int], tuple[int, int]] = {}

    def see(self, chunk: Chunk) -> None:
        """Take a chunk's rows into account."""
        x, y, value = (chunk.numbers(column) for column in (self.x, self.y, self.value))
        columns, at_x = np.unique(x, return_inverse=True)
        lines, at_y = np.unique(y, return_inverse=True)
        cell = at_x * len(lines) + at_y
        order = np.argsort(cell, kind="stable")
        begins = np.flatnonzero(np.diff(cell[order], prepend=-1))
        least = np.minimum.reduceat(value[order], begins)
        counts = np.diff(np.append(begins, len(order)))
        for place, one, count in zip(cell[order][begins], least, counts, strict=True):
            pair = int(columns[place // len(lines)]), int(lines[place % len(lines)])
            known = self.least.get(pair, (int(one), 0))
            self.least[pair] = min(known[0], int(one)), known[1] + int(count)

    def table(self) -> list[dict[str, Any]]:
        """Rows of the table `maps`."""
        return [{"x": x, "y": y, "least": least, "rows": n} for (x, y), (least, n) in sorted(self.least.items())]


def _chunks(paths: Sequence[str], columns: Sequence[str]) -> Iterator[Chunk]:
    files = [(path, pq.ParquetFile(path, page_checksum_verification=True)) for path in paths]
    done, progress = 0, Progress(sum(file.metadata.num_rows for _, file in files), "configurations")
    for path, file in files:
        for group in range(file.num_row_groups):
            progress(done)
            yield Chunk(path, group, file.read_row_group(group, columns=list(columns)))
            done += file.metadata.row_group(group).num_rows


def _rows(places: Sequence[Place]) -> list[dict[str, Any]]:
    """Whole rows, each row group read once."""
    asked: dict[tuple[str, int], list[int]] = {}
    for path, group, row in places:
        asked.setdefault((path, group), []).append(row)
    found: dict[Place, dict[str, Any]] = {}
    for (path, group), rows in asked.items():
        table = pq.ParquetFile(path, page_checksum_verification=True).read_row_group(group)
        picked = table.take(pa.array(np.array(rows, np.int64))).to_pylist()
        found |= {(path, group, row): one for row, one in zip(rows, picked, strict=True)}
    return [found[place] for place in places]


def compute(name: str, sweep: Mapping[str, Any], provenance: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Rows of the tables `answers` and `maps` of the sweep `name`, from the shards that `provenance` names.

    Raises TableError where the sweep is empty, or where a column that is asked for is null.
    """
    shown = Map(**sweep["map"]) if sweep["map"] else None
    front = Front(sweep["front"]) if sweep["front"] else None
    best = {question: Best(asked) for question, asked in sweep["questions"].items()}
    columns = {shown.x, shown.y, shown.value} if shown else set()
    asking: list[Best | Front] = [*best.values(), *([front] if front else [])]
    for one in asking:
        columns |= {*one.question["where"], *one.question["at_most"], *(column for column, _ in one.signs)}
    seers = [*asking, *([shown] if shown else [])]
    total = 0
    for chunk in _chunks(sorted(provenance), sorted(columns)):
        total += len(chunk.table)
        for seer in seers:
            seer.see(chunk)
    if not total:
        raise tables.TableError(
            f"sweeps.{name}: no configuration is possible: sizes contradict, or contexts are too long"
        )
    rows = [{"question": "front", "rows": front.rows, **row} for row in _rows(front.at)] if front else []
    for question, asked in best.items():
        answer = _rows([asked.found[1]]) if asked.found else [{}]
        rows.append({"question": question, "rows": asked.rows, **answer[0]})
    return {f"answers/{name}": rows, f"maps/{name}": shown.table() if shown else []}
