"""One attention, three methods: how far output and gradients of each are from fp64, on the same inputs.

`naive` makes the whole score matrix in the inputs' type; `blocked` is ours (executed.blocked_attention); `fused` is
torch's own kernel. Peaky logits are the ordinary ones many times larger, as a trained model's can be.
"""

from __future__ import annotations

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


def naive(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Attention as it is written down: the whole matrix of scores, scaled, masked, through a softmax.

    q (B, h, T, d_h), k and v (B, h_kv, T, d_h).
    """
    g, T = q.shape[1] // k.shape[1], q.shape[2]
    if g > 1:
        k, v = k.repeat_interleave(g, 1), v.repeat_interleave(g, 1)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -math.inf)
    return scores.softmax(-1) @ v


def fused(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """torch's scaled_dot_product_attention, as it chooses its kernel."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])


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


def drawn(seed: int, heads: int, kv_heads: int, length: int, head_dim: int, dtype: str, scale: float) -> list[Tensor]:
    """Normal q, k, v and output gradient; the scores' deviation is `scale`."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(1, n, length, head_dim) for n in (heads, kv_heads, kv_heads, heads)]
    q, k, v, grad = (torch.randn(shape, generator=generator) for shape in shapes)
    return [x.to(DTYPES[dtype]) for x in (q * scale, k, v, grad)]


def _ratio(over: float | None, under: float | None) -> float | None:
    """None where there is nothing to divide by: one key leaves no gradient to its score, and the kernel no error."""
    return over / under if under and over is not None else None


def compute(
    cases: Sequence[Mapping[str, Any]],
    heads: int,
    head_dim: int,
    dtypes: Sequence[str],
    scales: Mapping[str, float],
    blocks: Mapping[str, Any],
    seed: int,
) -> list[dict[str, Any]]:
    """Rows of study/attention.

    `cases`: length, causal and kv_heads of each; `scales`: name of the logits and their deviation; `blocks`: queries and
    keys of a block.
    """
    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    for case in cases:
        causal, length, kv_heads = case["causal"], case["length"], case["kv_heads"]
        name = f"{heads} heads of {head_dim} over {kv_heads}, {'causal' if causal else 'full'}"
        for dtype in dtypes:
            for logits, scale in scales.items():
                inputs = drawn(seed, heads, kv_heads, length, head_dim, dtype, scale)
                exact = forward_backward(naive, [x.double() for x in inputs], causal)
                ran = {
                    method: forward_backward(run, inputs, causal) for method, run in methods(Blocks(**blocks)).items()
                }
                for tensor, wanted, *got in zip(TENSORS, exact, *ran.values(), strict=True):
                    off = {method: x.double() - wanted for method, x in zip(ran, got, strict=True)}
                    size = float(wanted.square().mean().sqrt())
                    error = {method: _ratio(float(x.square().mean().sqrt()), size) for method, x in off.items()}
                    found += [
                        {
                            "case": name,
                            "length": length,
                            "dtype": dtype,
                            "logits": logits,
                            "method": method,
                            "tensor": tensor,
                            "relative_rms_error": error[method],
                            "largest_error": float(off[method].abs().max()),
                            "largest_value": float(wanted.abs().max()),
                            "ratio_to_fused": _ratio(error[method], error["fused"]),
                        }
                        for method in ran
                    ]
    return found
