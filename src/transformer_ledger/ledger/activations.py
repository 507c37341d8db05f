"""Bytes that a forward pass saves for its backward pass, held against real tensors.

Counted are the storages that autograd saves, each once, without parameters. Which tensors they are depends on the
implementation: rows are of our own decoder in bf16 or fp16 and of transformers' model of the config.json, for every
family that the reader knows. The model itself is too large to run: every model has a small copy of the same structure
that does run, and the model is traced, two layers of each kind at full width, with the same kernels and without memory.

Fused attention of our own decoder is torch's kernel in all families: values narrower than keys get zeros (latent
attention), and a sink is put into the kernel's log-sum-exp (gpt-oss). It is left out of transformers' rows where that has
none (BLOOM, Gemma 2, gpt-oss) or where torch would fall back to products in fp32, and keep the weights after all
(DeepSeek's latent attention, Falcon with one key for all queries). Not counted are weights, gradients and optimiser (the
training state), what lives only within an operation, what a checkpointed layer saves again while it runs a second time,
and the allocator's reserve. Not given at all are models with fixed states (Gated DeltaNet, Mamba-2) or gated attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from transformer_ledger.formulas import activations as formulas
from transformer_ledger.formulas.shim import exceeds
from transformer_ledger.formulas.text import text
from transformer_ledger.ledger import public_activations
from transformer_ledger.ledger.counted import MODULE, NOTHING, TRANSFORMERS, Rows, counts
from transformer_ledger.ledger.storage import bytes_per_number, whole
from transformer_ledger.model import NO_DROPOUT, Attention, Dropout, Feedforward, Layer, ModelSpec
from transformer_ledger.shrunken import COPY, shrunken, way, ways


@dataclass(frozen=True)
class Saved:
    """`copies` equal tensors, or groups of tensors: bytes of each by `formula` of `arguments`."""

    formula: Callable[..., int]
    arguments: Mapping[str, int]
    copies: int = 1

    @property
    def bytes(self) -> int:
        """Bytes of all copies."""
        return self.copies * self.formula(**self.arguments)


@dataclass(frozen=True)
class Run:
    """What decides, with the spec, which tensors are saved: B sequences of T tokens, b bytes a number, and how."""

    B: int
    T: int
    b: int
    fused: bool
    checkpointed: bool
    public: Mapping[str, Any] | None = None  # what `shrunken.public` knows of transformers' model; None: our decoder
    dropout: Dropout = NO_DROPOUT  # the rates that are on
    selective: bool = False  # attention's scores and weights are computed again
    cut: int = 1  # devices that share the tokens of all that stands between the maps (`ledger.layout`)

    @property
    def between(self) -> Run:
        """The run of what stands between the maps that are cut by heads or width: norms, inputs, latents."""
        return replace(self, T=self.T // self.cut, cut=1)

    def saved(self, formula: Callable[..., int], copies: int = 1, **arguments: int) -> Saved:
        """A tensor of a formula that takes some of B, T and b besides its own arguments."""
        given = {"B": self.B, "T": self.T, "b": self.b, **arguments}
        names = formula.__wrapped__.__code__.co_varnames[: formula.__wrapped__.__code__.co_argcount]  # type: ignore[attr-defined]
        return Saved(formula, {name: given[name] for name in names}, copies)


def _norm(spec: ModelSpec, run: Run, inputs: int = 1, norms: int = 1) -> Iterator[Saved]:
    """`norms` norms as wide as the model, of `inputs` distinct tensors."""
    if spec.norm == "layernorm":
        yield run.saved(formulas.model_wide, inputs, d=spec.d_model)
        yield run.saved(formulas.layer_norm_statistics, norms)
    else:  # each makes an fp32 copy of its own
        yield run.saved(formulas.rms_norm, norms, d=spec.d_model)


def _pairs(a: Attention, run: Run) -> Iterator[Saved]:
    """What attention saves beside queries, keys, values and outputs."""
    if run.selective:
        return
    if not run.fused:
        softmax = formulas.attention_weights_with_sinks if a.sinks else formulas.attention_weights
        yield run.saved(softmax, h=a.heads)
        if run.dropout.weights:  # the mask, and what the values are multiplied with in place of the softmax
            yield run.saved(formulas.dropped_weights, 2, h=a.heads)
        return
    yield run.saved(formulas.log_sum_exp, h=a.heads)
    if a.window is not None:
        yield run.saved(formulas.additive_mask, exceeds(run.T, a.window))


def _attention(a: Attention, run: Run) -> Iterator[Saved]:
    if a.latent:
        h, r_q, r_kv, d_v = a.heads, a.latent.query_rank, a.latent.kv_rank, a.latent.value_dim
        own = run.between
        if r_q:
            yield own.saved(formulas.query_rank_norm, r_q=r_q)
            yield own.saved(formulas.query_rank_wide, r_q=r_q)
        yield own.saved(formulas.latent_norm, r_kv=r_kv)
        yield own.saved(formulas.latent_wide, r_kv=r_kv)
        d_h = a.latent.nope_dim + a.latent.rope_dim
        if (
            run.fused and not run.selective
        ):  # keys and values of one width, and outputs, head by head, which are cut and turned
            yield run.saved(formulas.queries, 4, h=h, d_h=max(d_h, d_v))
            turned = 1 if d_v < d_h else exceeds(run.T, 1)
            yield run.saved(formulas.expanded_values, exceeds(h, 1) * turned, h=h, d_v=d_v)
        else:
            yield run.saved(formulas.queries, 2, h=h, d_h=d_h)
            yield run.saved(formulas.expanded_values, 2, h=h, d_v=d_v)
    else:
        queries, keys = {"h": a.heads, "d_h": a.head_dim}, {"h_kv": a.kv_heads, "d_h": a.head_dim}
        if a.query_key_norm != "none":
            full = a.query_key_norm == "full"
            yield run.saved(formulas.query_norm_full if full else formulas.query_norm, **queries)
            yield run.saved(formulas.key_norm_full if full else formulas.key_norm, **keys)
        yield run.saved(formulas.queries, 2, **queries)
        yield run.saved(formulas.keys, 2, **keys)
    yield from _pairs(a, run)


def _feedforward(d: int, ff: Feedforward, run: Run) -> Iterator[Saved]:
    tensors = 4 if ff.kind == "gated" else 2
    if not ff.experts:
        yield run.saved(formulas.hidden, tensors, f=ff.width)
        return
    k, own = ff.experts_per_token, run.between  # each token is routed by the device that has it
    yield own.saved(formulas.routes, k=k)
    yield own.saved(formulas.routed, 2, k=k, d=d)
    yield own.saved(formulas.routed_hidden, tensors, k=k, f=ff.width)
    if ff.shared_width:
        yield run.saved(formulas.shared_hidden, tensors, f_s=ff.shared_width)
        if ff.shared_gate:
            yield own.saved(formulas.shared_gate)
            yield own.saved(formulas.model_wide, d=d)


def masks(spec: ModelSpec, *rates: float, run: Run) -> Saved:
    """What the dropouts of tensors as wide as the model save, one a rate that is on."""
    return run.saved(formulas.dropout_mask, sum(rate > 0 for rate in rates), d=spec.d_model)


def layer_saved(spec: ModelSpec, layer: Layer, run: Run) -> list[Saved]:
    """What one layer saves of its own."""
    own = run.between
    if run.checkpointed:
        return [own.saved(formulas.model_wide, d=spec.d_model)]
    dropped = masks(spec, run.dropout.attention, run.dropout.feedforward, run=own)
    if run.public:
        return [*public_activations.layer_saved(spec, layer, run), dropped]
    shared_input = layer.parallel and layer.norms > 1
    found = list(_norm(spec, own, layer.norms - shared_input, layer.norms))
    # What attention and feed-forward read: one tensor where they stand side by side behind one norm.
    reads = 1 if layer.parallel and layer.norms == 1 else 2
    found.append(own.saved(formulas.model_wide, reads, d=spec.d_model))
    return [*found, *_attention(layer.attention, run), *_feedforward(spec.d_model, layer.feedforward, run), dropped]


def embedding_saved(spec: ModelSpec, run: Run) -> list[Saved]:
    """What is saved before the layers."""
    found = [run.saved(formulas.token_ids)]
    if spec.embedding_width not in (0, spec.d_model):
        found.append(run.saved(formulas.embedding_wide, d_e=spec.embedding_width))  # of the first map
    if spec.positions == "learned":
        found.append(run.saved(formulas.position_ids))
    return [*found, *(_norm(spec, run.between) if spec.embedding_norm else ())]


def shared_saved(spec: ModelSpec, run: Run) -> list[Saved]:
    """What layers share: masks and angles.

    Those that checkpointed layers share live on with the layers' inputs; autograd does not save them.
    """
    if run.checkpointed:
        return []
    found = []
    if spec.positions == "rope":
        a = spec.layers[0][1].attention
        found.append(run.saved(formulas.rotation, d_h=a.latent.rope_dim if a.latent else a.head_dim))
    windows = {(layer.attention.window, layer.attention.chunked) for _, layer in spec.layers}
    if not run.fused and not run.selective:
        found.append(run.saved(formulas.mask, exceeds(run.T, 1) * len(windows)))
    return found


def ended_saved(spec: ModelSpec, run: Run) -> list[Saved]:
    """What is saved behind the layers: final norm, and the head's input."""
    own, found = run.between, []
    if spec.embedding_width not in (0, spec.d_model):
        found.append(own.saved(formulas.embedding_wide, d_e=spec.embedding_width))
    return [*found, *(_norm(spec, own) if spec.final_norm else ()), own.saved(formulas.model_wide, d=spec.d_model)]


def outside_saved(spec: ModelSpec, run: Run) -> list[Saved]:
    """What is saved outside the layers, and what they share: embedding, masks, angles, final norm, input of the head."""
    dropped = masks(spec, run.dropout.embedding, run=run)
    if run.public:
        return [*public_activations.outside_saved(spec, run), dropped]
    return [*embedding_saved(spec, run), *shared_saved(spec, run), *ended_saved(spec, run), dropped]


def logits_saved(spec: ModelSpec, run: Run) -> list[Saved]:
    """What the logits and the mean cross-entropy in fp32 save."""
    return [run.saved(formulas.loss, V=spec.vocabulary)]


def logits_saved_cut(run: Run, V: int) -> list[Saved]:
    """The same on a device that has V tokens of a vocabulary which is cut."""
    return [run.saved(formulas.loss_cut, V=V)]


def _formula(parts: list[Saved]) -> str:
    """Texts of the formulas with the number of times that each is summed."""
    times: dict[str, int] = {}
    for part in parts:
        times[text(part.formula)] = times.get(text(part.formula), 0) + part.copies
    return " + ".join(formula if n == 1 else f"{n} × ({formula})" for formula, n in times.items())


def scopes(spec: ModelSpec, run: Run) -> Iterator[tuple[str, int | None, int, list[Saved]]]:
    """(scope, kind of layer, layers of that kind, what is saved) of the rows; the layers' and the others' add up to the
    last."""

    def made(parts: list[Saved]) -> list[Saved]:
        return [part for part in parts if part.copies != 0]

    total: list[Saved] = []
    for kind, (count, layer) in enumerate(spec.kinds()):
        own = made(layer_saved(spec, layer, run))
        total += [replace(part, copies=count * part.copies) for part in own]
        yield "layer", kind, count, own
    for scope, own in (("outside", made(outside_saved(spec, run))), ("logits", logits_saved(spec, run))):
        total += own
        yield scope, None, 1, own
    yield "total", None, 1, total


def _runs(
    spec: ModelSpec, B: int, T: int, dtype: str, public: Mapping[str, Any] | None
) -> Iterator[tuple[str, str, Run]]:
    """(implementation, name of the method in the execution table, run) of everything that is predicted."""
    b = whole(bytes_per_number(dtype))
    for implementation, facts in (("ours", None), ("transformers", public)):
        if implementation == "transformers" and not facts:
            continue
        for method, checkpointed, dropping in ways(facts, spec.dropout):
            on = spec.dropout if dropping else NO_DROPOUT
            run = Run(B, T, b, method == "fused", checkpointed, facts, on)
            yield implementation, way(method, checkpointed, dropping), run


def compute(
    models: dict[str, Any],
    workloads: dict[str, Any],
    activations: dict[str, Any],
    public: Mapping[str, Mapping[str, Any]],
    execution: Mapping[str, Rows] | None = None,
) -> list[dict[str, Any]]:
    """Rows of the ledger: for each model's small copy and each workload, one row a kind of layer, and three besides.

    `public` {model: what `shrunken.public` knows of it}, where transformers' model is predicted too.
    """
    rows = []
    small = {"batch": activations["batch"], "context": activations["tokens"]}
    for name, data in models.items():
        spec = ModelSpec.from_json(data)
        if not spec.plain:
            continue
        executed = {key: counts((execution or {}).get(name, []), key) for key in ("ours", "transformers")}
        fitting = {key: (spec, load) for key, load in workloads.items() if load["context"] <= spec.context}
        copied = shrunken(spec, activations["largest"], small["context"])
        for workload, (described, load) in {COPY: (copied, small), **fitting}.items():
            for dtype in activations["dtypes"]:
                B, T = load["batch"], load["context"]
                for implementation, ran, run in _runs(described, B, T, dtype, public.get(name)):
                    for scope, kind, layers, parts in scopes(described, run):
                        size = sum(part.bytes for part in parts)
                        where = scope if kind is None else f"layer {kind}"
                        counted = executed[implementation].get(("activation_bytes", workload, ran, where, dtype))
                        met_by = TRANSFORMERS if implementation == "transformers" else MODULE
                        rows.append(
                            {
                                "model": name,
                                "workload": workload,
                                "batch": B,
                                "context": T,
                                "implementation": implementation,
                                "dtype": dtype,
                                "method": "fused" if run.fused else "eager",
                                "checkpointed": run.checkpointed,
                                "dropout": run.dropout.any,
                                "scope": scope,
                                "kind": kind,
                                "layers": layers,
                                "formula": _formula(parts),
                                "bytes": size,
                                "executed_bytes": counted,
                                "difference": None if counted is None else size - counted,
                                "met_by": NOTHING if counted is None else met_by,
                            }
                        )
    return rows
