"""Training of our executed decoder on a `Source`: AdamW, linear warm-up, cosine decay; one seed, one result.

AdamW: Loshchilov and Hutter 2019, arXiv:1711.05101. Weights start normal with deviation 1/√n for n inputs (LeCun et al.
1998, Efficient BackProp, section 4.6), biases 0, gains 1, and the two projections that end in the residual stream smaller
by 1/√(2N) for N layers (GPT-2: Radford et al. 2019, section 2.3). GPT-2's own deviation, 0.02, is 1/√n at n = 2500: at the
widths trained here it leaves attention uniform for most of a short training. A learned position table starts as sinusoids
(Vaswani et al. 2017, section 3.5): there is no time to tell positions apart from noise.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from transformer_ledger.executed.decoder import Decoder
from transformer_ledger.model import ModelSpec
from transformer_ledger.study.source import TRAINING, HeldOut, Source, stream

EMBEDDING_DEVIATION = 0.1
FINAL_SHARE = 0.1  # of the learning rate, where the cosine ends
GRADIENT_NORM = 1.0  # gradients are clipped to it
SECOND_DECAY = 0.99  # a short training: the second moment must not remember its first steps to the end


@dataclass(frozen=True)
class Programme:
    """A training programme: batches of `batch` sequences of `length` predictions, `steps` of them."""

    length: int
    batch: int
    steps: int
    warmup: int
    learning_rate: float
    weight_decay: float

    def rate(self, step: int) -> float:
        """Learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        done = (step - self.warmup) / max(self.steps - self.warmup, 1)
        return self.learning_rate * (FINAL_SHARE + (1 - FINAL_SHARE) * 0.5 * (1 + math.cos(math.pi * done)))


def _sinusoids(rows: int, width: int) -> Tensor:
    """(rows, width) of root mean square EMBEDDING_DEVIATION: sines of falling frequencies, then their cosines."""
    frequencies = 10000.0 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(rows).unsqueeze(1) * frequencies
    return EMBEDDING_DEVIATION * math.sqrt(2) * torch.cat([angles.sin(), angles.cos()], 1)[:, :width]


def fresh(spec: ModelSpec, seed: int) -> Decoder:
    """An untrained decoder. Each tensor has a generator of its own, from the seed and the tensor's name, so that two models
    start equal in every tensor that both have in the same shape."""
    with torch.device("meta"):
        model = Decoder(spec)
    model.to_empty(device="cpu")  # gives each module a tensor of its own
    if spec.tied_head:
        model.head.weight = model.token_embedding.weight
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith("bias"):
                tensor.zero_()
            elif tensor.dim() == 1:
                tensor.fill_(1.0)
            elif name.startswith("position_embedding"):
                tensor.copy_(_sinusoids(*tensor.shape))
            else:
                deviation = EMBEDDING_DEVIATION if "embedding" in name else 1 / math.sqrt(tensor.shape[-1])
                if name.endswith(("attention.output.weight", "feedforward.down.weight")):
                    deviation /= math.sqrt(2 * spec.depth)
                own = int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8], "little")
                tensor.normal_(0.0, deviation, generator=torch.Generator().manual_seed(own))
    return model


def losses(model: nn.Module, ids: Any) -> Tensor:
    """−ln p of tokens 1 … T of `ids` (B, T + 1): (B, T), in nats."""
    ids = torch.as_tensor(ids)
    logits = model(ids[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(len(ids), -1)


def train(
    model: Decoder,
    source: Source,
    programme: Programme,
    seed: int,
    watch: Callable[[int, float | None], None] = lambda step, loss: None,
) -> None:
    """Train `model` in place. `watch` is called with the number of steps done and the loss of the last batch."""
    batches = source.batches(stream(seed, TRAINING), programme.batch, programme.length)
    matrices = [tensor for tensor in model.parameters() if tensor.dim() > 1]
    vectors = [tensor for tensor in model.parameters() if tensor.dim() == 1]
    groups = [
        {"params": matrices, "weight_decay": programme.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=programme.learning_rate, betas=(0.9, SECOND_DECAY), fused=True)
    watch(0, None)
    for step in range(programme.steps):
        for group in optimizer.param_groups:
            group["lr"] = programme.rate(step)
        loss = losses(model, next(batches)).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), GRADIENT_NORM)
        optimizer.step()
        watch(step + 1, loss.item())


def evaluate(model: nn.Module, data: HeldOut) -> dict[str, Any]:
    """Held-out losses by kind, float64 arrays (sequences, T)."""
    with torch.no_grad():
        return {kind: losses(model, ids).double().numpy() for kind, ids in data.ids.items()}
