"""Blocked attention is attention: every length, mask and grouping, output and gradients; and mistakes in it are seen."""

from __future__ import annotations

import inspect
import textwrap

import pytest

torch = pytest.importorskip("torch")

from transformer_ledger.executed import blocked_attention as module  # noqa: E402
from transformer_ledger.executed.blocked_attention import Blocks, blocked_attention  # noqa: E402
from transformer_ledger.study import attention as study  # noqa: E402
from transformer_ledger.timing import attention as timed  # noqa: E402

torch.set_num_threads(1)
SHAPES = [  # heads, key/value heads, queries, keys, blocks
    (2, 2, 1, 1, Blocks(4, 4)),
    (2, 1, 7, 7, Blocks(3, 2)),
    (4, 2, 9, 9, Blocks(4, 4)),
    (4, 2, 5, 13, Blocks(2, 4)),
    (3, 3, 16, 16, Blocks(16, 16)),
    (2, 2, 11, 11, Blocks(4, 3, backwards=True)),
    (2, 1, 4, 10, Blocks(3, 4, backwards=True)),
]


def drawn(
    heads: int, kv_heads: int, queries: int, keys: int, dtype: torch.dtype = torch.float64, scale: float = 1.0
) -> list:
    generator = torch.Generator().manual_seed(1)
    shapes = [(2, heads, queries, 4), (2, kv_heads, keys, 4), (2, kv_heads, keys, 6), (2, heads, queries, 6)]
    q, k, v, grad = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return [x.to(dtype) for x in (q * scale, k, v, grad)]


def dense(q, k, v, causal: bool):
    g = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(g, 1), v.repeat_interleave(g, 1)
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        T, S = scores.shape[-2:]
        scores = scores.masked_fill(torch.ones(T, S, dtype=torch.bool).triu(S - T + 1), -torch.inf)
    return scores.softmax(-1) @ v


def gradients(attend, q, k, v, grad, causal: bool) -> list:
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    out = attend(*inputs, causal)
    return [out, *torch.autograd.grad(out, inputs, grad)]


def distance(attend, shape, causal: bool, scale: float = 1.0) -> float:
    """Largest distance of output and gradients from the dense form, fp64."""
    *sizes, blocks = shape
    q, k, v, grad = drawn(*sizes, scale=scale)
    ours = gradients(lambda q, k, v, causal: attend(q, k, v, None, causal, blocks), q, k, v, grad, causal)
    pairs = zip(ours, gradients(dense, q, k, v, grad, causal), strict=True)
    return max(float((x - y).detach().abs().max()) for x, y in pairs)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_output_and_gradients_are_the_dense_ones(shape, causal):
    for scale in (1.0, 30.0):
        assert distance(blocked_attention, shape, causal, scale) < 1e-11


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_are_derivatives(causal):
    q, k, v, _ = drawn(4, 2, 5, 7)
    inputs = [x[:1].requires_grad_() for x in (q, k, v)]
    assert torch.autograd.gradcheck(lambda *x: blocked_attention(*x, None, causal, Blocks(2, 3)), inputs)


def test_bf16_sums_in_fp32():
    """Rounded once, at the end: as near to fp64 on the same inputs as one rounding of the exact result, or nearly."""
    q, k, v, _ = drawn(2, 2, 200, 200, torch.bfloat16)
    exact = dense(q.double(), k.double(), v.double(), True)
    error = (blocked_attention(q, k, v, None, True, Blocks(32, 64)).double() - exact).square().mean().sqrt()
    once = (exact.bfloat16().double() - exact).square().mean().sqrt()
    assert blocked_attention(q, k, v).dtype == torch.bfloat16
    assert error < 1.05 * once


def test_scores_far_from_zero():
    q, k, v, _ = drawn(1, 1, 6, 6)
    far = blocked_attention(q * 1e4, k, v, None, True, Blocks(2, 2))
    assert torch.isfinite(far).all()
    assert (far - dense(q * 1e4, k, v, True)).abs().max() < 1e-9


def test_what_cannot_be_grouped_or_seen_is_refused():
    q, k, v, _ = drawn(4, 2, 5, 5)
    with pytest.raises(ValueError, match="3 key/value heads do not divide 4"):
        blocked_attention(q, k[:, :1].expand(2, 3, 5, 4), v)
    with pytest.raises(ValueError, match="would see none"):
        blocked_attention(q, k[:, :, :3], v[:, :, :3], None, True)


@pytest.mark.parametrize("length", [100, 777, 1100])
def test_pairs_that_each_method_multiplies(length):
    """A number that is none spoils what it is multiplied into, be its weight 0: one for each key, in a column of its own,
    spoils an output for every pair; one for each query, in the output's gradient, spoils a gradient of v."""
    q, k, v, _ = study.drawn(0, 1, 1, length, length, "fp32", 1.0)
    marks = torch.diag(torch.full((length,), torch.nan)).view_as(v)
    for name, method in study.methods(Blocks(256, 512)).items():
        wanted = timed.pairs(name, length, 256)
        assert int(method(q, k, marks, True).isnan().sum()) == wanted, name
        assert int(study.forward_backward(method, [q, k, v, marks], True)[3].isnan().sum()) == wanted, name


MUTATIONS = {
    "causal mask one too far": (".triu_(1)", ".triu_(2)"),
    "causal mask one too near": (".triu_(1)", ".triu_(0)"),
    "causal mask one column off": ("start - first : keys.stop - first", "start - first + 1 : keys.stop - first + 1"),
    "causal blocks one short": ("seen = S - T + end if causal", "seen = S - T + end - 1 if causal"),
    "numerator not rescaled": ("o.mul_(rescale).baddbmm_", "o.baddbmm_"),
    "denominator not rescaled": ("a.mul_(rescale).add_", "a.add_"),
    "log-sum-exp without the maximum": (".sub_(m).exp2_()", ".exp2_()"),
    "log-sum-exp without the denominator": (" / denominator[heads, :, rows]", ""),
    "log-sum-exp in another base": (".sub_(m).exp2_()", ".sub_(m).exp_()"),
    "normalisation left out of the gradient": (".sub_(along).mul_(p)", ".mul_(p)"),
    "scale left out of dq": ("dx.baddbmm_(ds, y, alpha=scale)", "dx.baddbmm_(ds, y)"),
    "scale left out of dk": ("x, alpha=scale)", "x)"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_kernel_is_seen(name):
    """The comparison above fails for each of these mistakes, in at least one of its shapes."""
    right, wrong = MUTATIONS[name]
    source = textwrap.dedent(inspect.getsource(module))
    assert right in source
    broken: dict = {"__name__": module.__name__}
    exec(compile(source.replace(right, wrong), "broken", "exec"), broken)
    cut = broken["Blocks"]
    seen = 0.0
    for *sizes, blocks in SHAPES[2:4]:
        shape = (*sizes, cut(blocks.queries, blocks.keys))
        try:
            off = distance(broken["blocked_attention"], shape, True, 3.0)
        except RuntimeError:  # shapes that do not fit: seen as well
            off = float("inf")
        seen = max(seen, float("inf") if off != off else off)
    assert seen > 1e-3
