"""The weights of one decoder in another: of transformers in ours, and of ours in the NumPy reference."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers.pytorch_utils import Conv1D

from transformer_ledger.executed.count import CountError
from transformer_ledger.executed.decoder import Decoder
from transformer_ledger.executed.transformers_model import QKV, component_of
from transformer_ledger.model import Attention, ModelSpec

GROUPED = ("bloom", "falcon", "gpt_neox")  # fused query, key and value lie group by group: g queries, a key, a value
INTERLEAVED = ("deepseek_v2", "deepseek_v3")  # rotate components 2i and 2i + 1, where ours has i and i + d/2
SHIFTED_GAINS = ("gemma", "gemma2", "gemma3_text")  # norms multiply by 1 + weight, and the embedding by √d


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


def _cut(component: str, part: str, tensor: Tensor, own: Attention, family: str) -> dict[str, Tensor]:
    """Our tensors out of one of transformers, outputs first."""
    if component == QKV:
        if family in GROUPED:
            groups = tensor.unflatten(0, (own.kv_heads, -1, own.head_dim))
            parts = [part.flatten(0, 2) for part in (groups[:, :-2], groups[:, -2:-1], groups[:, -1:])]
        else:
            kv = own.kv_heads * own.head_dim
            parts = list(tensor.split([own.heads * own.head_dim, kv, kv]))
        return dict(zip(("attention.query", "attention.key", "attention.value"), parts, strict=True))
    if component == "key+value":
        assert own.latent is not None
        heads = tensor.unflatten(0, (own.heads, -1)).split([own.latent.nope_dim, own.latent.value_dim], 1)
        return {f"attention.{name}": part.flatten(0, 1) for name, part in zip(("key", "value"), heads, strict=True)}
    if component == "gate+up":
        gate, up = tensor.chunk(2, -1 if part == "bias" else -2)
        return {"feedforward.gate": gate, "feedforward.up": up}
    if own.latent and family in INTERLEAVED and component in ("attention.query", "attention.latent_down"):
        rows = tensor if tensor.dim() == 2 else tensor.unsqueeze(-1)
        heads = rows.unflatten(0, (own.heads if component == "attention.query" else 1, -1))
        kept, turned = heads[:, : -own.latent.rope_dim], _paired(heads[:, -own.latent.rope_dim :])
        return {component: torch.cat([kept, turned], 1).reshape(tensor.shape)}
    return {component: tensor}


def _ours_first(path: str, tensor: Tensor, owner: nn.Module, family: str) -> Tensor:
    """A tensor of transformers with outputs before inputs, as our modules and most of its own have it."""
    transposed = isinstance(owner, Conv1D) or (family == "gpt_oss" and ".experts." in path)
    if tensor.dim() > 1 and transposed and not path.endswith("bias"):
        return tensor.transpose(-1, -2)
    if family in SHIFTED_GAINS and tensor.dim() == 1:
        return tensor + 1
    return tensor * tensor.shape[1] ** 0.5 if family in SHIFTED_GAINS and "embed_tokens" in path else tensor


def ours(theirs: nn.Module, spec: ModelSpec, family: str) -> Decoder:
    """Our decoder in fp64 with the weights of a transformers model of `family`.

    Raises CountError where a parameter of ours is given none, or one of another shape.
    """
    made, given = Decoder(spec).double(), Counter[tuple[str, str]]()
    for path, tensor in theirs.named_parameters():
        owner, _, part = path.rpartition(".")
        module = theirs.get_submodule(owner)
        if part not in ("weight", "bias"):  # experts and sinks are tensors of the module itself
            owner, part = path, "bias" if part.endswith("_bias") else part if part == "sinks" else "weight"
        layer = re.search(r"\.(\d+)\.", path)
        own = spec.each_layer()[int(layer.group(1)) if layer else 0].attention
        value = _ours_first(path, tensor, module, family)
        for component, cut in _cut(component_of("." + owner), part, value, own, family).items():
            name = component.removesuffix(".sinks")
            if layer:
                name = f"layers.{layer.group(1)}.{name}"
            if component == "norm" and layer:
                name += f".{given[name, part]}"
                given[name.rpartition(".")[0], part] += 1
            target = made.get_submodule(name).get_parameter(part)
            if target.shape != cut.shape:
                raise CountError(f"{spec.name}: {name} is {tuple(target.shape)} in ours, {tuple(cut.shape)} in {path}")
            target.data.copy_(cut)
            given[name, part] += 1
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
        elif part == "sinks":
            weights[path] = value
        else:
            table = owner.endswith("embedding") or value.ndim == 1
            weights[owner] = value if table else value.swapaxes(-1, -2)
    return weights
