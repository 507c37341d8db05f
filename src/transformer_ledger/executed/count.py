"""What a decoder really holds and runs, counted: parameters, operations, cache and optimiser state, by component.

Layers of one kind run the same products on the same shapes, so the costly runs are made on a decoder with one layer of
each kind, at full width, and each layer's counts stand for its `copies`. A forward pass of the whole decoder, layer
after layer (`forward_flops`), is what that shortcut is held against.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from transformer_ledger.executed.cache import Cache, Reserved, Together, storage_bytes
from transformer_ledger.executed.decoder import Decoder, Experts, Product
from transformer_ledger.model import Attention, ModelSpec
from transformer_ledger.tables import TableError


class CountError(TableError):
    """A count that saw less, or other, than what ran: it must not be written."""


def component_of(path: str) -> str:
    """Component of a module path of `Decoder`: layers.0.attention.query is attention.query, every d-wide norm norm."""
    name = ".".join(part for part in path.split(".") if part != "layers" and not part.isdigit())
    return "norm" if name.startswith("norm") else name


def layer_of(path: str) -> int | None:
    """Index of the layer that a module path belongs to; None outside the layers."""
    return int(path.split(".")[1]) if path.startswith("layers.") else None


class Kinds:
    """A decoder with one layer of each kind of `spec`, and how many layers each stands for."""

    def __init__(self, spec: ModelSpec, device: str = "meta"):
        kinds = spec.kinds()
        self.copies = [count for count, _ in kinds]
        with torch.device(device):
            self.model = Decoder(dataclasses.replace(spec, layers=tuple((1, layer) for _, layer in kinds)))

    def copies_of(self, path: str) -> int:
        """How many modules (or tensors) of the whole decoder the one at `path` stands for."""
        layer = layer_of(path)
        return 1 if layer is None else self.copies[layer]


def full_depth(spec: ModelSpec, device: str = "meta") -> Decoder:
    """The whole decoder."""
    with torch.device(device):
        return Decoder(spec)


def parameters(model: Decoder) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Parameters, and those that one token uses (experts not routed to left out), by (component, weight or bias)."""
    every: Counter[tuple[str, str]] = Counter()
    used: Counter[tuple[str, str]] = Counter()
    for path, tensor in model.named_parameters():
        holder, _, part = path.rpartition(".")
        owner, part = (holder, part) if part in ("weight", "bias") else (path, "weight")
        active = tensor.numel()
        layer = layer_of(path)
        if layer is not None and isinstance(model.get_submodule(holder), Experts):
            active = tensor[0].numel() * model.spec.each_layer()[layer].feedforward.experts_per_token
        every[component_of(owner), part] += tensor.numel()
        used[component_of(owner), part] += active
    return every, used


def by_module(counter: FlopCounterMode, model: nn.Module) -> Counter[str]:
    """FLOPs counted so far in each `Product` and each module without children that has parameters, by path.

    Embeddings are left out: they multiply nothing, and their input has no gradient that would end them on the way back.
    """
    root = type(model).__name__ + "."
    paths = {
        name
        for name, module in model.named_modules()
        if isinstance(module, Product)
        or (module._parameters and not module._modules and not isinstance(module, nn.Embedding))
    }
    counts: Counter[str] = Counter()
    for path, operations in counter.get_flop_counts().items():
        if path.removeprefix(root) in paths:
            counts[path.removeprefix(root)] = sum(operations.values())
    return counts


@contextmanager
def own_inputs() -> Iterator[None]:
    """Gives every module an alias of its positional inputs, for as long as the context lasts.

    FlopCounterMode leaves a module, on the way back, when the gradient of its input is complete. Where query, key and
    value read one tensor, that is too late for two of them, and operations are booked twice.
    """

    def alias(module: nn.Module, inputs: tuple[Any, ...]) -> Any:
        # Where no gradient is taken (an indexer), none must be waited for.
        own = (lambda x: x.view_as(x)) if torch.is_grad_enabled() else Tensor.detach
        return tuple(own(x) if isinstance(x, Tensor) and x.requires_grad else x for x in inputs)

    handle = nn.modules.module.register_module_forward_pre_hook(alias)
    try:
        yield
    finally:
        handle.remove()


def token_ids(model: nn.Module, batch: int, tokens: int) -> Tensor:
    """Ids (batch, tokens) where the model is: a count depends on shapes only."""
    return torch.zeros(batch, tokens, dtype=torch.long, device=next(model.parameters()).device)


def _components(kinds: Kinds, counter: FlopCounterMode) -> Counter[str]:
    """FLOPs by component of the whole decoder.

    Raises CountError where operations ran outside the components, or where a component that multiplies matrices
    counted nothing.
    """
    modules = by_module(counter, kinds.model)
    if sum(modules.values()) != counter.get_total_flops():
        raise CountError(f"modules sum to {sum(modules.values())} FLOPs of {counter.get_total_flops()} counted")
    multiplying = (nn.Linear, Experts, Product)
    named = kinds.model.named_modules()
    missing = sorted(name for name, module in named if isinstance(module, multiplying) and modules[name] <= 0)
    if missing:
        raise CountError(f"no operation counted in {', '.join(missing)}")
    counts: Counter[str] = Counter()
    for path, flops in modules.items():
        counts[component_of(path)] += flops * kinds.copies_of(path)
    return counts


def forward_backward(kinds: Kinds, batch: int, tokens: int) -> tuple[Counter[str], Counter[str]]:
    """FLOPs by component of a forward pass over `tokens` positions, and of that pass with its backward."""
    kinds.model.zero_grad()
    with own_inputs(), FlopCounterMode(display=False) as counter:
        logits = kinds.model(token_ids(kinds.model, batch, tokens))
        forward = _components(kinds, counter)
        logits.sum().backward()
        return forward, _components(kinds, counter)


def forward_flops(run: Callable[[], Any]) -> int:
    """FLOPs of a pass without gradients."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def fill(model: Decoder, cache: Cache, batch: int, positions: int) -> None:
    """Run `positions` more positions into `cache`."""
    if positions:
        with torch.no_grad():
            model(token_ids(model, batch, positions), cache)


def decode(kinds: Kinds, batch: int, context: int, *caches: Cache) -> Counter[str]:
    """FLOPs by component of one new token a sequence, which attends to `context` positions, itself included.

    `caches` hold the positions before it, and take the new one; without any, one in bf16 is filled first.
    """
    if not caches:
        caches = (Cache("bf16"),)
        fill(kinds.model, caches[0], batch, context - 1)
    cache = Together(*caches)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        kinds.model(token_ids(kinds.model, batch, 1), cache)
    if cache.length != context:
        raise CountError(f"{cache.length} positions in the cache, not {context}")
    return _components(kinds, counter)


def _held(kinds: Kinds, cache: Cache, states_alone: bool = False) -> int:
    """Bytes in the whole decoder's cache, or of the fixed states in it."""
    return sum(
        copies * storage_bytes(part for parts in kept.get(index, []) for part in parts)
        for index, copies in enumerate(kinds.copies)
        for kept in ((cache.states,) if states_alone else (cache.kept, cache.states))
    )


def _multi_head(kinds: Kinds, batch: int, context: int, dtype: str) -> Cache:
    """A cache of a key and a value for each query head, in every layer as long as the context."""
    cache, device = Cache(dtype), kinds.model.token_embedding.weight.device
    for index, (_, layer) in enumerate(kinds.model.spec.layers):
        if not isinstance(a := layer.mixer, Attention):
            continue
        latent = a.latent
        widths = (latent.nope_dim + latent.rope_dim, latent.value_dim) if latent else (a.head_dim, a.head_dim)
        cache.update(index, None, *(torch.zeros(batch, a.heads, context, width, device=device) for width in widths))
    return cache


Sizes = dict[str, dict[str, int]]


def decode_and_cache(
    kinds: Kinds, batch: int, context: int, dtypes: Sequence[str]
) -> tuple[Counter[str], Sizes, Sizes]:
    """FLOPs of `decode`; bytes of each policy's cache, by dtype, with `context` positions in it; and how many of them
    came with the last one."""
    plain = Cache("bf16")
    needed = {dtype: Cache(dtype) for dtype in dtypes}
    reserved = {dtype: Reserved(dtype, context) for dtype in dtypes}
    shorter = {dtype: Reserved(dtype, context - 1) for dtype in dtypes}
    fill(kinds.model, Together(plain, *needed.values(), *reserved.values(), *shorter.values()), batch, context - 1)

    def held(dtype: str, whole: Cache) -> dict[str, int]:
        found = {"needed": _held(kinds, needed[dtype]), "reserved": _held(kinds, whole)}
        return found | ({"state": _held(kinds, needed[dtype], True)} if kinds.model.spec.states() else {})

    before = {dtype: held(dtype, shorter[dtype]) for dtype in dtypes}
    flops = decode(kinds, batch, context, plain, *needed.values(), *reserved.values())
    after = {
        dtype: held(dtype, reserved[dtype]) | {"multi_head": _held(kinds, _multi_head(kinds, batch, context, dtype))}
        for dtype in dtypes
    }
    return flops, after, {d: {policy: after[d][policy] - size for policy, size in before[d].items()} for d in dtypes}


def state_bytes(
    kinds: Kinds, recipe: Mapping[str, Any]
) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]]:
    """Bytes by (item, dtype) of one training recipe, in all and on the fullest of its devices.

    Read from the tensors that a real optimiser step leaves, and from their shares. The gradients are those of the last
    backward pass of `kinds.model`, or, where adapters are trained, of a model with them.
    """
    from transformer_ledger.executed import adapters
    from transformer_ledger.executed.optimizer import fullest, step

    held: Counter[tuple[str, str]] = Counter()
    kept: dict[tuple[str, str], list[tuple[int, list[Tensor]]]] = {}
    named = dict(kinds.model.named_parameters())
    for parameter in named.values():
        # ASSUME an indexer, which the model's own loss does not reach, is trained too, by a loss of its own.
        parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
    stepped: Iterable[tuple[str, dict[tuple[str, str], list[Tensor]]]]
    if lora := recipe.get("lora"):
        with torch.device("meta"):
            model = Decoder(kinds.model.spec)
        adapters.adapt(model, lora["rank"], lora["targets"], component_of)
        if any(p.requires_grad for p in model.parameters()):  # none where the model has none of the targets
            model(token_ids(model, 1, 2)).sum().backward()
        stepped = adapters.kept(model, recipe)
    else:
        stepped = zip(named, step(list(named.values()), recipe), strict=True)
    for path, items in stepped:
        copies = kinds.copies_of(path)
        for (item, dtype), tensors in items.items():
            held[item, dtype] += copies * storage_bytes(tensors)
            kept.setdefault((item, dtype), []).append((copies, tensors))
    shares = {key: fullest(key[0], tensors, recipe) for key, tensors in kept.items()}
    return dict(held), {key: share for key, share in shares.items() if share is not None}
