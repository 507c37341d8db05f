"""Sweeps: arrays through the ledgers' own functions give the ledgers' rows, at the edges of int64 too; what they answer."""

import functools
import itertools
import json
import math
import operator

import numpy as np
import pyarrow.parquet as pq
import pytest

from transformer_ledger import config, tables
from transformer_ledger.formulas import arrays, shim
from transformer_ledger.formulas.arrays import Values, checked
from transformer_ledger.formulas.interval import LIMIT, Interval
from transformer_ledger.ledger import fit, kv_cache, matmul, parameters, training_state
from transformer_ledger.model import ModelError, contradictions, from_architecture
from transformer_ledger.report import page
from transformer_ledger.sweep import answers, grid, shard
from transformer_ledger.sweep.totals import PARTS, Kinds

RECIPES = {
    "master": {
        "weights": "bf16",
        "gradients": "bf16",
        "optimizer": "adamw",
        "master_weights": "fp32",
        "moments": "fp32",
    },
    "8bit": {"weights": "bf16", "gradients": "bf16", "optimizer": "adamw", "moments": "int8-g256"},
    "adafactor": {"weights": "fp32", "gradients": "fp32", "optimizer": "adafactor", "moments": "fp32"},
}
RECIPES |= {
    f"{name}-zero{stage}": {**RECIPES[name], "zero_stage": stage} for name in ("master", "8bit") for stage in (1, 3)
}
SIZES = ("layers", "d_model", "heads", "kv_heads", "head_dim", "d_ff", "vocabulary", "context", "window")


def drawn(rng, most: int) -> tuple[dict, dict, str, str, str]:
    """Architecture keys with arrays of sizes, workload arrays, dtypes and a recipe; any of them may be left out."""
    n = 12
    keys = {name: rng.integers(1, most, n).reshape(-1, 1, 1, 1) for name in SIZES}
    keys["heads"] = keys["kv_heads"] * rng.integers(1, 5, n).reshape(-1, 1, 1, 1)
    keys["head_dim"] = 2 * keys["head_dim"]
    for name in ("kv_heads", "window"):
        if rng.integers(2):
            del keys[name]
    if rng.integers(2):
        count = rng.integers(2, 9, n).reshape(-1, 1, 1, 1)
        shared = rng.integers(0, 2) * rng.integers(1, most, n).reshape(-1, 1, 1, 1)
        keys["experts"] = {"count": count, "per_token": count - 1, "shared_width": shared}
    keys["positions"] = str(rng.choice(["learned", "rope", "none"]))
    keys["norm"], keys["feedforward"] = str(rng.choice(["layernorm", "rmsnorm"])), str(rng.choice(["gelu", "gated"]))
    keys["tied_head"] = bool(rng.integers(2))
    names = ("query", "key", "value", "output", "feedforward", "norm", "head")
    keys["biases"] = {name: bool(rng.integers(2)) for name in names}
    keys["biases"]["norm"] &= keys["norm"] == "layernorm"
    keys["biases"]["head"] &= not keys["tied_head"]
    load = {"batch": rng.integers(1, most, (1, 3, 1, 1)), "context": rng.integers(1, most, (1, 1, 4, 1))}
    load["devices"] = rng.integers(1, 9, (1, 1, 1, 2))
    choices = (["bf16", "int4-g64", "q4_0"], ["bf16", "fp8", "int4", "int4-g64", "q8_0/q4_0"], list(RECIPES))
    return keys, load, *(str(rng.choice(choice)) for choice in choices)


def at(value, place):
    """The one configuration at a place of the grid."""
    if isinstance(value, dict):
        return {name: at(inner, place) for name, inner in value.items()}
    if not isinstance(value, np.ndarray):
        return value
    return int(value[tuple(min(i, size - 1) for i, size in zip(place, value.shape, strict=True))])


def ledger(keys, batch, context, dtype, cache, recipe, devices):
    """The same totals from the ledgers' rows, which know of no array."""
    model = {"m": json.loads(json.dumps(from_architecture("m", keys).to_json()))}
    model["m"]["context"] = max(context, keys["context"])
    held = {**RECIPES[recipe], "devices": devices}
    load = {"w": {"batch": batch, "context": context}}
    sizes = parameters.compute(model)
    work = matmul.compute(model, load)
    state = training_state.compute(model, {"r": held})
    (kept,) = [row for row in kv_cache.compute(model, load, [cache]) if row["policy"] == "needed"]
    weights = sum(row["parameters"] for row in sizes) * fit.bytes_per_number(dtype)
    found = {"parameters": sum(row["parameters"] for row in sizes)}
    found["active_parameters"] = sum(row["active_parameters"] for row in sizes)
    found["weight_bytes"] = -(-weights.numerator // weights.denominator)
    found["cache_bytes"] = kept["bytes"]
    found["inference_bytes"] = found["weight_bytes"] + kept["bytes"]
    for phase, name in (("prefill", "prefill"), ("decode", "decode"), ("train", "training")):
        of = [row["flops"] for row in work if (row["phase"], row["convention"]) == (phase, "full")]
        found[f"{name}_flops"] = sum(of)
    found["state_bytes"] = sum(row["bytes"] for row in state)
    found["state_bytes_per_device"] = sum(row["bytes_per_device"] for row in state)
    return found


# Sizes of some models, of models whose FLOPs pass 2⁶³ in some rows, and of such that parameters do.
@pytest.mark.parametrize(("most", "exact"), [(30, {False}), (300, {False, True}), (2**20, {True})])
def test_a_row_of_a_sweep_is_the_ledger_of_its_model(most, exact):
    rng, seen, passed = np.random.default_rng(most), set(), 0
    for _ in range(25):
        keys, load, dtype, cache, recipe = drawn(rng, most)
        kinds = Kinds(dtype, cache, RECIPES[recipe])
        table = {}
        for part in PARTS:
            table |= checked(functools.partial(part, kinds=kinds), keys, load)
        seen |= {column.dtype == object for column in table.values()}
        for _ in range(4):
            place = [int(rng.integers(n)) for n in (12, 3, 4, 2)]
            one, w = at(keys, place), at(load, place)
            expected = ledger(one, w["batch"], w["context"], dtype, cache, recipe, w["devices"])
            passed += max(expected.values()) >= LIMIT
            assert {name: at(np.asarray(column), place) for name, column in table.items()} == expected
    assert seen == exact
    assert passed or most < 2**20, "no total passed int64"


@pytest.mark.parametrize("least", [0, 1])
def test_int64_up_to_its_last_number_and_no_further(least):
    """N·b just below 2⁶³ stays int64; one more goes by Python ints, and is right."""
    vocabulary = np.array([1, 2**61 - 1 + least])
    found = checked(lambda V: V * 4 + 3, vocabulary)
    assert found.dtype == (object if least else np.int64)
    assert [int(n) for n in found] == [7, 4 * (2**61 - 1 + least) + 3]


def test_an_unchecked_table_would_wrap():
    """The control: what the bound is for."""
    wide = np.array([2**40])
    with np.errstate(over="ignore"):
        assert int((wide.view(Values) * wide * 4)[0]) != 2**82
    assert int(checked(lambda d: d * d * 4, wide)[0]) == 2**82


def test_what_wraps_on_its_way_comes_out_right():
    """A bounded result is taken in another order than it is written: products of its own that pass 2⁶³ cancel."""
    large = np.array([2**40 + 5, 2**40 + 9]).reshape(2, 1)
    close, none = large - np.array([[1, 3]]), np.zeros((1, 2), np.int64)
    for function in (
        lambda a, b, c: (a - b) * a + 7,
        lambda a, b, c: a * c * b + b,
        lambda a, b, c: shim.quotient((a - b) * 6 * a, 2) + shim.ceiling_quotient((b - a) * 5 * a, 3),
        lambda a, b, c: shim.minimum((a - b) * a, b) ** 1 - (2 - b),
    ):
        found = checked(function, large, close, none)
        expected = function(*(values.astype(object) for values in (large, close, none)))
        assert found.dtype == np.int64
        assert np.broadcast_to(found, (2, 2)).tolist() == np.broadcast_to(expected, (2, 2)).tolist()
    with pytest.raises(ArithmeticError, match="does not divide"):
        checked(lambda a: shim.quotient(a, 2), large)


def test_chunks_make_the_whole(monkeypatch):
    """However many numbers are worked on together, and where one axis does not reach over all of them."""
    rows, columns = np.arange(1, 11).reshape(10, 1), np.arange(3, 7).reshape(1, 4)
    for chunk in (1, 3, 100):
        monkeypatch.setattr(arrays, "CHUNK", chunk)
        product, width, one = checked(lambda n, m: (n * m * 2 - n // m, m * 3, 1), rows, columns)
        assert product.tolist() == (rows * columns * 2 - rows // columns).tolist()
        assert (width.tolist(), one) == ((columns * 3).tolist(), 1)


def test_intervals_hold_what_integers_give():
    rng = np.random.default_rng(1)
    operations = [operator.add, operator.sub, operator.mul, operator.floordiv, shim.minimum, shim.ceiling_quotient]
    for _ in range(2000):
        low, other = (int(n) for n in rng.integers(-50, 50, 2))
        a, b = Interval(low, low + int(rng.integers(20))), Interval(other, other + int(rng.integers(20)))
        x, y = int(rng.integers(a.low, a.high + 1)), int(rng.integers(b.low, b.high + 1))
        for operation in operations:
            if b.low > 0 or operation not in (operator.floordiv, shim.ceiling_quotient):
                bound = operation(a, b)
                assert bound.low <= operation(x, y) <= bound.high, (operation, a.low, a.high, b.low, b.high)
        assert (a**2).low <= x**2 <= (a**2).high
        assert (-a).low <= -x <= (-a).high
        assert (3 - a).low <= 3 - x <= (3 - a).high
        assert (3 * a).high >= 3 * x


def test_a_size_that_is_zero_in_some_rows_only_is_refused():
    """A branch of a ledger cannot be taken for half an array."""
    for some in (Interval(0, 3), np.array([0, 3]).view(Values)):
        with pytest.raises(ValueError, match="some are 0"):
            bool(some)


def test_contradictions_of_arrays_are_those_of_each():
    keys = {"d_model": np.array([8, 9, 8, 8]), "heads": np.array([4, 2, 4, 8]), "kv_heads": np.array([2, 2, 3, 8])}
    rest = {"layers": 1, "d_ff": 4, "vocabulary": 5, "context": 6, "norm": "rmsnorm", "feedforward": "gelu"}
    rest["positions"] = "rope"
    broken = np.zeros(4, bool)
    for _, wrong, _ in contradictions({**rest, **keys}):
        broken |= wrong
    for i, wrong in enumerate(broken):
        one = {**rest, **{name: int(values[i]) for name, values in keys.items()}}
        if wrong:
            with pytest.raises(ModelError):
                from_architecture("m", one)
        else:
            from_architecture("m", one)
    assert broken.tolist() == [False, True, True, True]


SWEEP = {
    "models": ["tiny"],
    "architecture": {
        "layers": [1, 3],
        "d_model": [8],
        "heads": [2, 4, 3],
        "kv_heads": [2, 4],
        "d_ff": [16],
        "vocabulary": [50],
        "context": [32],
        "positions": ["rope"],
        "norm": ["rmsnorm"],
        "feedforward": ["gated", "gelu"],
        "tied_head": [True],
        "experts": {"count": [4], "per_token": [1, 8], "shared_width": [0, 5]},
    },
    "batch": [1, 3],
    "context": [8, 16, 64],
    "devices": [1, 5],
    "rows_per_job": 1000,
    "dtypes": ["bf16", "int4-g64"],
    "cache_dtypes": ["bf16"],
    "recipes": ["master-zero3"],
    "map": {"x": "context", "y": "batch", "value": "state_bytes_per_device"},
    "front": {"least": ["decode_flops"], "most": ["active_parameters"], "where": {"batch": 1}, "at_most": {}},
    "questions": {
        "largest": {
            "most": ["batch", "parameters"],
            "least": ["cache_bytes"],
            "where": {},
            "at_most": {"inference_bytes": 7000},
        },
        "none": {"most": [], "least": ["parameters"], "where": {"context": 16}, "at_most": {"parameters": 1}},
    },
}
TINY = {
    "layers": 2,
    "d_model": 8,
    "heads": 2,
    "d_ff": 24,
    "vocabulary": 9,
    "context": 16,
    "positions": "none",
    "norm": "layernorm",
    "feedforward": "gelu",
}


def swept(folder, monkeypatch, shards=3, most=31) -> list[dict]:
    """The sweep's rows, from the files of so many shards, in blocks of at most so many configurations."""
    monkeypatch.setattr(grid, "BLOCK", most)
    models = {"tiny": from_architecture("tiny", TINY).to_json()}
    rows = []
    for number in range(shards):
        path = folder / f"{number:04d}.parquet"
        tables.write_blocks(path, "sweep", shard.compute(SWEEP, models, RECIPES, number, shards), {})
        rows += tables.read(path, "sweep")
    return rows


def every_row() -> list[dict]:
    """The same rows one by one from the ledgers, every combination tried."""
    lists = grid._flat(SWEEP["architecture"])
    models = [(name, TINY) for name in SWEEP["models"]]
    models += [(None, grid.nested(dict(zip(lists, one, strict=True)))) for one in itertools.product(*lists.values())]
    rows = []
    for (name, keys), B, T, G, dtype in itertools.product(
        models, *(SWEEP[k] for k in ("batch", "context", "devices", "dtypes"))
    ):
        try:
            from_architecture("", keys)
        except ModelError:
            continue
        if keys["context"] >= T:
            rows.append({"model": name, "batch": B, "context": T, "devices": G, "dtype": dtype})
            rows[-1] |= {key: keys[key] for key in ("layers", "d_model", "heads", "positions", "feedforward")}
            rows[-1] |= ledger(keys, B, T, dtype, "bf16", "master-zero3", G)
    return rows


def canonical(rows, names):
    return sorted(json.dumps({name: row[name] for name in names}) for row in rows)


def test_a_sweep_holds_every_possible_configuration_once(tmp_path, monkeypatch):
    expected = every_row()
    rows = swept(tmp_path, monkeypatch)
    assert canonical(rows, expected[0]) == canonical(expected, expected[0])
    assert canonical(swept(tmp_path, monkeypatch, 1, 10**6), rows[0]) == canonical(rows, rows[0])
    assert grid.cells(SWEEP) == 24 + 24 * math.prod(len(v) for v in grid._flat(SWEEP["architecture"]).values())


def test_answers_are_those_of_all_rows_together(tmp_path, monkeypatch):
    rows = swept(tmp_path, monkeypatch)
    paths = {str(path): {} for path in sorted(tmp_path.glob("*.parquet"))}
    assert sum(pq.ParquetFile(path).num_row_groups for path in paths) > 10
    found = answers.compute("s", {key: SWEEP[key] for key in ("map", "front", "questions")}, paths)
    by = tables.by(found["answers/s"], "question")
    fit = [row for row in rows if row["inference_bytes"] <= 7000]
    (largest,) = by["largest"]
    assert largest["rows"] == len(fit) > 0
    best = max((row["batch"], row["parameters"], -row["cache_bytes"]) for row in fit)
    assert (largest["batch"], largest["parameters"], -largest["cache_bytes"]) == best
    (none,) = by["none"]
    assert none["rows"] == 0
    assert none.get("parameters") is None
    front = {(row["decode_flops"], -row["active_parameters"]) for row in by["front"]}
    points = {(row["decode_flops"], -row["active_parameters"]) for row in rows if row["batch"] == 1}
    undominated = {p for p in points if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points)}
    assert front == undominated
    assert len(by["front"]) == len(front) > 1
    for cell in found["maps/s"]:
        of = [row["state_bytes_per_device"] for row in rows if (row["context"], row["batch"]) == (cell["x"], cell["y"])]
        assert (cell["least"], cell["rows"]) == (min(of), len(of))
    assert sum(cell["rows"] for cell in found["maps/s"]) == len(rows)


def test_a_row_that_is_not_its_ledgers_ends_the_shard(tmp_path, monkeypatch):
    """The control of the check in every block."""
    right = shard.totals
    monkeypatch.setattr(
        shard, "checked", lambda f, *a: {k: v + (k == "cache_bytes") for k, v in checked(f, *a).items()}
    )
    with pytest.raises(tables.TableError, match="not its ledger's"):
        swept(tmp_path, monkeypatch)
    assert shard.totals is right


def test_totals_past_int64_are_written_and_read_whole(tmp_path):
    large = np.array([2**63 - 1, 2**63, 2**80], object)
    small = np.array([1, -2, 2**62])
    for numbers in (large, small):
        block = {"x": np.arange(3), "y": np.arange(3), "least": numbers, "rows": 3}
        tables.write_blocks(tmp_path / "m.parquet", "maps", [{**block}], {})
        assert [row["least"] for row in tables.read(tmp_path / "m.parquet")] == [int(n) for n in numbers]
        column = pq.read_table(tmp_path / "m.parquet")["least"]
        assert [int(n) for n in tables.integers(column)] == [int(n) for n in numbers]
    with pytest.raises(tables.TableError, match="does not fit int64"):
        tables.write_blocks(tmp_path / "m.parquet", "maps", [{**block, "x": large}], {})


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"from": 2, "to": 9, "step": 3}, [2, 5, 8]),
        ({"from": 1024, "to": 8192, "times": 2}, [1024, 2048, 4096, 8192]),
        ({"from": 3, "to": 3, "step": 1}, [3]),
        ([4, 2], [4, 2]),
    ],
)
def test_ranges(given, meant):
    assert config._spread(given) == meant


@pytest.mark.parametrize(
    "wrong", [{"from": 1, "to": 9, "times": 1}, {"from": 0, "to": 9, "step": 1}, {"from": 1, "to": 9}]
)
def test_a_wrong_range_stays_for_the_schema_to_refuse(wrong):
    assert config._spread(wrong) == wrong


def test_a_page_of_a_hundred_models_shows_what_is_asked_for():
    """Size does not grow past the models that are shown; rows of the others stay in their files."""
    models = {}
    for n in range(100):
        spec = from_architecture(f"m{n:03d}", {**TINY, "layers": n + 1})
        models[spec.name] = {"spec": json.loads(json.dumps(spec.to_json())), "hf_config": None, "label": spec.name}
    rows = parameters.compute({name: model["spec"] for name, model in models.items()})
    given = {"ledger": {"parameters": rows}, "workloads": {}, "recipes": {}}
    page_ = page.compute(models=models, report={}, **given)
    assert "24 of 100 models" in page_
    assert "m023" in page_
    assert "m024" not in page_
    few = page.compute(models=models, report={"models": ["m007", "m099"]}, **given)
    assert "2 of 100 models" in few
    assert "m099" in few
    assert "m008" not in few
    assert len(few) < len(page_)
