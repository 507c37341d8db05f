"""Time of one layer's products at a length and a batch, and at twice each: where it follows the count and where not.

The softmax is timed beside them: it is no matrix product, so the count leaves it out, and the clock does not. What
makes a [B, h, T, T] tensor is timed twice, into fresh memory and into kept buffers: a fresh result of many MiB comes
from the operating system page by page, at every run again, which no count of operations or bytes knows of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformer_ledger.formulas import architecture as formulas
from transformer_ledger.timing.machine import Work, measure

SOFTMAX_OPERATIONS = 5  # a score: compare, subtract, exponential, add, divide
BYTES = 4  # fp32


def works(case: str, B: int, T: int, d: int, h: int, seed: int, baseline: str | None) -> list[Work]:
    """The four projections, the scores and weighted values, and the softmax, of B sequences of T tokens in fp32."""
    import torch

    torch.manual_seed(seed)
    linears = [torch.nn.Linear(d, d, bias=False) for _ in range(4)]
    x = torch.randn(B, T, d)
    q, k, v = (torch.randn(B, h, T, d // h) for _ in range(3))
    scores = torch.randn(B, h, T, T)
    plane = formulas.attention_probabilities(B=B, h=h, T=T, b=BYTES)
    rows = B * T * d * BYTES  # one activation [B, T, d]

    def projections() -> Any:
        with torch.no_grad():
            return [linear(x) for linear in linears]

    kept_scores, kept_weights, kept_values = (torch.empty_like(y) for y in (scores, scores, q))

    def products_kept() -> Any:
        torch.matmul(q, k.transpose(-1, -2), out=kept_scores)
        return torch.matmul(kept_scores, v, out=kept_values)

    products = (formulas.attention_scores_and_values(B=B, T=T, d=d), 4 * rows + 2 * plane)
    softmax = (SOFTMAX_OPERATIONS * plane // BYTES, 2 * plane)
    sizes = {"batch": B, "length": T}
    return [
        Work(
            case,
            "projections",
            sizes,
            projections,
            formulas.attention_projections(B=B, T=T, d=d),
            8 * rows + BYTES * formulas.attention_parameters(d=d),
            baseline,
        ),
        Work(case, "scores and values", sizes, lambda: (q @ k.transpose(-1, -2)) @ v, *products, baseline),
        Work(case, "scores and values, kept buffers", sizes, products_kept, *products, baseline),
        Work(case, "softmax", sizes, lambda: scores.softmax(-1), *softmax, baseline),
        Work(
            case, "softmax, kept buffer", sizes, lambda: torch.softmax(scores, -1, out=kept_weights), *softmax, baseline
        ),
    ]


def compute(
    d_model: int, heads: int, batch: int, length: int, repeats: Mapping[str, Any], seed: int
) -> list[dict[str, Any]]:
    """Rows of timing/matmul_scaling: the base case, the length doubled, the batch doubled; `repeats` as machine.Repeats."""
    base = f"B {batch}, T {length}"
    every = works(base, batch, length, d_model, heads, seed, None)
    every += works(f"B {batch}, T {2 * length}", batch, 2 * length, d_model, heads, seed, base)
    every += works(f"B {2 * batch}, T {length}", 2 * batch, length, d_model, heads, seed, base)
    return measure(every, repeats)
