"""What a sweep runs over: grids of sizes, one for every choice of all that is no size, cut into blocks and shards."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

BLOCK = 2**18  # configurations worked out together: some tens of MiB
LOAD = ("batch", "context", "devices")
Place = tuple[slice, ...]


@dataclass(frozen=True)
class Grid:
    """Every combination of `sizes` (of the architecture, by dotted key) and of batch, context and devices.

    `fixed` are the other architecture keys. A model of the config has a name and neither.
    """

    model: str | None
    fixed: Mapping[str, Any]
    sizes: Mapping[str, Sequence[int]]
    load: Mapping[str, Sequence[Any]]
    dtype: str
    cache_dtype: str
    recipe: str | None

    @property
    def shape(self) -> tuple[int, ...]:
        """Architectures, batches, contexts, numbers of devices."""
        return (math.prod(map(len, self.sizes.values())), *(len(self.load[name]) for name in LOAD))


def _flat(keys: Mapping[str, Any], above: str = "") -> dict[str, list[Any]]:
    """Lists by dotted key, as biases.query."""
    out: dict[str, list[Any]] = {}
    for name, values in keys.items():
        if values is not None:
            out |= _flat(values, f"{above}{name}.") if isinstance(values, Mapping) else {f"{above}{name}": values}
    return out


def nested(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping that `_flat` made flat."""
    out: dict[str, Any] = {}
    for name, value in keys.items():
        outer, _, inner = name.partition(".")
        if inner:
            out.setdefault(outer, {})[inner] = value
        else:
            out[outer] = value
    return out


def _architectures(keys: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, list[int]]]]:
    """Fixed keys and sizes, once for each choice of what decides which tensors there are; 0 means there is none."""
    parts: dict[str, list[Any]] = {}
    for name, values in _flat(keys).items():
        numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
        split = [[n for n in numbers if n == 0], [n for n in numbers if n]] if numbers else [[v] for v in values]
        parts[name] = [part for part in split if part]
    for choice in itertools.product(*parts.values()):
        chosen = dict(zip(parts, choice, strict=True))
        sizes = {name: part for name, part in chosen.items() if type(part[0]) is int}
        yield {name: part[0] for name, part in chosen.items() if name not in sizes}, sizes


def grids(settings: Mapping[str, Any]) -> Iterator[Grid]:
    """The grids of a sweep, models first; `settings` as in the config."""
    load = {name: settings[name] or [None] for name in LOAD}
    found: list[tuple[str | None, dict[str, Any], dict[str, list[int]]]] = [(m, {}, {}) for m in settings["models"]]
    found += (
        [(None, *part) for part in _architectures(settings["architecture"] or {})] if settings["architecture"] else []
    )
    for source in found:
        for rest in itertools.product(settings["dtypes"], settings["cache_dtypes"], settings["recipes"] or [None]):
            yield Grid(*source, load, *rest)


def _places(shape: Sequence[int], most: int) -> Iterator[Place]:
    """Parts of a grid of at most `most` cells, in row order."""
    inner = math.prod(shape[1:])
    if inner > most:
        for i in range(shape[0]):
            yield from ((slice(i, i + 1), *rest) for rest in _places(shape[1:], most))
        return
    step = max(1, most // inner)
    for i in range(0, shape[0], step):
        yield (slice(i, min(i + step, shape[0])), *(slice(0, n) for n in shape[1:]))


def cells(settings: Mapping[str, Any]) -> int:
    """Configurations of a sweep, contradictory ones and all."""
    return sum(math.prod(grid.shape) for grid in grids(settings))


def blocks(settings: Mapping[str, Any], shard: int, shards: int) -> Iterator[tuple[Grid, Place]]:
    """The blocks of one of so many shards: those that begin in its share of the cells, each in exactly one."""
    every, before = cells(settings), 0
    for grid in grids(settings):
        size = math.prod(grid.shape)
        if before * shards // every <= shard and (before + size - 1) * shards // every >= shard:
            begin = before
            for place in _places(grid.shape, BLOCK):
                if begin * shards // every == shard:
                    yield grid, place
                begin += math.prod(part.stop - part.start for part in place)
        before += size
