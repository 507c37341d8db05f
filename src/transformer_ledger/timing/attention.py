"""Time and memory of naive, blocked and fused attention against the length, forward and forward with backward.

None of the three leaves a query-key pair out, and none is linear in the length: what differs is how often a T × T plane
of scores goes through memory, and whether one exists at all. The operations written down are those that each runs:
naive all T² pairs, blocked and fused the pairs of the blocks that a causal mask leaves (their backward passes multiply the
scores once more).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transformer_ledger.timing.machine import Work, measure

BYTES = {"fp32": 4, "bf16": 2}
PRODUCTS = {"naive": (2, 6), "blocked": (2, 7), "fused": (2, 7)}
"""Products of the size of the scores: forward; forward and backward. Four gradients, and the scores again if recomputed."""
PLANES = (8, 19)
"""Times that naive attention reads or writes its T × T plane: product, scale, mask, softmax, product; and the way back."""
ROWS = (4, 12)
"""Activations read or written once at least: q, k, v, output; then again with the four gradients, q, k, v and output."""
FUSED_KEYS = 512
"""Keys in a block of torch's kernel on the CPU (FlashAttentionKernel.cpp), which multiplies a block whole or not at all."""


def pairs(method: str, length: int, queries: int) -> int:
    """Query-key pairs whose scores are computed: every query with all keys up to the end of its block."""
    block = {"naive": length, "blocked": queries, "fused": FUSED_KEYS}[method]
    ends = [min(begin + block, length) for begin in range(0, length, block)]
    return sum(end * (end - begin) for begin, end in zip([0, *ends], ends, strict=False))


def works(length: int, heads: int, head_dim: int, dtype: str, queries: int, keys: int, seed: int) -> list[Work]:
    """All three methods at one length, both ways; each is compared with the fused kernel."""
    import torch

    from transformer_ledger.executed.blocked_attention import Blocks
    from transformer_ledger.study import attention as study

    inputs = q, k, v, _ = study.drawn(seed, heads, heads, length, head_dim, dtype, 1.0)
    out = []
    for name, method in study.methods(Blocks(queries, keys)).items():

        def forward(method: study.Method = method) -> Any:
            with torch.no_grad():
                return method(q, k, v, True)

        def both(method: study.Method = method) -> Any:
            return study.forward_backward(method, inputs, True)

        for index, (part, run) in enumerate((("forward", forward), ("forward and backward", both))):
            operations = PRODUCTS[name][index] * 2 * heads * head_dim * pairs(name, length, queries)
            moved = ROWS[index] * heads * length * head_dim * BYTES[dtype]
            if name == "naive":
                moved += PLANES[index] * heads * length * length * BYTES[dtype]
            base = None if name == "fused" else f"fused, T {length}, {dtype}"
            parameters = {"method": name, "length": length, "dtype": dtype}
            out.append(Work(f"{name}, T {length}, {dtype}", part, parameters, run, operations, moved, base))
    return out


def compute(
    lengths: Sequence[int],
    heads: int,
    head_dim: int,
    dtypes: Sequence[str],
    blocks: dict[str, int],
    repeats: Mapping[str, Any],
    threads: int,
    seed: int,
) -> list[dict[str, Any]]:
    """Rows of timing/attention: one sequence, causal, as many key/value heads as query heads; `repeats` as machine.Repeats."""
    return measure(
        [
            work
            for dtype in dtypes
            for length in lengths
            for work in works(length, heads, head_dim, dtype, blocks["queries"], blocks["keys"], seed)
        ],
        repeats,
        threads,
    )
