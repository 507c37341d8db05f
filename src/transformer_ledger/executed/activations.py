"""What a forward pass saves for its backward pass, tensor by tensor, on the CPU.

Saved tensors are seen by `torch.autograd.graph.saved_tensors_hooks`. A storage counts once, however many views of it are
saved; parameters do not count. A small copy runs for real (`measured`). A model too large for that is traced
(`traced`): torch's fake tensors have the shape, the type and the device of real ones, choose the same kernels and save
the same tensors, without memory and without values. The meta device will not do: other kernels run there.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, is_fake
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from transformer_ledger.executed.cache import DTYPES
from transformer_ledger.executed.decoder import Attention, Decoder, Experts, Visible
from transformer_ledger.model import Dropout, ModelSpec
from transformer_ledger.shrunken import way, ways


class _WithSinks(torch.autograd.Function):
    """torch's fused kernel with a sink a head, which takes its share of each softmax and gives no value.

    With the sink in it, the log-sum-exp scales the outputs down and, handed to the backward kernel in the place of the
    kernel's own, gives the gradients: those are the softmax's of all keys and the sink.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, mask: Tensor | None, scale: float) -> Tensor:
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out, keys = kernel(q, k, v, 0.0, mask is None, attn_mask=mask, scale=scale)
        both = torch.logaddexp(keys, sinks.to(keys.dtype).unsqueeze(-1))  # (B, h, T)
        out = (out * (keys - both).exp().unsqueeze(-1)).to(out.dtype)
        ctx.save_for_backward(q, k, v, sinks, mask, out, both)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = gradients
        q, k, v, sinks, mask, out, both = ctx.saved_tensors
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        of_qkv = kernel(grad, q, k, v, out, both, 0.0, mask is None, attn_mask=mask, scale=ctx.scale)
        of_sinks = -((sinks.unsqueeze(-1) - both).exp() * (grad * out).sum(-1)).sum((0, 2))
        return *of_qkv, of_sinks.to(sinks.dtype), None, None


def fused(self: Attention, q: Tensor, k: Tensor, v: Tensor, scale: float, visible: Visible) -> Tensor:
    """`Attention.attend` by torch's fused kernel: a causal mask is its own, a window is given as a mask.

    The kernel takes keys and values of one width: the narrower get zeros, which change no product, as training and
    serving kernels without a case for latent attention do it.
    """
    T, S, width = q.shape[2], k.shape[2], v.shape[-1]
    hidden = visible(T, S, self.spec) if self.spec.window is not None and self.spec.window < S else None
    mask = None if hidden is None else torch.zeros_like(hidden, dtype=q.dtype).masked_fill(hidden, -math.inf)
    if width != q.shape[-1]:
        wide = max(width, q.shape[-1])
        q, k, v = (functional.pad(x, (0, wide - x.shape[-1])) for x in (q, k, v))
    if self.sinks is None:
        grouped = q.shape[1] != k.shape[1]
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out = functional.scaled_dot_product_attention(
                q, k, v, mask, is_causal=mask is None, scale=scale, enable_gqa=grouped
            )
    else:
        out = _WithSinks.apply(q, k, v, self.sinks, mask, scale)
    return out[..., :width].transpose(1, 2).flatten(-2)


class _Grouped(torch.autograd.Function):
    """Each row through the matrix of its expert, as a grouped kernel does it: no matrix is gathered for a row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, chosen: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight, chosen)
        out = x.new_empty(len(x), weight.shape[1])
        for expert in () if is_fake(x) else chosen.unique().tolist():  # a fake tensor has no values
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


def grouped(self: Experts, x: Tensor, chosen: Tensor) -> Tensor:
    """`Experts.forward` by `_Grouped`."""
    out = _Grouped.apply(x, self.weight, chosen)
    return out if self.bias is None else out + self.bias[chosen]


def save_inputs(layers: nn.ModuleList) -> None:
    """Let each layer save its input and run again, forward, when its gradients are wanted."""
    for layer in layers:
        layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)


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
    def watching(self, layers: nn.ModuleList, behind: str = "outside") -> Iterator[None]:
        """Count what is saved for as long as the context lasts; what a layer saves is booked on its index, what comes
        `behind` a layer on that name."""

        def entered(index: int, *_: Any) -> None:
            self.part = index

        def left(*_: Any) -> None:
            self.part = behind

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

    The layers are two of each kind: what the second saves is its own, what the first saves besides (masks, angles) is
    the rest's.
    """
    saved = Saved(model.parameters())
    ids, wanted = (torch.zeros(batch, tokens, dtype=torch.long) for _ in range(2))
    with saved.watching(layers):
        logits = run(ids)
        saved.part = "logits"
        functional.cross_entropy(logits.float().flatten(0, 1), wanted.flatten())
    kinds = len(layers) // 2
    parts = {f"layer {kind}": saved.bytes[2 * kind + 1] for kind in range(kinds)}
    total, logits_bytes = saved.bytes.total(), saved.bytes["logits"]
    rest = total - logits_bytes - 2 * sum(parts.values())
    return {**parts, "outside": rest, "logits": logits_bytes, "total": total}


def decoder(spec: ModelSpec, dtype: str, method: str, checkpointed: bool) -> Decoder:
    """Our decoder on the CPU, attention eager or fused, its layers checkpointed or not, experts by a grouped kernel."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(DTYPES[dtype])  # fake weights cannot be converted afterwards
    try:
        model = Decoder(spec)
    finally:
        torch.set_default_dtype(before)
    for module in model.modules():
        if isinstance(module, Experts):
            module.forward = functools.partial(grouped, module)  # type: ignore[method-assign]
        if isinstance(module, Attention) and method == "fused":
            module.attend = functools.partial(fused, module)  # type: ignore[method-assign]
    if checkpointed:
        save_inputs(model.layers)
    return model


class Way(NamedTuple):
    """A model that is ready to run in one way: `method` as `eager` or `fused-checkpointed`, `run` token ids → logits."""

    method: str
    model: nn.Module
    layers: nn.ModuleList
    run: Callable[[Tensor], Tensor]


Ways = Iterator[Way]
Parts = dict[tuple[str, str], int]


def ours(spec: ModelSpec, dtype: str) -> Ways:
    """Our decoder of `spec`, which has two layers of each kind."""
    for method, checkpointed, dropping in ways(None, spec.dropout):
        model = decoder(spec, dtype, method, checkpointed).train(dropping)
        yield Way(way(method, checkpointed, dropping), model, model.layers, model)


def transformers(hf_config: dict[str, Any], dtype: str, dropout: Dropout) -> Ways:
    """transformers' model of a config.json that has two layers of each kind, and these dropout rates.

    Its `run` raises RuntimeError where attention should be fused and torch takes another way.
    """
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()  # it would tell that the copy is not the model
    for method, checkpointed, dropping in ways(hf_config, dropout):
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(**hf_config),
            dtype=DTYPES[dtype],
            trust_remote_code=False,
            attn_implementation="sdpa" if method == "fused" else method,
        ).eval()
        (layers,) = (
            module
            for name, module in model.named_modules()
            if isinstance(module, nn.ModuleList) and name.rpartition(".")[2] in ("layers", "h")
        )
        layers.train(dropping)
        for module in model.modules():  # not the model itself: OPT's would draw which layers it runs
            if isinstance(module, nn.Dropout):
                module.train(dropping)
        if checkpointed:
            save_inputs(layers)

        def run(ids: Tensor, model: Any = model) -> Tensor:
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                logits: Tensor = model(ids, use_cache=False).logits
            return logits

        yield Way(way(method, checkpointed, dropping), model, layers, run)


def measured(ways: Ways, batch: int, tokens: int) -> Parts:
    """Bytes by (method, part) that each of `ways` saves when it runs."""
    return {
        (way.method, part): size
        for way in ways
        for part, size in saved_bytes(way.model, way.layers, way.run, batch, tokens).items()
    }


def traced(make: Callable[[], Ways], loads: Mapping[str, Mapping[str, int]]) -> dict[str, Parts]:
    """The same for each of `loads` {name: batch, context}, of models that `make` builds without memory."""
    found: dict[str, Parts] = {name: {} for name in loads}
    # transformers looks at the values of the positions for several texts in one row, and keeps its mask where it cannot.
    plain = mock.patch("transformers.masking_utils.find_packed_sequence_indices", return_value=None)
    with FakeTensorMode(), plain:
        for way in make():
            for name, load in loads.items():
                found[name] |= measured(iter([way]), load["batch"], load["context"])
    return found
