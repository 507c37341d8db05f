"""Rounding bounds hold against exact or 60-digit arithmetic, and are so tight that a thousandth of them does not."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from transformer_ledger import bounds

mpmath.mp.dps = 60
DTYPES = {"fp64": np.float64, "fp32": np.float32}
PRECISIONS = sorted(DTYPES)
SHRUNK = 1000
EPSILON = 2.0**-17  # near 1e-5, and the same number in every precision


def _draw(seed: int, *shape: int, dtype: Any = np.float64) -> np.ndarray:
    return np.random.Generator(np.random.PCG64(seed)).standard_normal(shape).astype(dtype)


def _exact(x: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda v: mpmath.mpf(float(v)), otypes=[object])(x)


def _distance(computed: np.ndarray, exact: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda a, b: float(abs(mpmath.mpf(float(a)) - b)), otypes=[float])(computed, exact)


def _sequential_dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    total = a[..., 0] * b[..., 0]
    for i in range(1, a.shape[-1]):
        total = total + a[..., i] * b[..., i]
    return total


def _check(distance: np.ndarray, bound: np.ndarray, tight: float = SHRUNK) -> None:
    assert np.isfinite(bound).all()
    assert (distance <= bound).all()
    assert (distance > bound / tight).any(), "the bound is too loose to tell anything"


def test_gamma_is_exact_and_refuses_what_it_cannot_bound() -> None:
    u = Fraction(1, 2**53)
    assert bounds.gamma(100, 2.0**-53) == pytest.approx(float(100 * u / (1 - 100 * u)), rel=1e-15)
    assert bounds.gamma(0, 2.0**-53) == 0
    bounds.gamma(255, bounds.UNIT_ROUNDOFF["bf16"])
    with pytest.raises(ValueError, match="256 roundings"):
        bounds.gamma(256, bounds.UNIT_ROUNDOFF["bf16"])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("n", [2, 24, 100])
def test_dot_sum_and_matmul_bounds_hold(precision: str, n: int) -> None:
    u, dtype = bounds.UNIT_ROUNDOFF[precision], DTYPES[precision]
    a, b = _draw(n, 200, n, dtype=dtype), _draw(n + 1, 200, n, dtype=dtype)
    exact_dot = np.array(
        [
            sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(p, q, strict=True))
            for p, q in zip(a, b, strict=True)
        ]
    )
    for computed in (_sequential_dot(a, b), np.einsum("ij,ij->i", a, b)):
        error = np.array([float(abs(Fraction(float(x)) - y)) for x, y in zip(computed, exact_dot, strict=True)])
        _check(error, bounds.dot_bound(a, b, u))
    total = np.array([sum(Fraction(float(x)) for x in p) for p in a])
    computed = _sequential_dot(a, np.ones_like(b))
    error = np.array([float(abs(Fraction(float(x)) - y)) for x, y in zip(computed, total, strict=True)])
    _check(error, bounds.sum_bound(a, u))
    product = a[:6] @ b[:6].T
    exact_product = np.array(
        [
            [sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(p, q, strict=True)) for q in b[:6]]
            for p in a[:6]
        ]
    )
    error = np.vectorize(lambda x, y: float(abs(Fraction(float(x)) - y)), otypes=[float])(product, exact_product)
    _check(error, bounds.matmul_bound(a[:6], b[:6].T, u))


def test_the_entry_nearest_to_its_bound() -> None:
    assert bounds.nearest([1.0, -3.0, 0.0], [10.0, 4.0, 0.0]) == (3.0, 4.0)
    assert bounds.nearest([0.5, 1e-20], [1.0, 0.0]) == (1e-20, 0.0)
    assert math.isnan(bounds.nearest([0.0, math.nan], 1.0)[0])


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _mp(function: Callable[..., Any]) -> Callable[[np.ndarray], np.ndarray]:
    return np.vectorize(function, otypes=[object])


def _mp_softmax(x: np.ndarray) -> np.ndarray:
    e = _mp(mpmath.exp)(x)
    return e / e.sum(axis=-1, keepdims=True)


def _rms_norm(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + x.dtype.type(EPSILON))


def _mp_rms_norm(x: np.ndarray) -> np.ndarray:
    return x / _mp(mpmath.sqrt)((x * x).sum(axis=-1, keepdims=True) / x.shape[-1] + EPSILON)


def _layer_norm(x: np.ndarray) -> np.ndarray:
    return _rms_norm(x - x.mean(axis=-1, keepdims=True))


def _mp_layer_norm(x: np.ndarray) -> np.ndarray:
    return _mp_rms_norm(x - x.sum(axis=-1, keepdims=True) / x.shape[-1])


def _gelu(x: np.ndarray) -> np.ndarray:
    one = x.dtype.type
    t = x * one(math.sqrt(0.5))
    return x * one(0.5) * (np.vectorize(math.erf, otypes=[x.dtype])(t) + one(1))


def _mp_cross_entropy(x: np.ndarray) -> np.ndarray:
    return _mp(mpmath.log)(_mp(mpmath.exp)(x).sum(axis=-1)) - x[..., 3]


def _cross_entropy(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max(axis=-1, keepdims=True)
    return np.log(np.exp(shifted).sum(axis=-1)) - shifted[..., 3]


STEPS: dict[str, tuple[Any, Any, Any]] = {
    "softmax": (_softmax, _mp_softmax, bounds.softmax),
    "rms_norm": (_rms_norm, _mp_rms_norm, lambda x: bounds.rms_norm(x, epsilon=EPSILON)),
    "layer_norm": (_layer_norm, _mp_layer_norm, lambda x: bounds.layer_norm(x, epsilon=EPSILON)),
    "silu": (lambda x: x / (1 + np.exp(-x)), lambda x: x / (1 + _mp(mpmath.exp)(-x)), bounds.silu),
    "gelu": (_gelu, lambda x: x * (1 + _mp(mpmath.erf)(x / mpmath.sqrt(2))) / 2, bounds.gelu),
    "cross_entropy": (
        _cross_entropy,
        _mp_cross_entropy,
        lambda x: bounds.cross_entropy(x, np.full(x.shape[:-1], 3)),
    ),
}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("step", sorted(STEPS))
def test_a_matrix_product_carried_through_each_step_stays_within_its_bound(step: str, precision: str) -> None:
    """x·W + r, rounded, then the step: both the step's own rounding and the carried error are needed."""
    u, dtype = bounds.UNIT_ROUNDOFF[precision], DTYPES[precision]
    compute, reference, bounded = STEPS[step]
    x, w, r = _draw(1, 12, 16, dtype=dtype), _draw(2, 16, 10, dtype=dtype), _draw(3, 12, 10, dtype=dtype)
    computed = compute(x @ w + r)
    assert computed.dtype == dtype
    bound = bounded(bounds.exact(x, u) @ w + r)
    exact = reference(_exact(x) @ _exact(w) + _exact(r))
    _check(_distance(computed, exact), bound.error)
    assert np.abs(bound.value - computed).max() < 1e3 * bound.error.max()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_whole_layer_stays_within_its_bound(precision: str) -> None:
    """Norm, attention with a causal mask, residual, norm, gated feed-forward, residual."""
    u, dtype = bounds.UNIT_ROUNDOFF[precision], DTYPES[precision]
    one = dtype(1)
    n, d, f = 6, 16, 24
    x = _draw(1, n, d, dtype=dtype)
    q, k, v, o = (_draw(2 + i, d, d, dtype=dtype) / dtype(4) for i in range(4))
    gate, up, down = _draw(7, d, f, dtype=dtype) / dtype(4), _draw(8, d, f, dtype=dtype), _draw(9, f, d, dtype=dtype)
    visible = np.tril(np.ones((n, n), bool))

    def layer(x: Any, norm: Any, softmax: Any, silu: Any, scale: Any, w: Any) -> Any:
        y = norm(x)
        p = softmax((y @ w(q)) @ (y @ w(k)).swapaxes(0, 1) * scale)
        x = x + (p @ (y @ w(v))) @ w(o)
        y = norm(x)
        return x + (silu(y @ w(gate)) * (y @ w(up))) @ w(down)

    plain = layer(
        x, _rms_norm, lambda s: _softmax(np.where(visible, s, -np.inf)), lambda z: z / (one + np.exp(-z)), dtype(0.25),
        lambda w: w,
    )  # fmt: skip
    carried = layer(
        bounds.exact(x, u), STEPS["rms_norm"][2], lambda s: bounds.softmax(s, visible), bounds.silu, 0.25, lambda w: w
    )
    exact = layer(
        _exact(x), _mp_rms_norm,
        lambda s: _mp_softmax(np.where(visible, s, mpmath.mpf("-1e9"))), lambda z: z / (1 + _mp(mpmath.exp)(-z)),
        mpmath.mpf(0.25), _exact,
    )  # fmt: skip
    _check(_distance(plain, exact), carried.error)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("function", ["exp", "log", "sqrt", "sin", "cos"])
def test_library_functions_are_within_the_assumed_ulps(function: str, precision: str) -> None:
    u, dtype = bounds.UNIT_ROUNDOFF[precision], DTYPES[precision]
    x = np.exp(_draw(5, 2000)).astype(dtype)
    computed = getattr(np, function)(x)
    exact = _mp(getattr(mpmath, function))(_exact(x))
    _check(_distance(computed, exact), getattr(bounds, function)(bounds.exact(x, u)).error)


@pytest.mark.parametrize("base", [10000.0, 500000.0])
def test_frequencies_are_within_their_bound(base: float) -> None:
    bound = bounds.rope_frequencies(128, base, bounds.UNIT_ROUNDOFF["fp64"])
    computed = base ** (-2.0 * np.arange(64) / 128)
    exact = np.array([mpmath.mpf(base) ** (-mpmath.mpf(2 * i) / 128) for i in range(64)])
    _check(_distance(computed, exact), bound.error)


def test_a_fully_masked_row_is_zero_and_its_bound_finite() -> None:
    p = bounds.softmax(bounds.exact(np.zeros((2, 3)), 2.0**-53), np.array([[True, False, True], [False] * 3]))
    assert p.value.tolist() == [[0.5, 0, 0.5], [0, 0, 0]]
    assert np.isfinite(p.error).all()
    assert (p.error[1] == 0).all()


def test_a_mask_hides_the_error_of_what_it_hides() -> None:
    s = bounds.Bounded(np.zeros((1, 2)), 2.0**-53, np.array([[0.0, 1.0]]))
    assert bounds.softmax(s, [[True, False]]).error.max() < 1e-14
    assert bounds.softmax(s).error.max() == pytest.approx(0.25, rel=1e-9)


def test_errors_that_cancel_cancel() -> None:
    """x·W·W⁻¹ carries x's error to first order as it is, not through |W||W⁻¹|."""
    w = _draw(1, 8, 8)
    x = bounds.rounded(_draw(2, 1, 8), 2.0**-24)
    stiff = bounds.Bounded(x.value, 2.0**-60, x.local)
    assert ((stiff @ w) @ np.linalg.inv(w)).error == pytest.approx(x.local, rel=1e-6)


def test_an_interval_holds_as_often_as_it_says() -> None:
    """Laplace samples (kurtosis 6): nine of ten standard deviations inside a 90 % interval; too few for kurtosis 3."""
    samples = np.random.Generator(np.random.PCG64(1)).laplace(size=(4000, 2000))
    deviations = samples.std(axis=-1, ddof=1)

    def inside(kurtosis: float) -> float:
        low, high = bounds.standard_deviation_interval(math.sqrt(2), 2000, kurtosis, 0.9)
        return float(((low <= deviations) & (deviations <= high)).mean())

    assert 0.88 < inside(6) < 0.92
    assert inside(3) < 0.75


@pytest.mark.parametrize(("d_k", "d"), [(2, 16), (8, 16), (8, 64)])
def test_moments_of_projected_dot_products(d_k: int, d: int) -> None:
    """Kurtosis, and correlation of squares that share weights, against 200,000 draws of weights and two token pairs."""
    generator = np.random.Generator(np.random.PCG64(d_k * d))
    n = 40_000
    w_q, w_k = generator.standard_normal((2, n, d_k, d)) / math.sqrt(d)
    x, y = generator.standard_normal((2, n, d, 2))
    squares = ((w_q @ x) * (w_k @ y)).sum(axis=1) ** 2  # (n, 2): two token pairs for each draw of weights
    mean = squares.mean()
    assert mean == pytest.approx(d_k, rel=0.05)
    relative = squares / mean
    kurtosis = (relative**2).mean()
    scatter = float((relative**2).std() / math.sqrt(relative.size))
    assert abs(kurtosis - bounds.projected_dot_kurtosis(d_k, d)) < 5 * scatter
    product = (relative[:, 0] - 1) * (relative[:, 1] - 1)
    wanted = bounds.projected_dot_correlation(d_k, d) * (bounds.projected_dot_kurtosis(d_k, d) - 1)
    assert abs(product.mean() - wanted) < 5 * float(product.std() / math.sqrt(n))
