"""A Hugging Face `config.json` as a `ModelSpec`: key variants and defaults of each family, and facts that no file has.

Defaults and unwritten facts are those of transformers 5.24.0, whose classes the executed side builds from that file.
Whatever decides a tensor or a product is either read, or defaulted and named in the notes, or refused.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transformer_ledger.model import Attention, Feedforward, Latent, Layer, ModelError, ModelSpec, runs

LARGEST = 2**31 - 1
DIGITS = 100  # of an integer; Python refuses to read far longer ones
MOST_LAYERS = 10_000

# Keys for which null is a value: no window, no projection of the query, as many as there are attention heads.
NULL_SAYS = ("sliding_window", "q_lora_rank", "num_key_value_heads")

# Names that some family gives to one size. A name of another family is not read by this one, so it must not stand alone.
SAME = (
    ("hidden_size", "n_embd", "n_embed", "d_model", "dim"),
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads"),
    ("num_local_experts", "num_experts", "n_routed_experts"),
    ("num_experts_per_tok", "experts_per_token"),
)


@dataclass
class Keys:
    """The keys of one file. Every reader takes a name or its variants, and a default that it notes when it is used."""

    config: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)

    def _find(self, names: str | Sequence[str]) -> tuple[str, Any]:
        names = (names,) if isinstance(names, str) else tuple(names)
        self.read.update(names)
        found = {name: self.config[name] for name in names if name in self.config}
        if len({repr(value) for value in found.values() if value is not None}) > 1:
            raise ModelError(next(iter(found)), f"{found}: variants of one key with different values")
        for name, value in found.items():
            if value is not None:
                return name, value
        return names[0], None

    def default(self, name: str, value: Any, why: str = "the family's default") -> Any:
        """Use `value` for a key that the file leaves out, and say so."""
        self.notes.append(f"{name}: not in the file, taken as {value!r} ({why})")
        return value

    def integer(self, names: str | Sequence[str], default: int | None, low: int = 1, high: int = LARGEST) -> int:
        """An integer in [low, high]; null counts as left out. Raises ModelError, also where there is no default."""
        name, value = self._find(names)
        if value is None:
            if default is None:
                raise ModelError(name, "missing; expected an integer")
            return int(self.default(name, default))
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelError(name, f"{value!r} is not an integer")
        if not low <= value <= high:
            raise ModelError(name, f"{value}; allowed: {low} to {high}")
        return value

    def optional(self, name: str, default: int | None, low: int = 1) -> int | None:
        """An integer from `low`, or None where the file says null; the default, noted, where the key is left out."""
        if name not in self.config:
            return int(self.default(name, default)) if default is not None else self.default(name, None)
        return None if self.config[name] is None else self.integer(name, None, low)

    def window(self, default: int | None) -> int | None:
        """Positions that a windowed layer sees; of one, transformers' dynamic cache lets go of nothing."""
        return self.optional("sliding_window", default, low=2)

    def derived(self, names: str | Sequence[str], value: int, why: str) -> int:
        """An integer that another key decides, noted, where the file leaves it out or says null."""
        name, found = self._find(names)
        return int(self.default(name, value, why)) if found is None else self.integer(names, None)

    def flag(self, name: str, default: bool) -> bool:
        """true or false."""
        value = self.config.get(name)
        if value is None:
            return bool(self.default(name, default))
        if not isinstance(value, bool):
            raise ModelError(name, f"{value!r} is neither true nor false")
        return value

    def number(self, names: str | Sequence[str], default: float, most: float = 1e15) -> float:
        """A positive number up to `most`."""
        name, value = self._find(names)
        if value is None:
            return float(self.default(name, default))
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= sys.float_info.max:
            raise ModelError(name, f"{value!r} is not a positive number")
        if value > most:
            raise ModelError(name, f"{value!r} is out of range; allowed: above 0 and at most {most:g}")
        return float(value)

    def foreign(self) -> None:
        """Refuse a size under a name that only other families read: the family would take its default instead."""
        for names in SAME:
            own = [name for name in names if name in self.read]
            given = [name for name in names if self.config.get(name) is not None]
            if own and given and not self.read.intersection(given):
                raise ModelError(given[0], f"not a key of {self.config['model_type']}, which has {' or '.join(own)}")

    def fixed(self, name: str, *allowed: Any) -> None:
        """Refuse any value but those that the ledgers know how to count; a key left out means the first."""
        value = self.config.get(name, allowed[0])
        if value not in allowed:
            raise ModelError(name, f"{value!r} is not counted here; allowed: {', '.join(map(repr, allowed))}")

    def rope_base(self, default: float) -> float:
        """Base of the rotary frequencies: in `rope_parameters` in new files, at the top in old ones."""
        parameters = self.config.get("rope_parameters")
        if isinstance(parameters, dict):
            nested = parameters.get("full_attention", parameters)
            if isinstance(nested, dict) and "rope_theta" in nested:
                return Keys(nested, self.notes).number("rope_theta", default)
        return self.number(("rope_theta", "rotary_emb_base"), default)

    def key_value_heads(self, default: int | None, heads: int) -> int:
        """Key/value heads: as many as attention heads where the file says null, or the family has no other default."""
        if default is None or self.config.get("num_key_value_heads", 0) is None:
            return self.derived("num_key_value_heads", heads, "as many as attention heads")
        return self.integer("num_key_value_heads", default)

    def dividing(self, d: int, heads: int, wanted: bool) -> None:
        """Refuse heads that do not divide the width where the family wants it, whatever its head_dim is."""
        if wanted and d % heads:
            kind = self.config["model_type"]
            raise ModelError("num_attention_heads", f"{heads} does not divide the width {d}, as {kind} wants it to")

    def heads(self, d: int, heads: int, kv_heads: int, head_dim: int | None = None) -> Attention:
        """Heads that fill the width unless `head_dim` says otherwise."""
        if head_dim is None:
            if d % heads:
                raise ModelError("num_attention_heads", f"{heads} does not divide the width {d}; no head_dim")
            head_dim = d // heads
        if heads % kv_heads:
            raise ModelError("num_key_value_heads", f"{kv_heads} does not divide the {heads} attention heads")
        return Attention(heads, kv_heads, head_dim)

    def depth(self, default: int, *others: str) -> int:
        """Number of layers."""
        return self.integer(("num_hidden_layers", *others), default, 1, MOST_LAYERS)

    def layer_types(self, layers: int, windowed: Callable[[int], bool], why: str) -> list[bool]:
        """For each layer whether its attention has the window: `layer_types`, or the family's pattern, noted."""
        types = self.config.get("layer_types")
        if types is None:
            pattern = [windowed(i) for i in range(layers)]
            self.notes.append(f"layer_types: not in the file, {sum(pattern)} of {layers} layers windowed ({why})")
            return pattern
        if not isinstance(types, list) or len(types) != layers:
            raise ModelError("layer_types", f"{types!r} is not a list of {layers} names")
        unknown = sorted({str(kind) for kind in types} - {"full_attention", "sliding_attention"})
        if unknown:
            raise ModelError("layer_types", f"{', '.join(unknown)}; allowed: full_attention, sliding_attention")
        return [kind == "sliding_attention" for kind in types]


def _with(attention: Attention, **changes: Any) -> Attention:
    return Attention(**{**attention.__dict__, **changes})


def _biased(attention: Attention, qkv: bool, output: bool) -> Attention:
    return _with(attention, query_bias=qkv, key_bias=qkv, value_bias=qkv, output_bias=output)


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


def _gpt_neox(name: str, keys: Keys) -> ModelSpec:
    """Two norms that read the same residual; biases in the feed-forward always; heads of equal width."""
    d, h = keys.integer("hidden_size", 6144), keys.integer("num_attention_heads", 64)
    bias = keys.flag("attention_bias", True)
    layer = Layer(
        _biased(keys.heads(d, h, h), bias, bias),
        Feedforward("gelu", keys.integer("intermediate_size", 24576), bias=True),
        parallel=keys.flag("use_parallel_residual", True),
    )
    return ModelSpec(
        name=name,
        d_model=d,
        vocabulary=keys.integer("vocab_size", 50432),
        context=keys.integer("max_position_embeddings", 2048),
        layers=((keys.depth(44), layer),),
        positions="rope",
        rope_base=keys.rope_base(10000.0),
        norm="layernorm",
        norm_bias=True,
        norm_epsilon=keys.number("layer_norm_eps", 1e-5, 1),
        tied_head=keys.flag("tie_word_embeddings", False),
    )


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
        raise ModelError("parallel_attn", "false with new_decoder_architecture true: no such Falcon runs")
    if new:
        h_kv = keys.derived("num_kv_heads", h, "as many as attention heads")
        norms = keys.integer("num_ln_in_parallel_attn", 2, 1, 2)
    else:
        h_kv, norms = 1 if multi_query else h, 1 if parallel else 2
        if not multi_query and keys.derived("num_kv_heads", h, "as many as attention heads") != h:
            raise ModelError(
                "num_kv_heads", f"not {h}, without multi_query and new_decoder_architecture: no such Falcon runs"
            )
    alibi = keys.flag("alibi", False)
    f = keys.derived("ffn_hidden_size", 4 * d, "4 times the width")
    layer = Layer(
        _with(_biased(keys.heads(d, h, h_kv), bias, bias), repeated_cache=new),
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


@dataclass(frozen=True)
class Gated:
    """A family of the Llama shape (rotary positions, RMSNorm, gated feed-forward): defaults, and what no file says."""

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None  # None: as many as attention heads
    head_dim: int | None = None  # None: d / h
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    tied: bool = False
    attention_bias: bool | None = False  # default of the key; None: the family has no such key and no such bias
    query_key_value_bias: bool = False  # unwritten: biases on q, k and v alone (Qwen2)
    feedforward_bias: bool | None = None  # default of mlp_bias; None: the family has no such key
    # Windowed layers: none | all | upper (from max_window_layers on) | pattern | flag (all, if use_sliding_window).
    window: str = "none"
    sliding_window: int | None = None
    pattern: int = 0  # one full layer in so many
    query_key_norm: str = "none"
    norms: int = 2
    post_norm: bool = False
    experts: str = "none"  # none | mixtral | qwen | gpt_oss
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    sinks: bool = False
    divides: bool = False  # the heads must divide the width, though head_dim is a key of its own


def _window(keys: Keys, family: Gated, layers: int) -> list[int | None]:
    """The window of each layer, in depth order."""
    if family.window == "none":
        return [None] * layers
    if family.window == "all":
        return [keys.window(family.sliding_window)] * layers
    if family.window == "pattern":
        w = keys.window(family.sliding_window)
        period = family.pattern
        if period > 2:
            period = keys.integer("sliding_window_pattern", period)
        types = keys.layer_types(layers, lambda i: bool((i + 1) % period), f"every {period}. layer full")
        if w is None and any(types):
            raise ModelError("sliding_window", f"null, though {sum(types)} of {layers} layers have a window")
        return [w if windowed else None for windowed in types]
    if not keys.flag("use_sliding_window", False):
        return [None] * layers
    w = keys.window(family.sliding_window)
    if family.window == "flag":
        return [w] * layers
    first = keys.integer("max_window_layers", 28, 0)
    types = keys.layer_types(layers, lambda i: w is not None and i >= first, f"from layer {first} on")
    return [w if windowed else None for windowed in types]


def _experts(keys: Keys, family: Gated, f: int, layers: int) -> list[Feedforward]:
    """The feed-forward of each layer, in depth order."""
    bias = family.feedforward_bias
    dense = Feedforward("gated", f, bias=False if bias is None else keys.flag("mlp_bias", bias))
    if family.experts == "none":
        return [dense] * layers
    E = keys.integer(("num_local_experts", "num_experts"), family.num_experts, 0 if family.experts == "qwen" else 1)
    k = keys.integer("num_experts_per_tok", family.num_experts_per_tok)
    _top_k(k, E)
    biased = family.experts == "gpt_oss"
    width = keys.integer("moe_intermediate_size", family.moe_intermediate_size) if family.experts == "qwen" else f
    routed = Feedforward("gated", width, biased, E, k, router_bias=biased)
    if family.experts != "qwen":
        return [routed] * layers
    step = keys.integer("decoder_sparse_step", 1)
    only = keys.config.get("mlp_only_layers")
    only = [] if only is None else only
    if not isinstance(only, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in only):
        raise ModelError("mlp_only_layers", f"{only!r} is not a list of layer numbers")
    if wrong := [i for i in only if not 0 <= i < layers]:
        raise ModelError("mlp_only_layers", f"{wrong[0]} is no layer; allowed: 0 to {layers - 1}")
    only = set(only)
    return [routed if i not in only and E and (i + 1) % step == 0 else dense for i in range(layers)]


def _top_k(k: int, E: int) -> None:
    if E and k > E:
        raise ModelError("num_experts_per_tok", f"{k} is above the {E} experts; at most that many")


def _gated(name: str, keys: Keys, family: Gated) -> ModelSpec:
    keys.fixed("use_bidirectional_attention", False, None)
    d = keys.integer("hidden_size", family.hidden_size)
    h = keys.integer("num_attention_heads", family.num_attention_heads)
    h_kv = keys.key_value_heads(family.num_key_value_heads, h)
    head_dim = family.head_dim
    keys.dividing(d, h, family.divides)
    if head_dim is not None or keys.config.get("head_dim") is not None:
        head_dim = keys.integer("head_dim", head_dim)
    attention = keys.heads(d, h, h_kv, head_dim)
    if attention.head_dim % 2:
        raise ModelError("head_dim", f"{attention.head_dim} is odd; rotary positions pair the components")
    bias = False if family.attention_bias is None else keys.flag("attention_bias", family.attention_bias)
    attention = _biased(attention, bias or family.query_key_value_bias, bias)
    attention = _with(attention, query_key_norm=family.query_key_norm, sinks=family.sinks)
    layers = keys.depth(family.num_hidden_layers)
    f = keys.integer("intermediate_size", family.intermediate_size)
    windows, feedforwards = _window(keys, family, layers), _experts(keys, family, f, layers)
    return ModelSpec(
        name=name,
        d_model=d,
        vocabulary=keys.integer("vocab_size", family.vocab_size),
        context=keys.integer("max_position_embeddings", family.max_position_embeddings),
        layers=runs(
            [
                Layer(_with(attention, window=w), feedforward, norms=family.norms, post_norm=family.post_norm)
                for w, feedforward in zip(windows, feedforwards, strict=True)
            ]
        ),
        positions="rope",
        rope_base=keys.rope_base(family.rope_theta),
        norm_epsilon=keys.number("rms_norm_eps", family.rms_norm_eps, 1),
        tied_head=keys.flag("tie_word_embeddings", family.tied),
    )


GATED = {
    "llama": Gated(feedforward_bias=False, divides=True),
    "mistral": Gated(
        intermediate_size=14336,
        num_key_value_heads=8,
        max_position_embeddings=131072,
        attention_bias=None,
        window="all",
        sliding_window=4096,
    ),
    "mixtral": Gated(
        intermediate_size=14336,
        num_key_value_heads=8,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        rope_theta=1e6,
        attention_bias=None,
        window="all",
        experts="mixtral",
        num_experts=8,
        num_experts_per_tok=2,
    ),
    "qwen2": Gated(
        vocab_size=151936,
        intermediate_size=22016,
        num_key_value_heads=32,
        max_position_embeddings=32768,
        attention_bias=None,
        query_key_value_bias=True,
        window="upper",
        sliding_window=4096,
    ),
    "qwen3": Gated(
        vocab_size=151936,
        intermediate_size=22016,
        num_key_value_heads=32,
        head_dim=128,
        max_position_embeddings=32768,
        window="upper",
        sliding_window=4096,
        query_key_norm="head",
    ),
    "qwen3_moe": Gated(
        vocab_size=151936,
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=24,
        num_key_value_heads=4,
        max_position_embeddings=32768,
        window="flag",
        sliding_window=4096,
        query_key_norm="head",
        experts="qwen",
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
    ),
    "gemma": Gated(
        vocab_size=256000,
        hidden_size=3072,
        intermediate_size=24576,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=16,
        head_dim=256,
        max_position_embeddings=8192,
        tied=True,
    ),
    "gemma2": Gated(
        vocab_size=256000,
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=26,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        max_position_embeddings=8192,
        tied=True,
        window="pattern",
        sliding_window=4096,
        pattern=2,
        norms=4,
        divides=True,
    ),
    "gemma3_text": Gated(
        vocab_size=262208,
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=26,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        max_position_embeddings=131072,
        rope_theta=1e6,
        tied=True,
        window="pattern",
        sliding_window=4096,
        pattern=6,
        query_key_norm="head",
        norms=4,
        divides=True,
    ),
    "phi3": Gated(
        vocab_size=32064,
        hidden_size=3072,
        intermediate_size=8192,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        attention_bias=None,
        window="all",
    ),
    "olmo2": Gated(
        vocab_size=50304,
        rms_norm_eps=1e-5,
        query_key_norm="full",
        post_norm=True,
    ),
    "gpt_oss": Gated(
        vocab_size=201088,
        hidden_size=2880,
        intermediate_size=2880,
        num_hidden_layers=36,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        rope_theta=150000.0,
        attention_bias=True,
        window="pattern",
        sliding_window=128,
        pattern=2,
        experts="gpt_oss",
        num_experts=128,
        num_experts_per_tok=4,
        sinks=True,
    ),
}


@dataclass(frozen=True)
class Deepseek:
    """Defaults of a latent-attention family."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    moe_intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    n_shared_experts: int
    n_routed_experts: int
    num_experts_per_tok: int | None
    first_k_dense_replace: int
    max_position_embeddings: int
    experts: str  # its other name for n_routed_experts
    num_key_value_heads: int | None  # None: as many as attention heads
    n_group: int  # groups that experts are chosen in; 0: only where topk_method says so
    head_dim: bool  # whether a head_dim is followed, which must then be the rotated width
    divides: bool  # whether the heads must divide the width
    topk_group: int | None  # groups that a token is routed in


DEEPSEEK = {
    "deepseek_v2": Deepseek(
        102400, 4096, 11008, 1407, 32, 32, 2, 64, None, 0, 2048, "num_experts", None, 0, False, True, None
    ),
    "deepseek_v3": Deepseek(
        129280, 7168, 18432, 2048, 61, 128, 1, 256, 8, 3, 4096, "num_local_experts", 128, 8, True, False, 4
    ),
}


def _deepseek(name: str, keys: Keys, family: Deepseek) -> ModelSpec:
    """Latent attention, dense layers first, shared experts.

    A multi-token-prediction layer (num_nextn_predict_layers) stands in the checkpoint, not in the model that runs.
    """
    keys.fixed("mlp_bias", False)
    keys.fixed("moe_layer_freq", 1)
    d = keys.integer("hidden_size", family.hidden_size)
    h = keys.integer("num_attention_heads", family.num_attention_heads)
    keys.dividing(d, h, family.divides)
    h_kv = keys.key_value_heads(family.num_key_value_heads, h)
    if h_kv != h:
        raise ModelError("num_key_value_heads", f"{h_kv}; a latent serves each of the {h} attention heads")
    bias = keys.flag("attention_bias", False)
    r_q = keys.optional("q_lora_rank", 1536)
    latent = Latent(
        query_rank=r_q or 0,
        kv_rank=keys.integer("kv_lora_rank", 512),
        nope_dim=keys.integer("qk_nope_head_dim", 128),
        rope_dim=keys.integer("qk_rope_head_dim", 64),
        value_dim=keys.integer("v_head_dim", 128),
    )
    if latent.rope_dim % 2:
        raise ModelError("qk_rope_head_dim", f"{latent.rope_dim} is odd; rotary positions pair the components")
    if family.head_dim:
        keys.fixed("head_dim", latent.rope_dim, None)
    attention = Attention(
        h,
        h,
        latent.nope_dim + latent.rope_dim,
        query_bias=bias and r_q is not None,
        key_bias=bias,
        output_bias=bias,
        latent=latent,
    )
    E = keys.integer(("n_routed_experts", family.experts), family.n_routed_experts)
    k = keys.integer("num_experts_per_tok", family.num_experts_per_tok)
    _top_k(k, E)
    n_group, chosen = (keys.config.get(key, getattr(family, key)) for key in ("n_group", "topk_group"))
    for key, value, most in (("n_group", n_group, E), ("topk_group", chosen, n_group)):
        if n_group and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most):
            raise ModelError(key, f"{value!r}; allowed: an integer from 1 to {most}")
    if family.n_group or keys.config.get("topk_method") == "group_limited_greedy":
        groups = keys.integer("n_group", family.n_group or None)
        if E % groups or E // groups < 2:
            raise ModelError("n_group", f"{groups} groups do not divide {E} experts into two or more each")
    f = keys.integer("moe_intermediate_size", family.moe_intermediate_size)
    shared = f * keys.integer("n_shared_experts", family.n_shared_experts)
    dense = Feedforward("gated", keys.integer("intermediate_size", family.intermediate_size))
    routed = Feedforward("gated", f, False, E, k, shared_width=shared)
    layers = keys.depth(family.num_hidden_layers)
    first = keys.integer("first_k_dense_replace", family.first_k_dense_replace, 0)
    return ModelSpec(
        name=name,
        d_model=d,
        vocabulary=keys.integer("vocab_size", family.vocab_size),
        context=keys.integer("max_position_embeddings", family.max_position_embeddings),
        layers=runs([Layer(attention, dense if i < first else routed) for i in range(layers)]),
        positions="rope",
        rope_base=keys.rope_base(10000.0),
        norm_epsilon=keys.number("rms_norm_eps", 1e-6, 1),
        tied_head=keys.flag("tie_word_embeddings", False),
    )


OTHERS: dict[str, Callable[[str, Keys], ModelSpec]] = {
    "gpt2": _gpt2,
    "gpt_bigcode": _gpt_bigcode,
    "gpt_neox": _gpt_neox,
    "opt": _opt,
    "bloom": _bloom,
    "falcon": _falcon,
}

KNOWN = tuple(sorted([*OTHERS, *GATED, *DEEPSEEK]))

TEXT_PART = "text part of a multimodal file; its other parts are not counted"


def text_part(config: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """The text part of a multimodal file, with the tying that such a file states at its top."""
    inner = config.get("text_config")
    if inner is None:
        return dict(config)
    if not isinstance(inner, dict):
        raise ModelError("text_config", f"{inner!r} is not a mapping")
    notes.append(f"text_config: {TEXT_PART}")
    # ASSUME a text part that does not name its type is the text model that goes with the file's own type.
    kind = inner.get("model_type") or f"{config.get('model_type')}_text"
    tied = {key: config[key] for key in ("tie_word_embeddings",) if key in config and key not in inner}
    return {**inner, **tied, "model_type": kind}


def _no_other_window(keys: Keys, spec: ModelSpec, kind: str) -> None:
    """Refuse windows that the family's attention does not have: the caches of transformers would follow them."""
    if kind not in GATED or GATED[kind].window == "none":
        keys.fixed("sliding_window", None)
    if keys.config.get("layer_types") is not None:
        windowed = [layer.attention.window is not None for layer in spec.each_layer()]
        if keys.layer_types(spec.depth, lambda _: False, "") != windowed:
            raise ModelError(
                "layer_types", f"{sum(windowed)} of {spec.depth} layers have a window in {kind}, not these"
            )


# Keys that decide no size here, but what transformers makes of the file: they must be of the right kind to be handed on.
_MAPPINGS = ("rope_scaling", "rope_parameters")
_NAMES = ("hidden_act", "hidden_activation", "activation_function", "activation")
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
    for name in _NAMES:
        if not isinstance(config.get(name, ""), str | None):  # null in Gemma 1's files, which name it otherwise
            raise ModelError(name, f"{config[name]!r} is not the name of an activation")
    for part in (config, *(config.get(name) or {} for name in _MAPPINGS)):
        for name in _SHARES:
            share = part.get(name, 1)
            if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
                raise ModelError(name, f"{share!r} is not a number above 0 and at most 1")


def parsed(text: str) -> dict[str, Any]:
    """The mapping that a config.json holds.

    Raises ModelError where the text is no JSON, or another value, has a key twice, or a number that none could use.
    """

    def finite(text: str) -> float:
        if not math.isfinite(value := float(text)):
            raise ValueError(f"{text} is not a finite number")
        return value

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
        data = json.loads(text, parse_float=finite, parse_constant=finite, parse_int=whole, object_pairs_hook=once)
    except ModelError:
        raise
    except (ValueError, RecursionError) as error:
        raise ModelError("", f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise ModelError("", "not a mapping; wanted is a model's config.json")
    return data


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
    if kind in GATED:
        spec = _gated(name, keys, GATED[kind])
    elif kind in DEEPSEEK:
        spec = _deepseek(name, keys, DEEPSEEK[kind])
    elif kind in OTHERS:
        spec = OTHERS[kind](name, keys)
    else:
        raise ModelError("model_type", f"unknown model_type {kind!r}; known: {', '.join(KNOWN)}")
    keys.foreign()
    _no_other_window(keys, spec, kind)
    return spec, notes
