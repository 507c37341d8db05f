"""Reading a config.json: exact counts of real models, unwritten facts against transformers, refusals by key."""

import json
from pathlib import Path

import pytest
import yaml

from transformer_ledger import huggingface
from transformer_ledger.ledger import agreement, kv_cache, matmul, parameters
from transformer_ledger.model import Dropout, FixedState, ModelError, ModelSpec, from_architecture

MODELS = Path(__file__).parents[1] / "resources" / "models"

# Counted on the classes of transformers 5.24.0 on the meta device, eager attention, one sequence: parameters, active
# ones, FLOPs of a forward pass over 512 tokens, of one more token with 512 cached, of the forward and backward pass;
# then positions, and bytes of a bf16 DynamicCache and StaticCache that hold them.
COUNTED = {
    "deepseek-v3": (
        671_026_404_352,
        37_552_282_624,
        38_813_552_345_088,
        1_123_784_736_768,
        116_440_657_035_264,
        4_096,
        287_834_112,
        287_834_112,
    ),
    "falcon-7b": (
        6_921_720_704,
        6_921_720_704,
        7_240_006_238_208,
        14_141_218_816,
        21_720_018_714_624,
        2_048,
        16_777_216,
        16_777_216,
    ),
    "gemma-2-9b": (
        9_241_705_984,
        9_241_705_984,
        9_643_275_321_344,
        18_835_210_240,
        28_929_825_964_032,
        8_192,
        2_113_757_184,
        2_113_929_216,
    ),
    "gemma-3-1b": (
        999_885_952,
        999_885_952,
        1_051_663_007_744,
        2_054_045_696,
        3_154_989_023_232,
        4_096,
        28_289_024,
        28_311_552,
    ),
    "gpt-neox-20b": (
        20_554_567_680,
        20_554_567_680,
        21_010_443_141_120,
        41_037_103_104,
        63_031_329_423_360,
        2_048,
        2_214_592_512,
        2_214_592_512,
    ),
    "gpt-oss-20b": (
        20_914_757_184,
        4_187_440_704,
        3_796_793_032_704,
        7_340_310_528,
        11_390_379_098_112,
        4_096,
        103_784_448,
        103_809_024,
    ),
    "gpt2-large": (774_030_080, 774_030_080, 838_966_968_320, 1_638_791_680, 2_516_900_904_960, None, None, None),
    "gpt2": (124_439_808, 124_439_808, 136_160_477_184, 265_975_296, 408_481_431_552, 512, 18_874_368, 18_874_368),
    "llama-2-70b": (
        68_976_648_192,
        68_976_648_192,
        71_049_496_494_080,
        138_771_169_280,
        213_148_489_482_240,
        4_096,
        1_342_177_280,
        1_342_177_280,
    ),
    "llama-2-7b": (
        6_738_415_616,
        6_738_415_616,
        6_903_086_186_496,
        13_483_114_496,
        20_709_258_559_488,
        4_096,
        2_147_483_648,
        2_147_483_648,
    ),
    "llama-3-70b": (
        70_553_706_496,
        70_553_706_496,
        71_856_950_345_728,
        140_348_227_584,
        215_570_851_037_184,
        None,
        None,
        None,
    ),
    "llama-3-8b": (
        8_030_261_248,
        8_030_261_248,
        7_822_209_187_840,
        15_278_276_608,
        23_466_627_563_520,
        None,
        None,
        None,
    ),
    "llama-3.1-405b": (
        405_853_388_800,
        405_853_388_800,
        415_602_510_397_440,
        811_731_910_656,
        1_246_807_531_192_320,
        8_192,
        4_227_858_432,
        4_227_858_432,
    ),
    "llama-3.1-70b": (
        70_553_706_496,
        70_553_706_496,
        71_856_950_345_728,
        140_348_227_584,
        215_570_851_037_184,
        8_192,
        2_684_354_560,
        2_684_354_560,
    ),
    "llama-3.2-1b": (
        1_235_814_400,
        1_235_814_400,
        1_299_764_477_952,
        2_538_733_568,
        3_899_293_433_856,
        8_192,
        268_435_456,
        268_435_456,
    ),
    "mistral-7b": (
        7_241_732_096,
        7_241_732_096,
        7_418_482_262_016,
        14_489_747_456,
        22_255_446_786_048,
        8_192,
        536_739_840,
        536_870_912,
    ),
    "mixtral-8x7b": (
        46_702_792_704,
        12_879_925_248,
        13_191_992_049_664,
        25_766_133_760,
        39_575_976_148_992,
        4_096,
        536_870_912,
        536_870_912,
    ),
    "qwen2.5-7b": (
        7_615_616_512,
        7_615_616_512,
        7_345_199_382_528,
        14_346_493_952,
        22_035_598_147_584,
        8_192,
        469_762_048,
        469_762_048,
    ),
    "qwen3-30b-a3b": (
        30_532_122_624,
        3_353_032_704,
        3_320_815_026_176,
        6_486_753_280,
        9_962_445_078_528,
        4_096,
        402_653_184,
        402_653_184,
    ),
    "qwen3-8b": (
        8_190_735_360,
        8_190_735_360,
        7_904_350_437_376,
        15_438_774_272,
        23_713_051_312_128,
        8_192,
        1_207_959_552,
        1_207_959_552,
    ),
}


def load(name):
    return json.loads((MODELS / f"{name}.json").read_text())


@pytest.mark.parametrize("name", COUNTED)
def test_real_model(name):
    total, active, forward, decode, training, positions, dynamic, static = COUNTED[name]
    spec, _ = huggingface.read(name, load(name))
    assert parameters.totals(spec) == (total, active)
    assert matmul.total(spec, 1, 512, "prefill") == forward
    assert matmul.total(spec, 1, 513, "decode") == decode
    assert matmul.total(spec, 1, 512, "train") == training
    if positions:
        assert kv_cache.cache_bytes(spec, 1, positions, "bf16", "dynamic") == dynamic
        assert kv_cache.cache_bytes(spec, 1, positions, "bf16", "static") == static
    assert ModelSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_llama_1_65b():
    config = yaml.safe_load((MODELS.parents[1] / "config.yaml").read_text())
    spec = from_architecture("m", config["models"]["llama-1-65b"]["architecture"])
    assert parameters.totals(spec)[0] == 65_285_660_672  # arXiv:2302.13971, table 2, says 65.2B


SMALL = {"vocab_size": 61, "max_position_embeddings": 32, "num_hidden_layers": 3, "hidden_size": 32}
SMALL |= {"num_attention_heads": 4, "intermediate_size": 40, "bos_token_id": None, "eos_token_id": None}
SMALL |= {"pad_token_id": None}
GPT = {"vocab_size": 61, "n_positions": 32, "n_layer": 2, "n_head": 4, "n_embd": 32, "bos_token_id": None}
GPT |= {"eos_token_id": None}
LATENT = {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6, "q_lora_rank": 12}
LATENT |= {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "n_group": 1, "topk_group": 1}
ROUTED_LATENT = {name: value for name, value in LATENT.items() if name not in ("n_routed_experts", "q_lora_rank")}
ROUTED_LATENT |= {"num_experts": 4, "num_key_value_heads": 4}
GROUPED = {"num_key_value_heads": 2}
KIMI = {"num_heads": 3, "head_dim": 5, "short_conv_kernel_size": 3, "kda_layers": [1, 3], "full_attn_layers": [2]}
MAMBA = {"mamba_n_heads": 4, "mamba_n_groups": 2, "mamba_d_state": 5}
NEMOTRON = {"mamba_num_heads": 4, "n_groups": 2, "ssm_state_size": 5, "mamba_head_dim": 6, "head_dim": 8}
NEMOTRON |= {"n_routed_experts": 3, "num_experts_per_tok": 2, "moe_shared_expert_intermediate_size": 12}
STATE = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}

# Family → variants of a small file; the first of each family is also run, the others are built.
VARIANTS = {
    "gpt2": [GPT, GPT | {"n_inner": 40}, GPT | {"tie_word_embeddings": False, "n_inner": None}],
    "gpt_bigcode": [GPT, GPT | {"multi_query": False}],
    "gpt_neox": [SMALL, SMALL | {"attention_bias": False, "use_parallel_residual": False, "tie_word_embeddings": True}],
    "opt": [
        SMALL | {"ffn_dim": 40, "pad_token_id": 1},
        SMALL | {"ffn_dim": 40, "pad_token_id": 1, "enable_bias": False, "do_layer_norm_before": False},
        SMALL | {"ffn_dim": 40, "pad_token_id": 1, "word_embed_proj_dim": 16, "_remove_final_layer_norm": True},
    ],
    "bloom": [
        {"vocab_size": 61, "n_layer": 2, "n_head": 4, "n_embed": 32},
        {"vocab_size": 61, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32, "seq_length": 16},
    ],
    "falcon": [
        SMALL | {"num_kv_heads": 4},
        SMALL | {"new_decoder_architecture": True, "num_kv_heads": 2},
        SMALL | {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1, "bias": True},
        SMALL | {"multi_query": False, "parallel_attn": False, "alibi": True, "ffn_hidden_size": 40, "bias": True},
        SMALL | {"tie_word_embeddings": False},
    ],
    "llama": [
        SMALL | GROUPED,
        SMALL | {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True, "head_dim": None},
        SMALL | {"head_dim": 16, "num_key_value_heads": 1},
    ],
    "mistral": [SMALL | GROUPED | {"sliding_window": 7}, SMALL | {"sliding_window": None, "head_dim": 6, **GROUPED}],
    "mixtral": [SMALL | GROUPED | {"num_local_experts": 3, "num_experts_per_tok": 2}],
    "qwen2": [
        SMALL | GROUPED | {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 2},
        SMALL | GROUPED | {"tie_word_embeddings": True},
    ],
    "qwen3": [SMALL | GROUPED | {"head_dim": 16}, SMALL | GROUPED | {"head_dim": 8, "attention_bias": True}],
    "qwen3_moe": [
        SMALL | GROUPED | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "head_dim": 8},
        SMALL | GROUPED | {"num_experts": 4, "num_experts_per_tok": 1, "mlp_only_layers": [0], "head_dim": 8},
        SMALL | GROUPED | {"num_experts": 8, "decoder_sparse_step": 2, "attention_bias": True, "head_dim": 8},
    ],
    "gemma": [SMALL | GROUPED | {"head_dim": 16}],
    "gemma2": [SMALL | GROUPED | {"head_dim": 16, "sliding_window": 7}],
    "gemma3_text": [
        SMALL | GROUPED | {"head_dim": 16, "sliding_window": 7, "sliding_window_pattern": 2},
        SMALL | GROUPED | {"head_dim": 8, "attention_bias": True, "tie_word_embeddings": False},
    ],
    "phi3": [SMALL, SMALL | GROUPED | {"sliding_window": 7, "tie_word_embeddings": True}],
    "olmo2": [SMALL | GROUPED, SMALL | {"attention_bias": True}],
    "gpt_oss": [
        SMALL | GROUPED | {"num_local_experts": 3, "num_experts_per_tok": 2, "head_dim": 16, "sliding_window": 7},
        SMALL | GROUPED | {"num_local_experts": 3, "num_experts_per_tok": 2, "attention_bias": False},
    ],
    "qwen3_next": [
        SMALL | GROUPED | EXPERTS | STATE | {"head_dim": 8, "num_hidden_layers": 4},
        SMALL | GROUPED | EXPERTS | STATE | {"head_dim": 8, "mlp_only_layers": [0], "attention_bias": True},
    ],
    "bamba": [
        SMALL | GROUPED | MAMBA | {"attn_layer_indices": [1]},
        SMALL | GROUPED | MAMBA | {"mamba_d_head": 8, "mamba_n_heads": 8, "mamba_conv_bias": False, "mlp_bias": True},
    ],
    "falcon_h1": [
        SMALL | GROUPED | MAMBA | {"mamba_d_ssm": 48, "mamba_d_head": "auto", "mlp_bias": True},
        SMALL | GROUPED | MAMBA | {"mamba_d_ssm": None, "mamba_rms_norm": True, "projectors_bias": True},
    ],
    "granitemoehybrid": [
        SMALL | GROUPED | MAMBA | {"layer_types": ["mamba", "attention", "mamba"], "num_local_experts": 3},
        SMALL | GROUPED | MAMBA | {"num_local_experts": 0, "num_experts_per_tok": 0, "mamba_proj_bias": True},
    ],
    "nemotron_h": [
        SMALL | GROUPED | NEMOTRON | {"hybrid_override_pattern": "M*E-M", "num_hidden_layers": 5},
        SMALL | GROUPED | NEMOTRON | {"layers_block_type": ["mlp", "mamba", "attention"], "use_bias": True},
    ],
    "qwen3_5_text": [SMALL | GROUPED | STATE | {"head_dim": 8, "full_attention_interval": 2, "num_hidden_layers": 3}],
    "qwen3_5_moe_text": [
        SMALL | GROUPED | EXPERTS | STATE | {"head_dim": 8, "full_attention_interval": 3},
    ],
    "llama4_text": [
        SMALL | GROUPED | {"num_local_experts": 3, "head_dim": 8, "attention_chunk_size": 7, "num_hidden_layers": 4},
        SMALL | GROUPED | {"num_local_experts": 3, "head_dim": 6, "interleave_moe_layer_step": 2},
    ],
    "qwen2_moe": [
        SMALL | GROUPED | EXPERTS | {"shared_expert_intermediate_size": 12},
        SMALL | GROUPED | EXPERTS | {"qkv_bias": False, "decoder_sparse_step": 2},
    ],
    "phi": [SMALL | {"partial_rotary_factor": 0.5}, SMALL | GROUPED | {"tie_word_embeddings": True}],
    "phimoe": [
        SMALL | GROUPED | {"num_local_experts": 3, "sliding_window": 7},
        SMALL | GROUPED | {"num_local_experts": 3, "attention_bias": True, "lm_head_bias": True},
    ],
    "stablelm": [
        SMALL | {"num_key_value_heads": 4},
        SMALL | GROUPED | {"use_qkv_bias": True, "use_parallel_residual": True, "partial_rotary_factor": 0.5},
    ],
    "gptj": [GPT | {"rotary_dim": 4}, GPT | {"rotary_dim": 4, "n_inner": 40, "tie_word_embeddings": True}],
    "starcoder2": [SMALL | GROUPED | {"sliding_window": 7}, SMALL | {"num_key_value_heads": 4, "use_bias": False}],
    "cohere": [SMALL | GROUPED, SMALL | {"attention_bias": True, "tie_word_embeddings": False}],
    "granite": [SMALL | GROUPED | {"embedding_multiplier": 12.0}, SMALL | {"attention_bias": True, "mlp_bias": True}],
    "smollm3": [
        SMALL | GROUPED | {"no_rope_layer_interval": 2},
        SMALL | GROUPED | {"attention_bias": True, "mlp_bias": True},
    ],
    "olmo3": [SMALL | {"num_hidden_layers": 5, "sliding_window": 7}, SMALL | GROUPED | {"attention_bias": True}],
    "minimax_m2": [SMALL | GROUPED | {"num_local_experts": 3, "num_experts_per_tok": 2, "head_dim": 16}],
    "glm4_moe": [
        SMALL | GROUPED | ROUTED | {"first_k_dense_replace": 2, "use_qk_norm": True},
        SMALL | GROUPED | ROUTED | {"attention_bias": True, "n_shared_experts": 2, "head_dim": 16},
    ],
    "kimi_linear": [
        SMALL | ROUTED_LATENT | {"linear_attn_config": KIMI, "first_k_dense_replace": 2, "n_group": 1},
        SMALL | ROUTED_LATENT | {"linear_attn_config": KIMI, "q_lora_rank": 12, "attention_bias": True},
        SMALL
        | ROUTED_LATENT
        | {"linear_num_heads": 2, "layer_types": ["linear_attention"] * 3, "mlp_layer_types": ["sparse"] * 3},
    ],
    "deepseek_v2": [
        SMALL | LATENT | {"first_k_dense_replace": 1},
        SMALL | LATENT | {"q_lora_rank": None, "attention_bias": True, "n_shared_experts": 1},
    ],
    "deepseek_v3": [
        SMALL | LATENT | {"first_k_dense_replace": 2, "num_key_value_heads": 4},
        SMALL | LATENT | {"attention_bias": True, "n_shared_experts": 2, "num_key_value_heads": 4},
    ],
    "deepseek_v32": [
        SMALL | LATENT | {"num_key_value_heads": 4, "index_topk": 6, "index_n_heads": 3, "index_head_dim": 5},
        SMALL | LATENT | {"num_key_value_heads": 4, "mlp_layer_types": ["sparse", "dense", "sparse"]},
    ],
    "glm_moe_dsa": [SMALL | LATENT | {"num_key_value_heads": 4, "index_topk": 6, "indexer_types": ["full"] * 3}],
}


def test_every_family_is_tried():
    assert set(VARIANTS) == set(huggingface.KNOWN)


@pytest.mark.parametrize(("family", "number"), [(f, i) for f, files in VARIANTS.items() for i in range(len(files))])
def test_family_against_transformers(family, number):
    """Parameters of every variant; operations and caches of the first of each family."""
    from transformer_ledger.executed import run, transformers_model

    config = {"model_type": family, **VARIANTS[family][number]}
    spec, _ = huggingface.read("m", dict(config))
    loads = {"w": {"batch": 2, "context": 12}} if number == 0 else {}
    make = run._rows("m", "transformers")
    counted = transformers_model.rows(make, spec, config, loads, ["bf16"] if loads else [])
    rows = agreement.compute({"m": spec.to_json()}, loads, ["bf16"], {"m": counted})
    assert [row for row in rows if row["difference"]] == []
    seen = {row["policy"] or row["phase"] or row["quantity"] for row in rows}
    work = {"state"} if spec.states() else {"prefill", "decode", "train"}  # of a scan there is no total
    assert seen >= {"parameters", *({*work, "dynamic", "static"} if loads else [])}
    products = matmul.compute({"m": spec.to_json()}, loads, {"m": counted}) if spec.states() else []
    assert [row for row in products if row["difference"]] == []
    assert bool(products) == ("transformers" in {row["met_by"] for row in products})
    components = parameters.compute(
        {"m": spec.to_json()}, {"m": [{**row, "implementation": "ours"} for row in counted]}
    )
    assert [row for row in components if row["difference"] != 0] == []


def test_fused_and_plain_names_read_alike():
    gpt, _ = huggingface.read("m", {"model_type": "gpt2", **GPT})
    plain = {"vocab_size": 61, "max_position_embeddings": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    assert huggingface.read("m", {"model_type": "gpt2", "hidden_size": 32, **plain})[0] == gpt


def test_null_head_dim_is_as_absent():
    for family in ("llama", "mistral", "mixtral", "qwen3", "gemma2", "gpt_oss"):
        config = {"model_type": family, "num_key_value_heads": 4, "num_attention_heads": 32}
        assert huggingface.read("m", {**config, "head_dim": None})[0] == huggingface.read("m", config)[0]


def test_null_activation_is_as_absent():
    """Published files of Gemma 1 have `hidden_activation: null` beside the name that its class reads."""
    published = {"hidden_act": "gelu", "hidden_activation": None, "num_attention_heads": 16, "head_dim": 256}
    spec, _ = huggingface.read("gemma-7b", {"model_type": "gemma", **published})
    assert parameters.totals(spec)[0] == 8_537_680_896


def test_defaults_are_named():
    """`{"model_type": "llama"}` alone is a 6.7B model: every figure of it is a default, and is called so."""
    spec, notes = huggingface.read("m", {"model_type": "llama"})
    assert parameters.totals(spec)[0] == 6_738_415_616
    named = {note.split(":")[0] for note in notes}
    assert named >= {"hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size", "tie_word_embeddings"}
    full = load("llama-3.1-70b")
    assert [note.split(":")[0] for note in huggingface.read("m", full)[1]] == ["not used"]
    del full["tie_word_embeddings"]
    assert huggingface.read("m", full)[1][0] == (
        "tie_word_embeddings: not in the file, taken as False (the family's default)"
    )
    gpt = load("gpt2")
    assert any("tie_word_embeddings" in note and "True" in note for note in huggingface.read("m", gpt)[1])


@pytest.mark.parametrize("family", huggingface.KNOWN)
def test_a_bare_family_is_the_one_that_transformers_defaults_to(family):
    """Our defaults are the class's: both read a file that says nothing but its family."""
    from transformers import AutoConfig

    bare = {"model_type": family}
    if family == "deepseek_v2":
        bare["num_experts_per_tok"] = 2  # the class has none
    if family == "glm4_moe":
        bare["head_dim"] = 128  # the class divides 4096 by 96 heads, and drops the rest
    config = AutoConfig.for_model(**bare)
    spec, _ = huggingface.read("m", bare)
    attention = next((a for _, a in reversed(spec.attentions())), None)
    assert spec.d_model == config.hidden_size
    assert spec.depth == config.num_hidden_layers
    assert spec.vocabulary == config.vocab_size
    assert spec.tied_head == config.tie_word_embeddings
    if family != "bloom":
        assert spec.context == config.max_position_embeddings
    if attention:  # else every layer has a fixed state
        assert attention.heads == config.num_attention_heads
        assert attention.kv_heads == getattr(config, "num_key_value_heads", attention.kv_heads)
        if attention.latent is None and getattr(config, "head_dim", None):
            assert attention.head_dim == config.head_dim
    if hasattr(config, "num_experts_per_tok"):
        assert max(layer.feedforward.experts_per_token for _, layer in spec.layers) == config.num_experts_per_tok
    types = getattr(config, "layer_types", None)
    if types and family != "qwen3_moe":
        own = [layer.mixer for layer in spec.each_layer()]
        assert [isinstance(mixer, FixedState) for mixer in own] == [t == "linear_attention" for t in types]
        assert [getattr(mixer, "window", None) is not None for mixer in own] == [t[0] in "sc" for t in types]


def test_multimodal_file_gives_its_text_part():
    text = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 61, "model_type": "gemma3_text"}
    config = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 8}}
    spec, notes = huggingface.read("m", config)
    assert spec == huggingface.read("m", text)[0]
    assert huggingface.TEXT_PART in notes[0]
    assert not huggingface.read("m", {**config, "tie_word_embeddings": False})[0].tied_head


@pytest.mark.parametrize(
    ("config", "key", "message"),
    [
        ({"model_type": "x"}, "model_type", "unknown model_type 'x'; known: bamba, "),
        (
            {"model_type": "bamba", "mamba_n_heads": 3},
            "mamba_n_heads",
            "3 does not divide mamba_expand × the width, 8192",
        ),
        ({"model_type": "bamba", "mamba_d_head": 8}, "mamba_d_head", "8 × 128 heads is not mamba_expand × the width"),
        (
            {"model_type": "nemotron_h", "hybrid_override_pattern": "M!"},
            "hybrid_override_pattern",
            "!; allowed: linear",
        ),
        (
            {"model_type": "nemotron_h", "layers_block_type": []},
            "layers_block_type",
            "wanted is one of linear_attention",
        ),
        ({"model_type": "nemotron_h", "num_hidden_layers": 9}, "num_hidden_layers", "9; layers_block_type says 4"),
        ({"model_type": "nemotron_h", "tie_word_embeddings": True}, "tie_word_embeddings", "True is not counted here"),
        (
            {"model_type": "llama", "attention_dropout": 1},
            "attention_dropout",
            "1 is no share; allowed: a number from 0",
        ),
        ({"model_type": "gpt2", "resid_pdrop": "0.1"}, "resid_pdrop", "'0.1' is no share"),
        (
            {"model_type": "kimi_linear", "linear_attn_config": {"kda_layers": [1], "full_attn_layers": [1]}},
            "linear_attn_config",
            "do not name each of 27 layers once",
        ),
        ({"model_type": "kimi_linear", "linear_attn_config": 3}, "linear_attn_config", "3 is not a mapping"),
        ({"model_type": "kimi_linear", "mla_use_nope": False}, "mla_use_nope", "not counted"),
        ({"model_type": "kimi_linear", "mlp_layer_types": ["dense"]}, "mlp_layer_types", "not a list of 27 names"),
        ({"model_type": "deepseek_v32", "index_head_dim": 32}, "index_head_dim", "below qk_rope_head_dim 64"),
        ({"model_type": "deepseek_v32", "q_lora_rank": None}, "q_lora_rank", "null; the indexer reads"),
        ({"model_type": "glm_moe_dsa", "index_topk_freq": 4}, "index_topk_freq", "4 is not counted here"),
        ({"model_type": "glm_moe_dsa", "qk_head_dim": 192}, "qk_head_dim", "192 is not counted here"),
        ({}, "model_type", "missing"),
        ({"model_type": ["llama"]}, "model_type", "missing or no name"),
        ({"model_type": "llama", "num_hidden_layers": -3}, "num_hidden_layers", "allowed: 1 to"),
        ({"model_type": "llama", "num_hidden_layers": 10**9}, "num_hidden_layers", "allowed: 1 to"),
        ({"model_type": "llama", "vocab_size": 10**15}, "vocab_size", "allowed: 1 to"),
        ({"model_type": "llama", "vocab_size": "32000"}, "vocab_size", "not an integer"),
        ({"model_type": "llama", "vocab_size": True}, "vocab_size", "not an integer"),
        ({"model_type": "llama", "hidden_size": 4096.0}, "hidden_size", "not an integer"),
        ({"model_type": "llama", "num_attention_heads": 0}, "num_attention_heads", "allowed: 1 to"),
        ({"model_type": "llama", "num_attention_heads": 33}, "num_attention_heads", "does not divide"),
        ({"model_type": "llama", "num_key_value_heads": 5}, "num_key_value_heads", "does not divide"),
        ({"model_type": "llama", "head_dim": 7}, "head_dim", "odd"),
        ({"model_type": "llama", "tie_word_embeddings": "no"}, "tie_word_embeddings", "neither true nor false"),
        ({"model_type": "llama", "rms_norm_eps": float("nan")}, "rms_norm_eps", "not a positive number"),
        ({"model_type": "llama", "rope_parameters": {"rope_theta": -1}}, "rope_theta", "not a positive number"),
        ({"model_type": "mixtral", "num_experts_per_tok": 9}, "num_experts_per_tok", "above the 8 experts"),
        ({"model_type": "gpt2", "n_embd": 768, "hidden_size": 1024}, "n_embd", "variants of one key"),
        ({"model_type": "gpt2", "add_cross_attention": True}, "add_cross_attention", "not counted"),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "layer_types": ["x"] * 32},
            "layer_types",
            "allowed: full",
        ),
        ({"model_type": "gemma2", "layer_types": ["full_attention"]}, "layer_types", "list of 26"),
        ({"model_type": "opt", "layer_norm_elementwise_affine": False}, "layer_norm_elementwise_affine", "not counted"),
        ({"model_type": "deepseek_v3", "num_key_value_heads": 8}, "num_key_value_heads", "latent"),
        ({"model_type": "deepseek_v3", "moe_layer_freq": 2}, "moe_layer_freq", "not counted"),
        ({"model_type": "falcon", "multi_query": False, "num_kv_heads": 8}, "num_kv_heads", "it must be"),
        (
            {"model_type": "falcon", "new_decoder_architecture": True, "parallel_attn": False},
            "parallel_attn",
            "such a Falcon runs both in parallel",
        ),
        ({"model_type": "qwen3_moe", "mlp_only_layers": "all"}, "mlp_only_layers", "not a list"),
        # Keys that the family's class does not read: it would take its default, or cache what its attention is not.
        ({"model_type": "falcon", "n_head": 32}, "n_head", "not a key of falcon, which has num_attention_heads"),
        ({"model_type": "llama", "n_layer": 2}, "n_layer", "not a key of llama, which has num_hidden_layers"),
        ({"model_type": "llama", "d_model": 512}, "d_model", "not a key of llama, which has hidden_size"),
        ({"model_type": "gpt_oss", "experts_per_token": 2}, "experts_per_token", "which has num_experts_per_tok"),
        ({"model_type": "deepseek_v3", "num_experts": 8}, "num_experts", "which has num_local_experts or n_routed"),
        ({"model_type": "llama", "sliding_window": 512}, "sliding_window", "not counted"),
        ({"model_type": "mistral", "sliding_window": 1}, "sliding_window", "allowed: 2 to"),
        ({"model_type": "llama4_text", "no_rope_layers": [1, 0]}, "no_rope_layers", "2 entries for 48 layers"),
        ({"model_type": "llama4_text", "moe_layers": [48]}, "moe_layers", "48 is out of range; allowed: 0 to 47"),
        ({"model_type": "mistral", "layer_types": ["full_attention"] * 32}, "layer_types", "32 of 32 layers have a"),
        ({"model_type": "qwen2", "layer_types": ["sliding_attention"] * 32}, "layer_types", "0 of 32 layers have a"),
        ({"model_type": "gemma2", "sliding_window": None}, "sliding_window", "null, though 13 of 26 layers"),
        (
            {"model_type": "gemma3_text", "use_bidirectional_attention": True},
            "use_bidirectional_attention",
            "not counted",
        ),
        # What the class refuses, or stops on when it runs.
        (
            {"model_type": "llama", "num_attention_heads": 12, "head_dim": 128},
            "num_attention_heads",
            "12 does not divide the width 4096, as llama wants it to",
        ),
        ({"model_type": "falcon", "num_ln_in_parallel_attn": 2}, "num_ln_in_parallel_attn", "not counted"),
        ({"model_type": "deepseek_v3", "n_routed_experts": 12}, "n_group", "8 groups do not divide 12 experts"),
        ({"model_type": "deepseek_v3", "head_dim": 128}, "head_dim", "allowed: 64"),
        ({"model_type": "deepseek_v3", "num_attention_heads": 64}, "num_key_value_heads", "128; a latent serves"),
    ],
)
def test_refusals_name_the_key(config, key, message):
    with pytest.raises(ModelError, match=message) as caught:
        huggingface.read("m", config)
    assert caught.value.key == key


def test_no_torch_for_a_closed_form():
    import subprocess
    import sys

    code = (
        "import sys, transformer_ledger.huggingface\n"
        "from transformer_ledger.ledger import agreement, kv_cache, matmul, training_compute, training_state\n"
        "assert not {'torch', 'sympy', 'pandas', 'transformers'} & set(sys.modules), set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(MODELS.parents[1] / "src")})


def test_dropout_is_the_files_or_the_classs():
    from transformers import AutoConfig

    for family in huggingface.KNOWN:
        names = huggingface.dropout_keys(family)
        config = AutoConfig.for_model(family)
        assert all(hasattr(config, key) for key in names)
        bare = {"num_experts_per_tok": 2} if family == "deepseek_v2" else {}
        bare |= {"head_dim": 128} if family == "glm4_moe" else {}
        spec, notes = huggingface.read("m", {"model_type": family} | bare)
        rates = {field: getattr(config, key) for key, fields in names.items() for field in fields}
        assert {field: getattr(spec.dropout, field) for field in rates} == rates
        assert any(note.startswith("dropout: ") for note in notes) == spec.dropout.any
    spec, _ = huggingface.read("m", {"model_type": "gpt2", "attn_pdrop": 0, "resid_pdrop": 0.25})
    assert spec.dropout == Dropout(embedding=0.1, weights=0.0, attention=0.25, feedforward=0.25)
    falcon = {"model_type": "falcon", "attention_dropout": 0.5, "hidden_dropout": 0.25}
    assert huggingface.read("m", falcon)[0].dropout == Dropout(feedforward=0.25)
    falcon |= {"alibi": True, "parallel_attn": False, "multi_query": False}
    assert huggingface.read("m", falcon)[0].dropout == Dropout(weights=0.5, attention=0.5, feedforward=0.25)
