"""A Hugging Face `config.json` as a `ModelSpec`: key variants and defaults of each family, and facts that no file has.

Defaults and unwritten facts are those of transformers 5.24.0, whose classes the executed side builds from that file.
Whatever decides a tensor or a product is either read, or defaulted and named in the notes, or refused; a key that
nothing here read is named in a note.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from transformer_ledger import rotary
from transformer_ledger.keys import DIGITS, SAME, Keys, NoClosedForm
from transformer_ledger.model import Attention, Dropout, Feedforward, Layer, ModelError, ModelSpec
from transformer_ledger.rotary import OTHER_NAMES, ROTARY


def _biased(attention: Attention, qkv: bool, output: bool) -> Attention:
    return replace(attention, query_bias=qkv, key_bias=qkv, value_bias=qkv, output_bias=output)


def _gpt2(name: str, keys: Keys, multi_query: bool = False) -> ModelSpec:
    """Learned positions, biases everywhere, tied head. gpt_bigcode shares one key/value head by `multi_query`."""
    keys.fixed("add_cross_attention", False)
    d = keys.integer(("n_embd", "hidden_size"), 768)
    h = keys.integer(("n_head", "num_attention_heads"), 12)
    C = keys.integer(("n_positions", "max_position_embeddings"), 1024)
    f = keys.derived("n_inner", 4 * d, "4 times the width")
    attention = _biased(keys.heads(d, h, 1 if multi_query else h), True, True)
    layer = Layer(attention, Feedforward("gelu", f, bias=True))
    return ModelSpec(
        name=name,
        d_model=d,
        vocabulary=keys.integer("vocab_size", 50257),
        context=C,
        layers=((keys.depth(12, "n_layer"), layer),),
        positions="learned",
        position_rows=C,
        norm="layernorm",
        norm_bias=True,
        norm_epsilon=keys.number("layer_norm_epsilon", 1e-5, 1),
        tied_head=keys.flag("tie_word_embeddings", True),
    )


def _gpt_bigcode(name: str, keys: Keys) -> ModelSpec:
    return _gpt2(name, keys, keys.flag("multi_query", True))


def _opt(name: str, keys: Keys) -> ModelSpec:
    """Two position rows more than the context; an embedding may be narrower than the model (350m)."""
    keys.fixed("layer_norm_elementwise_affine", True)
    d, h = keys.integer("hidden_size", 768), keys.integer("num_attention_heads", 12)
    bias, before = keys.flag("enable_bias", True), keys.flag("do_layer_norm_before", True)
    narrow = keys.derived("word_embed_proj_dim", d, "the model's width")
    C = keys.integer("max_position_embeddings", 2048)
    layer = Layer(
        _biased(keys.heads(d, h, h), bias, bias),
        Feedforward("gelu", keys.integer("ffn_dim", 3072), bias=bias),
        post_norm=not before,
    )
    return ModelSpec(
        name=name,
        d_model=d,
        vocabulary=keys.integer("vocab_size", 50272),
        context=C,
        layers=((keys.depth(12), layer),),
        positions="learned",
        position_rows=C + 2,
        norm="layernorm",
        norm_bias=True,
        final_norm=before and not keys.flag("_remove_final_layer_norm", False),
        tied_head=keys.flag("tie_word_embeddings", True),
        embedding_width=narrow if narrow != d else 0,
    )


def _bloom(name: str, keys: Keys) -> ModelSpec:
    """ALiBi, so no position table; a norm behind the embedding; a feed-forward of 4d; biases everywhere."""
    d, h = keys.integer(("hidden_size", "n_embed"), 64), keys.integer(("n_head", "num_attention_heads"), 8)
    layer = Layer(_biased(keys.heads(d, h, h), True, True), Feedforward("gelu", 4 * d, bias=True))
    return ModelSpec(
        name=name,
        d_model=d,
        vocabulary=keys.integer("vocab_size", 250880),
        context=keys.integer("seq_length", 2048),
        layers=((keys.depth(2, "n_layer"), layer),),
        positions="none",
        norm="layernorm",
        norm_bias=True,
        norm_epsilon=keys.number("layer_norm_epsilon", 1e-5, 1),
        embedding_norm=True,
        tied_head=keys.flag("tie_word_embeddings", True),
    )


def _falcon(name: str, keys: Keys) -> ModelSpec:
    """`multi_query` is one key/value head whatever num_kv_heads says, unless the new decoder architecture is on.

    That one hands its keys and values out to the query heads before it caches them.
    """
    d, h = keys.integer(("hidden_size", "n_embed"), 4544), keys.integer("num_attention_heads", 71)
    new, parallel = keys.flag("new_decoder_architecture", False), keys.flag("parallel_attn", True)
    if parallel and not new:
        keys.fixed("num_ln_in_parallel_attn", None, 1)
    bias, multi_query = keys.flag("bias", False), keys.flag("multi_query", True)
    if new and not parallel:
        raise ModelError(
            "parallel_attn",
            "false with new_decoder_architecture true; such a Falcon runs both in parallel",
        )
    if new:
        h_kv = keys.derived("num_kv_heads", h, "as many as attention heads")
        norms = keys.integer("num_ln_in_parallel_attn", 2, 1, 2)
    else:
        h_kv, norms = 1 if multi_query else h, 1 if parallel else 2
        if not multi_query and keys.derived("num_kv_heads", h, "as many as attention heads") != h:
            raise ModelError(
                "num_kv_heads",
                f"without multi_query and new_decoder_architecture it must be {h}, the number of attention heads",
            )
    alibi = keys.flag("alibi", False)
    f = keys.derived("ffn_hidden_size", 4 * d, "4 times the width")
    layer = Layer(
        replace(_biased(keys.heads(d, h, h_kv), bias, bias), repeated_cache=new),
        Feedforward("gelu", f, bias=bias),
        norms=norms,
        parallel=parallel,
    )
    return ModelSpec(
        name=name,
        d_model=d,
        vocabulary=keys.integer("vocab_size", 65024),
        context=keys.integer("max_position_embeddings", 2048),
        layers=((keys.depth(32), layer),),
        positions="none" if alibi else "rope",
        rope_base=10000.0 if alibi else keys.rope_base(10000.0),
        norm="layernorm",
        norm_bias=True,
        norm_epsilon=keys.number("layer_norm_epsilon", 1e-5, 1),
        tied_head=keys.flag("tie_word_embeddings", True),
    )


OTHERS: dict[str, Callable[[str, Keys], ModelSpec]] = {
    "gpt2": _gpt2,
    "gpt_bigcode": _gpt_bigcode,
    "opt": _opt,
    "bloom": _bloom,
    "falcon": _falcon,
}

KNOWN = tuple(sorted([*OTHERS, *ROTARY]))

TEXT_PART = "text part of a multimodal file; its other parts are not counted"

# Ends of the names of transformers' classes, and the head that each has.
_TASKS = {
    "ForCausalLM": "language",
    "LMHeadModel": "language",
    "ForConditionalGeneration": "language",
    "ForSequenceClassification": "score",
    "Model": "none",
}
_CLASSES = {"falcon": ("RW",)}  # older names of a family's classes


def _remote(config: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """SantaCoder's files call themselves gpt2 and name code of their own, which is what gpt_bigcode became."""
    if config.get("architectures") != ["GPT2LMHeadCustomModel"] or config.get("model_type") != "gpt2":
        return config
    kept = {key: value for key, value in config.items() if key not in ("architectures", "auto_map")}
    heads = kept.pop("attention_head_type", "multihead")
    if heads not in ("multihead", "multiquery"):
        raise ModelError("attention_head_type", f"{heads!r}; allowed: 'multihead', 'multiquery'")
    notes.append(f"architectures: GPT2LMHeadCustomModel with {heads} attention, sized as gpt_bigcode, not as gpt2")
    return {**kept, "model_type": "gpt_bigcode", "multi_query": heads == "multiquery"}


def text_part(config: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """The text part of a multimodal file, with the tying that such a file states at its top; by its family's own name."""
    inner = config.get("text_config")
    found = _remote(dict(config), notes)
    if inner is not None:
        if not isinstance(inner, dict):
            raise ModelError("text_config", f"{inner!r} is not a mapping")
        notes.append(f"text_config: {TEXT_PART}")
        # ASSUME a text part that does not name its type is the text model that goes with the file's own type.
        kind = inner.get("model_type") or f"{config.get('model_type')}_text"
        top = ("tie_word_embeddings", "architectures", "auto_map")
        found = {**inner, **{key: config[key] for key in top if key in config and key not in inner}, "model_type": kind}
    elif config.get("vision_config"):  # older files of Qwen-VL have the text part's keys at their top
        notes.append(f"vision_config: {TEXT_PART}")
        del found["vision_config"]
    kind = found.get("model_type")
    if isinstance(kind, str) and kind in OTHER_NAMES:
        notes.append(f"model_type: {kind}, whose layers are those of {OTHER_NAMES[kind]}")
        found["model_type"] = OTHER_NAMES[kind]
    return found


def task(config: Mapping[str, Any], notes: list[str]) -> str:
    """The head that a file's class has: language, score or none.

    Raises ModelError where `architectures` names another class than the family's.
    """
    own = text_part(config, [])
    given, kinds = own.get("architectures"), {config.get("model_type"), own.get("model_type")}
    if given is None:
        notes.append("architectures: not in the file, taken as a model with a language head")
        return "language"
    if not isinstance(given, list) or len(given) != 1 or not isinstance(given[0], str):
        raise ModelError("architectures", f"{given!r} is not a list of one name")
    families = [str(kind).removesuffix("_text") for kind in kinds]
    families += [name.lower() for kind in kinds for name in _CLASSES.get(str(kind), ())]
    found = re.fullmatch(f"(.+?)({'|'.join(_TASKS)})", given[0])
    if not found or found[1].lower().replace("_", "") not in [name.replace("_", "") for name in families]:
        kind = own.get("model_type")
        raise ModelError(
            "architectures",
            f"{given[0]!r} is no class of {kind} that is sized here; its names end in {', '.join(_TASKS)}",
        )
    if config.get("auto_map"):
        notes.append(
            f"auto_map: names code of the file's own, which is not run; {given[0]} is sized as transformers' class"
        )
    return _TASKS[found[2]]


def _headed(spec: ModelSpec, keys: Keys, config: Mapping[str, Any]) -> ModelSpec:
    """The spec with the head that the file's class has."""
    head = task(config, keys.notes)
    keys.read |= {"architectures", "auto_map"}
    if head == "language":
        return spec
    bare = replace(spec, tied_head=False, head_bias=False, outputs=0)
    if head == "none":
        keys.notes.append(f"architectures: {keys.config['architectures'][0]} has no head")
        return bare
    labels = keys.get("id2label")
    if isinstance(labels, dict) and labels:
        count = keys.derived("num_labels", len(labels), "as many as id2label names")
    else:
        count = keys.integer("num_labels", 2)
    keys.notes.append(f"architectures: a score head of {count} output{'s' * (count > 1)} in place of the language head")
    return replace(bare, outputs=count)


def _extended(spec: ModelSpec, keys: Keys) -> ModelSpec:
    """The spec with the context that scaled rotary positions reach, where the file's own length is the shorter one.

    Gemma 3's files, and those with llama3 or longrope positions, state the extended length themselves.
    """
    scaling = keys.get("rope_scaling") or keys.get("rope_parameters") or {}
    keys.read |= {"rope_scaling", "rope_parameters", "rope_theta"}
    scaling = scaling.get("full_attention", scaling)
    kind, factor = scaling.get("rope_type", scaling.get("type")), scaling.get("factor")
    if kind not in ("linear", "dynamic", "yarn") or factor is None or keys.config["model_type"] == "gemma3_text":
        return spec
    own, inner = spec.context, Keys(scaling, keys.notes)
    factor = inner.number("factor", 1, 1e6)
    base = inner.derived("original_max_position_embeddings", own, "the file's own length") if kind == "yarn" else own
    reached = int(Fraction(str(factor)) * base)
    if reached <= own:
        return spec
    keys.notes.append(
        f"rope_scaling: {kind}, factor {factor:g} × {base} = {reached} positions; the file's own are {own}"
    )
    return replace(spec, context=reached)


# Families' keys of dropout rates, each with the fields of `Dropout` that it is; the others have attention_dropout.
_BOTH = ("attention", "feedforward")
_GPT = {"embd_pdrop": ("embedding",), "attn_pdrop": ("weights",), "resid_pdrop": _BOTH}
_PHI = {"attention_dropout": ("weights",), "resid_pdrop": _BOTH}
_DROPPED: dict[str, dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("gpt2", "gpt_bigcode", "gptj"), _GPT),
    "gpt_neox": {"attention_dropout": ("weights",), "hidden_dropout": ("embedding", *_BOTH)},
    "opt": {"attention_dropout": ("weights",), "dropout": _BOTH},
    "bloom": {"attention_dropout": ("weights",), "hidden_dropout": _BOTH},
    "falcon": {"attention_dropout": (), "hidden_dropout": ("feedforward",)},
    "stablelm": {"attention_dropout": ("weights",), "hidden_dropout": ("feedforward",)},
    "phi": {**_PHI, "embd_pdrop": ("embedding",)},
    "phi3": _PHI,
    "starcoder2": {
        "attention_dropout": ("weights",),
        "residual_dropout": _BOTH,
        "embedding_dropout": ("embedding",),
    },
}
_TENTH = {"gpt2": tuple(_GPT), "gpt_bigcode": tuple(_GPT), "opt": ("dropout",)}
"""Keys whose default is 0.1; that of the others is 0."""


def dropout_keys(kind: str) -> dict[str, tuple[str, ...]]:
    """The keys of a family's dropout rates, each with the fields of `Dropout` that it is."""
    return _DROPPED.get(kind, {"attention_dropout": ("weights",)})


def _dropped(spec: ModelSpec, keys: Keys) -> ModelSpec:
    """The spec with the file's dropout rates."""
    kind = keys.config["model_type"]
    names = dropout_keys(kind)
    rates: dict[str, float] = {}
    for key, fields in names.items():
        if kind == "falcon" and key == "attention_dropout":  # its other attention drops no weights
            fields = ("weights",) * (spec.positions == "none")
            fields += ("attention",) * (not spec.layers[0][1].parallel)
        default = 0.1 if key in _TENTH.get(kind, ()) else 0.0
        rates |= dict.fromkeys(fields, keys.share(key, default))
    if any(rates.values()):
        shown = ", ".join(f"{key} {keys.config.get(key, 'by default')}" for key in names)
        keys.notes.append(f"dropout: {shown}; saved activations are given with it and without it")
    return replace(spec, dropout=Dropout(**rates))


# Keys whose value says that the file is no decoder of the family's own kind, and why.
_REFUSED = {
    "draft_vocab_size": "the draft head of another model (EAGLE): it has neither its own embedding nor a whole model's layers",
    "is_encoder_decoder": "an encoder and a decoder",
    "add_cross_attention": "attention to another model's output",
    "cross_attention_hidden_size": "attention to another model's output",
}
_MULTI_TOKEN = ("num_nextn_predict_layers", "num_mtp_layers", "num_mtp_modules", "mtp_num_hidden_layers")
_DROPOUT = (
    *("attention_dropout", "attn_pdrop", "resid_pdrop", "embd_pdrop", "hidden_dropout", "dropout", "layerdrop"),
    *("activation_dropout", "classifier_dropout", "ffn_dropout", "hidden_dropout_prob"),
)
_STORED = ("torch_dtype", "dtype", "quantization_config")  # what `ledger.stored` reads

# Keys of published files on which no size here depends: what a run returns, starts from, is trained with, or computes
# element by element.
_QUIET_NAMES = """
_attn_implementation _flash_attn_2_enabled _name_or_path _num_labels activation activation_function
apply_residual_connection_post_layernorm attention_in_multiplier attention_multiplier attention_out_multiplier
attention_scaling attention_softmax_in_fp32 attn_logit_softcapping attn_scale attn_temperature_tuning aux_loss_alpha
beam_search bos_token_id cache_implementation chunk_size clip_qkv embedding_multiplier eoa_token_id eos_token_id
ep_size expand experts_per_token final_logit_softcapping finetuning_task floor_scale gradient_checkpointing hidden_act
hidden_activation hidden_size_per_head id2label indexer_rope_interleave init_device initial_context_length
initializer_range input_jitter_noise is_decoder key_multiplier label2id length_penalty lm_head_multiplier logit_scale
logits_scaling mamba_chunk_size mamba_hidden_act mamba_norm_before_gate masked_softmax_fusion max_length
max_sequence_length mlp_activation mlp_hidden_act mlp_multipliers model_max_length moe_renormalize
moe_router_activation_func moe_shared_expert_overlap mtp_transformer_layers mtp_use_dedicated_embeddings n_ctx
no_rope_layer_interval no_rope_layers norm_topk_prob num_beams num_labels num_logits_to_keep
original_max_position_embeddings output_attentions output_hidden_states output_router_logits pad_token_id
partial_rotary_factor prefix pretraining_tp problem_type query_pre_attn_scalar reorder_and_upcast_attn
rescale_prenorm_residual residual_in_fp32 residual_multiplier return_dict rope_interleave rope_local_base_freq rotary
rotary_dim rotary_emb_base rotary_pct routed_scaling_factor router_aux_loss_coef router_jitter_noise
scale_attention_softmax_in_fp32 scale_attn_by_inverse_layer_idx scale_attn_weights scoring_func seq_aux skip_bias_add
skip_bias_add_qkv slow_but_exact ssm_in_multiplier ssm_multipliers ssm_out_multiplier summary_activation
summary_first_dropout summary_proj_to_labels summary_type summary_use_proj swiglu_limit task_specific_params
tie_encoder_decoder time_step_floor time_step_limit time_step_max time_step_min time_step_rank tokenizer_class
topk_group topk_method torchscript transformers_version unk_token_id use_cache use_grouped_topk use_mamba_kernels
use_mtp use_return_dict use_routing_bias use_scan_mlp use_swiglu z_loss_coefficient
"""
QUIET = frozenset(["model_type", "architectures", "auto_map", *_QUIET_NAMES.split()])


def _left_over(keys: Keys) -> None:
    """Name every key that nothing read: refused where it says another model, noted where no size follows it."""
    config = keys.config
    for key, what in _REFUSED.items():
        if config.get(key):
            raise ModelError(key, f"{config[key]!r} says {what}, which is not sized here")
    for key in _MULTI_TOKEN:
        if config.get(key):
            keys.notes.append(
                f"{key}: {config[key]!r}; such layers stand in the checkpoint, not in the model; not counted"
            )
    if dropped := [f"{key} {config[key]!r}" for key in _DROPOUT if config.get(key) and key not in keys.read]:
        keys.notes.append(f"not counted: {', '.join(dropped)}; no dropout of {config['model_type']}'s decoder")
    named = {"model_type", *keys.read, *_REFUSED, *_MULTI_TOKEN, *_DROPOUT, *_STORED}
    left = sorted(key for key in config if key not in named and config[key] is not None)
    quiet, unknown = [key for key in left if key in QUIET], [key for key in left if key not in QUIET]
    if quiet:
        keys.notes.append(f"not used: {', '.join(quiet)}; no size here depends on them")
    if unknown:
        shown = ", ".join(f"{key} {config[key]!r}"[:80] for key in unknown[:20]) + " …" * (len(unknown) > 20)
        keys.notes.append(f"not known: {shown}; no key of {config['model_type']} that this reader follows")


def _no_other_window(keys: Keys, spec: ModelSpec, kind: str) -> None:
    """Refuse windows that the family's attention does not have: the caches of transformers would follow them."""
    if kind not in ROTARY or ROTARY[kind].window == "none":
        keys.fixed("sliding_window", None)
    if keys.config.get("layer_types") is not None and "layer_types" not in keys.read:
        windowed = [a.window is not None for n, a in spec.attentions() for _ in range(n)]
        if keys.layer_types(spec.depth, "sliding_attention", lambda _: False, "") != windowed:
            raise ModelError(
                "layer_types", f"{sum(windowed)} of {spec.depth} layers have a window in {kind}, not these"
            )


# Keys that decide no size here, but what transformers makes of the file: they must be of the right kind to be handed on.
_MAPPINGS = ("rope_scaling", "rope_parameters", "quantization_config")
_NUMBERS = (
    *("rope_theta", "rope_local_base_freq", "query_pre_attn_scalar", "routed_scaling_factor", "factor"),
    *("low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor"),
    "original_max_position_embeddings",
)
_NAMES = ("hidden_act", "hidden_activation", "activation_function", "activation", "rope_type", "type")
_SHARES = ("partial_rotary_factor", "rotary_pct")  # of a head's width


def _sound(config: Mapping[str, Any]) -> None:
    """Refuse values that no reader of the file could use, also of keys that this family does not read."""
    for name in _MAPPINGS:
        if not isinstance(config.get(name), dict | None):
            raise ModelError(name, f"{config[name]!r} is not a mapping")
    for name in {"max_window_layers", *(name for names in SAME for name in names)}:
        value = config.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            raise ModelError(name, f"{value!r} is not an integer")
    scalings = [scaling for name in _MAPPINGS[:2] if (scaling := config.get(name))]
    of_each_type = [inner for scaling in scalings for inner in scaling.values() if isinstance(inner, dict)]
    for part in (config, *scalings, *of_each_type):
        for name in _NAMES:
            if not isinstance(part.get(name, ""), str | None):  # null in Gemma 1's files, which name it otherwise
                raise ModelError(name, f"{part[name]!r} is no name")
        for name in _NUMBERS:
            value = part.get(name)
            if isinstance(value, bool) or not isinstance(value, int | float | None):
                raise ModelError(name, f"{value!r} is not a number")
        for name in _SHARES:
            share = part.get(name, 1)
            if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
                raise ModelError(name, f"{share!r} is not a number above 0 and at most 1")


def parsed(text: str) -> dict[str, Any]:
    """The mapping that a config.json holds.

    Infinity is read, as published files have it. Raises ModelError where the text is no JSON, or another value,
    has a key twice, or a number that none could use.
    """

    def finite(text: str) -> float:
        if not math.isfinite(value := float(text)):
            raise ValueError(f"{text} is not a finite number")
        return value

    def constant(text: str) -> float:
        if text == "NaN":
            raise ValueError("NaN is not a finite number")
        return float(text)

    def whole(text: str) -> int:
        if len(text) > DIGITS:
            raise ValueError(f"{text[:20]}… is an integer of {len(text)} digits; at most {DIGITS} are read")
        return int(text)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise ModelError(key, "given twice")
            found[key] = value
        return found

    try:
        data = json.loads(text, parse_float=finite, parse_int=whole, parse_constant=constant, object_pairs_hook=once)
    except ModelError:
        raise
    except (ValueError, RecursionError) as error:
        raise ModelError("", f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ModelError("", "not a mapping; wanted is a model's config.json")
    return data


class UnknownFamily(NoClosedForm):
    """A family that has no closed form here."""

    def __init__(self, kind: str):
        super().__init__("model_type", f"unknown model_type {kind!r}; known: {', '.join(KNOWN)}")


def read(name: str, config: dict[str, Any]) -> tuple[ModelSpec, list[str]]:
    """The spec that a `config.json` describes, and one note for each value that the file does not state.

    Raises ModelError with the offending key where the family is unknown, or a value is of a wrong type, out of range,
    at odds with another, or asks for something that the ledgers do not count.
    """
    notes: list[str] = []
    keys = Keys(text_part(config, notes), notes)
    _sound(keys.config)
    kind = keys.config.get("model_type")
    if not isinstance(kind, str):
        raise ModelError("model_type", f"missing or no name; known: {', '.join(KNOWN)}")
    if kind in ROTARY:
        spec = rotary.read(name, keys, ROTARY[kind])
    elif kind in OTHERS:
        spec = OTHERS[kind](name, keys)
    else:
        raise UnknownFamily(kind)
    keys.foreign()
    _no_other_window(keys, spec, kind)
    spec = _dropped(_extended(_headed(spec, keys, config), keys), keys)
    _left_over(keys)
    return spec, notes
