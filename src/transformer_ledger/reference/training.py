"""The reference decoder in torch's arithmetic, so that it can be trained: next-token prediction, Adam, one thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from transformer_ledger.model import ModelSpec
from transformer_ledger.reference import decoder
from transformer_ledger.reference.arithmetic import Blas

FIRST_DECAY, SECOND_DECAY, ADAM_EPSILON = 0.9, 0.999, 1e-8  # Adam's defaults (Kingma and Ba, arXiv:1412.6980)


class Torch(Blas):
    """fp64 torch tensors with torch's kernels as shipped."""

    name = "torch"

    def array(self, x: Any) -> torch.Tensor:
        return torch.as_tensor(x, dtype=torch.float64)

    def join(self, parts: list[Any]) -> Any:
        return torch.cat(parts, -1)

    def total(self, x: Any) -> Any:
        return x.sum(-1, keepdim=True)

    def softmax(self, scores: Any, visible: Any) -> Any:
        return scores.masked_fill(~torch.as_tensor(visible), -torch.inf).softmax(-1)

    def norm(self, kind: str, x: Any, gain: Any, bias: Any | None, epsilon: float) -> Any:
        width = x.shape[-1:]
        if kind == "layernorm":
            return torch.nn.functional.layer_norm(x, width, gain, bias, epsilon)
        return torch.nn.functional.rms_norm(x, width, gain, epsilon)

    def silu(self, x: Any) -> Any:
        return torch.nn.functional.silu(x)

    def gelu(self, x: Any) -> Any:
        return torch.nn.functional.gelu(x)

    def cross_entropy(self, logits: Any, targets: Any) -> Any:
        flat = torch.nn.functional.cross_entropy(
            logits.flatten(0, -2), torch.as_tensor(targets).flatten(), reduction="none"
        )
        return flat.reshape(logits.shape[:-1])


TORCH = Torch()


def train(
    spec: ModelSpec,
    weights: decoder.Weights,
    ids: Any,
    *,
    causal: bool,
    length: int,
    batch: int,
    steps: int,
    learning_rate: float,
    seed: int,
    answers: Any = None,
) -> dict[str, Any]:
    """Weights after `steps` of Adam on windows of `length` tokens drawn from `ids`; `weights` stay as they are.

    What is to be predicted after token i is `answers[i + 1]`, the next token unless given.
    """
    ids = np.asarray(ids)
    answers = ids if answers is None else answers
    torch.set_num_threads(1)
    generator = np.random.Generator(np.random.PCG64(seed))
    tensors = {name: torch.tensor(value, requires_grad=True) for name, value in weights.items()}
    moments = {name: (torch.zeros_like(value), torch.zeros_like(value)) for name, value in tensors.items()}
    for step in range(1, steps + 1):
        starts = generator.integers(0, len(ids) - length, batch)
        window = starts[:, None] + np.arange(length)
        logits = decoder.forward(spec, tensors, ids[window], TORCH, causal=causal)
        loss = TORCH.cross_entropy(logits, answers[window + 1]).mean()
        gradients = torch.autograd.grad(loss, list(tensors.values()))
        # Adam by hand: torch.optim takes longer to import than these models take to train.
        with torch.no_grad():
            for gradient, (name, value) in zip(gradients, tensors.items(), strict=True):
                first, second = moments[name]
                first.lerp_(gradient, 1 - FIRST_DECAY)
                second.lerp_(gradient * gradient, 1 - SECOND_DECAY)
                size = (second / (1 - SECOND_DECAY**step)).sqrt() + ADAM_EPSILON
                value -= learning_rate / (1 - FIRST_DECAY**step) * first / size
    return {name: value.detach().numpy() for name, value in tensors.items()}
