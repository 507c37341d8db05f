"""Figures that public calculators get wrong, and the right ones as this project gives them to whoever asks."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from transformer_ledger import huggingface, size
from transformer_ledger.ledger import matmul, training_compute
from transformer_ledger.model import from_architecture
from transformer_ledger.report import numbers

MODELS = Path(__file__).parents[1] / "resources" / "models"
QWEN3_4B = {"model_type": "qwen3", "num_hidden_layers": 36, "num_key_value_heads": 8, "head_dim": 128}
QWEN3_4B |= {"hidden_size": 2560, "num_attention_heads": 32, "intermediate_size": 9728}
BIGCODE = {"model_type": "gpt_bigcode", "multi_query": True}
LLAMA = {"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 8}
Sized = Callable[..., Any]


@pytest.fixture
def sized(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Sized:
    """`size` of a shipped model or of a config.json: one figure by its key, or what it prints where no key is given."""

    def run(config: str | dict[str, Any], key: str, *arguments: str) -> Any:
        path = MODELS / f"{config}.json"
        if isinstance(config, dict):
            path = tmp_path / "config.json"
            path.write_text(json.dumps(config))
        assert size.main([str(path), *arguments, *(["--json"] if key else [])]) == 0
        printed = capsys.readouterr().out
        if not key:
            return printed
        found = json.loads(printed)
        for part in key.split("."):
            found = found[part]
        return found

    return run


@pytest.mark.parametrize(
    ("config", "arguments", "key", "right"),
    [
        (QWEN3_4B, "", "kv_cache.bytes_per_token", 147_456),  # 92,160 where a head is taken to be d/h wide
        ("deepseek-v3", "", "kv_cache.bytes_per_token", 70_272),  # 124,928 or 1,748,992 where no latent is known
        ("mixtral-8x7b", "", "parameters.total", 46_702_792_704),
        ("mixtral-8x7b", "", "parameters.active", 12_879_925_248),  # "13 B"
        ("llama-3.1-70b", "--dtype fp16", "parameters.bytes", 141_107_412_992),  # 64.73 "GB"
        ("gpt2", "", "parameters.total", 124_439_808),  # 163,037,184 where its tied head counts twice
        # 196,608 and 983,040 where multi_query is not read.
        (BIGCODE | {"n_layer": 24, "n_embd": 2048, "n_head": 16}, "", "kv_cache.bytes_per_token", 12_288),
        (BIGCODE | {"n_layer": 40, "n_embd": 6144, "n_head": 48}, "", "kv_cache.bytes_per_token", 20_480),
        # One of the two, and it is not said which.
        ("gpt-oss-20b", "--batch 32 --context 8192", "kv_cache.bytes", 6_543_114_240),
        ("gpt-oss-20b", "--batch 32 --context 8192", "kv_cache.reserved_bytes", 12_884_901_888),
    ],
)
def test_what_size_says(sized: Sized, config: str | dict[str, Any], arguments: str, key: str, right: int) -> None:
    assert sized(config, key, *arguments.split()) == right


def test_weights_in_both_units(sized: Sized) -> None:
    """A GiB is no GB: 131.42 of the one, 141.11 of the other."""
    assert "141,107,412,992  131.42 GiB = 141.11 GB" in sized("llama-3.1-70b", "", "--dtype", "fp16")
    assert numbers.plain(numbers.size(141_107_412_992)) == "131.4 GiB"
    assert numbers.plain(numbers.size(141_107_412_992, decimal=True)) == "141.11 GB"
    assert "141,107,412,992 bytes" in numbers.size(141_107_412_992)


@pytest.mark.parametrize("tied", [True, False])
def test_embedding_and_head_in_training(sized: Sized, tied: bool) -> None:
    """6Vd FLOPs a token, tied or not: a lookup multiplies nothing, and the head's product runs in any case."""
    config = json.loads((MODELS / "llama-3-8b.json").read_text()) | {"tie_word_embeddings": tied}
    without = config | {"vocab_size": 1}
    flops = [sized(c, "matmul.training_flops", "--context", "1") for c in (config, without)]
    V, d = config["vocab_size"], config["hidden_size"]
    assert flops[0] - flops[1] == 6 * (V - 1) * d
    assert 6 * V * d == 3_152_019_456  # 12Vd where the lookup counts as a product


def test_training_of_gpt_oss_without_its_router(sized: Sized) -> None:
    config = json.loads((MODELS / "gpt-oss-20b.json").read_text())
    flops = sized(config, "matmul.training_flops_causal_exact", "--context", "4096")
    router = 6 * 4096 * config["num_hidden_layers"] * config["hidden_size"] * config["num_local_experts"]
    assert flops - router == 93_848_227_282_944  # 87,640,983,797,760 where a head is taken to be d/h wide


def test_mean_keys_of_a_window() -> None:
    """T = 2048 queries with a window of 512: neither T/2 keys nor w/2."""
    keys: dict[str, Any] = {"layers": 1, "d_model": 8, "heads": 1, "d_ff": 8, "vocabulary": 8, "context": 2048}
    keys |= {"positions": "rope", "norm": "rmsnorm", "feedforward": "gated", "window": 512}
    products = matmul.products(from_architecture("m", keys), 1, 2048, 2048, "prefill", "causal-exact")
    scores = next(product.flops for product in products if product.component == "attention.scores")
    assert Fraction(scores, 2 * 2048 * 8) == Fraction("448.125")


def test_null_head_dim_is_as_absent(sized: Sized) -> None:
    assert sized(LLAMA | {"head_dim": None}, "") == sized(LLAMA, "")


def test_utilisation_of_deepseek_v3() -> None:
    """37e9 active parameters, 14.8e12 tokens, 2.79e6 device-hours: 21.62 % of a peak of 1.513e15 by 6·N·D, not 7.2 %."""
    spec, _ = huggingface.read("m", json.loads((MODELS / "deepseek-v3.json").read_text()))
    run = {"model": "m", "architecture": spec.to_json(), "tokens": 148 * 10**11, "published_device_hours": 2_790_000}
    (row,) = training_compute.compute({"published": run})
    assert row["parameters"] == 37_552_282_624  # what the makers round to 37 billion
    rate = row["implied_flops_per_second_per_device"] * 37 * 10**9 / row["parameters"]
    assert round(100 * rate / 1.513e15, 2) == 21.62
