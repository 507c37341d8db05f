"""Bytes of keys and values for each model, workload, cache dtype and policy, held against real cache tensors.

Policies: `needed` is what attention can still read (a windowed layer keeps w positions, and so does one with chunks of
w, which reads fewer right behind the start of a chunk); `reserved` is what an engine
that allocates the full length in every layer sets aside. Where that is something else, it also shows what transformers'
two caches hold: of a window, `dynamic` keeps w − 1 positions between two steps and `static` w; of Falcon's new layout,
both keep a copy for every query head. A latent cache (DeepSeek) keeps the latent, not the heads, and all positions'
indexer keys, where only some are chosen. A quantised cache
(int4-g64) stores a position's heads side by side, in groups that do not reach over the position's end, with a scale and
a shift of 16 bits for each.

A layer with a fixed state (Gated DeltaNet, Kimi Delta Attention, Mamba-2) keeps the last inputs of its convolution and its heads'
states, as many bytes at any length; every policy holds them, and `state` says how much of it they are. The state is kept in fp32, as
transformers and engines do it, the convolution's inputs in the cache's type, or in 16 bits where that is narrower.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transformer_ledger.formulas import kv_cache as formulas
from transformer_ledger.formulas.shim import quotient
from transformer_ledger.formulas.text import text
from transformer_ledger.ledger.counted import Executed, Rows
from transformer_ledger.ledger.parameters import joined, sizes
from transformer_ledger.ledger.storage import BITS, row_bytes
from transformer_ledger.model import Attention, FixedState, ModelSpec

POLICIES = {"needed": "ours", "reserved": "ours", "dynamic": "transformers", "static": "transformers", "state": "ours"}
"""Policy → the implementation whose cache tensors its rows are held against; the last is a part of all others."""


def policies(spec: ModelSpec) -> list[str]:
    """The policies of a model: transformers' own caches only where they hold something else than what is needed."""
    own = {"transformers": any(a.window or a.repeated_cache for _, a in spec.attentions()), "ours": True}
    state = bool(spec.states())
    return [policy for policy, by in POLICIES.items() if own[by] and (policy != "state" or state)]


def _repeated(a: Attention, policy: str) -> bool:
    return a.repeated_cache and POLICIES[policy] == "transformers"


def layer(a: Attention, policy: str) -> tuple[Callable[..., Any], dict[str, int]]:
    """Formula of one layer's bytes, and its arguments but for B, T and b."""
    if a.latent:
        widths = dict(zip(("r_kv", "d_r", "d_i"), a.latent.cached, strict=False))
        return formulas.latent_indexed if a.indexer else formulas.latent, widths
    if _repeated(a, policy):
        return formulas.multi_head, {"h": a.heads, "d_h": a.head_dim, "d_v": a.head_dim}
    heads = {"h_kv": a.kv_heads, "d_h": a.head_dim}
    if a.window is None or policy == "reserved":
        return formulas.full, heads
    return formulas.windowed_between_steps if policy == "dynamic" else formulas.windowed, {"w": a.window, **heads}


def _sized(formula: Callable[..., Any], widths: Sequence[Any], dtype: str, **arguments: Any) -> Any:
    """A formula's bytes where a position stores its keys and its values (or latent, rotated key, index key) in a row each.

    Each may have a type of its own: q8_0/q4_0. Where numbers share bytes or constants, b is a row's bytes over its
    numbers, and every formula is linear in b.
    """
    if (bits := BITS.get(dtype, 1)) % 8 == 0:
        return formula(b=bits // 8, **arguments)
    keys, _, values = dtype.partition("/")
    stored = row_bytes(widths[0], keys) + sum(row_bytes(width, values or keys) for width in widths[1:])
    return quotient(formula(b=stored, **arguments), sum(widths))


def state_layer(own: FixedState) -> tuple[Callable[..., Any], dict[str, int]]:
    """Formula of one layer's fixed state, and its arguments but for B and b."""
    return formulas.fixed_state, {**sizes(own), "K": own.kernel}


def state_bytes(spec: ModelSpec, B: Any, dtype: str) -> Any:
    """Bytes of the fixed states of B sequences in all layers, whatever their length."""
    b = max(2, BITS.get(dtype.partition("/")[0], 0) // 8)
    made = ((count, *state_layer(own)) for count, own in spec.states())
    return sum(count * formula(B=B, b=b, **arguments) for count, formula, arguments in made)


def _layer_bytes(a: Attention, B: Any, T: Any, dtype: str, policy: str) -> Any:
    formula, arguments = layer(a, policy)
    kv = (a.heads if _repeated(a, policy) else a.kv_heads) * a.head_dim
    widths = a.latent.cached if a.latent else (kv, kv)
    return _sized(formula, widths, dtype, B=B, T=T, **arguments)


def cache_bytes(spec: ModelSpec, B: Any, T: Any, dtype: str, policy: str) -> Any:
    """Bytes of T positions of B sequences in all layers, fixed states included; of the policy `state`, these alone."""
    grown = () if policy == "state" else spec.attentions()
    return sum(count * _layer_bytes(a, B, T, dtype, policy) for count, a in grown) + state_bytes(spec, B, dtype)


def bytes_per_token(spec: ModelSpec, T: int, dtype: str, policy: str) -> int:
    """What the T-th position of one sequence adds; a full window adds nothing, nor does a state after the first."""
    before = cache_bytes(spec, 1, T - 1, dtype, policy) if T > 1 else 0
    return cache_bytes(spec, 1, T, dtype, policy) - before


def multi_head_bytes(spec: ModelSpec, B: int, T: int, dtype: str) -> int:
    """Bytes of keys and values with a head for every query head and no window, without fixed states."""
    total = 0
    for count, a in spec.attentions():
        h = a.heads
        d_h = a.latent.nope_dim + a.latent.rope_dim if a.latent else a.head_dim
        d_v = a.latent.value_dim if a.latent else a.head_dim
        total += count * _sized(formulas.multi_head, (h * d_h, h * d_v), dtype, B=B, T=T, h=h, d_h=d_h, d_v=d_v)
    return total


def _heads(spec: ModelSpec) -> tuple[int, int]:
    a = next((a for _, a in spec.attentions()), None)
    if a is None:
        return 0, 0
    return (1, sum(a.latent.cached)) if a.latent else (a.kv_heads, a.head_dim)


def _formula(spec: ModelSpec, policy: str) -> str:
    """Text of the layers' formulas, each with the number of layers."""
    grown = [] if policy == "state" else [(count, layer(a, policy)[0]) for count, a in spec.attentions()]
    kinds: dict[str, int] = {}
    for count, formula in grown + [(count, state_layer(own)[0]) for count, own in spec.states()]:
        kinds[text(formula)] = kinds.get(text(formula), 0) + count
    return joined([(count, formula) for formula, count in kinds.items()])


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
                    met = executed.met(size, "cache_bytes", workload, dtype, policy)
                    added = bytes_per_token(spec, T, dtype, policy)
                    grown = executed.met(B * added, "cache_bytes_added", workload, dtype, policy)
                    heads, every = multi_head_bytes(spec, B, T, dtype), None
                    ratio = size / heads if heads else None
                    if ratio and met["executed"] is not None:
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
                            "formula": _formula(spec, policy),
                            "bytes_per_token": added,
                            "bytes": size,
                            "ratio_to_mha": ratio,
                            "executed_bytes": met["executed"],
                            "difference": met["difference"],
                            "bytes_per_token_difference": grown["difference"],
                            "ratio_difference": ratio and every and ratio - met["executed"] / every,
                            "met_by": met["met_by"],
                        }
                    )
    return rows
