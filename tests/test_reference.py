"""The reference decoder against torch with the same weights, in fp64, within the running error bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from transformer_ledger import bounds
from transformer_ledger.evidence import differing
from transformer_ledger.model import ModelSpec, from_architecture
from transformer_ledger.reference import decoder, rope
from transformer_ledger.reference.arithmetic import BLAS, RATIONAL, RUNNING, SEQUENTIAL

torch = pytest.importorskip("torch")
F = torch.nn.functional

BASE: dict[str, Any] = {"layers": 2, "d_model": 16, "heads": 4, "d_ff": 24, "vocabulary": 11, "context": 8}
BIASES = dict.fromkeys(("query", "key", "value", "output", "feedforward", "norm", "head"), True)
MODELS: dict[str, dict[str, Any]] = {
    "teaching": {"positions": "learned", "norm": "layernorm", "feedforward": "gelu", "biases": BIASES},
    "modern": {"positions": "rope", "norm": "rmsnorm", "feedforward": "gated", "kv_heads": 2},
    "window": {"positions": "rope", "norm": "rmsnorm", "feedforward": "gated", "window": 3, "kv_heads": 1},
    "tied": {"positions": "none", "norm": "layernorm", "feedforward": "gated", "tied_head": True},
}


def build(name: str, seed: int = 0) -> tuple[ModelSpec, dict[str, Any]]:
    """A spec and weights without special values: gains and biases are moved off 1 and 0."""
    spec = from_architecture(name, BASE | MODELS[name])
    generator = np.random.Generator(np.random.PCG64(seed))
    weights = decoder.initial(spec, seed)
    return spec, {key: value + 0.1 * generator.standard_normal(value.shape) for key, value in weights.items()}


def by_torch(spec: ModelSpec, weights: dict[str, Any], ids: Any, causal: bool, pairing: str) -> Any:
    """The same decoder written anew with torch's own functions; RoPE by complex multiplication."""
    w = {name: torch.tensor(value) for name, value in weights.items()}
    length = ids.shape[-1]

    def linear(x: Any, name: str) -> Any:
        return F.linear(x, w[name].T, w.get(f"{name}.bias"))

    def norm(x: Any, name: str) -> Any:
        if spec.norm == "layernorm":
            return F.layer_norm(x, x.shape[-1:], w[name], w.get(f"{name}.bias"), spec.norm_epsilon)
        return F.rms_norm(x, x.shape[-1:], w[name], spec.norm_epsilon)

    def turn(x: Any) -> Any:  # (B, h, T, d_h)
        if spec.positions != "rope":
            return x
        half = x.shape[-1] // 2
        turns = spec.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
        turns = torch.polar(torch.ones(length, half, dtype=torch.float64), torch.arange(length)[:, None] * turns)
        if pairing == "interleaved":
            return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (half, 2)).contiguous()) * turns).flatten(
                -2
            )
        y = torch.complex(x[..., :half], x[..., half:]) * turns
        return torch.cat([y.real, y.imag], -1)

    x = w["token_embedding"][torch.as_tensor(ids)]
    if spec.positions == "learned":
        x = x + w["position_embedding"][:length]
    for index, layer in enumerate(spec.each_layer()):
        own, at = layer.attention, f"layers.{index}"
        y = norm(x, f"{at}.norm.0")
        q, k, v = (
            linear(y, f"{at}.attention.{part}").unflatten(-1, (-1, own.head_dim)).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        mask = torch.ones(length, length, dtype=torch.bool)
        if causal:
            mask = mask.tril()
        if own.window:
            mask = mask.triu(1 - own.window)
        out = F.scaled_dot_product_attention(turn(q), turn(k), v, attn_mask=mask, enable_gqa=True)
        x = x + linear(out.transpose(1, 2).flatten(-2), f"{at}.attention.output")
        y = norm(x, f"{at}.norm.1")
        up = linear(y, f"{at}.feedforward.up")
        hidden = F.gelu(up) if layer.feedforward.kind == "gelu" else F.silu(linear(y, f"{at}.feedforward.gate")) * up
        x = x + linear(hidden, f"{at}.feedforward.down")
    x = norm(x, "norm")
    return F.linear(x, w["token_embedding"]) if spec.tied_head else linear(x, "head")


IDS = np.array([[3, 1, 4, 1, 5, 9, 2]])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("pairing", rope.PAIRINGS)
@pytest.mark.parametrize("name", MODELS)
def test_decoder_equals_torch_within_the_bound(name: str, pairing: str, causal: bool) -> None:
    spec, weights = build(name)
    expected = by_torch(spec, weights, IDS, causal, pairing).numpy()[0]
    options: dict[str, Any] = {"causal": causal, "pairing": pairing}
    bound = 2 * decoder.forward(spec, weights, IDS[0], RUNNING, **options).error
    assert np.isfinite(bound).all()
    # torch makes its own table of cosines: its angles may be off by a few units in the last place of angle and ω.
    if spec.positions == "rope":
        bound = bound + table_error(spec, weights, options)
    for run in (SEQUENTIAL, BLAS):
        found = decoder.forward(spec, weights, IDS[0], run, **options)
        difference, most = bounds.nearest(found - expected, bound)
        assert difference <= most, (run.name, difference, most)
        assert most < 1e-11  # the bound says something
    other = decoder.forward(spec, weights, IDS[0], BLAS, causal=not causal, pairing=pairing)
    assert np.abs(other - expected).max() > 100 * bound.max()


def table_error(spec: ModelSpec, weights: dict[str, Any], options: dict[str, Any]) -> float:
    """How far the logits move when every position moves by 2⁻⁵⁰ of itself, four times the rounding of an angle."""
    positions = np.arange(IDS.shape[1]) * 1.0
    step = 2.0**-20  # large enough to be seen through rounding; the effect is linear
    moved, still = (
        decoder.forward(spec, weights, IDS[0], BLAS, positions=places, **options)
        for places in (positions * (1 + step), positions)
    )
    return float(np.abs(moved - still).max()) / step * 2.0**-50


@pytest.mark.parametrize("name", ["teaching", "tied"])
def test_decoder_equals_the_executed_one(name: str) -> None:
    """Against `executed.decoder`, which every count is taken from (its RoPE table is fp32, so without RoPE)."""
    from transformer_ledger.executed.decoder import Decoder

    spec, weights = build(name)
    model = Decoder(spec).double()
    state = {}
    for key, value in weights.items():
        stem, bias, _ = key.partition(".bias")
        tensor = torch.tensor(value)
        state[stem + (bias or ".weight")] = tensor.T if value.ndim == 2 and not stem.endswith("embedding") else tensor
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert unexpected == []
    assert set(missing) <= {"head.weight"} if spec.tied_head else missing == []
    with torch.no_grad():
        expected = model(torch.as_tensor(IDS)).numpy()[0]
    bound = 2 * decoder.forward(spec, weights, IDS[0], RUNNING).error
    difference, most = bounds.nearest(decoder.forward(spec, weights, IDS[0], BLAS) - expected, bound)
    assert difference <= most


def test_sequential_sums_in_the_order_of_a_plain_loop() -> None:
    generator = np.random.Generator(np.random.PCG64(0))
    a, b = generator.standard_normal((3, 37)), generator.standard_normal((37, 5))
    expected = np.zeros((3, 5))
    for i in range(3):
        for j in range(5):
            for k in range(37):
                expected[i, j] += a[i, k] * b[k, j]
    assert differing(SEQUENTIAL.matmul(a, b), expected) == 0
    total = 0.0
    for value in a[0]:
        total += value
    assert SEQUENTIAL.total(a)[0, 0] == total


def test_sequential_does_not_depend_on_the_shape() -> None:
    spec, weights = build("modern")
    whole = decoder.forward(spec, weights, IDS[0], SEQUENTIAL)
    for end in range(1, IDS.shape[1] + 1):
        assert differing(decoder.forward(spec, weights, IDS[0, :end], SEQUENTIAL), whole[:end]) == 0
    batch = decoder.forward(spec, weights, np.concatenate([IDS, IDS[:, ::-1]]), SEQUENTIAL)
    assert differing(batch[0], whole) == 0


def test_rational_arithmetic_is_exact() -> None:
    from fractions import Fraction

    a = RATIONAL.array([[0.1, 0.2], [0.3, 1e-30]])
    assert RATIONAL.matmul(a, a)[0, 0] == Fraction(0.1) ** 2 + Fraction(0.2) * Fraction(0.3)
    p = RATIONAL.softmax(a, np.array([[True, True], [True, False]]))
    assert p.sum(axis=-1).tolist() == [1, 1]
    assert p[1, 1] == 0


def test_pairings_are_one_rotation_on_other_components() -> None:
    generator = np.random.Generator(np.random.PCG64(0))
    x, angles = generator.standard_normal((5, 8)), generator.standard_normal((5, 4))

    def turned(values: Any, pairing: str) -> Any:
        return rope.rotate(values, np.cos(angles), np.sin(angles), pairing, lambda parts: np.concatenate(parts, -1))

    shuffle = np.concatenate(rope.pairs(8, "interleaved"))
    assert differing(turned(x, "interleaved")[:, shuffle], turned(x[:, shuffle], "half-split")) == 0
    assert differing(turned(x, "interleaved"), turned(x, "half-split")) > 0


def test_refusals() -> None:
    with pytest.raises(ValueError, match="odd"):
        rope.pairs(7, "interleaved")
    with pytest.raises(ValueError, match="one of interleaved, half-split"):
        rope.pairs(8, "both")


def test_training_learns_and_leaves_the_weights_alone() -> None:
    from transformer_ledger.reference.training import train

    spec, weights = build("modern")
    before = {name: value.copy() for name, value in weights.items()}
    ids = np.arange(400) % spec.vocabulary
    options: dict[str, Any] = {"causal": True, "length": 7, "batch": 4, "learning_rate": 0.02, "seed": 0}
    trained = train(spec, weights, ids, steps=40, **options)
    assert all(differing(weights[name], before[name]) == 0 for name in weights)

    def loss(values: dict[str, Any]) -> float:
        window = ids[:8]
        return float(BLAS.cross_entropy(decoder.forward(spec, values, window[:-1], BLAS), window[1:]).mean())

    assert loss(trained) < 0.5 * loss(weights)
    again = train(spec, weights, ids, steps=40, **options)
    assert all(differing(trained[name], again[name]) == 0 for name in trained)


def test_nearest_entry_to_its_bound() -> None:
    assert bounds.nearest([1.0, -3.0, 0.0], [2.0, 10.0, 0.0]) == (1.0, 2.0)
    assert bounds.nearest([0.0, 1e-300], [1.0, 0.0]) == (1e-300, 0.0)  # a difference where none is allowed
    assert np.isnan(bounds.nearest([0.0, np.nan], [1.0, 1.0])[0])
