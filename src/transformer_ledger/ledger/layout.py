"""What the fullest device holds where a model is spread over several: weights, cache and training state [byte].

Degrees multiply to the number of devices. `tensor`: every map is cut by heads or by width, embedding and head by the
vocabulary (Shoeybi et al. 2019, Megatron-LM, arXiv:1909.08053); `pipeline`: consecutive layers, the first stages one more
where they do not come out even, the embedding with the first and the head with the last; `expert`: whole experts;
`data`: copies, which divide the sequences, and of a recipe what its ZeRO stage says.

Kept whole on every device are norms, routers, the shared experts' gate, learned positions, biases of maps that are cut by
their inputs, the projections to a latent and the latent itself, and one key/value head where there are fewer heads than
devices.

# ASSUME the vocabulary is padded to the next multiple of the degree, and to no other.
# ASSUME where experts are spread, they are not cut besides, as engines do it that spread them over all tensor devices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

from transformer_ledger.ledger import kv_cache, training_state
from transformer_ledger.ledger.parameters import Tensor, tensors
from transformer_ledger.ledger.storage import bytes_per_number, whole
from transformer_ledger.model import Attention, Layer, ModelError, ModelSpec, runs

BY_OUTPUT = (
    *("attention.query", "attention.gate", "attention.key", "attention.value", "feedforward.up", "feedforward.gate"),
    *("shared_feedforward.up", "shared_feedforward.gate", "head", "token_embedding"),
)
BY_INPUT = ("attention.output", "feedforward.down", "shared_feedforward.down")


@dataclass(frozen=True)
class Layout:
    """Degrees of parallelism."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1

    @property
    def devices(self) -> int:
        """How many there are; experts are spread over those of the other degrees."""
        return self.data * self.tensor * self.pipeline

    @staticmethod
    def parse(text: str) -> Layout:
        """`tensor=4,pipeline=2` as degrees. Raises ValueError."""
        known = [field.name for field in fields(Layout)]
        found: dict[str, int] = {}
        for part in text.split(","):
            name, _, degree = part.partition("=")
            if name not in known or name in found or not re.fullmatch("[1-9][0-9]{0,5}", degree):
                raise ValueError(
                    f"{text[:60]!r} is no layout; wanted is {'=N,'.join(known)}=N, each once or not at all"
                )
            found[name] = int(degree)
        return Layout(**found)


def _cut(size: int, degree: int, what: str) -> int:
    if size % degree:
        raise ModelError("layout", f"tensor {degree} does not divide {what} {size}")
    return size // degree


def _checked(spec: ModelSpec, layout: Layout) -> None:
    """Refuse degrees that the model does not have enough of."""
    if layout.pipeline > spec.depth:
        raise ModelError("layout", f"pipeline {layout.pipeline} is more than the {spec.depth} layers")
    if layout.expert > layout.data * layout.tensor:
        raise ModelError("layout", f"expert {layout.expert} is more than the data × tensor devices of a stage")
    for _, layer in spec.kinds():
        if isinstance(layer.mixer, Attention):
            _kv_heads(layer.mixer.heads, layer.mixer.kv_heads, layout.tensor)
        elif layer.mixer and layout.tensor > 1:
            raise ModelError("layout", f"tensor {layout.tensor}: no fixed state is cut here; allowed: 1")
        if 0 < layer.feedforward.experts < layout.expert:
            raise ModelError("layout", f"expert {layout.expert} is more than the {layer.feedforward.experts} experts")


def _kv_heads(h: int, h_kv: int, degree: int) -> int:
    """Key/value heads on a device: its share, or a copy of the one that its query heads read."""
    _cut(h, degree, "the attention heads")
    if h_kv >= degree:
        return _cut(h_kv, degree, "the key/value heads")
    if degree % h_kv:
        raise ModelError("layout", f"tensor {degree} is no multiple of the {h_kv} key/value heads, nor divides them")
    return 1


def _local(tensor: Tensor, layer: Layer | None, layout: Layout) -> tuple[int, ...]:
    """Shape of a tensor's part on the device that has most of it."""
    name, shape, t = tensor.component, tensor.shape, layout.tensor
    if tensor.k is not None and layout.expert > 1:
        return (-(-shape[0] // layout.expert), *shape[1:])
    if name == "attention.sinks":
        return (_cut(shape[0], t, "the attention heads"),)
    if name in BY_INPUT:
        return shape if tensor.bias else (*shape[:-1], _cut(shape[-1], t, f"the inputs of {name}"))
    if name not in BY_OUTPUT:
        return shape
    axis = -1 if tensor.bias else -2
    rows = shape[axis]
    if layer is None:
        rows = -(-rows // t)
    elif name in ("attention.key", "attention.value") and not layer.attention.latent:
        rows = _kv_heads(layer.attention.heads, layer.attention.kv_heads, t) * layer.attention.head_dim
    else:
        rows = _cut(rows, t, f"the outputs of {name}")
    return (*shape[:axis], rows) if tensor.bias else (*shape[:axis], rows, shape[-1])


def stages(spec: ModelSpec, layout: Layout) -> list[tuple[list[Tensor], ModelSpec]]:
    """For each stage of the pipeline the tensors of its fullest device, shapes cut, and its layers as a model.

    Raises ModelError where a degree does not fit the model.
    """
    _checked(spec, layout)
    layers, made, start = spec.each_layer(), [], 0
    outside = tensors(replace(spec, layers=(), final_norm=False))
    for stage in range(layout.pipeline):
        first, last = stage == 0, stage == layout.pipeline - 1
        count = spec.depth // layout.pipeline + (stage < spec.depth % layout.pipeline)
        own = replace(spec, layers=runs(layers[start : start + count]), final_norm=False)
        start += count
        held: list[tuple[Tensor, Layer | None]] = []
        for copies, layer in own.kinds():
            inner = tensors(replace(own, layers=((copies, layer),)))
            held += [(tensor, layer) for tensor in inner if tensor not in outside]
        for tensor in outside:
            head = tensor.component in ("head", "head_projection")
            if (last if head else first) or (last and spec.tied_head and tensor.component == "token_embedding"):
                held.append((tensor, None))
        if last and spec.final_norm:
            ended = tensors(replace(spec, layers=()))
            held += [(tensor, None) for tensor in ended if tensor.component == "norm"]
        made.append(([replace(tensor, shape=_local(tensor, layer, layout)) for tensor, layer in held], own))
    return made


def parameters(spec: ModelSpec, layout: Layout) -> int:
    """Numbers on the fullest device."""
    held = [tensors for tensors, _ in stages(spec, layout)]
    return max(sum(tensor.copies * math.prod(tensor.shape) for tensor in stage) for stage in held)


def cache_bytes(spec: ModelSpec, layout: Layout, batch: int, context: int, dtype: str) -> int:
    """Keys and values on the fullest device, of its share of the sequences."""

    def cut(layer: Layer) -> Layer:
        a = layer.mixer
        if not isinstance(a, Attention) or a.latent:
            return layer
        own = _kv_heads(a.heads, a.kv_heads, layout.tensor)
        return replace(layer, mixer=replace(a, kv_heads=own, heads=a.heads // layout.tensor))

    sequences, sizes = -(-batch // layout.data), []
    for _, own in stages(spec, layout):
        local = replace(own, layers=tuple((count, cut(layer)) for count, layer in own.layers))
        sizes.append(kv_cache.cache_bytes(local, sequences, context, dtype, "needed"))
    return max(sizes)


def compute(
    spec: ModelSpec, layout: Layout, batch: int, context: int, dtype: str, cache_dtype: str, recipes: Mapping[str, Any]
) -> dict[str, Any]:
    """Sizes on the fullest device; `training_state` by recipe, its ZeRO stage over the data degree."""
    held = [tensors for tensors, _ in stages(spec, layout)]
    state = {
        name: max(training_state.held_bytes(stage, {**recipe, "devices": layout.data})[1] for stage in held)
        for name, recipe in recipes.items()
    }
    numbers, tokens = parameters(spec, layout), (context, context - 1)
    after, before = (cache_bytes(spec, layout, layout.data, T, cache_dtype) if T else 0 for T in tokens)
    return {
        "devices": layout.devices,
        "parameters": numbers,
        "weight_bytes": whole(Fraction(numbers) * bytes_per_number(dtype)),
        "cache_bytes": cache_bytes(spec, layout, batch, context, cache_dtype),
        "cache_bytes_per_token": after - before,
        "training_state_bytes": state,
    }
