"""A layer's matrix products cost 8BTd² + 4BTdf + 4BT²d FLOPs, masked or not, and grow by degrees in T and B.

Claims B3.1 to B3.3. Symbolic: the ledger's rows on a description whose sizes are symbols. Executed: our torch decoder
under FlopCounterMode.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache, partial
from typing import Any
from unittest import mock

from transformer_ledger import routes
from transformer_ledger.evidence import Evidence, at_most, exactly
from transformer_ledger.formulas import architecture as formulas
from transformer_ledger.formulas import matmul as matmul_formulas
from transformer_ledger.ledger.matmul import products
from transformer_ledger.verification.teaching_parameters import Shape, symbolic_teaching, teaching, terms

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


def _symbolic(proof: Evidence) -> None:
    import sympy

    spec, s = symbolic_teaching()
    B, T = s["B"], s["T"]
    ledger = products(spec, B, T, T, "prefill")
    symbols = proof.of(by=routes.SYMBOLS)
    for part, printed in printed_terms(B, T, s["d"], s["f"], s["V"], s["L"]).items():
        ours = sum(product.flops for product in ledger if product.component in PARTS[part])
        here = symbols.of(part=part)
        here.of("B3.1").equal("terms of the ledger's rows that differ from the formula", terms(ours - printed), 0)
        for symbol, wanted in ((T, 2 if part == "scores and values" else 1), (B, 1)):
            here.of("B3.3").equal(f"degree in {symbol}", sympy.degree(ours, symbol), wanted, against=routes.TEXT)


def _executed(proof: Evidence, shape: Shape, batches: Sequence[int], lengths: Sequence[int]) -> None:
    """B3.1 at all pairs of batch and length."""
    from transformer_ledger.executed import count

    spec = teaching(shape)
    kinds, whole = count.Kinds(spec), count.full_depth(spec)
    L, d, f, V = (shape[name] for name in ("layers", "d_model", "d_ff", "vocabulary"))
    named = {component for components in PARTS.values() for component in components}
    scores = whole.get_submodule("layers.0.attention.scores")
    product = scores.forward

    def counted(runs: int = 1) -> int:
        """FLOPs of a forward pass whose first layer computes its scores so many times."""

        def again(left: Any, right: Any) -> Any:
            out = left.new_empty(*left.shape[:-1], right.shape[-1])
            for _ in range(runs):
                out = product(left, right)
            return out

        with mock.patch.object(scores, "forward", again):
            return count.forward_flops(partial(whole, count.token_ids(whole, B, T)))

    for B, T in itertools.product(batches, lengths):
        found = count.forward_backward(kinds, B, T)[0]
        last = (batches[-1], lengths[-1]) == (B, T)
        here = proof.of("B3.1", unit="FLOP", batch=B, length=T)
        printed = printed_terms(B, T, d, f, V, L)
        for part, wanted in printed.items():
            here.equal(f"FLOPs of {part}", sum(found[component] for component in PARTS[part]), wanted,
                       headline=last and part != "head", key=part.split(" ")[0].split("-")[0] if last else None)  # fmt: skip
        rest = sum(flops for component, flops in found.items() if component not in named)
        here.equal("FLOPs of softmax, GELU, norms, biases, embeddings", rest, 0, against=routes.TEXT)
        for change, runs in (
            ("the scores of one layer are not computed", 0),
            ("the scores of one layer are computed twice", 2),
        ):
            here.control(change, "FLOPs", counted, {"runs": runs}, exactly(sum(printed.values())))


def _growth(proof: Evidence, shape: Shape, batches: Sequence[int], lengths: Sequence[int]) -> None:
    """B3.3 between the first and the second length, and between the first and the second batch."""
    from transformer_ledger.executed import count

    kinds = count.Kinds(teaching(shape))

    @cache
    def counted(batch: int, length: int, phase: str) -> Any:
        one = phase == "one token"
        return count.decode(kinds, batch, length) if one else count.forward_backward(kinds, batch, length)[0]

    def growth(part: str, to: dict[str, int], phase: str = "whole input") -> Fraction:
        """Growth of a part's FLOPs from the first batch and length; with `phase` "one token" the rest is in a cache."""
        start = {"batch": batches[0], "length": lengths[0]}
        ends = (counted(**sizes, phase=phase) for sizes in (start | to, start))
        return Fraction(*(sum(found[component] for component in PARTS[part]) for found in ends))

    for name, sizes in (("length", lengths), ("batch", batches)):
        times, here = (
            sizes[1] // sizes[0],
            proof.of("B3.3", against=routes.TEXT, tried=f"{name} × {sizes[1] // sizes[0]}"),
        )
        for part in PARTS:
            wanted = times**2 if (name, part) == ("length", "scores and values") else times
            key = f"{name}_{part.split(' ')[0].split('-')[0]}"
            here.equal(f"growth of {part}", growth(part, {name: sizes[1]}), wanted, key=key,
                       headline=name == "length" and part in ("projections", "scores and values"))  # fmt: skip
            here.control(
                f"the {name} is not doubled",
                f"growth of {part}",
                partial(growth, part, to={name: sizes[1]}),
                {"to": {}},
                exactly(wanted),
            )
    times = lengths[1] // lengths[0]
    proof.of("B3.3").control(
        "one new token, the others in a cache", "growth of scores and values",
        partial(growth, "scores and values", {"length": lengths[1]}), {"phase": "one token"},
        exactly(times**2), exactly(times), tried=f"length × {times}", key="decode")  # fmt: skip


def _mask(proof: Evidence, shape: Shape, batch: int, lengths: Sequence[int], blocks: Sequence[int]) -> None:
    """B3.2: the executed attention with its causal mask and without, and a kernel that skips hidden blocks, apart."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from transformer_ledger.executed.decoder import Attention

    spec = teaching(shape)
    own = spec.layers[0][1].attention
    with torch.device("meta"):
        attention = Attention(spec, own)
        hidden = torch.ones(max(lengths), max(lengths), dtype=torch.bool).triu(1)

    def flops(T: int, run: Callable[[Any], Any]) -> int:
        with FlopCounterMode(display=False) as counter:
            run(torch.empty(batch, own.heads, T, own.head_dim, device="meta"))
        return int(counter.get_total_flops())

    def blocked(T: int, block: int, skip: bool = False) -> int:
        """FLOPs of causal attention by blocks of queries, each against all keys or, with `skip`, those it can see."""

        def run(x: Any) -> None:
            for begin in range(0, T, block):
                keys = x[:, :, : begin + block if skip else T]
                (x[:, :, begin : begin + block] @ keys.transpose(-1, -2)).softmax(-1) @ keys

        return flops(T, run)

    for T in lengths:
        shown = lengths[-1] == T
        here = proof.of("B3.2", unit="FLOP", batch=batch, length=T)
        dense = formulas.attention_scores_and_values(B=batch, T=T, d=shape["d_model"])
        for words, masked in (("with the causal mask", True), ("without a mask", False)):
            visible = partial(lambda masked, t, s, _: hidden[:t, :s] if masked else None, masked)
            ran = flops(T, lambda x, visible=visible: attention.attend(x, x, x, 1.0, visible))  # type: ignore[misc]
            here.equal("FLOPs", ran, dense, tried=words, headline=shown, key=f"masked_{masked}" if shown else None)
        pairs = matmul_formulas.scores_causal(B=batch, T=T, h=own.heads, d_h=own.head_dim)
        pairs += matmul_formulas.values_causal(B=batch, T=T, h=own.heads, d_v=own.head_dim)
        here.equal("FLOPs", blocked(T, 1, skip=True), pairs, tried="a kernel that skips every hidden pair",
                   key="pairs" if shown else None)  # fmt: skip
        for block in blocks:
            here.control("hidden blocks of keys are skipped", "FLOPs", partial(blocked, T, block), {"skip": True},
                         exactly(dense), at_most(dense - 1), block=block,
                         key="skipped" if shown and block == blocks[-1] else None)  # fmt: skip


def compute(
    shape: Shape, batches: Sequence[int], lengths: Sequence[int], blocks: Sequence[int]
) -> list[dict[str, Any]]:
    """Rows of B3.1 to B3.3.

    `batches` and `lengths` are counted in all pairs, the second of each against the first for the growth; `blocks` are
    the block sizes of the kernel that skips, below every length.
    """
    proof = Evidence("B3.1", by=routes.COUNTER, against=routes.FORMULA)
    _symbolic(proof)
    _executed(proof, shape, batches, lengths)
    _growth(proof, shape, batches, lengths)
    _mask(proof, shape, batches[0], lengths, blocks)
    return proof.rows
