"""B9.1: kernels of the FlashAttention kind save memory traffic; the number of arithmetic operations keeps its order.

Traffic is counted as the kernels' authors count it: a fast memory of so many bytes, and every byte that an operation
reads from, or writes to, a tensor that does not fit into it (Dao et al. 2022, arXiv:2205.14135, section 3.2). Operations
are those of the matrix products that run. Both are counted on the executed operations, not on a formula.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from transformer_ledger import routes
from transformer_ledger.evidence import Evidence, at_least, at_most, exactly
from transformer_ledger.formulas import matmul as formulas
from transformer_ledger.timing import machine
from transformer_ledger.timing.attention import PRODUCTS

METHODS = ("naive", "blocked")


def counted(run: Callable[[], Any], fast_bytes: int) -> dict[str, int]:
    """FLOPs of the products that `run` executes, its traffic, and its largest tensor, in bytes."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    found = {"traffic": 0, "largest": 0}

    class Traffic(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
            made = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
            old = {x.untyped_storage()._cdata for x in given}
            if not function._schema.is_mutable and made and all(x.untyped_storage()._cdata in old for x in made):
                return result  # a view: nothing moves
            for x in given + made:
                if x.untyped_storage().nbytes() > fast_bytes:
                    found["traffic"] += x.numel() * x.element_size()
            found["largest"] = max([found["largest"], *(x.untyped_storage().nbytes() for x in made)])
            return result

    with machine.products() as counter, Traffic():
        run()
    return {"flops": counter.get_total_flops(), **found}


def _ways(
    length: int, heads: int, head_dim: int, blocks: Any, seed: int
) -> dict[tuple[str, str, bool], Callable[[], Any]]:
    """Runs by method, direction and mask."""
    from transformer_ledger.study import attention as study

    inputs = q, k, v, _ = study.drawn(seed, heads, heads, length, head_dim, "fp32", 1.0)
    out: dict[tuple[str, str, bool], Callable[[], Any]] = {}
    for name in METHODS:
        method = study.methods(blocks)[name]
        for causal in (False, True):
            out[name, "forward", causal] = partial(method, q, k, v, causal)
            out[name, "forward and backward", causal] = partial(study.forward_backward, method, inputs, causal)
    return out


def _local(length: int, heads: int, head_dim: int, width: int, seed: int) -> Callable[[], Any]:
    """Attention that leaves pairs out: every run of `width` tokens sees itself alone."""
    from transformer_ledger.study import attention as study

    q, k, v, _ = study.drawn(seed, heads, heads, length, head_dim, "fp32", 1.0)
    cut = [x.unflatten(2, (length // width, width)).transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
    return lambda: study.naive(cut[0], cut[1], cut[2], False)


def counts(rows: Evidence, length: int, heads: int, head_dim: int, blocks: Any, fast_bytes: int, seed: int) -> None:
    """Operations and traffic at a length and at twice the length."""
    ways = {T: _ways(T, heads, head_dim, blocks, seed) for T in (length, 2 * length)}
    found = {(T, *key): counted(run, fast_bytes) for T, runs in ways.items() for key, run in runs.items()}
    plane = heads * length * length * 4
    for way, products in zip(("forward", "forward and backward"), PRODUCTS["blocked"], strict=True):
        for causal in (False, True):

            def figure(
                name: str, method: str = "blocked", T: int = length, way: str = way, causal: bool = causal
            ) -> int:
                return found[T, method, way, causal][name]

            whole = products * formulas.scores(B=1, T=length, S=length, h=heads, d_h=head_dim)
            least = products * formulas.scores_causal(B=1, T=length, h=heads, d_h=head_dim)
            here = rows.of(
                tried=f"{way}, {'causal' if causal else 'full'}", heads=heads, head_dim=head_dim, length=length
            )
            flops, shown = here.of(unit="FLOP", by=routes.COUNTER, against=routes.FORMULA), way == "forward"
            if causal:
                flops.inside(
                    "operations, between those of the causal pairs and of all pairs",
                    figure("flops"),
                    least,
                    whole,
                    leg="exact",
                )
            else:
                flops.equal(
                    "operations, compared with products of all pairs", figure("flops"), whole, products=products
                )
                ratio = Fraction(figure("flops"), figure("flops", "naive"))
                here.beyond("operations / operations of the dense form", ratio, 1, by=routes.COUNTER,
                            against="the dense form", leg="exact",
                            key="operations" if shown else None)  # fmt: skip
            bytes_ = here.of(unit="byte", by="bytes moved, counted")
            bytes_.inside("traffic", figure("traffic"), 0, figure("traffic", "naive") - 1, leg="exact", against="the dense form",
                          source="less than the dense form's", headline=causal and shown,
                          key="traffic" if causal and shown else None)  # fmt: skip
            bytes_.inside(
                "largest tensor",
                figure("largest"),
                0,
                plane // 2,
                source="half of 4·h·T² bytes",
                against=routes.FORMULA,
            )
            bytes_.control("the dense form", "largest tensor", lambda method="blocked", figure=figure: figure("largest", method),
                           {"method": "naive"}, at_most(plane // 2), at_least(plane), source="4·h·T² bytes", against=routes.FORMULA,
                           key="dense" if causal and shown else None)  # fmt: skip

    doubled(rows, found, length, heads, head_dim, fast_bytes, seed)


def doubled(rows: Evidence, found: Any, length: int, heads: int, head_dim: int, fast_bytes: int, seed: int) -> None:
    """Growth of the operations when the length doubles; `found` has what was counted at both lengths."""

    def growth(width: int | None = None) -> Fraction:
        """Operations at twice the length over those at the length; of runs of `width` tokens that see themselves alone."""
        cut = [found[T, "blocked", "forward", False] if width is None else
               counted(_local(T, heads, head_dim, width, seed), fast_bytes) for T in (length, 2 * length)]  # fmt: skip
        return Fraction(cut[1]["flops"], cut[0]["flops"])

    order = rows.of(by=routes.COUNTER, against=routes.FORMULA, heads=heads, head_dim=head_dim, length=length)
    order.equal("growth of the operations when the length doubles", growth(), 4, headline=True, key="growth")
    order.control(f"each block of {length // 4} tokens attends only to itself", "growth of the operations",
                  growth, {"width": length // 4},
                  exactly(4), exactly(2), key="local")  # fmt: skip


def bounded(rows: Evidence, small: Mapping[str, Any], blocks: Any, seed: int) -> None:
    """The blocked form gives the dense form's output within the rounding of both; blocks averaged do not."""
    import torch

    from transformer_ledger import bounds
    from transformer_ledger.model import Attention
    from transformer_ledger.reference import decoder
    from transformer_ledger.study import attention as study
    from transformer_ledger.study.classification import BlockedRunning, averaged

    h, h_kv, T, d_h = (small[name] for name in ("heads", "kv_heads", "tokens", "head_dim"))
    q, k, v, _ = study.drawn(seed, h, h_kv, T, d_h, "fp64", 1.0)
    run = BlockedRunning(bounds.UNIT_ROUNDOFF["fp64"], -(-T // blocks.keys) - 1)
    joined = [x[0].transpose(0, 1).flatten(1).numpy() for x in (q, k, v)]
    ends = np.cumsum([0, *(x.shape[1] for x in joined)])
    weights = {
        name: run.array(np.eye(int(ends[-1]))[:, a:b])
        for name, a, b in zip(("query", "key", "value"), ends, ends[1:], strict=False)
    }

    def blockwise_averages(q: Any, k: Any, v: Any, causal: bool) -> Any:
        hidden = ~torch.as_tensor(decoder.visibility(T, causal))
        wide = [x.repeat_interleave(h // h_kv, 1) for x in (k, v)]
        return averaged(blocks)(None, q, *wide, d_h**-0.5, lambda *a: hidden).unflatten(-1, (h, d_h)).transpose(1, 2)

    methods = {**study.methods(blocks), "averaged": blockwise_averages}
    for causal in (False, True):
        x, own = run.array(np.concatenate(joined, 1)), Attention(h, h_kv, d_h)
        limit = (
            2 * decoder.attention(x, weights, own, decoder.visibility(T, causal), lambda y: y, run)[0].error
        )  # (T, h·d_h)
        dense = study.naive(q, k, v, causal)

        def apart(method: str = "blocked", causal: bool = causal, dense: Any = dense) -> Any:
            return (methods[method](q, k, v, causal) - dense)[0].transpose(0, 1).flatten(1).abs().numpy()

        here = rows.of(by=routes.TORCH, against="the dense form", source="2 × running error bound", heads=h, kv_heads=h_kv,
                       head_dim=d_h, tokens=T, causal=causal)  # fmt: skip
        for name in ("blocked", "fused"):
            here.within(
                "distance from the dense form, at the output closest to its bound", apart(name), limit, tried=name
            )
        here.control("the outputs of the blocks averaged, not merged", "largest distance from the dense form",
                     lambda apart=apart, **more: apart(**more).max(), {"method": "averaged"}, at_most(limit.max()))  # fmt: skip


def compute(
    settings: Mapping[str, Any],
    heads: int,
    head_dim: int,
    length: int,
    blocks: Mapping[str, Any],
    fast_bytes: int,
    small: Mapping[str, Any],
    seed: int,
) -> list[dict[str, Any]]:
    """Rows of B9.1.

    `length`: tokens, counted there and at twice as many; `blocks`: queries and keys of a block; `fast_bytes` of the
    memory that traffic goes to and from; `small`: heads, kv_heads, tokens, head_dim and blocks of the bounded case.
    """
    import torch

    from transformer_ledger.executed.blocked_attention import Blocks

    torch.set_num_threads(1)
    rows = Evidence("B9.1", settings)
    counts(rows, length, heads, head_dim, Blocks(**blocks), fast_bytes, seed)
    bounded(rows, small, Blocks(**small["blocks"]), seed)
    return rows.rows
