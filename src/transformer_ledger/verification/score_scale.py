"""The dot product of a projected query and a projected key has standard deviation √d_k.

Claims A4.1 to A4.3. Tokens have independent components of mean 0 and variance 1, projections (d × d_k) independent
entries of variance 1/d: what an embedding or a normalised residual, and a usual initialisation, amount to.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import numpy as np

from transformer_ledger import bounds
from transformer_ledger.cases import case

PRINTED = (2, 128)  # the narrowest and the widest head that the text compares
AT_ONCE = 50  # draws held in memory together
Turn = Callable[[Any, int, Any], Any]


def dots(q: Any, k: Any, widths: list[int]) -> Any:
    """Dot products of the first d_k components, for every d_k in the increasing `widths`: (…, widest) → (…, widths)."""
    return np.add.reduceat(q * k, [0, *widths[:-1]], axis=-1).cumsum(axis=-1)


def scores(
    generator: np.random.Generator,
    d_model: int,
    widths: list[int],
    weight_draws: int,
    pairs: int,
    *,
    token_variance: float = 1.0,
    turn: Turn | None = None,
) -> Any:
    """q·k for every drawn pair of projections, token pair and width d_k: (weight_draws, pairs, widths).

    A narrower head takes the first columns of the widest one's projections, so the widths share their draws. `turn`
    gets q (draws, pairs, d_k) and 0, or k and 1, and the number of the first draw, and returns them rotated.
    """
    widest = max(widths)
    blocks = []
    for start in range(0, weight_draws, AT_ONCE):
        draws = min(AT_ONCE, weight_draws - start)
        weights = generator.standard_normal((2, draws, d_model, widest)) * d_model**-0.5
        tokens = generator.standard_normal((2, draws, pairs, d_model)) * token_variance**0.5
        q, k = tokens @ weights  # (draws, pairs, widest) each
        if turn is None:
            blocks.append(dots(q, k, widths))
        else:
            turned = [(turn(q[..., :w], 0, start) * turn(k[..., :w], 1, start)).sum(axis=-1) for w in widths]
            blocks.append(np.stack(turned, axis=-1))
    return np.concatenate(blocks)


def interval(d_k: int, d_model: int, weight_draws: int, pairs: int, confidence: float) -> tuple[float, float]:
    """Sampling interval of the standard deviation of `scores` at width d_k, around √d_k."""
    return bounds.standard_deviation_interval(
        math.sqrt(d_k),
        weight_draws * pairs,
        bounds.projected_dot_kurtosis(d_k, d_model),
        confidence,
        pairs,
        bounds.projected_dot_correlation(d_k, d_model),
    )


def interval_source(confidence: float) -> str:
    """How the sampling interval is called on the page."""
    return f"{100 * confidence:g} % sampling interval of a standard deviation (Serfling 1980, 2.2.3; Kish 1965, 5.4)"


def half_width_row(claim: str, d_k: int, low: float, high: float, confidence: float, allowed: float) -> dict[str, Any]:
    """The row that says whether there are enough samples."""
    return case(
        claim,
        f"d_k={d_k}",
        "floating",
        f"half-width of the {100 * confidence:g} % interval, relative",
        (high - low) / (2 * math.sqrt(d_k)),
        "in",
        (0.0, allowed),
        bound_source="precision asked for in the settings",
    )


def variance(d_model: int, d_k: int, turn: Callable[[list[Any]], list[Any]] = list) -> Any:
    """Variance of q·k, exactly: the square in monomials, each replaced by its moment; `turn` turns the key."""
    import sympy

    x, y = sympy.symbols(f"x:{d_model}"), sympy.symbols(f"y:{d_model}")
    a, b = (sympy.symbols(f"{name}:{d_model * d_k}") for name in "ab")
    columns = range(d_k)
    q = [sum(x[i] * a[i * d_k + j] for i in range(d_model)) for j in columns]
    k = turn([sum(y[i] * b[i * d_k + j] for i in range(d_model)) for j in columns])
    square = sympy.Poly(sum(q[j] * k[j] for j in columns) ** 2, *x, *y, *a, *b)
    total = sympy.Integer(0)
    for powers, factor in square.terms():
        if all(power % 2 == 0 for power in powers):
            # E zⁿ = (n−1)!!·σⁿ for even n; the entries of the projections have σ² = 1/d.
            moments = [sympy.factorial2(power - 1) for power in powers]
            small = sum(powers[2 * d_model :]) // 2
            total += factor * sympy.prod(moments) * sympy.Rational(1, d_model) ** small
    return total


def worst_row(
    claim: str,
    quantity: str,
    deviations: list[float],
    widths: list[int],
    intervals: list[tuple[float, float]],
    source: str,
) -> dict[str, Any]:
    """How near the worst standard deviation of q·k comes to the end of its interval: 0 is √d_k, 1 the end."""
    ratios = []
    for deviation, d_k, (low, high) in zip(deviations, widths, intervals, strict=True):
        root = math.sqrt(d_k)
        ratios.append((deviation - root) / ((high if deviation > root else low) - root))
    return case(
        claim,
        f"d_k={widths[0]} to {widths[-1]}",
        "floating",
        f"worst distance of the {quantity}, in half-widths of its interval",
        max(ratios),
        "<=",
        1,
        bound_source=source,
    )


def terms(expression: Any) -> int:
    """Terms of an expanded SymPy expression: 0 where it is identically 0."""
    import sympy

    return 0 if expression == 0 else len(sympy.Add.make_args(expression))


def entropy_slope() -> int:
    """Terms left of d(entropy)/dc + c·Var(s), softmax of c·s over three scores: none if the entropy falls with c."""
    import sympy

    c, *s = sympy.symbols("c s1:4", real=True)
    powers = [sympy.exp(c * score) for score in s]
    total = sum(powers)
    p = [power / total for power in powers]
    # ln p written out, so that nothing but exponentials has to be simplified.
    entropy = sympy.log(total) - c * sum(w * score for w, score in zip(p, s, strict=True))
    mean = sum(w * score for w, score in zip(p, s, strict=True))
    spread = sum(w * score**2 for w, score in zip(p, s, strict=True)) - mean**2
    return terms(sympy.expand(sympy.numer(sympy.together(sympy.diff(entropy, c) + c * spread))))


def _exact(widths: list[int], as_printed: bool) -> list[dict[str, Any]]:
    import sympy

    rows = []
    for d_model, d_k in product((1, 2), (1, 2, 3)):
        exact = variance(d_model, d_k)
        rows += [
            case(
                claim,
                f"d={d_model}, d_k={d_k}",
                "exact",
                quantity,
                value,
                "==",
                expected,
                bound_source="moments of independent normal variables, in symbols",
                backend="symbolic",
            )
            for claim, quantity, value, expected in (
                ("A4.1", "variance of q·k", exact, d_k),
                ("A4.2", "variance of q·k/√d_k", exact / d_k, 1),
            )
        ]
    growth = sympy.sqrt(sympy.Rational(widths[-1], widths[0]))
    rows.append(
        case(
            "A4.1",
            f"d_k={widths[0]} to {widths[-1]}",
            "exact",
            "square of √d_k's growth",
            growth**2,
            "==",
            64 if as_printed else sympy.Rational(widths[-1], widths[0]),
            bound_source="8² = 64" if as_printed else "ratio of the widths",
            printed="64",
            backend="symbolic",
            applicable=as_printed,
        )
    )
    rows.append(
        case(
            "A4.3",
            "softmax of c·s over three scores",
            "exact",
            "terms left of the entropy's slope in c, plus c·Var(s)",
            entropy_slope(),
            "==",
            0,
            bound_source="in symbols: a larger factor always means less entropy",
            backend="symbolic",
        )
    )
    return rows


def _fixed(
    generator: np.random.Generator, d_model: int, widths: list[int], fixed: dict[str, int], confidence: float
) -> Any:
    """With one pair of projections W_Q, W_K the mean square of q·k is tr(W_Q W_Qᵀ W_K W_Kᵀ), not d_k."""
    draws, pairs = fixed["weight_draws"], fixed["pairs"]
    weights = generator.standard_normal((2, draws, d_model, max(widths))) * d_model**-0.5
    gram_q, gram_k = weights.swapaxes(-1, -2) @ weights  # (draws, widest, widest) each
    traces = [(gram_q[:, :w, :w] * gram_k[:, :w, :w]).sum(axis=(1, 2)) for w in widths]
    square = np.stack(traces, axis=-1)  # (draws, widths)
    tokens = generator.standard_normal((2, pairs, d_model))
    q, k = tokens @ weights[:, 0]
    deviation = dots(q, k, widths).std(axis=0, ddof=1)
    rows = []
    for j, w in enumerate(widths):
        mean_square = float(square[0, j])
        # Fourth moment of xᵀMy, M = W_Q W_Kᵀ: 3(tr(MMᵀ)² + 2 tr((MMᵀ)²)).
        both = gram_q[0, :w, :w] @ gram_k[0, :w, :w]
        kurtosis = 3 * (1 + 2 * float(np.trace(both @ both)) / mean_square**2)
        low, high = bounds.standard_deviation_interval(math.sqrt(mean_square / w), pairs, kurtosis, confidence)
        rows.append(
            case(
                "A4.1",
                f"d_k={w}, one fixed pair of projections",
                "floating",
                "standard deviation of q·k over √d_k",
                deviation[j] / math.sqrt(w),
                "in",
                (low, high),
                bound_source=f"{interval_source(confidence)} around √(tr(W_Q W_Qᵀ W_K W_Kᵀ)/d_k)",
            )
        )
        off = (square[:, j] / w - 1) ** 2
        between = (bounds.projected_dot_kurtosis(w, d_model) - 1) * bounds.projected_dot_correlation(w, d_model)
        low, high = bounds.mean_interval(off, confidence)
        rows.append(
            case(
                "A4.1",
                f"d_k={w}, {draws} pairs of projections",
                "floating",
                "variance between pairs of the mean square over d_k",
                float(off.mean()),
                "in",
                (between - (high - low) / 2, between + (high - low) / 2),
                bound_source="4/(d_k·d) + 2(d_k+1)/(d_k·d²) (Muirhead 1982, 3.2), with the interval of a mean",
            )
        )
    return rows


def _saturation(
    generator: np.random.Generator, d_model: int, widths: list[int], keys: int, draws: int, confidence: float
) -> list[dict[str, Any]]:
    """Mean largest probability and mean entropy of the rows of softmax(q·k), with and without 1/√d_k."""
    weights = generator.standard_normal((2, draws, d_model, max(widths))) * d_model**-0.5
    tokens = generator.standard_normal((draws, keys, d_model))
    q, k = tokens @ weights
    largest: dict[tuple[str, int], Any] = {}
    entropies: dict[tuple[str, int], Any] = {}
    for w in widths:
        products = q[..., :w] @ k[..., :w].swapaxes(-1, -2)  # (draws, keys, keys)
        for name, factor in (("unscaled", 1.0), ("scaled", w**-0.5)):
            s = products * factor
            s = s - s.max(axis=-1, keepdims=True)
            term = np.exp(s)
            total = term.sum(axis=-1, keepdims=True)
            p = term / total
            largest[name, w] = p.max(axis=-1).mean(axis=-1)  # one value a draw: the draws are independent
            entropies[name, w] = (np.log(total[..., 0]) - (p * s).sum(axis=-1)).mean(axis=-1)
    rows = []
    for w in widths:
        for name in ("unscaled", "scaled"):
            rows += [
                case(
                    "A4.3",
                    f"d_k={w}, {name}, {keys} keys",
                    "floating",
                    "mean largest probability",
                    float(largest[name, w].mean()),
                    "in",
                    (1 / keys, 1.0),
                    bound_source="1/keys (uniform) to 1 (one-hot)",
                ),
                case(
                    "A4.3",
                    f"d_k={w}, {name}, {keys} keys",
                    "floating",
                    "mean entropy",
                    float(entropies[name, w].mean()),
                    "in",
                    (0.0, math.log(keys)),
                    bound_source="0 (one-hot) to ln keys (uniform)",
                    unit="nat",
                ),
            ]
    widest = widths[-1]
    majority = "saturated: the largest weight exceeds all others together, 1/2"
    at_least = f"lower end of the {100 * confidence:g} % interval"
    rows.append(
        case(
            "A4.3",
            f"d_k={widest}, unscaled, {keys} keys",
            "floating",
            f"mean largest probability, {at_least}",
            bounds.mean_interval(largest["unscaled", widest], confidence)[0],
            ">=",
            0.5,
            bound_source=majority,
            headline=True,
        )
    )
    rises = []
    for narrow, wide in pairwise(widths):
        rises.append(largest["unscaled", wide] - largest["unscaled", narrow])
        rows.append(
            case(
                "A4.3",
                f"d_k={narrow} to {wide}, unscaled, {keys} keys",
                "floating",
                f"rise of the mean largest probability, {at_least}",
                bounds.mean_interval(rises[-1], confidence)[0],
                ">=",
                0,
                bound_source="it rises with the width",
            )
        )
    for w in widths:
        rows.append(
            case(
                "A4.3",
                f"d_k={w}, scaled, {keys} keys",
                "control",
                f"mean largest probability, upper end of the {100 * confidence:g} % interval",
                bounds.mean_interval(largest["scaled", w], confidence)[1],
                "<=",
                0.5,
                bound_source=f"not {majority}",
            )
        )
    change = largest["scaled", widest] - largest["scaled", widths[0]]
    rows.append(
        case(
            "A4.3",
            f"d_k={widths[0]} to {widest}, scaled, {keys} keys",
            "control",
            "change of the mean largest probability",
            abs(float(change.mean())),
            "<=",
            min(float(rise.mean()) for rise in rises),
            bound_source="flat: less over all widths than unscaled from any width to the next",
        )
    )
    return rows


def compute(
    d_model: int,
    widths: list[int],
    weight_draws: int,
    pairs: int,
    confidence: float,
    half_width: float,
    token_variance: float,
    fixed: dict[str, int],
    saturation: dict[str, int],
    seed: int,
) -> list[dict[str, Any]]:
    """Rows for A4.1 to A4.3.

    `weight_draws` pairs of projections are drawn, with `pairs` token pairs each; `fixed` is the sample for one pair of
    projections and for the spread between pairs, `saturation` the one for the softmax rows.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    products = scores(generator, d_model, widths, weight_draws, pairs)
    deviation = products.reshape(-1, len(widths)).std(axis=0, ddof=1)
    larger = scores(generator, d_model, widths, max(weight_draws // 10, 2), pairs, token_variance=token_variance)
    larger_deviation = larger.reshape(-1, len(widths)).std(axis=0, ddof=1)
    as_printed = (widths[0], widths[-1]) == PRINTED
    source = interval_source(confidence)
    rows = _exact(widths, as_printed)
    intervals = [interval(w, d_model, weight_draws, pairs, confidence) for w in widths]
    scaled = [float((products[..., j] / math.sqrt(w)).std(ddof=1)) for j, w in enumerate(widths)]
    unscaled = [value * math.sqrt(w) for value, w in zip(scaled, widths, strict=True)]
    for j, (w, (low, high)) in enumerate(zip(widths, intervals, strict=True)):
        root = math.sqrt(w)
        half = (high - low) / (2 * root)
        rows += [
            case(
                "A4.1",
                f"d_k={w}",
                "floating",
                "standard deviation of q·k",
                deviation[j],
                "in",
                (low, high),
                bound_source=source,
            ),
            half_width_row("A4.1", w, low, high, confidence, half_width),
            case(
                "A4.1",
                f"d_k={w}, token components of variance {token_variance:g}",
                "control",
                "distance of the standard deviation of q·k from √d_k, relative",
                abs(larger_deviation[j] / root - 1),
                ">=",
                100 * half,
                bound_source="100 × the interval's half-width",
            ),
            case(
                "A4.2",
                f"d_k={w}",
                "floating",
                "standard deviation of q·k/√d_k",
                scaled[j],
                "in",
                (low / root, high / root),
                bound_source=source,
                printed="1",
                headline=j == len(widths) - 1,
            ),
        ]
    rows += [
        worst_row("A4.1", "standard deviation of q·k from √d_k", list(deviation), widths, intervals, source),
        worst_row("A4.2", "standard deviation of q·k/√d_k from 1", unscaled, widths, intervals, source),
    ]
    # Both ends vary: the widest ratio that the two intervals allow.
    ratio = (intervals[-1][0] / intervals[0][1], intervals[-1][1] / intervals[0][0])
    rows.append(
        case(
            "A4.1",
            f"d_k={widths[0]} to {widths[-1]}",
            "floating",
            "growth of the standard deviation of q·k",
            deviation[-1] / deviation[0],
            "in",
            ratio,
            bound_source=source,
            printed="8",
            headline=True,
            applicable=as_printed,
        )
    )
    widest = widths[-1]
    wrong = float((products[..., -1] / widest).std(ddof=1))
    low, high = intervals[-1]
    rows.append(
        case(
            "A4.2",
            f"d_k={widest}, divided by d_k",
            "control",
            "factor between the standard deviation and 1, less 1",
            max(wrong, 1 / wrong) - 1,
            ">=",
            100 * (high - low) / (2 * math.sqrt(widest)),
            bound_source="100 × the interval's half-width",
        )
    )
    rows.append(
        case(
            "A4.2",
            f"d_k={widest}, divided by d_k",
            "control",
            "standard deviation of q·k/d_k",
            wrong,
            "in",
            (low / widest, high / widest),
            bound_source=f"{source}, around 1/√d_k",
        )
    )
    rows += _fixed(generator, d_model, widths, fixed, confidence)
    return rows + _saturation(generator, d_model, widths, saturation["keys"], saturation["draws"], confidence)
