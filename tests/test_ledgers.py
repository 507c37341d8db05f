"""The ledgers: known totals, rows that add up, zero differences against an executed model, and mutations that show."""

import json
import random
from fractions import Fraction
from pathlib import Path

import pytest

from transformer_ledger import huggingface, tables
from transformer_ledger.formulas import architecture
from transformer_ledger.formulas import matmul as matmul_formulas
from transformer_ledger.formulas import parameters as parameter_formulas
from transformer_ledger.ledger import agreement, kv_cache, matmul, parameters, training_compute, training_state
from transformer_ledger.ledger.storage import bytes_per_number, row_bytes
from transformer_ledger.model import ModelSpec, from_architecture

MODELS = Path(__file__).parents[1] / "resources" / "models"

SECTION_7 = {
    "layers": 4,
    "d_model": 64,
    "heads": 4,
    "d_ff": 168,
    "vocabulary": 56,
    "context": 64,
    "positions": "rope",
    "norm": "rmsnorm",
    "feedforward": "gated",
}
MIXED = {**SECTION_7, "kv_heads": 2, "window": 8, "experts": {"count": 4, "per_token": 2, "shared_width": 24}}
ADAMW = {"weights": "fp32", "gradients": "fp32", "optimizer": "adamw", "moments": "fp32"}
RECIPES = {
    "adamw-fp32": ADAMW,
    "amsgrad": {**ADAMW, "optimizer": "adamw-amsgrad"},
    "bf16": {"weights": "bf16", "gradients": "bf16", "optimizer": "adamw", "moments": "bf16"},
    "bf16-master": {**ADAMW, "weights": "bf16", "gradients": "bf16", "master_weights": "fp32"},
    "bf16-fp32-gradients": {**ADAMW, "weights": "bf16", "master_weights": "fp32"},
    "bf16-both-gradients": {
        **ADAMW,
        "weights": "bf16",
        "gradients": "bf16",
        "master_weights": "fp32",
        "master_gradients": "fp32",
    },
    "8-bit": {**ADAMW, "moments": "int8-g256"},
    "adafactor": {**ADAMW, "optimizer": "adafactor"},
    "sgd": {**ADAMW, "optimizer": "sgd"},
    "momentum": {**ADAMW, "optimizer": "sgd-momentum"},
}
BYTES = {"adamw-fp32": 16, "amsgrad": 20, "bf16": 8, "bf16-master": 16, "bf16-fp32-gradients": 18}
BYTES |= {"bf16-both-gradients": 20, "sgd": 8, "momentum": 12}  # a parameter, step counters apart


def shipped(name: str) -> ModelSpec:
    return huggingface.read(name, json.loads((MODELS / f"{name}.json").read_text()))[0]


def explicit(keys: dict) -> ModelSpec:
    return from_architecture("m", keys)


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        ("gpt2", 124_439_808, 124_439_808),
        ("llama-3-8b", 8_030_261_248, 8_030_261_248),
        ("llama-3-70b", 70_553_706_496, 70_553_706_496),
        ("mixtral-8x7b", 46_702_792_704, 12_879_925_248),
    ],
)
def test_published_totals(name, total, active):
    assert parameters.totals(shipped(name)) == (total, active)


def test_section_7():
    spec = explicit(SECTION_7)
    assert parameters.totals(spec) == (202_304, 202_304)
    rows = parameters.compute({"m": spec.to_json()})
    norms = [row for row in rows if row["component"] == "norm"]
    assert [(row["copies"], row["parameters"]) for row in norms] == [(9, 576)]
    assert sum(row["parameters"] for row in rows) == 202_304


def test_random_teaching_decoders():
    """Sums of rows against the texts' closed forms, a thousand shapes."""
    draw = random.Random(0).randint
    for _ in range(1000):
        L, h, d_h, f, V, C = (draw(1, top) for top in (90, 64, 256, 30_000, 300_000, 100_000))
        B, T, d = draw(1, 64), draw(1, C), h * d_h
        keys = {"layers": L, "d_model": d, "heads": h, "d_ff": f, "vocabulary": V, "context": C, "positions": "learned"}
        keys |= {"norm": "layernorm", "feedforward": "gelu", "biases": {"feedforward": True, "norm": True}}
        spec = explicit(keys)
        assert parameters.totals(spec)[0] == architecture.teaching_parameters(V, d, C, L, f)
        layer = architecture.attention_projections(B, T, d) + architecture.plain_feedforward(B, T, d, f)
        layer += architecture.attention_scores_and_values(B, T, d)
        assert matmul.total(spec, B, T, "prefill") == L * layer + architecture.head(B, T, V, d)


def test_forward_flops():
    assert matmul.total(shipped("llama-3-8b"), 1, 4096, "prefill") == 70_274_254_897_152
    assert matmul.total(shipped("gpt2"), 1, 1024, "prefill") == 291_648_307_200


def test_caches():
    llama = shipped("llama-3-8b")
    assert kv_cache.cache_bytes(llama, 1, 4096, "bf16", "needed") == 536_870_912
    mistral = shipped("mistral-7b")  # transformers' dynamic and static caches at 4096, window 4096
    assert kv_cache.cache_bytes(mistral, 1, 4096, "bf16", "dynamic") == 536_739_840
    assert kv_cache.cache_bytes(mistral, 1, 4096, "bf16", "static") == 536_870_912


@pytest.mark.parametrize(("dtype", "ratio"), [("int4-g64", "0.28125"), ("int2-g64", "0.15625"), ("fp8", "0.5")])
def test_quantised_cache(dtype, ratio):
    assert Fraction(row_bytes(1024, dtype), row_bytes(1024, "bf16")) == Fraction(ratio)
    assert bytes_per_number(dtype) / bytes_per_number("bf16") == Fraction(ratio)
    llama = shipped("llama-3-8b")
    assert kv_cache.cache_bytes(llama, 1, 4096, dtype, "needed") == Fraction(ratio) * 536_870_912


def test_groups_end_with_a_position():
    """Two heads of 16 fill half a group of 64: a position stores a whole one, for keys and for values."""
    modern = explicit({**SECTION_7, "kv_heads": 2})
    assert kv_cache.bytes_per_token(modern, 8, "int4-g64", "needed") == 4 * 2 * (32 + 4)
    assert kv_cache.bytes_per_token(modern, 8, "int4-g32", "needed") == 4 * 2 * (16 + 4)
    assert kv_cache.bytes_per_token(modern, 8, "int4", "needed") == 4 * 2 * 16


@pytest.mark.parametrize("dtype", ["int3", "bf16-g64", "int4-g", "int4-g0", ""])
def test_unknown_dtype(dtype):
    with pytest.raises(ValueError, match="unknown dtype"):
        row_bytes(64, dtype)


def test_ratio_to_multi_head_attention():
    rows = kv_cache.compute(
        {"llama": shipped("llama-3-8b").to_json(), "gpt2": shipped("gpt2").to_json()},
        {"w": {"batch": 2, "context": 64}, "too long": {"batch": 1, "context": 8192}},
        ["bf16"],
    )
    found = {(row["model"], row["workload"]): row["ratio_to_mha"] for row in rows if row["policy"] == "needed"}
    assert found == {("llama", "w"): 0.25, ("llama", "too long"): 0.25, ("gpt2", "w"): 1.0}  # gpt2 ends at 1024


def test_head_counts_once_tied_or_not():
    for tied in (True, False):
        rows = matmul.compute(
            {"m": explicit({**SECTION_7, "tied_head": tied}).to_json()}, {"w": {"batch": 1, "context": 1}}
        )
        heads = [r["flops"] for r in rows if (r["component"], r["phase"], r["convention"]) == ("head", "train", "full")]
        assert heads == [6 * 56 * 64]


def test_rows_of_a_convention_add_up_and_conventions_differ_in_attention_alone():
    spec = explicit(MIXED)
    rows = matmul.compute({"m": spec.to_json()}, {"w": {"batch": 3, "context": 32}})
    by = tables.by(rows, "phase", "convention")
    assert set(by) == {(p, c) for p in ("prefill", "train") for c in ("full", "causal-exact")} | {("decode", "full")}
    for (phase, convention), group in by.items():
        assert sum(row["flops"] for row in group) == matmul.total(spec, 3, 32, phase, convention)
        assert all(2 * row["multiply_adds"] == row["flops"] for row in group)
        assert len({row["component"] for row in group}) == len(group)
    for full, causal in zip(by["prefill", "full"], by["prefill", "causal-exact"], strict=True):
        pairs = full["component"] in ("attention.scores", "attention.values")
        assert Fraction(causal["flops"], full["flops"]) == (Fraction(8 * 9 // 2 + 24 * 8, 32 * 32) if pairs else 1)
    for forward, train in zip(by["prefill", "full"], by["train", "full"], strict=True):
        assert train["flops"] == 3 * forward["flops"]
        assert train["formula"] == f"3 * ({forward['formula']})"


def test_latent_decode_expanded_and_absorbed():
    spec = shipped("deepseek-v3")
    expanded = matmul.total(spec, 1, 513, "decode")
    assert expanded == 1_123_784_736_768  # counted by transformers with 512 positions in the cache
    up = sum(
        p.flops for p in matmul.products(spec, 1, 1, 1, "decode") if p.component in ("attention.key", "attention.value")
    )
    assert round(expanded / (expanded - 512 * up), 1) == 14.8  # against expanding the new token alone
    rows = matmul.compute({"m": spec.to_json()}, {"w": {"batch": 1, "context": 513}})
    absorbed = [row for row in rows if row["convention"] == "absorbed"]
    assert {row["phase"] for row in absorbed} == {"decode"}
    # The new token alone expanded; 128 query heads against latents of 512 + 64 and 512, not heads of 192 and 128.
    scores_and_values = 2 * 61 * 513 * 128 * (512 + 64 + 512 - 192 - 128)
    assert sum(row["flops"] for row in absorbed) == expanded - 512 * up + scores_and_values


def test_layers_of_two_kinds_share_a_row():
    rows = {(row["component"], row["bias"]): row for row in parameters.compute({"m": shipped("deepseek-v3").to_json()})}
    row = rows["feedforward.up", False]
    assert row["shape"] == "3 × (18432 × 7168) + 58 × (256 × 2048 × 7168)"
    assert row["formula"] == "3 × (d * f) + 58 × (E * d * f)"
    assert row["copies"] == 61


@pytest.mark.parametrize("recipe", BYTES)
def test_bytes_a_parameter(recipe):
    spec = explicit(SECTION_7)
    rows = training_state.compute({"m": spec.to_json()}, {recipe: RECIPES[recipe]})
    held = {row["item"]: row["bytes"] for row in rows}
    tensors = parameters.tensor_count(spec)
    assert held.pop("step", 4 * tensors) == 4 * tensors == 4 * (2 + 1 + 4 * 9)
    assert sum(held.values()) == BYTES[recipe] * 202_304


def test_second_moments_that_are_not_one_number_a_parameter():
    one = {"m": explicit({**SECTION_7, "layers": 1, "tied_head": True}).to_json()}
    adafactor = training_state.compute(one, {"r": RECIPES["adafactor"]})
    sides = (56 + 64) + 4 * (64 + 64) + 3 * (168 + 64) + 3 * 64  # embedding, attention, feed-forward; the norms whole
    assert [row["bytes"] for row in adafactor if row["item"] == "second_moment"] == [4 * sides]
    eight = training_state.compute(one, {"r": RECIPES["8-bit"]})
    N, groups = 56 * 64 + 4 * 64**2 + 3 * 168 * 64 + 3 * 64, 14 + 4 * 16 + 3 * 42 + 3  # a norm of 64 starts a group
    assert [row["bytes"] for row in eight if row["item"] == "second_moment"] == [N + 4 * groups]


def test_adamw_state_of_llama_3_8b():
    rows = training_state.compute({"m": shipped("llama-3-8b").to_json()}, {"adamw": ADAMW})
    moments = sum(row["bytes"] for row in rows if row["item"] in ("first_moment", "second_moment", "step"))
    assert moments == 64_242_091_148


@pytest.mark.parametrize(
    ("stage", "divided"),
    [
        (0, set()),
        (1, {"master_weights", "first_moment", "second_moment"}),
        (2, {"master_weights", "first_moment", "second_moment", "gradients"}),
        (3, {"master_weights", "first_moment", "second_moment", "gradients", "weights"}),
    ],
)
def test_sharding(stage, divided):
    recipe = {**RECIPES["bf16-master"], "devices": 7, "zero_stage": stage}
    for row in training_state.compute({"m": explicit(SECTION_7).to_json()}, {"r": recipe}):
        width = {"bf16": 2, "fp32": 4}[row["dtype"]]
        share = -(-202_304 // 7) * width if row["item"] in divided else row["bytes"]
        assert (row["devices"], row["bytes_per_device"]) == (7, share)


def test_training_compute():
    run = {"model": "llama-3-70b", "architecture": shipped("llama-3-70b").to_json(), "tokens": 15 * 10**12}
    run |= {"devices": 16_000, "flops_per_second_per_device": 400e12, "published_device_hours": 6_400_000}
    short = {key: run[key] for key in ("model", "architecture", "tokens")} | {"context": 4096}
    row, other = training_compute.compute({"published": run, "short": short})
    N = 70_553_706_496
    assert row["flops_6nd"] == 6 * N * 15 * 10**12
    assert row["seconds"] == float(Fraction(6 * N * 15 * 10**12, 16_000 * 400 * 10**12))
    assert row["implied_flops_per_second_per_device"] == pytest.approx(275.6e12, rel=1e-3)
    spec = shipped("llama-3-70b")
    assert row["flops_exact"] * 8192 == matmul.total(spec, 1, 8192, "train") * 15 * 10**12
    assert other["flops_exact"] < row["flops_exact"]
    assert (other["seconds"], other["days"], other["implied_flops_per_second_per_device"]) == (None, None, None)


# Against a model that runs.

WORKLOADS = {"w": {"batch": 2, "context": 24}}
DTYPES = ["bf16", "fp8", "int4-g64"]


@pytest.fixture(scope="module")
def executed():
    from transformer_ledger.executed import run

    specs = {"section-7": explicit(SECTION_7), "mixed": explicit(MIXED)}
    models = {name: spec.to_json() for name, spec in specs.items()}
    rows = {name: run.compute(data, None, WORKLOADS, RECIPES, DTYPES) for name, data in models.items()}
    return models, rows


def every_ledger(models, execution):
    return {
        "parameters": parameters.compute(models, execution),
        "training_state": training_state.compute(models, RECIPES, execution),
        "kv_cache": kv_cache.compute(models, WORKLOADS, DTYPES, execution),
        "matmul": matmul.compute(models, WORKLOADS, execution),
        "agreement": agreement.compute(models, WORKLOADS, DTYPES, execution),
    }


def wrong(ledgers):
    return {name for name, rows in ledgers.items() if any(row["difference"] for row in rows)}


def test_difference_is_zero(executed):
    ledgers = every_ledger(*executed)
    assert wrong(ledgers) == set()
    for name, rows in ledgers.items():
        missing = [row for row in rows if row["difference"] is None]
        # Not run by a dense model, or a cache that only transformers has.
        assert all(
            row.get("convention") == "causal-exact" or row.get("policy") in ("dynamic", "static") for row in missing
        )
        assert len(missing) < len(rows), name


def test_without_execution_there_is_no_difference(executed):
    ledgers = every_ledger(executed[0], None)
    assert ledgers.pop("agreement") == []
    assert all(row["difference"] is None for rows in ledgers.values() for row in rows)


@pytest.mark.parametrize("component", ["attention.key", "norm", "feedforward.gate", "router", "head"])
def test_a_tensor_left_out_shows(executed, monkeypatch, component):
    models, rows = executed
    every = parameters.tensors
    monkeypatch.setattr(parameters, "tensors", lambda spec: [t for t in every(spec) if t.component != component])
    monkeypatch.setattr(training_state, "tensors", parameters.tensors)
    assert wrong(every_ledger(models, rows)) == {"training_state", "agreement"}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("head", lambda B, T, V, d: B * T * V * d),
        ("training", lambda F: 2 * F),
        ("scores", lambda B, T, S, h, d_h: 2 * B * T * (S + 1) * h * d_h),
        ("scores_windowed", lambda B, T, S, w, h, d_h: 2 * B * T * S * h * d_h),
        ("experts", lambda B, T, k, d, f: 2 * B * T * 4 * d * f),
    ],
)
def test_a_wrong_formula_shows(executed, monkeypatch, name, change):
    monkeypatch.setattr(matmul_formulas, name, change)
    monkeypatch.setattr("transformer_ledger.ledger.matmul.text", lambda *_, **__: "")
    assert wrong(every_ledger(*executed)) == {"matmul", "agreement"}


def test_a_wrong_shape_is_refused(monkeypatch):
    monkeypatch.setattr(parameter_formulas, "query", lambda d, h, d_h: d * h)
    with pytest.raises(AssertionError):
        parameters.compute({"m": explicit(SECTION_7).to_json()})


def test_tables_take_the_rows(executed, tmp_path):
    for name, rows in every_ledger(*executed).items():
        tables.write(tmp_path / "t.parquet", f"ledger/{name}", rows, {})
        assert len(tables.read(tmp_path / "t.parquet", f"ledger/{name}")) == len(rows)
    huge = {"model": "m", "component": "head", "parameters": 2**63}
    with pytest.raises(tables.TableError, match="does not fit int64"):
        tables.write(tmp_path / "t.parquet", "ledger/parameters", [huge], {})
