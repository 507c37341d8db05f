"""The public implementation of a config.json, built by transformers on the meta device, counted like our own.

A second opinion from code that neither we nor the formulas wrote. Parameters and totals always; by component as far as
its module names tell, fused projections cut by output width.
"""

from __future__ import annotations

import copy
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"  # before the import: a configuration never leads to a download

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    DynamicCache,
    StaticCache,
)

from transformer_ledger import huggingface
from transformer_ledger.executed.cache import DTYPES, storage_bytes
from transformer_ledger.executed.count import CountError, by_module, own_inputs, token_ids
from transformer_ledger.keys import NULL_SAYS
from transformer_ledger.model import Attention, FixedState, Layer, ModelSpec

QKV = "attention.query+key+value"

# Last parts of a module's path → component. The first match counts; a fused projection joins its parts with +.
COMPONENTS = tuple(
    (re.compile(pattern + r"$"), component)
    for pattern, component in (
        (r"\.(embed_tokens|embed_in|wte|word_embeddings|embeddings)", "token_embedding"),
        (r"\.(wpe|embed_positions)", "position_embedding"),
        (r"\.word_embeddings_layernorm", "embedding_norm"),
        (r"\.project_in", "embedding_projection"),
        (r"\.project_out", "head_projection"),
        (r"(lm_head|embed_out|^\.score)", "head"),
        (r"\.q_proj", "attention.query"),
        (r"\.k_proj", "attention.key"),
        (r"\.v_proj", "attention.value"),
        (r"\.(c_attn|query_key_value|qkv_proj)", QKV),
        (r"\.(o_proj|(self_)?attn\.(out_proj|c_proj|dense)|(self_)?attention\.dense)", "attention.output"),
        (r"\.q_norm", "attention.query_norm"),
        (r"\.indexer\.k_norm", "attention.indexer.key_norm"),
        (r"\.indexer\.wq_b", "attention.indexer.query"),
        (r"\.indexer\.wk", "attention.indexer.key"),
        (r"\.indexer\.weights_proj", "attention.indexer.shares"),
        (r"\.indexer", "attention.indexer.scores+sum"),
        (r"\.k_norm", "attention.key_norm"),
        (r"\.sinks", "attention.sinks"),
        (r"\.q_a_proj", "attention.query_down"),
        (r"\.q_a_layernorm", "attention.query_down_norm"),
        (r"\.q_b_proj", "attention.query"),
        (r"\.kv_a_proj_with_mqa", "attention.latent_down"),
        (r"\.kv_a_layernorm", "attention.latent_norm"),
        (r"\.kv_b_proj", "attention.key+value"),
        (r"\.(in_proj_qkvz)", "state.input+gate"),
        (r"\.in_proj_qkv", "state.input"),
        (r"\.in_proj_z", "state.gate"),
        (r"\.in_proj_(ba|b|a)", "state.rates"),
        (r"\.conv1d", "state.convolution"),
        (r"\.forget_gate\.f_a_proj", "state.steps_down"),
        (r"\.forget_gate\.f_b_proj", "state.steps"),
        (r"\.g_a_proj", "state.gate_down"),
        (r"\.g_b_proj", "state.gate"),
        (r"\.b_proj", "state.rates"),
        (r"\.o_norm", "state.norm"),
        (r"\.A_log", "state.decay"),
        (r"\.dt_bias", "state.step"),
        (r"\.in_proj", "state.gate+input+rates"),
        (r"\.D", "state.skip"),
        (r"\.(linear_attn|mamba|mixer)\.norm", "state.norm"),
        (r"\.(linear_attn|mamba|mixer)\.out_proj", "state.output"),
        (r"\.(gate|router)", "router"),
        (r"\.shared_expert_gate", "shared_gate"),
        (r"\.shared_experts?\.up_proj", "shared_feedforward.up"),
        (r"\.shared_experts?\.gate_proj", "shared_feedforward.gate"),
        (r"\.shared_experts?\.down_proj", "shared_feedforward.down"),
        (r"\.shared_mlp\.input_linear", "shared_feedforward.gate+up"),
        (r"\.shared_mlp\.output_linear", "shared_feedforward.down"),
        (r"\.(gate_up_proj|gate_up_proj_bias)", "feedforward.gate+up"),
        (r"\.experts", "feedforward.gate+up+down"),
        (r"\.gate_proj", "feedforward.gate"),
        (r"\.(up_proj|c_fc|fc1|fc_in|dense_h_to_4h)", "feedforward.up"),
        (r"\.(down_proj|down_proj_bias|mlp\.c_proj|fc2|fc_out|dense_4h_to_h)", "feedforward.down"),
        (r"(norm\w*|layernorm|ln_\w+|layer_norm)", "norm"),
    )
)


EVERY_EXPERT = ("Llama4TextExperts",)
"""Classes that multiply every token with all experts, the ones not routed to by a score of 0: the routed share counts."""

IN_STATE = {f"attention.{name}": "state.input" for name in ("query", "key", "value")} | {
    "attention.output": "state.output"
}
"""What the projections of a mixer with a fixed state are, where they go by the names of attention's."""

PAIRS = ("attention.scores", "attention.values")
SEEN = ("attention.query", *PAIRS, "feedforward.up", "feedforward.down", "head")


# Code that a file names, and keys that decide what a run returns, not what it computes.
NOT_OURS = (
    "auto_map",
    "output_router_logits",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "use_return_dict",
    "torchscript",
)


def component_of(path: str) -> str:
    for pattern, component in COMPONENTS:
        if pattern.search(path):
            return component
    raise CountError(f"transformers module {path}: no component known for it")


def _state_widths(own: FixedState) -> dict[str, int]:
    return {"input": own.channels, "gate": own.heads * own.value_dim, "rates": own.rates * own.heads}


def _widths(own: Attention) -> dict[str, int]:
    """Output widths of the projections that a fused one may join."""
    latent = own.latent
    if latent:
        compared = {"scores": own.indexer.head_dim, "sum": 1} if own.indexer else {}
        return compared | {"key": own.heads * latent.nope_dim, "value": own.heads * latent.value_dim}
    q, kv = own.heads * own.head_dim, own.kv_heads * own.head_dim
    return {"query": q, "key": kv, "value": kv} | ({"gate": q} if own.gated else {})


def fused(path: str, layer: Layer | None) -> str:
    """The component of a module's path, a fused one by all its parts: a gated attention's query has the gate in it.

    Where no expert is routed to, those that every token passes are the feed-forward itself.
    """
    component = component_of(path)
    if layer is None:
        return component
    if isinstance(layer.mixer, FixedState):
        component = IN_STATE.get(component, component)
    if component == "attention.query" and isinstance(layer.mixer, Attention) and layer.mixer.gated:
        return "attention.query+gate"
    if not layer.feedforward.experts:
        return component.removeprefix("shared_")
    return component.replace("gate+up+down", "up+down") if layer.feedforward.kind == "gelu" else component


def _cut(component: str, value: int, layer: Layer | None) -> dict[str, int]:
    """The shares of a fused component, by output width. Raises CountError where they are no integers.

    The maps of a feed-forward are as wide as each other.
    """
    part, _, joined = component.rpartition(".")
    names = joined.split("+")
    if len(names) == 1 or layer is None:
        return {component: value}
    if part.endswith("feedforward"):
        widths = dict.fromkeys(names, 1)
    else:
        widths = _state_widths(layer.state) if layer.state and part == "state" else _widths(layer.attention)
    shares, cut = {name: widths[name] for name in names}, {}
    for name, share in shares.items():
        if value * share % sum(shares.values()):
            raise CountError(f"{value} of {component} does not divide into {shares}")
        cut[f"{part}.{name}"] = value * share // sum(shares.values())
    return cut


CLASSES = {"language": AutoModelForCausalLM, "none": AutoModel, "score": AutoModelForSequenceClassification}
# Positions that scale their angles by the largest one seen, which on the meta device has no value; and those of images.
OTHER_POSITIONS = ("dynamic", "longrope", "su", "mrope")
OFF_BY_NULL = (*NULL_SAYS, "attn_logit_softcapping", "final_logit_softcapping")


def build(hf_config: Mapping[str, Any], device: str = "meta", dtype: torch.dtype = torch.bfloat16) -> Any:
    """The model of a config.json, on the meta device: eager attention, experts as counted batched products.

    A fresh configuration object each time, since models built from one share its attention setting. Left out are nulls
    that say no more than a missing key, on which some classes stop; code that the file names; how positions are scaled
    where that asks for their values; and the padding token, which decides no tensor and would be looked for in ids that
    have no values here (a score head wants one: it reads the last position before the padding).
    """
    keys, head = huggingface.text_part(hf_config, []), huggingface.task(hf_config, [])
    said = {name: value for name, value in keys.items() if value is not None or name in OFF_BY_NULL}
    for name in NOT_OURS:
        said.pop(name, None)
    for name in ("rope_scaling", "rope_parameters"):
        scaling = said.get(name) or {}
        if scaling.get("rope_type", scaling.get("type")) in OTHER_POSITIONS:
            said[name] = {key: scaling[key] for key in ("rope_theta", "partial_rotary_factor") if key in scaling}
            said[name]["rope_type"] = "default"
    padding = 0 if head == "score" else None
    config = AutoConfig.for_model(**{**copy.deepcopy(said), "pad_token_id": padding})  # it writes into what it is given
    with torch.device(device):
        return (
            CLASSES[head]
            .from_config(
                config,
                dtype=dtype,
                trust_remote_code=False,
                attn_implementation="eager",
                experts_implementation="batched_mm",
            )
            .eval()
        )


class Skip(nn.Module):
    """Stands where a layer stood and hands its input on, in the form the layer's output had."""

    def __init__(self, block_type: str | None):
        super().__init__()
        self.outputs: int | None = None
        self.block_type = block_type  # by which nemotron_h chooses a layer's mask

    def forward(self, hidden_states: torch.Tensor, *_: Any, **__: Any) -> Any:
        passed = hidden_states.view_as(hidden_states)  # a tensor of its own, see own_inputs
        return passed if self.outputs is None else (passed,) + (None,) * (self.outputs - 1)


class Runner:
    """Runs a transformers model with one layer of each kind, the others skipped, and counts for the whole.

    Layers are of one kind where their tensors' names and shapes, their classes and the config's layer type agree.
    `full_depth` runs every layer, and is what the shortcut is held against.
    """

    def __init__(self, model: Any, spec: ModelSpec):
        self.model, self.spec = model, spec
        found = [
            (name, module)
            for name, module in model.named_modules()
            if isinstance(module, nn.ModuleList) and name.rpartition(".")[2] in ("layers", "h")
        ]
        if len(found) != 1 or len(found[0][1]) != spec.depth:
            raise CountError(
                f"{spec.name}: {[(n, len(m)) for n, m in found]} in transformers, {spec.depth} layers in ours"
            )
        self.path, self.layers = found[0]
        self.whole = list(self.layers)
        types = getattr(model.config, "layer_types", None) or [""] * spec.depth
        kinds: dict[Any, list[int]] = {}
        for index, layer in enumerate(self.whole):
            shapes = tuple((name, tuple(tensor.shape)) for name, tensor in layer.named_parameters())
            classes = tuple(type(module) for module in layer.modules())
            kinds.setdefault((types[index], shapes, classes), []).append(index)
        self.copies = {members[0]: len(members) for members in kinds.values()}
        self.described = spec.each_layer()
        fed = any(layer.feedforward.kind != "none" for _, layer in spec.kinds())
        parts = {"attention": spec.attentions(), "feedforward": fed, "head": spec.head_width}
        self.has = {name for name, there in parts.items() if there}
        self.attending = [i for i, layer in enumerate(self.described) if isinstance(layer.mixer, Attention)]
        beside = any(layer.beside for layer in self.described)
        self.scanning = [name for name, module in model.named_modules() if beside and hasattr(module, "conv1d")]
        self.skips = [Skip(getattr(layer, "block_type", None)) for layer in self.whole]

    def full_depth(self, batch: int, tokens: int) -> Counter[str]:
        """FLOPs by component of a forward pass through all layers; learns the form of a layer's output.

        Where layers have a fixed state alone, `products` are attention's and those of its scan, together.
        """

        def note(_: nn.Module, __: Any, output: Any) -> None:
            for skip in self.skips:
                skip.outputs = len(output) if isinstance(output, tuple) else None

        handle = self.whole[0].register_forward_hook(note)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            self.model(token_ids(self.model, batch, tokens), use_cache=True)
        handle.remove()
        counts = self._components(counter)
        return counts if self.spec.states() else self._split(counts)

    @contextmanager
    def only(self, *active: int) -> Iterator[None]:
        """The model with all layers skipped but the `active` ones."""
        for index in range(len(self.whole)):
            self.layers[index] = self.whole[index] if index in active else self.skips[index]
        try:
            yield
        finally:
            for index, layer in enumerate(self.whole):
                self.layers[index] = layer

    def _routed(self, path: str, flops: int) -> int:
        """FLOPs of a module; of one that runs every expert on every token, those of the experts that are routed to."""
        if type(self.model.get_submodule(path)).__name__ not in EVERY_EXPERT:
            return flops
        E, k = self.model.config.num_local_experts, self.model.config.num_experts_per_tok
        if flops % E:
            raise CountError(f"{self.spec.name}: {flops} FLOPs of {path} are not those of {E} equal experts")
        return flops // E * k

    def _components(self, counter: FlopCounterMode) -> Counter[str]:
        """FLOPs by component of what ran; what ran in no named module are `products`: attention's two, and what the scan
        and the convolution of a fixed state ran, but for one beside attention."""
        modules = by_module(counter, self.model)
        root = type(self.model).__name__ + "."
        for path, operations in counter.get_flop_counts().items():
            own = path.removeprefix(root)
            if path.endswith(".experts"):
                modules[own] = sum(operations.values())
            elif path.endswith(".indexer"):  # what it runs besides its maps
                modules[own] = sum(operations.values()) - sum(modules[name] for name in list(modules) if own in name)
        every, counted = sum(modules.values()), counter.get_flop_counts()
        for path in self.scanning:  # one kind of layer, so no other layer's way back runs in between
            inside = sum(flops for name, flops in modules.items() if name.startswith(f"{path}."))
            every += sum(counted.get(root + path, {}).values()) - inside
        for path in modules:
            modules[path] = self._routed(path, modules[path])
        counts: Counter[str] = Counter(products=counter.get_total_flops() - every)
        for path, flops in modules.items():
            if flops:
                layer = layer_of(path, self.described)
                counts.update(_cut(fused("." + path, layer), flops, layer))
        return counts

    def _split(self, counts: Counter[str]) -> Counter[str]:
        """Counts with attention's products as scores and values, as wide as keys and values are."""
        products = counts.pop("products")
        if not self.attending:
            return counts
        latent = self.spec.attentions()[0][1].latent
        d_k, d_v = (latent.nope_dim + latent.rope_dim, latent.value_dim) if latent else (1, 1)
        if products < 0 or products * d_k % (d_k + d_v):
            raise CountError(f"{self.spec.name}: {products} FLOPs left for scores and values")
        counts["attention.scores"] = products * d_k // (d_k + d_v)
        counts["attention.values"] = products - counts["attention.scores"]
        return counts

    def whole_count(self, run: Callable[[], list[Counter[str]]]) -> list[Counter[str]]:
        """Counts of the whole model from those of `run` with no layer, one, and that one with one of each kind.

        The first layer that attends always runs: its cache tells the others how long the sequence is. What a fixed state
        ran in no module of its own is left out: transformers scans it in chunks, which the ledger does not count.
        """
        base = next(iter(self.attending), 0)
        with self.only():
            outside = run()
        with self.only(base):
            first = run()
        totals = [Counter(counts) for counts in outside]
        for index, copies in self.copies.items():
            before, after = outside, first
            if index != base:
                before = first
                with self.only(base, index):
                    after = run()
            for total, more, less in zip(totals, after, before, strict=True):
                for component in more:
                    if component != "products" or index in self.attending:
                        total[component] += copies * (more[component] - less[component])
        for total in totals:  # fused attention and grouped experts would count as nothing
            self._split(total)
            unseen = [name for name in SEEN if total[name] <= 0 and name.partition(".")[0] in self.has]
            if unseen:
                raise CountError(f"{self.spec.name}: no operation counted in {', '.join(unseen)} of transformers")
        return totals

    def forward_backward(self, batch: int, tokens: int) -> tuple[Counter[str], Counter[str]]:
        """FLOPs by component of a forward pass over `tokens` positions, and of that pass with its backward."""

        def run() -> list[Counter[str]]:
            with own_inputs(), FlopCounterMode(display=False) as counter:
                given = self.model(token_ids(self.model, batch, tokens), use_cache=True)
                forward = self._components(counter)
                (given.logits if "logits" in given else given.last_hidden_state).sum().backward()
                return [forward, self._components(counter)]

        forward, both = self.whole_count(run)
        self.model.zero_grad()
        return forward, both

    def decode(self, batch: int, context: int) -> Counter[str]:
        """FLOPs by component of one new token a sequence with `context` − 1 positions in a dynamic cache."""

        def run() -> list[Counter[str]]:
            cache = DynamicCache(config=self.model.config)
            with torch.no_grad():
                if context > 1:
                    self.model(token_ids(self.model, batch, context - 1), cache=cache, use_cache=True)
                with FlopCounterMode(display=False) as counter:
                    self.model(token_ids(self.model, batch, 1), cache=cache, use_cache=True)
                return [self._components(counter)]

        return self.whole_count(run)[0]

    def cache_bytes(self, batch: int, context: int) -> dict[str, int]:
        """Bytes of keys and values in transformers' two caches.

        `dynamic` is what the cache keeps once `context` positions are in, the last one decoded (not the storage behind
        a kept view); `static` is what it allocates for `context` positions with the first token.
        """
        held = {}
        caches = (
            ("dynamic", DynamicCache(config=self.model.config), (context - 1, 1)),
            ("static", StaticCache(config=self.model.config, max_cache_len=context), (1,)),
        )
        for policy, cache, lengths in caches:
            with torch.no_grad(), self.only(*self.copies):
                for tokens in filter(None, lengths):
                    self.model(token_ids(self.model, batch, tokens), cache=cache, use_cache=True)
            kept = {index: _kept(cache.layers[index]) for index in self.copies}
            states = {index: _kept(cache.layers[index], True) for index in self.copies}
            if policy == "dynamic":  # the kept positions of a window are a view into one more
                kept = {index: [tensor.clone() for tensor in tensors] for index, tensors in kept.items()}
            held[policy] = sum(n * storage_bytes(kept[index] + states[index]) for index, n in self.copies.items())
            held["state"] = sum(n * storage_bytes(states[index]) for index, n in self.copies.items())
        # What attention needs is w positions a window, as the static cache has them; where every layer is full, that is
        # also what an engine reserves. Falcon's new layout stores a copy a query head: neither.
        attention = {index: self.described[index].attention for index in self.copies if index in self.attending}
        heads = [1 if own.latent else own.kv_heads for own in attention.values()]
        if heads == [kept[index][0].shape[1] for index in attention]:
            held["needed"] = held["static"]
            if all(own.window is None for own in attention.values()):
                held["reserved"] = held["static"]
        return held if self.spec.states() else {policy: size for policy, size in held.items() if policy != "state"}


def _kept(layer: Any, states: bool = False) -> list[torch.Tensor]:
    """Tensors that one layer of a transformers cache holds: its fixed states, or keys and values; none without a mixer."""
    fixed = [state for name in ("conv_states", "recurrent_states") for state in getattr(layer, name, {}).values()]
    grown = [getattr(layer, name, None) for name in ("keys", "values", "indexer_keys")]
    return [tensor for tensor in (fixed if states else grown) if tensor is not None]


def layer_of(path: str, layers: list[Layer]) -> Layer | None:
    """The layer that a module or tensor belongs to; None outside the layers."""
    found = re.search(r"\.(\d+)\.", path)
    return layers[int(found.group(1))] if found else None


def parameters(model: Any, spec: ModelSpec) -> Counter[tuple[str, str]]:
    """Parameters by (component, weight or bias), tied ones once."""
    counts: Counter[tuple[str, str]] = Counter()
    layers = spec.each_layer()
    for path, tensor in model.named_parameters():
        owner, _, part = path.rpartition(".")
        if part not in ("weight", "bias"):  # experts and sinks are tensors of the module itself
            owner, part = path, "bias" if part.endswith("_proj_bias") else "weight"
        layer = layer_of(path, layers)
        for component, value in _cut(fused("." + owner, layer), tensor.numel(), layer).items():
            counts[component, part] += value
    return counts


def rows(
    make: Callable[..., list[dict[str, Any]]],
    spec: ModelSpec,
    hf_config: Mapping[str, Any],
    workloads: Mapping[str, Any],
    cache_dtypes: list[str],
    device: str = "meta",
) -> list[dict[str, Any]]:
    """Rows of the table `execution` for the transformers implementation; `make` makes the rows of one quantity."""
    try:
        model = build(hf_config, device)
    except (MemoryError, RuntimeError):
        raise
    except Exception as error:  # each class checks its keys in its own way
        reason = " ".join(str(error).split())
        raise CountError(f"{spec.name}: transformers does not build this config.json: {reason}") from None
    made = make("parameters", parameters(model, spec))
    if workloads and not spec.attentions():  # transformers takes the length of a cache from the keys that it holds
        raise CountError(f"{spec.name}: no layer attends, and without keys transformers’ cache does not run")
    runner = Runner(model, spec)
    dtypes = [name for name in cache_dtypes if name in DTYPES and DTYPES[name].itemsize > 1]
    for number, (name, load) in enumerate(workloads.items()):
        batch, context = load["batch"], load["context"]
        walked = None if number else runner.full_depth(batch, context)
        forward, both = runner.forward_backward(batch, context)
        if walked is not None:
            off = {part for part in walked | forward if walked[part] != forward[part]}
            if off - ({"products", *PAIRS} if spec.states() else set()):
                raise CountError(f"{spec.name}: transformers counts {walked} at full depth, {forward} by kinds")
        for phase, counts in {"prefill": forward, "train": both, "decode": runner.decode(batch, context)}.items():
            made += make("flops", counts, name, phase, total=not spec.states())
        for dtype in dtypes:
            model.to(DTYPES[dtype])
            made += make("cache_bytes", runner.cache_bytes(batch, context), name, dtype, total=False)
    return made
