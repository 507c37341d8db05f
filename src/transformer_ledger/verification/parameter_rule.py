"""The rule 12·L·d² + V·d gives a decoder's size to within half a per cent at Llama's scale.

The count comes from the executed model's tensors, the breakdown from the ledger's formulas, and what the rule misses is
split into terms that add up to the difference exactly: which of them decides, and which cancel.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from transformer_ledger.cases import case
from transformer_ledger.formulas import architecture
from transformer_ledger.formulas.parameters import token_embedding
from transformer_ledger.formulas.training_compute import rule_parameters
from transformer_ledger.ledger.counted import Rows, counts
from transformer_ledger.ledger.parameters import tensors
from transformer_ledger.model import ModelSpec, from_architecture

# The text's own model; the figures it prints are not applicable to any other.
TEXT = {
    "layers": 4,
    "d_model": 64,
    "heads": 4,
    "d_ff": 168,
    "vocabulary": 56,
    "context": 64,
    "positions": "rope",
    "norm": "rmsnorm",
    "feedforward": "gated",
}
MISSED = 2_112  # parameters that the rule misses, as the text prints them
LLAMAS_SCALE = 10**9  # ASSUME it begins with the smallest Llama, 3.2 1B  [parameter]
ROUNDS_TO_1 = Fraction(1, 2), Fraction(3, 2)  # per cent
UNIT = "parameter"
COUNTED = "the executed model's tensors"
LEDGER = "the ledger's formulas"


def rule(spec: ModelSpec) -> int:
    """Parameters by the rule."""
    return int(rule_parameters(spec.depth, spec.d_model, spec.vocabulary))


def _term(component: str, bias: bool) -> str:
    """The term of the rule's miss that a tensor kind belongs to."""
    if bias:
        return "biases"
    group = component.split(".")[0].removeprefix("shared_")
    return {
        "token_embedding": "embedding",
        "head": "second embedding (the head)",
        "attention": "norms" if "norm" in component else "attention besides 4d² a layer",
        "feedforward": "feed-forward besides 8d² a layer",
        "position_embedding": "learned positions",
    }.get(group, "norms" if "norm" in component else group.replace("_", " "))


def terms(spec: ModelSpec, parts: Mapping[tuple[str, bool], int]) -> dict[str, int]:
    """Count minus rule by term, from the numbers by (component, is a bias): they add up to the difference exactly."""
    d, L, V = spec.d_model, spec.depth, spec.vocabulary
    missed: dict[str, int] = {}
    for (component, bias), number in parts.items():
        name = _term(component, bias)
        missed[name] = missed.get(name, 0) + number
    expected = {
        "embedding": token_embedding(V, d),
        "attention besides 4d² a layer": L * architecture.attention_parameters(d),
        "feed-forward besides 8d² a layer": L * architecture.plain_feedforward_parameters(d, 4 * d),
    }
    for name, number in expected.items():
        missed[name] = missed.get(name, 0) - number
    return {name: number for name, number in missed.items() if number}


def breakdown(spec: ModelSpec) -> dict[tuple[str, bool], int]:
    """Parameters by (component, is a bias), by the ledger's formulas."""
    parts: dict[tuple[str, bool], int] = {}
    for tensor in tensors(spec):
        key = tensor.component, tensor.bias
        parts[key] = parts.get(key, 0) + tensor.parameters
    return parts


def executed(rows: Rows) -> dict[tuple[str, bool], int]:
    """Parameters by (component, is a bias), counted on the executed model."""
    return {
        (component, part == "bias"): value
        for (quantity, _, _, component, part), value in counts(rows).items()
        if quantity == "parameters" and component != "total"
    }


def _percent(part: int, whole: int) -> float:
    return float(Fraction(100 * part, whole))


def _text_model(spec: ModelSpec, rows: Rows) -> list[dict[str, Any]]:
    """A8.1 to A8.3."""
    real, ours = executed(rows), breakdown(spec)
    count, total = sum(real.values()), sum(ours.values())
    same = ours == breakdown(from_architecture(spec.name, TEXT)) and spec.depth == TEXT["layers"]
    missed = count - rule(spec)
    split = terms(spec, ours)
    without = [abs(count - total + tensor.parameters // tensor.copies) for tensor in tensors(spec)]
    largest_first = sorted(split.items(), key=lambda item: -abs(item[1]))
    shown = ", ".join(f"{term} {number:+,}" for term, number in largest_first)
    return [
        case("A8.1", spec.name, "exact", "count minus breakdown", count - total, "==", 0,
             bound_source=LEDGER, unit=UNIT, printed="0", headline=True),
        case("A8.1", spec.name, "exact", "parameters", count, "==", total,
             bound_source=LEDGER, unit=UNIT, headline=True),
        case("A8.1", f"{spec.name}, each tensor kind", "exact", "kinds that differ from their formula",
             len(real.items() ^ ours.items()), "==", 0, bound_source=LEDGER),
        case("A8.1", f"one tensor left out of the breakdown, the least of {len(without)} kinds", "control",
             "count minus breakdown", min(without), ">=", 1, unit=UNIT),
        case("A8.2", spec.name, "exact", "count minus rule", missed, "==", MISSED,
             bound_source="the text", unit=UNIT, printed=f"{MISSED:,}", applicable=same, headline=True),
        case("A8.2", f"{spec.name}: {shown}", "exact", "sum of the terms", sum(split.values()), "==", missed,
             bound_source=COUNTED, unit=UNIT),
        case("A8.3", spec.name, "exact", "count minus rule", _percent(missed, count), "in", ROUNDS_TO_1,
             bound_source="the text", unit="%", printed="1 %", applicable=same, headline=True),
    ]  # fmt: skip


def _llama(spec: ModelSpec, rows: Rows, limit: Fraction, headline: bool) -> list[dict[str, Any]]:
    """A8.4 for one model."""
    real, ours = executed(rows), breakdown(spec)
    count, name = sum(real.values()), spec.name
    missed = count - rule(spec)
    counted, closed = terms(spec, real), terms(spec, ours)
    made = [
        case("A8.4", name, "exact", f"count minus rule, {name}", _percent(missed, count), "in", (-limit, limit),
             bound_source="the text", unit="%", printed="< 0.5 %", applicable=count >= LLAMAS_SCALE, headline=headline),
        case("A8.4", name, "exact", "count minus rule", missed, "==", sum(ours.values()) - rule(spec),
             scope="corrected", bound_source=LEDGER, unit=UNIT),
        case("A8.4", name, "exact", "sum of the terms", sum(closed.values()), "==", missed,
             scope="corrected", bound_source=COUNTED, unit=UNIT),
    ]  # fmt: skip
    for term in sorted(counted.keys() | closed.keys(), key=lambda term: -abs(counted.get(term, 0))):
        share = _percent(counted.get(term, 0), count)
        made.append(
            case("A8.4", f"{name}: {term}, {share:+.2f} % of the count", "exact", f"term: {term}",
                 counted.get(term, 0), "==", closed.get(term, 0), scope="corrected", bound_source=LEDGER, unit=UNIT)
        )  # fmt: skip
    return made


def compute(
    models: Mapping[str, Any], text_model: str, limit_percent: float, execution: Mapping[str, Rows]
) -> list[dict[str, Any]]:
    """Rows of the verification: `text_model` is broken down, the other models stand for the scale of A8.4.

    Raises KeyError where a model was not executed.
    """
    specs = {name: ModelSpec.from_json(data) for name, data in models.items()}
    large = {name: spec for name, spec in specs.items() if name != text_model}
    errors = {
        name: abs(_percent(total - rule(spec), total))
        for name, spec in large.items()
        for total in [sum(executed(execution[name]).values())]
    }
    shown = {pick(errors, key=lambda name: errors[name]) for pick in (min, max)} if errors else set()
    rows = _text_model(specs[text_model], execution[text_model]) if text_model in specs else []
    for name, spec in large.items():
        rows += _llama(spec, execution[name], Fraction(str(limit_percent)), name in shown)
    return rows
