"""Public configuration files with right values that were derived elsewhere: each is sized right, or refused by name."""

import json
from pathlib import Path

import jsonschema
import pytest

from transformer_ledger import huggingface, size
from transformer_ledger.keys import NoClosedForm
from transformer_ledger.ledger import kv_cache, matmul, parameters, stored
from transformer_ledger.model import ModelError

HERE = Path(__file__).parent
CONFIGS = {
    path.stem: path
    for folder in (HERE / "resources/configs", HERE.parent / "resources/models/newer")
    for path in sorted(folder.glob("*.json"))
}


def read(name):
    return huggingface.read(name, huggingface.parsed(CONFIGS[name].read_text()))


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
    "llama-4-scout": (107_769_861_120, 17_172_894_720, 196_608),
    "qwen3.5-35b-a3b": (34_660_610_688, None, 20_480),
    "nemotron-3-nano-30b": (31_577_937_344, None, None),
    "nemotron-h-56b-infinity": (56_324_350_464, None, None),
    # The index of its published tensors says 49,122,681,728. That counts the number that 26 layers add to the score
    # of each of 256 experts, which transformers keeps as a buffer.
    "kimi-linear-48b-a3b": (49_122_681_728 - 26 * 256, None, 7 * 2 * (512 + 64)),
    # Public pages give 521M parameters, and a file of 1.04 GB in bf16.
    "falcon-h1-0.5b": (521_411_104, None, 36 * 2 * 2 * 2 * 64),
    "deepseek-v3.2": (671_877_929_216, None, 2 * 61 * (512 + 64 + 128)),
    "glm-5.1": (743_911_199_232, None, 2 * 78 * (512 + 64 + 128)),
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
        assert size.main([str(CONFIGS["llama-2-7b"]), "--context", str(tokens), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["kv_cache"]["bytes"] == held
        assert (
            f"context: {tokens} is longer than the model's 4096; sized as asked, whatever the model makes of it"
            in (found["defaulted"])
        )
    assert size.main([str(CONFIGS["santacoder-original"]), "--context", "4096"]) == 1
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
        ({"rope_scaling": {"type": "yarn", "factor": "4"}}, "factor", "is not a number"),
    ],
)
def test_a_file_that_is_another_model_is_refused(keys, key, message):
    with pytest.raises(ModelError, match=message) as caught:
        huggingface.read("m", LLAMA | keys)
    assert caught.value.key == key
    with pytest.raises(ModelError):
        read("eagle3-llama3.1-8b")


def test_every_key_of_a_file_is_used_or_named():
    odd = {
        "attention_dropout": 0.1,
        "resid_pdrop": 0.2,
        "num_nextn_predict_layers": 1,
        "use_cache": True,
        "layer_sharing": 3,
    }
    _, notes = huggingface.read("m", LLAMA | odd)
    text = "\n".join(notes)
    assert "dropout: attention_dropout 0.1; saved activations are given with it and without it" in notes
    assert "not counted: resid_pdrop 0.2; no dropout of llama's decoder" in notes
    assert "num_nextn_predict_layers: 1; such layers stand in the checkpoint" in text
    assert "not used: use_cache; no size here depends on them" in notes
    assert "not known: layer_sharing 3; no key of llama that this reader follows" in notes


@pytest.mark.parametrize("name", ["skywork-reward-llama-3.1-8b", "e5-mistral-7b-instruct", "llama-rope-dynamic"])
def test_the_class_that_the_file_names_is_met(name):
    from transformer_ledger.executed import transformers_model

    raw = json.loads(CONFIGS[name].read_text()) | {"hidden_size": 64, "intermediate_size": 48}
    raw |= {"vocab_size": 40, "num_hidden_layers": 2, "head_dim": 8}
    spec, _ = huggingface.read(name, raw)
    rows = size.executed(spec, raw, 2, 12, "bf16")
    assert type(transformers_model.build(raw)).__name__ == raw["architectures"][0]
    assert {row["quantity"] for row in rows if row["implementation"] == "transformers"} >= {"parameters", "flops"}
    assert not [row for row in rows if row["difference"]]


# --- what a file stores ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("gpt-oss-120b-mxfp4", 65_248_815_744),
        ("tinyllama-1.1b", 4_400_193_536),
        ("phi-2", 2 * 2_779_683_840),
        # Linear maps in fp8, of 128 × 128 numbers one scale in fp32, and embedding, head and norms in bf16.
        ("qwen3-32b-fp8", 31_205_621_760 + 4 * 31_205_621_760 // 128**2 + 2 * (32_762_123_264 - 31_205_621_760)),
    ],
)
def test_weights_take_what_the_file_says(name, held):
    assert stored.stored(read(name)[0], raw(name), []).bytes == held


MAPS = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 256)  # numbers in the linear maps of the small Llama below
SMALL = {"num_key_value_heads": 2, "intermediate_size": 256, "vocab_size": 100, "max_position_embeddings": 64}
REST = 2 * (2 * 100 * 64 + 5 * 64)  # embedding, head and norms in 16 bits
INPUTS = 2 * (3 * 64 + 64 + 2 * 64 + 256)  # columns of all the maps
ROWS = 2 * (64 + 2 * 32 + 64 + 2 * 256 + 64)


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ({"quant_method": "fp8"}, MAPS + 4 * 14),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, MAPS + 4 * 2 * (1 + 1 + 1 + 1 + 3 * 4)),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, MAPS // 2 + MAPS // 32 * 5 // 2 + 4 * INPUTS),
        ({"quant_method": "awq", "bits": 4, "group_size": 32}, MAPS // 2 + MAPS // 32 * 5 // 2),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, MAPS + 4 * ROWS),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, MAPS // 2 + MAPS // 64 * 4 + 14 * 64),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, MAPS // 2 + MAPS // 16 + 14 * 8),
        ({"quant_method": "fp8", "modules_to_not_convert": ["down_proj"]}, MAPS + 2 * 64 * 256 + 4 * 12),
        ({"quant_method": "fp8", "ignore": ["model.layers.0.mlp.gate_proj"]}, MAPS + 64 * 256 + 4 * 13),
        ({"quant_method": "fp8", "ignore": ["re:.*layers.0.*"]}, MAPS * 3 // 2 + 4 * 7),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"a": {"weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}},
            },
            MAPS + 2 * ROWS,
        ),
    ],
)
def test_what_a_quantised_map_keeps(given, held):
    config = LLAMA | SMALL | {"torch_dtype": "float16", "quantization_config": given}
    assert stored.stored(huggingface.read("m", config)[0], config, []).bytes == held + REST


def test_a_method_that_is_not_known_is_named():
    notes = []
    raw = LLAMA | SMALL | {"torch_dtype": "float16", "quantization_config": {"quant_method": "hqq"}}
    assert stored.stored(huggingface.read("m", raw)[0], raw, notes).bytes == 2 * MAPS + REST
    assert notes[0].startswith("quantization_config: hqq is not known here, bytes are those of fp16")
    for wrong in ({"quant_method": "gptq", "bits": 5}, {"quant_method": "fp8", "weight_block_size": 128}, ["fp8"]):
        with pytest.raises(ModelError) as caught:
            stored.stored(huggingface.read("m", raw)[0], raw | {"quantization_config": wrong}, [])
        assert caught.value.key == "quantization_config"


def test_types_by_block_and_keys_and_values_of_their_own():
    llama = {"model_type": "llama", "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8}
    spec, _ = huggingface.read("32b", llama | {"hidden_size": 5120, "head_dim": 128, "max_position_embeddings": 40_960})
    q8 = kv_cache.cache_bytes(spec, 1, 32_768, "q8_0", "needed")
    assert q8 == 4_563_402_752
    q4 = kv_cache.cache_bytes(spec, 1, 32_768, "q4_0", "needed")
    assert q4 * 34 == q8 * 18
    assert 2 * kv_cache.cache_bytes(spec, 1, 32_768, "q8_0/q4_0", "needed") == q8 + q4


# --- the second tier ------------------------------------------------------------------------------------------------

# Parameters that transformers builds, and active ones where they are known from elsewhere.
COUNTED = {
    "qwen3.5-35b-a3b": (34_660_610_688, None),
    "llama-4-scout": (107_769_861_120, 17_172_894_720),
    "nemotron-3-nano-30b": (31_577_937_344, None),
    "nemotron-h-56b-infinity": (56_324_350_464, None),
    "gemma-4-26b-a4b": (25_233_141_760, None),
    "deepseek-v3.2": (671_877_929_216, None),
    "glm-5.1": (743_911_199_232, None),
    "glm-4.5-air": (106_852_245_504, 13_424_123_904),
}


def raw(name, **changes):
    """The file, with changes of its text part."""
    held = huggingface.parsed(CONFIGS[name].read_text())
    return held | ({"text_config": held["text_config"] | changes} if "text_config" in held else changes)


@pytest.mark.parametrize("name", COUNTED)
def test_a_family_without_a_closed_form_is_counted(name):
    from transformer_ledger.executed import counted, transformers_model

    total, active = COUNTED[name]
    components, used, _ = counted._parameters(transformers_model.build(raw(name)))
    assert components.total() == total
    assert active in (None, used)
    if name not in RIGHT:
        with pytest.raises(NoClosedForm):
            read(name)


def test_work_and_cache_are_counted_layer_by_layer():
    from transformer_ledger.executed import counted

    config = raw("qwen3.5-35b-a3b", num_hidden_layers=4, layer_types=None)
    spec, hybrid = huggingface.read("m", config)[0], counted._counted(config, 1, 8, False)
    assert 10 * hybrid["bytes_per_token"] == 20_480  # one of four layers
    state = kv_cache.state_bytes(spec, 1, "bf16")
    assert hybrid["state_bytes"] == state == kv_cache.cache_bytes(spec, 1, 4096, "bf16", "state")
    assert hybrid["bytes"] == kv_cache.cache_bytes(spec, 1, 8, "bf16", "needed") - state
    scout = counted._counted(raw("llama-4-scout", num_hidden_layers=2), 1, 8, False)
    assert scout["every_expert_runs"]
    assert scout["state_bytes"] == 0
    assert scout["unused"] == ["rope_theta"]
    config = raw("glm-4.5-air", num_hidden_layers=3)
    spec, found = huggingface.read("m", config)[0], counted._counted(config, 2, 8, True)
    assert not found["every_expert_runs"]
    assert found["forward_flops"] == matmul.total(spec, 2, 8, "prefill")
    assert found["decode_flops"] == matmul.total(spec, 2, 8, "decode")
    assert found["training_flops"] == matmul.total(spec, 2, 8, "train")
    assert found["bytes"] == kv_cache.cache_bytes(spec, 2, 8, "bf16", "needed")
    assert found["bytes_per_token"] == kv_cache.bytes_per_token(spec, 8, "bf16", "needed")


def test_every_figure_that_is_counted_says_so(tmp_path, capsys):
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    (tmp_path / "helium.json").write_text(
        json.dumps({"model_type": "helium", "head_dim": 8, "vocab_size": 40, **small})
    )
    arguments = [str(tmp_path / "helium.json"), "--context", "8", "--execute"]
    assert size.main(arguments) == 0
    figures = [line for line in capsys.readouterr().out.splitlines()[1:] if not line.startswith("defaulted: ")]
    assert len(figures) > 10
    assert all(line.endswith("(counted, no closed form)") for line in figures)
    assert any(line.startswith("matmul.training_flops") for line in figures)
    assert size.main([*arguments, "--json"]) == 0
    jsonschema.validate(json.loads(capsys.readouterr().out), json.loads(size.SCHEMA.read_text()))


# Families without a closed form, in few layers and with sizes of their own: each is counted, or refused for a reason.
NEMOTRON = {"model_type": "nemotron_h", "hybrid_override_pattern": "ME*", "hidden_size": 64, "vocab_size": 100}


@pytest.fixture(scope="module")
def imported():
    """What each process that runs a model would import anew."""
    pytest.importorskip("torch._dynamo")
    pytest.importorskip("transformer_ledger.executed.transformers_model")


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize(
    ("config", "outcome"),
    [
        (lambda: raw("glm-5.1", num_hidden_layers=4, index_topk_freq=2), "counted"),
        (lambda: raw("gemma-4-26b-a4b", num_hidden_layers=6, layer_types=None), "counted"),
        (lambda: NEMOTRON | {"moe_latent_size": 16}, "counted"),
        (lambda: {"model_type": "olmo_hybrid", "num_hidden_layers": 8}, "counted"),
        (lambda: {"model_type": "jetmoe", "num_hidden_layers": 2}, "does not run on shapes alone"),
        (lambda: {"model_type": "gemma3n", "text_config": {"num_hidden_layers": 4}}, "transformers does not build it"),
    ],
)
def test_what_has_no_closed_form_is_counted_or_refused_with_the_reason(config, outcome, tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config()))
    code = size.main([str(path), "--context", "8"])
    out, err = capsys.readouterr()
    if outcome == "counted":
        assert code == 0, err
        assert "parameters.total" in out
        assert all(line.endswith("(counted, no closed form)") for line in out.splitlines() if line.startswith("par"))
    else:
        assert code == 1
        assert "unknown model_type" in err
        assert outcome in err


@pytest.mark.usefixtures("imported")
def test_a_model_without_keys_is_sized_and_not_run(tmp_path, capsys):
    path = tmp_path / "config.json"
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "mamba_n_heads": 4, "vocab_size": 50}
    path.write_text(json.dumps({"model_type": "granitemoehybrid", **small}))
    assert size.main([str(path), "--context", "8"]) == 0
    capsys.readouterr()
    assert size.main([str(path), "--context", "8", "--execute"]) == 1
    assert "no layer attends, and without keys transformers’ cache does not run" in capsys.readouterr().err


def test_several_files_make_a_table_or_a_list(capsys, tmp_path):
    paths = [str(CONFIGS[name]) for name in ("phi-2", "gpt-j-6b")]
    assert size.main(paths) == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()[1:]] == ["model", "phi-2", "gpt-j-6b"]
    assert "2,779,683,840" in shown
    assert size.main([*paths, "--json"]) == 0
    for found in json.loads(capsys.readouterr().out):
        jsonschema.validate(found, json.loads(size.SCHEMA.read_text()))
    assert size.main([*paths, str(tmp_path / "none.json")]) == 1
    shown = capsys.readouterr()
    assert "none.json: No such file" in shown.err
    assert "gpt-j-6b" in shown.out


def test_an_older_file_of_a_vision_model_gives_its_text_part():
    text = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    text |= {"intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 64}
    config = {"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", **text}
    config |= {"vision_config": {"hidden_size": 8}, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}
    spec, notes = huggingface.read("m", config)
    assert spec == huggingface.read("m", {"model_type": "qwen2", **text})[0]
    assert f"vision_config: {huggingface.TEXT_PART}" in notes
    rows = size.executed(spec, config, 2, 12, "bf16")
    assert rows
    assert not [row for row in rows if row["difference"]]


def test_the_page_of_families_is_the_one_that_make_families_writes():
    from transformer_ledger.executed import catalogue

    page = (HERE.parent / "docs/families.md").read_text()
    exact, _, counted = page.partition("\n## Counted, no closed form\n")
    assert exact == catalogue.exact()
    assert {"falcon_mamba", "gemma4_text"} <= set(counted.split("`"))


def test_the_multi_token_layer_makes_deepseek_v3_the_published_685b():
    config = huggingface.parsed((HERE.parent / "resources/models/deepseek-v3.json").read_text())
    config |= {"num_nextn_predict_layers": 1}
    spec, notes = huggingface.read("m", config)
    biases = 256 * (58 + 1)  # of the routers, which are buffers
    assert parameters.totals(spec)[0] + stored.multi_token(spec, config) + biases == 684_489_845_504
    assert any(note.startswith("num_nextn_predict_layers: 1; such layers stand in the checkpoint") for note in notes)
