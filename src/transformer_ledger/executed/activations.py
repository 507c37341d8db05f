"""What a real forward pass saves for its backward pass, tensor by tensor, on the CPU.

Saved tensors are seen by `torch.autograd.graph.saved_tensors_hooks`. A storage counts once, however many views of it are
saved; parameters do not count. The meta device will not do: other kernels run there, and save other tensors.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from transformer_ledger.executed.cache import DTYPES
from transformer_ledger.executed.decoder import Attention, Decoder, Experts, LatentAttention, Visible
from transformer_ledger.model import ModelSpec

METHODS = ("eager", "fused")


def can_fuse(spec: ModelSpec) -> bool:
    """Whether torch's fused kernel computes the attention: it has no sinks, and values are as wide as keys."""
    return not any(layer.attention.sinks or layer.attention.latent for _, layer in spec.layers)


def _fused(self: Attention, q: Tensor, k: Tensor, v: Tensor, scale: float, visible: Visible) -> Tensor:
    """`Attention.attend` by torch's fused kernel: a causal mask is its own, a window is given as a mask."""
    T, S = q.shape[2], k.shape[2]
    hidden = visible(T, S, self.spec.window) if self.spec.window is not None and self.spec.window < S else None
    out = functional.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=None if hidden is None else ~hidden,
        is_causal=hidden is None,
        scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return out.transpose(1, 2).flatten(-2)


class _Grouped(torch.autograd.Function):
    """Each row through the matrix of its expert, as a grouped kernel does it: no matrix is gathered for a row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, chosen: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight, chosen)
        out = x.new_empty(len(x), weight.shape[1])
        for expert in chosen.unique().tolist():
            out[chosen == expert] = x[chosen == expert] @ weight[expert].t()
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = gradients
        x, weight, chosen = ctx.saved_tensors
        dx, dw = torch.empty_like(x), torch.zeros_like(weight)
        for expert in chosen.unique().tolist():
            rows = chosen == expert
            dx[rows] = grad[rows] @ weight[expert]
            dw[expert] = grad[rows].t() @ x[rows]
        return dx, dw, None


def _grouped(self: Experts, x: Tensor, chosen: Tensor) -> Tensor:
    """`Experts.forward` by `_Grouped`."""
    out = _Grouped.apply(x, self.weight, chosen)
    return out if self.bias is None else out + self.bias[chosen]


class Checkpointed(nn.Module):
    """A layer that saves its input and runs again, forward, when its gradients are wanted."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return checkpoint(self.layer, *inputs, use_reentrant=False, **named)


class Saved:
    """Bytes of the distinct storages saved so far, each with the part of the model that saved it first."""

    def __init__(self, parameters: Iterator[nn.Parameter]):
        self.known = {parameter.untyped_storage()._cdata for parameter in parameters}
        self.alive: list[Tensor] = []  # a storage that is gone could lend its address to the next
        self.part: Any = "outside"
        self.bytes: Counter[Any] = Counter()

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.known:
            self.known.add(storage._cdata)
            self.alive.append(tensor)
            self.bytes[self.part] += storage.nbytes()
        return tensor

    @contextmanager
    def watching(self, layers: nn.ModuleList) -> Iterator[None]:
        """Count what is saved for as long as the context lasts; what a layer saves is booked on its index."""

        def entered(index: int, *_: Any) -> None:
            self.part = index

        def left(*_: Any) -> None:
            self.part = "outside"

        handles = []
        for index, layer in enumerate(layers):
            handles.append(layer.register_forward_pre_hook(functools.partial(entered, index)))
            handles.append(layer.register_forward_hook(left))
        try:
            with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor):
                yield
        finally:
            for handle in handles:
                handle.remove()


def saved_bytes(
    model: nn.Module, layers: nn.ModuleList, run: Callable[[Tensor], Tensor], batch: int, tokens: int
) -> dict[str, int]:
    """Bytes saved by `run` (token ids → logits) and the mean cross-entropy in fp32, by part: each kind of layer, logits
    and loss, the rest, and the total.

    The layers are the kinds, run twice: what the second of a kind saves is its own, what the first saves besides (masks,
    angles) is the rest's.
    """
    saved = Saved(model.parameters())
    ids, wanted = (torch.zeros(batch, tokens, dtype=torch.long) for _ in range(2))
    with saved.watching(layers):
        logits = run(ids)
        saved.part = "logits"
        functional.cross_entropy(logits.float().flatten(0, 1), wanted.flatten())
    kinds = len(layers) // 2
    parts = {f"layer {kind}": saved.bytes[kinds + kind] for kind in range(kinds)}
    total, logits_bytes = saved.bytes.total(), saved.bytes["logits"]
    rest = total - logits_bytes - 2 * sum(parts.values())
    return {**parts, "outside": rest, "logits": logits_bytes, "total": total}


def decoder(spec: ModelSpec, dtype: str, method: str, checkpointed: bool) -> Decoder:
    """Our decoder on the CPU, attention eager or fused, its layers checkpointed or not, experts by a grouped kernel."""
    model = Decoder(spec).to(DTYPES[dtype])
    for module in model.modules():
        if isinstance(module, Experts):
            module.forward = functools.partial(_grouped, module)  # type: ignore[method-assign]
        if isinstance(module, Attention) and not isinstance(module, LatentAttention) and method == "fused":
            module.attend = functools.partial(_fused, module)  # type: ignore[method-assign]
    if checkpointed:
        model.layers = nn.ModuleList(Checkpointed(layer) for layer in model.layers)
    return model


Parts = dict[tuple[str, str], int]


def _named(method: str, checkpointed: bool, parts: dict[str, int]) -> Parts:
    name = f"{method}-checkpointed" if checkpointed else method
    return {(name, part): size for part, size in parts.items()}


def measured(spec: ModelSpec, batch: int, tokens: int, dtype: str) -> Parts:
    """Bytes by (method, part) of our decoder, methods as `eager` or `fused-checkpointed`; `spec` runs its kinds twice."""
    found: Parts = {}
    for method in METHODS if can_fuse(spec) else METHODS[:1]:
        for checkpointed in (False, True):
            model = decoder(spec, dtype, method, checkpointed)
            found |= _named(method, checkpointed, saved_bytes(model, model.layers, model, batch, tokens))
    return found


def measured_transformers(hf_config: dict[str, Any], batch: int, tokens: int, dtype: str) -> Parts:
    """The same of transformers' model of a small config.json, GPT-2 or Llama, with two equal layers."""
    from transformers import AutoConfig, AutoModelForCausalLM

    found: Parts = {}
    for method in METHODS:
        for checkpointed in (False, True):
            model = AutoModelForCausalLM.from_config(
                AutoConfig.for_model(**hf_config),
                dtype=DTYPES[dtype],
                trust_remote_code=False,
                attn_implementation="sdpa" if method == "fused" else method,
            ).eval()  # without dropout
            name = "h" if hf_config["model_type"] == "gpt2" else "layers"
            if checkpointed:
                setattr(model.base_model, name, nn.ModuleList(map(Checkpointed, getattr(model.base_model, name))))

            def run(ids: Tensor, model: Any = model) -> Tensor:
                logits: Tensor = model(ids, use_cache=False).logits
                return logits

            layers = getattr(model.base_model, name)
            found |= _named(method, checkpointed, saved_bytes(model, layers, run, batch, tokens))
    return found
