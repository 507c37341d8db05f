"""Key/value caches as real tensors: what attention can still read (`Cache`), or full length everywhere (`Reserved`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8": torch.float8_e4m3fn,
}
INTEGER_BITS = {"int8": 8, "int4": 4, "int2": 2}
STATIC_RANGE = 8.0  # an integer type without groups has one scale for all, known beforehand and not stored a token


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the distinct storages behind `tensors`: a view counts its whole storage, a shared one counts once."""
    storages = {storage._cdata: storage for storage in (tensor.untyped_storage() for tensor in tensors)}
    return sum(storage.nbytes() for storage in storages.values())


def _integer(dtype: str) -> tuple[int, int]:
    """Bits, and components that share a scale and a shift (0: all, see STATIC_RANGE): int4-g64 is (4, 64)."""
    name, _, group = dtype.partition("-g")
    if name not in INTEGER_BITS:
        raise ValueError(f"unknown dtype {dtype!r}; known: {', '.join([*DTYPES, *INTEGER_BITS])}, and int4-g64")
    return INTEGER_BITS[name], int(group or 0)


def encode(x: Tensor, dtype: str) -> list[Tensor]:
    """`x` (B, heads, T, width) as stored: one tensor of a floating type, or integers packed into bytes, a token's heads
    side by side, with a bf16 scale and shift for each group of components."""
    if dtype in DTYPES:
        return [x.to(DTYPES[dtype])]
    bits, group = _integer(dtype)
    top = 2**bits - 1
    token = x.transpose(1, 2).flatten(2).unsqueeze(1)  # (B, 1, T, heads·width)
    whole = torch.nn.functional.pad(token, (0, -token.shape[-1] % (group or 8 // bits)))
    if not group:
        codes, scales = (whole + STATIC_RANGE) * (top / (2 * STATIC_RANGE)), []
    else:
        groups = whole.unflatten(-1, (-1, group))
        low, high = groups.aminmax(dim=-1, keepdim=True)
        shift = low.bfloat16()
        scale = ((high - shift) / top).clamp(min=1e-30).bfloat16()
        codes, scales = ((groups - shift) / scale).flatten(-2), [scale.squeeze(-1), shift.squeeze(-1)]
    parts = codes.round().clamp(0, top).to(torch.uint8).unflatten(-1, (-1, 8 // bits))
    places = torch.arange(0, 8, bits, device=x.device, dtype=torch.uint8)
    return [(parts << places).sum(-1, dtype=torch.uint8), *scales]


def decode(stored: Sequence[Tensor], dtype: str, like: Tensor) -> Tensor:
    """The values that `encode` stored, in the type, heads and width of `like`."""
    if dtype in DTYPES:
        return stored[0].to(like.dtype)
    bits, group = _integer(dtype)
    top = 2**bits - 1
    places = torch.arange(0, 8, bits, device=like.device, dtype=torch.uint8)
    codes = (stored[0].unsqueeze(-1) >> places & top).flatten(-2).to(like.dtype)
    if not group:
        values = codes * (2 * STATIC_RANGE / top) - STATIC_RANGE
    else:
        scale, shift = (part.unsqueeze(-1) for part in stored[1:])
        values = (codes.unflatten(-1, (-1, group)) * scale + shift).flatten(-2)
    heads, width = like.shape[1], like.shape[3]
    return values.squeeze(1)[..., : heads * width].unflatten(-1, (heads, width)).transpose(1, 2).to(like.dtype)


class Cache:
    """Keys and values (for latent attention: latents and rotated keys) of all layers, grown as tokens come.

    A layer with window w keeps the w positions that its newest token read.
    """

    def __init__(self, dtype: str):
        self.dtype = dtype
        self.length = 0  # positions seen by all layers
        self.kept: dict[int, list[list[Tensor]]] = {}  # layer → for keys, values: the tensors that store them
        self.states: dict[int, list[list[Tensor]]] = {}  # the same of what does not grow

    def update(self, index: int, window: int | None, *new: Tensor) -> list[Tensor]:
        """Append (B, heads, T, width) tensors to layer `index`; returns the S positions that the T queries may read."""
        stored = self._append(index, window, [encode(tensor, self.dtype) for tensor in new])
        if window is not None:
            stored = [[part[:, :, -(window - 1 + new[0].shape[2]) :] for part in parts] for parts in stored]
        return [decode(parts, self.dtype, like) for parts, like in zip(stored, new, strict=True)]

    def _append(self, index: int, window: int | None, new: list[list[Tensor]]) -> list[list[Tensor]]:
        if index in self.kept:
            pairs = zip(self.kept[index], new, strict=True)
            new = [[torch.cat(pair, 2) for pair in zip(old, added, strict=True)] for old, added in pairs]
        kept = new
        if window is not None and new[0][0].shape[2] > window:
            # Copied, so that the positions that fell out of the window give their storage back.
            kept = [[part[:, :, -window:].clone() for part in parts] for parts in new]
        self.kept[index] = kept
        return new

    def state(self, index: int) -> tuple[Tensor, Tensor] | None:
        """What layer `index` kept of the tokens before: inputs of its convolution (B, K, c) and state; None of the first."""
        if index not in self.states:
            return None
        (inputs,), (state,) = self.states[index]
        return inputs, state

    def keep(self, index: int, inputs: Tensor, state: Tensor) -> None:
        """Take both in their places: the inputs in the cache's type, of 16 bits at least, the state as it was computed."""
        wide = DTYPES.get(self.dtype, torch.bfloat16)
        dtype = wide if wide.itemsize > 1 else torch.bfloat16
        self.states[index] = [[inputs.to(dtype, copy=True)], [state.clone()]]

    def bytes(self) -> int:
        """Bytes of storage held."""
        every = [*self.kept.values(), *self.states.values()]
        return storage_bytes(part for kept in every for parts in kept for part in parts)


class Reserved(Cache):
    """The same with room for `capacity` positions in every layer, window or not, from the first token on."""

    def __init__(self, dtype: str, capacity: int):
        super().__init__(dtype)
        self.capacity = capacity

    def _append(self, index: int, window: int | None, new: list[list[Tensor]]) -> list[list[Tensor]]:
        if index not in self.kept:
            self.kept[index] = [
                [part.new_empty(*part.shape[:2], self.capacity, part.shape[3]) for part in parts] for parts in new
            ]
        end = self.length + new[0][0].shape[2]
        if end > self.capacity:
            raise ValueError(f"{end} positions do not fit into a cache of {self.capacity}")
        for parts, added in zip(self.kept[index], new, strict=True):
            for part, fresh in zip(parts, added, strict=True):
                part[:, :, self.length : end] = fresh
        return [[part[:, :, :end] for part in parts] for parts in self.kept[index]]


class Together(Cache):
    """Several caches that take the same positions; attention reads the first."""

    def __init__(self, first: Cache, *others: Cache):
        self.caches = (first, *others)

    @property
    def length(self) -> int:
        """Positions seen by all layers."""
        return self.caches[0].length

    @length.setter
    def length(self, positions: int) -> None:
        for cache in self.caches:
            cache.length = positions

    def update(self, index: int, window: int | None, *new: Tensor) -> list[Tensor]:
        first, *others = self.caches
        stored = {dtype: [encode(tensor, dtype) for tensor in new] for dtype in {cache.dtype for cache in others}}
        for cache in others:
            cache._append(index, window, stored[cache.dtype])
        return first.update(index, window, *new)

    def state(self, index: int) -> tuple[Tensor, Tensor] | None:
        return self.caches[0].state(index)

    def keep(self, index: int, inputs: Tensor, state: Tensor) -> None:
        for cache in self.caches:
            cache.keep(index, inputs, state)
