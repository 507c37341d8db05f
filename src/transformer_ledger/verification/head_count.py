"""The number of heads changes neither the weights of attention nor their number, but it changes the function.

Claims A3.1 to A3.3.
"""

from __future__ import annotations

from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from transformer_ledger.cases import case, differing
from transformer_ledger.model import ModelSpec, from_architecture
from transformer_ledger.reference import decoder
from transformer_ledger.reference.arithmetic import BACKENDS, RATIONAL, RUNNING, SEQUENTIAL
from transformer_ledger.verification import score_scale

NINE_DIGITS = 5e-10  # half a unit in the ninth digit of a number from 1 to 10, relative to 1

GRID = 16  # weights of the exact leg are rounded to multiples of 1/16, which keeps the fractions short
EXACT_TOKENS = 4


def divisors(n: int) -> list[int]:
    """All positive divisors of n."""
    return [k for k in range(1, n + 1) if n % k == 0]


def attention_shapes(d_model: int, heads: int, kv_heads: int) -> list[tuple[int, ...]]:
    """Shapes of the four matrices of one attention layer."""
    keys = {"layers": 1, "d_model": d_model, "heads": heads, "kv_heads": kv_heads, "d_ff": 1, "vocabulary": 1}
    spec = from_architecture(
        "attention", keys | {"context": 1, "positions": "none", "norm": "rmsnorm", "feedforward": "gelu"}
    )
    return [shape for name, shape in decoder.shapes(spec).items() if ".attention." in name]


def vector(spec: ModelSpec, seed: int) -> Any:
    """All parameters of the model as drawn from `seed`, one after the other."""
    return np.concatenate([value.ravel() for value in decoder.initial(spec, seed).values()])


def _weights(widths: list[int]) -> list[dict[str, Any]]:
    import sympy

    d, h, d_h = sympy.symbols("d h d_h", positive=True)
    four = (3 * d * h * d_h + h * d_h * d).subs(d_h, d / h)
    rows = [
        case(
            "A3.1",
            "in symbols, d_h = d/H",
            "exact",
            "terms left of the four projections' weights less 4d²",
            score_scale.terms(sympy.simplify(four - 4 * d**2)),
            "==",
            0,
            bound_source="three matrices d × H·d_h and one H·d_h × d",
            backend="symbolic",
        )
    ]
    for width in widths:
        own = divisors(width)
        shapes = {heads: attention_shapes(width, heads, heads) for heads in own}
        counts = [sum(map(prod, of_heads)) for of_heads in shapes.values()]
        rows += [
            case(
                "A3.1",
                f"d={width}, all {len(own)} divisors as H",
                "exact",
                label,
                count,
                "==",
                4 * width**2,
                bound_source="4d²",
                headline=label == "most weights" and width == widths[0],
            )
            for label, count in (("fewest weights", min(counts)), ("most weights", max(counts)))
        ]
        rows.append(
            case(
                "A3.1",
                f"d={width}, all {len(own)} divisors as H",
                "exact",
                "matrices that are not d × d",
                sum(shape != (width, width) for of_heads in shapes.values() for shape in of_heads),
                "==",
                0,
                bound_source="H·d_h = d",
            )
        )
        heads = max(own)
        grouped = sum(map(prod, attention_shapes(width, heads, 1)))
        rows.append(
            case(
                "A3.1",
                f"d={width}, {heads} query heads over 1 key/value head",
                "control",
                "weights fewer than 4d²",
                4 * width**2 - grouped,
                ">=",
                1,
                bound_source="an integer that should be 0",
            )
        )
    return rows


def _same_vector(specs: dict[int, ModelSpec], seed: int, other_seed: int) -> list[dict[str, Any]]:
    vectors = {heads: vector(spec, seed) for heads, spec in specs.items()}
    first, *others = specs
    norms = [float(np.linalg.norm(vectors[heads])) for heads in specs]
    strange = vector(specs[first], other_seed)
    rows = [
        case(
            "A3.2",
            f"H={heads} against H={first}",
            "floating",
            "parameters whose bits differ",
            differing(vectors[heads], vectors[first]),
            "bitwise",
            0,
            bound_source="one generator, tensors of the same sizes in the same order",
            headline=heads == others[-1],
        )
        for heads in others
    ]
    rows += [
        case(
            "A3.2",
            "all H",
            "exact",
            "numbers of heads whose tensors have other shapes",
            sum(decoder.shapes(spec) != decoder.shapes(specs[first]) for spec in specs.values()),
            "==",
            0,
            bound_source="H·d_h = d",
        ),
        case(
            "A3.2",
            "all H",
            "floating",
            "different values of the parameter vector's norm",
            len(set(norms)),
            "==",
            1,
            bound_source="the norm of one vector",
            printed="nine digits",
        ),
    ]
    rows += [
        case(
            "A3.2",
            "another seed",
            "control",
            label,
            value,
            ">=",
            least,
            bound_source=source,
            unit=unit,
        )
        for label, value, least, source, unit in (
            ("parameters whose bits differ", differing(strange, vectors[first]), 1, "bit for bit", "parameter"),
            (
                "difference of the norms, relative",
                abs(float(np.linalg.norm(strange)) / norms[0] - 1),
                100 * NINE_DIGITS,
                "100 × nine digits",
                "",
            ),
        )
    ]
    return rows


def _functions(specs: dict[int, ModelSpec], ids: Any, seed: int) -> list[dict[str, Any]]:
    first, *others = specs
    weights = decoder.initial(specs[first], seed)

    def run(heads: int, arithmetic: Any) -> tuple[Any, Any]:
        """Logits of the last token and its attention patterns (h, T) in the first layer."""
        patterns: list[Any] = []
        logits = decoder.forward(specs[heads], weights, ids, arithmetic, patterns=patterns)
        return logits[-1], patterns[0][:, -1, :]

    errors = {heads: [part.error for part in run(heads, RUNNING)] for heads in specs}
    rows = []
    for backend in BACKENDS:
        found = {heads: run(heads, backend) for heads in specs}
        for heads in others:
            move = np.abs(found[heads][0] - found[first][0])
            bound = float((errors[heads][0] + errors[first][0]).max())
            rows.append(
                case(
                    "A3.3",
                    f"H={heads} against H={first}, the same parameters",
                    "floating",
                    "largest change of the last token's logits",
                    float(move.max()),
                    ">=",
                    100 * bound,
                    bound_source="100 × running error bound of both sides, first order (Linnainmaa 1976)",
                    backend=backend.name,
                    headline=backend is SEQUENTIAL and heads == others[-1],
                )
            )
        for heads, (_, patterns) in found.items():
            rows.append(
                case(
                    "A3.3",
                    f"H={heads}",
                    "floating",
                    "different attention patterns of the last token",
                    len({pattern.tobytes() for pattern in patterns}),
                    "==",
                    heads,
                    bound_source="one pattern a head",
                    printed=str(heads) if heads == 1 else None,
                    backend=backend.name,
                )
            )
            if heads > 1:
                # Half the sum of absolute differences: the weight that would have to move (total variation).
                apart = min(0.5 * float(np.abs(a - b).sum()) for a, b in combinations(patterns, 2))
                rows.append(
                    case(
                        "A3.3",
                        f"H={heads}",
                        "floating",
                        "smallest distance between two heads' patterns (total variation)",
                        apart,
                        ">=",
                        100 * float(errors[heads][1].sum(axis=-1).max()),
                        bound_source="100 × running error bound of both patterns, first order (Linnainmaa 1976)",
                        backend=backend.name,
                    )
                )
            again = run(heads, backend)
            rows.append(
                case(
                    "A3.3",
                    f"H={heads} against itself",
                    "control",
                    "logits and attention weights whose bits differ",
                    sum(differing(a, b) for a, b in zip(again, found[heads], strict=True)),
                    "bitwise",
                    0,
                    bound_source="the same function twice: the change is gone",
                    backend=backend.name,
                )
            )
    return rows


def _exact_functions(specs: dict[int, ModelSpec], ids: Any, seed: int) -> list[dict[str, Any]]:
    """One attention in rationals, on rounded weights: another H is another function there as well."""
    first, *others = specs
    drawn = decoder.initial(specs[first], seed)
    rational = {name: RATIONAL.array(np.round(GRID * value) / GRID) for name, value in drawn.items()}
    weights = {name.removeprefix("layers.0.attention."): value for name, value in rational.items()}
    x = rational["token_embedding"][ids[:EXACT_TOKENS]]
    visible = decoder.visibility(len(x), causal=True)

    def run(heads: int) -> tuple[Any, Any]:
        own = specs[heads].layers[0][1].attention
        joined, patterns = decoder.attention(x, weights, own, visible, lambda y: y, RATIONAL)
        return decoder.linear(joined[-1:], weights, "output", RATIONAL)[0], patterns[:, -1, :]

    alone = run(first)[0]
    rows = []
    for heads in others:
        output, patterns = run(heads)
        rows += [
            case(
                "A3.3",
                f"H={heads} against H={first}, {EXACT_TOKENS} tokens",
                "exact",
                "components of the last token's attention output that differ",
                int(np.count_nonzero(output != alone)),
                ">=",
                1,
                bound_source="rational arithmetic, (1 + (1+s)²)/2 for e^s",
                backend="rational",
            ),
            case(
                "A3.3",
                f"H={heads}, {EXACT_TOKENS} tokens",
                "exact",
                "different attention patterns of the last token",
                len({tuple(pattern) for pattern in patterns}),
                "==",
                heads,
                bound_source="one pattern a head, in rational arithmetic",
                backend="rational",
            ),
        ]
    return rows


def compute(
    architecture: dict[str, Any], heads: list[int], widths: list[int], tokens: int, seed: int, other_seed: int
) -> list[dict[str, Any]]:
    """Rows for A3.1 to A3.3.

    `architecture` without its heads is built once for every number of `heads`; `widths` are the model widths whose
    attention weights are counted for every divisor; `tokens` random ids are read.
    """
    # ASSUME the text's models have as many key/value heads as query heads.
    specs = {
        count: from_architecture(f"H={count}", architecture | {"heads": count, "kv_heads": count}) for count in heads
    }
    generator = np.random.Generator(np.random.PCG64([seed, 1]))
    ids = generator.integers(0, specs[heads[0]].vocabulary, tokens)
    rows = _weights(widths) + _same_vector(specs, seed, other_seed)
    return rows + _exact_functions(specs, ids, seed) + _functions(specs, ids, seed)
