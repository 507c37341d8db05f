"""Exact attention read block by block, forward and backward by hand, in plain torch.

Every query meets every key that it may see: no pair is left out and the result is softmax attention's own; what is
saved is memory, since a block of scores lives only until the next one. The forward pass keeps, a query, the running
maximum m, denominator a and numerator o of the keys read so far (Milakov and Gimelshein 2018, arXiv:1805.02867); the
backward pass recomputes each block of weights from queries, keys and the log-sum-exp ln Σ eˢ that was kept (Dao et al.
2022, arXiv:2205.14135, algorithm 4).

Shapes: B sequences, T queries, S keys, h query heads, h_kv key/value heads, g = h / h_kv, widths d_h and d_v.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ACCUMULATORS = {torch.bfloat16: torch.float32, torch.float16: torch.float32}  # other types accumulate in themselves


@dataclass(frozen=True)
class Blocks:
    """How attention is cut up: `queries` times g rows and `keys` columns of scores exist at once, for each head.

    Reading the keys backwards is another order of the same sums.
    """

    queries: int = 256
    keys: int = 512
    backwards: bool = False


def _blocks(T: int, S: int, causal: bool, blocks: Blocks) -> Iterator[tuple[slice, list[slice]]]:
    """Query blocks, each with the key blocks that any of its queries may see; the T queries are the last of S positions."""
    for begin in range(0, T, blocks.queries):
        end = min(begin + blocks.queries, T)
        seen = S - T + end if causal else S
        keys = [slice(k, min(k + blocks.keys, seen)) for k in range(0, seen, blocks.keys)]
        yield slice(begin, end), keys[::-1] if blocks.backwards else keys


def _hide(scores: Tensor, rows: slice, keys: slice, ahead: int) -> None:
    """Set the scores (g, queries, keys) of keys after the query's own position (`ahead` + row) to −∞, in place."""
    if keys.stop - 1 <= ahead + rows.start:
        return
    last = torch.arange(ahead + rows.start, ahead + rows.stop).unsqueeze(1)
    scores.masked_fill_(torch.arange(keys.start, keys.stop) > last, -math.inf)


class _BlockedAttention(torch.autograd.Function):
    """One key/value head at a time, so that the blocks at work stay in the processor's cache."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, blocks: Blocks) -> Tensor:
        B, h_kv, g, T, d_v = *q.shape[:4], v.shape[-1]
        S, wide = k.shape[2], ACCUMULATORS.get(q.dtype, q.dtype)
        out = q.new_empty(B, h_kv, g, T, d_v)
        lse = q.new_empty(B, h_kv, g, T, dtype=wide)
        room = q.new_empty(g * min(blocks.queries, T) * min(blocks.keys, S), dtype=wide)
        for head in ((b, i) for b in range(B) for i in range(h_kv)):
            for rows, key_blocks in _blocks(T, S, causal, blocks):
                x = (q[head][:, rows].to(wide) * scale).flatten(0, 1)  # (g·queries, d_h)
                m = x.new_full((len(x), 1), torch.finfo(wide).min)  # finite: −∞ − (−∞) has no value
                a, o = x.new_zeros(len(x), 1), x.new_zeros(len(x), d_v)
                for keys in key_blocks:
                    y, z = k[head][keys].to(wide), v[head][keys].to(wide)
                    s = torch.mm(x, y.t(), out=room[: len(x) * len(y)].view(len(x), len(y)))
                    if causal:
                        _hide(s.view(g, -1, len(y)), rows, keys, S - T)
                    larger = torch.maximum(m, s.amax(1, keepdim=True))
                    rescale = (m - larger).exp_()
                    p = s.sub_(larger).exp_()
                    a.mul_(rescale).add_(p.sum(1, keepdim=True))
                    o.mul_(rescale).addmm_(p, z)
                    m = larger
                out[head][:, rows] = o.div_(a).view(g, -1, d_v)
                lse[head][:, rows] = m.add_(a.log_()).view(g, -1)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.scale, ctx.causal, ctx.blocks = scale, causal, blocks
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = gradients
        q, k, v, out, lse = ctx.saved_tensors
        scale, causal, blocks = ctx.scale, ctx.causal, ctx.blocks
        B, h_kv, g, T, d_h = q.shape
        S, d_v, wide = k.shape[2], v.shape[-1], lse.dtype
        dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
        size = g * min(blocks.queries, T) * min(blocks.keys, S)
        room, other = (q.new_empty(size, dtype=wide) for _ in range(2))
        for head in ((b, i) for b in range(B) for i in range(h_kv)):
            # The sums over all queries; those of a wide type grow where they are to end.
            key_sum = dk[head].zero_() if dk.dtype == wide else dk.new_zeros(S, d_h, dtype=wide)
            value_sum = dv[head].zero_() if dv.dtype == wide else dv.new_zeros(S, d_v, dtype=wide)
            for rows, key_blocks in _blocks(T, S, causal, blocks):
                x = (q[head][:, rows].to(wide) * scale).flatten(0, 1)
                dx = torch.zeros_like(x)
                do = grad[head][:, rows].to(wide).flatten(0, 1)  # (g·queries, d_v)
                # Σ_j p_j (do·v_j) = do·o: what the softmax's normalisation takes back.
                along = (do * out[head][:, rows].to(wide).flatten(0, 1)).sum(1, keepdim=True)
                level = lse[head][:, rows].reshape(-1, 1)
                for keys in key_blocks:
                    y, z = k[head][keys].to(wide), v[head][keys].to(wide)
                    s = torch.mm(x, y.t(), out=room[: len(x) * len(y)].view(len(x), len(y)))
                    if causal:
                        _hide(s.view(g, -1, len(y)), rows, keys, S - T)
                    p = s.sub_(level).exp_()
                    value_sum[keys].addmm_(p.t(), do)
                    ds = torch.mm(do, z.t(), out=other[: len(x) * len(y)].view(len(x), len(y)))
                    ds.sub_(along).mul_(p)
                    key_sum[keys].addmm_(ds.t(), x)  # x carries the scale
                    dx.addmm_(ds, y)
                dq[head][:, rows] = dx.mul_(scale).view(g, -1, d_h)
            if dk.dtype != wide:
                dk[head], dv[head] = key_sum, value_sum
        return dq, dk, dv, None, None, None


def blocked_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, causal: bool = False, blocks: Blocks = Blocks()
) -> Tensor:
    """softmax(q·kᵀ·scale)·v: q (B, h, T, d_h), k (B, h_kv, S, d_h), v (B, h_kv, S, d_v) → (B, h, T, d_v).

    Query head i reads key/value head ⌊i / g⌋. `causal` takes the T queries as the last of the S positions. bf16 and fp16
    are widened block by block: products and sums are fp32, results rounded once. `scale` is 1/√d_h unless given.
    Raises ValueError where h_kv does not divide h, or where a causal query would see no key.
    """
    h, h_kv = q.shape[1], k.shape[1]
    if h % h_kv:
        raise ValueError(f"{h_kv} key/value heads do not divide {h} query heads")
    if causal and q.shape[2] > k.shape[2]:
        raise ValueError(f"{q.shape[2]} causal queries over {k.shape[2]} keys: the first would see none")
    grouped = q.unflatten(1, (h_kv, h // h_kv))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    return _BlockedAttention.apply(grouped, k, v, scale, causal, blocks).flatten(1, 2)
