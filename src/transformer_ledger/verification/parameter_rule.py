"""The rule 12·L·d² + V·d gives a decoder's size to within half a per cent at Llama's scale.

Claims A8.1 to A8.4. What the rule misses is split into terms, from counts of executed models: which of them decides, and
which cancel.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from transformer_ledger import routes
from transformer_ledger.evidence import Evidence, Printed, between, exactly, outside
from transformer_ledger.formulas import architecture
from transformer_ledger.formulas.parameters import token_embedding
from transformer_ledger.formulas.training_compute import rule_parameters
from transformer_ledger.ledger.counted import Rows, counts
from transformer_ledger.ledger.parameters import tensors
from transformer_ledger.model import ModelSpec, from_architecture
from transformer_ledger.reference import decoder

TEXT = {
    "layers": 4, "d_model": 64, "heads": 4, "d_ff": 168, "vocabulary": 56, "context": 64,
    "positions": "rope", "norm": "rmsnorm", "feedforward": "gated",
}  # fmt: skip
"""The text's own model, which its figures were printed for."""
LLAMAS_SCALE = 10**9  # ASSUME it begins with the smallest Llama, 3.2 1B  [parameter]
TERMS = {
    "attention": "attention minus 4d² per layer",
    "feedforward": "feed-forward minus 8d² per layer",
    "head": "second embedding (the head)",
}
"""Terms of the miss in words; the others are called what their tensors are."""
MISSED, SHARE = "count minus rule", "(count − rule) / count"
Parts = Mapping[tuple[str, bool], int]  # parameters by (component, is a bias)


def rule(spec: ModelSpec, tables: int = 1) -> int:
    """Parameters by the rule, with so many tables of embeddings in it."""
    return int(rule_parameters(spec.depth, spec.d_model, tables * spec.vocabulary))


def terms(spec: ModelSpec, parts: Parts) -> dict[str, int]:
    """Count minus rule by term, terms that are 0 left out."""
    d, L = spec.d_model, spec.depth
    missed = Counter(embedding=-spec.vocabulary * d, attention=-4 * L * d**2, feedforward=-8 * L * d**2)
    for (component, bias), number in parts.items():
        group = component.split(".")[0].removeprefix("shared_").removeprefix("token_")
        missed["biases" if bias else "norms" if component.endswith("norm") else group] += number
    return {name: number for name, number in missed.items() if number}


def blocks(spec: ModelSpec) -> dict[str, int]:
    """The same by the texts' formulas for whole blocks; empty where a layer is not plain attention and feed-forward."""
    (_, layer), *others = spec.kinds()
    own, feed = layer.attention, layer.feedforward
    if others or own.latent or feed.experts or feed.bias or own.query_bias or spec.norm_bias or feed.kind != "gated":
        return {}
    d, L = spec.d_model, spec.depth
    grouped = architecture.grouped_attention_parameters(d, own.kv_heads, own.head_dim)
    gated = architecture.gated_feedforward_parameters(d, feed.width)
    found = {
        "attention": L * (grouped - architecture.attention_parameters(d)),
        "feedforward": L * (gated - architecture.plain_feedforward_parameters(d, 4 * d)),
        "head": 0 if spec.tied_head else token_embedding(spec.vocabulary, d),
        "norms": (2 * L + 1) * d,
    }
    return {name: number for name, number in found.items() if number}


def breakdown(spec: ModelSpec, left_out: str = "") -> Counter[tuple[str, bool]]:
    """Parameters by (component, is a bias), by the ledger's formulas, without one component's tensors."""
    parts: Counter[tuple[str, bool]] = Counter()
    for tensor in tensors(spec):
        if tensor.component != left_out:
            parts[tensor.component, tensor.bias] += tensor.parameters
    return parts


def executed(rows: Rows, implementation: str = "ours") -> dict[tuple[str, bool], int]:
    """Parameters by (component, is a bias), counted on the executed model."""
    return {
        (component, part == "bias"): value
        for (quantity, _, _, component, part), value in counts(rows, implementation).items()
        if quantity == "parameters" and component != "total"
    }


def supposed(spec: ModelSpec, kv_heads: int | None = None, widths: int = 4) -> ModelSpec:
    """The model as the rule assumes it: as many key/value as query heads, a feed-forward 4d wide, no separate head."""
    layers = [
        dataclasses.replace(
            layer,
            mixer=dataclasses.replace(layer.attention, kv_heads=kv_heads or layer.attention.heads, latent=None),
            feedforward=dataclasses.replace(layer.feedforward, kind="gelu", width=widths * spec.d_model, experts=0),
        )
        for layer in spec.each_layer()
    ]
    return dataclasses.replace(spec, layers=tuple((1, layer) for layer in layers), tied_head=True)


def percent(part: int, whole: int) -> float:
    """100 · part / whole, exact until it is rounded once."""
    return float(Fraction(100 * part, whole))


def _terms(proof: Evidence, spec: ModelSpec, parts: Parts, whole: int, prefix: str = "") -> None:
    """Rows of the miss by term, as numbers (`whole` 1) or as percentages of the count, the largest first."""
    split, expected = terms(spec, parts), blocks(spec)
    for term in sorted(expected and split.keys() | expected.keys(), key=lambda term: -abs(split.get(term, 0))):
        numbers = (found.get(term, 0) for found in (split, expected))
        observed, wanted = numbers if whole == 1 else (percent(number, whole) for number in numbers)
        proof.equal(MISSED if whole == 1 else SHARE, observed, wanted, against=routes.FORMULA, term=TERMS.get(term, term),
                    key=f"{prefix}{term}")  # fmt: skip


def _text_model(proof: Evidence, name: str, spec: ModelSpec, parts: Parts) -> None:
    """A8.1 to A8.3."""
    count, closed = sum(parts.values()), breakdown(spec)
    whole = proof.of("A8.1", unit="parameter", against=routes.LEDGER)
    whole.equal("parameters", count, closed.total(), headline=True, key="count")
    with contextlib.suppress(NotImplementedError):
        shapes = sum(math.prod(shape) for shape in decoder.shapes(spec).values())
        whole.equal("parameters", shapes, closed.total(), by=routes.SHAPES)
    whole.equal("component kinds that differ", len(parts.items() ^ closed.items()), 0, unit="kind")
    for component in sorted({component for component, _ in closed}):
        whole.control("the tensors of one component left out", "count minus breakdown",
                      lambda left_out="": count - breakdown(spec, left_out).total(), {"left_out": component},
                      exactly(0), component=component)  # fmt: skip

    printed_for = {f"models.{name}": from_architecture(name, TEXT).to_json()}
    missed = proof.of("A8.2", unit="parameter", against=routes.LEDGER)
    missed.prints(MISSED, count - rule(spec), Printed("2,112", printed_for), headline=True, key="missed",
                  against=routes.TEXT)  # fmt: skip
    _terms(missed, spec, parts, 1)
    missed.control("the rule with two embedding tables", MISSED,
                   lambda tables=1: count - rule(spec, tables), {"tables": 2}, exactly(closed.total() - rule(spec)))  # fmt: skip

    share = proof.of("A8.3", unit="%", against=routes.TEXT)
    one = Printed("1", printed_for, rounded=True)

    def part_missed(left_out: str = "") -> float:
        held = sum(number for (component, _), number in parts.items() if component != left_out)
        return percent(held - rule(spec), held)

    share.prints(SHARE, part_missed(), one, headline=True, key="share")
    share.control("the count without the output layer's table", SHARE, part_missed, {"left_out": "head"},
                  one.region, outside(one.region.low, one.region.high), key="tied")  # fmt: skip


def _llama(proof: Evidence, name: str, spec: ModelSpec, rows: Rows, limit: Fraction, headline: bool) -> None:
    """A8.4 for one model."""
    parts, closed, key = executed(rows), breakdown(spec), name.replace("-", "_").replace(".", "_")
    count = sum(parts.values())
    here = proof.of(model=name, unit="%", against=routes.LEDGER, scope="corrected")
    here.inside(SHARE, percent(count - rule(spec), count), -limit, limit, against=routes.TEXT,
                source="under half a per cent", scope="stated", leg="exact", headline=headline, key=key)  # fmt: skip
    public = executed(rows, "transformers")
    if public:
        here.equal("parameters", sum(public.values()), count, by=routes.TRANSFORMERS, against=routes.MODULE,
                   unit="parameter")  # fmt: skip
    here.equal("parameters", count, closed.total(), unit="parameter")
    _terms(here, spec, parts, count, f"{key}_")

    def miss(**change: int) -> float:
        other = supposed(spec, **change)
        held = breakdown(other).total()
        return percent(held - rule(other), held)

    built = here.of(by=routes.LEDGER, against=routes.TEXT)
    changes = {
        "a model as the rule assumes, but with one key/value head for all query heads": {"kv_heads": 1},
        "a model as the rule assumes, but with a feed-forward 1.5 times as wide": {"widths": 6},
    }
    for change, one in changes.items():
        built.control(change, SHARE, miss, one, between(-limit, limit), outside(-limit, limit))


def compute(
    settings: Mapping[str, Any],
    models: Mapping[str, Any],
    text_model: str,
    limit_percent: float,
    execution: Mapping[str, Rows],
) -> list[dict[str, Any]]:
    """Rows of the verification: `text_model` is broken down, the larger models stand for the scale of A8.4.

    Raises KeyError where a model was not executed.
    """
    specs = {name: ModelSpec.from_json(data) for name, data in models.items()}
    parts = {name: executed(execution[name]) for name in specs}
    proof = Evidence("A8.4", settings, by=routes.MODULE)
    if text_model in specs:
        _text_model(proof, text_model, specs[text_model], parts[text_model])
    errors = {
        name: abs(percent(count - rule(specs[name]), count))
        for name, own in parts.items()
        if name != text_model and (count := sum(own.values())) >= LLAMAS_SCALE
    }
    for name in errors:
        shown = errors[name] in (min(errors.values()), max(errors.values()))
        _llama(proof, name, specs[name], execution[name], Fraction(str(limit_percent)), shown)
    return proof.rows
