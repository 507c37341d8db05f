"""Our own decoder in torch, built from a `ModelSpec`: the executed side that every closed form is held against.

It shares the description with the ledgers and nothing else (no formula is imported). It runs for real on the CPU,
forward, backward and token by token with a cache, and on the meta device at full size, where shapes are all there is.

The modules carry the ledger's component names (`layers.0.attention.query`), so `named_parameters` and FlopCounterMode
speak of components. The products of two activations (scores, values) are modules too, for the same reason.

Shapes: B sequences, T new tokens, S key positions, h query heads, h_kv key/value heads, g = h / h_kv.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from transformer_ledger.executed.cache import Cache
from transformer_ledger.model import Attention as AttentionSpec
from transformer_ledger.model import Feedforward as FeedforwardSpec
from transformer_ledger.model import FixedState as FixedStateSpec
from transformer_ledger.model import Indexer as IndexerSpec
from transformer_ledger.model import Latent, Layer, ModelSpec

Rotate = Callable[[Tensor], Tensor]
Visible = Callable[[int, int, AttentionSpec | None], Tensor | None]


class Linear(nn.Linear):
    """torch's linear map, without the time for an initialisation that the meta device throws away."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()


class Embedding(nn.Embedding):
    """torch's embedding, not initialised on the meta device: that would only cost seconds of imports."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()


class Product(nn.Module):
    """The matrix product of two activations."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left @ right


def _norm(spec: ModelSpec, width: int) -> nn.Module:
    if spec.norm == "layernorm":
        return nn.LayerNorm(width, eps=spec.norm_epsilon, bias=spec.norm_bias)
    return nn.RMSNorm(width, eps=spec.norm_epsilon)


class Attention(nn.Module):
    """Softmax attention of h query heads over h_kv key/value heads; query head i reads head ⌊i / g⌋."""

    def __init__(self, spec: ModelSpec, own: AttentionSpec):
        super().__init__()
        self.spec = own
        d, d_h = spec.d_model, own.head_dim
        self.query = Linear(d, own.heads * d_h, bias=own.query_bias)
        self.key = Linear(d, own.kv_heads * d_h, bias=own.key_bias)
        self.value = Linear(d, own.kv_heads * d_h, bias=own.value_bias)
        if own.query_key_norm != "none":
            full = own.query_key_norm == "full"
            self.query_norm = nn.RMSNorm(own.heads * d_h if full else d_h, eps=spec.norm_epsilon)
            self.key_norm = nn.RMSNorm(own.kv_heads * d_h if full else d_h, eps=spec.norm_epsilon)
        self.sinks = nn.Parameter(torch.zeros(own.heads)) if own.sinks else None
        self.gate = Linear(d, own.heads * d_h, bias=own.query_bias) if own.gated else None
        self.scores, self.values = Product(), Product()
        self.output = Linear(own.heads * d_h, d, bias=own.output_bias)
        self.dropout = spec.dropout.weights

    def _heads(self, x: Tensor, heads: int, norm: str) -> Tensor:
        """(B, T, heads·d_h) → (B, heads, T, d_h), with the query or key norm where the model has one."""
        if self.spec.query_key_norm == "full" and norm:
            x = self.get_submodule(norm)(x)
        x = x.unflatten(-1, (heads, self.spec.head_dim))
        if self.spec.query_key_norm == "head" and norm:
            x = self.get_submodule(norm)(x)
        return x.transpose(1, 2)

    def forward(self, x: Tensor, rotate: Rotate, visible: Visible, cache: Cache | None, index: int) -> Tensor:
        own = self.spec
        q = rotate(self._heads(self.query(x), own.heads, "query_norm"))  # (B, h, T, d_h)
        k = rotate(self._heads(self.key(x), own.kv_heads, "key_norm"))  # (B, h_kv, T, d_h)
        v = self._heads(self.value(x), own.kv_heads, "")
        if cache is not None:
            k, v = cache.update(index, own.window, k, v)  # (B, h_kv, S, d_h)
        out = self.attend(q, k, v, 1 / math.sqrt(own.head_dim), visible)
        return self.output(out if self.gate is None else out * self.gate(x).sigmoid())

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scale: float, visible: Visible) -> Tensor:
        """softmax(q·kᵀ·scale)·v with the heads joined: (B, T, h·d_v). The g heads of a group share one product."""
        B, h, T, _ = q.shape
        h_kv, S = k.shape[1:3]
        q = q.reshape(B, h_kv, h // h_kv * T, -1)
        scores = self.scores(q * scale, k.transpose(-1, -2)).view(B, h, T, S)
        hidden = visible(T, S, self.spec)
        if hidden is not None:
            scores = scores.masked_fill(hidden, -math.inf)
        if self.sinks is None:
            weights = scores.softmax(-1)
        else:  # a sink takes its share of the softmax and gives no value
            sinks = self.sinks.view(1, h, 1, 1).expand(B, h, T, 1)
            weights = torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
        weights = functional.dropout(weights, self.dropout, self.training)
        out = self.values(weights.reshape(B, h_kv, h // h_kv * T, S), v)
        return out.view(B, h, T, -1).transpose(1, 2).flatten(-2)


class Absorbable(Linear):
    """An expansion from the latent to every head that can also be applied from the other side of a product."""

    def forward(self, x: Tensor, absorbed: str = "") -> Tensor:
        if not absorbed:
            return super().forward(x)
        h = x.shape[1]
        weight = self.weight.view(h, -1, self.in_features)  # (h, width, r_kv)
        if absorbed == "query":  # (B, h, T, width) → (B, h, T, r_kv)
            return x @ weight
        return x @ weight.transpose(-1, -2)  # (B, h, T, r_kv) → (B, h, T, width)


class Indexer(nn.Module):
    """Chooses the positions that each query attends to: the largest Σ share·ReLU(q·k) over its heads (DeepSeek-V3.2).

    A choice has no gradient: what trains an indexer is a loss of its own. Positive factors of the scores are left out.
    """

    def __init__(self, spec: ModelSpec, own: IndexerSpec, latent: Latent):
        super().__init__()
        self.spec, self.rotated = own, latent.rope_dim
        self.query = Linear(latent.query_rank, own.heads * own.head_dim, bias=False)
        self.key = Linear(spec.d_model, own.head_dim, bias=False)
        self.key_norm = nn.LayerNorm(own.head_dim, eps=spec.norm_epsilon)
        self.shares = Linear(spec.d_model, own.heads, bias=False)
        self.scores, self.sum = Product(), Product()

    def _turned(self, x: Tensor, rotate: Rotate) -> Tensor:
        return torch.cat([rotate(x[..., : self.rotated]), x[..., self.rotated :]], -1)

    @torch.no_grad()
    def keys(self, x: Tensor, rotate: Rotate) -> Tensor:
        """(B, T, d) → (B, 1, T, d_i)."""
        return self._turned(self.key_norm(self.key(x)).unsqueeze(1), rotate)

    @torch.no_grad()
    def forward(self, x: Tensor, narrow: Tensor, keys: Tensor, rotate: Rotate, hidden: Tensor | None) -> Tensor:
        """Indices (B, T, k) of the selected positions, from x (B, T, d) and the query's latent (B, T, r_q)."""
        q = self._turned(self.query(narrow).unflatten(-1, (self.spec.heads, -1)).transpose(1, 2), rotate)
        scores = self.scores(q, keys.transpose(-1, -2)).relu().transpose(1, 2)  # (B, T, h_i, S)
        found = self.sum(self.shares(x).unsqueeze(-2), scores).squeeze(-2)  # (B, T, S)
        if hidden is not None:
            found = found.masked_fill(hidden, -math.inf)
        return found.topk(min(self.spec.chosen, found.shape[-1]), -1).indices


def _only(chosen: Tensor, positions: int, hidden: Tensor | None) -> Visible:
    """Hides all but the `chosen` (B, T, k) of the positions, and what is `hidden` (T, S) anyway."""
    left_out = torch.ones(*chosen.shape[:2], positions, dtype=torch.bool, device=chosen.device)
    left_out = left_out.scatter(-1, chosen, False).unsqueeze(1)  # (B, 1, T, S)
    masked = left_out if hidden is None else left_out | hidden
    return lambda T, S, own: masked


class LatentAttention(Attention):
    """Attention whose keys and values are expanded from one cached latent a token (DeepSeek-V2, section 2.1).

    `absorbed` moves the two expansions to the query's and the output's side (the same function, by associativity), so
    that a decoded token attends to the latents themselves (with an indexer, to the chosen ones alone); otherwise the
    whole latent cache is expanded anew, and what is not chosen is masked.
    """

    def __init__(self, spec: ModelSpec, own: AttentionSpec, latent: Latent):
        nn.Module.__init__(self)
        self.spec, self.latent = own, latent
        d, h = spec.d_model, own.heads
        if latent.query_rank:
            self.query_down = Linear(d, latent.query_rank, bias=own.query_bias)
            self.query_down_norm = nn.RMSNorm(latent.query_rank, eps=spec.norm_epsilon)
        self.query = Linear(latent.query_rank or d, h * (latent.nope_dim + latent.rope_dim), bias=False)
        self.latent_down = Linear(d, latent.kv_rank + latent.rope_dim, bias=own.key_bias)
        self.latent_norm = nn.RMSNorm(latent.kv_rank, eps=spec.norm_epsilon)
        self.key = Absorbable(latent.kv_rank, h * latent.nope_dim, bias=False)
        self.value = Absorbable(latent.kv_rank, h * latent.value_dim, bias=False)
        self.sinks = None
        self.scores, self.values = Product(), Product()
        self.output = Linear(h * latent.value_dim, d, bias=own.output_bias)
        self.dropout = spec.dropout.weights
        self.indexer = Indexer(spec, latent.indexer, latent) if latent.indexer else None
        self.absorbed = False

    def forward(self, x: Tensor, rotate: Rotate, visible: Visible, cache: Cache | None, index: int) -> Tensor:
        own, latent = self.spec, self.latent
        h, nope = own.heads, latent.nope_dim
        narrow = self.query_down_norm(self.query_down(x)) if latent.query_rank else x
        q = self.query(narrow).unflatten(-1, (h, -1)).transpose(1, 2)  # (B, h, T, d_n + d_r)
        q, q_rope = q[..., :nope], rotate(q[..., nope:])
        c, k_rope = self.latent_down(x).unsqueeze(1).split([latent.kv_rank, latent.rope_dim], -1)
        c, k_rope = self.latent_norm(c), rotate(k_rope)  # (B, 1, T, r_kv), (B, 1, T, d_r)
        new = [c, k_rope, *([self.indexer.keys(x, rotate)] if self.indexer else [])]
        c, k_rope, *keys = new if cache is None else cache.update(index, own.window, *new)
        if self.indexer:
            hidden = visible(x.shape[1], c.shape[2], own)
            chosen = self.indexer(x, narrow, keys[0], rotate, hidden)
            if self.absorbed and hidden is None:  # the chosen positions are all that is read
                at = chosen.transpose(1, 2).unsqueeze(1)  # (B, 1, k, 1)
                c, k_rope = (y.gather(2, at.expand(-1, -1, -1, y.shape[-1])) for y in (c, k_rope))
            else:
                visible = _only(chosen, c.shape[2], hidden)
        scale = 1 / math.sqrt(nope + latent.rope_dim)
        if self.absorbed:
            q = torch.cat([self.key(q, "query"), q_rope], -1)  # (B, h, T, r_kv + d_r)
            out = self.attend(q, torch.cat([c, k_rope], -1), c, scale, visible)  # (B, T, h·r_kv)
            out = out.unflatten(-1, (h, -1)).transpose(1, 2)
            return self.output(self.value(out, "value").transpose(1, 2).flatten(-2))
        k = self.key(c.squeeze(1)).unflatten(-1, (h, -1)).transpose(1, 2)  # (B, h, S, d_n)
        v = self.value(c.squeeze(1)).unflatten(-1, (h, -1)).transpose(1, 2)  # (B, h, S, d_v)
        k = torch.cat([k, k_rope.expand(-1, h, -1, -1)], -1)
        return self.output(self.attend(torch.cat([q, q_rope], -1), k, v, scale, visible))


class Convolution(nn.Module):
    """Depthwise convolution over the last K inputs, as one batched matrix product: FlopCounterMode counts too many FLOPs for
    the gradient of a grouped convolution."""

    def __init__(self, channels: int, kernel: int, bias: bool):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, kernel))
        self.bias = nn.Parameter(torch.zeros(channels)) if bias else None
        if not self.weight.is_meta:
            nn.init.normal_(self.weight, std=kernel**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """(B, K − 1 + T, c) → (B, T, c)."""
        windows = x.unfold(1, self.weight.shape[-1], 1)  # (B, T, c, K)
        rows = windows.permute(2, 0, 1, 3).flatten(1, 2)  # (c, B·T, K)
        out = (rows @ self.weight.transpose(1, 2)).squeeze(-1).t().unflatten(0, windows.shape[:2])
        return out if self.bias is None else out + self.bias


class FixedState(nn.Module):
    """A short convolution, and a recurrence whose state (d_k × d_v a head) every token writes to and reads.

    `delta` is Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464, equation 10; transformers' qwen3_next), `kda` Kimi Delta
    Attention (Kimi Team 2025, arXiv:2510.26692, equation 1; transformers' kimi_linear), `ssm` Mamba-2 (Dao and Gu 2024,
    arXiv:2405.21060; transformers' nemotron_h), all in their recurrent form, token by token.
    """

    def __init__(self, spec: ModelSpec, own: FixedStateSpec):
        super().__init__()
        self.spec, self.epsilon = own, spec.norm_epsilon
        d, values = spec.d_model, own.heads * own.value_dim
        self.input = Linear(d, own.channels, bias=own.bias)
        channelwise = own.rule == "kda"
        self.gate_down = Linear(d, own.key_dim, bias=False) if channelwise else nn.Identity()
        self.gate = Linear(own.key_dim if channelwise else d, values, bias=own.bias)
        self.steps_down = Linear(d, own.key_dim, bias=False) if channelwise else nn.Identity()
        self.steps = Linear(own.key_dim, own.steps, bias=False) if channelwise else None
        self.rates = Linear(d, own.rates * own.heads, bias=own.bias)
        self.convolution = Convolution(own.channels, own.kernel, own.convolution_bias)
        self.decay = nn.Parameter(torch.zeros(own.heads))  # the logarithm of each head's rate
        self.step = nn.Parameter(torch.zeros(own.steps))  # added to the token's own step
        self.skip = nn.Parameter(torch.ones(own.heads)) if own.rule == "ssm" else None
        width = values if own.rule == "ssm" else own.value_dim
        self.norm = nn.RMSNorm(width, eps=spec.norm_epsilon) if own.normed else None
        self.recall = Product() if own.rule != "ssm" else None
        self.write, self.read = Product(), Product()
        self.output = Linear(values, d, bias=own.output_bias)

    def _token(
        self, state: Tensor, q: Tensor, k: Tensor, v: Tensor, kept: Tensor, rate: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The state (…, d_k, d_v) after one token, and what it reads (…, d_v).

        q, k are (…, d_k), v (…, d_v), the shares kept (…, 1) or (…, d_k), rates (…).
        """
        state, rate = state * kept[..., None], rate[..., None]
        if self.recall is not None:  # the delta rule overwrites what the key finds
            v = v - self.recall(k.unsqueeze(-2), state).squeeze(-2)
        state = state + self.write(k.unsqueeze(-1), (rate * v).unsqueeze(-2))
        return state, self.read(q.unsqueeze(-2), state).squeeze(-2)

    def _scan(self, state: Tensor, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The same for all tokens: inputs (B, h, T, …), reads (B, h, T, d_v), one token after the other.

        On the meta device, where shapes are all there is, every token takes its step on a state of its own, at once.
        """
        if state.is_meta:
            states, out = self._token(state.unsqueeze(2).expand(-1, -1, inputs[0].shape[2], -1, -1), *inputs)
            return states[:, :, -1], out
        outs = []
        for token in zip(*(x.unbind(2) for x in inputs), strict=True):
            state, out = self._token(state, *token)
            outs.append(out)
        return state, torch.stack(outs, 2)

    def _inputs(self, x: Tensor, before: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys (B, h, T, d_k), values (B, h, T, d_v), shares kept (B, h, T, 1 or d_k) and rates (B, h, T), in fp32
        at least."""
        own, g = self.spec, self.spec.heads // self.spec.groups
        mixed = functional.silu(self.convolution(before)).to(torch.promote_types(x.dtype, torch.float32))
        narrow = own.groups * own.key_dim
        q, k, v = mixed.split([narrow, narrow, own.heads * own.value_dim], -1)
        q, k = (y.unflatten(-1, (own.groups, -1)).repeat_interleave(g, 2).transpose(1, 2) for y in (q, k))
        v = v.unflatten(-1, (own.heads, -1)).transpose(1, 2)
        rates = self.rates(x).to(mixed.dtype).split(own.heads, -1)  # (B, T, h)
        step = rates[0] if self.steps is None else self.steps(self.steps_down(x)).to(mixed.dtype)
        step = functional.softplus(step + self.step)
        step = step.unflatten(-1, (own.heads, -1)).transpose(1, 2)  # (B, h, T, 1 or d_k)
        kept = (-self.decay.exp()[:, None, None] * step).exp()
        if self.recall is None:
            return q, k, v, kept, step.squeeze(-1)
        q, k = (y * (y.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for y in (q, k))
        return q / math.sqrt(own.key_dim), k, v, kept, rates[-1].sigmoid().transpose(1, 2)

    def _gated(self, out: Tensor, gate: Tensor) -> Tensor:
        """Reads (B, T, h, d_v), normed head by head and gated, or gated and normed group by group, or gated alone: (B, T, h·d_v)."""
        gate = gate.sigmoid() if self.spec.rule == "kda" else functional.silu(gate)
        if self.norm is None:
            return out.flatten(2).to(gate.dtype) * gate
        if self.spec.rule != "ssm":
            return self.norm(out.to(gate.dtype)).flatten(2) * gate
        x = (out.flatten(2) * gate).unflatten(-1, (self.spec.groups, -1))
        scale = (x.square().mean(-1, keepdim=True) + self.epsilon).rsqrt()
        return self.norm.weight * (x * scale).flatten(2).to(gate.dtype)

    def forward(self, x: Tensor, rotate: Rotate, visible: Visible, cache: Cache | None, index: int) -> Tensor:
        own = self.spec
        known = cache.state(index) if cache is not None else None
        new = self.input(x)
        if known is None:
            empty = new.new_zeros(x.shape[0], own.kernel, own.channels)
            known = empty, new.new_zeros(x.shape[0], own.heads, own.key_dim, own.value_dim)
        every = torch.cat([known[0].to(new.dtype), new], 1)  # (B, K + T, c)
        q, k, v, kept, rate = self._inputs(x, every[:, 1:])
        state, out = self._scan(known[1].to(q.dtype), q, k, v, kept, rate)
        if cache is not None:
            cache.keep(index, every[:, -own.kernel :], state)
        if self.skip is not None:
            out = out + self.skip[:, None, None] * v
        return self.output(self._gated(out.transpose(1, 2), self.gate(self.gate_down(x))))


class Experts(nn.Module):
    """E linear maps in one tensor; each row of the input goes through the one map chosen for it."""

    def __init__(self, experts: int, inputs: int, outputs: int, bias: bool):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(experts, outputs)) if bias else None
        if not self.weight.is_meta:
            nn.init.normal_(self.weight, std=inputs**-0.5)

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        # A batched product of the gathered maps: grouped kernels count as nothing in FlopCounterMode.
        out = (self.weight[chosen] @ x.unsqueeze(-1)).squeeze(-1)  # (rows, outputs)
        return out if self.bias is None else out + self.bias[chosen]


class Feedforward(nn.Module):
    """`gelu`: down(GELU(up(x))); `gated`: down(SiLU(gate(x)) ⊙ up(x)); dense maps, or the experts of `chosen`."""

    def __init__(self, d: int, kind: str, width: int, bias: bool, experts: int = 0):
        super().__init__()

        def linear(inputs: int, outputs: int) -> nn.Module:
            return Experts(experts, inputs, outputs, bias) if experts else Linear(inputs, outputs, bias=bias)

        self.up = linear(d, width)
        self.gate = linear(d, width) if kind == "gated" else None
        self.down = linear(width, d)

    def forward(self, x: Tensor, *chosen: Tensor) -> Tensor:
        up = self.up(x, *chosen)
        hidden = functional.gelu(up) if self.gate is None else functional.silu(self.gate(x, *chosen)) * up
        return self.down(hidden, *chosen)


class Block(nn.Module):
    """One layer: attention and feed-forward on the residual stream, in the order that the spec says."""

    def __init__(self, spec: ModelSpec, layer: Layer):
        super().__init__()
        self.spec, self.dropout = layer, spec.dropout
        own, d = layer.feedforward, spec.d_model
        self.norm = nn.ModuleList(_norm(spec, d) for _ in range(layer.norms))
        self.attention: nn.Module | None = None
        self.state: nn.Module | None = None
        if layer.state:
            self.state = FixedState(spec, layer.state)
        if isinstance(layer.mixer, AttentionSpec):
            latent = layer.mixer.latent
            self.attention = LatentAttention(spec, layer.mixer, latent) if latent else Attention(spec, layer.mixer)
        if own.kind == "none":
            return
        if own.experts:
            self.router = Linear(d, own.experts, bias=own.router_bias)
        if own.shared_width:
            self.shared_feedforward = Feedforward(d, own.kind, own.shared_width, bias=False)
        if own.shared_gate:
            self.shared_gate = Linear(d, 1, bias=False)
        self.feedforward = Feedforward(d, own.kind, own.width, own.bias, own.experts)

    def _feed(self, x: Tensor) -> Tensor:
        return functional.dropout(self._fed(x), self.dropout.feedforward, self.training)

    def _mix(self, x: Tensor, *context: Any) -> Tensor:
        mixed = [mix(x, *context) for mix in (self.attention, self.state) if mix is not None]
        return functional.dropout(sum(mixed[1:], mixed[0]), self.dropout.attention, self.training)

    def _fed(self, x: Tensor) -> Tensor:
        own: FeedforwardSpec = self.spec.feedforward
        if not own.experts:
            return self.feedforward(x)
        rows = x.flatten(0, -2)  # (B·T, d)
        logits, chosen = self.router(rows).topk(own.experts_per_token, -1)  # (B·T, k)
        repeated = rows.repeat_interleave(own.experts_per_token, 0)  # (B·T·k, d)
        out = self.feedforward(repeated, chosen.flatten()).unflatten(0, (-1, own.experts_per_token))
        out = (out * logits.softmax(-1).unsqueeze(-1)).sum(1).view_as(x)
        if own.shared_width:
            shared = self.shared_feedforward(x)
            out = out + (shared * self.shared_gate(x).sigmoid() if own.shared_gate else shared)
        return out

    def forward(self, x: Tensor, *context: Any) -> Tensor:
        norm = self.norm
        if self.spec.mixer is None:
            return x + self._feed(norm[0](x))
        mix = self._mix
        if self.spec.feedforward.kind == "none":
            return x + mix(norm[0](x), *context)
        if self.spec.parallel:
            a = norm[0](x)
            return x + mix(a, *context) + self._feed(norm[1](x) if len(norm) == 2 else a)
        if self.spec.post_norm:
            x = x + norm[0](mix(x, *context))
            return x + norm[1](self._feed(x))
        if len(norm) == 4:
            x = x + norm[1](mix(norm[0](x), *context))
            return x + norm[3](self._feed(norm[2](x)))
        x = x + mix(norm[0](x), *context)
        return x + self._feed(norm[1](x))


def _rotation(positions: Tensor, width: int, base: float, dtype: torch.dtype) -> Rotate:
    """Rotary positions, components i and i + width/2 paired, for tensors (B, heads, T, width); angles in `dtype`."""
    inverse = base ** (torch.arange(0, width, 2, device=positions.device, dtype=dtype) / -width)
    angles = positions.to(dtype).unsqueeze(-1) * inverse  # (T, width/2)
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

    def rotate(x: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        return (x * cos + torch.cat([-second, first], -1) * sin).to(x.dtype)

    return rotate


def _visibility(device: torch.device, start: int = 0) -> Visible:
    """hidden(T, S, attention): True where a query must not see a key, the T queries being the last of the S positions.

    The first query stands at position `start`, which decides where chunks begin.
    """
    made: dict[tuple[int, int, int | None, bool], Tensor] = {}

    def hidden(T: int, S: int, own: AttentionSpec | None) -> Tensor | None:
        window, chunked = (own.window, own.chunked) if own else (None, False)
        if T == 1 and (S == 1 or window is None or (window >= S and not chunked)):
            return None
        if (T, S, window, chunked) not in made:
            query = torch.arange(start, start + T, device=device).unsqueeze(1)
            key = torch.arange(start + T - S, start + T, device=device)
            mask = key > query  # (T, S)
            if window is not None:
                mask |= key // window < query // window if chunked else query - key >= window
            made[T, S, window, chunked] = mask
        return made[T, S, window, chunked]

    return hidden


class Decoder(nn.Module):
    """The decoder that `spec` describes. Token ids (B, T) in, logits (B, T, V) out; with a cache, T more tokens.

    What changes no tensor and no product is left at its plainest form: GELU and SiLU as activations, RoPE over the full
    head width, no logit caps. A new decoder is in evaluation mode, without dropout.
    """

    # ASSUME ALiBi (positions: none) adds no tensor and no product; its bias is left out of this function.

    def __init__(self, spec: ModelSpec):
        super().__init__()
        self.spec = spec
        d, d_e = spec.d_model, spec.embedding_width or spec.d_model
        self.token_embedding = Embedding(spec.vocabulary, d_e)
        if d_e != d:
            self.embedding_projection = Linear(d_e, d, bias=False)
            self.head_projection = Linear(d, d_e, bias=False)
        if spec.positions == "learned":
            self.position_embedding = Embedding(spec.position_rows, d)
        if spec.embedding_norm:
            self.embedding_norm = _norm(spec, d)
        self.layers = nn.ModuleList(Block(spec, layer) for layer in spec.each_layer())
        if spec.final_norm:
            self.norm = _norm(spec, d)
        self.head = Linear(d_e, spec.head_width, bias=spec.head_bias) if spec.head_width else nn.Identity()
        if spec.tied_head:
            self.head.weight = self.token_embedding.weight
        self.eval()

    def absorb(self, absorbed: bool) -> None:
        """Choose the form of every latent attention: expansions absorbed, or the latents expanded."""
        for module in self.modules():
            if isinstance(module, LatentAttention):
                module.absorbed = absorbed

    def _rotate(self, positions: Tensor, dtype: torch.dtype) -> Rotate:
        own = next((a for _, a in self.spec.attentions()), None)
        if self.spec.positions != "rope" or own is None:
            return lambda x: x
        width = own.latent.rope_dim if own.latent else own.head_dim
        # Angles want at least fp32, whatever the weights are.
        return _rotation(positions, width, self.spec.rope_base, torch.promote_types(dtype, torch.float32))

    def forward(self, ids: Tensor, cache: Cache | None = None) -> Tensor:
        spec = self.spec
        start = 0 if cache is None else cache.length
        positions = torch.arange(start, start + ids.shape[1], device=ids.device)
        x = self.token_embedding(ids)
        narrow = x.shape[-1] != spec.d_model
        if narrow:
            x = self.embedding_projection(x)
        if spec.positions == "learned":
            # OPT's table begins with two rows that no position uses.
            x = x + self.position_embedding(positions + spec.position_rows - spec.context)
        if spec.embedding_norm:
            x = self.embedding_norm(x)
        x = functional.dropout(x, spec.dropout.embedding, self.training)
        rotate, visible = self._rotate(positions, x.dtype), _visibility(ids.device, start)
        for index, layer in enumerate(self.layers):
            x = layer(x, rotate, visible, cache, index)
        if cache is not None:
            cache.length += ids.shape[1]
        if spec.final_norm:
            x = self.norm(x)
        return self.head(self.head_projection(x) if narrow else x)
