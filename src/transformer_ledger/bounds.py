"""A-priori rounding bounds, running error bounds and sampling intervals, each with its reference.

References:
    [H]  N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd edition, SIAM 2002.
    [K]  L. Kish, Survey Sampling, Wiley 1965, section 5.4 (design effect of grouped samples).
    [L]  S. Linnainmaa, Taylor expansion of the accumulated rounding error, BIT 16 (1976), 146–160.
    [S]  R. J. Serfling, Approximation Theorems of Mathematical Statistics, Wiley 1980, section 2.2.3.
    [M]  R. J. Muirhead, Aspects of Multivariate Statistical Theory, Wiley 1982, section 3.2 (Wishart matrices).

The bounds are computed in fp64 themselves; their own rounding (a relative 1e-13 or so) is not added. Overflow is not
covered: a bound that is not finite never holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

Array = np.ndarray[Any, np.dtype[Any]]

UNIT_ROUNDOFF = {"fp64": 2.0**-53, "fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
"""u of round to nearest: fl(x op y) = (x op y)(1 + δ), |δ| ≤ u.  [H, (2.4)]"""

SMALLEST_SUBNORMAL = {"fp64": 2.0**-1074, "fp32": 2.0**-149, "fp16": 2.0**-24, "bf16": 2.0**-133}
"""Spacing of the numbers next to zero, the absolute error of a result that underflows.  [H, section 2.2]"""

LIBRARY_ULPS = 4
# ASSUME exp, log, sin, cos, power and erf come back within 4 units in the last place, the most that NumPy allows its
# vectorised double precision functions (release notes of 1.22). An ulp is at most 2u times the value. [H, section 2.1]
LIBRARY = 2.0 * LIBRARY_ULPS

DECISIVE_SHARE = 0.1
"""A bound wider than a tenth of what it bounds leaves not one digit fixed: wrong results would pass it, so it decides
nothing, and what it bounds is shown but not counted."""

ADJOINTS_AT_ONCE = 64  # entries of a result that one reverse sweep serves: memory, no effect on the value


def gamma(n: int, u: float) -> float:
    """γₙ = n·u / (1 − n·u), the relative error of n roundings.  [H, lemma 3.1]

    Raises ValueError where n·u ≥ 1: no statement can be made there.
    """
    if n * u >= 1:
        raise ValueError(f"gamma: {n} roundings of unit roundoff {u} are too many (n·u must stay below 1)")
    return n * u / (1 - n * u)


def sum_bound(x: ArrayLike, u: float, axis: int | None = -1) -> Any:
    """|computed − exact| of Σxᵢ along `axis`, in any order of summation: γₙ₋₁ Σ|xᵢ|.  [H, section 4.2 and (3.5)]"""
    x = np.abs(np.asarray(x, np.float64))
    n = x.size if axis is None else x.shape[axis]
    return gamma(max(n - 1, 0), u) * x.sum(axis=axis)


def dot_bound(a: ArrayLike, b: ArrayLike, u: float) -> Any:
    """|computed − exact| of Σaᵢbᵢ along the last axis, in any order, fused or not: γₙ Σ|aᵢ||bᵢ|.  [H, (3.5)]"""
    a, b = np.abs(np.asarray(a, np.float64)), np.abs(np.asarray(b, np.float64))
    return gamma(a.shape[-1], u) * (a * b).sum(axis=-1)


def matmul_bound(a: ArrayLike, b: ArrayLike, u: float) -> Array:
    """|computed − exact| of A·B entry by entry, A (…, m, n), B (…, n, p): γₙ |A||B|.  [H, (3.13)]"""
    a, b = np.abs(np.asarray(a, np.float64)), np.abs(np.asarray(b, np.float64))
    return np.asarray(gamma(a.shape[-1], u) * (a @ b))


def nearest(difference: ArrayLike, bound: ArrayLike) -> tuple[float, float]:
    """The entry nearest to its bound, relatively: its |difference| and its bound. All hold if this one does."""
    off, most = (np.ravel(x) for x in np.broadcast_arrays(np.abs(difference), bound))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(off > 0, off / most, 0.0)
    entry = int(np.argmax(np.where(np.isnan(off) | np.isnan(most), np.inf, ratio)))
    return float(off[entry]), float(most[entry])


def decides(bound: float, size: float) -> bool:
    """Whether a bound tests a result of this size: it is at most DECISIVE_SHARE of it, or both are 0."""
    return bool(bound <= DECISIVE_SHARE * size)


Adjoint = Callable[[Array], Array]


def _unbroadcast(g: Array, shape: tuple[int, ...]) -> Array:
    """Adjoints (K, …) summed over the axes along which a parent of `shape` was broadcast: (K, *shape)."""
    g = g.sum(axis=tuple(range(1, g.ndim - len(shape))))
    stretched = tuple(i + 1 for i, n in enumerate(shape) if n == 1 and g.shape[i + 1] != 1)
    return g.sum(axis=stretched, keepdims=True) if stretched else g


@dataclass(frozen=True, eq=False)
class Bounded:
    """Values that remember how they were computed, with a bound on their distance from exact arithmetic.

    `value` is the array that the operations give (in fp64, whatever precision is bounded), `u` the unit roundoff of the
    arithmetic bounded, `local` a bound on the rounding of the last operation alone, entry by entry (None: no rounding),
    `parents` its operands, each with the map from adjoints of the result to adjoints of the operand.

    `error` bounds |computed − exact| to first order in u: Σ over all operations of |∂result/∂operation|·local, the
    derivatives taken by one reverse sweep. It is the worst case over all signs of all roundings; terms of order u² and
    the rounding of the bound are left out. Sums and matrix products are bounded for any order of summation.
    [L] calls it the Taylor expansion of the accumulated error; [H, section 3.3] does the same forwards.
    """

    value: Array
    u: float
    local: Array | None = None
    parents: tuple[tuple[Bounded, Adjoint], ...] = ()

    # NumPy arrays on the left of an operator defer to the methods below.
    __array_ufunc__ = None

    @cached_property
    def rounds(self) -> bool:
        """Whether anything in here was rounded."""
        return self.local is not None or any(parent.rounds for parent, _ in self.parents)

    def _ancestors(self) -> list[Bounded]:
        """This node and all that it came from and that was rounded, results before operands."""
        order: list[Bounded] = []
        seen: set[int] = set()
        stack = [(self, False)]
        while stack:
            node, done = stack.pop()
            if done:
                order.append(node)
            elif id(node) not in seen and node.rounds:
                seen.add(id(node))
                stack.append((node, True))
                stack.extend((parent, False) for parent, _ in node.parents)
        return order[::-1]

    @cached_property
    def error(self) -> Array:
        """Bound on |computed − exact|, entry by entry; same shape as `value`."""
        nodes = self._ancestors()
        total = np.zeros(self.value.size)
        for start in range(0, self.value.size, ADJOINTS_AT_ONCE):
            stop = min(start + ADJOINTS_AT_ONCE, self.value.size)
            seed = np.zeros((stop - start, self.value.size))
            seed[np.arange(stop - start), np.arange(start, stop)] = 1
            adjoints = {id(self): seed.reshape(stop - start, *self.value.shape)}
            for node in nodes:
                g = adjoints.pop(id(node))
                if node.local is not None:
                    total[start:stop] += (np.abs(g) * node.local).reshape(stop - start, -1).sum(axis=1)
                for parent, adjoint in node.parents:
                    if parent.rounds:
                        part = adjoint(g)
                        known = adjoints.get(id(parent))
                        adjoints[id(parent)] = part if known is None else known + part
        return total.reshape(self.value.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the values."""
        return self.value.shape

    def _other(self, other: Any) -> Bounded:
        return other if isinstance(other, Bounded) else exact(other, self.u)

    def _moved(self, move: Callable[[Array], Array]) -> Bounded:
        """Entries picked or rearranged by `move`, without rounding."""
        index = np.arange(self.value.size).reshape(self.value.shape)
        source = move(index).ravel()

        def adjoint(g: Array) -> Array:
            out = np.zeros((g.shape[0], index.size))
            np.add.at(out.T, source, g.reshape(g.shape[0], -1).T)
            return out.reshape(g.shape[0], *index.shape)

        return Bounded(move(self.value), self.u, None, ((self, adjoint),))

    def __add__(self, other: Any) -> Bounded:
        b = self._other(other)
        value = self.value + b.value
        parents = ((self, lambda g: _unbroadcast(g, self.shape)), (b, lambda g: _unbroadcast(g, b.shape)))
        return Bounded(value, self.u, self.u * np.abs(value), parents)

    __radd__ = __add__

    def __neg__(self) -> Bounded:
        return Bounded(-self.value, self.u, None, ((self, lambda g: -g),))

    def __sub__(self, other: Any) -> Bounded:
        return self + -self._other(other)

    def __rsub__(self, other: Any) -> Bounded:
        return self._other(other) - self

    def __mul__(self, other: Any) -> Bounded:
        b = self._other(other)
        value = self.value * b.value
        parents = (
            (self, lambda g: _unbroadcast(g * b.value, self.shape)),
            (b, lambda g: _unbroadcast(g * self.value, b.shape)),
        )
        return Bounded(value, self.u, self.u * np.abs(value), parents)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Bounded:
        b = self._other(other)
        value = self.value / b.value
        parents = (
            (self, lambda g: _unbroadcast(g / b.value, self.shape)),
            (b, lambda g: _unbroadcast(-g * value / b.value, b.shape)),
        )
        return Bounded(value, self.u, self.u * np.abs(value), parents)

    def __rtruediv__(self, other: Any) -> Bounded:
        return self._other(other) / self

    def __matmul__(self, other: Any) -> Bounded:
        b = self._other(other)
        parents = (
            (self, lambda g: _unbroadcast(g @ b.value.swapaxes(-1, -2), self.shape)),
            (b, lambda g: _unbroadcast(self.value.swapaxes(-1, -2) @ g, b.shape)),
        )
        return Bounded(self.value @ b.value, self.u, matmul_bound(self.value, b.value, self.u), parents)

    def __rmatmul__(self, other: Any) -> Bounded:
        return self._other(other) @ self

    def __getitem__(self, index: Any) -> Bounded:
        return self._moved(lambda x: x[index])

    def reshape(self, *shape: int) -> Bounded:
        """As numpy's."""
        return self._moved(lambda x: x.reshape(*shape))

    def swapaxes(self, first: int, second: int) -> Bounded:
        """As numpy's."""
        return self._moved(lambda x: x.swapaxes(first, second))

    def repeat(self, times: int, axis: int) -> Bounded:
        """As numpy's."""
        return self._moved(lambda x: x.repeat(times, axis))

    def sum(self, axis: int = -1, keepdims: bool = False) -> Bounded:
        """Sum along one axis, in any order."""
        local = sum_bound(self.value, self.u, axis)

        def adjoint(g: Array) -> Array:
            kept = g if keepdims else np.expand_dims(g, axis if axis < 0 else axis + 1)
            return np.broadcast_to(kept, (g.shape[0], *self.shape))

        value = self.value.sum(axis, keepdims=keepdims)
        return Bounded(value, self.u, local.reshape(value.shape), ((self, adjoint),))

    def mean(self, axis: int = -1, keepdims: bool = False) -> Bounded:
        """Sum along one axis, divided by its length."""
        return self.sum(axis, keepdims) / float(self.shape[axis])


def exact(x: ArrayLike, u: float) -> Bounded:
    """Values that are what they are: inputs and stored weights."""
    return Bounded(np.asarray(x, np.float64), u)


def rounded(x: ArrayLike, u: float) -> Bounded:
    """Values that were rounded once to get into the working precision."""
    value = np.asarray(x, np.float64)
    return Bounded(value, u, u * np.abs(value))


def concatenate(parts: Sequence[Bounded], axis: int = -1) -> Bounded:
    """As numpy's."""
    value = np.concatenate([part.value for part in parts], axis)
    along = axis % value.ndim
    ends = np.cumsum([part.shape[along] for part in parts])

    def adjoint(start: int, stop: int) -> Adjoint:
        return lambda g: g[(slice(None),) * (along + 1) + (slice(start, stop),)]

    starts = [int(end) - part.shape[along] for part, end in zip(parts, ends, strict=True)]
    links = ((part, adjoint(start, start + part.shape[along])) for part, start in zip(parts, starts, strict=True))
    return Bounded(value, parts[0].u, None, tuple(links))


def where(mask: ArrayLike, x: Bounded, otherwise: float) -> Bounded:
    """x where `mask` is true, else a constant."""
    seen = np.broadcast_to(np.asarray(mask, bool), x.shape)
    return Bounded(np.where(seen, x.value, otherwise), x.u, None, ((x, lambda g: np.where(seen, g, 0.0)),))


def _function(x: Bounded, value: Array, slope: Array, relative: float) -> Bounded:
    """f(x) entry by entry, computed with a relative error of `relative` units u."""
    return Bounded(value, x.u, relative * x.u * np.abs(value), ((x, lambda g: g * slope),))


def exp(x: Bounded) -> Bounded:
    """eˣ, to LIBRARY_ULPS."""
    value = np.exp(x.value)
    return _function(x, value, value, LIBRARY)


def log(x: Bounded) -> Bounded:
    """ln x, to LIBRARY_ULPS."""
    return _function(x, np.log(x.value), 1 / x.value, LIBRARY)


def sqrt(x: Bounded) -> Bounded:
    """√x, correctly rounded (IEEE 754, section 5.4.1)."""
    value = np.sqrt(x.value)
    return _function(x, value, 0.5 / value, 1.0)


def sin(x: Bounded) -> Bounded:
    """sin x, to LIBRARY_ULPS."""
    return _function(x, np.sin(x.value), np.cos(x.value), LIBRARY)


def cos(x: Bounded) -> Bounded:
    """cos x, to LIBRARY_ULPS."""
    return _function(x, np.cos(x.value), -np.sin(x.value), LIBRARY)


def power(base: float, x: Bounded) -> Bounded:
    """base**x for an exactly represented base, to LIBRARY_ULPS."""
    value = np.power(base, x.value)
    return _function(x, value, math.log(base) * value, LIBRARY)


def erf(x: Bounded) -> Bounded:
    """The error function, to LIBRARY_ULPS."""
    value = np.vectorize(math.erf, otypes=[np.float64])(x.value)
    return _function(x, value, 2 / math.sqrt(math.pi) * np.exp(-(x.value**2)), LIBRARY)


def rope_frequencies(head_dim: int, base: float, u: float) -> Bounded:
    """ω_i = base^(−2i/d_h), i = 0…d_h/2−1, as computed: the exponent rounded once, then one power."""
    return power(base, rounded(-2.0 * np.arange(head_dim // 2) / head_dim, u))


def softmax(x: Bounded, visible: ArrayLike = True) -> Bounded:
    """e^(s−m) / Σ e^(s−m) along the last axis over the entries where `visible` is true; a row without any is 0.

    The maximum m cancels, so it carries no error of its own.
    """
    seen = np.broadcast_to(np.asarray(visible, bool), x.shape)
    maximum = np.where(seen, x.value, -np.inf).max(axis=-1, keepdims=True)
    shifted = where(seen, x - np.where(np.isfinite(maximum), maximum, 0.0), 0.0)
    term = where(seen, exp(shifted), 0.0)
    return term / where(seen.any(axis=-1, keepdims=True), term.sum(keepdims=True), 1.0)


def cross_entropy(logits: Bounded, targets: ArrayLike) -> Bounded:
    """ln Σ e^(sⱼ−m) − (s_t − m) along the last axis, natural logarithm; `targets` holds t for each row."""
    shifted = logits - logits.value.max(axis=-1, keepdims=True)
    chosen = shifted._moved(lambda s: np.take_along_axis(s, np.asarray(targets)[..., None], -1)[..., 0])
    return log(exp(shifted).sum()) - chosen


def rms_norm(x: Bounded, gain: Any = None, epsilon: float = 0.0) -> Bounded:
    """x/√(mean(x²) + ε), times the gain, along the last axis."""
    y = x / sqrt((x * x).mean(keepdims=True) + epsilon)
    return y if gain is None else y * gain


def layer_norm(x: Bounded, gain: Any = None, bias: Any = None, epsilon: float = 0.0) -> Bounded:
    """(x − mean)/√(var + ε), times the gain, plus the bias, along the last axis; var divides by n."""
    y = rms_norm(x - x.mean(keepdims=True), gain, epsilon)
    return y if bias is None else y + bias


def silu(x: Bounded) -> Bounded:
    """x/(1 + e^(−x))."""
    return x / (exp(-x) + 1.0)


def gelu(x: Bounded) -> Bounded:
    """x·(1 + erf(x/√2))/2."""
    return x * 0.5 * (erf(x * rounded(math.sqrt(0.5), x.u)) + 1.0)


def angle_bound(angles: ArrayLike, frequencies: ArrayLike, base: float | None, u: float, library: float) -> Array:
    """|computed − exact| of position·ω, ω = base^x: to all orders in u.

    The position and the product are rounded once each, and the power costs `library`·u; a relative error u of the
    exponent x is |ln ω|·u in ω, one of the base |x|·u. With `base` None the frequency is a stored number, rounded once.
    """
    omega = np.asarray(frequencies, np.float64)
    if base is None:
        relative: Any = math.expm1(gamma(3, u))
    else:
        relative = np.expm1(np.abs(np.log(omega)) * (1 + 1 / math.log(base)) * u + library * u + gamma(2, u))
    return np.asarray(np.abs(angles) * relative)


def rotation_bound(pairs: Array, angles: Array, angle_error: Array, u: float, library: float) -> tuple[Array, Array]:
    """Rotated pairs (half, 2) and the bound on |computed − exact| of each component, to all orders in u.

    Cosine and sine move by no more than the angle, or 2, and cost `library`·u each; then two products and a sum.
    """
    c, s = np.cos(angles), np.sin(angles)
    x, y = pairs[..., 0], pairs[..., 1]
    moved = (np.abs(x) + np.abs(y)) * (np.minimum(angle_error, 2.0) + library * u)
    turned = np.stack([x * c - y * s, x * s + y * c], axis=-1)
    size = np.stack([np.abs(x * c) + np.abs(y * s), np.abs(x * s) + np.abs(y * c)], axis=-1)
    return turned, moved[..., None] + gamma(2, u) * (size + moved[..., None])


def carried_dot_bound(a: Array, a_error: Array, b: Array, b_error: Array, u: float) -> float:
    """|computed − exact| of Σaᵢbᵢ over all entries, operands known to within their errors: to all orders in u."""
    x, y = np.abs(a).ravel(), np.abs(b).ravel()
    e, f = np.broadcast_to(a_error, a.shape).ravel(), np.broadcast_to(b_error, b.shape).ravel()
    return float((x * f + y * e + e * f).sum() + gamma(x.size, u) * ((x + e) * (y + f)).sum())


def softmax_row_bounds(
    scores: ArrayLike,
    values: ArrayLike,
    gradient: ArrayLike,
    blocks: Sequence[int],
    u: float,
    library: float = LIBRARY,
    subnormal: float = 0.0,
    dense: bool = False,
) -> tuple[Array, Array, Array]:
    """|computed − exact| of a softmax row read block by block: its output, and the gradients of scores and values.

    scores (keys,), values (keys, d_v) and the output's gradient (d_v,) hold the visible keys alone, `blocks` their
    number in each block; `dense` is the form that normalises before it sums. To all orders in u, with x = m − sᵢ:
    s − m rounds to a relative u, which multiplies the exponential by at most e^(x·u); over the rescalings these add up
    to the same x·u, since the maxima only rise. Every exponential costs `library`·u, every product, sum and quotient u
    [H, lemma 3.1]. What numerator and denominator share moves the output by Σpᵢθᵢ(vᵢ − output)/(1 + Σpᵢθᵢ) alone.
    `subnormal` is the absolute error of each operation that underflows. ∞ where a sum can lose everything.
    """
    s, v, g = (np.asarray(x, np.float64) for x in (scores, values, gradient))
    rescalings, depth = len(blocks) - 1, max(blocks) - 1 + len(blocks) - 1
    below = s.max() - s
    total = np.exp(-below).sum()
    p = np.exp(-below) / total
    out = p @ v
    # p(1 + θ): the exponentials that numerator and denominator share.
    grown = np.exp(-below * (1 - u)) / total * math.exp(library * u * (1 + rescalings))
    loss = float((grown - p).sum())
    own = gamma(depth + rescalings, u)
    tiny = subnormal * (depth + rescalings + 2) * len(s)
    if loss + tiny >= 1 or own >= 1:
        everything = np.full(v.shape, np.inf)
        return everything[0], everything[:, 0], everything
    shared = (grown - p) @ np.abs(v - out) / (1 - loss)
    numerator = gamma(depth + rescalings + 1, u) * (grown @ np.abs(v)) / (1 - loss)
    quotient = (numerator + (np.abs(out) + shared) * own + tiny * (1 + np.abs(out))) / (1 - own - tiny)
    output = shared + quotient + u * (np.abs(out) + shared + quotient) + subnormal
    # Backward: p = e^(s−m)/a once more, from the m and a of the forward pass.
    high = np.exp(-below * (1 - u)) / total * (1 + gamma(depth + rescalings + 2, u)) * math.exp(library * u)
    high = high * math.exp(library * u * (1 + rescalings)) / (1 - loss) + subnormal
    values_error = (high * (1 + u) - p)[:, None] * np.abs(g) + subnormal
    width = gamma(v.shape[1], u)
    toward, along = v @ g, float(out @ g)
    toward_error = width * (np.abs(v) @ np.abs(g))
    if dense:
        terms = (1 + gamma(len(s), u)) * high * (np.abs(toward) + toward_error)
        along_error = float(terms.sum() - (p * np.abs(toward)).sum())
    else:
        along_error = float(output @ np.abs(g) + width * ((np.abs(out) + output) @ np.abs(g)))
    apart = np.abs(toward - along)
    scores_error = high * (1 + u) ** 2 * (apart + toward_error + along_error) - p * apart + subnormal
    return output, scores_error, values_error


def projected_dot_kurtosis(d_k: int, d: int) -> float:
    """Fourth over squared second moment of q·k, q = W_Q x, k = W_K y, everything drawn independently and normal.

    x, y have d components of variance 1, the weights variance 1/d. Given the lengths of x and y, q·k is √(ab) Σ gᵢhᵢ
    over d_k products of standard normals: fourth moment (3d_k² + 6d_k)a²b², with E a² = E b² = 1 + 2/d.
    """
    return (3 + 6 / d_k) * (1 + 2 / d) ** 2


def projected_dot_correlation(d_k: int, d: int) -> float:
    """Correlation of the squares of two q·k that share their weights but no token, drawn as above.

    Given the weights the mean square is tr(AB), A = W_Q W_Qᵀ, B = W_K W_Kᵀ, of relative variance
    4/(d_k·d) + 2(d_k+1)/(d_k·d²) by the second moments of a Wishart matrix [M].
    """
    return (4 / (d_k * d) + 2 * (d_k + 1) / (d_k * d**2)) / (projected_dot_kurtosis(d_k, d) - 1)


def standard_deviation_interval(
    sigma: float,
    samples: int,
    kurtosis: float,
    confidence: float = 0.999,
    group: int = 1,
    correlation: float = 0.0,
) -> tuple[float, float]:
    """Interval that holds the sample standard deviation with the given probability.

    The sample variance has relative variance (κ−1)/n + 2/(n(n−1)) exactly, κ being the fourth over the squared second
    moment (3 for a normal variable), and is asymptotically normal [S]. Samples that come in groups of `group` whose
    squares are correlated by `correlation` count as fewer: (κ−1) is multiplied by 1 + (group−1)·correlation [K].
    """
    if samples < 2 or not 0 < confidence < 1:
        raise ValueError(f"samples {samples} must be 2 or more, confidence {confidence} between 0 and 1")
    design = 1 + (group - 1) * correlation
    relative = math.sqrt((kurtosis - 1) * design / samples + 2 / (samples * (samples - 1)))
    reach = NormalDist().inv_cdf(0.5 + confidence / 2) * relative
    return sigma * math.sqrt(max(1 - reach, 0.0)), sigma * math.sqrt(1 + reach)


def mean_interval(values: ArrayLike, confidence: float = 0.999) -> tuple[float, float]:
    """Interval for the mean of a population from independent values, by the central limit theorem [S]."""
    x = np.asarray(values, np.float64)
    if x.size < 2:
        raise ValueError("two or more values are needed")
    reach = NormalDist().inv_cdf(0.5 + confidence / 2) * float(x.std(ddof=1)) / math.sqrt(x.size)
    return float(x.mean()) - reach, float(x.mean()) + reach
