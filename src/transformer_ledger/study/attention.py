"""One attention, three methods: how far output and gradients of each are from fp64, on the same inputs.

`naive` makes the whole score matrix in the inputs' type; `blocked` is ours (executed.blocked_attention); `fused` is
torch's own kernel. Peaky logits are the ordinary ones many times larger, as a trained model's can be.

Blocked attention is accepted, tensor by tensor, where its error is no more than a factor, named before, times that of the
fused kernel: both add the same terms, in other orders, so rounding alone keeps them together, and a wrong term does not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from transformer_ledger.executed.blocked_attention import Blocks, blocked_attention
from transformer_ledger.executed.cache import DTYPES

TENSORS = ("output", "dq", "dk", "dv")
Method = Callable[[Tensor, Tensor, Tensor, bool], Tensor]


def _seen(q: Tensor, k: Tensor) -> Tensor:
    """(T, S): whether a query, one of the last T of S positions, may see a key."""
    T, S = q.shape[2], k.shape[2]
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)


def naive(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Attention as it is written down: the whole matrix of scores, scaled, masked, through a softmax.

    q (B, h, T, d_h), k and v (B, h_kv, S, d_h); causal takes the T queries as the last of the S positions.
    """
    g = q.shape[1] // k.shape[1]
    if g > 1:
        k, v = k.repeat_interleave(g, 1), v.repeat_interleave(g, 1)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(~_seen(q, k), -math.inf)
    return scores.softmax(-1) @ v


def fused(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """torch's scaled_dot_product_attention, as it chooses its kernel."""
    whole = q.shape[2] == k.shape[2]  # else torch would take the queries as the first positions
    mask = _seen(q, k) if causal and not whole else None
    grouped = q.shape[1] != k.shape[1]
    return functional.scaled_dot_product_attention(q, k, v, mask, is_causal=causal and whole, enable_gqa=grouped)


def methods(blocks: Blocks) -> dict[str, Method]:
    """The three, by name."""
    return {
        "naive": naive,
        "blocked": lambda q, k, v, causal: blocked_attention(q, k, v, None, causal, blocks),
        "fused": fused,
    }


def forward_backward(method: Method, inputs: Sequence[Tensor], causal: bool) -> list[Tensor]:
    """Output, dq, dk and dv from q, k, v and the output's gradient."""
    q, k, v = (x.detach().requires_grad_() for x in inputs[:3])
    out = method(q, k, v, causal)
    return [out.detach(), *torch.autograd.grad(out, (q, k, v), inputs[3])]


def drawn(
    seed: int, heads: int, kv_heads: int, length: int, head_dim: int, dtype: str, scale: float, queries: int = 0
) -> list[Tensor]:
    """Normal q, k, v and output gradient; the scores' deviation is `scale`; as many queries as keys if not given."""
    generator = torch.Generator().manual_seed(seed)
    sizes = ((heads, queries or length), (kv_heads, length), (kv_heads, length), (heads, queries or length))
    shapes = [(1, n, rows, head_dim) for n, rows in sizes]
    q, k, v, grad = (torch.randn(shape, generator=generator) for shape in shapes)
    return [x.to(DTYPES[dtype]) for x in (q * scale, k, v, grad)]


def _ratio(over: float | None, under: float | None) -> float | None:
    """None where there is nothing to divide by: one key leaves no gradient to its score, and the kernel no error."""
    return over / under if under and over is not None else None


def judged(wanted: Tensor, got: Mapping[str, Tensor], allowed: float) -> list[dict[str, Any]]:
    """One row a method: the distance of its tensor from the fp64 one, and whether ours is near enough."""
    off = {method: x.double() - wanted for method, x in got.items()}
    size = float(wanted.square().mean().sqrt())
    error = {method: _ratio(float(x.square().mean().sqrt()), size) for method, x in off.items()}
    rows = []
    for method, x in off.items():
        ratio = _ratio(error[method], error["fused"])
        ours = method == "blocked" and ratio is not None
        rows.append(
            {
                "method": method,
                "relative_rms_error": error[method],
                "largest_error": float(x.abs().max()),
                "largest_value": float(wanted.abs().max()),
                "ratio_to_fused": ratio,
                "allowed_ratio": allowed if ours else None,
                "holds": ratio <= allowed if ours and ratio is not None else None,
            }
        )
    return rows


def compute(
    cases: Sequence[Mapping[str, Any]],
    heads: int,
    head_dim: int,
    dtypes: Sequence[str],
    scales: Mapping[str, float],
    blocks: Mapping[str, Any],
    allowed_ratio: float,
    seed: int,
) -> list[dict[str, Any]]:
    """Rows of study/attention.

    `cases`: queries (null: as many as keys), length (keys), causal and kv_heads of each; `scales`: name of the logits and
    their deviation; `blocks`: queries and keys of a block; `allowed_ratio`: of blocked attention's error to the fused one's.
    """
    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    for case, dtype, (logits, scale) in itertools.product(cases, dtypes, scales.items()):
        causal, length, kv_heads, queries = (case[key] for key in ("causal", "length", "kv_heads", "queries"))
        name = f"{heads} query and {kv_heads} key/value heads, {head_dim} wide, {'causal' if causal else 'full'}"
        inputs = drawn(seed, heads, kv_heads, length, head_dim, dtype, scale, queries or length)
        exact = forward_backward(naive, [x.double() for x in inputs], causal)
        ran = {method: forward_backward(run, inputs, causal) for method, run in methods(Blocks(**blocks)).items()}
        for i, tensor in enumerate(TENSORS):
            shared = {"case": name, "queries": queries or length, "length": length, "dtype": dtype, "logits": logits}
            rows = judged(exact[i], {method: tensors[i] for method, tensors in ran.items()}, allowed_ratio)
            found += [{**shared, "tensor": tensor, **row} for row in rows]
    return found
