"""Families as a table, rotary positions in nearly all: the keys and defaults of each, and what no file of theirs says.

A family is one entry of ROTARY. Its fields are the defaults of transformers' configuration class, by the names of
config.json, and the facts that only its code has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from transformer_ledger.keys import MOST_LAYERS, Keys
from transformer_ledger.model import (
    Attention,
    Feedforward,
    FixedState,
    Indexer,
    Latent,
    Layer,
    ModelError,
    ModelSpec,
    runs,
)

BIASED = {"q": "query_bias", "k": "key_bias", "v": "value_bias", "o": "output_bias"}
"""Letter → bias of the attention; besides them f is every map of a dense feed-forward or of experts, r the router, h the
head."""


@dataclass(frozen=True)
class Experts:
    """How a family chooses and holds its experts."""

    names: tuple[str, ...]  # of the key that counts them
    count: int
    per_token: int | None
    width: int = 0  # default of moe_intermediate_size; 0: intermediate_size is theirs
    # The layers that have them: all | step (decoder_sparse_step) | first (after dense ones) | typed (as mlp_layer_types says,
    # else the same) | listed (moe_layers) | parts (as State.where).
    where: str = "all"
    # Default of intermediate_size_mlp, the dense layers' own width; 0: intermediate_size is theirs.
    dense_width: int = 0
    dense_first: int = 0  # default of first_k_dense_replace
    shared: str = ""  # experts that every token passes: "" | one | counted (so many) | the key of their width in all
    shared_count: int = 1  # default of n_shared_experts
    shared_width: int = 0  # default of the key of their width
    shared_gate: bool = False
    or_none: bool = False  # without routed experts, the shared ones are the layer's feed-forward
    groups: bool | None = None  # whether experts are chosen in groups: always, only by topk_method, or never (None)
    n_group: int | None = None  # default
    topk_group: int | None = None  # default


Size = tuple[str | tuple[str, ...], int]  # key, or its names, and default


@dataclass(frozen=True)
class State:
    """Layers of a family whose mixer has a fixed state: for each of its sizes the key and the default."""

    rule: str
    heads: Size
    groups: Size
    key_dim: Size
    value_dim: Size
    kernel: Size
    expand: int = 0  # default of mamba_expand: all heads' values fill so many of the model's widths
    convolution_bias: str = ""  # key of the convolution's bias, true by default
    bias: str = ""  # key of the bias of the projections in, false by default
    output_bias: str = ""  # the same of the projection out, where it has a key of its own
    inner: tuple[str, int] | None = None  # all heads' values together; null: as `expand` says
    norm: str = ""  # key that switches on the norm, false by default; "": there is one
    # Which layers have it: all but one in `pattern` | typed (as layer_types says, else all) | others (all but
    # attn_layer_indices) | numbered (all but full_attn_layers, counted from 1, else all but one in `pattern` behind the
    # first) | parts (a layer is a mixer or a feed-forward, as hybrid_override_pattern says) | beside (all, beside attention).
    where: str = "pattern"

    def read(self, keys: Keys, d: int) -> FixedState:
        """The mixer of a file, of a model `d` wide. Raises ModelError where its sizes contradict each other."""
        heads, groups, key_dim, kernel = (
            keys.integer(*size) for size in (self.heads, self.groups, self.key_dim, self.kernel)
        )
        if heads % groups:
            raise ModelError(str(self.groups[0]), f"{groups} does not divide the {heads} heads")
        named = (self.convolution_bias, self.bias, self.output_bias or self.bias)
        flags = [key and keys.flag(key, key == self.convolution_bias) for key in named]
        normed = keys.flag(self.norm, False) if self.norm else True
        value_dim = self._value_dim(keys, d, heads) if self.expand else keys.integer(*self.value_dim)
        biases = dict(zip(("convolution_bias", "bias", "output_bias"), map(bool, flags), strict=True))
        return FixedState(self.rule, heads, groups, key_dim, value_dim, kernel, **biases, normed=normed)

    def _value_dim(self, keys: Keys, d: int, heads: int) -> int:
        """The width of the heads' values, which fill `inner`, or `expand` widths of the model."""
        name, what = str(self.value_dim[0]), "mamba_expand × the width"
        values = keys.optional(*self.inner) if self.inner else None
        if values is None:
            values = d * keys.integer("mamba_expand", self.expand)
        elif self.inner:
            keys.read.add("mamba_expand")  # which says nothing then
            what = self.inner[0]
        if values % heads:
            raise ModelError(str(self.heads[0]), f"{heads} does not divide {what}, {values}")
        if keys.get(name) != "auto" and keys.derived(name, values // heads, "the heads fill it") != values // heads:
            raise ModelError(name, f"{keys.get(name)} × {heads} heads is not {what}, {values}")
        return values // heads


DELTA = State(
    rule="delta",
    heads=("linear_num_value_heads", 32),
    groups=("linear_num_key_heads", 16),
    key_dim=("linear_key_head_dim", 128),
    value_dim=("linear_value_head_dim", 128),
    kernel=("linear_conv_kernel_dim", 4),
)
_KIMI_HEADS: Size = (("linear_num_heads", "linear_attn_config.num_heads"), 32)
_KIMI_WIDTH: Size = (("linear_head_dim", "linear_attn_config.head_dim"), 128)
KIMI = State(
    rule="kda",
    heads=_KIMI_HEADS,
    groups=_KIMI_HEADS,
    key_dim=_KIMI_WIDTH,
    value_dim=_KIMI_WIDTH,
    kernel=(("linear_conv_kernel_dim", "linear_attn_config.short_conv_kernel_size"), 4),
    where="numbered",
)
MAMBA = State(
    rule="ssm",
    heads=("mamba_n_heads", 128),
    groups=("mamba_n_groups", 1),
    key_dim=("mamba_d_state", 256),
    value_dim=("mamba_d_head", 0),
    kernel=("mamba_d_conv", 4),
    expand=2,
    convolution_bias="mamba_conv_bias",
    bias="mamba_proj_bias",
)
NEMOTRON = State(
    rule="ssm",
    heads=("mamba_num_heads", 128),
    groups=("n_groups", 8),
    key_dim=("ssm_state_size", 128),
    value_dim=("mamba_head_dim", 64),
    kernel=("conv_kernel", 4),
    convolution_bias="use_conv_bias",
    bias="use_bias",
    where="parts",
)


@dataclass(frozen=True)
class Rotary:
    """A family with rotary positions: defaults by the names of config.json, and what no file says."""

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008  # 0: no layer has a feed-forward without experts
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None  # None: as many as attention heads
    head_dim: int | None = None  # None: d / h
    max_position_embeddings: int = 2048
    rope_theta: float = 10000.0
    positions: str = "rope"  # rope | none | the key that says rope where they are
    tied: bool = False
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # sizes that go by other names
    # Norms: their kind, the key of their ε and its default.
    norm: str = "rmsnorm"
    norm_bias: bool = False
    epsilon: str = "rms_norm_eps"
    epsilon_default: float = 1e-6
    norms: int = 2
    post_norm: bool = False
    parallel: bool = False  # default of use_parallel_residual where that is a key; else a fact
    query_key_norm: str = "none"
    query_key_norm_flag: str = ""  # the key that switches it on
    # Biases by key: (default, what has them); "" is no key but a fact.
    biases: Mapping[str, tuple[bool, str]] = field(default_factory=lambda: {"attention_bias": (False, "qkvo")})
    feedforward: str = "gated"
    inner: bool = False  # the feed-forward's width is 4d where it is left out (n_inner)
    # Windowed layers: none | all | upper (from max_window_layers on) | pattern | flag (all, if use_sliding_window)
    # | chunked (chunks in all layers but those of no_rope_layers).
    window: str = "none"
    sliding_window: int | None = None
    pattern: int = 0  # one full layer in so many
    pattern_key: str = ""  # the key that says otherwise
    experts: Experts | None = None
    sinks: bool = False
    gated: bool = False  # the query's projection is twice as wide and gates the heads' outputs
    state: State | None = None  # of the layers that do not attend
    fills: bool = False  # the heads fill the width: a head_dim is no key of the family
    many: bool = False  # a key/value head for every query head: no key either
    divides: bool = False  # the heads must divide the width, though head_dim is a key of its own
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # values of keys that are counted here
    flags: tuple[str, ...] = ()  # keys besides biases that a calculator of one form must know
    latent: Latent | None = None  # defaults
    opened: tuple[str, ...] = ()  # mappings whose keys are keys of the family
    rotated_head_dim: bool = False  # of a latent family: a head_dim is followed, and must be the rotated width

    def named(self, size: str) -> tuple[str, ...]:
        """Names that a file may give to one of the sizes."""
        return self.names.get(size, (size,))


SLIDING, CHUNKED, LINEAR, FULL = "sliding_attention", "chunked_attention", "linear_attention", "full_attention"
INDEXED = "indexed_attention"
PARTS = {"M": LINEAR, "E": "moe", "*": FULL, "-": "mlp"}
"""Letters of hybrid_override_pattern, and what each says that a layer is; without one there are these four layers."""


def _chunks(keys: Keys, family: Rotary, layers: int) -> list[int | None]:
    """The chunk of each layer: rotated layers have it, unless layer_types says otherwise."""
    w = keys.optional("attention_chunk_size", family.sliding_window, low=2)
    period = keys.integer("no_rope_layer_interval", family.pattern)
    turned = keys.numbers("no_rope_layers", 0, 1) or [int((i + 1) % period > 0) for i in range(layers)]
    if len(turned) < layers:
        raise ModelError("no_rope_layers", f"{len(turned)} entries for {layers} layers")
    types = keys.layer_types(layers, CHUNKED, lambda i: bool(turned[i] and w), "layers with rotary positions")
    if w is None and any(types):
        raise ModelError("attention_chunk_size", f"null, though {sum(types)} of {layers} layers have chunks")
    return [w if chunked else None for chunked in types]


def _windows(keys: Keys, family: Rotary, layers: int) -> list[int | None]:
    """The window, or chunk, of each layer, in depth order."""
    if family.window == "none":
        return [None] * layers
    if family.window == "chunked":
        return _chunks(keys, family, layers)
    if family.window == "all":
        return [keys.window(family.sliding_window)] * layers
    if family.window == "pattern":
        w = keys.window(family.sliding_window)
        period = keys.integer(family.pattern_key, family.pattern) if family.pattern_key else family.pattern
        types = keys.layer_types(layers, SLIDING, lambda i: bool((i + 1) % period), f"every {period}. layer full")
        if w is None and any(types):
            raise ModelError("sliding_window", f"null, though {sum(types)} of {layers} layers have a window")
        return [w if windowed else None for windowed in types]
    if not keys.flag("use_sliding_window", False):
        keys.read |= {"sliding_window", "max_window_layers"}  # which say nothing then
        return [None] * layers
    w = keys.window(family.sliding_window)
    if family.window == "flag":
        keys.read.add("max_window_layers")
        return [w] * layers
    first = keys.integer("max_window_layers", 28, 0)
    types = keys.layer_types(layers, SLIDING, lambda i: w is not None and i >= first, f"from layer {first} on")
    return [w if windowed else None for windowed in types]


def _routed(keys: Keys, family: Rotary, own: Experts, f: int, biased: str) -> Feedforward:
    """The feed-forward of a layer with experts."""
    E = keys.integer(own.names, own.count, 0 if own.where == "step" or own.or_none else 1)
    k = keys.integer(family.named("num_experts_per_tok"), own.per_token, int(E > 0))
    if E and k > E:
        raise ModelError("num_experts_per_tok", f"{k} is above the {E} experts; at most that many")
    if own.groups is not None:
        _groups(keys, family, own, E)
    width = keys.integer("moe_intermediate_size", own.width) if own.width else f
    shared = 0
    if own.shared_width:
        shared = keys.integer(own.shared, own.shared_width)
    elif own.shared == "one":
        shared = width
    elif own.shared == "counted":
        shared = width * keys.integer(family.named("n_shared_experts"), own.shared_count)
    if own.or_none and not E:
        return Feedforward(family.feedforward, shared)
    return Feedforward(
        family.feedforward,
        width,
        "f" in biased,
        E,
        k,
        shared_width=shared,
        shared_gate=own.shared_gate,
        router_bias="r" in biased,
    )


def _groups(keys: Keys, family: Rotary, own: Experts, E: int) -> None:
    """Refuse groups of experts that no token could be routed in."""
    names = family.named("n_group")
    given, chosen = keys.found(names), keys.get("topk_group", own.topk_group)
    n_group: Any = own.n_group if given is None else given
    for key, value, most in (("n_group", n_group, E), ("topk_group", chosen, n_group)):
        if n_group and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most):
            raise ModelError(key, f"{value!r}; allowed: an integer from 1 to {most}")
    if own.groups or keys.get("topk_method") == "group_limited_greedy":
        groups = keys.integer(names, own.n_group)
        if E % groups or E // groups < 2:
            raise ModelError("n_group", f"{groups} groups do not divide {E} experts into two or more each")


def _feedforwards(keys: Keys, family: Rotary, biased: str, types: list[str]) -> list[Feedforward]:
    """The feed-forward of each layer, in depth order."""
    layers = len(types)
    own, names = family.experts, family.named("intermediate_size")
    if family.inner:
        d = keys.integer(family.named("hidden_size"), family.hidden_size)
        f = keys.derived(names, 4 * d, "4 times the width")
    else:
        f = keys.integer(names, family.intermediate_size) if family.intermediate_size else 0
    dense = Feedforward(family.feedforward, f, bias="f" in biased)
    if own is None:
        return [dense] * layers
    if own.dense_width:
        dense = replace(dense, width=keys.integer("intermediate_size_mlp", own.dense_width))
    if own.where == "parts":
        parts = {"mlp": dense} | ({"moe": _routed(keys, family, own, f, biased)} if "moe" in types else {})
        return [parts.get(kind, Feedforward("none", 0)) for kind in types]
    routed = _routed(keys, family, own, f, biased)
    if own.where == "typed" and (given := keys.get("mlp_layer_types")) is not None:
        if not isinstance(given, list) or len(given) != layers:
            raise ModelError("mlp_layer_types", f"{given!r} is not a list of {layers} names")
        return [
            dense if kind == "dense" else routed for kind in keys.named("mlp_layer_types", given, "dense", "sparse")
        ]
    if own.where in ("first", "typed"):
        keys.fixed("moe_layer_freq", 1)
        first = keys.integer("first_k_dense_replace", own.dense_first, 0)
        return [dense if i < first else routed for i in range(layers)]
    if own.where == "all":
        return [routed] * layers
    if own.where == "listed":
        step = keys.integer("interleave_moe_layer_step", 1)
        listed = keys.numbers("moe_layers", 0, layers - 1)
        sparse = set(range(step - 1, layers, step) if listed is None else listed)
        return [routed if i in sparse else dense for i in range(layers)]
    step, only = keys.integer("decoder_sparse_step", 1), set(keys.numbers("mlp_only_layers", 0, layers - 1) or [])
    return [routed if i not in only and routed.experts and (i + 1) % step == 0 else dense for i in range(layers)]


def _indexer(keys: Keys, own: Latent, default: Indexer) -> Indexer:
    """What chooses the positions of a family's attention."""
    if not own.query_rank:
        raise ModelError("q_lora_rank", "null; the indexer reads the query's latent")
    found = Indexer(
        keys.integer("index_n_heads", default.heads),
        keys.integer("index_head_dim", default.head_dim),
        keys.integer("index_topk", default.chosen),
    )
    if found.head_dim < own.rope_dim:
        raise ModelError(
            "index_head_dim", f"{found.head_dim} is below qk_rope_head_dim {own.rope_dim}, which is rotated"
        )
    return found


def _latent(keys: Keys, family: Rotary, own: Latent, h: int, biased: str) -> Attention:
    """Attention through a cached latent, which serves every head."""
    keys.fixed("mlp_bias", False)
    h_kv = keys.key_value_heads(family.num_key_value_heads, h)
    if h_kv != h:
        raise ModelError("num_key_value_heads", f"{h_kv}; a latent serves each of the {h} attention heads")
    r_q = keys.optional("q_lora_rank", own.query_rank or None)
    latent = Latent(
        query_rank=r_q or 0,
        kv_rank=keys.integer("kv_lora_rank", own.kv_rank),
        nope_dim=keys.integer("qk_nope_head_dim", own.nope_dim),
        rope_dim=keys.integer("qk_rope_head_dim", own.rope_dim),
        value_dim=keys.integer("v_head_dim", own.value_dim),
    )
    keys.fixed("qk_head_dim", None, latent.nope_dim + latent.rope_dim)
    if own.indexer:
        latent = replace(latent, indexer=_indexer(keys, latent, own.indexer))
    if latent.rope_dim % 2:
        raise ModelError("qk_rope_head_dim", f"{latent.rope_dim} is odd; rotary positions pair the components")
    if family.rotated_head_dim:
        keys.fixed("head_dim", latent.rope_dim, None)
    return Attention(
        h,
        h,
        latent.nope_dim + latent.rope_dim,
        query_bias="q" in biased and r_q is not None,
        key_bias="k" in biased,
        output_bias="o" in biased,
        latent=latent,
    )


def _attention(keys: Keys, family: Rotary, d: int, h: int, biased: str, turned: bool) -> Attention:
    if family.latent:
        return _latent(keys, family, family.latent, h, biased)
    h_kv = h if family.many else keys.key_value_heads(family.num_key_value_heads, h)
    head_dim = family.head_dim
    if not family.fills and (head_dim is not None or keys.get("head_dim") is not None):
        head_dim = keys.integer("head_dim", head_dim)
    own = keys.heads(d, h, h_kv, head_dim)
    if turned and own.head_dim % 2:
        raise ModelError("head_dim", f"{own.head_dim} is odd; rotary positions pair the components")
    normed = keys.flag(family.query_key_norm_flag, False) if family.query_key_norm_flag else True
    biases: dict[str, Any] = {name: letter in biased for letter, name in BIASED.items()}
    norm = family.query_key_norm if normed else "none"
    return replace(own, **biases, query_key_norm=norm, sinks=family.sinks, gated=family.gated)


def _parts(keys: Keys) -> list[str]:
    """What each layer is, of a family whose layers are a mixer or a feed-forward alone; a letter each in older files."""
    given = {key: keys.get(key) for key in ("layers_block_type", "layer_types", "hybrid_override_pattern")}
    name, types = next((pair for pair in given.items() if pair[1] is not None), ("layers_block_type", None))
    if types is None:
        types = keys.default(name, list(PARTS.values()))
    elif name == "hybrid_override_pattern" and isinstance(types, str):
        types = [PARTS.get(letter, letter) for letter in types]
    if not isinstance(types, list) or not 0 < len(types) <= MOST_LAYERS:
        raise ModelError(name, f"{types!r}; wanted is one of {', '.join(PARTS.values())} for each layer")
    found = keys.named(name, types, *PARTS.values())
    if (layers := keys.derived("num_hidden_layers", len(found), f"as {name} says")) != len(found):
        raise ModelError("num_hidden_layers", f"{layers}; {name} says {len(found)}")
    return found


def _numbered(keys: Keys, period: int, layers: int) -> list[str]:
    """Each layer's type where a file counts the layers of both kinds from 1."""
    full, linear = (keys.numbers(f"linear_attn_config.{name}_layers", 1, layers) for name in ("full_attn", "kda"))
    if full is None or linear is None:
        why = f"every {period}. layer behind the first attends"
        types = keys.layer_types(layers, LINEAR, lambda i: i == 0 or i % period > 0, why)
        return [LINEAR if own else FULL for own in types]
    if sorted(full + linear) != list(range(1, layers + 1)):
        raise ModelError(
            "linear_attn_config", f"full_attn_layers and kda_layers do not name each of {layers} layers once"
        )
    return [FULL if i + 1 in full else LINEAR for i in range(layers)]


def _types(keys: Keys, family: Rotary) -> list[str]:
    """Each layer's type, in depth order: what mixes tokens in it or, of `parts`, what it is."""
    own = family.state
    if own and own.where == "parts":
        return _parts(keys)
    layers = keys.depth(family.num_hidden_layers, *family.named("num_hidden_layers"))
    if own is None or own.where == "beside":
        if family.latent and family.latent.indexer:  # each layer has its own
            keys.fixed("layer_types", None, [INDEXED] * layers)
            keys.fixed("indexer_types", None, ["full"] * layers)
        return [FULL] * layers
    if own.where == "others":
        attending = set(keys.numbers("attn_layer_indices", 0, layers - 1) or [])
        return [FULL if i in attending else LINEAR for i in range(layers)]
    if own.where == "numbered" and keys.get("layer_types") is None:
        return _numbered(keys, family.pattern, layers)
    period = family.pattern
    if period and keys.get("layer_types") is None:
        period = keys.integer("full_attention_interval", period)
    keys.read.add("full_attention_interval")
    why = f"every {period}. layer attends" if period else "the family's default"
    linear = keys.layer_types(layers, LINEAR, lambda i: not period or bool((i + 1) % period), why)
    return [LINEAR if own else FULL for own in linear]


def _mixers(
    keys: Keys, family: Rotary, attention: Attention, types: list[str], d: int
) -> list[Attention | FixedState | None]:
    """What mixes tokens in each layer, in depth order."""
    if family.state is None:
        chunked = family.window == "chunked"
        windows = _windows(keys, family, len(types))
        return [replace(attention, window=w, chunked=chunked and w is not None) for w in windows]
    if family.state.where == "beside":
        return [attention] * len(types)
    mixers: dict[str, Attention | FixedState] = {LINEAR: family.state.read(keys, d), FULL: attention}
    return [mixers.get(kind) for kind in types]


def read(name: str, keys: Keys, family: Rotary) -> ModelSpec:
    """The spec of one file of a family. Raises ModelError."""
    for mapping in family.opened:
        keys.opened(mapping)
    for key, allowed in {"use_bidirectional_attention": (False, None), **family.fixed}.items():
        keys.fixed(key, *allowed)
    d = keys.integer(family.named("hidden_size"), family.hidden_size)
    h = keys.integer(family.named("num_attention_heads"), family.num_attention_heads)
    keys.dividing(d, h, family.divides)
    positions = family.positions
    if positions not in ("rope", "none"):
        positions = "rope" if keys.get(positions) == "rope" else "none"
    biased = "".join(
        letters for key, (default, letters) in family.biases.items() if (keys.flag(key, default) if key else default)
    )
    attention = _attention(keys, family, d, h, biased, positions == "rope")
    types = _types(keys, family)
    mixers, feedforwards = _mixers(keys, family, attention, types, d), _feedforwards(keys, family, biased, types)
    parallel = keys.flag("use_parallel_residual", family.parallel) if "parallel" in family.flags else family.parallel
    beside = family.state.read(keys, d) if family.state and family.state.where == "beside" else None
    parts = family.state is not None and family.state.where == "parts"
    norms = 1 if parts or (parallel and family.norms == 1) else max(2, family.norms)
    return ModelSpec(
        name=name,
        d_model=d,
        vocabulary=keys.integer("vocab_size", family.vocab_size),
        context=keys.integer(family.named("max_position_embeddings"), family.max_position_embeddings),
        layers=runs(
            [
                Layer(mixer, feedforward, norms, parallel, family.post_norm, beside)
                for mixer, feedforward in zip(mixers, feedforwards, strict=True)
            ]
        ),
        positions=positions,
        rope_base=keys.rope_base(family.rope_theta) if positions == "rope" else family.rope_theta,
        norm=family.norm,
        norm_bias=family.norm_bias,
        norm_epsilon=keys.number(family.epsilon, family.epsilon_default, 1),
        tied_head=keys.flag("tie_word_embeddings", family.tied),
        head_bias="h" in biased,
    )


_LATENT = Latent(query_rank=1536, kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128)


def _latent_family(latent: Latent = _LATENT, **own: Any) -> Rotary:
    bias = {"attention_bias": (False, "qko")}
    return Rotary(latent=latent, biases=bias, **own)


_LOCAL = ("num_local_experts", "num_experts")
_SHARED: dict[str, Any] = {"shared": "shared_expert_intermediate_size", "shared_width": 5632, "shared_gate": True}
_QWEN: dict[str, Any] = {"vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32}
_QWEN |= {"max_position_embeddings": 32768, "window": "upper", "sliding_window": 4096}
_GEMMA: dict[str, Any] = {"head_dim": 256, "max_position_embeddings": 8192, "tied": True}
_MISTRAL: dict[str, Any] = {"intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072}
_MISTRAL |= {"biases": {}, "window": "all"}
_HYBRID: dict[str, Any] = {"vocab_size": 151936, "hidden_size": 2048, "num_attention_heads": 16, "head_dim": 256}
_HYBRID |= {"num_key_value_heads": 2, "max_position_embeddings": 32768, "query_key_norm": "head", "gated": True}
_HYBRID |= {"state": DELTA, "pattern": 4, "fixed": {"attn_output_gate": (True, None)}}
_QWEN_3_5: dict[str, Any] = _HYBRID | {"vocab_size": 248320}
_DEEPSEEK: dict[str, Any] = {"vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432}
_DEEPSEEK |= {"num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128, "rotated_head_dim": True}
_DEEPSEEK_EXPERTS = Experts(
    ("n_routed_experts", "num_local_experts"),
    256,
    8,
    width=2048,
    where="first",
    dense_first=3,
    shared="counted",
    groups=True,
    n_group=8,
    topk_group=4,
)
_ONE_GROUP: dict[str, Any] = {"n_group": 1, "topk_group": 1}
_OWN_CHOICE = {"index_topk_freq": (1, None), "index_topk_pattern": (None,)}  # no layer reads what another chose
_LAYERNORM: dict[str, Any] = {"norm": "layernorm", "norm_bias": True, "epsilon_default": 1e-5}

ROTARY: dict[str, Rotary] = {
    "llama": Rotary(biases={"attention_bias": (False, "qkvo"), "mlp_bias": (False, "f")}, divides=True),
    "mistral": Rotary(**_MISTRAL, sliding_window=4096),
    "mixtral": Rotary(**_MISTRAL, epsilon_default=1e-5, rope_theta=1e6, experts=Experts(_LOCAL, 8, 2)),
    "qwen2": Rotary(**_QWEN, biases={"": (True, "qkv")}),
    "qwen3": Rotary(**_QWEN, head_dim=128, query_key_norm="head"),
    "qwen2_moe": Rotary(
        vocab_size=151936,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=24,
        num_attention_heads=16,
        num_key_value_heads=16,
        max_position_embeddings=32768,
        biases={"qkv_bias": (True, "qkv")},
        window="flag",
        fixed={"use_sliding_window": (False, None)},
        experts=Experts(("num_experts",), 60, 4, width=1408, where="step", **_SHARED),
    ),
    "qwen3_moe": Rotary(
        vocab_size=151936,
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=24,
        num_key_value_heads=4,
        max_position_embeddings=32768,
        window="flag",
        sliding_window=4096,
        query_key_norm="head",
        experts=Experts(_LOCAL, 128, 8, width=768, where="step"),
    ),
    "qwen3_next": Rotary(
        **_HYBRID,
        intermediate_size=5632,
        num_hidden_layers=48,
        experts=Experts(("num_experts",), 512, 10, width=512, where="step", **_SHARED | {"shared_width": 512}),
    ),
    "qwen3_5_text": Rotary(**_QWEN_3_5 | {"hidden_size": 4096, "num_key_value_heads": 4}, intermediate_size=12288),
    "qwen3_5_moe_text": Rotary(
        **_QWEN_3_5,
        intermediate_size=0,
        num_hidden_layers=40,
        experts=Experts(("num_experts",), 256, 8, width=512, **_SHARED | {"shared_width": 512}),
    ),
    "gemma": Rotary(
        **_GEMMA,
        vocab_size=256000,
        hidden_size=3072,
        intermediate_size=24576,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=16,
    ),
    "gemma2": Rotary(
        **_GEMMA,
        vocab_size=256000,
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=26,
        num_attention_heads=8,
        num_key_value_heads=4,
        window="pattern",
        sliding_window=4096,
        pattern=2,
        norms=4,
        divides=True,
    ),
    "gemma3_text": Rotary(
        **_GEMMA | {"max_position_embeddings": 131072},
        vocab_size=262208,
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=26,
        num_attention_heads=8,
        num_key_value_heads=4,
        rope_theta=1e6,
        window="pattern",
        sliding_window=4096,
        pattern=6,
        pattern_key="sliding_window_pattern",
        query_key_norm="head",
        norms=4,
        divides=True,
    ),
    "phi3": Rotary(
        vocab_size=32064,
        hidden_size=3072,
        intermediate_size=8192,
        max_position_embeddings=4096,
        epsilon_default=1e-5,
        biases={},
        window="all",
    ),
    "phi": Rotary(
        **_LAYERNORM,
        epsilon="layer_norm_eps",
        vocab_size=51200,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=24,
        biases={"": (True, "qkvofh")},
        feedforward="gelu",
        norms=1,
        parallel=True,
        fixed={"qk_layernorm": (False, None)},
    ),
    "phimoe": Rotary(
        **_LAYERNORM,
        vocab_size=32064,
        intermediate_size=6400,
        num_key_value_heads=8,
        max_position_embeddings=131072,
        rope_theta=1e6,
        biases={"attention_bias": (False, "qkvo"), "lm_head_bias": (False, "h")},
        window="all",
        experts=Experts(("num_local_experts",), 16, 2),
        fixed={"num_experts_per_tok": (2,)},
    ),
    "stablelm": Rotary(
        **_LAYERNORM,
        epsilon="layer_norm_eps",
        vocab_size=50304,
        hidden_size=2560,
        intermediate_size=6912,
        num_key_value_heads=32,
        max_position_embeddings=4096,
        biases={"use_qkv_bias": (False, "qkv")},
        norms=1,
        parallel=False,
        flags=("parallel",),
        fills=True,
        fixed={"qk_layernorm": (False, None)},
    ),
    "gpt_neox": Rotary(
        **_LAYERNORM,
        epsilon="layer_norm_eps",
        vocab_size=50432,
        hidden_size=6144,
        intermediate_size=24576,
        num_hidden_layers=44,
        num_attention_heads=64,
        biases={"attention_bias": (True, "qkvo"), "": (True, "f")},
        feedforward="gelu",
        parallel=True,
        flags=("parallel",),
        fills=True,
        many=True,
    ),
    "gptj": Rotary(
        **_LAYERNORM,
        epsilon="layer_norm_epsilon",
        names={
            "hidden_size": ("n_embd", "hidden_size"),
            "num_hidden_layers": ("n_layer",),
            "num_attention_heads": ("n_head", "num_attention_heads"),
            "max_position_embeddings": ("n_positions", "max_position_embeddings"),
            "intermediate_size": ("n_inner",),
        },
        vocab_size=50400,
        num_hidden_layers=28,
        num_attention_heads=16,
        biases={"": (True, "fh")},
        feedforward="gelu",
        inner=True,
        norms=1,
        parallel=True,
        fills=True,
        many=True,
    ),
    "starcoder2": Rotary(
        **_LAYERNORM,
        epsilon="norm_epsilon",
        vocab_size=49152,
        hidden_size=3072,
        intermediate_size=12288,
        num_hidden_layers=30,
        num_attention_heads=24,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tied=True,
        biases={"use_bias": (True, "qkvof")},
        feedforward="gelu",
        window="all",
    ),
    "cohere": Rotary(
        norm="layernorm",
        epsilon="layer_norm_eps",
        epsilon_default=1e-5,
        vocab_size=256000,
        hidden_size=8192,
        intermediate_size=22528,
        num_hidden_layers=40,
        num_attention_heads=64,
        max_position_embeddings=8192,
        tied=True,
        norms=1,
        parallel=True,
        fixed={"use_qk_norm": (False, None)},
    ),
    "granite": Rotary(biases={"attention_bias": (False, "qkvo"), "mlp_bias": (False, "f")}),
    "smollm3": Rotary(
        vocab_size=128256,
        hidden_size=2048,
        num_hidden_layers=36,
        num_attention_heads=16,
        num_key_value_heads=4,
        max_position_embeddings=32768,
        tied=True,
        rope_theta=2e6,
        biases={"attention_bias": (False, "qkvo"), "mlp_bias": (False, "f")},
        fixed={"use_sliding_window": (False, None)},
    ),
    "olmo2": Rotary(vocab_size=50304, epsilon_default=1e-5, query_key_norm="full", post_norm=True),
    "olmo3": Rotary(
        vocab_size=50304,
        epsilon_default=1e-5,
        query_key_norm="full",
        post_norm=True,
        window="pattern",
        sliding_window=4096,
        pattern=4,
    ),
    "bamba": Rotary(
        vocab_size=128000,
        intermediate_size=14336,
        num_key_value_heads=8,
        max_position_embeddings=262144,
        epsilon_default=1e-5,
        biases={"attention_bias": (False, "qkvo"), "mlp_bias": (False, "f")},
        state=replace(MAMBA, where="others"),
    ),
    "falcon_h1": Rotary(
        vocab_size=128000,
        intermediate_size=14336,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        epsilon_default=1e-5,
        biases={"attention_bias": (False, "qkvo"), "mlp_bias": (False, "f")},
        fixed={"attn_layer_indices": (None,), "mamba_use_mlp": (True, None)},  # which transformers does not read
        state=replace(
            MAMBA, where="beside", inner=("mamba_d_ssm", 1024), norm="mamba_rms_norm", output_bias="projectors_bias"
        ),
    ),
    "granitemoehybrid": Rotary(
        positions="position_embedding_type",
        state=replace(MAMBA, where="typed"),
        experts=Experts(
            ("num_local_experts",), 8, 2, shared="shared_intermediate_size", shared_width=1024, or_none=True
        ),
    ),
    "nemotron_h": Rotary(
        vocab_size=131072,
        intermediate_size=21504,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=4096,
        epsilon="layer_norm_epsilon",
        epsilon_default=1e-5,
        positions="none",
        biases={},
        feedforward="gelu",
        state=NEMOTRON,
        experts=Experts(
            ("n_routed_experts", "num_local_experts"),
            8,
            2,
            width=7688,
            where="parts",
            shared="moe_shared_expert_intermediate_size",
            shared_width=7688,
            groups=True,
            n_group=1,
            topk_group=1,
        ),
        fixed={
            "tie_word_embeddings": (False, None),  # transformers never ties it
            "mlp_bias": (False, None),
            "moe_latent_size": (None,),
            "mamba_ssm_cache_dtype": ("float32", None),
        },
    ),
    "llama4_text": Rotary(
        vocab_size=202048,
        hidden_size=5120,
        intermediate_size=8192,
        num_hidden_layers=48,
        num_attention_heads=40,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=131072,
        epsilon_default=1e-5,
        rope_theta=500000.0,
        window="chunked",
        sliding_window=8192,
        pattern=4,
        query_key_norm_flag="use_qk_norm",  # norms without weights
        experts=Experts(("num_local_experts",), 16, 1, where="listed", dense_width=16384, shared="one"),
    ),
    "gpt_oss": Rotary(
        vocab_size=201088,
        hidden_size=2880,
        intermediate_size=2880,
        num_hidden_layers=36,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=131072,
        epsilon_default=1e-5,
        rope_theta=150000.0,
        biases={"attention_bias": (True, "qkvo"), "": (True, "fr")},
        window="pattern",
        sliding_window=128,
        pattern=2,
        experts=Experts(_LOCAL, 128, 4),
        sinks=True,
    ),
    "minimax_m2": Rotary(
        vocab_size=200064,
        hidden_size=3072,
        intermediate_size=1536,
        num_hidden_layers=62,
        num_attention_heads=48,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=196608,
        rope_theta=5e6,
        biases={},
        query_key_norm="full",
        experts=Experts(_LOCAL, 256, 8),
        fixed={"use_qk_norm": (True,), "qk_norm_type": ("per_layer",), "shared_intermediate_size": (0,)},
    ),
    "glm4_moe": Rotary(
        vocab_size=151552,
        intermediate_size=10944,
        num_hidden_layers=46,
        num_attention_heads=96,
        num_key_value_heads=8,
        max_position_embeddings=131072,
        epsilon_default=1e-5,
        biases={"attention_bias": (False, "qkv")},
        query_key_norm="head",
        query_key_norm_flag="use_qk_norm",
        experts=replace(_DEEPSEEK_EXPERTS, count=128, width=1408, dense_first=1, **_ONE_GROUP),
    ),
    "kimi_linear": Rotary(
        vocab_size=163840,
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=27,
        num_key_value_heads=32,
        max_position_embeddings=1048576,
        epsilon_default=1e-5,
        positions="none",
        names={
            "max_position_embeddings": ("max_position_embeddings", "model_max_length"),
            "num_experts_per_tok": ("num_experts_per_tok", "num_experts_per_token"),
            "n_shared_experts": ("n_shared_experts", "num_shared_experts"),
            "n_group": ("n_group", "num_expert_group"),
        },
        opened=("linear_attn_config",),
        biases={"attention_bias": (False, "qko")},
        latent=Latent(0, 512, 128, 64, 128),
        state=KIMI,
        pattern=4,
        experts=replace(_DEEPSEEK_EXPERTS, names=_LOCAL, width=1024, where="typed", dense_first=1, **_ONE_GROUP),
        fixed={
            "tie_word_embeddings": (False, None),
            "mla_use_nope": (True, None),
        },  # transformers never ties or rotates
    ),
    "deepseek_v2": _latent_family(
        vocab_size=102400,
        divides=True,
        experts=Experts(
            ("n_routed_experts", "num_experts"),
            64,
            None,
            width=1407,
            where="first",
            shared="counted",
            shared_count=2,
            groups=False,
        ),
    ),
    "deepseek_v3": _latent_family(**_DEEPSEEK, max_position_embeddings=4096, experts=_DEEPSEEK_EXPERTS),
    "deepseek_v32": _latent_family(
        replace(_LATENT, indexer=Indexer(heads=64, head_dim=128, chosen=2048)),
        **_DEEPSEEK,
        max_position_embeddings=163840,
        experts=replace(_DEEPSEEK_EXPERTS, where="typed"),
        fixed=_OWN_CHOICE,
    ),
    "glm_moe_dsa": _latent_family(
        Latent(2048, 512, nope_dim=192, rope_dim=64, value_dim=256, indexer=Indexer(32, 128, 2048)),
        vocab_size=154880,
        hidden_size=6144,
        intermediate_size=12288,
        num_hidden_layers=78,
        num_attention_heads=64,
        num_key_value_heads=64,
        max_position_embeddings=202752,
        epsilon_default=1e-5,
        rotated_head_dim=True,
        experts=replace(_DEEPSEEK_EXPERTS, where="typed", **_ONE_GROUP),
        fixed=_OWN_CHOICE,
    ),
}

OTHER_NAMES = {
    "kimi_k2": "deepseek_v3",
    "qwen2_vl": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen2_5_vl_text": "qwen2",
    "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe_text": "qwen3_moe",
}
"""model_type of files whose layers are another family's."""
