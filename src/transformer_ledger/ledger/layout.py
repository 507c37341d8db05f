"""What the fullest device holds where a model is spread over several: training state, activations, weights, cache [byte].

All degrees but `expert` multiply to the number of devices. `tensor`: every map is cut by heads or by width, embedding and
head by the vocabulary (Shoeybi et al. 2019, Megatron-LM, arXiv:1909.08053); `pipeline`: consecutive layers, the first stages
one more where they do not come out even, the embedding with the first and the head with the last; `expert`: whole experts,
over the devices of a stage; `context`: the positions of each sequence, attention read block by block (Liu et al. 2023, Ring
Attention, arXiv:2310.01889); `data`: copies, which divide the sequences. Data and context devices have the same weights, and
divide of a recipe's state what its ZeRO stage says (Rajbhandari et al. 2020, arXiv:1910.02054); of spread experts there are
fewer copies.

Kept whole on every device are norms, routers, the shared experts' gate, learned positions, biases of maps that are cut by
their inputs, the projections to a latent and the latent itself, and one key/value head where there are fewer heads than
devices. A fixed state is cut by its heads, with all that is theirs: channels of the convolution, rates, and a norm over all
heads; where it has fewer groups than devices, each device has a copy of one. With `sequence_parallel` the devices of a
tensor group share the tokens of all that stands between the cut maps: norms, inputs, latents (Korthikanti et al. 2022,
arXiv:2205.05198, section 4.2). `checkpointing` computes again, in the backward pass, nothing, attention's scores and
weights (selective), or all of a layer but its input (full). A stage keeps the activations of as many micro-batches as it
has begun and not ended (one forward, one backward; Narayanan et al. 2021, arXiv:2104.04473).

# ASSUME the vocabulary is padded to the next multiple of the degree, and to no other.
# ASSUME where experts are spread, they are not cut besides, and each has as many tokens as any other.
# ASSUME no dropout; of one operation's work space, and of what a communication needs, nothing is counted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from transformer_ledger.ledger import activations, kv_cache, training_state
from transformer_ledger.ledger.counted import Executed, Rows
from transformer_ledger.ledger.parameters import Tensor, tensors
from transformer_ledger.ledger.storage import bytes_per_number, whole
from transformer_ledger.model import Attention, FixedState, Layer, ModelError, ModelSpec, runs

WHOLE = ("attention.query_norm", "attention.key_norm")  # also a norm over all heads


COMPUTED = ("bf16", "fp16")
"""Types in which activations are given."""

CHOICES: dict[str, dict[str, Any]] = {
    "zero_stage": {"0": 0, "1": 1, "2": 2, "3": 3},
    "sequence_parallel": {"false": False, "true": True},
    "checkpointing": {name: name for name in ("none", "selective", "full")},
    "attention": {name: name for name in ("eager", "fused")},
}
"""Keys of a layout that are no degree, and their values as they are written."""


@dataclass(frozen=True)
class Layout:
    """Degrees of parallelism, and how a training runs on them."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    context: int = 1
    microbatches: int = 1  # that the sequences of a data copy go through the pipeline in
    zero_stage: int | None = None  # None: the recipe's own
    sequence_parallel: bool = False
    checkpointing: str = "none"
    attention: str = "fused"

    @property
    def stage_devices(self) -> int:
        """Devices of one stage of the pipeline; experts are spread over these."""
        return self.data * self.tensor * self.context

    @property
    def devices(self) -> int:
        """How many there are."""
        return self.stage_devices * self.pipeline

    @property
    def cut(self) -> int:
        """Devices that share the tokens between the maps."""
        return self.tensor if self.sequence_parallel else 1

    def copies(self, tensor: Tensor) -> int:
        """Devices that have the same part of a tensor."""
        spread = tensor.k is not None and self.expert > 1
        return self.stage_devices // (self.expert if spread else self.tensor)

    @staticmethod
    def parse(text: str) -> Layout:
        """`tensor=4,pipeline=2,checkpointing=full` as a layout. Raises ValueError."""
        known = {field.name: CHOICES.get(field.name) for field in fields(Layout)}
        found: dict[str, Any] = {}
        for part in text.split(","):
            name, _, value = part.partition("=")
            choices = known.get(name)
            fits = value in choices if choices else re.fullmatch("[1-9][0-9]{0,5}", value)
            if name not in known or name in found or not fits:
                wanted = (f"{name}={'|'.join(choices) if choices else 'N'}" for name, choices in known.items())
                raise ValueError(f"{text[:60]!r} is no layout; wanted is {','.join(wanted)}, each once or not at all")
            found[name] = choices[value] if choices else int(value)
        return Layout(**found)


def _cut(size: int, degree: int, what: str) -> int:
    if size % degree:
        raise ModelError("layout", f"tensor {degree} does not divide {what} {size}")
    return size // degree


def _checked(spec: ModelSpec, layout: Layout) -> None:
    """Refuse degrees that the model does not have enough of."""
    if layout.pipeline > spec.depth:
        raise ModelError("layout", f"pipeline {layout.pipeline} is more than the {spec.depth} layers")
    if layout.expert > 1 and not any(layer.feedforward.experts for _, layer in spec.kinds()):
        raise ModelError("layout", f"expert {layout.expert}: the model has no experts; allowed: 1")
    if layout.stage_devices % layout.expert:
        group = f"the {layout.stage_devices} devices of a stage, data × tensor × context"
        raise ModelError("layout", f"expert {layout.expert} does not divide {group}")
    if layout.context > 1 and layout.attention == "eager":
        raise ModelError("layout", f"context {layout.context} reads attention block by block; allowed: attention fused")
    for _, layer in spec.kinds():
        for mixer in layer.mixers:
            if layout.context > 1 and (uncut := _uncut(mixer)):
                raise ModelError("layout", f"context {layout.context}: no {uncut} is cut here; allowed: 1")
        if 0 < layer.feedforward.experts < layout.expert:
            raise ModelError("layout", f"expert {layout.expert} is more than the {layer.feedforward.experts} experts")


def _uncut(mixer: Attention | FixedState) -> str:
    """What of a mixer keeps it from being read block by block, position by position; empty where nothing does."""
    if isinstance(mixer, Attention):
        return "indexer" if mixer.indexer else "window" if mixer.window is not None else ""
    return "fixed state"


def _groups(groups: int, degree: int, what: str) -> int:
    """Groups of heads on a device: its share, or a copy of the one that its heads belong to."""
    if groups >= degree:
        return _cut(groups, degree, f"the {what}")
    if degree % groups:
        raise ModelError("layout", f"tensor {degree} is no multiple of the {groups} {what}, nor divides them")
    return 1


def _attention(own: Attention, t: int) -> Attention:
    """Attention with the heads that a device has of it."""
    heads = _cut(own.heads, t, "the attention heads")
    return replace(own, heads=heads, kv_heads=_groups(own.kv_heads, t, "key/value heads"))


def _state(own: FixedState | None, t: int) -> FixedState | None:
    """A fixed state with the heads that a device has of it."""
    if own is None:
        return None
    heads = _cut(own.heads, t, "the heads of a fixed state")
    return replace(own, heads=heads, groups=_groups(own.groups, t, "groups of a fixed state"))


def _layer(layer: Layer, layout: Layout) -> Layer:
    """A layer with the heads and widths that a device has of it."""
    ff, own, t = layer.feedforward, layer.mixer, layout.tensor
    mixer = _attention(own, t) if isinstance(own, Attention) else _state(own, t)
    spread = ff.experts and layout.expert > 1
    width = ff.width if spread else _cut(ff.width, t, "the feed-forward's width")
    shared = _cut(ff.shared_width, t, "the shared experts' width")
    ff = replace(ff, width=width, shared_width=shared)
    return replace(layer, mixer=mixer, feedforward=ff, beside=_state(layer.beside, t))


def _inner(spec: ModelSpec, copies: int, layer: Layer, layout: Layout) -> list[Tensor]:
    """Tensors of one kind of layer, shapes as they are on the device that has most of them."""
    every, own = (tensors(replace(spec, layers=((copies, kind),))) for kind in (layer, _layer(layer, layout)))
    outside, held = tensors(replace(spec, layers=())), []
    for tensor, part in zip(every, own, strict=True):
        if tensor not in outside:
            shape = tensor.shape if tensor.component in WHOLE else part.shape
            if tensor.k is not None and layout.expert > 1:
                shape = (-(-shape[0] // layout.expert), *shape[1:])
            held.append(replace(tensor, shape=shape))
    return held


def stages(spec: ModelSpec, layout: Layout) -> list[tuple[list[Tensor], ModelSpec]]:
    """For each stage of the pipeline the tensors of its fullest device, shapes cut, and its layers as a model.

    Raises ModelError where a degree does not fit the model.
    """
    _checked(spec, layout)
    layers, made, start, t = spec.each_layer(), [], 0, layout.tensor
    V, outputs = -(-spec.vocabulary // t), spec.outputs and -(-spec.outputs // t)
    outside = tensors(replace(spec, layers=(), final_norm=False, vocabulary=V, outputs=outputs))
    for stage in range(layout.pipeline):
        first, last = stage == 0, stage == layout.pipeline - 1
        count = spec.depth // layout.pipeline + (stage < spec.depth % layout.pipeline)
        own = replace(spec, layers=runs(layers[start : start + count]), final_norm=False)
        start += count
        held = [tensor for copies, layer in own.kinds() for tensor in _inner(own, copies, layer, layout)]
        for tensor in outside:
            head = tensor.component in ("head", "head_projection")
            if (last if head else first) or (last and spec.tied_head and tensor.component == "token_embedding"):
                held.append(tensor)
        if last and spec.final_norm:
            held += [tensor for tensor in tensors(replace(spec, layers=())) if tensor.component == "norm"]
        made.append((held, own))
    return made


def parameters(spec: ModelSpec, layout: Layout) -> int:
    """Numbers on the fullest device."""
    held = [tensors for tensors, _ in stages(spec, layout)]
    return max(sum(tensor.copies * math.prod(tensor.shape) for tensor in stage) for stage in held)


def _own(spec: ModelSpec, layout: Layout) -> ModelSpec:
    """The layers with the heads and widths that a device has of them."""
    return replace(spec, layers=tuple((count, _layer(layer, layout)) for count, layer in spec.layers))


def state_bytes(every: Sequence[Tensor], layout: Layout, recipe: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """(dtype, bytes) of each item of a recipe, of a device's tensors, divided among those that have the same ones."""
    stage = recipe.get("zero_stage", 0) if layout.zero_stage is None else layout.zero_stage
    groups: dict[int, list[Tensor]] = {}
    for tensor in every:
        groups.setdefault(layout.copies(tensor), []).append(tensor)
    found = {}
    for item, dtype in training_state.items(recipe).items():
        shares = (
            training_state.item_bytes(own, item, dtype, {**recipe, "devices": devices, "zero_stage": stage})[1]
            for devices, own in groups.items()
        )
        found[item] = dtype, sum(shares)
    return found


def untrained(spec: ModelSpec, layout: Layout, dtype: str) -> str:
    """Why no activations are given of a training in `dtype`; empty where they are."""
    if dtype not in COMPUTED:
        return f"activations are given in {' and '.join(COMPUTED)}"
    kinds, t = [layer for _, layer in spec.kinds()], layout.tensor
    if not spec.plain or spec.outputs is not None:
        return "activations are given of plain attention with a feed-forward, and a language head"
    if t == 1:
        return ""
    if spec.embedding_width not in (0, spec.d_model):
        return "no activations of a projected embedding are cut"
    if any(layer.attention.query_key_norm == "full" for layer in kinds):
        return "no activations of a norm over all heads are cut"
    if any(layer.feedforward.experts for layer in kinds) and (layout.expert > 1) != layout.sequence_parallel:
        return "with experts and tensor above 1, activations are given where sequence_parallel is true and expert above 1, or neither"
    return ""


def _dividing(T: int, layout: Layout) -> None:
    """Refuse a length that the devices cannot share evenly in a training."""
    for name, degree, length in (("context", layout.context, T), ("tensor", layout.cut, T // layout.context)):
        if length % degree:
            raise ModelError("layout", f"{name} {degree} does not divide the {length} positions that it cuts")


def sequences(layout: Layout, batch: int) -> int:
    """Sequences of one micro-batch of a data copy."""
    return -(-batch // (layout.data * layout.microbatches))


def saved(spec: ModelSpec, layout: Layout, batch: int, T: int, dtype: str) -> list[int]:
    """Bytes of activations on a device of each stage, of all micro-batches under way there.

    Raises ModelError where the devices cannot share the positions.
    """
    _dividing(T, layout)
    run = activations.Run(
        *(sequences(layout, batch), T // layout.context, whole(bytes_per_number(dtype)), layout.attention == "fused"),
        checkpointed=layout.checkpointing == "full",
        selective=layout.checkpointing == "selective",
        cut=layout.cut,
    )
    found = []
    for stage, (_, held) in enumerate(stages(spec, layout)):
        local = _own(replace(held, final_norm=spec.final_norm), layout)
        parts = activations.shared_saved(local, run)
        for count, layer in local.layers:
            parts += [replace(part, copies=count * part.copies) for part in activations.layer_saved(local, layer, run)]
        if stage == 0:
            parts += activations.embedding_saved(local, run)
        if stage == layout.pipeline - 1:
            parts += activations.ended_saved(local, run)
            V = -(-spec.vocabulary // layout.tensor)
            parts += activations.logits_saved_cut(run, V) if layout.tensor > 1 else activations.logits_saved(spec, run)
        found.append(min(layout.microbatches, layout.pipeline - stage) * sum(part.bytes for part in parts))
    return found


def cache_bytes(spec: ModelSpec, layout: Layout, batch: int, context: int, dtype: str) -> list[int]:
    """Keys and values on a device of each stage, of its share of the sequences and positions."""
    B, T = -(-batch // layout.data), -(-context // layout.context)
    return [kv_cache.cache_bytes(_own(own, layout), B, T, dtype, "needed") for _, own in stages(spec, layout)]


Items = dict[str, tuple[str, int]]


def held(
    spec: ModelSpec, layout: Layout, batch: int, context: int, recipe: Mapping[str, Any], cache_dtype: str
) -> Iterator[tuple[str, list[Items]]]:
    """Phase, and for each stage of the pipeline the (dtype, bytes) of every item that a device holds in it."""
    dtype = recipe["weights"]
    made = [state_bytes(every, layout, recipe) for every, _ in stages(spec, layout)]
    if not untrained(spec, layout, dtype):
        for items, size in zip(made, saved(spec, layout, batch, context, dtype), strict=True):
            items["activations"] = dtype, size
    yield "training", made
    cached = cache_bytes(spec, layout, batch, context, cache_dtype)
    yield (
        "inference",
        [
            {"weights": (dtype, weight_bytes(every, dtype)), "cache": (cache_dtype, size)}
            for (every, _), size in zip(stages(spec, layout), cached, strict=True)
        ],
    )


def weight_bytes(every: Sequence[Tensor], dtype: str) -> int:
    """Bytes of a device's tensors in one type."""
    return whole(sum(tensor.copies * math.prod(tensor.shape) for tensor in every) * bytes_per_number(dtype))


def fullest(every: Sequence[Items]) -> int:
    """The stage whose device holds most; the first of several."""
    sums = [sum(size for _, size in items.values()) for items in every]
    return sums.index(max(sums))


def sizes(
    spec: ModelSpec, layout: Layout, batch: int, context: int, dtype: str, cache_dtype: str, recipes: Mapping[str, Any]
) -> dict[str, Any]:
    """Sizes on the fullest device, each by itself; `training_state_bytes` by recipe, activations, in bf16, where they are given.

    `cache_bytes_per_token` is the mean of what each of the last N tokens of one sequence adds, rounded up, N being the context devices.
    """
    parts = [every for every, _ in stages(spec, layout)]
    state = {
        name: max(sum(size for _, size in state_bytes(own, layout, recipe).values()) for own in parts)
        for name, recipe in recipes.items()
    }
    last = min(layout.context, context)
    after, before = (max(cache_bytes(spec, layout, layout.data, T, cache_dtype)) for T in (context, context - last))
    trained = not untrained(spec, layout, COMPUTED[0])
    return {
        "devices": layout.devices,
        "parameters": parameters(spec, layout),
        "weight_bytes": max(weight_bytes(own, dtype) for own in parts),
        "cache_bytes": max(cache_bytes(spec, layout, batch, context, cache_dtype)),
        "cache_bytes_per_token": -(-(after - before) // last),
        "training_state_bytes": state,
        **({"activation_bytes": max(saved(spec, layout, batch, context, COMPUTED[0]))} if trained else {}),
    }


def compute(
    models: dict[str, Any],
    layouts: dict[str, Any],
    execution: Mapping[str, Rows] | None = None,
) -> list[dict[str, Any]]:
    """Rows of the ledger: for each layout of each of its models, one row an item of the device that holds most, in training
    and in inference, and one of all its items."""
    rows = []
    for name, given in layouts.items():
        layout = Layout(**given["layout"])
        for model in given["models"]:
            spec, executed = ModelSpec.from_json(models[model]), Executed((execution or {}).get(model, []))
            B, T = given["batch"], given["context"]
            for phase, every in held(spec, layout, B, T, given["state"], given["cache_dtype"]):
                stage = fullest(every)
                items = {**every[stage], "all": ("", sum(size for _, size in every[stage].values()))}
                for item, (dtype, size) in items.items():
                    met = executed.met(
                        size, "device_bytes", name, phase, item, "" if item == "all" else f"stage {stage}"
                    )
                    rows.append(
                        {
                            "model": model,
                            "layout": name,
                            "devices": layout.devices,
                            **given["layout"],
                            "recipe": given["recipe"],
                            "workload": given["workload"],
                            "batch": B,
                            "length": T,
                            "phase": phase,
                            "stage": stage,
                            "item": item,
                            "dtype": dtype or None,
                            "bytes": size,
                            "executed_bytes": met["executed"],
                            "difference": met["difference"],
                            "met_by": met["met_by"],
                        }
                    )
    return rows
