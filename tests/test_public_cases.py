"""Public configuration files with right values that were derived elsewhere: each is sized right, or refused by name."""

import json
from pathlib import Path

import pytest

from transformer_ledger import huggingface, size
from transformer_ledger.ledger import kv_cache, parameters
from transformer_ledger.model import ModelError

CONFIGS = Path(__file__).parent / "resources" / "configs"


def read(name):
    return huggingface.read(name, huggingface.parsed((CONFIGS / f"{name}.json").read_text()))


def cache(name, tokens, batch=1):
    return kv_cache.cache_bytes(read(name)[0], batch, tokens, "bf16", "needed")


# Parameters, active ones and bytes of one more token where such a figure is known.
RIGHT = {
    "santacoder-original": (1_124_886_528, None, 12_288),
    "e5-mistral-7b-instruct": (7_110_660_096, None, None),
    "skywork-reward-llama-3.1-8b": (7_504_928_768, None, None),
    "glm-4.5-air": (106_852_245_504, 13_424_123_904, 188_416),
    "minimax-m2.5": (228_689_748_992, None, None),
    "kimi-k2-instruct": (1_026_408_209_408, 32_861_477_888, None),
    "qwen1.5-moe-a2.7b": (14_315_784_192, 2_689_173_504, None),
    "gpt-j-6b": (6_050_882_784, None, None),
    "phi-2": (2_779_683_840, None, None),
    "qwen3-vl-8b": (8_190_735_360, None, None),
    "gpt-oss-120b-mxfp4": (114_661_785_600 + 2_167_371_072, None, None),
}


@pytest.mark.parametrize("name", RIGHT)
def test_parameters_and_cache(name):
    total, active, added = RIGHT[name]
    spec, _ = read(name)
    every, used = parameters.totals(spec)
    assert every == total
    if active:
        assert used == active
    if added:
        assert kv_cache.bytes_per_token(spec, 64, "bf16", "needed") == added


@pytest.mark.parametrize(
    ("name", "reached", "held"),
    [
        ("qwen1.5-7b-yarn-vllm4930", 131_072, 68_719_476_736),
        ("qwen3-14b-yarn", 131_072, None),
        ("vicuna-7b-v1.5-16k", 16_384, 8_589_934_592),
        ("llama-rope-dynamic", 8_192, None),
        ("skywork-reward-llama-3.1-8b", 131_072, None),
        ("gpt-oss-120b-mxfp4", 131_072, None),
        ("kimi-k2-instruct", 131_072, None),
    ],
)
def test_scaled_positions_reach_the_length_that_the_file_says(name, reached, held):
    spec, notes = read(name)
    assert spec.context == reached
    if held:
        assert cache(name, reached) == held
        assert any(note.startswith("rope_scaling: ") for note in notes)


def test_past_its_own_length_a_model_is_sized_with_a_note(capsys):
    for tokens, held in ((10_000, 5_242_880_000), (4_196, 2_199_912_448)):
        assert size.main([str(CONFIGS / "llama-2-7b.json"), "--context", str(tokens), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["kv_cache"]["bytes"] == held
        assert (
            f"context: {tokens} is longer than the model's 4096; sized as asked, whatever the model makes of it"
            in (found["defaulted"])
        )
    assert size.main([str(CONFIGS / "santacoder-original.json"), "--context", "4096"]) == 1
    assert "longer than the model's 2048; it learned that many positions" in capsys.readouterr().err


def test_a_bare_model_multiplies_no_head():
    found = {}
    for name in ("e5-mistral-7b-instruct", "skywork-reward-llama-3.1-8b", "tinyllama-1.1b"):
        found[name] = size.sizes(*read(name), 1, 64, "bf16", "bf16")["parameters"]["components"]
    assert "head" not in found["e5-mistral-7b-instruct"]
    assert found["skywork-reward-llama-3.1-8b"]["head"] == 4096
    assert found["tinyllama-1.1b"]["head"] == 32_000 * 2048


LLAMA = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}


@pytest.mark.parametrize(
    ("keys", "key", "message"),
    [
        ({"draft_vocab_size": 100}, "draft_vocab_size", "the draft head of another model"),
        ({"architectures": ["LlamaForTokenClassification"]}, "architectures", "no class of llama that is sized here"),
        ({"architectures": ["MistralForCausalLM"]}, "architectures", "'MistralForCausalLM' is no class of llama"),
        ({"architectures": "LlamaForCausalLM"}, "architectures", "not a list of one name"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder", "an encoder and a decoder"),
        ({"rope_scaling": {"type": "yarn", "factor": "4"}}, "factor", "not a positive number"),
    ],
)
def test_a_file_that_is_another_model_is_refused(keys, key, message):
    with pytest.raises(ModelError, match=message) as caught:
        huggingface.read("m", LLAMA | keys)
    assert caught.value.key == key
    with pytest.raises(ModelError):
        read("eagle3-llama3.1-8b")


def test_every_key_of_a_file_is_used_or_named():
    odd = {"attention_dropout": 0.1, "num_nextn_predict_layers": 1, "use_cache": True, "layer_sharing": 3}
    _, notes = huggingface.read("m", LLAMA | odd)
    text = "\n".join(notes)
    assert "dropout: attention_dropout 0.1; saved activations are counted without it" in notes
    assert "num_nextn_predict_layers: 1; such layers stand in the checkpoint" in text
    assert "not used: use_cache; no size here depends on them" in notes
    assert "not known: layer_sharing 3; no key of llama that this reader follows" in notes


@pytest.mark.parametrize("name", ["skywork-reward-llama-3.1-8b", "e5-mistral-7b-instruct", "llama-rope-dynamic"])
def test_the_class_that_the_file_names_is_met(name):
    from transformer_ledger.executed import transformers_model

    raw = json.loads((CONFIGS / f"{name}.json").read_text()) | {"hidden_size": 64, "intermediate_size": 48}
    raw |= {"vocab_size": 40, "num_hidden_layers": 2, "head_dim": 8}
    spec, _ = huggingface.read(name, raw)
    rows = size.executed(spec, raw, 2, 12, "bf16")
    assert type(transformers_model.build(raw)).__name__ == raw["architectures"][0]
    assert {row["quantity"] for row in rows if row["implementation"] == "transformers"} >= {"parameters", "flops"}
    assert not [row for row in rows if row["difference"]]
