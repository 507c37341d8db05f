"""Concatenated heads times W_O are the sum over heads of head h times its own rows of W_O.

Claims A2.1 to A2.3.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transformer_ledger import bounds
from transformer_ledger.cases import case, differing
from transformer_ledger.model import Attention
from transformer_ledger.reference import decoder
from transformer_ledger.reference.arithmetic import BACKENDS, BLAS, RATIONAL, RUNNING, SEQUENTIAL

PRINTED = {"d_model": 24}
PRINTED_DIFFERENCE = "2.22e-16"
U = bounds.UNIT_ROUNDOFF["fp64"]
DOT = "2γ_d·Σ|x||W|, any order of summation on both sides (Higham 2002, (3.5))"


def slices(heads: int, d_model: int) -> list[Any]:
    """Components of the concatenation that belong to each head: contiguous runs of d_h."""
    return list(np.arange(d_model).reshape(heads, -1))


def contributions(joined: Any, output: Any, own: list[Any], run: Any) -> list[Any]:
    """head_h·W_O^(h) for every head, (tokens, d) each."""
    return [run.matmul(joined[..., part], output[part]) for part in own]


def _total(parts: list[Any]) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _shares(joined: Any, output: Any, heads: int, d_model: int) -> list[dict[str, Any]]:
    """What each head adds to the last token's output (its length and direction), and that the shares make up the whole.

    A head's share is its contribution's component along the output, as a part of the output's length: Σ_h share = 1.
    """
    own = slices(heads, d_model)

    def shares(blocks: list[Any], run: Any) -> tuple[list[Any], list[Any], Any]:
        x, weights = run.array(joined), run.array(output)
        whole = run.matmul(x, weights)
        square = run.total(whole * whole)
        parts = [run.matmul(x[..., a], weights[b]) for a, b in zip(own, blocks, strict=True)]
        return parts, [run.total(part * whole) / square for part in parts], whole

    parts, split, whole = shares(own, SEQUENTIAL)
    distance, bound = bounds.nearest(_total(split) - 1, _total(shares(own, RUNNING)[1]).error)
    wrong = _total(shares(own[1:] + own[:1], SEQUENTIAL)[1]) - 1
    rows = []
    for h, part in enumerate(parts):
        length, reach = np.linalg.norm(part[-1]), np.linalg.norm(joined[-1, own[h]]) * np.linalg.norm(output[own[h]])
        slack = 1 + 4 * bounds.gamma(d_model, U)  # two norms and a dot product, with the divisions
        named: dict[str, Any] = {"case": f"H={heads}, head {h}", "leg": "floating", "backend": "sequential"}
        rows += [
            case(
                "A2.3",
                quantity="length of the head's contribution to the last token",
                measured=length,
                relation="in",
                expected=(0.0, reach * slack),
                bound_source="0 to ‖head‖₂·‖its rows of W_O‖_F (Cauchy–Schwarz)",
                **named,
            ),
            case(
                "A2.3",
                quantity="cosine between the head's contribution and the output",
                measured=part[-1] @ whole[-1] / (length * np.linalg.norm(whole[-1])),
                relation="in",
                expected=(-slack, slack),
                bound_source="−1 to 1 (Cauchy–Schwarz), up to rounding",
                **named,
            ),
        ]
    rows.append(
        case(
            "A2.3",
            f"H={heads}, the token nearest to its bound",
            "floating",
            "distance of the heads' shares' sum from 1",
            distance,
            "<=",
            bound,
            bound_source="running error bound, first order (Linnainmaa 1976)",
            backend="sequential",
            headline=True,
        )
    )
    rows.append(
        case(
            "A2.3",
            f"H={heads}, every head through the next head's rows",
            "control",
            "smallest distance of the shares' sum from 1, over the tokens",
            np.abs(wrong).min(),
            ">=",
            100 * bound,
            bound_source="100 × the bound",
            backend="sequential",
        )
    )
    return rows


def compute(d_model: int, heads: list[int], shown_heads: int, tokens: int, seed: int) -> list[dict[str, Any]]:
    """Rows for A2.1 to A2.3, for every number of heads in `heads`.

    The concatenation is the output of causal attention with drawn weights on `tokens` normal vectors of width d_model.
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    x = generator.standard_normal((tokens, d_model))
    names = ("query", "key", "value", "output")
    weights = {name: d_model**-0.5 * generator.standard_normal((d_model, d_model)) for name in names}
    output = weights["output"]
    as_printed = {"d_model": d_model} == PRINTED
    rows = []
    worst: dict[str, tuple[float, float]] = {}  # largest difference over all H, and its bound, by backend
    for count in heads:
        own = slices(count, d_model)
        visible = decoder.visibility(tokens, causal=True)
        joined, _ = decoder.attention(x, weights, Attention(count, count, d_model // count), visible, lambda y: y, BLAS)
        exact_joined, exact_output = RATIONAL.array(joined), RATIONAL.array(output)
        exact = RATIONAL.matmul(exact_joined, exact_output) - _total(
            contributions(exact_joined, exact_output, own, RATIONAL)
        )
        rows += [
            case(
                claim,
                f"H={count}",
                "exact",
                quantity,
                int(np.count_nonzero(exact)),
                "==",
                0,
                bound_source="rational arithmetic on the stored numbers",
                backend="rational",
            )
            for claim, quantity in (
                ("A2.1", "components of the concatenation's product that are not the heads' sum"),
                ("A2.2", "components of the one contribution that are not the output's"),
            )
            if claim == "A2.1" or count == 1
        ]
        bound = 2 * bounds.matmul_bound(joined, output, U)
        for run in BACKENDS:
            whole = run.matmul(joined, output)
            off = np.abs(whole - _total(contributions(joined, output, own, run)))
            if off.max() >= worst.get(run.name, (-1.0, 0.0))[0]:
                entry = np.unravel_index(int(np.argmax(off)), off.shape)
                worst[run.name] = (float(off[entry]), float(bound[entry]))
            difference, own_bound = bounds.nearest(off, bound)
            rows.append(
                case(
                    "A2.1",
                    f"H={count}",
                    "floating",
                    "difference of the component nearest to its bound",
                    difference,
                    "<=",
                    own_bound,
                    bound_source=DOT,
                    backend=run.name,
                )
            )
            if count == 1:
                parts = contributions(joined, output, own, run)
                rows += [
                    case(
                        "A2.2",
                        "H=1",
                        "floating",
                        "rows of the table of contributions",
                        len(parts),
                        "==",
                        1,
                        bound_source="one row a head",
                        printed="1",
                        backend=run.name,
                        headline=run is BLAS,
                    ),
                    case(
                        "A2.2",
                        "H=1",
                        "floating",
                        "components whose bits differ from the output's",
                        differing(_total(parts), whole),
                        "bitwise",
                        0,
                        bound_source="the one contribution is the same product",
                        backend=run.name,
                    ),
                ]
            else:
                interleaved = [np.arange(h, d_model, count) for h in range(count)]
                wrong = {
                    "every head through the next head's rows": _total(
                        [run.matmul(joined[..., a], output[b]) for a, b in zip(own, own[1:] + own[:1], strict=True)]
                    )
                }
                if count < d_model:  # heads of one component are interleaved and contiguous at once
                    wrong["heads taken as interleaved components"] = _total(
                        [run.matmul(joined[..., a], output[b]) for a, b in zip(interleaved, own, strict=True)]
                    )
                rows += [
                    case(
                        "A2.1",
                        f"H={count}, {name}",
                        "control",
                        "worst component's difference",
                        float(np.abs(whole - value).max()),
                        ">=",
                        100 * float(bound.max()),
                        bound_source="100 × the largest bound",
                        backend=run.name,
                    )
                    for name, value in wrong.items()
                ]
        if count == shown_heads:
            rows += _shares(joined, output, count, d_model)
    rows += [
        case(
            "A2.1",
            "all H together",
            "floating",
            "worst component's difference",
            difference,
            "<=",
            bound,
            bound_source=DOT,
            printed=PRINTED_DIFFERENCE,
            backend=name,
            headline=name == SEQUENTIAL.name,
            applicable=as_printed,
        )
        for name, (difference, bound) in worst.items()
    ]
    rows.append(
        case(
            "A2.1",
            "the text's figure beside our bound",
            "floating",
            "worst component's difference",
            float(PRINTED_DIFFERENCE),
            "<=",
            worst[SEQUENTIAL.name][1],
            bound_source=DOT,
            printed=PRINTED_DIFFERENCE,
            applicable=as_printed,
        )
    )
    return rows
