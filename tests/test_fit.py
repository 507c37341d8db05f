"""What fits: every answer tried against itself and one more, and against answers worked out by hand."""

import json
from fractions import Fraction
from pathlib import Path

import pytest

from transformer_ledger import huggingface, tables
from transformer_ledger.ledger import fit, kv_cache, training_state
from transformer_ledger.ledger.parameters import tensor_count, totals
from transformer_ledger.model import ModelSpec

MODELS = Path(__file__).parents[1] / "resources" / "models"
NAMES = ("gpt2", "llama-3-8b", "llama-3.1-405b", "gpt-oss-20b", "gemma-3-1b", "deepseek-v3", "qwen3-30b-a3b")
ADAMW = {"weights": "fp32", "gradients": "fp32", "optimizer": "adamw", "moments": "fp32"}
RECIPES = {
    "adamw": ADAMW,
    "master": {**ADAMW, "weights": "bf16", "gradients": "bf16", "master_weights": "fp32"},
    "zero-1": {**ADAMW, "zero_stage": 1, "devices": 8},
    "8-bit": {**ADAMW, "weights": "bf16", "gradients": "bf16", "moments": "int8-g256"},
}
DEVICES = {
    "small": {"memory_bytes": 17 * 10**9, "reserve": 0.0},
    "80gb": {"memory_bytes": 80 * 10**9, "reserve": 0.1},
    "1500gb": {"memory_bytes": 1500 * 10**9, "reserve": 0.25},
}
WORKLOADS = {"b1-t512": {"batch": 1, "context": 512}, "b8-t2048": {"batch": 8, "context": 2048}}
DTYPES = ["bf16", "int4-g64"]


def shipped(name: str) -> ModelSpec:
    return huggingface.read(name, json.loads((MODELS / f"{name}.json").read_text()))[0]


SPECS = {name: shipped(name) for name in NAMES}


@pytest.fixture(scope="module")
def rows():
    models = {name: spec.to_json() for name, spec in SPECS.items()}
    return fit.compute(models, DEVICES, ["bf16", "fp8"], WORKLOADS, DTYPES, RECIPES)


def used(row, answer):
    """Bytes at another answer, from the other ledgers."""
    spec = SPECS[row["model"]]
    if row["question"] == "fewest devices":
        recipe = {**RECIPES[row["recipe"]], "devices": answer, "zero_stage": row["zero_stage"]}
        state = training_state.compute({"m": spec.to_json()}, {"r": recipe})
        return sum(item["bytes_per_device"] for item in state)
    weights = totals(spec)[0] * {"bf16": 2, "fp8": 1}[row["dtype"]]
    batch, context = (1, answer) if row["question"] == "longest context" else (answer, row["context"])
    return weights + (kv_cache.cache_bytes(spec, batch, context, row["cache_dtype"], row["policy"]) if answer else 0)


def test_the_answer_fits_and_the_next_does_not(rows):
    for row in rows:
        n, room = row["answer"], row["available_bytes"]
        if n is None:
            assert used(row, totals(SPECS[row["model"]])[0]) > room  # one parameter a device
            continue
        step = -1 if row["question"] == "fewest devices" else 1
        assert row["bytes"] == used(row, n)
        if row["limit"] == "weights":
            assert n == 0
            assert row["bytes"] > room
        else:
            assert row["bytes"] <= room
        if row["limit"] == "context":
            assert n == SPECS[row["model"]].context
        elif n + step:
            assert row["bytes_beyond"] == used(row, n + step) > room
        else:
            assert row["bytes_beyond"] is None


def test_every_limit_and_question_occurs(rows):
    found = {(row["question"], row["limit"]) for row in rows}
    assert found == {
        ("longest context", "context"),
        ("longest context", "memory"),
        ("longest context", "weights"),
        ("largest batch", "memory"),
        ("largest batch", "weights"),
        ("fewest devices", "memory"),
        ("fewest devices", "undivided"),
    }


def test_policies_differ_only_where_there_is_a_window(rows):
    windowed = {row["model"] for row in rows if row.get("policy") == "reserved"}
    assert windowed == {"gpt-oss-20b", "gemma-3-1b"}
    of = {
        row["policy"]: row["answer"]
        for row in rows
        if tuple(row.get(key) for key in ("model", "device", "workload", "dtype", "cache_dtype"))
        == ("gpt-oss-20b", "80gb", "b8-t2048", "bf16", "bf16")
    }
    assert of["needed"] > of["reserved"]


def test_by_hand():
    # Llama 3 8B in bf16: 16,060,522,496 bytes of weights, 131,072 bytes a cached token, 72e9 bytes to fill.
    spec, room = SPECS["llama-3-8b"], fit.available(DEVICES["80gb"])
    left = room - fit.weight_bytes(spec, "bf16")
    assert left == 72_000_000_000 - 16_060_522_496
    assert fit.largest_batch(spec, 2048, left, "bf16", "needed") == left // (131_072 * 2048) == 208
    assert fit.longest_context(spec, 1000 * 131_072 + 131_071, "bf16", "needed") == 1000
    assert fit.longest_context(spec, 0, "bf16", "needed") == fit.longest_context(spec, -5, "bf16", "needed") == 0
    # 16 bytes a parameter and 4 bytes of step counter a tensor, which no stage divides.
    N, n = totals(spec)[0], tensor_count(spec)
    share = fit.state_share(spec.to_json(), ADAMW, 3)
    assert share(7) == -(-N // 7) * 16 + 4 * n
    assert fit.fewest_devices(share, 72_000_000_000, N) == 2


def test_the_reserve_is_the_decimal_that_is_written():
    assert fit.available({"memory_bytes": 10**18, "reserve": 0.1}) == 9 * 10**17
    assert fit.available({"memory_bytes": 101, "reserve": 0.5}) == 50
    assert fit.available({"memory_bytes": 10**9, "reserve": 1e-07}) == 10**9 - 100
    assert Fraction(0.1) != Fraction(1, 10)  # what a float product would have used


@pytest.mark.parametrize("room", [1, 2, 3, 10, 99, 100, 101, 1000])
def test_fewest_devices_by_trying_them_all(room):
    def share(devices):
        return -(-100 // devices) + 2  # 100 numbers of a byte, divided, and 2 bytes that are not

    wanted = next((devices for devices in range(1, 101) if share(devices) <= room), None)
    assert fit.fewest_devices(share, room, 100) == wanted


def test_the_table_takes_the_rows(rows, tmp_path):
    tables.write(tmp_path / "fit.parquet", "ledger/fit", rows, {})
    assert tables.read(tmp_path / "fit.parquet", "ledger/fit")[0]["answer"] == rows[0]["answer"]
