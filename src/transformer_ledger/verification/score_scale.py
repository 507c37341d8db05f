"""The dot product of a projected query and a projected key has standard deviation √d_k.

Claims A4.1 to A4.3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np

from transformer_ledger import bounds, routes
from transformer_ledger.evidence import Evidence, Printed, between, exactly, outside
from transformer_ledger.reference.scores import Sample, Scaled, attend, factor, together, variance

WIDTHS = [2, 4, 8, 16, 32, 64, 128]  # from the narrowest to the widest head that the text compares
FACTORS = {"q·k": 0, "q·k/√d_k": 1}  # power of the decoder's factor


def _deviation(sample: Sample, token_variance: float, half_width: float, settings: Mapping[str, Any]) -> list[Any]:
    """A4.1 and A4.2 on the sampled products; for A4.2 times the factor that the decoder's attention applies."""
    grows = Evidence("A4.1", settings, by=routes.SAMPLES, against=routes.SAMPLING, source=sample.source)
    scaled = grows.of("A4.2", by="samples, times the decoder's factor")
    widths = sample.widths

    @cache
    def deviation(variance: float = 1.0) -> Any:
        return replace(sample, variance=variance).products().std(axis=0, ddof=1)

    def of_product(index: int, variance: float = 1.0) -> float:
        return float(deviation(variance)[index])

    def of_score(index: int, power: int = 1) -> float:
        return float(deviation()[index]) * factor(widths[index], power)

    ends = [sample.interval(width) for width in widths]
    halves = [(high - low) / 2 for low, high in ends]
    for index, (width, (low, high)) in enumerate(zip(widths, ends, strict=True)):
        root = math.sqrt(width)
        one, unit = grows.of(d_k=width), scaled.of(d_k=width)
        one.inside("standard deviation of q·k", of_product(index), low * root, high * root, key=f"deviation_{width}")
        one.control(f"token components of variance {token_variance:g}", "standard deviation of q·k",
                    partial(of_product, index), {"variance": token_variance}, between(low * root, high * root),
                    key=f"variance_{width}")  # fmt: skip
        unit.inside("standard deviation of q·k/√d_k", of_score(index), low, high, headline=width == widths[-1],
                    key=f"scaled_{width}")  # fmt: skip
        unit.control("divided by d_k", "standard deviation of the scores", partial(of_score, index), {"power": 2},
                     between(low, high), between(low / root, high / root), key=f"divided_{width}")  # fmt: skip
    worst = max(range(len(widths)), key=lambda index: abs(of_score(index) - 1))
    scaled.prints("standard deviation of q·k/√d_k furthest from 1", of_score(worst), Printed("1", rounded=True),
                  d_k=widths[worst])  # fmt: skip
    growth = of_product(-1) / of_product(0)
    wide = grows.of(tried=f"d_k = {widths[0]} to {widths[-1]}")
    root = math.sqrt(widths[-1] / widths[0])
    wide.inside("growth of the standard deviation of q·k", growth, root * ends[-1][0] / ends[0][1],
                root * ends[-1][1] / ends[0][0], headline=True, key="growth")  # fmt: skip
    wide.prints("growth of the standard deviation of q·k", growth, Printed("8", {"widths": WIDTHS}, rounded=True))
    precise = wide.of(by=routes.SAMPLING, against="precision asked for in the settings")
    for claim in ("A4.1", "A4.2"):
        precise.of(claim).within(
            "half-width of the widest interval, relative", max(halves), half_width, key="precision"
        )
    return grows.rows


def _exact(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A4.1 in symbols, for small widths."""
    symbols = Evidence("A4.1", settings, by=routes.SYMBOLS, against=routes.FORMULA,
                       source="moments of independent normal variables")  # fmt: skip
    for d_model in (1, 2):
        for d_k in (1, 2, 3):
            symbols.equal("variance of q·k", variance(d_model, d_k), d_k, d_model=d_model, d_k=d_k)
    symbols.control("token components of variance 4", "variance of q·k", partial(variance, 1, 2), {"tokens": 4},
                    exactly(2), exactly(32), d_model=1, d_k=2)  # fmt: skip
    return symbols.rows


def _fixed(sample: Sample, draws: int, pairs: int, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A4.1 with projections kept fixed: the mean square of q·k is then tr(W_Q W_Qᵀ W_K W_Kᵀ), not d_k."""
    one = replace(sample, draws=1, pairs=pairs)
    deviation = one.products().std(axis=0, ddof=1)
    generator = np.random.Generator(np.random.PCG64(sample.seed))  # the first pair is the one of `one`
    weights = [generator.standard_normal((2, sample.d_model, sample.widths[-1])) for _ in range(draws)]
    grams = [w.swapaxes(-1, -2) @ w / sample.d_model for w in weights]  # (2, widest, widest) each
    confidence = together(sample.confidence, len(sample.widths))
    fixed = Evidence("A4.1", settings, against=routes.SAMPLING,
                     source=f"{len(sample.widths)} intervals together at {100 * sample.confidence:g} % (Bonferroni)")  # fmt: skip
    for j, w in enumerate(sample.widths):
        square = [float((q[:w, :w] * k[:w, :w]).sum()) for q, k in grams]
        # Fourth moment of xᵀMy, M = W_Q W_Kᵀ: 3(tr(MMᵀ)² + 2 tr((MMᵀ)²)).
        both = grams[0][0][:w, :w] @ grams[0][1][:w, :w]
        kurtosis = 3 * (1 + 2 * float(np.trace(both @ both)) / square[0] ** 2)
        low, high = bounds.standard_deviation_interval(math.sqrt(square[0] / w), pairs, kurtosis, confidence)
        fixed.inside("standard deviation of q·k, divided by √d_k", deviation[j] / math.sqrt(w), low, high, d_k=w,
                     tried="one fixed pair of projections", by=routes.SAMPLES, key=f"fixed_{w}")  # fmt: skip
        off = (np.array(square) / w - 1) ** 2
        expected = (bounds.projected_dot_kurtosis(w, sample.d_model) - 1) * bounds.projected_dot_correlation(
            w, sample.d_model
        )
        low, high = bounds.mean_interval(off, confidence)
        fixed.inside("variance, between pairs of projections, of the mean square divided by d_k", off.mean(),
                     expected - (high - low) / 2, expected + (high - low) / 2, d_k=w, by=f"{draws} pairs drawn",
                     source="4/(d_k·d) + 2(d_k+1)/(d_k·d²) (Muirhead 1982, 3.2)")  # fmt: skip
    return fixed.rows


def _saturation(
    sample: Sample, keys: int, draws: int, threshold: float, flat: float, settings: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """A4.3: mean largest probability and mean entropy of the rows of softmax(q·k), with the decoder's factor and without."""
    generator = np.random.Generator(np.random.PCG64([sample.seed, 1]))
    query, key = generator.standard_normal((2, draws, sample.d_model, sample.widths[-1])) * sample.d_model**-0.5
    tokens = generator.standard_normal((draws, keys, sample.d_model))
    confidence = together(sample.confidence, 2 * len(sample.widths))
    start = Evidence("A4.3", settings, by="the decoder's attention on samples", keys=keys,
                     against="threshold, chosen before",
                     source=f"{2 * len(sample.widths)} intervals together at {100 * sample.confidence:g} % (Bonferroni)")  # fmt: skip

    @cache
    def patterns(width: int, power: int) -> Any:
        q, k = (np.ascontiguousarray(projection[..., :width]) for projection in (query, key))
        return attend(tokens, q, k, Scaled(power))

    def largest(width: int, power: int = 1) -> Any:
        return patterns(width, power).max(axis=-1).mean(axis=-1)  # one value a draw: the draws are independent

    def mean(width: int, power: int = 1) -> float:
        return float(largest(width, power).mean())

    def ends(values: Any) -> tuple[float, float]:
        return bounds.mean_interval(values, confidence)

    widest, quantity = sample.widths[-1], "mean largest probability"
    start.beyond(f"{quantity}, lower end of its interval", ends(largest(widest, 0))[0], threshold, d_k=widest,
                 scores="q·k", headline=True, key="saturated")  # fmt: skip
    for narrow, wide in pairwise(sample.widths):
        start.beyond(f"rise of the {quantity} from the next narrower width, lower end", ends(largest(wide, 0) - largest(narrow, 0))[0],
                     0, d_k=wide, scores="q·k", against="it rises with the width")  # fmt: skip
    for width in sample.widths:
        start.within(f"{quantity}, upper end of its interval", ends(largest(width))[1], threshold, d_k=width,
                     scores="q·k/√d_k")  # fmt: skip
    change = ends(largest(widest) - largest(sample.widths[0]))
    start.within(f"change of the {quantity} from the narrowest to the widest, end of the interval further from 0",
                 max(map(abs, change)), flat,
                 scores="q·k/√d_k", against="margin, chosen before")  # fmt: skip
    start.control("without the factor 1/√d_k", quantity, partial(mean, widest), {"power": 0}, between(0, threshold),
                  outside(0, threshold), d_k=widest, key="unscaled")  # fmt: skip
    for name, power in FACTORS.items():
        for width in sample.widths:
            shown = start.of(d_k=width, scores=name, source="uniform to one-hot")
            p = patterns(width, power)
            entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(axis=-1).mean()
            shown.theorem(quantity, mean(width, power), 1 / keys, 1, key=f"largest_{width}_{power}")
            shown.theorem("mean entropy", entropy, 0, math.log(keys), unit="nat", key=f"entropy_{width}_{power}")
    return start.rows


def compute(
    settings: Mapping[str, Any],
    d_model: int,
    widths: list[int],
    weight_draws: int,
    pairs: int,
    confidence: float,
    half_width: float,
    token_variance: float,
    fixed: dict[str, int],
    saturation: dict[str, Any],
    seed: int,
) -> list[dict[str, Any]]:
    """Rows for A4.1 to A4.3.

    `weight_draws` pairs of projections are drawn, with `pairs` token pairs each; `fixed` is the sample for one pair of
    projections and for the spread between pairs, `saturation` the one for the softmax rows.
    """
    sample = Sample(d_model, tuple(widths), weight_draws, pairs, seed, confidence)
    return [
        *_exact(settings),
        *_deviation(sample, token_variance, half_width, settings),
        *_fixed(sample, fixed["weight_draws"], fixed["pairs"], settings),
        *_saturation(sample, **saturation, settings=settings),
    ]
