"""Function or schedule: every change applied to one trained checkpoint, and decided by what its logits do.

Two forms that compute the same function differ by rounding alone, so no logit of theirs may differ by more than the
bounds of both forms together. A change beyond that is a change of the function. A change within it, with other
operations or other storage, is a change of the schedule. Nothing else decides.

The bound is the first-order running error bound of the reference decoder on the same weights, for any order of
summation, with the rescalings of blocked attention added. It is computed for the logits of the tokens in use at the last
position of a few held-out sequences; the largest change over all held-out logits is shown beside it.
"""

# ASSUME torch's LayerNorm and RMSNorm round no more than the mean, the mean square, the root and the quotient one by one.

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_ledger import bounds
from transformer_ledger.executed.blocked_attention import Blocks, blocked_attention
from transformer_ledger.executed.cache import DTYPES, Cache
from transformer_ledger.executed.decoder import Attention, Decoder
from transformer_ledger.model import Feedforward, ModelSpec
from transformer_ledger.reference import decoder as reference
from transformer_ledger.reference.arithmetic import Running
from transformer_ledger.study.checkpoint import Checkpoint, restore
from transformer_ledger.study.source import KINDS

Weights = dict[str, Tensor]
ACTIVATIONS = ("gelu", "silu", "relu", "sigmoid", "tanh")  # operations that are an activation function
ARITHMETIC = "fp64"  # of every form but those that name another: the finest bound


@dataclass(frozen=True)
class Form:
    """One way to run one model."""

    spec: ModelSpec
    weights: Weights
    attend: Callable[..., Tensor] | None = None  # in place of the dense form
    dtype: str = ARITHMETIC  # of the arithmetic
    stored: str = "fp32"  # dtype of the weights in storage
    cache: str | None = None  # dtype of the cache of a run token by token; None: all tokens at once


@dataclass(frozen=True)
class Change:
    """A change from one form to another, by key and in words.

    `registered` is what it should turn out to be, function or schedule, written down before any run; `stated` says
    whether text B names the change. A control is a change that shows what the bound can see.
    """

    key: str
    name: str
    before: Form
    after: Form
    registered: str
    stated: bool = True
    control: bool = False


def _joined(out: Tensor) -> Tensor:
    """(B, h, T, d_v) → (B, T, h·d_v)."""
    return out.transpose(1, 2).flatten(-2)


def blocked(blocks: Blocks) -> Callable[..., Tensor]:
    """Attention by our blocked form."""
    return lambda own, q, k, v, scale, visible: _joined(blocked_attention(q, k, v, scale, True, blocks))


def fused(own: Attention, q: Tensor, k: Tensor, v: Tensor, scale: float, visible: Any) -> Tensor:
    """Attention by torch's fused kernel."""
    kernel = torch.nn.functional.scaled_dot_product_attention
    return _joined(kernel(q, k, v, is_causal=True, scale=scale, enable_gqa=q.shape[1] != k.shape[1]))


def expanded(own: Attention, q: Tensor, k: Tensor, v: Tensor, scale: float, visible: Any) -> Tensor:
    """The dense form on key/value heads copied out to every query head."""
    g = q.shape[1] // k.shape[1]
    return Attention.attend(own, q, k.repeat_interleave(g, 1), v.repeat_interleave(g, 1), scale, visible)


def averaged(blocks: Blocks) -> Callable[..., Tensor]:
    """What blocked attention is not: each block normalised by itself, their outputs averaged."""

    def attend(own: Attention, q: Tensor, k: Tensor, v: Tensor, scale: float, visible: Any) -> Tensor:
        hidden = visible(q.shape[2], k.shape[2], None)
        parts = []
        for keys in torch.arange(k.shape[2]).split(blocks.keys):
            scores = (q @ k[:, :, keys].transpose(-1, -2) * scale).masked_fill(hidden[:, keys], -torch.inf)
            parts.append(scores.softmax(-1).nan_to_num() @ v[:, :, keys])
        return _joined(torch.stack(parts).mean(0))

    return attend


def with_layer(spec: ModelSpec, **changes: Any) -> ModelSpec:
    """The same model, every layer's `attention` or `feedforward` fields, and the model's own, changed.

    `attention` and `feedforward` are dicts of fields; all other keywords are ModelSpec's.
    """
    attention, feedforward = changes.pop("attention", {}), changes.pop("feedforward", {})
    layers = tuple(
        (
            count,
            dataclasses.replace(
                layer,
                mixer=dataclasses.replace(layer.attention, **attention),
                feedforward=dataclasses.replace(layer.feedforward, **feedforward),
            ),
        )
        for count, layer in spec.layers
    )
    return dataclasses.replace(spec, layers=layers, **changes)


def with_rope(spec: ModelSpec, weights: Weights) -> tuple[ModelSpec, Weights]:
    """Rotary positions in place of the table."""
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith("position_embedding")}
    return with_layer(spec, positions="rope", position_rows=0), kept


def with_groups(spec: ModelSpec, weights: Weights, kv_heads: int) -> tuple[ModelSpec, Weights]:
    """`kv_heads` key/value heads, each the mean of the heads of its group (Ainslie et al. 2023, section 2.1)."""
    own = spec.layers[0][1].attention
    pooled = dict(weights)
    for name, tensor in weights.items():
        if ".attention.key." in name or ".attention.value." in name:
            heads = tensor.unflatten(0, (kv_heads, own.kv_heads // kv_heads, own.head_dim))
            pooled[name] = heads.double().mean(1).to(tensor.dtype).flatten(0, 1)
    return with_layer(spec, attention={"kv_heads": kv_heads}), pooled


def heads_made_equal(spec: ModelSpec, weights: Weights, kv_heads: int) -> Weights:
    """Weights whose key/value heads within each of `kv_heads` groups are all the group's mean."""
    own = spec.layers[0][1].attention
    pooled = with_groups(spec, weights, kv_heads)[1]
    changed = [name for name in weights if pooled[name].shape != weights[name].shape]
    for name in changed:
        heads = pooled[name].unflatten(0, (kv_heads, own.head_dim))
        pooled[name] = heads.repeat_interleave(own.kv_heads // kv_heads, 0).flatten(0, 1)
    return pooled


def with_rms_norm(spec: ModelSpec, weights: Weights) -> tuple[ModelSpec, Weights]:
    """RMSNorm in place of LayerNorm: the gains stay, the biases go."""
    gone = [name for name in weights if "norm" in name.split(".")[-3:] and name.endswith("bias")]
    kept = {name: tensor for name, tensor in weights.items() if name not in gone}
    return with_layer(spec, norm="rmsnorm", norm_bias=False), kept


def equal_budget_width(feed: Feedforward) -> int:
    """Width of the gated feed-forward with as many weights, rounded to the nearest whole number."""
    return round(2 * feed.width / 3)


def with_gate(spec: ModelSpec, weights: Weights, seed: int) -> tuple[ModelSpec, Weights]:
    """A gated feed-forward of equal budget: the first hidden units stay, the gate is drawn as in a fresh model."""
    from transformer_ledger.study.training import fresh

    width = equal_budget_width(spec.layers[0][1].feedforward)
    changed = with_layer(spec, feedforward={"kind": "gated", "width": width})
    drawn = fresh(changed, seed).state_dict()
    out = {}
    for name, tensor in drawn.items():
        old = weights.get(name, tensor)
        out[name] = old[tuple(slice(n) for n in tensor.shape)].clone()
    return changed, out


def stored_as(weights: Weights, dtype: str) -> Weights:
    """Weights rounded to `dtype` and back."""
    return {name: tensor.to(DTYPES[dtype]).to(tensor.dtype) for name, tensor in weights.items()}


def moved(weights: Weights, by: float | None = None) -> Weights:
    """fp64 weights with the first one of the head moved, by one unit in its last place where `by` is None."""
    out = {name: tensor.double() for name, tensor in weights.items()}
    head = out["head.weight"]
    head[0, 0] = torch.nextafter(head[0, 0], head.new_tensor(torch.inf)) if by is None else head[0, 0] + by
    return out


def build(form: Form) -> Decoder:
    """The decoder that runs `form`."""
    with torch.device("meta"):
        model = Decoder(form.spec)
    model.load_state_dict({name: tensor.to(DTYPES[form.dtype]) for name, tensor in form.weights.items()}, assign=True)
    if form.attend:
        for module in model.modules():
            if isinstance(module, Attention):
                module.attend = form.attend.__get__(module)  # type: ignore[method-assign]
    return model


def run(form: Form, model: Decoder, ids: Any) -> tuple[Tensor, int]:
    """Logits (B, T, V) in fp64, and the bytes that stay in a cache behind the last token."""
    ids = torch.as_tensor(ids)
    with torch.no_grad():
        if form.cache is None:
            return model(ids).double(), 0
        cache = Cache(form.cache)
        steps = [model(ids[:, t : t + 1], cache) for t in range(ids.shape[1])]
        return torch.cat(steps, 1).double(), cache.bytes()


@dataclass
class Trace(TorchDispatchMode):
    """What a run does: its operations with their shapes, in order, and the bytes of every tensor that it makes."""

    operations: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    made_bytes: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        given = {
            x.untyped_storage()._cdata for x in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor)
        }
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.operations.append((str(function), tuple(tensor.shape)))
                if tensor.untyped_storage()._cdata not in given:
                    self.made_bytes += tensor.untyped_storage().nbytes()
        return result

    def activations(self) -> set[str]:
        """The activation functions run."""
        return {name.split(".")[1].rstrip("_") for name, _ in self.operations}.intersection(ACTIVATIONS)


class BlockedRunning(Running):
    """The running error bound of softmax attention, dense or read in blocks with up to `rescalings` rescalings.

    A rescaling costs an exponential, its argument, a product and a sum, in the numerator and in the denominator. Powers
    of two in place of e cost a score the roundings of ln 2, of its quotient and of one product.
    """

    def __init__(self, u: float, rescalings: int):
        super().__init__(u)
        self.extra = 2 * rescalings * (bounds.LIBRARY + 3)
        self.scores: list[bounds.Bounded] = []  # of every layer, (h, T, T)

    def softmax(self, scores: Any, visible: Any) -> Any:
        self.scores.append(scores)
        rescaled = bounds.Bounded(scores.value, self.u, 3 * self.u * np.abs(scores.value), ((scores, lambda g: g),))
        pattern = super().softmax(rescaled, visible)
        return bounds.Bounded(
            pattern.value, self.u, self.extra * self.u * np.abs(pattern.value), ((pattern, lambda g: g),)
        )


def reference_weights(weights: Weights) -> dict[str, Any]:
    """The same tensors under the reference decoder's names, matrices as (inputs, outputs)."""
    out = {}
    for name, tensor in weights.items():
        array = tensor.double().numpy()
        plain = name.removesuffix(".weight")
        out[plain] = array.T if array.ndim == 2 and "embedding" not in name else array
    return out


def rounding(form: Form, ids: Any, tokens: int, rescalings: int) -> tuple[bounds.Bounded, bounds.Bounded]:
    """Of the last position of one sequence of ids, with the fp32 bound on their rounding: the logits (tokens,), and the
    first layer's attention scores (h, T)."""
    arithmetic = BlockedRunning(bounds.UNIT_ROUNDOFF["fp32"], rescalings)
    logits = reference.forward(form.spec, reference_weights(form.weights), ids, arithmetic, pairing="half-split")
    return logits[-1, :tokens], arithmetic.scores[0][:, -1]


def in_fp64(bound: Any) -> Any:
    """The fp64 bound from the fp32 one: γₙ(u)/u falls with u, so scaling by the two u keeps it a bound."""
    return bound * (bounds.UNIT_ROUNDOFF["fp64"] / bounds.UNIT_ROUNDOFF["fp32"])


def changes(checkpoint: Checkpoint, kv_heads: int, blocks: Mapping[str, int], seed: int) -> list[Change]:
    """The changes of text B, the lowered types, and the controls, on one checkpoint."""
    spec, weights = checkpoint.spec, checkpoint.weights
    cut = Blocks(blocks["queries"], blocks["keys"])
    base = Form(spec, weights)
    grouped = Form(*with_groups(spec, weights, kv_heads))

    def form(**fields: Any) -> Form:
        return dataclasses.replace(base, **fields)

    heads = spec.layers[0][1].attention.kv_heads
    merged = form(attend=blocked(cut))
    backwards = form(attend=blocked(dataclasses.replace(cut, backwards=True)))
    stored, cached = form(weights=stored_as(weights, "bf16"), stored="bf16"), form(cache=ARITHMETIC)
    function, schedule = "function", "schedule"
    text = [
        Change("rope", "learned → RoPE", base, Form(*with_rope(spec, weights)), function),
        Change("gqa", f"{heads} → {kv_heads} key/value heads, mean-pooled", base, grouped, function),
        Change("rmsnorm", "LayerNorm → RMSNorm", base, Form(*with_rms_norm(spec, weights)), function),
        Change("gated", "GELU → gated, equal budget", base, Form(*with_gate(spec, weights, seed)), function),
        Change("blocked", "dense → blocked", base, merged, schedule),
        Change("fused", "dense → fused", base, form(attend=fused), schedule),
        Change("backwards", "blocks read backwards", merged, backwards, schedule),
        Change(
            "broadcast",
            "expanded → broadcast keys and values",
            dataclasses.replace(grouped, attend=expanded),
            grouped,
            schedule,
        ),
        Change("cache", "no cache → cache", base, cached, schedule),
    ]
    types = [
        Change("fp32", "arithmetic fp64 → fp32", base, form(dtype="fp32"), schedule, False),
        Change("bf16", "weights stored in bf16", base, stored, function, False),
        Change("cache_bf16", "cache stored in bf16", cached, form(cache="bf16"), function, False),
    ]
    return [*text, *types, *_controls(base, cut, kv_heads)]


def _controls(base: Form, cut: Blocks, kv_heads: int) -> list[Change]:
    """Changes that are none, and changes that look like none."""
    spec, weights = base.spec, base.weights
    alike = dataclasses.replace(base, weights=heads_made_equal(spec, weights, kv_heads))
    pooled = Form(*with_groups(spec, alike.weights, kv_heads))
    ulp, more = (dataclasses.replace(base, weights=moved(weights, *by)) for by in ((), (2.0**-10,)))
    told = {
        "none": ("no change", base, base, "schedule"),
        "averaged": ("blocks averaged, not merged", base, dataclasses.replace(base, attend=averaged(cut)), "function"),
        "gqa_equal": ("key/value heads alike, then mean-pooled", alike, pooled, "schedule"),
        "ulp": ("one weight moved by one unit in its last place", base, ulp, "schedule"),
        "weight": ("one weight moved by 2⁻¹⁰", base, more, "function"),
    }
    return [Change(key, *said, stated=False, control=True) for key, said in told.items()]


def parameters_changed(before: Weights, after: Weights) -> int:
    """Parameters that are new, gone or of another value; a tensor of another shape counts whole, the larger of the two."""
    changed = 0
    for name in before.keys() | after.keys():
        old, new = before.get(name), after.get(name)
        if old is None or new is None or old.shape != new.shape:
            changed += max(tensor.numel() for tensor in (old, new) if tensor is not None)
        else:
            changed += int((old != new).sum())
    return changed


def loads_as_is(spec: ModelSpec, weights: Weights) -> bool:
    """Whether torch loads the tensors into the model, strictly: every name there, every shape right."""
    with torch.device("meta"):
        model = Decoder(spec)
    try:
        model.load_state_dict(weights, assign=True)
    except RuntimeError:
        return False
    return True


class Bench:
    """One checkpoint's held-out data and bounds, computed once for each set of weights."""

    def __init__(self, checkpoint: Checkpoint, sequences: int, tokens: int, blocks: Mapping[str, int]):
        self.checkpoint = checkpoint
        self.used = checkpoint.source.tokens
        data = checkpoint.held_out.ids
        self.bounded = np.concatenate([data[kind][:sequences, :tokens] for kind in KINDS])
        self.rescalings = -(-tokens // blocks["keys"]) - 1
        self.known: dict[tuple[int, int], tuple[Form, Any]] = {}

    def bound(self, form: Form, which: int = 0) -> Any:
        """Rounding bounds of all logits compared, (sequences, used), or, with which = 1, of the scores, (sequences, h, T)."""
        key = id(form.weights), which
        if key not in self.known:
            rows = [rounding(form, ids, self.used, self.rescalings)[which].error for ids in self.bounded]
            self.known[key] = form, np.stack(rows)  # the form stays alive, and with it the id
        bound = self.known[key][1]
        return bound if form.dtype == "fp32" else in_fp64(bound)

    def one_bound(self, form: Form, entry: tuple[int, int]) -> float:
        """The same of one logit."""
        sequence, token = entry
        bound = float(rounding(form, self.bounded[sequence], self.used, self.rescalings)[0][token].error)
        return bound if form.dtype == "fp32" else float(in_fp64(bound))

    def change(self, before: Form, after: Form) -> tuple[float, float]:
        """The logit that changed most against the bounds of both forms: its change, and the two bounds together."""
        first, second = (
            run(form, build(form), self.bounded)[0][:, -1, : self.used].numpy() for form in (before, after)
        )
        moved = np.abs(second - first)
        limit = self.bound(before)
        sequence, token = (int(i) for i in np.unravel_index(np.argmax(moved / limit), moved.shape))
        if before.weights is not after.weights or before.spec != after.spec:
            # Another model: one logit beyond its bound decides, and spares the bounds of all.
            both = float(limit[sequence, token]) + self.one_bound(after, (sequence, token))
            if moved[sequence, token] > both:
                return float(moved[sequence, token]), both
        return bounds.nearest(moved, limit + self.bound(after))

    def _scores(self, form: Form) -> Any:
        """First layer's scores of the last position, (sequences, h, T); None where the form makes no such tensor."""
        if form.cache:
            return None
        model = build(form)
        seen: list[Tensor] = []
        product = model.get_submodule("layers.0.attention.scores")
        product.register_forward_hook(lambda module, inputs, output: seen.append(output))
        run(form, model, self.bounded)
        if not seen:
            return None
        tokens = self.bounded.shape[1]
        return seen[0].double().view(len(self.bounded), -1, tokens, tokens)[:, :, -1].numpy()

    def score_change(self, before: Form, after: Form) -> tuple[float | None, float | None]:
        """The same of the scores, which the last position may all see; None where a form makes no such tensor."""
        first, second = self._scores(before), self._scores(after)
        if first is None or second is None:
            return None, None
        return bounds.nearest(second - first, self.bound(before, 1) + self.bound(after, 1))


def sequence_losses(form: Form, ids: Any) -> Any:
    """Mean loss of each sequence of `ids` (B, T + 1): (B,), in nats a token."""
    return _losses(run(form, build(form), ids[:, :-1])[0], ids)


def _losses(logits: Tensor, ids: Any) -> Any:
    """Mean loss of each sequence (B,)."""
    targets = torch.as_tensor(ids)[:, 1:]
    flat = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return flat.view(targets.shape).mean(1).numpy()


def _traced(form: Form, ids: Any) -> tuple[Trace, int]:
    model = build(form)
    with Trace() as trace:
        _, kept = run(form, model, ids)
    return trace, kept


def rows(checkpoint: Checkpoint, found: list[Change], bench: Bench, confidence: float) -> list[dict[str, Any]]:
    """One row a change."""
    every = np.concatenate([checkpoint.held_out.ids[kind] for kind in KINDS])
    ran: dict[int, tuple[Form, Tensor, Any]] = {}

    def whole(form: Form) -> tuple[Tensor, Any]:
        if id(form) not in ran:
            logits, _ = run(form, build(form), every[:, :-1])
            ran[id(form)] = form, logits, _losses(logits, every)
        return ran[id(form)][1:]

    out = []
    for change in found:
        (old, old_loss), (new, new_loss) = whole(change.before), whole(change.after)
        low, high = bounds.mean_interval(new_loss - old_loss, confidence)
        out.append(
            {
                "key": change.key,
                "change": change.name,
                "stated": change.registered if change.stated else "",
                "registered": change.registered,
                "control": change.control,
                "logit_change": float((new - old).abs().max()),
                "loss_before": float(old_loss.mean()),
                "loss_change": float((new_loss - old_loss).mean()),
                "loss_change_low": low,
                "loss_change_high": high,
                "retraining_needed": low > 0,
                **_decided(change.before, change.after, bench),
            }
        )
    return out


def _decided(before: Form, after: Form, bench: Bench) -> dict[str, Any]:
    """What a change is, from bounded logits, operations and storage."""
    moved, bound = bench.change(before, after)
    scores, score_bound = bench.score_change(before, after)
    (old_trace, old_kept), (new_trace, new_kept) = (_traced(form, bench.bounded) for form in (before, after))
    parameter_bytes = [sum(t.numel() * DTYPES[f.stored].itemsize for t in f.weights.values()) for f in (before, after)]
    others = old_trace.operations != new_trace.operations
    storage = (parameter_bytes[0], old_kept, old_trace.made_bytes) != (
        parameter_bytes[1],
        new_kept,
        new_trace.made_bytes,
    )
    function = moved > bound
    return {
        "bounded_change": moved,
        "bound": bound,
        "change_to_bound": moved / bound,
        "score_change": scores,
        "score_bound": score_bound,
        "decided": "function" if function else "schedule" if others or storage else "nothing",
        "expression": function,
        "sharing": before.spec.layers[0][1].attention.kv_heads != after.spec.layers[0][1].attention.kv_heads,
        "activation": old_trace.activations() != new_trace.activations(),
        "storage": storage,
        "schedule": others,
        "parameters": sum(tensor.numel() for tensor in after.weights.values()),
        "parameters_changed": parameters_changed(before.weights, after.weights),
        "parameter_bytes_change": parameter_bytes[1] - parameter_bytes[0],
        "cache_bytes_change": new_kept - old_kept,
        "made_bytes_change": new_trace.made_bytes - old_trace.made_bytes,
        "loads_as_is": loads_as_is(after.spec, before.weights),
    }


def compute(
    checkpoint: str, kv_heads: int, blocks: Mapping[str, int], bounded: Mapping[str, int], confidence: float, seed: int
) -> list[dict[str, Any]]:
    """Rows of study/classification, from the checkpoint at the path `checkpoint`.

    `kv_heads` of the grouped form; `blocks`: queries and keys of a block; `bounded`: sequences of each kind and tokens of
    each whose last logits are held against their bound; `confidence` of the interval of the loss change; `seed` of the
    fresh gate.
    """
    torch.set_num_threads(1)
    known = restore(checkpoint)
    bench = Bench(known, bounded["sequences"], bounded["tokens"], blocks)
    return rows(known, changes(known, kv_heads, blocks, seed), bench, confidence)
