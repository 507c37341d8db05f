"""The weights of one decoder in another: of transformers in ours, and of ours in the NumPy reference."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers.pytorch_utils import Conv1D

from transformer_ledger.executed.count import CountError
from transformer_ledger.executed.decoder import Decoder
from transformer_ledger.executed.transformers_model import QKV, fused, layer_of
from transformer_ledger.model import Attention, FixedState, Layer, ModelSpec

ALONE = ("attention.sinks", "state.decay", "state.step", "state.skip")  # parameters of a module of ours itself
GROUPED = ("bloom", "falcon", "gpt_neox")  # fused query, key and value lie group by group: g queries, a key, a value
INTERLEAVED = (
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "glm_moe_dsa",
)  # rotate components 2i and 2i + 1, where ours has i and i + d/2
INDEXER = ("attention.indexer.query", "attention.indexer.key", "attention.indexer.key_norm")
SCALED = ("gemma", "gemma2", "gemma3_text")  # multiply the embedding by √d
SHIFTED_GAINS = (*SCALED, "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")  # norms multiply by 1 + weight


class Double(TorchFunctionMode):
    """fp64 for what asks for fp32: transformers rounds norms, softmax and angles to it, whatever the weights are."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def wide(value: Any) -> Any:
            return torch.float64 if value is torch.float32 else value

        function = Tensor.double if function is Tensor.float else function
        return function(*map(wide, args), **{name: wide(value) for name, value in (kwargs or {}).items()})


def _paired(rows: Tensor) -> Tensor:
    """Rows (…, d_r, inputs) of a rotated projection in the order of our pairing."""
    return torch.cat([rows[..., 0::2, :], rows[..., 1::2, :]], -2)


def _state(component: str, tensor: Tensor, own: FixedState) -> dict[str, Tensor]:
    """The tensors of a fixed state; qwen3_next's lie group by group, its shares that are overwritten before the steps.

    Mamba-2's channels are values, what is written at, what is read with; ours the other way round.
    """
    if own.rule == "ssm" and component.startswith(("state.gate+", "state.convolution")):
        values, narrow = own.heads * own.value_dim, own.groups * own.key_dim
        widths = [values, narrow, narrow]
        if component == "state.convolution":
            return {component: torch.cat(tensor.split(widths)[::-1])}
        gate, *channels, rates = tensor.split([values, *widths, own.heads])
        return {"state.gate": gate, "state.input": torch.cat(channels[::-1]), "state.rates": rates}
    if component == "state.input+gate":
        g = own.heads // own.groups * own.value_dim
        parts = tensor.unflatten(0, (own.groups, -1)).split([own.key_dim, own.key_dim, g, g], 1)
        q, k, v, z = (part.flatten(0, 1) for part in parts)
        return {"state.input": torch.cat([q, k, v]), "state.gate": z}
    if component == "state.rates" and own.rates == 2:
        overwritten, steps = tensor.unflatten(0, (own.groups, -1)).chunk(2, 1)
        return {component: torch.cat([steps.flatten(0, 1), overwritten.flatten(0, 1)])}
    return {component: tensor.flatten() if component == "state.decay" else tensor}


def _named(theirs: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters by path; two maps to the rates (Qwen3.5) are one, group by group as qwen3_next has it, and so are those to
    the channels of a fixed state (Kimi)."""
    named = dict(theirs.named_parameters())
    for path, tensor in named.items():
        mixer = theirs.get_submodule(path.rpartition(".")[0].rpartition(".")[0])
        if hasattr(mixer, "conv1d") and path.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            if path.endswith("q_proj.weight"):
                yield path, torch.cat([named[path.replace("q_proj", f"{x}_proj")] for x in "qkv"])
        elif path.endswith("in_proj_a.weight"):
            groups = theirs.get_submodule(path.removesuffix(".in_proj_a.weight")).num_k_heads
            both = [x.unflatten(0, (groups, -1)) for x in (named[path.replace("proj_a", "proj_b")], tensor)]
            yield path, torch.cat(both, 1).flatten(0, 1)
        elif not path.endswith("in_proj_b.weight"):
            yield path, tensor


def _cut(component: str, part: str, tensor: Tensor, layer: Layer | None, family: str) -> dict[str, Tensor]:
    """Our tensors out of one of transformers, outputs first."""
    if component.endswith("feedforward.gate+up"):
        gate, up = tensor.chunk(2, -1 if part == "bias" else -2)
        return {component.replace("gate+up", "gate"): gate, component.replace("gate+up", "up"): up}
    own = layer.mixer if layer else None
    if layer and layer.state and component.startswith("state."):
        return _state(component, tensor, layer.state)
    if not isinstance(own, Attention):
        return {component: tensor}
    if component == "attention.query+gate":  # head by head
        query, gate = tensor.unflatten(0, (own.heads, 2, -1)).unbind(1)
        return {"attention.query": query.flatten(0, 1), "attention.gate": gate.flatten(0, 1)}
    if component == QKV:
        if family in GROUPED:
            groups = tensor.unflatten(0, (own.kv_heads, -1, own.head_dim))
            parts = [part.flatten(0, 2) for part in (groups[:, :-2], groups[:, -2:-1], groups[:, -1:])]
        else:
            kv = own.kv_heads * own.head_dim
            parts = list(tensor.split([own.heads * own.head_dim, kv, kv]))
        return dict(zip(("attention.query", "attention.key", "attention.value"), parts, strict=True))
    if component == "attention.key+value":
        assert own.latent is not None
        heads = tensor.unflatten(0, (own.heads, -1)).split([own.latent.nope_dim, own.latent.value_dim], 1)
        return {f"attention.{name}": part.flatten(0, 1) for name, part in zip(("key", "value"), heads, strict=True)}
    if own.latent and family in INTERLEAVED and component in ("attention.query", "attention.latent_down"):
        rows = tensor if tensor.dim() == 2 else tensor.unsqueeze(-1)
        heads = rows.unflatten(0, (own.heads if component == "attention.query" else 1, -1))
        kept, turned = heads[:, : -own.latent.rope_dim], _paired(heads[:, -own.latent.rope_dim :])
        return {component: torch.cat([kept, turned], 1).reshape(tensor.shape)}
    if own.latent and own.indexer and family == "glm_moe_dsa" and component in INDEXER:  # its indexer does so too
        rows = tensor if tensor.dim() == 2 else tensor.unsqueeze(-1)
        heads = rows.unflatten(0, (-1, own.indexer.head_dim))
        turned, kept = _paired(heads[:, : own.latent.rope_dim]), heads[:, own.latent.rope_dim :]
        return {component: torch.cat([turned, kept], 1).reshape(tensor.shape)}
    return {component: tensor}


def _ours_first(path: str, tensor: Tensor, owner: nn.Module, family: str) -> Tensor:
    """A tensor of transformers with outputs before inputs, as our modules and most of its own have it."""
    transposed = isinstance(owner, Conv1D) or (family == "gpt_oss" and ".experts." in path)
    if tensor.dim() > 1 and transposed and not path.endswith("bias"):
        return tensor.transpose(-1, -2)
    if family in SHIFTED_GAINS and path.endswith("norm.weight") and "linear_attn" not in path:
        return tensor + 1
    return tensor * tensor.shape[1] ** 0.5 if family in SCALED and "embed_tokens" in path else tensor


def ours(theirs: nn.Module, spec: ModelSpec, family: str) -> Decoder:
    """Our decoder in fp64 with the weights of a transformers model of `family`.

    Raises CountError where a parameter of ours is given none, or one of another shape.
    """
    made, given = Decoder(spec).double(), Counter[tuple[str, str]]()
    layers = spec.each_layer()
    for path, tensor in _named(theirs):
        owner, _, part = path.rpartition(".")
        module = theirs.get_submodule(owner)
        if part not in ("weight", "bias"):  # experts and sinks are tensors of the module itself
            owner, part = path, "bias" if part.endswith("_proj_bias") else "weight"
        index, layer = re.search(r"\.(\d+)\.", path), layer_of(path, layers)
        value = _ours_first(path, tensor, module, family)
        for component, cut in _cut(fused("." + owner, layer), part, value, layer, family).items():
            name, last = component, part
            if component in ALONE:
                name, _, last = component.rpartition(".")
            if index:
                name = f"layers.{index.group(1)}.{name}"
            if component == "norm" and index:
                name += f".{given[name, last]}"
                given[name.rpartition(".")[0], last] += 1
            target = made.get_submodule(name).get_parameter(last)
            if target.shape != cut.shape:
                raise CountError(f"{spec.name}: {name} is {tuple(target.shape)} in ours, {tuple(cut.shape)} in {path}")
            target.data.copy_(cut)
            given[name, last] += 1
    named = {(path.rpartition(".")[0], path.rpartition(".")[2]) for path, _ in made.named_parameters()}
    if missing := sorted(named - set(given)):
        raise CountError(f"{spec.name}: transformers has no {missing}")
    return made


def reference(model: Decoder) -> dict[str, Any]:
    """The weights of our decoder by the names and shapes of the NumPy reference: inputs before outputs."""
    weights = {}
    for path, tensor in model.named_parameters():
        owner, _, part = path.rpartition(".")
        value = tensor.detach().numpy()
        if part == "bias":
            weights[path] = value[:, None, :] if value.ndim == 2 else value
        elif part != "weight":
            weights[path] = value
        else:
            table = owner.endswith("embedding") or value.ndim == 1
            weights[owner] = value if table else value.swapaxes(-1, -2)
    return weights
