"""Random config.json files of every family: what the reader and the closed forms say, against the model that is built.

Of each family 35 files are built by transformers on the meta device and their tensors weighed; two more, and our own
decoder of each, are run. Every choice comes from the seed that a failure names.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import random
from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch._dynamo")  # imported once here, not in every process that runs a model

from transformers import AutoConfig, DynamicCache  # noqa: E402
from transformers.pytorch_utils import Conv1D  # noqa: E402

from transformer_ledger import huggingface  # noqa: E402
from transformer_ledger.executed import run, transformers_model  # noqa: E402
from transformer_ledger.keys import NULL_SAYS  # noqa: E402
from transformer_ledger.ledger import agreement, kv_cache, matmul, parameters  # noqa: E402
from transformer_ledger.rotary import ROTARY  # noqa: E402

BUILT, RUN = 35, 2  # files of each family
GPT = {"d": ("n_embd", "hidden_size"), "L": ("n_layer", "num_hidden_layers"), "h": ("n_head", "num_attention_heads")}
PLAIN = {"d": ("hidden_size",), "L": ("num_hidden_layers",), "h": ("num_attention_heads",), "V": ("vocab_size",)}
PLAIN |= {"C": ("max_position_embeddings",), "f": ("intermediate_size",)}
NAMES = {
    "gpt2": {**GPT, "C": ("n_positions", "max_position_embeddings"), "f": ("n_inner",)},
    "gpt_bigcode": {**GPT, "C": ("n_positions", "max_position_embeddings"), "f": ("n_inner",)},
    "opt": {"f": ("ffn_dim",)},
    "bloom": {**GPT, "d": ("hidden_size", "n_embed"), "C": ("seq_length",), "f": ()},
    "falcon": {"d": ("hidden_size", "n_embed"), "f": ("ffn_hidden_size",)},
    "qwen3_5_moe_text": {"f": ()},
    "gptj": {"d": ("n_embd", "hidden_size"), "L": ("n_layer",), "h": ("n_head", "num_attention_heads")}
    | {"C": ("n_positions", "max_position_embeddings"), "f": ("n_inner",)},
}
INDEXED = ("deepseek_v32", "glm_moe_dsa")
FLAGS = {
    "gpt_bigcode": ["multi_query"],
    "gpt_neox": ["attention_bias", "use_parallel_residual"],
    "opt": ["enable_bias", "do_layer_norm_before", "_remove_final_layer_norm"],
    "falcon": ["bias", "alibi"],
    "llama": ["attention_bias", "mlp_bias"],
    **{name: ["attention_bias"] for name in ("qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text", "olmo2")},
    **{name: ["attention_bias"] for name in ("gpt_oss", "deepseek_v2", "deepseek_v3", *INDEXED, "cohere", "olmo3")},
    **{name: ["attention_bias", "mlp_bias"] for name in ("granite", "smollm3")},
    **{name: ["attention_bias"] for name in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")},
    "bamba": ["attention_bias", "mlp_bias", "mamba_conv_bias", "mamba_proj_bias"],
    "falcon_h1": [
        *("attention_bias", "mlp_bias", "mamba_conv_bias", "mamba_proj_bias", "projectors_bias"),
        *("mamba_rms_norm", "mamba_norm_before_gate"),
    ],
    "granitemoehybrid": ["attention_bias", "mamba_conv_bias", "mamba_proj_bias"],
    "nemotron_h": ["use_conv_bias", "use_bias"],
    "kimi_linear": ["attention_bias"],
    **{name: ["attention_bias", "use_qk_norm"] for name in ("glm4_moe", "llama4_text")},
    "phimoe": ["attention_bias", "lm_head_bias"],
    "qwen2_moe": ["qkv_bias"],
    "stablelm": ["use_qkv_bias", "use_parallel_residual"],
    "starcoder2": ["use_bias"],
}
UNTIED = dict.fromkeys(("nemotron_h", "kimi_linear"), ("tie_word_embeddings",))  # transformers never ties their heads
DIVIDED = ("llama", "gemma2", "gemma3_text")  # transformers wants heads that divide the width, whatever head_dim says
OWN_WIDTH = (
    "qwen3",
    "gemma",
    "gemma2",
    "gemma3_text",
    "gpt_oss",
    "llama4_text",
    "minimax_m2",
    "qwen3_next",
    "qwen3_5_text",
    "qwen3_5_moe_text",
    "nemotron_h",
)  # whose head_dim is not d/h where it is left out
AS_MANY = (
    "llama",
    "olmo2",
    "olmo3",
    "phi3",
    "phi",
    "granite",
    "cohere",
    "granitemoehybrid",
)  # whose key/value heads are the attention heads where they are left out


# Keys that decide neither a tensor nor a product.
NOISE: dict[str, Any] = {
    "auto_map": {"AutoConfig": "some.Config", "AutoModelForCausalLM": "some.Model"},
    "torch_dtype": "float16",
    "use_cache": False,
    "attention_dropout": 0.1,
    "initializer_range": 0.1,
    "output_hidden_states": True,
    "quantization_config": {"quant_method": "fp8"},
}
NOISE_OF: dict[str, dict[str, Any]] = {
    "gpt2": {"reorder_and_upcast_attn": True, "scale_attn_by_inverse_layer_idx": True, "n_ctx": 7},
    "bloom": {"apply_residual_connection_post_layernorm": True, "slow_but_exact": True, "pretraining_tp": 2},
    "falcon": {"apply_residual_connection_post_layernorm": True, "n_head_kv": None},
    "gpt_neox": {"rotary_pct": 1.0, "rotary_emb_base": 500, "hidden_act": "relu"},
    "opt": {"activation_function": "gelu", "layerdrop": 0.1},
    "phi3": {"partial_rotary_factor": 0.5},
    "llama": {"pretraining_tp": 2, "hidden_act": "gelu"},
    "gemma2": {"final_logit_softcapping": None, "query_pre_attn_scalar": 7},
    "deepseek_v3": {"num_nextn_predict_layers": 2, "rope_interleave": False},
    "granite": {"embedding_multiplier": 12.0, "logits_scaling": 8.0, "residual_multiplier": 0.2},
    "cohere": {"logit_scale": 0.5},
    "smollm3": {"no_rope_layer_interval": 2},
    "qwen2_moe": {"use_sliding_window": False, "norm_topk_prob": True},
    "glm4_moe": {"routed_scaling_factor": 2.0, "num_nextn_predict_layers": 1},
}
DELTA = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
MAMBA = ("bamba", "falcon_h1", "granitemoehybrid", "nemotron_h")
TURNED = (
    {"gpt_neox": 8, "phi": 4, "stablelm": 8, "glm4_moe": 4} | dict.fromkeys(DELTA, 8) | {"bamba": 4}
)  # of a head's width 1/4 or 1/2 is turned, in pairs


@functools.cache
def defaults(family: str) -> Any:
    """What transformers takes for a key that the file leaves out."""
    return AutoConfig.for_model(family)


class Draw:
    """One config.json, key by key."""

    def __init__(self, family: str, seed: int, run: bool):
        self.family, self.run, self.random = family, run, random.Random(f"{family} {seed}")
        self.config: dict[str, Any] = {"model_type": family, "bos_token_id": None, "eos_token_id": None}
        self.names = PLAIN | NAMES.get(family, {})

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def one(self, *values: Any) -> Any:
        return self.random.choice(values)

    def put(self, names: tuple[str, ...], value: Any) -> Any:
        """Write a value under one of its names, or under all of them."""
        chosen = names if self.chance(0.1) else [self.one(*names)] if names else []
        self.config |= dict.fromkeys(chosen, value)
        return value

    def size(self, size: str, *values: int) -> int:
        """One of the sizes that every family has; left out now and then where the model is only built."""
        if not self.run and self.chance(0.08) and hasattr(defaults(self.family), self.names[size][0]):
            return getattr(defaults(self.family), self.names[size][0])
        return self.put(self.names[size], self.one(*values))

    def maybe(self, names: tuple[str, ...] | str, *values: Any, leave: float = 0.25) -> Any:
        """A value, or the default of a key that is left out."""
        names = (names,) if isinstance(names, str) else names
        if self.chance(leave):
            if self.chance(0.3) and not set(names) & set(NULL_SAYS):
                self.put(names, None)
            return getattr(defaults(self.family), names[0], None)
        return self.put(names, self.one(*values))


def divisors(n: int) -> list[int]:
    return [i for i in range(1, n + 1) if n % i == 0]


def _attention(draw: Draw) -> None:
    """Width, heads, key/value heads and their width, so that what is left out fits too."""
    family, random = draw.family, draw.random
    own = ROTARY.get(family)
    free, grouped = bool(own and not own.fills), bool(own and not own.many)
    step = TURNED.get(family, 2)
    d = draw.size("d", *[step * width * n for width in (1, 2, 3, 4, 5, 8) for n in (1, 2, 3, 4, 6, 8, 12)])
    h = draw.one(*[h for h in divisors(d // step) if h <= 128])
    wide = free and draw.chance(0.5)
    if wide and family not in DIVIDED:
        h = draw.one(*range(1, 9), h)
    draw.put(draw.names["h"], h)
    if wide:
        draw.put(("head_dim",), step * random.randint(1, 12 // step * 2))
    elif free and draw.chance(0.3) and family not in OWN_WIDTH:
        draw.config["head_dim"] = None
    if family == "gptj":
        draw.config["rotary_dim"] = 2 * random.randint(1, d // h // 2)
    if family in AS_MANY:
        draw.maybe("num_key_value_heads", *divisors(h))
    elif grouped and (h % defaults(family).num_key_value_heads or draw.chance(0.9)):
        draw.put(("num_key_value_heads",), draw.one(*divisors(h)))


def _types(draw: Draw, L: int, other: str = "sliding_attention") -> None:
    if draw.chance(0.4):
        draw.config["layer_types"] = [draw.one("full_attention", other) for _ in range(L)]


def _window(draw: Draw, L: int) -> None:
    family = draw.family
    w = draw.random.randint(2, 20)
    if family in DELTA:
        _delta(draw, L)
    elif family == "nemotron_h":
        _parts(draw, L)
    elif family in MAMBA:
        _mamba(draw, L)
    elif family == "llama4_text":
        chunk = draw.maybe("attention_chunk_size", w, w, None)
        draw.maybe("no_rope_layers", [], [draw.random.randint(0, 1) for _ in range(L)])
        draw.maybe("no_rope_layer_interval", *range(1, L + 1))
        if chunk:
            _types(draw, L, "chunked_attention")
    elif family in ("mistral", "mixtral", "phi3", "phimoe", "starcoder2"):
        draw.maybe("sliding_window", w, w, None)
    elif family in ("qwen2", "qwen3", "qwen3_moe"):
        on = draw.maybe("use_sliding_window", True, True, False)
        draw.maybe("sliding_window", w, w, *(() if on else (None,)))
        if family != "qwen3_moe":
            draw.maybe("max_window_layers", *range(L + 1))
            if on:
                _types(draw, L)
    elif family in ("gemma2", "gemma3_text", "gpt_oss", "olmo3"):
        draw.maybe("sliding_window", w)
        _types(draw, L)
        if family == "gemma3_text" and draw.chance(0.5):
            draw.config["sliding_window_pattern"] = draw.random.randint(1, 6)


def _mamba(draw: Draw, L: int) -> None:
    """The same of Mamba-2, whose heads fill some of the model's widths."""
    config = draw.config
    d = next((config[name] for name in draw.names["d"] if name in config), defaults(draw.family).hidden_size)
    values = d * draw.maybe("mamba_expand", 1, 2, 3)
    if draw.family == "falcon_h1":
        inner = draw.maybe("mamba_d_ssm", None, *(8 * n for n in range(1, 12)), leave=0.0 if draw.run else 0.1)
        values = inner or values
    heads = draw.put(("mamba_n_heads",), draw.one(*[n for n in divisors(values) if n <= 48]))
    draw.put(("mamba_n_groups",), draw.one(*divisors(heads)))
    draw.maybe("mamba_d_head", "auto", values // heads)
    draw.maybe("mamba_d_state", *range(1, 12), leave=0.0 if draw.run else 0.1)
    draw.maybe("mamba_d_conv", *range(2, 6), leave=0.1)
    attends = [i for i in range(L) if draw.chance(0.4)] or [L - 1]
    if draw.family == "bamba":
        draw.maybe("attn_layer_indices", attends, leave=0.0 if draw.run else 0.1)
    elif draw.family != "falcon_h1" and (draw.run or draw.chance(0.8)):
        names = draw.one(("mamba", "attention"), ("linear_attention", "full_attention"))
        config["layer_types"] = [names[i in attends] for i in range(L)]


def _parts(draw: Draw, L: int) -> None:
    """A mixer or a feed-forward in each layer; of a model that is run, one attends."""
    config, random = draw.config, draw.random
    letters = "".join(random.choices("M*E-", k=L - 1)) + draw.one("*", "*" if draw.run else "M")
    kinds = {"M": "linear_attention", "*": "full_attention", "E": "moe", "-": "mlp"}
    if draw.chance(0.5):
        config["hybrid_override_pattern"] = letters
    elif draw.run or draw.chance(0.8):
        older = {"M": "mamba", "*": "attention"} if draw.chance(0.3) else {}
        config[draw.one("layers_block_type", "layer_types")] = [(kinds | older)[letter] for letter in letters]
    else:
        config["num_hidden_layers"] = len(kinds)
    if draw.chance(0.2):
        del config["num_hidden_layers"]
    heads = draw.put(("mamba_num_heads",), draw.one(*range(1, 9)))
    draw.put(("n_groups",), draw.one(*divisors(heads)))
    for name in ("mamba_head_dim", "ssm_state_size"):
        draw.maybe(name, *range(1, 12), leave=0.0 if draw.run else 0.1)
    draw.maybe("conv_kernel", *range(2, 6), leave=0.1)


def _delta(draw: Draw, L: int) -> None:
    """Sizes of the fixed states, and which layers have one; of a model that is run, the last attends."""
    random, config = draw.random, draw.config
    if draw.run or draw.chance(0.8):
        groups = draw.put(("linear_num_key_heads",), random.randint(1, 4))
        draw.put(("linear_num_value_heads",), groups * random.randint(1, 3))
    for name, most in (("linear_key_head_dim", 12), ("linear_value_head_dim", 12), ("linear_conv_kernel_dim", 5)):
        draw.maybe(name, *range(1, most + 1), leave=0.0 if draw.run else 0.1)
    _types(draw, L, "linear_attention")
    if "layer_types" not in config and (draw.run or draw.chance(0.5)):
        config["full_attention_interval"] = L if draw.run else random.randint(1, L)
    elif draw.run:
        config["layer_types"][-1] = "full_attention"


def _experts(draw: Draw, L: int) -> None:
    family, E = draw.family, draw.random.randint(1, 9)
    if family in ("mixtral", "minimax_m2"):
        E = draw.maybe(("num_local_experts", "num_experts"), E, leave=0.1)
        draw.put(("num_experts_per_tok",), draw.random.randint(1, E))
    elif family == "gpt_oss":
        E = draw.maybe(("num_local_experts", "num_experts"), E, leave=0.1)
        k = draw.put(("num_experts_per_tok",), draw.random.randint(1, E))
        if draw.chance(0.3):
            draw.config["experts_per_token"] = k
    elif family == "llama4_text":
        E = draw.maybe("num_local_experts", E)
        draw.put(("num_experts_per_tok",), draw.random.randint(1, E))
        draw.maybe("moe_layers", [], sorted(draw.random.sample(range(L), draw.random.randint(0, L))))
        draw.maybe("interleave_moe_layer_step", *range(1, L + 1))
        draw.maybe("intermediate_size_mlp", draw.random.randint(1, 24))
    elif family == "phimoe":
        draw.maybe("num_local_experts", E + 1)
    elif family == "granitemoehybrid":
        E = draw.put(("num_local_experts",), draw.one(0, E))
        draw.put(("num_experts_per_tok",), draw.random.randint(min(1, E), E))
        draw.maybe("shared_intermediate_size", draw.random.randint(1, 24))
    elif family == "nemotron_h":
        _grouped(draw, ("n_routed_experts", "num_local_experts"), L)
        draw.maybe("moe_shared_expert_intermediate_size", draw.random.randint(1, 24))
    elif family == "glm4_moe":
        _grouped(draw, ("n_routed_experts", "num_local_experts"), L)
    elif family == "qwen3_5_moe_text":
        E = draw.maybe("num_experts", E, leave=0.1)
        draw.put(("num_experts_per_tok",), draw.random.randint(1, E))
        draw.maybe("moe_intermediate_size", draw.random.randint(1, 24))
        draw.maybe("shared_expert_intermediate_size", draw.random.randint(1, 24))
    elif family in ("qwen2_moe", "qwen3_moe", "qwen3_next"):
        E = draw.maybe(("num_experts", "num_local_experts")[: 1 + (family == "qwen3_moe")], E, leave=0.1)
        if family != "qwen3_moe":
            draw.maybe("shared_expert_intermediate_size", draw.random.randint(1, 24))
        draw.put(("num_experts_per_tok",), draw.random.randint(1, E))
        draw.maybe("moe_intermediate_size", draw.random.randint(1, 24))
        draw.maybe("decoder_sparse_step", 1, 2, 3)
        draw.maybe("mlp_only_layers", [], None, sorted(draw.random.sample(range(L), draw.random.randint(0, L))))


def _latent(draw: Draw, L: int) -> None:
    """DeepSeek: ranks, widths, groups of experts."""
    random, family = draw.random, draw.family
    d = draw.size("d", *range(4, 97, 4))
    h = draw.put(draw.names["h"], draw.one(*[h for h in divisors(d) if h <= 32]))
    if family != "deepseek_v2" or draw.chance(0.5):
        draw.config["num_key_value_heads"] = h
    draw.maybe("q_lora_rank", random.randint(1, 24), *(() if family in INDEXED else (None,)))
    draw.maybe("kv_lora_rank", random.randint(1, 24))
    draw.maybe("qk_nope_head_dim", random.randint(1, 16))
    rotated = draw.maybe("qk_rope_head_dim", 2 * random.randint(1, 8))
    draw.maybe("v_head_dim", random.randint(1, 16))
    if draw.chance(0.3):
        free = family in ("deepseek_v2", "kimi_linear")
        draw.config["head_dim"] = 2 * random.randint(1, 8) if free else rotated
    names = {"deepseek_v2": ("n_routed_experts", "num_experts"), "kimi_linear": ("num_local_experts", "num_experts")}
    _grouped(draw, names.get(family, ("n_routed_experts", "num_local_experts")), L)
    if family == "kimi_linear":
        _kimi(draw, L)
    if family in INDEXED:
        draw.maybe("index_n_heads", random.randint(1, 6))
        draw.put(("index_head_dim",), rotated + random.randint(0, 6))
        draw.put(("index_topk",), random.randint(1, 30))
        draw.maybe("mlp_layer_types", [random.choice(["dense", "sparse"]) for _ in range(L)])
        draw.maybe("layer_types", ["indexed_attention"] * L)
    if family == "deepseek_v2" and draw.chance(0.3):
        draw.config["topk_method"] = "group_limited_greedy"


def _kimi(draw: Draw, L: int) -> None:
    """Sizes of Kimi Delta Attention, at the top or in a mapping; of a model that is run, the last layer attends."""
    random, config = draw.random, draw.config
    attends = [i for i in range(L) if draw.chance(0.4)] + [L - 1] * draw.run
    sizes = {"head_dim": random.randint(1, 9), "num_heads": random.randint(1, 6)}
    sizes |= {"short_conv_kernel_size": random.randint(2, 5)}
    if draw.chance(0.5):
        full, linear = ([i + 1 for i in range(L) if (i in attends) == own] for own in (True, False))
        config["linear_attn_config"] = {**sizes, "full_attn_layers": full, "kda_layers": linear}
        if draw.chance(0.3):
            config["model_max_length"] = config.pop("max_position_embeddings", 50)
    else:
        config |= {
            f"linear_{name}".replace("short_conv_kernel_size", "conv_kernel_dim"): n for name, n in sizes.items()
        }
        if draw.run or draw.chance(0.8):
            config["layer_types"] = ["full_attention" if i in attends else "linear_attention" for i in range(L)]
    if draw.chance(0.3):
        config["num_shared_experts"] = config.pop("n_shared_experts", None) or 1
    if draw.chance(0.4):
        config["mlp_layer_types"] = [draw.one("dense", "sparse") for _ in range(L)]


def _grouped(draw: Draw, experts: tuple[str, ...], L: int) -> None:
    """Experts that are chosen in groups, behind dense layers, beside shared ones."""
    random = draw.random
    groups = random.randint(1, 4)
    E = groups * random.randint(2, 4)
    draw.put(experts, E)
    draw.config |= {"n_group": groups, "topk_group": groups}
    draw.put(("num_experts_per_tok",), random.randint(1, E))
    draw.maybe("n_shared_experts", 1, 2, 3)
    draw.maybe("moe_intermediate_size", random.randint(1, 24))
    draw.maybe("first_k_dense_replace", *range(L + 2))


def _falcon(draw: Draw) -> None:
    config, h = draw.config, draw.config["num_attention_heads"]
    new, many = draw.one(True, False), draw.one(True, False)
    if new or draw.chance(0.5):
        config["new_decoder_architecture"] = new
    if new:
        draw.maybe("num_kv_heads", *divisors(h))
        draw.maybe("num_ln_in_parallel_attn", 1, 2, None)
    else:
        draw.maybe("parallel_attn", True, False)
        if not many or draw.chance(0.5):
            config["multi_query"] = many
        draw.maybe("num_kv_heads", *(divisors(h) if many else [h]))


def drawn(family: str, seed: int, run: bool = False) -> dict[str, Any]:
    """A random config.json of a family; with `run` every size is small."""
    draw = Draw(family, seed, run)
    L = draw.put(draw.names["L"], draw.random.randint(1, 4 if run else 7))
    draw.size("V", *range(2, 99))
    draw.size("C", *range(24, 64))
    if family in ROTARY and ROTARY[family].latent:
        _latent(draw, L)
    else:
        _attention(draw)
        _window(draw, L)
        _experts(draw, L)
    if draw.names["f"]:
        draw.size("f", *range(1, 65))
    if family in ("gpt2", "gpt_bigcode", "gptj") and draw.chance(0.2):
        draw.config["n_inner"] = None
    if family == "opt" and draw.chance(0.5):
        draw.config["word_embed_proj_dim"] = draw.one(None, draw.random.randint(1, 40))
    if family == "falcon":
        _falcon(draw)
    for flag in ["tie_word_embeddings", *FLAGS.get(family, [])]:
        draw.maybe(flag, *((False,) if flag in UNTIED.get(family, ()) else (True, False)))
    draw.config["pad_token_id"] = draw.one(None, 0, 1)
    for key, value in [*NOISE.items(), *NOISE_OF.get(family, {}).items()]:
        if draw.chance(0.1):
            draw.config[key] = value
    if family in ROTARY and family not in ("phi3", "phimoe") and draw.chance(0.2):
        draw.config |= {"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    keys = list(draw.config)
    draw.random.shuffle(keys)
    return {key: draw.config[key] for key in keys}


# --- each family's files against the tensors of the model that transformers builds --------------------------------------------


def _weight(layer: Any, *ends: str) -> Any:
    """The one weight (outputs first) of a layer whose module's name ends so, or None."""
    for path, module in layer.named_modules():
        if path.endswith(ends) and hasattr(module, "weight"):
            return module.weight.T if isinstance(module, Conv1D) else module.weight
    return None


def weighed(model: Any, batch: int, tokens: int) -> dict[str, int]:
    """Parameters, active ones, cache bytes (bf16) and forward FLOPs, by the shapes of the built tensors alone.

    Nothing here knows the families, the reader or the formulas: every matrix in a layer multiplies every token, an
    expert's by the share of tokens it gets; keys and values are as wide as what projects them.
    """
    config = model.config
    stack = next(m for n, m in model.named_modules() if n.rpartition(".")[2] in ("layers", "h"))
    total = sum(p.numel() for p in model.parameters())
    found = Counter(total=total, active=total, state=0)
    head = model.get_output_embeddings().weight
    inside = Counter()
    for path, tensor in stack.named_parameters():
        used = tensor.numel()
        if ".experts." in path:
            used = used // tensor.shape[0] * config.num_experts_per_tok
            found["active"] -= tensor.numel() - used
        if tensor.dim() >= 2 and not path.endswith(("bias", "A_log")) and "_bias" not in path:
            inside["matrices"] += used
    narrow = [p for n, p in model.named_parameters() if "project_in" in n or "project_out" in n]
    found["forward"] = 2 * batch * tokens * (inside["matrices"] + head.numel() + sum(p.numel() for p in narrow))
    for layer, cached in zip(stack, DynamicCache(config=config).layers, strict=True):
        if state := next((m for m in layer.modules() if hasattr(m, "A_log")), None):
            if config.model_type in DELTA:  # recalled, written and read
                products, numbers = 3, state.num_v_heads * state.head_k_dim * state.head_v_dim
            elif config.model_type == "kimi_linear":
                products, numbers = 3, state.num_heads * state.head_dim**2
            else:  # written and read
                products, numbers = 2, state.num_heads * state.head_dim * state.ssm_state_size
            found["forward"] += 2 * batch * tokens * products * numbers
            kept = batch * (2 * _weight(layer, "conv1d").numel() + 4 * numbers)
            found.update(dict.fromkeys(kv_cache.POLICIES, kept))
            if not hasattr(layer, "channels_attn"):  # Falcon-H1 attends in the same layer
                continue
            layer = layer.self_attn
        output = _weight(layer, "o_proj", "out_proj", "dense", "attn.c_proj")
        if output is None:  # a feed-forward alone
            continue
        inner = output.shape[1]
        query, key = _weight(layer, "q_proj", "q_b_proj"), _weight(layer, "k_proj")
        latent, fused = _weight(layer, "kv_a_proj_with_mqa"), _weight(layer, "c_attn", "query_key_value", "qkv_proj")
        pair = fused.shape[0] - inner if fused is not None else 2 * key.shape[0] if key is not None else 0
        indexer = [p for n, p in layer.named_parameters() if "indexer.wk." in n or "indexer.weights_proj" in n]
        width = pair or latent.shape[0] + (indexer[0].shape[0] if indexer else 0)
        window = getattr(cached, "sliding_window", None)
        seen = min(tokens, window or tokens)
        copied = 2 * inner if getattr(config, "new_decoder_architecture", None) else width  # once a query head
        found["needed"] += 2 * batch * seen * width
        found["reserved"] += 2 * batch * tokens * width
        found["static"] += 2 * batch * seen * copied
        found["dynamic"] += 2 * batch * (min(tokens, window - 1) if window else tokens) * copied
        gated = config.model_type in DELTA  # half of the query's projection is a gate
        queries = inner if query is None or gated else query.shape[0]
        if indexer:  # each of its heads against its one key, and their sum
            found["forward"] += 2 * batch * tokens * tokens * (indexer[0].shape[0] + 1) * indexer[1].shape[0]
        found["forward"] += 2 * batch * tokens * tokens * (queries + inner)
    return dict(found)


def computed(spec: Any, batch: int, tokens: int) -> dict[str, int]:
    """The same by the closed forms."""
    total, active = parameters.totals(spec)
    found = {"total": total, "active": active, "forward": matmul.total(spec, batch, tokens, "prefill")}
    return found | {name: kv_cache.cache_bytes(spec, batch, tokens, "bf16", name) for name in kv_cache.POLICIES}


def by_component(spec: Any) -> dict[tuple[str, str], int]:
    counts: Counter = Counter()
    for tensor in parameters.tensors(spec):
        counts[tensor.component, "bias" if tensor.bias else "weight"] += tensor.parameters
    return dict(counts)


def off(family: str, config: dict[str, Any], batch: int, tokens: int) -> dict[Any, Any]:
    """Where the closed forms and the built tensors differ: (ours, theirs) by total, or by component."""
    spec, _ = huggingface.read("m", dict(config))
    model = transformers_model.build(config)
    ours, theirs = computed(spec, batch, tokens), weighed(model, batch, tokens)
    wrong: dict[Any, Any] = {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
    mine, split = by_component(spec), transformers_model.parameters(model, spec)
    return wrong | {key: (mine.get(key), split.get(key)) for key in mine | split if mine.get(key) != split.get(key)}


@pytest.mark.parametrize("family", huggingface.KNOWN)
def test_closed_forms_are_the_tensors_that_transformers_builds(family: str) -> None:
    for seed in range(BUILT):
        config = drawn(family, seed)
        assert not off(family, config, 1 + seed % 3, 1 + seed % 24), (seed, config)


@pytest.mark.parametrize(
    ("family", "fact"),
    [
        ("qwen2", {"biases": {}}),
        ("gpt_oss", {"num_key_value_heads": 4}),
        ("gemma", {"head_dim": 128}),
        ("gemma2", {"tied": False}),
        ("gemma3_text", {"pattern": 3}),
        ("mixtral", {"experts": ROTARY["phimoe"].experts}),
        ("olmo2", {"query_key_norm": "head"}),
    ],
)
def test_a_wrong_fact_is_seen(monkeypatch: pytest.MonkeyPatch, family: str, fact: dict[str, Any]) -> None:
    """The control: a fact of the family changed in the reader, and a file that leaves it out no longer agrees."""
    config = {"model_type": family, "vocab_size": 50, "hidden_size": 64, "num_hidden_layers": 6, "sliding_window": 5}
    config |= {"num_attention_heads": 16, "num_key_value_heads": 4, "intermediate_size": 40}
    config = {name: value for name, value in config.items() if name not in fact}
    if ROTARY[family].window == "none":
        del config["sliding_window"]
    assert not off(family, config, 2, 7)
    monkeypatch.setitem(ROTARY, family, dataclasses.replace(ROTARY[family], **fact))
    assert off(family, config, 2, 7)


# --- and run --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", huggingface.KNOWN)
def test_both_implementations_run_what_the_ledgers_say(family: str) -> None:
    expected = {"parameters", "prefill", "decode", "train", "needed", "dynamic", "static"}
    for seed in range(RUN):
        config = drawn(family, seed, run=True)
        spec, _ = huggingface.read("m", dict(config))
        model = {"m": json.loads(json.dumps(spec.to_json()))}
        # A context of one, one about as long as a window, one longer.
        loads = {"w": {"batch": 1 + seed % 2, "context": (1, 9, 24)[(seed + len(family)) % 3]}}
        rows = run.compute(model["m"], config, loads, {}, ["bf16", "int4-g16"])
        totals = agreement.compute(model, loads, ["bf16", "int4-g16"], {"m": rows})
        assert [row for row in totals if row["difference"]] == [], (seed, config)
        split = parameters.compute(model, {"m": rows}) + matmul.compute(model, loads, {"m": rows})
        assert [row for row in split if row["difference"]] == [], (seed, config)
        ours = {row["policy"] or row["phase"] or row["quantity"] for row in totals if row["implementation"] == "ours"}
        theirs = {row["policy"] or row["phase"] or row["quantity"] for row in totals} - {"reserved"}
        assert ours >= {"parameters", "active_parameters", "prefill", "decode", "train", "needed", "reserved"}
        assert theirs >= expected, (seed, config)
