"""The second route to `conventions`: each rule applied to what the executed model counted, in place of closed forms.

One function a convention takes the counts of a model and gives the number, or None where nothing counted it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from transformer_ledger.ledger.counted import MODULE, TRANSFORMERS, Executed
from transformer_ledger.ledger.matmul import visible_pairs
from transformer_ledger.model import Attention, ModelSpec

TABLES = ("token_embedding", "position_embedding")
PAIRS = ("attention.scores", "attention.values")
INDEX_PAIRS = ("attention.indexer.scores", "attention.indexer.sum")
PER_HEAD = ("attention.query", "attention.gate", "attention.key", "attention.value", "attention.output")


class Missing(Exception):
    """A count that nothing made."""


class Counts:
    """Executed counts of one model at one workload, by component; missing ones raise Missing."""

    def __init__(self, spec: ModelSpec, executed: Executed, workload: str | None, B: int, T: int):
        self.spec, self.executed, self.workload, self.B, self.T = spec, executed, workload or "", B, T
        self.depth, self.d = spec.depth, spec.d_model

    def _sum(self, quantity: str, phase: str, components: tuple[str, ...]) -> int:
        workload = self.workload if phase else ""
        total = self.executed.count(quantity, workload, phase)
        if total is None:
            raise Missing
        if not components:
            return int(total)
        keys = ("", "weight", "bias")
        counted = (
            self.executed.count(quantity, workload, phase, component, part) for component in components for part in keys
        )
        return sum(int(found) for found in counted if found is not None)

    def p(self, *components: str) -> int:
        """Parameters of some components, or of all."""
        return self._sum("parameters", "", components)

    def active(self, *components: str) -> int:
        """The same of those that one token uses."""
        return self._sum("active_parameters", "", components)

    def f(self, *components: str, phase: str = "prefill") -> int:
        """FLOPs of some components, or of all."""
        return self._sum("flops", phase, components)

    def cache(self, policy: str) -> int:
        """Bytes of a cache in bf16."""
        found = self.executed.count("cache_bytes", self.workload, "bf16", policy)
        if found is None:
            raise Missing
        return int(found)

    def state(self) -> int:
        """Bytes of it that do not grow; 0 of a model without fixed states."""
        return int(self.executed.count("cache_bytes", self.workload, "bf16", "state") or 0)

    def share_of_pairs(self, keys: Callable[[Attention], Fraction | int]) -> Fraction:
        """Share of scores and values that is left where `keys` says how many pairs a layer with that attention has."""
        kinds = [(count * a.heads, a) for count, a in self.spec.attentions()]
        return Fraction(sum(n * keys(a) for n, a in kinds), sum(n for n, _ in kinds) * self.T**2 or 1)

    def narrow(self) -> Fraction:
        """Width d/h against the heads' own, of a model whose layers all have the same."""
        widths = {(a.heads, a.head_dim) for _, a in self.spec.attentions()}
        if len(widths) != 1 or any(a.latent for _, a in self.spec.attentions()):
            raise Missing
        ((h, d_h),) = widths
        return Fraction(self.d // h, d_h)

    def one_expert(self) -> int:
        """Numbers of one expert in every layer that has experts."""
        names = [f"feedforward.{name}" for name in ("up", "gate", "down")]
        own = {
            (kind.feedforward.experts, kind.feedforward.experts_per_token)
            for _, kind in self.spec.kinds()
            if kind.feedforward.experts
        }
        ((E, k),) = own
        if k == E:
            raise Missing
        return (self.p(*names) - self.active(*names)) // (E - k)


def _narrowed_parameters(c: Counts) -> int:
    own = c.p(*PER_HEAD) - int(c.executed.count("parameters", component="attention.output", part="bias") or 0)
    if any(a.query_key_norm != "none" for _, a in c.spec.attentions()):
        own += c.p("attention.query_norm", "attention.key_norm")
    return c.p() - own + int(own * c.narrow())


def _narrowed_flops(c: Counts, phase: str) -> int:
    own = c.f(*PER_HEAD, *PAIRS, phase=phase)
    return c.f(phase=phase) - own + int(own * c.narrow())


def _expanded_once(c: Counts) -> int:
    every = c.f("attention.key", "attention.value", phase="decode")
    return c.f(phase="decode") - every + every // c.T


def _masked(c: Counts, phase: str, keys: Callable[[Attention], Fraction | int]) -> int:
    every = c.f(*PAIRS, phase=phase)
    return c.f(phase=phase) - every + int(every * c.share_of_pairs(keys))


def _exactly(c: Counts, phase: str) -> int:
    index = c.f(*INDEX_PAIRS, phase=phase)  # whose scores the mask alone cuts, alike in all layers
    cut = index * visible_pairs(c.T, Attention(1, 1, 1)) // c.T**2
    return _masked(c, phase, lambda a: visible_pairs(c.T, a)) - index + cut


def _latent_twice(c: Counts) -> int:
    latents = {a.latent for _, a in c.spec.attentions()}
    (latent,) = latents
    assert latent is not None
    grown = c.cache("needed") - c.state()
    return grown * 2 * latent.kv_rank // sum(latent.cached) + c.state()


def _softmax(c: Counts) -> int:
    widths = {a.latent.nope_dim + a.latent.rope_dim if a.latent else a.head_dim for _, a in c.spec.attentions()}
    if len(widths) != 1:
        raise Missing
    (d_h,) = widths
    return 3 * c.f("attention.scores") // (2 * d_h)


Recount = Callable[[Counts], Any]
PARAMETERS: dict[str, Recount] = {
    "every tensor": lambda c: c.p(),
    "without input tables": lambda c: c.p() - c.p(*TABLES),
    "non-embedding": lambda c: c.p() - c.p(*TABLES, "head"),
    "without position table": lambda c: c.p() - c.p("position_embedding"),
    "tied head twice": lambda c: c.p() + c.p("token_embedding"),
    "12Ld²": lambda c: c.depth * (4 * c.d * c.d + 2 * c.d * (4 * c.d)),
    "12Ld² + Vd": lambda c: (12 * c.depth * c.d + c.spec.vocabulary) * c.d,
    "width d/h": _narrowed_parameters,
    "experts in use": lambda c: c.active(),
    "one expert": lambda c: c.active() - c.p("router") - (_used(c) - 1) * c.one_expert(),
}
ACTIVE: dict[str, Recount] = {
    "every tensor in use": lambda c: c.active(),
    "without input tables": lambda c: c.active() - c.active(*TABLES),
    "non-embedding": lambda c: c.active() - c.active(*TABLES, "head"),
}
WEIGHTS: dict[str, Recount] = {
    "bf16": lambda c: c.p() + c.p(),
    "GiB called GB": lambda c: int(Fraction(c.p(), 2**29) * 10**9),
    "tied head twice": lambda c: 2 * (c.p() + c.p("token_embedding")),
}
CACHE: dict[str, Recount] = {
    "needed": lambda c: c.cache("needed"),
    "reserved": lambda c: c.cache("reserved"),
    "between steps": lambda c: c.cache("dynamic"),
    "width d/h": lambda c: int((c.cache("reserved") - c.state()) * c.narrow()) + c.state(),
    "every query head": lambda c: c.cache("multi_head"),
    "latent expanded": lambda c: c.cache("multi_head"),
    "latent twice": _latent_twice,
}
FORWARD: dict[str, Recount] = {
    "full": lambda c: c.f(),
    "causal-exact": lambda c: _exactly(c, "prefill"),
    "T²/2": lambda c: c.f() - c.f(*PAIRS) // 2,
    "w/2": lambda c: _masked(c, "prefill", lambda a: Fraction(c.T * min(c.T, a.window or c.T), 2)),
    "2N": lambda c: c.B * c.T * (c.active() + c.active()),
    "2N + attention": lambda c: 2 * c.B * c.T * (c.active() - c.active(*TABLES, "head")) + c.f("attention.scores"),
    "one row of logits": lambda c: c.f() - c.f("head") + c.f("head") // c.T,
    "lookup as product": lambda c: c.f() + 2 * c.B * c.T * c.p("token_embedding"),
    "lookup and softmax": lambda c: c.f() + 2 * c.B * c.T * c.p("token_embedding") + _softmax(c),
    "multiply-adds": lambda c: c.f() // 2,
    "no router": lambda c: c.f() - c.f("router"),
    "width d/h": lambda c: _narrowed_flops(c, "prefill"),
}
DECODED: dict[str, Recount] = {
    "full": lambda c: c.f(phase="decode"),
    "absorbed": lambda c: c.f(phase="decode_absorbed"),
    "new token expanded": _expanded_once,
    "2N": lambda c: c.B * (c.active() + c.active()),
}
TRAINING: dict[str, Recount] = {
    "full": lambda c: c.f(phase="train"),
    "causal-exact": lambda c: _exactly(c, "train"),
    "T²/2, no router": lambda c: c.f(phase="train") - c.f(*PAIRS, phase="train") // 2 - c.f("router", phase="train"),
    "6ND": lambda c: c.B * c.T * 6 * c.active(),
    "6ND, non-embedding": lambda c: c.B * c.T * 6 * (c.active() - c.active(*TABLES, "head")),
    "6ND, every expert": lambda c: c.B * c.T * 6 * c.p(),
    "total_flos": lambda c: c.B * c.T * 6 * (c.p() - c.p(*TABLES)),
    "6N + 12LHQT": lambda c: c.B * c.T * 6 * c.active() + 2 * c.f("attention.scores", phase="train"),
    "2ND": lambda c: c.B * c.T * (c.active() + c.active()),
    "recomputed": lambda c: c.f(phase="train") + c.f() - c.f("head"),
    "lookup as product": lambda c: c.f(phase="train") + 6 * c.B * c.T * c.p("token_embedding"),
    "width d/h": lambda c: _narrowed_flops(c, "train"),
}


def _used(c: Counts) -> int:
    return max(kind.feedforward.experts_per_token for _, kind in c.spec.kinds())


RECOUNTS: dict[str, dict[str, Recount]] = {
    "parameters": PARAMETERS,
    "active parameters": ACTIVE,
    "weights": WEIGHTS,
    "KV cache": CACHE,
    "forward pass": FORWARD,
    "decoded token": DECODED,
    "training step": TRAINING,
}
"""Quantity → convention → its number from executed counts."""


def recount(quantity: str, convention: str, counts: Counts) -> int | None:
    """A convention's number from executed counts, or None."""
    if not any((counts.executed.by[TRANSFORMERS], counts.executed.by[MODULE])):
        return None
    try:
        return int(RECOUNTS[quantity][convention](counts))
    except Missing:
        return None
