"""B3: a layer's matrix products cost 8BTd² + 4BTdf + 4BT²d FLOPs, masked or not, and grow by degrees in T and B.

Symbolic: the ledger's rows on a description whose sizes are symbols. Executed: our torch decoder under FlopCounterMode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from transformer_ledger.cases import case
from transformer_ledger.formulas import architecture as formulas
from transformer_ledger.formulas import matmul as matmul_formulas
from transformer_ledger.ledger.matmul import products
from transformer_ledger.verification.teaching_parameters import Shape, said, symbolic_teaching, teaching, terms

PARTS = {
    "projections": ("attention.query", "attention.key", "attention.value", "attention.output"),
    "feed-forward": ("feedforward.up", "feedforward.down"),
    "scores and values": ("attention.scores", "attention.values"),
    "head": ("head",),
}
"""The text's terms, each with the ledger's components that it gathers."""


def printed_terms(B: Any, T: Any, d: Any, f: Any, V: Any, L: Any) -> dict[str, Any]:
    """FLOPs of each part of the forward pass by the text's formulas."""
    return {
        "projections": L * formulas.attention_projections(B=B, T=T, d=d),
        "feed-forward": L * formulas.plain_feedforward(B=B, T=T, d=d, f=f),
        "scores and values": L * formulas.attention_scores_and_values(B=B, T=T, d=d),
        "head": formulas.head(B=B, T=T, V=V, d=d),
    }


def _symbolic_rows() -> list[dict[str, Any]]:
    import sympy

    spec, s = symbolic_teaching()
    B, T = s["B"], s["T"]
    ledger = products(spec, B, T, T, "prefill")
    rows = []
    for part, printed in printed_terms(B, T, s["d"], s["f"], s["V"], s["L"]).items():
        ours = sum(product.flops for product in ledger if product.component in PARTS[part])
        rows.append(
            case(
                "B3.1",
                f"{part}: the ledger's rows, in symbols",
                "exact",
                "terms that differ from the formula",
                terms(ours - printed),
                "==",
                0,
                backend="symbolic",
            )
        )
        for symbol, wanted in ((T, 2 if part == "scores and values" else 1), (B, 1)):
            rows.append(
                case(
                    "B3.3",
                    f"{part}, degree in {symbol}",
                    "exact",
                    "degree",
                    sympy.degree(printed, symbol),
                    "==",
                    wanted,
                    backend="symbolic",
                )
            )
    return rows


def _counted(shape: Shape, batch: int, tokens: int) -> dict[str, int]:
    """FLOPs of one forward pass by component, counted on the executed decoder."""
    from transformer_ledger.executed import count

    return dict(count.forward_backward(count.Kinds(teaching(shape)), batch, tokens)[0])


def _part(counted: dict[str, int], part: str) -> int:
    return sum(counted.get(component, 0) for component in PARTS[part])


def _executed_rows(shape: Shape, batches: Sequence[int], lengths: Sequence[int]) -> list[dict[str, Any]]:
    counts = {(B, T): _counted(shape, B, T) for B in batches for T in lengths}
    rows = []
    for (B, T), counted in counts.items():
        printed = printed_terms(B, T, shape["d_model"], shape["d_ff"], shape["vocabulary"], shape["layers"])
        for part, wanted in printed.items():
            rows.append(
                case(
                    "B3.1",
                    f"{part}, B {B}, T {T}, {said(shape)}",
                    "exact",
                    f"FLOPs of {part}",
                    _part(counted, part),
                    "==",
                    wanted,
                    backend="torch",
                    unit="FLOP",
                    headline=(B, T, part) == (batches[-1], lengths[-1], "scores and values"),
                )
            )
        named = {component for components in PARTS.values() for component in components}
        rows.append(
            case(
                "B3.1",
                f"softmax, GELU, norms, biases, embeddings, B {B}, T {T}",
                "exact",
                "FLOPs counted",
                sum(flops for component, flops in counted.items() if component not in named),
                "==",
                0,
                backend="torch",
                unit="FLOP",
            )
        )
        whole = sum(counted.values())
        rows.append(
            case(
                "B3.1",
                f"a multiply-add counted as 1, B {B}, T {T}",
                "control",
                "FLOPs that the count is short of",
                whole - matmul_formulas.multiply_adds(sum(printed.values())),
                ">=",
                1,
                backend="torch",
                unit="FLOP",
            )
        )
    B, T = batches[0], lengths[0]
    for symbol, other, times in (("T", (B, lengths[1]), lengths[1] // T), ("B", (batches[1], T), batches[1] // B)):
        for part in PARTS:
            wanted = times**2 if (symbol, part) == ("T", "scores and values") else times
            rows.append(
                case(
                    "B3.3",
                    f"{part}, {symbol} × {times}",
                    "exact",
                    f"growth of {part} with {symbol}",
                    Fraction(_part(counts[other], part), _part(counts[B, T], part)),
                    "==",
                    wanted,
                    backend="torch",
                    headline=symbol == "T" and part in ("projections", "scores and values"),
                )
            )
    return rows


def _decode_rows(shape: Shape, batch: int, lengths: Sequence[int]) -> list[dict[str, Any]]:
    """Control of B3.3: with a cache one new token meets a context twice as long, and attention only doubles."""
    from transformer_ledger.executed import count

    kinds = count.Kinds(teaching(shape))
    short, long = (_part(dict(count.decode(kinds, batch, S)), "scores and values") for S in lengths[:2])
    times = lengths[1] // lengths[0]
    return [
        case(
            "B3.3",
            f"one new token against a context × {times}",
            "control",
            "growth of scores and values",
            Fraction(long, short),
            "==",
            times,
            backend="torch",
        )
    ]


def _attention_flops(shape: Shape, batch: int, tokens: int, run: Callable[[Any, Any], Any]) -> int:
    """FLOPs that `run` counts on queries, keys and values (B, h, T, d_h) of shape's heads, on the meta device."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    h = shape["heads"]
    x = torch.empty(batch, h, tokens, shape["d_model"] // h, device="meta")
    with FlopCounterMode(display=False) as counter:
        run(x, tokens)
    return int(counter.get_total_flops())


def skipping(block: int) -> Callable[[Any, int], Any]:
    """Causal attention that leaves out the blocks of keys that the mask hides entirely from a block of queries."""

    def run(x: Any, tokens: int) -> None:
        for begin in range(0, tokens, block):
            end = min(begin + block, tokens)
            q, k = x[:, :, begin:end], x[:, :, :end]
            (q @ k.transpose(-1, -2)).softmax(-1) @ k

    return run


def _mask_rows(shape: Shape, batch: int, lengths: Sequence[int], blocks: Sequence[int]) -> list[dict[str, Any]]:
    """B3.2: the executed attention with its causal mask and without, and a kernel that skips, apart."""
    import torch

    from transformer_ledger.executed.decoder import Attention

    spec = teaching(shape)
    own = spec.layers[0][1].attention
    with torch.device("meta"):
        attention = Attention(spec, own)
    hidden = torch.ones(max(lengths), max(lengths), dtype=torch.bool, device="meta").triu(1)

    def attend(visible: Callable[[int, int, int | None], Any]) -> Callable[[Any, int], Any]:
        return lambda x, _: attention.attend(x, x, x, 1.0, visible)

    rows = []
    for T in lengths:
        masked = _attention_flops(shape, batch, T, attend(lambda t, s, _: hidden[:t, :s]))
        dense = _attention_flops(shape, batch, T, attend(lambda t, s, _: None))
        rows.append(
            case(
                "B3.2",
                f"B {batch}, T {T}, {said(shape)}",
                "exact",
                "FLOPs that the mask saves",
                dense - masked,
                "==",
                0,
                backend="torch",
                unit="FLOP",
                headline=lengths[-1] == T,
            )
        )
        rows.append(
            case(
                "B3.2",
                f"B {batch}, T {T}, masked",
                "exact",
                "FLOPs",
                masked,
                "==",
                formulas.attention_scores_and_values(B=batch, T=T, d=shape["d_model"]),
                backend="torch",
                unit="FLOP",
            )
        )
        for block in blocks:
            skipped = _attention_flops(shape, batch, T, skipping(block))
            rows.append(
                case(
                    "B3.2",
                    f"a kernel that skips hidden blocks of {block}, B {batch}, T {T}",
                    "control",
                    "FLOPs saved",
                    dense - skipped,
                    ">=",
                    1,
                    backend="torch",
                    unit="FLOP",
                )
            )
        one = _attention_flops(shape, batch, T, skipping(1))
        heads, d_h = own.heads, own.head_dim
        rows.append(
            case(
                "B3.2",
                f"a kernel that skips every hidden pair, B {batch}, T {T}",
                "exact",
                "FLOPs of T(T+1)/2 pairs",
                one,
                "==",
                matmul_formulas.scores_causal(B=batch, T=T, h=heads, d_h=d_h)
                + matmul_formulas.values_causal(B=batch, T=T, h=heads, d_v=d_h),
                backend="torch",
                unit="FLOP",
            )
        )
    return rows


def compute(
    shape: Shape, batches: Sequence[int], lengths: Sequence[int], blocks: Sequence[int]
) -> list[dict[str, Any]]:
    """Rows of B3.

    `batches` and `lengths` are counted in all pairs, the second of each against the first for the growth; `blocks` are
    the block sizes of the kernel that skips, below every length.
    """
    return (
        _symbolic_rows()
        + _executed_rows(shape, batches, lengths)
        + _decode_rows(shape, batches[0], lengths)
        + _mask_rows(shape, batches[0], lengths, blocks)
    )
