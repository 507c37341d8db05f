"""Exact attention read block by block, forward and backward by hand, in plain torch.

Every query meets every key that it may see: no pair is left out and the result is softmax attention's own; what is
saved is memory, since a block of scores lives only until the next one. The forward pass keeps, a query, the running
maximum m, denominator a and numerator o of the keys read so far (Milakov and Gimelshein 2018, arXiv:1805.02867); the
backward pass recomputes each block of weights from queries, keys and the log-sum-exp that was kept (Dao et al. 2022,
arXiv:2205.14135, algorithm 4). It is kept in two parts, m and a, as in that paper's algorithm: m + ln a in one number
would lose as many digits as m has before the point.

Shapes: B sequences, T queries, S keys, h query heads, h_kv key/value heads, g = h / h_kv, widths d_h and d_v.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ROOM = 256 * 512  # scores at work at once on a thread: half a MiB stays in its cache
LN_2 = math.log(2)  # scores are taken in units of it: e^(s·ln 2) is 2^s, the faster function on this kind of processor
ACCUMULATORS = {torch.bfloat16: torch.float32, torch.float16: torch.float32}  # other types accumulate in themselves


@dataclass(frozen=True)
class Blocks:
    """How attention is cut up: g times `queries` rows by `keys` columns of scores exist at once, for some heads.

    Blocks of several heads are done together, as long as they are no more than ROOM scores a thread. Reading the keys
    backwards is another order of the same sums.
    """

    queries: int = 256
    keys: int = 512
    backwards: bool = False

    def cut(self, T: int, S: int, causal: bool) -> Iterator[tuple[slice, list[slice]]]:
        """Query blocks, each with the key blocks that its queries may see; the T queries are the last of S positions."""
        for begin in range(0, T, self.queries):
            end = min(begin + self.queries, T)
            seen = S - T + end if causal else S
            keys = [slice(k, min(k + self.keys, seen)) for k in range(0, seen, self.keys)]
            yield slice(begin, end), keys[::-1] if self.backwards else keys

    def together(self, heads: int, g: int, T: int, S: int) -> list[slice]:
        """The key/value heads done at once."""
        n = max(torch.get_num_threads() * ROOM // (g * min(self.queries, T) * min(self.keys, S)), 1)
        return [slice(i, min(i + n, heads)) for i in range(0, heads, n)]


def _hide(scores: Tensor, later: Tensor, rows: slice, keys: slice, ahead: int) -> None:
    """Set the scores (heads, g·queries, keys) of keys after the query's own position, `ahead` + row, to −∞, in place.

    `later` (queries, queries) is true above the diagonal.
    """
    first = ahead + rows.start
    start = max(keys.start, first)
    if start < keys.stop:
        hidden = later[: rows.stop - rows.start, start - first : keys.stop - first]
        scores.unflatten(1, (-1, len(hidden)))[..., start - keys.start :].masked_fill_(hidden, -math.inf)


class _Room:
    """Memory for one block of scores, used again for every block."""

    def __init__(self, like: Tensor, blocks: Blocks, g: int, T: int, S: int, heads: list[slice]):
        size = (heads[0].stop - heads[0].start) * g * min(blocks.queries, T) * min(blocks.keys, S)
        self.kept = like.new_empty(size)

    def product(self, left: Tensor, right: Tensor, factor: float = 1.0) -> Tensor:
        """left·rightᵀ·factor, (n, rows, width) and (n, columns, width) → (n, rows, columns)."""
        n, rows, columns = *left.shape[:2], right.shape[1]
        out = self.kept[: n * rows * columns].view(n, rows, columns)
        return out.baddbmm_(left, right.transpose(1, 2), beta=0, alpha=factor)


class _BlockedAttention(torch.autograd.Function):
    """A few key/value heads at a time, so that the blocks at work stay in the processor's cache.

    q (H, g, T, d_h), k (H, S, d_h), v (H, S, d_v), H = B·h_kv → (H, g, T, d_v).
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, blocks: Blocks) -> Tensor:
        (H, g, T, _), S, d_v = q.shape, k.shape[1], v.shape[2]
        wide = ACCUMULATORS.get(q.dtype, q.dtype)
        out = q.new_empty(H, g, T, d_v)
        wanted = any(ctx.needs_input_grad)
        maximum, denominator = (q.new_empty((H, g, T, 1) if wanted else 0, dtype=wide) for _ in range(2))
        together = blocks.together(H, g, T, S)
        room = _Room(maximum, blocks, g, T, S, together)
        later = torch.ones(2 * (min(blocks.queries, T),), dtype=torch.bool).triu_(1) if causal else None
        for heads in together:
            for rows, key_blocks in blocks.cut(T, S, causal):
                x = q[heads, :, rows].to(wide).flatten(1, 2)  # (n, g·queries, d_h)
                m = x.new_full((*x.shape[:2], 1), torch.finfo(wide).min)  # finite: −∞ − (−∞) has no value
                a, o = torch.zeros_like(m), x.new_zeros(*x.shape[:2], d_v)
                for keys in key_blocks:
                    s = room.product(x, k[heads, keys].to(wide), scale / LN_2)
                    if later is not None:
                        _hide(s, later, rows, keys, S - T)
                    larger = torch.maximum(m, s.amax(2, keepdim=True))
                    rescale = m.sub_(larger).exp2_()
                    p = s.sub_(larger).exp2_()
                    a.mul_(rescale).add_(p.sum(2, keepdim=True))
                    o.mul_(rescale).baddbmm_(p, v[heads, keys].to(wide))
                    m = larger
                out[heads, :, rows] = o.div_(a).unflatten(1, (g, -1))
                if wanted:
                    maximum[heads, :, rows] = m.unflatten(1, (g, -1))
                    denominator[heads, :, rows] = a.unflatten(1, (g, -1))
                del o  # before the next is made
        ctx.save_for_backward(q, k, v, out, maximum, denominator)
        ctx.scale, ctx.causal, ctx.blocks = scale, causal, blocks
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = gradients
        q, k, v, out, maximum, denominator = ctx.saved_tensors
        scale, causal, blocks = ctx.scale, ctx.causal, ctx.blocks
        (H, g, T, _), S, wide = q.shape, k.shape[1], maximum.dtype
        dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
        together = blocks.together(H, g, T, S)
        room, other = (_Room(maximum, blocks, g, T, S, together) for _ in range(2))
        later = torch.ones(2 * (min(blocks.queries, T),), dtype=torch.bool).triu_(1) if causal else None
        for heads in together:
            # The sums over all queries; those of a wide type grow where they are to end.
            key_sum, value_sum = (
                x[heads].zero_() if x.dtype == wide else torch.zeros_like(x[heads], dtype=wide) for x in (dk, dv)
            )
            for rows, key_blocks in blocks.cut(T, S, causal):
                x = q[heads, :, rows].to(wide).flatten(1, 2)
                dx = torch.zeros_like(x)
                # do / a, (n, g·queries, d_v): with it, p is not divided by its sum.
                do = (grad[heads, :, rows].to(wide) / denominator[heads, :, rows]).flatten(1, 2)
                # Σ_j (p_j/a) (do·v_j) = do·o: what the softmax's normalisation takes back.
                along = (do * out[heads, :, rows].to(wide).flatten(1, 2)).sum(2, keepdim=True)
                m = maximum[heads, :, rows].flatten(1, 2)
                for keys in key_blocks:
                    y = k[heads, keys].to(wide)
                    s = room.product(x, y, scale / LN_2)
                    if later is not None:
                        _hide(s, later, rows, keys, S - T)
                    p = s.sub_(m).exp2_()
                    value_sum[:, keys].baddbmm_(p.transpose(1, 2), do)
                    ds = other.product(do, v[heads, keys].to(wide)).sub_(along).mul_(p)
                    key_sum[:, keys].baddbmm_(ds.transpose(1, 2), x, alpha=scale)
                    dx.baddbmm_(ds, y, alpha=scale)
                dq[heads, :, rows] = dx.unflatten(1, (g, -1))
            if dk.dtype != wide:
                dk[heads], dv[heads] = key_sum, value_sum
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
    grouped = q.unflatten(1, (h_kv, h // h_kv)).flatten(0, 1)  # (B·h_kv, g, T, d_h)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out = _BlockedAttention.apply(grouped, k.flatten(0, 1), v.flatten(0, 1), scale, causal, blocks)
    return out.unflatten(0, (-1, h_kv)).flatten(1, 2)
