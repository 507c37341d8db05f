"""Which tensors transformers' implementation of a family saves for the backward pass, in evaluation mode on the CPU.

A family is described by what sets it apart from Llama: `FAMILIES`. Attention is transformers' `eager`, or its `sdpa`
where that ends in torch's fused kernel; experts are its default, a grouped product. Whether a matrix product reads its
operands in place, or a copy of them, decides what stays alive: a view keeps all of the tensor that it looks into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from transformer_ledger.formulas import activations as formulas
from transformer_ledger.shrunken import ACTIVATIONS, groups, rotated

if TYPE_CHECKING:
    from transformer_ledger.ledger.activations import Run, Saved
    from transformer_ledger.model import Attention, Feedforward, Layer, ModelSpec

Formula = Callable[..., int]
Tensors = tuple[tuple[Formula, int], ...]  # each with the number of times that it is saved

# Of a layer with experts, beside the router's own.
_ROUTED: Tensors = (
    (formulas.route_indices, 4),  # the experts, the two orders of the rows, and the way back
    (formulas.expert_ends, 1),
    (formulas.routed, 2),
)
_GROUPS: Tensors = ((formulas.chosen_groups, 1), (formulas.hidden_experts, 1))
_SCORED: Tensors = ((formulas.router_probabilities, 1),)
_WIDE: Tensors = ((formulas.route_weights_wide, 1),)
_NORMALISED: Tensors = ((formulas.normalised_routes, 1),)


@dataclass(frozen=True)
class Family:
    """What is saved in a family where it is not what Llama saves."""

    rms_norm: str = "_narrow"  # ending of its formulas: back in the model's type (_narrow), in fp32 (), _plus_one
    softmax: Formula = formulas.attention_weights_wide
    scores: Tensors = ()  # more of the scores than their softmax
    joint: str = ""  # which of q, k, v attention reads out of the output of one map
    picked: bool = False  # keys and values are picked out of it by an index
    interleaved: bool = False  # in it, each head's query, key and value stand together
    by_head: bool = False  # queries are put together head by head, and so are the fused kernel's outputs
    masked: bool = False  # the fused kernel always gets a mask
    shared_bias: bool = False  # which is one for all layers
    rotation: Formula = formulas.rotation_narrow
    rotations: bool = False  # one for each kind of layer
    joint_gate: bool = False  # gate and up are one map's output
    positions: Formula = formulas.position_ids
    embedding: Tensors = ()
    mask_with_input: bool = False  # eager layers take the mask as they take their input, so checkpoints keep it
    router_reads: Formula = formulas.model_wide
    experts: Tensors = _ROUTED + _SCORED
    gate: int = 0  # tensors of an expert whose gate is spelt out; 0: as the activation has it
    logits: Tensors = ()


_GEMMA = Family(rms_norm="_plus_one", embedding=((formulas.embedding_factor, 1),))
_DEEPSEEK = Family(interleaved=True, router_reads=formulas.model_wide_fp32, experts=_ROUTED + _SCORED + _WIDE)

FAMILIES: dict[str, Family] = {
    "gpt2": Family(softmax=formulas.attention_weights, joint="qkv", mask_with_input=True),
    "gpt_bigcode": Family(joint="qkv"),
    "gpt_neox": Family(joint="v", interleaved=True, by_head=True),
    "opt": Family(positions=formulas.batch_position_ids),
    "bloom": Family(joint="qkv"),
    "falcon": Family(softmax=formulas.attention_weights, interleaved=True, masked=True),
    "llama": Family(),
    "mistral": Family(),
    "mixtral": Family(experts=_ROUTED + _SCORED + _NORMALISED + _WIDE),
    "qwen2": Family(),
    "qwen3": Family(),
    "qwen3_moe": Family(experts=_ROUTED + _SCORED + ((formulas.route_weights, 1),)),
    "gemma": _GEMMA,
    "gemma2": _GEMMA,
    "gemma3_text": replace(_GEMMA, rotations=True),
    "olmo2": Family(rms_norm="", rotation=formulas.rotation),
    "phi3": Family(joint="v", by_head=True, joint_gate=True),
    "gpt_oss": Family(
        rms_norm="",
        softmax=formulas.attention_weights_with_sinks,
        scores=((formulas.largest_scores, 1),),
        rotation=formulas.rotation_pairs,
        experts=(*_ROUTED, (formulas.route_indices, 1), (formulas.route_weights, 2)),  # biases are picked by expert
        gate=7,  # both as they come, the gate clamped, its sigmoid, up + 1, their products
    ),
    "deepseek_v2": replace(_DEEPSEEK, rotation=formulas.rotation_complex),
    "deepseek_v3": replace(_DEEPSEEK, experts=_DEEPSEEK.experts + _GROUPS + ((formulas.best_of_groups, 2),)),
}


def _family(facts: Mapping[str, Any]) -> Family:
    """The description of a family, with what its config.json changes in it."""
    family = FAMILIES[facts["model_type"]]
    if facts["model_type"] == "falcon":
        new, rotates = facts["new_decoder_architecture"], not facts["alibi"]
        picked = new or facts["multi_query"]
        # What leaves its group, is rotated or picked is a tensor of its own.
        own = "q" * new + "qk" * rotates + "kv" * picked
        family = replace(
            family,
            joint="".join(name for name in "qkv" if name not in own),
            picked=picked,
            interleaved=not picked,
            shared_bias=not rotates,
        )
    if facts.get("norm_topk_prob"):
        family = replace(family, experts=family.experts + _NORMALISED)
    if facts.get("topk_method") == "group_limited_greedy":
        family = replace(family, experts=family.experts + _GROUPS + ((formulas.best_of_groups, 1),))
    if facts.get("attn_logit_softcapping"):
        family = replace(family, scores=((formulas.capped_scores, 1),))
    if facts.get("final_logit_softcapping"):
        family = replace(family, logits=((formulas.capped_logits, 1),))
    return family


def _norms(spec: ModelSpec, family: Family, run: Run, inputs: int = 1, norms: int = 1) -> Iterator[Saved]:
    """`norms` norms as wide as the model, of `inputs` distinct tensors."""
    if spec.norm == "layernorm":
        yield run.saved(formulas.model_wide, inputs, d=spec.d_model)
        yield run.saved(formulas.layer_norm_statistics, norms)
    else:
        yield run.saved(getattr(formulas, f"rms_norm{family.rms_norm}"), norms, d=spec.d_model)


def _lined_up(a: Attention, family: Family, run: Run) -> bool:
    """Whether the heads of all sequences are copied onto one axis, as a batched product wants them.

    It takes no copy where there is one head or one sequence, nor for single tokens whose heads lie evenly apart.
    """
    return not run.fused and run.B > 1 and a.heads > 1 and (run.T > 1 or not family.interleaved)


def _operands(a: Attention, family: Family, run: Run) -> Iterator[Saved]:
    """Queries, keys and values as the products, or the fused kernel, read them."""
    sizes = {"h": a.heads, "h_kv": a.kv_heads, "d_h": a.head_dim}
    lined_up = _lined_up(a, family, run)
    # The fused kernel shares keys by itself without a mask, or for one token. One key for all is looked at, not copied.
    by_kernel = run.fused and not family.masked and (run.T == 1 or not _masked(a, family, run))
    repeated = 1 < a.kv_heads < a.heads and not by_kernel
    in_place = {name for name in family.joint if not lined_up and not (repeated and name in "kv")}
    if in_place:
        yield run.saved(formulas.queries_keys_values, **sizes)
    for name in (name for name in "qkv" if name not in in_place):
        copied = name == "q" or lined_up or repeated
        yield run.saved(formulas.queries if copied else formulas.keys, **sizes)


def _latent_operands(a: Attention, family: Family, run: Run) -> Iterator[Saved]:
    """The same of latent attention, with the narrow tensors that come before them."""
    assert a.latent
    sizes = {"h": a.heads, "d_h": a.latent.nope_dim + a.latent.rope_dim, "d_r": a.latent.rope_dim}
    sizes |= {"d_v": a.latent.value_dim, "r_q": a.latent.query_rank, "r_kv": a.latent.kv_rank}
    if a.latent.query_rank:
        yield run.saved(getattr(formulas, f"query_rank_norm{family.rms_norm}"), **sizes)
        yield run.saved(formulas.query_rank_wide, **sizes)
    yield run.saved(getattr(formulas, f"latent_norm{family.rms_norm}"), **sizes)
    yield run.saved(formulas.latent_wide, **sizes)
    yield run.saved(formulas.queries, 2, **sizes)
    copied = _lined_up(a, family, run)
    yield run.saved(formulas.expanded_values if copied else formulas.expanded_keys_values, **sizes)


def _masked(a: Attention, family: Family, run: Run) -> bool:
    """Whether the fused kernel gets a mask; else it hides later keys by itself."""
    return family.masked or (a.window is not None and a.window <= run.T)


def _attention(a: Attention, family: Family, run: Run) -> Iterator[Saved]:
    sizes = {"h": a.heads, "h_kv": a.kv_heads, "d_h": a.head_dim}
    if family.picked:
        yield run.saved(formulas.picked_heads, m=2)
    if a.query_key_norm != "none":
        ending = ("_full" if a.query_key_norm == "full" else "") + family.rms_norm
        yield run.saved(getattr(formulas, f"query_norm{ending}"), **sizes)
        yield run.saved(getattr(formulas, f"key_norm{ending}"), **sizes)
    yield from _latent_operands(a, family, run) if a.latent else _operands(a, family, run)
    if run.fused:
        yield run.saved(formulas.log_sum_exp, **sizes)
        if _masked(a, family, run) and not family.shared_bias:
            yield run.saved(formulas.batch_mask)
        if family.by_head and a.heads > 1 and run.T > 1:
            yield run.saved(formulas.queries, **sizes)
    else:
        yield run.saved(family.softmax, **sizes)
        if run.dropout.weights:  # of two copies of the softmax, the one in the model's type is not kept
            copies = 1 if family.softmax is formulas.attention_weights_wide else 2
            yield run.saved(formulas.dropped_weights, copies, **sizes)
        yield from (run.saved(formula, copies, **sizes) for formula, copies in family.scores)
    if a.latent:
        yield run.saved(formulas.expanded_values, h=a.heads, d_v=a.latent.value_dim)
    else:
        yield run.saved(formulas.queries, **sizes)


def _feedforward(d: int, ff: Feedforward, family: Family, facts: Mapping[str, Any], run: Run) -> Iterator[Saved]:
    own = ACTIVATIONS[facts["activation"]]
    tensors = own + 2 * (ff.kind == "gated")
    joint = max(own, 2) + 2  # up's share keeps the gate's, which ReLU does not read
    if not ff.experts:
        yield run.saved(formulas.hidden, joint if family.joint_gate else tensors, f=ff.width)
        return
    n_g, k_g = groups(facts, ff.experts)
    sizes = {"d": d, "f": ff.width, "E": ff.experts, "k": ff.experts_per_token, "n_g": n_g, "k_g": k_g}
    yield from (run.saved(formula, copies, **sizes) for formula, copies in family.experts)
    yield run.saved(formulas.routed_hidden, family.gate or joint, **sizes)
    if ff.shared_width:
        yield run.saved(formulas.model_wide, d=d)
        yield run.saved(formulas.shared_hidden, tensors, f_s=ff.shared_width)


def layer_saved(spec: ModelSpec, layer: Layer, run: Run) -> Iterator[Saved]:
    """What one layer saves of its own, not checkpointed."""
    assert run.public is not None
    family, d = _family(run.public), spec.d_model
    shared_input = layer.parallel and layer.norms > 1
    yield from _norms(spec, family, run, layer.norms - shared_input, layer.norms)
    yield run.saved(formulas.model_wide, d=d)  # what attention reads
    if layer.feedforward.experts:
        yield run.saved(family.router_reads, d=d)
    elif not (layer.parallel and layer.norms == 1):  # else the feed-forward reads the same
        yield run.saved(formulas.model_wide, d=d)
    yield from _attention(layer.attention, family, run)
    yield from _feedforward(d, layer.feedforward, family, run.public, run)


def outside_saved(spec: ModelSpec, run: Run) -> Iterator[Saved]:
    """What is saved outside the layers, and what they share."""
    assert run.public is not None
    family, d, d_e = _family(run.public), spec.d_model, spec.embedding_width or spec.d_model
    a = spec.layers[0][1].attention
    yield run.saved(formulas.token_ids)
    yield from (run.saved(formula, copies) for formula, copies in family.embedding)
    if spec.positions == "learned":
        yield run.saved(family.positions)
    if d_e != d:
        yield run.saved(formulas.embedding_wide, 2, d_e=d_e)  # of the first map, and of the head
    if spec.embedding_norm:
        yield from _norms(spec, family, run)
    if run.checkpointed and not run.fused and family.mask_with_input:
        yield run.saved(formulas.batch_mask)
    if spec.positions == "rope" and not run.checkpointed:
        kinds = len({layer.attention.window for _, layer in spec.layers}) if family.rotations else 1
        yield run.saved(family.rotation, kinds, d_h=a.head_dim, d_r=rotated(run.public, a))
    if family.shared_bias and run.fused and not run.checkpointed:
        yield run.saved(formulas.batch_bias, h=a.heads)
    if spec.final_norm:
        yield from _norms(spec, family, run)
    yield run.saved(formulas.model_wide, d=d)
    yield from (run.saved(formula, copies, V=spec.vocabulary) for formula, copies in family.logits)
