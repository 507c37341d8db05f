"""B9.1: kernels of the FlashAttention kind save memory traffic; the number of arithmetic operations keeps its order.

Traffic is counted as the kernels' authors count it: a fast memory of so many bytes, and every byte that an operation
reads from, or writes to, a tensor that does not fit into it (Dao et al. 2022, arXiv:2205.14135, section 3.2). Operations
are those of the matrix products that run. Both are counted on the executed operations, not on a formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from transformer_ledger.cases import case
from transformer_ledger.formulas import matmul as formulas
from transformer_ledger.timing.attention import PRODUCTS

FAR = 100
METHODS = ("naive", "blocked")


def counted(run: Callable[[], Any], fast_bytes: int) -> dict[str, int]:
    """FLOPs of the products that `run` executes, its traffic, and its largest tensor, in bytes."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import FlopCounterMode

    # An in-place product counts as nothing, silently, unless it is named.
    in_place = {torch.ops.aten.baddbmm_: lambda total, left, right, **more: 2 * math.prod(left) * right[2]}
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

    with FlopCounterMode(display=False, custom_mapping=in_place) as counter, Traffic():
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


def _count_rows(
    length: int, heads: int, head_dim: int, blocks: Any, fast_bytes: int, seed: int
) -> list[dict[str, Any]]:
    """Operations and traffic at a length and at twice the length."""
    found = {
        (T, *key): counted(run, fast_bytes)
        for T in (length, 2 * length)
        for key, run in _ways(T, heads, head_dim, blocks, seed).items()
    }
    where = f"{heads} heads of {head_dim}, T {length}"
    rows = []
    for way, products in zip(("forward", "forward and backward"), PRODUCTS["blocked"], strict=True):
        for causal in (False, True):
            mask = "causal" if causal else "full"
            dense, cut = (found[length, method, way, causal] for method in METHODS)
            twice = found[2 * length, "blocked", way, causal]
            whole = products * formulas.scores(B=1, T=length, S=length, h=heads, d_h=head_dim)
            least = products * formulas.scores_causal(B=1, T=length, h=heads, d_h=head_dim)
            named: dict[str, Any] = {"backend": "torch", "unit": "FLOP"}
            if causal:
                rows.append(
                    case("B9.1", f"blocked, {way}, {mask}, {where}", "exact", "operations, against the causal pairs' and all pairs'",
                         cut["flops"], "in", (least, whole), **named)
                )  # fmt: skip
            else:
                rows += [
                    case("B9.1", f"blocked, {way}, {mask}, {where}", "exact", f"operations, against {products} products of all pairs",
                         cut["flops"], "==", whole, **named),
                    case("B9.1", f"blocked, {way}, {mask}, {where}", "exact", "operations, against the dense form's", cut["flops"],
                         ">=", dense["flops"], **named),
                    case("B9.1", f"blocked, {way}, {mask}, {where} and twice that", "exact", "growth of the operations",
                         Fraction(twice["flops"], cut["flops"]), "==", 4, headline=way == "forward", **{**named, "unit": ""}),
                ]  # fmt: skip
            rows += [
                case("B9.1", f"blocked, {way}, {mask}, {where}", "exact",
                     f"traffic, where the dense form's is {dense['traffic']:,} bytes", cut["traffic"], "<=",
                     dense["traffic"] - 1, bound_source="less than the dense form's", unit="byte", backend="torch",
                     headline=causal and way == "forward"),
                case("B9.1", f"blocked, {way}, {mask}, {where}", "exact", "largest tensor, against the plane of scores",
                     cut["largest"], "<=", heads * length * length * 4 // 2, bound_source="half of 4·h·T² bytes", unit="byte",
                     backend="torch"),
            ]  # fmt: skip
    dense = found[length, "naive", "forward", True]
    rows.append(
        case("B9.1", f"dense, forward, causal, {where}", "control", "largest tensor, against the plane of scores", dense["largest"],
             ">=", heads * length * length * 4, unit="byte", backend="torch")
    )  # fmt: skip
    width = length // 4
    local = [counted(_local(T, heads, head_dim, width, seed), fast_bytes)["flops"] for T in (length, 2 * length)]
    rows.append(
        case("B9.1", f"every run of {width} tokens by itself, {where} and twice that", "control", "growth of the operations",
             Fraction(local[1], local[0]), "==", 2, backend="torch")
    )  # fmt: skip
    return rows


def _bound_rows(small: Mapping[str, Any], blocks: Any, seed: int) -> list[dict[str, Any]]:
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
    rows = []
    for causal in (False, True):
        visible = decoder.visibility(T, causal)
        own = Attention(h, h_kv, d_h)
        x = run.array(np.concatenate(joined, 1))
        bound = decoder.attention(x, weights, own, visible, lambda y: y, run)[0].error  # (T, h·d_h)
        dense = study.naive(q, k, v, causal)
        where = f"{h} heads of {d_h} over {h_kv}, T {T}, {'causal' if causal else 'full'}, fp64"
        for name in ("blocked", "fused"):
            apart = (study.methods(blocks)[name](q, k, v, causal) - dense)[0].transpose(0, 1).flatten(1)
            moved, most = bounds.nearest(apart.numpy(), 2 * bound)
            rows.append(
                case("B9.1", f"{name}, {where}", "floating", "output nearest to its bound: distance from the dense form", moved, "<=",
                     most, bound_source="2 × running error bound", backend="torch")
            )  # fmt: skip
    hidden = ~torch.as_tensor(visible)
    g = h // h_kv
    wrong = averaged(blocks)(
        None, q, k.repeat_interleave(g, 1), v.repeat_interleave(g, 1), d_h**-0.5, lambda *a: hidden
    )
    off = (wrong[0] - dense[0].transpose(0, 1).flatten(1)).abs().numpy()
    rows.append(
        case("B9.1", f"blocks averaged, not merged, {where}", "control", "largest distance from the dense form", off.max(), ">=",
             FAR * 2 * bound.max(), bound_source=f"{FAR} × 2 × running error bound", backend="torch")
    )  # fmt: skip
    return rows


def compute(
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
    rows = _count_rows(length, heads, head_dim, Blocks(**blocks), fast_bytes, seed)
    return rows + _bound_rows(small, Blocks(**small["blocks"]), seed)
