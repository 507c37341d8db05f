"""One frozen description of a decoder's architecture, from which every ledger and every executed model is built.

A `ModelSpec` says which tensors exist and which matrix products run. It holds numbers, booleans and names, no weights.
It comes from the `architecture:` keys of the config (`from_architecture`) or from a Hugging Face `config.json`
(`transformer_ledger.huggingface`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transformer_ledger.limits import shown


class ModelError(ValueError):
    """A description that cannot be a decoder. `key` is the offending key, relative to the model's own entry.

    A message that quotes a long value, or one with line breaks, is one line of at most about 600 characters.
    """

    def __init__(self, key: str, message: str):
        super().__init__(shown(message, 600))
        self.key = key


@dataclass(frozen=True)
class Indexer:
    """Selects the positions that each query attends to: its own query heads score one extra cached key per token.

    Source: DeepSeek-V3.2, arXiv:2512.02556, section 2.1.
    """

    heads: int
    head_dim: int  # of a query head, and of the one key that all of them read
    chosen: int  # positions at most


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (DeepSeek): queries and keys/values pass through low-rank projections.

    Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.
    """

    query_rank: int  # 0: queries are projected straight from d
    kv_rank: int  # width of the cached latent
    nope_dim: int  # per-head query/key width without rotation
    rope_dim: int  # per-head query width, and the shared key width, that is rotated
    value_dim: int  # per-head value width
    indexer: Indexer | None = None  # whose queries come out of the query's latent

    @property
    def cached(self) -> tuple[int, ...]:
        """Widths of what a token adds to the cache: latent, rotated key and, for an indexer, its key."""
        return (self.kv_rank, self.rope_dim, *([self.indexer.head_dim] if self.indexer else []))


@dataclass(frozen=True)
class Attention:
    """One layer's attention: h query heads of width d_h read h_kv key/value heads; window None sees everything.

    A position sees the window's positions up to itself, or, `chunked`, those of its own chunk of that length up to itself.
    """

    heads: int
    kv_heads: int
    head_dim: int
    query_bias: bool = False
    key_bias: bool = False
    value_bias: bool = False
    output_bias: bool = False
    window: int | None = None
    chunked: bool = False
    query_key_norm: str = "none"  # none | head (one vector of d_h) | full (one of h·d_h, one of h_kv·d_h)
    sinks: bool = False  # one learned logit a head (gpt-oss)
    latent: Latent | None = None
    repeated_cache: bool = False  # transformers caches keys and values once a query head (Falcon's new layout)
    gated: bool = False  # the heads' outputs times the sigmoid of a projection as wide as the queries (Qwen3-Next)

    @property
    def indexer(self) -> Indexer | None:
        """What chooses the positions, where not all are attended to."""
        return self.latent.indexer if self.latent else None

    @property
    def reach(self) -> int | None:
        """Most positions that a query attends to: its window, or what the indexer chooses; None: all."""
        return self.indexer.chosen if self.indexer else self.window


@dataclass(frozen=True)
class FixedState:
    """One layer's mixer whose memory does not grow with the sequence: a short convolution, then a recurrence.

    Each of h heads keeps a matrix of d_k × d_v numbers, which every token writes to and reads; heads of one group share
    keys and queries (Mamba-2: B and C). The convolution keeps the last K inputs of each of its channels.
    """

    # delta: Gated DeltaNet (arXiv:2412.06464) | ssm: Mamba-2 (arXiv:2405.21060), d_k being its state's size | kda: Kimi
    # Delta Attention (arXiv:2510.26692), where each of a head's d_k channels forgets at a rate of its own; those rates
    # and the output's gate pass through d_k numbers, and d_v is d_k.
    rule: str
    heads: int
    groups: int
    key_dim: int
    value_dim: int
    kernel: int
    convolution_bias: bool = False
    bias: bool = False  # of the projections in
    output_bias: bool = False
    normed: bool = True  # a norm beside the output's gate (Falcon-H1 may have none)

    @property
    def channels(self) -> int:
        """Channels of the convolution: each group's key and query (Mamba-2: B and C), and each head's value."""
        return 2 * self.groups * self.key_dim + self.heads * self.value_dim

    @property
    def rates(self) -> int:
        """Outputs per head of the projection `rates`: decay (ssm), write strength (kda), or both (delta)."""
        return 2 if self.rule == "delta" else 1

    @property
    def steps(self) -> int:
        """Decay steps per token: one per head, or one per key channel (kda)."""
        return self.heads * (self.key_dim if self.rule == "kda" else 1)


@dataclass(frozen=True)
class Feedforward:
    """One layer's feed-forward: `gelu` is up·act·down, `gated` is (act(gate) ⊙ up)·down. experts 0 is dense."""

    kind: str  # gelu | gated | none: the layer has no feed-forward
    width: int
    bias: bool = False
    experts: int = 0
    experts_per_token: int = 0
    shared_width: int = 0  # total width of the experts every token passes through
    shared_gate: bool = False  # a d→1 gate on the shared expert
    router_bias: bool = False


@dataclass(frozen=True)
class Layer:
    """One kind of layer: what mixes tokens, and what feeds forward; one of the two may be missing (Nemotron-H).

    `norms` is the number of d-wide norms: 2, one per part; 1, if parallel parts share one or there is only one part; 4, one
    before and one after each part.
    """

    mixer: Attention | FixedState | None
    feedforward: Feedforward
    norms: int = 2
    parallel: bool = False  # attention and feed-forward read the same residual (Falcon, GPT-NeoX)
    post_norm: bool = False  # the norms stand behind attention and feed-forward (OLMo-2)
    beside: FixedState | None = (
        None  # a second mixer, which reads what the first reads; their outputs are added (Falcon-H1)
    )

    @property
    def mixers(self) -> tuple[Attention | FixedState, ...]:
        """All that mixes tokens."""
        return tuple(mixer for mixer in (self.mixer, self.beside) if mixer)

    @property
    def state(self) -> FixedState | None:
        """The mixer with a fixed state, where there is one."""
        return next((mixer for mixer in self.mixers if isinstance(mixer, FixedState)), None)

    @property
    def attention(self) -> Attention:
        """The softmax attention of a layer that has one. Raises TypeError."""
        if not isinstance(self.mixer, Attention):
            raise TypeError(f"{self.mixer} is no softmax attention")
        return self.mixer


@dataclass(frozen=True)
class Dropout:
    """Shares that a training step sets to zero: of the embedding's output, of attention weights, of what attention and
    feed-forward add to the residual."""

    embedding: float = 0.0
    weights: float = 0.0
    attention: float = 0.0
    feedforward: float = 0.0

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return self != NO_DROPOUT


NO_DROPOUT = Dropout()


@dataclass(frozen=True)
class ModelSpec:
    """A decoder: embedding, runs of equal layers, final norm, head.

    `layers` is a sequence of (count, Layer) runs in depth order, so [(1, dense), (2, moe)] is three layers.
    """

    name: str
    d_model: int
    vocabulary: int
    context: int
    layers: tuple[tuple[int, Layer], ...]
    positions: str  # learned | rope | none (also ALiBi: no tensor)
    position_rows: int = 0  # rows of the learned table (OPT keeps two more than its context)
    rope_base: float = 10000.0
    norm: str = "rmsnorm"  # layernorm | rmsnorm
    norm_bias: bool = False
    norm_epsilon: float = 1e-5
    embedding_norm: bool = False
    final_norm: bool = True
    tied_head: bool = False
    head_bias: bool = False
    embedding_width: int = 0  # 0: d_model (OPT-350m projects)
    dropout: Dropout = NO_DROPOUT
    outputs: int | None = None  # of the head; None: the vocabulary; 0: no head (a bare model); else a score head

    @property
    def head_width(self) -> int:
        """Outputs of the head; 0 where there is none."""
        return self.vocabulary if self.outputs is None else self.outputs

    @property
    def depth(self) -> int:
        """Number of layers."""
        return sum(count for count, _ in self.layers)

    def each_layer(self) -> list[Layer]:
        """The layers in depth order, one entry a layer."""
        return [layer for count, layer in self.layers for _ in range(count)]

    def kinds(self) -> list[tuple[int, Layer]]:
        """Distinct layer kinds with the number of layers of each, in order of first appearance."""
        counted: dict[Layer, int] = {}
        for count, layer in self.layers:
            counted[layer] = counted.get(layer, 0) + count
        return [(count, layer) for layer, count in counted.items()]

    def attentions(self) -> list[tuple[int, Attention]]:
        """The softmax attentions of the kinds of layers, with the number of layers of each."""
        return [(count, kind.mixer) for count, kind in self.kinds() if isinstance(kind.mixer, Attention)]

    def states(self) -> list[tuple[int, FixedState]]:
        """The same of the mixers with a fixed state."""
        return [(count, kind.state) for count, kind in self.kinds() if kind.state]

    @property
    def plain(self) -> bool:
        """Whether every layer has a feed-forward and softmax attention alone that is neither gated nor indexed.

        Activations are predicted only for such models.
        """
        kinds = [kind for _, kind in self.kinds()]
        attends = all(isinstance(own := kind.mixer, Attention) and not (own.gated or own.indexer) for kind in kinds)
        return attends and all(kind.feedforward.kind != "none" and not kind.beside for kind in kinds)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives the equal spec back."""
        data = dataclasses.asdict(self)
        return {**data, "layers": [list(run) for run in data["layers"]]}

    @staticmethod
    def from_json(data: dict[str, Any]) -> ModelSpec:
        """The spec that `to_json` described."""

        def mixer(item: dict[str, Any] | None) -> Attention | FixedState | None:
            if item is None:
                return None
            if "rule" in item:
                return FixedState(**item)
            latent = item["latent"] and {**item["latent"]}
            if latent and latent["indexer"]:
                latent["indexer"] = Indexer(**latent["indexer"])
            return Attention(**{**item, "latent": latent and Latent(**latent)})

        def layer(item: dict[str, Any]) -> Layer:
            beside = item["beside"] and FixedState(**item["beside"])
            feedforward = Feedforward(**item["feedforward"])
            return Layer(**{**item, "mixer": mixer(item["mixer"]), "feedforward": feedforward, "beside": beside})

        layers = tuple((count, layer(item)) for count, item in data["layers"])
        return ModelSpec(**{**data, "layers": layers, "dropout": Dropout(**data["dropout"])})


def runs(layers: list[Layer]) -> tuple[tuple[int, Layer], ...]:
    """Depth-ordered layers as (count, Layer) runs."""
    out: list[tuple[int, Layer]] = []
    for layer in layers:
        if out and out[-1][1] == layer:
            out[-1] = (out[-1][0] + 1, layer)
        else:
            out.append((1, layer))
    return tuple(out)


def from_architecture(name: str, keys: dict[str, Any]) -> ModelSpec:
    """The spec described by a model's `architecture:` keys, already checked for type and range by the schema.

    Raises ModelError if two keys contradict each other; `contradictions` lists the cases.
    """
    for key, broken, message in contradictions(keys):
        if broken:
            raise ModelError(key, message.format(**_sizes(keys)))
    return described(name, keys)


BIASES = ("query", "key", "value", "output", "feedforward", "norm", "head")


def _sizes(keys: Mapping[str, Any]) -> dict[str, Any]:
    d, h = keys["d_model"], keys["heads"]
    head_dim = keys.get("head_dim")
    experts = {"count": 0, "per_token": 0} | (keys.get("experts") or {})
    return {
        "d": d,
        "h": h,
        "h_kv": h if keys.get("kv_heads") is None else keys["kv_heads"],
        "d_h": d // h if head_dim is None else head_dim,
        **experts,
    }


def contradictions(keys: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Yields (key, whether it contradicts another key, message template); the second is an array if the sizes are."""
    sizes, bias = _sizes(keys), keys.get("biases", {})
    d, h = sizes["d"], sizes["h"]
    rotated, no_bias = keys["positions"] == "rope", keys["norm"] == "rmsnorm"
    if keys.get("head_dim") is None:
        yield "heads", d % h != 0, "{h} does not divide d_model {d}; give head_dim or a divisor of d_model"
    yield "kv_heads", h % sizes["h_kv"] != 0, "{h_kv} does not divide heads {h}; allowed: the divisors of {h}"
    odd = "{d_h} is odd; rotary positions pair the components, so it must be even"
    yield "head_dim", rotated & (sizes["d_h"] % 2 != 0), odd
    norm = "true with norm rmsnorm; an RMSNorm has no bias, use norm: layernorm"
    yield "biases.norm", bool(bias.get("norm") and no_bias), norm
    head = "true with tied_head true; a tied head has no tensor of its own"
    yield "biases.head", bool(keys.get("tied_head") and bias.get("head")), head
    top = "{per_token} is above experts.count {count}; at most that many"
    yield "experts.per_token", sizes["per_token"] > sizes["count"], top


def described(name: str, keys: Mapping[str, Any]) -> ModelSpec:
    """The spec of keys without contradictions. A size may be a number, an array or an interval."""
    d, h, h_kv, head_dim, *_ = _sizes(keys).values()
    bias = dict.fromkeys(BIASES, False) | keys.get("biases", {})
    experts = keys.get("experts") or {"count": 0, "per_token": 0}
    layer = Layer(
        Attention(h, h_kv, head_dim, bias["query"], bias["key"], bias["value"], bias["output"], keys.get("window")),
        Feedforward(
            keys["feedforward"],
            keys["d_ff"],
            bias["feedforward"],
            experts["count"],
            experts["per_token"],
            experts.get("shared_width", 0),
        ),
    )
    learned = keys["positions"] == "learned"
    return ModelSpec(
        name=name,
        d_model=d,
        vocabulary=keys["vocabulary"],
        context=keys["context"],
        layers=((keys["layers"], layer),),
        positions=keys["positions"],
        position_rows=keys["context"] if learned else 0,
        rope_base=keys.get("rope_base", 10000.0),
        norm=keys["norm"],
        norm_bias=bias["norm"],
        norm_epsilon=keys.get("norm_epsilon", 1e-5),
        tied_head=keys.get("tied_head", False),
        head_bias=bias["head"],
    )
