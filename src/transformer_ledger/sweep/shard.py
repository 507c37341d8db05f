"""One shard of a sweep: the totals of every configuration in it, block by block, exact."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from transformer_ledger.formulas.arrays import checked
from transformer_ledger.model import Attention, ModelSpec, contradictions, described, from_architecture
from transformer_ledger.progress import Progress
from transformer_ledger.sweep.grid import LOAD, Grid, Place, blocks, nested
from transformer_ledger.sweep.totals import PARTS, Kinds, totals
from transformer_ledger.tables import TableError

Columns = dict[str, Any]


def architectures(grid: Grid, part: slice) -> dict[str, Any] | None:
    """Architecture keys with arrays (n, 1, 1, 1) of the sizes that do not contradict each other; None without any."""
    picked = np.unravel_index(np.arange(part.start, part.stop), [len(values) for values in grid.sizes.values()])
    sizes = {name: np.array(values)[index] for (name, values), index in zip(grid.sizes.items(), picked, strict=True)}
    right = np.ones(part.stop - part.start, bool)
    for _, broken, _ in contradictions(nested({**grid.fixed, **sizes})):
        right &= ~np.asarray(broken)
    if not right.any():
        return None
    return nested({**grid.fixed, **{name: values[right].reshape(-1, 1, 1, 1) for name, values in sizes.items()}})


def names(spec: ModelSpec) -> Columns:
    """What tells one architecture from another, by column; of its first layers, and the first that attend, where layers differ."""
    ff = spec.layers[0][1].feedforward
    a = next((layer.mixer for _, layer in spec.layers if isinstance(layer.mixer, Attention)), Attention(0, 0, 0))
    biases = {"query": a.query_bias, "key": a.key_bias, "value": a.value_bias, "output": a.output_bias}
    biases |= {"feedforward": ff.bias, "norm": spec.norm_bias, "head": spec.head_bias}
    return {
        "layers": spec.depth,
        "d_model": spec.d_model,
        "heads": a.heads,
        "kv_heads": a.kv_heads,
        "head_dim": a.head_dim,
        "d_ff": ff.width,
        "vocabulary": spec.vocabulary,
        "longest_context": spec.context,
        "window": a.window,
        "experts": ff.experts,
        "experts_per_token": ff.experts_per_token,
        "shared_width": ff.shared_width,
        "positions": spec.positions,
        "norm": spec.norm,
        "feedforward": ff.kind,
        "tied_head": spec.tied_head,
        "biases": ", ".join(name for name, there in biases.items() if there),
    }


def _one(value: Any, place: tuple[int, ...]) -> Any:
    """The configuration at one place of arrays that broadcast, as plain ints."""
    if isinstance(value, dict):
        return {name: _one(inner, place) for name, inner in value.items()}
    if not isinstance(value, np.ndarray):
        return value
    return int(value[tuple(min(i, n - 1) for i, n in zip(place, value.shape, strict=True))])


def _held(source: Any, load: Columns, kinds: Kinds, found: Columns, place: tuple[int, ...]) -> None:
    """Raises TableError where a row is not what the ledgers say of its one model, in Python ints."""
    spec = source if isinstance(source, ModelSpec) else from_architecture("", _one(source, place))
    expected = totals(spec, _one(load, place), kinds)
    row = {name: _one(value, place) for name, value in found.items()}
    if row != expected:
        raise TableError(f"a row of the sweep is not its ledger's: {row}, expected {expected}")


def block(grid: Grid, place: Place, models: Mapping[str, ModelSpec], recipes: Mapping[str, Any]) -> Columns | None:
    """Columns of the configurations at `place`, arrays of one length or single values; None where none is possible."""
    source: Any = models[grid.model] if grid.model else architectures(grid, place[0])
    if source is None:
        return None
    load: Columns = {}
    for axis, (name, part) in enumerate(zip(LOAD, place[1:], strict=True), 1):
        values = grid.load[name][part]
        one = [-1 if n == axis else 1 for n in range(4)]
        load[name] = None if values == [None] else np.array(values).reshape(one)
    held = recipes[grid.recipe] if grid.recipe else None
    kinds = Kinds(grid.dtype, grid.cache_dtype, held)
    found: Columns = {}
    for part_of in PARTS:
        found |= checked(functools.partial(part_of, kinds=kinds), source, load)
    spec = source if isinstance(source, ModelSpec) else described("", source)
    longest = np.asarray(spec.context).reshape(-1, 1, 1, 1)
    shape = (longest.size, *(part.stop - part.start for part in place[1:]))
    kept = np.broadcast_to(load["context"] <= longest, shape)
    if not kept.any():
        return None
    middle = np.argwhere(kept)[int(kept.sum()) // 2]
    _held(source, load, kinds, found, tuple(int(i) for i in middle))
    if load["devices"] is None and held:
        load["devices"] = held["devices"]
    columns = {"model": grid.model, **names(spec), **load}
    columns |= {"dtype": grid.dtype, "cache_dtype": grid.cache_dtype, "recipe": grid.recipe, **found}
    whole = kept.all()
    return {
        name: (np.broadcast_to(value, shape).reshape(-1) if whole else np.broadcast_to(value, shape)[kept])
        if isinstance(value, np.ndarray)
        else value
        for name, value in columns.items()
    } | {"rows": int(kept.sum())}


def compute(
    sweep: Mapping[str, Any], models: Mapping[str, Any], recipes: Mapping[str, Any], shard: int, shards: int
) -> Iterator[Columns]:
    """Columns of the table `sweep`, a block at a time. In each block one row is held against its ledger."""
    specs = {name: ModelSpec.from_json(model) for name, model in models.items()}
    done, given = 0, 0
    mine = list(blocks(sweep, shard, shards))
    total = sum(math.prod(part.stop - part.start for part in place) for _, place in mine)
    progress = Progress(total, "configurations")
    for grid, place in mine:
        progress(done)
        done += math.prod(part.stop - part.start for part in place)
        if columns := block(grid, place, specs, recipes):
            given += columns["rows"]
            yield columns
    progress(done)
    if given < total:
        left = f"{total - given:,} of {total:,} configurations left out"
        print(f"{left}: sizes contradict each other, or a context is longer than a model's", file=sys.stderr)
