"""Bytes of keys and values for each model, workload, cache dtype and policy, held against real cache tensors.

Policies: `needed` is what attention can still read (a windowed layer keeps w positions, and so does one with chunks of
w, which reads fewer right behind the start of a chunk); `reserved` is what an engine
that allocates the full length in every layer sets aside. Where that is something else, it also shows what transformers'
two caches hold: of a window, `dynamic` keeps w − 1 positions between two steps and `static` w; of Falcon's new layout,
both keep a copy for every query head. A latent cache (DeepSeek) keeps the latent, not the heads. A quantised cache
(int4-g64) stores a position's heads side by side, in groups that do not reach over the position's end, with a scale and
a shift of 16 bits for each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from transformer_ledger.formulas import kv_cache as formulas
from transformer_ledger.formulas.shim import quotient
from transformer_ledger.formulas.text import text
from transformer_ledger.ledger.counted import Executed, Rows
from transformer_ledger.ledger.parameters import joined
from transformer_ledger.ledger.storage import BITS, row_bytes
from transformer_ledger.model import Attention, ModelSpec

POLICIES = {"needed": "ours", "reserved": "ours", "dynamic": "transformers", "static": "transformers"}
"""Policy → the implementation whose cache tensors its rows are held against."""


def policies(spec: ModelSpec) -> list[str]:
    """The policies of a model: transformers' own caches only where they hold something else than what is needed."""
    own = any(kind.attention.window or kind.attention.repeated_cache for _, kind in spec.kinds())
    return [policy for policy, implementation in POLICIES.items() if own or implementation == "ours"]


def _repeated(a: Attention, policy: str) -> bool:
    return a.repeated_cache and POLICIES[policy] == "transformers"


def layer(a: Attention, policy: str) -> tuple[Callable[..., Any], dict[str, int]]:
    """Formula of one layer's bytes, and its arguments but for B, T and b."""
    if a.latent:
        return formulas.latent, {"r_kv": a.latent.kv_rank, "d_r": a.latent.rope_dim}
    if _repeated(a, policy):
        return formulas.multi_head, {"h": a.heads, "d_h": a.head_dim, "d_v": a.head_dim}
    heads = {"h_kv": a.kv_heads, "d_h": a.head_dim}
    if a.window is None or policy == "reserved":
        return formulas.full, heads
    return formulas.windowed_between_steps if policy == "dynamic" else formulas.windowed, {"w": a.window, **heads}


def _sized(formula: Callable[..., Any], widths: tuple[Any, Any], dtype: str, **arguments: Any) -> Any:
    """A formula's bytes where a position stores its keys and its values (or latent and rotated key) in a row each.

    Each may have a type of its own: q8_0/q4_0. Where numbers share bytes or constants, b is a row's bytes over its
    numbers, and every formula is linear in b.
    """
    if (bits := BITS.get(dtype, 1)) % 8 == 0:
        return formula(b=bits // 8, **arguments)
    keys, _, values = dtype.partition("/")
    stored = row_bytes(widths[0], keys) + row_bytes(widths[1], values or keys)
    return quotient(formula(b=stored, **arguments), sum(widths))


def _layer_bytes(a: Attention, B: Any, T: Any, dtype: str, policy: str) -> Any:
    formula, arguments = layer(a, policy)
    kv = (a.heads if _repeated(a, policy) else a.kv_heads) * a.head_dim
    widths = (a.latent.kv_rank, a.latent.rope_dim) if a.latent else (kv, kv)
    return _sized(formula, widths, dtype, B=B, T=T, **arguments)


def cache_bytes(spec: ModelSpec, B: Any, T: Any, dtype: str, policy: str) -> Any:
    """Bytes of T positions of B sequences in all layers."""
    return sum(count * _layer_bytes(kind.attention, B, T, dtype, policy) for count, kind in spec.kinds())


def bytes_per_token(spec: ModelSpec, T: int, dtype: str, policy: str) -> int:
    """What the T-th position of one sequence adds to the cache; a window that is full adds nothing."""
    return cache_bytes(spec, 1, T, dtype, policy) - cache_bytes(spec, 1, T - 1, dtype, policy)


def multi_head_bytes(spec: ModelSpec, B: int, T: int, dtype: str) -> int:
    """Bytes with a key/value head for every query head and no window."""
    total = 0
    for count, kind in spec.kinds():
        a, h = kind.attention, kind.attention.heads
        d_h = a.latent.nope_dim + a.latent.rope_dim if a.latent else a.head_dim
        d_v = a.latent.value_dim if a.latent else a.head_dim
        total += count * _sized(formulas.multi_head, (h * d_h, h * d_v), dtype, B=B, T=T, h=h, d_h=d_h, d_v=d_v)
    return total


def _heads(spec: ModelSpec) -> tuple[int, int]:
    a = spec.kinds()[0][1].attention
    return (1, a.latent.kv_rank + a.latent.rope_dim) if a.latent else (a.kv_heads, a.head_dim)


def compute(
    models: dict[str, Any],
    workloads: dict[str, Any],
    cache_dtypes: list[str],
    execution: Mapping[str, Rows] | None = None,
) -> list[dict[str, Any]]:
    """Rows of the ledger: one row a model, workload, cache dtype and policy."""
    rows = []
    for name, data in models.items():
        spec = ModelSpec.from_json(data)
        kv_heads, head_dim = _heads(spec)
        executed = Executed((execution or {}).get(name, []))
        for workload, load in workloads.items():
            B, T = load["batch"], load["context"]
            if spec.context < T:
                continue
            for dtype in cache_dtypes:
                for policy in policies(spec):
                    size = cache_bytes(spec, B, T, dtype, policy)
                    kinds: dict[str, int] = {}
                    for count, kind in spec.kinds():
                        formula = text(layer(kind.attention, policy)[0])
                        kinds[formula] = kinds.get(formula, 0) + count
                    met = executed.met(size, "cache_bytes", workload, dtype, policy)
                    added = bytes_per_token(spec, T, dtype, policy)
                    grown = executed.met(B * added, "cache_bytes_added", workload, dtype, policy)
                    ratio, every = size / multi_head_bytes(spec, B, T, dtype), None
                    if met["executed"] is not None:
                        every = executed.count("cache_bytes", workload, dtype, "multi_head")
                    rows.append(
                        {
                            "model": name,
                            "workload": workload,
                            "batch": B,
                            "context": T,
                            "dtype": dtype,
                            "kv_heads": kv_heads,
                            "head_dim": head_dim,
                            "policy": policy,
                            "formula": joined([(count, formula) for formula, count in kinds.items()]),
                            "bytes_per_token": added,
                            "bytes": size,
                            "ratio_to_mha": ratio,
                            "executed_bytes": met["executed"],
                            "difference": met["difference"],
                            "bytes_per_token_difference": grown["difference"],
                            "ratio_difference": every and ratio - met["executed"] / every,
                            "met_by": met["met_by"],
                        }
                    )
    return rows
