"""B5: g = h_q/h_kv query heads share one key/value head; the cache and two of the four projections shrink by it.

The map from query to key/value head is read off three attentions that share no code: our executed decoder's, torch's
own grouped kernel (`enable_gqa`) and the NumPy reference. With one key the softmax is 1, so a query head returns the
number that its key/value head holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from transformer_ledger.cases import case, differing
from transformer_ledger.formulas import architecture as formulas
from transformer_ledger.formulas import kv_cache as cache_formulas
from transformer_ledger.model import Attention, ModelError, ModelSpec, from_architecture
from transformer_ledger.reference import decoder
from transformer_ledger.reference.arithmetic import BLAS, RUNNING, SEQUENTIAL

TEXT_MAP = {"heads": 8, "kv_heads": 2}
TEXT_PROJECTIONS = {"heads": 8, "kv_heads": 2, "head_dim": 16}
PRINTED_QUERY_AND_OUTPUT = 32776
PRINTED_KEY_AND_VALUE = 81912
PRINTED_SUM, PRINTED_MULTI_HEAD, PRINTED_RATIO = 40960, 65536, Fraction(5, 8)

Attend = Callable[[Any, Any, Any], Any]  # q (h, T, d_h), k and v (h_kv, T, d_h), float64 arrays -> (h, T, d_h)


def grouped_spec(heads: int, kv_heads: int, head_dim: int) -> ModelSpec:
    """A one-layer model with this attention."""
    return from_architecture(
        "grouped",
        {
            "layers": 1,
            "d_model": heads * head_dim,
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": head_dim,
            "d_ff": 1,
            "vocabulary": 1,
            "context": 1,
            "positions": "none",
            "norm": "rmsnorm",
            "feedforward": "gelu",
        },
    )


def _executed(q: Any, k: Any, v: Any) -> Any:
    """Our executed decoder's attention: the heads of a group share one product."""
    import torch

    from transformer_ledger.executed.decoder import Attention as Module

    spec = grouped_spec(q.shape[0], k.shape[0], q.shape[-1])
    with torch.device("meta"):
        module = Module(spec, spec.layers[0][1].attention)
    q, k, v = (torch.from_numpy(x)[None] for x in (q, k, v))
    out = module.attend(q, k, v, q.shape[-1] ** -0.5, lambda T, S, window: None)
    return out.unflatten(-1, (q.shape[1], -1)).transpose(1, 2)[0].numpy()


def _fused(q: Any, k: Any, v: Any) -> Any:
    """torch's scaled_dot_product_attention with its own grouping."""
    import torch

    q, k, v = (torch.from_numpy(x)[None] for x in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)[0].numpy()


def _expanded(q: Any, k: Any, v: Any) -> Any:
    """torch's kernel on key/value heads that are copied out to every query head first."""
    import torch

    g = q.shape[0] // k.shape[0]
    q, k, v = (torch.from_numpy(x)[None] for x in (q, k.repeat(g, 0), v.repeat(g, 0)))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)[0].numpy()


def _reference(run: Any, kv_of: Any = None) -> Attend:
    """The NumPy decoder's attention, its projections set to the identity; `kv_of` reorders the key/value heads."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        h, T, d_h = q.shape
        if kv_of is not None:
            k, v = k[kv_of], v[kv_of]
        joined = [run.array(x.swapaxes(0, 1).reshape(T, -1)) for x in (q, k, v)]
        x = run.join(joined)
        ends = np.cumsum([0] + [part.shape[-1] for part in joined])
        weights = {
            name: run.array(np.eye(int(ends[-1]))[:, begin:end])
            for name, begin, end in zip(("query", "key", "value"), ends, ends[1:], strict=False)
        }
        own = Attention(h, k.shape[0], d_h)
        out, _ = decoder.attention(x, weights, own, np.ones((T, T), bool), lambda y: y, run)
        return out.reshape(T, h, d_h).swapaxes(0, 1)

    return attend


ATTENTIONS: dict[str, Attend] = {
    "our executed attention": _executed,
    "torch's grouped kernel": _fused,
    "torch on expanded heads": _expanded,
    "the NumPy reference": _reference(BLAS),
}


def heads_read(attend: Attend, heads: int, kv_heads: int, head_dim: int) -> list[int]:
    """Key/value head that each query head reads: with one key, attention returns that head's own number."""
    q, k = np.ones((heads, 1, head_dim)), np.ones((kv_heads, 1, head_dim))
    v = np.broadcast_to(np.arange(kv_heads, dtype=float)[:, None, None], k.shape).copy()
    return [int(head) for head in attend(q, k, v)[:, 0, 0]]


def divisor_pairs(largest: int) -> list[tuple[int, int]]:
    """(h_q, h_kv) with h_kv dividing h_q, up to `largest` query heads."""
    return [(h, h_kv) for h in range(1, largest + 1) for h_kv in range(1, h + 1) if h % h_kv == 0]


def _refused(largest: int, head_dim: int) -> tuple[int, int]:
    """Pairs where h_kv does not divide h_q, and how many of them are refused by the key's name."""
    pairs = [(h, h_kv) for h in range(1, largest + 1) for h_kv in range(1, h + 1) if h % h_kv]
    refused = 0
    for h, h_kv in pairs:
        try:
            grouped_spec(h, h_kv, head_dim)
        except ModelError as error:
            refused += error.key == "kv_heads"
    return len(pairs), refused


def _map_rows(largest: int, text: Mapping[str, int], head_dim: int) -> list[dict[str, Any]]:
    pairs = divisor_pairs(largest)
    rows = []
    for name, attend in ATTENTIONS.items():
        wrong = 0
        for h, h_kv in pairs:
            wanted = [formulas.key_value_head(i=i, g=h // h_kv) for i in range(h)]
            wrong += heads_read(attend, h, h_kv, head_dim) != wanted
        rows.append(
            case(
                "B5.1",
                f"{name}, all {len(pairs)} pairs up to {largest} heads",
                "exact",
                "pairs with another map than ⌊i/g⌋",
                wrong,
                "==",
                0,
                backend="blas" if "NumPy" in name else "torch",
            )
        )
    h, h_kv = text["heads"], text["kv_heads"]
    found = heads_read(_executed, h, h_kv, head_dim)
    for kv in range(h_kv):
        wanted = [i for i in range(h) if formulas.key_value_head(i=i, g=h // h_kv) == kv]
        rows.append(
            case(
                "B5.1",
                f"{h} query heads over {h_kv}: heads {wanted[0]} to {wanted[-1]}",
                "exact",
                f"of them that read key/value head {kv}",
                sum(found[i] == kv for i in wanted),
                "==",
                len(wanted),
                backend="torch",
                printed=f"{kv}",
                applicable=dict(text) == TEXT_MAP,
                headline=True,
            )
        )
    modulo = sum([i % h_kv for i in range(h)] != heads_read(_executed, h, h_kv, head_dim) for h, h_kv in pairs)
    rows.append(
        case(
            "B5.1",
            f"map i mod h_kv, all {len(pairs)} pairs up to {largest} heads",
            "control",
            "pairs with another map",
            modulo,
            ">=",
            1,
            backend="torch",
        )
    )
    tried, refused = _refused(largest, head_dim)
    rows.append(
        case(
            "B5.1",
            f"{tried} pairs whose h_kv does not divide h_q",
            "exact",
            "pairs refused, kv_heads named",
            refused,
            "==",
            tried,
        )
    )
    return rows


def _rounded_rows(heads: int, tokens: int, head_dim: int, seed: int) -> list[dict[str, Any]]:
    """B5.1 and B5.4 with drawn queries, keys and values: grouped, expanded and reference agree within a bound."""
    rows = []
    for h, h_kv in divisor_pairs(heads):
        if h != heads:
            continue
        generator = np.random.Generator(np.random.PCG64([seed, h, h_kv]))
        q, k, v = (generator.standard_normal((n, tokens, head_dim)) for n in (h, h_kv, h_kv))
        bound = _reference(RUNNING)(q, k, v).error
        exactly = _reference(SEQUENTIAL)(q, k, v)
        where = f"{h} query heads over {h_kv}, {tokens} tokens"
        # Both sides round: each is within the bound of exact arithmetic.
        for claim, name, attend in (
            ("B5.1", "our executed attention", _executed),
            ("B5.1", "torch's grouped kernel", _fused),
            ("B5.4", "heads copied out", _expanded),
        ):
            rows.append(
                case(
                    claim,
                    f"{name}, {where}",
                    "floating",
                    "largest difference from the reference",
                    np.abs(attend(q, k, v) - exactly).max(),
                    "<=",
                    2 * bound.max(),
                    bound_source="2 × running error bound of the attention",
                    backend="torch",
                )
            )
        if h_kv < h:
            copied = _reference(SEQUENTIAL, np.arange(h) * h_kv // h)(q, k, v)
            rows.append(
                case(
                    "B5.4",
                    f"heads copied out, {where}",
                    "exact",
                    "outputs whose bits differ",
                    differing(copied, exactly),
                    "bitwise",
                    0,
                    backend="sequential",
                )
            )
        if 1 < h_kv < h:
            modulo = _reference(SEQUENTIAL, np.arange(h) % h_kv)(q, k, v)
            rows.append(
                case(
                    "B5.1",
                    f"map i mod h_kv, {where}",
                    "control",
                    "largest difference from the reference",
                    np.abs(modulo - exactly).max(),
                    ">=",
                    200 * bound.max(),
                    bound_source="100 × both bounds",
                    backend="sequential",
                )
            )
    return rows


def _cached(batch: int, context: int, heads: int, head_dim: int) -> tuple[Any, int]:
    """A real fp32 cache of one layer, and its bytes of storage."""
    import torch

    from transformer_ledger.executed.cache import Cache

    cache = Cache("fp32")
    new = [torch.zeros(batch, heads, context, head_dim) for _ in range(2)]
    cache.update(0, None, *new)
    return cache, cache.bytes()


def _byte_rows(cache: Mapping[str, int]) -> list[dict[str, Any]]:
    """B5.2 and B5.4: bytes of real tensors' storage, not of views."""
    from transformer_ledger.executed.cache import storage_bytes

    B, T, h, h_kv, d_h = (cache[name] for name in ("batch", "context", "heads", "kv_heads", "head_dim"))
    kept, grouped = _cached(B, T, h_kv, d_h)
    full = _cached(B, T, h, d_h)[1]
    k, v = (parts[0] for parts in kept.kept[0])
    g = h // h_kv
    views = [x[:, :, None].expand(B, h_kv, g, T, d_h) for x in (k, v)]
    copies = [view.reshape(B, h, T, d_h) for view in views]
    where = f"{h} and {h_kv} heads of {d_h}, {B} sequences of {T}, fp32"
    formula = cache_formulas.full(B=B, T=T, h_kv=h_kv, d_h=d_h, b=4)

    def row(
        claim: str, what: str, leg: str, quantity: str, measured: Any, expected: Any, **more: Any
    ) -> dict[str, Any]:
        return case(claim, f"{what}, {where}", leg, quantity, measured, "==", expected, backend="torch", **more)

    text_ratio = (h, h_kv) == (8, 2)
    return [
        row(
            "B5.2",
            "cache of h_kv heads against one of h_q",
            "exact",
            "cache of grouped over multi-head attention",
            Fraction(grouped, full),
            Fraction(1, 4),
            printed="1/4",
            applicable=text_ratio,
            headline=True,
        ),
        row(
            "B5.2",
            "cache of h_kv heads against one of h_q",
            "exact",
            "ratio, against h_kv/h_q",
            Fraction(grouped, full),
            cache_formulas.ratio_to_multi_head(h_kv=Fraction(h_kv), h=h),
        ),
        row("B5.2", "real cache tensors", "exact", "bytes", grouped, formula, unit="byte"),
        row(
            "B5.2",
            "as many key/value heads as query heads",
            "control",
            "ratio",
            Fraction(_cached(B, T, h, d_h)[1], full),
            1,
        ),
        row("B5.4", "broadcast view", "exact", "bytes of storage", storage_bytes(views), formula, unit="byte"),
        row(
            "B5.4",
            "heads copied out for one use",
            "exact",
            "bytes of storage",
            storage_bytes(copies),
            g * formula,
            unit="byte",
            headline=True,
        ),
        row("B5.4", "copied-out heads kept in the cache", "exact", "bytes of storage", full, g * formula, unit="byte"),
        row(
            "B5.4",
            "broadcast in place of a copy",
            "control",
            "bytes lost",
            storage_bytes(views) - grouped,
            0,
            unit="byte",
        ),
    ]


def _projection_rows(text: Mapping[str, int]) -> list[dict[str, Any]]:
    """B5.3: the text's arithmetic, against the formula and against an executed attention's tensors."""
    import sympy
    import torch

    from transformer_ledger.executed.decoder import Attention as Module

    h, h_kv, d_h = (text[name] for name in ("heads", "kv_heads", "head_dim"))
    d = h * d_h

    def counted(kv_heads: int) -> tuple[int, int]:
        spec = grouped_spec(h, kv_heads, d_h)
        with torch.device("meta"):
            module = Module(spec, spec.layers[0][1].attention)
        sizes = {name: parameter.numel() for name, parameter in module.named_parameters()}
        return (
            sizes["query.weight"] + sizes["output.weight"],
            sizes["key.weight"] + sizes["value.weight"],
        )

    query_output, key_value = counted(h_kv)
    whole = sum(counted(h))
    grouped = formulas.grouped_attention_parameters(d=d, h_kv=h_kv, d_h=d_h)
    where = f"d {d}, {h} and {h_kv} heads of {d_h}"
    applicable = dict(text) == TEXT_PROJECTIONS

    def row(quantity: str, measured: Any, expected: Any, scope: str, leg: str = "exact", **more: Any) -> dict[str, Any]:
        return case("B5.3", where, leg, quantity, measured, "==", expected, scope=scope, backend="torch", **more)

    weights = {"unit": "parameter"}
    d_, kv_, w_ = sympy.symbols("d h_kv d_h", positive=True)
    split = formulas.grouped_attention_parameters(d=d_, h_kv=kv_, d_h=w_)
    return [
        row(
            "weights of query and output projections",
            query_output,
            PRINTED_QUERY_AND_OUTPUT,
            "stated",
            printed="32,776",
            applicable=applicable,
            **weights,
        ),
        row(
            "weights of key and value projections",
            key_value,
            PRINTED_KEY_AND_VALUE,
            "stated",
            printed="81,912",
            applicable=applicable,
            **weights,
        ),
        row(
            "weights of all four",
            query_output + key_value,
            PRINTED_SUM,
            "stated",
            printed="40,960",
            applicable=applicable,
            **weights,
        ),
        row(
            "weights of multi-head attention",
            whole,
            PRINTED_MULTI_HEAD,
            "stated",
            printed="65,536",
            applicable=applicable,
            **weights,
        ),
        row(
            "share of multi-head attention",
            Fraction(query_output + key_value, whole),
            PRINTED_RATIO,
            "stated",
            printed="5/8",
            applicable=applicable,
            headline=True,
        ),
        row(
            "query and output projections",
            query_output,
            int(split.coeff(kv_, 0).subs(d_, d)),
            "corrected",
            headline=True,
            **weights,
        ),
        row(
            "key and value projections",
            key_value,
            int(split.coeff(kv_, 1).subs({d_: d, w_: d_h}) * h_kv),
            "corrected",
            headline=True,
            **weights,
        ),
        row("all four, against 2d² + 2d·h_kv·d_h", query_output + key_value, grouped, "corrected", **weights),
        row(
            "as many key/value heads as query heads: saved",
            whole - formulas.attention_parameters(d=d),
            0,
            "stated",
            "control",
            **weights,
        ),
    ]


def compute(
    largest_heads: int,
    map: Mapping[str, int],
    printed: Mapping[str, int],
    tokens: int,
    head_dim: int,
    cache: Mapping[str, int],
    seed: int,
) -> list[dict[str, Any]]:
    """Rows of B5.1 to B5.4.

    `map`: heads and kv_heads of the text's map, run with drawn numbers too; `printed`: heads, kv_heads and head_dim
    of the text's projections; `tokens` and `head_dim` of the executed attentions; `cache`: batch, context,
    heads, kv_heads and head_dim of the real caches.
    """
    import torch

    torch.set_num_threads(1)
    return (
        _map_rows(largest_heads, map, head_dim)
        + _rounded_rows(map["heads"], tokens, head_dim, seed)
        + _byte_rows(cache)
        + _projection_rows(printed)
    )
