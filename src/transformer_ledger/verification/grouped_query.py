"""g = h_q/h_kv query heads share one key/value head; the cache and two of the four projections shrink by it.

Claims B5.1 to B5.4. The map from query to key/value head is read off attentions that share no code: our executed
decoder's, torch's own grouped kernel (`enable_gqa`) and the NumPy reference. With one key the softmax is 1, so a query
head returns the number that its key/value head holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from transformer_ledger import routes
from transformer_ledger.evidence import Evidence, Printed, at_most, differing, exactly
from transformer_ledger.formulas import architecture as formulas
from transformer_ledger.formulas import kv_cache as cache_formulas
from transformer_ledger.model import Attention, ModelError, ModelSpec, from_architecture
from transformer_ledger.reference import decoder
from transformer_ledger.reference.arithmetic import BLAS, RUNNING, SEQUENTIAL

TEXT_MAP = {"map": {"heads": 8, "kv_heads": 2}}
TEXT_CACHE = {"cache.heads": 8, "cache.kv_heads": 2}
TEXT_PROJECTIONS = {"printed": {"heads": 8, "kv_heads": 2, "head_dim": 16}}
BOUND = "2 × running error bound of the attention, as both sides round"

Attend = Callable[[Any, Any, Any], Any]  # q (h, T, d_h), k and v (h_kv, T, d_h), float64 arrays -> (h, T, d_h)


def grouped_spec(heads: int, kv_heads: int, head_dim: int) -> ModelSpec:
    """A one-layer model with this attention."""
    sizes = {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "d_model": heads * head_dim}
    kinds = {"positions": "none", "norm": "rmsnorm", "feedforward": "gelu"}
    return from_architecture("grouped", dict.fromkeys(("layers", "d_ff", "vocabulary", "context"), 1) | sizes | kinds)


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


def _reference(run: Any, q: Any, k: Any, v: Any) -> Any:
    """The NumPy decoder's attention, its projections set to the identity."""
    h, T, d_h = q.shape
    joined = [run.array(x.swapaxes(0, 1).reshape(T, -1)) for x in (q, k, v)]
    ends = np.cumsum([0] + [part.shape[-1] for part in joined])
    weights = {
        name: run.array(np.eye(int(ends[-1]))[:, begin:end])
        for name, begin, end in zip(("query", "key", "value"), ends, ends[1:], strict=False)
    }
    own = Attention(h, k.shape[0], d_h)
    out, _ = decoder.attention(run.join(joined), weights, own, np.ones((T, T), bool), lambda y: y, run)
    return out.reshape(T, h, d_h).swapaxes(0, 1)


ATTENTIONS: dict[str, Attend] = {
    routes.MODULE: _executed,
    routes.TORCH: _fused,
    routes.BLAS: partial(_reference, BLAS),
}


def shared(attend: Attend, q: Any, k: Any, v: Any, reads: str = "groups") -> Any:
    """Attention whose query head i reads key/value head ⌊i/g⌋ (`groups`) or, with `modulo`, i mod h_kv.

    The other map is the same attention with the query heads handed over in another order.
    """
    h, h_kv = len(q), len(k)
    order = np.arange(h) if reads == "groups" else np.argsort(np.arange(h) % h_kv, kind="stable")
    out = np.empty_like(q)
    out[order] = attend(q[order], k, v)
    return out


def heads_read(attend: Attend, heads: int, kv_heads: int, head_dim: int, reads: str = "groups") -> list[int]:
    """Key/value head that each query head reads: with one key, attention returns that head's own number."""
    q, k = np.ones((heads, 1, head_dim)), np.ones((kv_heads, 1, head_dim))
    v = np.broadcast_to(np.arange(kv_heads, dtype=float)[:, None, None], k.shape).copy()
    return [int(head) for head in shared(attend, q, k, v, reads)[:, 0, 0]]


def _refused(pairs: list[tuple[int, int]], head_dim: int) -> int:
    """How many of the pairs are refused by the key's name."""
    refused = 0
    for h, h_kv in pairs:
        try:
            grouped_spec(h, h_kv, head_dim)
        except ModelError as error:
            refused += error.key == "kv_heads"
    return refused


def _map(proof: Evidence, largest: int, text: Mapping[str, int], head_dim: int) -> None:
    """B5.1: which key/value head a query head reads."""
    every = [(h, h_kv) for h in range(1, largest + 1) for h_kv in range(1, h + 1)]
    pairs = [pair for pair in every if pair[0] % pair[1] == 0]
    expected = {(h, h_kv): [formulas.key_value_head(i=i, g=h // h_kv) for i in range(h)] for h, h_kv in pairs}
    here = proof.of("B5.1", largest_heads=largest)
    for route, attend in ATTENTIONS.items():
        wrong = sum(heads_read(attend, *pair, head_dim) != wanted for pair, wanted in expected.items())
        here.equal("pairs whose map differs from ⌊i/g⌋", wrong, 0, by=route, against=routes.FORMULA, pairs=len(pairs),
                   key="pairs" if route == routes.MODULE else None)  # fmt: skip
    others = [pair for pair in every if pair not in expected]
    here.equal("pairs rejected because h_kv does not divide h_q", _refused(others, head_dim), len(others),
               by="our reader of models", against=routes.ENUMERATION)  # fmt: skip
    h, h_kv = text["heads"], text["kv_heads"]
    read = proof.of("B5.1", by=routes.MODULE, heads=h, kv_heads=h_kv)
    for i, kv in enumerate(heads_read(_executed, h, h_kv, head_dim)):
        printed = Printed(str(i * TEXT_MAP["map"]["kv_heads"] // TEXT_MAP["map"]["heads"]), TEXT_MAP)
        read.prints("key/value head read", kv, printed, head=i, headline=i in (0, h - 1), key=f"head_{i}")
    if 1 < h_kv < h:
        read.control("map i mod h_kv", "query heads that do not read head ⌊i/g⌋",
                     lambda reads="groups": sum(a != b for a, b in zip(
                         heads_read(_executed, h, h_kv, head_dim, reads), expected[h, h_kv], strict=True)),
                     {"reads": "modulo"}, exactly(0), against=routes.FORMULA, key="modulo")  # fmt: skip


def _rounded(proof: Evidence, heads: int, tokens: int, head_dim: int, seed: int) -> None:
    """B5.1 and B5.4 with drawn queries, keys and values: grouped, copied out and reference agree within a bound."""
    for h_kv in (n for n in range(1, heads + 1) if heads % n == 0):
        generator = np.random.Generator(np.random.PCG64([seed, heads, h_kv]))
        q, k, v = (generator.standard_normal((n, tokens, head_dim)) for n in (heads, h_kv, h_kv))
        bound = 2 * _reference(RUNNING, q, k, v).error.max()
        exact = _reference(SEQUENTIAL, q, k, v)
        copies = [x.repeat(heads // h_kv, 0) for x in (k, v)]
        here = proof.of(heads=heads, kv_heads=h_kv, tokens=tokens, against=routes.SEQUENTIAL, source=BOUND)

        def apart(attend: Attend, k: Any, v: Any, reads: str = "groups", q: Any = q, exact: Any = exact) -> float:
            return float(np.abs(shared(attend, q, k, v, reads) - exact).max())

        quantity = "largest difference from the reference"
        for route, attend in ((routes.MODULE, _executed), (routes.TORCH, _fused)):
            here.of("B5.1").within(quantity, apart(attend, k, v), bound, by=route)
        here.of("B5.4").within(quantity, apart(_fused, copies[0], copies[1]), bound, by=routes.TORCH, tried="heads copied out",
                               key="copied" if h_kv == heads // 4 else None)  # fmt: skip
        if h_kv < heads:
            copied = differing(_reference(SEQUENTIAL, q, *copies), exact)
            here.of("B5.4").equal("outputs whose bits differ", copied, 0, by="NumPy reference on copied heads", leg="floating",
                                  tried="heads copied out")  # fmt: skip
        if 1 < h_kv < heads:
            here.of("B5.1").control("map i mod h_kv", quantity, partial(apart, _executed, k, v), {"reads": "modulo"},
                                    at_most(bound), by=routes.MODULE)  # fmt: skip


def _bytes(proof: Evidence, batch: int, context: int, heads: int, kv_heads: int, head_dim: int) -> None:
    """B5.2 and B5.4: bytes of real tensors' storage, fp32, not of views."""
    import torch

    from transformer_ledger.executed.cache import Cache, storage_bytes

    def cached(held: int) -> Cache:
        """A cache of one layer with keys and values of `held` heads."""
        cache = Cache("fp32")
        cache.update(0, None, *(torch.zeros(batch, held, context, head_dim) for _ in range(2)))
        return cache

    def ratio(held: int = kv_heads) -> Fraction:
        return Fraction(cached(held).bytes(), cached(heads).bytes())

    def stored(copied: bool = False) -> int:
        """Bytes behind keys and values that stand once for each query head: a broadcast view, or copies."""
        kept = [parts[0][:, :, None] for parts in cached(kv_heads).kept[0]]
        views = [x.expand(batch, kv_heads, heads // kv_heads, context, head_dim) for x in kept]
        return storage_bytes([x.reshape(batch, heads, context, head_dim) if copied else x for x in views])

    small = proof.of("B5.2", by=routes.TENSORS, batch=batch, length=context, heads=heads, kv_heads=kv_heads,
                     head_dim=head_dim)  # fmt: skip
    quantity, wanted = "cache of grouped attention / cache of multi-head attention", Fraction(kv_heads, heads)
    formula = cache_formulas.ratio_to_multi_head(h_kv=Fraction(kv_heads), h=heads)
    small.prints(quantity, ratio(), Printed("1/4", TEXT_CACHE), headline=True, key="ratio")
    small.equal(quantity, ratio(), formula, against=routes.FORMULA)
    size = cache_formulas.full(B=batch, T=context, h_kv=kv_heads, d_h=head_dim, b=4)
    small.equal("bytes of the cache", cached(kv_heads).bytes(), size, against=routes.FORMULA, unit="byte", key="cache")
    if kv_heads < heads:
        small.control("a copy for every query head", quantity, ratio, {"held": heads}, exactly(wanted), exactly(1),
                      against=routes.FORMULA, key="all")  # fmt: skip
    lost = small.of("B5.4", against=routes.FORMULA, unit="byte")
    g = heads // kv_heads
    lost.equal("bytes of storage", stored(), size, tried="a broadcast view", key="view")
    lost.equal("bytes of storage", stored(True), g * size, tried="copied out for one use", headline=True, key="copy")
    lost.equal("bytes of storage", cached(heads).bytes(), g * size, tried="copies kept in the cache", key="kept")
    if kv_heads < heads:
        lost.control("copied out in place of a broadcast view", "bytes of storage", stored, {"copied": True}, exactly(size),
                     exactly(g * size))  # fmt: skip


def _projections(proof: Evidence, heads: int, kv_heads: int, head_dim: int) -> None:
    """B5.3: the text's figures, against the formula and against an executed attention's tensors."""
    import torch

    from transformer_ledger.executed.decoder import Attention as Module

    d = heads * head_dim

    def counted(*names: str, kv: int = kv_heads) -> int:
        spec = grouped_spec(heads, kv, head_dim)
        with torch.device("meta"):
            module = Module(spec, spec.layers[0][1].attention)
        return sum(int(module.get_parameter(f"{name}.weight").numel()) for name in names)

    ends, middle = ("query", "output"), ("key", "value")
    here = proof.of("B5.3", by=routes.MODULE, unit="parameter", heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    found = {
        "query and output projections": (counted(*ends), "32,776", 2 * d**2, "ends"),
        "key and value projections": (counted(*middle), "81,912", 2 * d * kv_heads * head_dim, "middle"),
        "all four projections": (
            counted(*ends, *middle), "40,960", formulas.grouped_attention_parameters(d, kv_heads, head_dim), "sum",
        ),
        "multi-head attention": (
            counted(*ends, *middle, kv=heads), "65,536", formulas.attention_parameters(d), "whole",
        ),
    }  # fmt: skip
    for quantity, (number, text, formula, key) in found.items():
        here.prints(f"weights of {quantity}", number, Printed(text, TEXT_PROJECTIONS), key=key)
        here.equal(f"weights of {quantity}", number, formula, scope="corrected", against=routes.FORMULA,
                   headline=key in ("ends", "middle"))  # fmt: skip
    share = Fraction(found["all four projections"][0], found["multi-head attention"][0])
    here.prints(
        "weights / those of multi-head attention",
        share,
        Printed("5/8", TEXT_PROJECTIONS),
        unit="",
        headline=True,
        key="share",
    )
    without = here.of(tried="query and output projections", against=routes.FORMULA)
    without.control("without the output projection", "weights", lambda names=ends: counted(*names), {"names": ("query",)},
                    exactly(2 * d**2))  # fmt: skip
    if kv_heads < heads:
        here.control("one key/value head for each query head", "weights of key and value projections",
                     partial(counted, *middle), {"kv": heads}, exactly(2 * d * kv_heads * head_dim),
                     against=routes.FORMULA, key="all_heads")  # fmt: skip


def compute(
    settings: Mapping[str, Any],
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
    proof = Evidence("B5.1", settings, against=routes.TEXT)
    _map(proof, largest_heads, map, head_dim)
    _rounded(proof, map["heads"], tokens, head_dim, seed)
    _bytes(proof, **cache)
    _projections(proof, **printed)
    return proof.rows
