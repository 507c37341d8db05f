"""A8 and A9: the verdicts with the shipped settings, and that they turn when something is broken on purpose."""

from __future__ import annotations

import copy
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from transformer_ledger.claims import text_a
from transformer_ledger.claims.claim import verdict
from transformer_ledger.executed import count, run
from transformer_ledger.formulas import training_compute as formulas
from transformer_ledger.ledger import parameters
from transformer_ledger.model import ModelSpec, from_architecture
from transformer_ledger.verification import parameter_rule, training_compute

Rows = list[dict[str, Any]]


def _llama(layers: int, d: int, heads: int, kv_heads: int, d_ff: int, vocabulary: int, **more: Any) -> dict[str, Any]:
    return {
        "layers": layers,
        "d_model": d,
        "heads": heads,
        "kv_heads": kv_heads,
        "d_ff": d_ff,
        "vocabulary": vocabulary,
        "context": 8192,
        "positions": "rope",
        "norm": "rmsnorm",
        "feedforward": "gated",
        **more,
    }


SPECS = {
    name: from_architecture(name, keys)
    for name, keys in {
        "section-7": _llama(4, 64, 4, 4, 168, 56),
        "llama-2-7b": _llama(32, 4096, 32, 32, 11008, 32000),
        "llama-3-8b": _llama(32, 4096, 32, 8, 14336, 128256),
        "llama-3-70b": _llama(80, 8192, 64, 8, 28672, 128256),
        "mixtral-8x7b": _llama(32, 4096, 32, 8, 14336, 32000, experts={"count": 8, "per_token": 2}),
    }.items()
}
SMALL = _llama(2, 32, 4, 2, 48, 40)
TEXT = {"parameters": 70 * 10**9, "tokens": 15 * 10**12, "devices": 16_000, "flops_per_second_per_device": 4e14}
SETTINGS: dict[str, Any] = {
    "text": TEXT,
    "sliders": {"layers": 80, "d_model": 8192, "vocabulary": 128256},
    "published_days": (10.5, 11.5),
    "runs": {
        "llama-3-70b": {
            "model": "llama-3-70b",
            "architecture": SPECS["llama-3-70b"].to_json(),
            "tokens": 15 * 10**12,
            "context": 8192,
            "published_device_hours": 6_400_000,
        }
    },
    "text_run": "llama-3-70b",
    "device_peak": 989.4e12,
    "models": {"mixtral-8x7b": SPECS["mixtral-8x7b"].to_json()},
    "counted": {"batch": 2, "tokens": 16},
    "dense": SMALL,
    "mixture": {**SMALL, "experts": {"count": 6, "per_token": 2, "shared_width": 20}},
}


def _verdicts(rows: Rows) -> dict[str, str]:
    claims = {row["claim"] for row in rows}
    return {
        claim.id: verdict(claim, [row for row in rows if row["claim"] == claim.id])
        for claim in text_a.CLAIMS
        if claim.id in claims
    }


def _counted(spec: ModelSpec) -> Rows:
    every, _ = count.parameters(count.full_depth(spec))
    return run._rows(spec.name, "ours")("parameters", every)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def counted() -> dict[str, Rows]:
    return {name: _counted(SPECS[name]) for name in ("section-7", "llama-2-7b", "llama-3-8b")}


@pytest.fixture(scope="module")
def trained() -> dict[str, Rows]:
    loads = {"b2-t64": {"batch": 2, "context": 64}}
    return {"mixtral-8x7b": run.compute(SPECS["mixtral-8x7b"].to_json(), None, loads, {}, [])}


def _rule(counted: dict[str, Rows], **changes: Any) -> Rows:
    specs = {name: changes.get(name.replace("-", "_"), SPECS[name]) for name in counted}
    models = {name: spec.to_json() for name, spec in specs.items()}
    return parameter_rule.compute(models, "section-7", 0.5, counted)


def _value(rows: Rows, claim: str, quantity: str) -> Any:
    """Measured value, exact where it is, of the first case of a claim whose quantity starts so."""
    row = next(row for row in rows if row["claim"] == claim and row["quantity"].startswith(quantity))
    return row["measured"] if row["measured_exact"] is None else Fraction(row["measured_exact"])


RIGHT_RULE = {"A8.1": "confirmed", "A8.2": "confirmed", "A8.3": "confirmed", "A8.4": "refuted"}
RIGHT_COMPUTE = {
    "A9.1": "confirmed",
    "A9.2": "confirmed",
    "A9.3": "refuted",
    "A9.4": "confirmed",
    "A9.5": "confirmed",
    "A9.6": "confirmed",
}


def test_parameter_rule(counted: dict[str, Rows]) -> None:
    rows = _rule(counted)
    assert _verdicts(rows) == RIGHT_RULE
    assert _value(rows, "A8.1", "parameters") == 202_304
    assert _value(rows, "A8.2", "count minus rule") == 576 - 2_048 + 3_584
    assert round(_value(rows, "A8.3", "count minus rule"), 2) == 1.04
    # 2.4 % and 13.2 %, exactly: by terms of opposite sign
    assert round(_value(rows, "A8.4", "count minus rule, llama-2-7b"), 1) == 2.4
    assert round(_value(rows, "A8.4", "count minus rule, llama-3-8b"), 1) == 13.2
    terms = {row["quantity"]: int(row["measured_exact"]) for row in rows if row["case"].startswith("llama-3-8b: ")}
    assert terms == {
        "term: feed-forward besides 8d² a layer": 32 * (3 * 4096 * 14336 - 8 * 4096**2),
        "term: attention besides 4d² a layer": -32 * 2 * 3 * 1024 * 4096,
        "term: second embedding (the head)": 128256 * 4096,
        "term: norms": 65 * 4096,
    }
    assert sum(terms.values()) == 8_030_261_248 - (12 * 32 * 4096**2 + 128256 * 4096)


def test_terms_cover_every_tensor_kind() -> None:
    """Biases, learned positions, experts, latent attention: the terms still add up to count minus rule."""
    shapes: list[dict[str, Any]] = [
        _llama(2, 24, 4, 2, 40, 30, experts={"count": 3, "per_token": 1, "shared_width": 8}),
        {**_llama(2, 24, 4, 4, 40, 30), "positions": "learned", "norm": "layernorm", "feedforward": "gelu"},
        {**_llama(2, 24, 4, 4, 40, 30), "tied_head": True, "biases": {"query": True, "feedforward": True}},
    ]
    for keys in shapes:
        spec = from_architecture("x", keys)
        every, _ = count.parameters(count.full_depth(spec))
        real = parameter_rule.executed(run._rows("x", "ours")("parameters", every))
        assert sum(parameter_rule.terms(spec, real).values()) == sum(every.values()) - parameter_rule.rule(spec)
        assert parameter_rule.terms(spec, real) == parameter_rule.terms(spec, parameter_rule.breakdown(spec))


def test_a_lost_tensor_is_seen(counted: dict[str, Rows], monkeypatch: pytest.MonkeyPatch) -> None:
    right = parameters.tensors
    monkeypatch.setattr(parameter_rule, "tensors", lambda spec: [t for t in right(spec) if t.component != "norm"])
    found = _verdicts(_rule(counted))
    assert found["A8.1"] == "refuted"
    assert found["A8.2"] == "refuted"
    assert found["A8.4"] == "not settled"  # our own breakdown does not stand


def test_a_miscounted_tensor_is_seen(counted: dict[str, Rows]) -> None:
    wrong = copy.deepcopy(counted)
    wrong["section-7"][0]["value"] += 1
    wrong["llama-3-8b"][0]["value"] += 1
    found = _verdicts(_rule(wrong))
    assert found["A8.1"] == "refuted"
    assert found["A8.2"] == "refuted"
    assert found["A8.4"] == "not settled"


def test_another_rule_is_seen(counted: dict[str, Rows], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameter_rule, "rule_parameters", lambda L, d, V: 12 * L * d**2 + 2 * V * d)
    assert _verdicts(_rule(counted))["A8.2"] == "refuted"


def test_an_edited_model_is_not_held_against_the_printed_figures(counted: dict[str, Rows]) -> None:
    spec = from_architecture("section-7", _llama(4, 64, 4, 2, 168, 56))
    rows = _rule(counted | {"section-7": _counted(spec)}, section_7=spec)
    assert _verdicts(rows) == RIGHT_RULE | {"A8.2": "not applicable", "A8.3": "not applicable"}


def test_scale_alone_can_confirm(counted: dict[str, Rows]) -> None:
    """A8.4 turns with the models: one that is built as the rule supposes stays under the limit."""
    spec = from_architecture("llama-2-7b", _llama(32, 4096, 32, 32, 16384, 256) | {"feedforward": "gelu"})
    only = {"section-7": counted["section-7"], "llama-2-7b": _counted(spec)}
    assert _verdicts(_rule(only, llama_2_7b=spec))["A8.4"] == "confirmed"


def test_a_small_model_says_nothing_about_llamas_scale(counted: dict[str, Rows]) -> None:
    spec = from_architecture("llama-2-7b", _llama(4, 64, 4, 2, 168, 56))
    only = {"section-7": counted["section-7"], "llama-2-7b": _counted(spec)}
    assert _verdicts(_rule(only, llama_2_7b=spec))["A8.4"] == "not applicable"


def test_training_compute(trained: dict[str, Rows]) -> None:
    rows = training_compute.compute(**SETTINGS, execution=trained)
    assert _verdicts(rows) == RIGHT_COMPUTE
    assert _value(rows, "A9.1", "6·N·D") == 63 * 10**23
    assert _value(rows, "A9.2", "time") == 984_375
    assert round(_value(rows, "A9.3", "published time"), 1) == 16.7
    assert round(_value(rows, "A9.3", "implied rate of one device, llama-3-70b") / 1e12) == 276
    rates = [row["measured"] for row in rows if row["quantity"].endswith("assumed)")]
    assert [round(rate / 1e12) for rate in rates] == [273]
    assert _value(rows, "A9.6", "parameters by the rule") == 65_475_182_592


def test_the_six_is_counted_map_by_map(trained: dict[str, Rows]) -> None:
    rows = [row for row in training_compute.compute(**SETTINGS, execution=trained) if row["claim"] == "A9.4"]
    maps = [row for row in rows if row["case"].startswith(("layers.", "head"))]
    assert len(maps) == 3 * (2 * 7 + 1)
    assert {row["measured_exact"] for row in maps} == {"2"}
    embedding = next(row for row in rows if row["case"] == "embedding and norms")
    assert embedding["measured_exact"] == "0"


Break = Callable[[pytest.MonkeyPatch], dict[str, Any]]


def _settings(**changes: Any) -> Break:
    return lambda monkeypatch: changes


def _patch(target: Any, name: str, broken: Callable[[Any], Any]) -> Break:
    def apply(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        monkeypatch.setattr(target, name, broken(getattr(target, name)))
        return {}

    return apply


def _run_hours(hours: int) -> dict[str, Any]:
    return {"llama-3-70b": SETTINGS["runs"]["llama-3-70b"] | {"published_device_hours": hours}}


BREAKS: dict[str, tuple[Break, dict[str, str]]] = {
    "five operations, not six": (
        _patch(formulas, "rule_flops", lambda right: lambda N, D: 5 * N * D),
        {"A9.1": "refuted", "A9.2": "refuted", "A9.5": "refuted", "A9.6": "refuted"},
    ),
    "a day of 86,000 s": (
        _patch(training_compute, "DAY", lambda right: 80_000),
        {"A9.2": "refuted", "A9.6": "refuted"},
    ),
    "device-hours that last 11 days": (_settings(runs=_run_hours(4_224_000)), {"A9.3": "confirmed"}),
    "device-hours that no device could do": (_settings(runs=_run_hours(1_000_000)), {"A9.3": "not settled"}),
    "the text's run edited": (
        _settings(text=TEXT | {"devices": 8_000}),
        {"A9.1": "not applicable", "A9.2": "not applicable", "A9.3": "not applicable", "A9.6": "not applicable"},
    ),
    "the sliders edited": (_settings(sliders=SETTINGS["sliders"] | {"layers": 81}), {"A9.6": "not applicable"}),
    "every expert counted as used": (
        _patch(training_compute, "_used", lambda right: lambda spec, path, module: int(module.weight.numel())),
        {"A9.5": "refuted"},
    ),
    "weights that cannot be held fixed": (
        _patch(
            training_compute,
            "_run",
            lambda right: lambda model, fixed, batch, tokens: right(model, lambda name: False, batch, tokens),
        ),
        {"A9.4": "not settled"},
    ),
    "attention's products forgotten": (
        _patch(training_compute, "attention_scores_and_values", lambda right: lambda B, T, d: 0),
        {"A9.4": "not settled"},
    ),
}


@pytest.mark.parametrize("name", sorted(BREAKS))
def test_a_break_turns_the_verdict(name: str, trained: dict[str, Rows], monkeypatch: pytest.MonkeyPatch) -> None:
    apply, expected = BREAKS[name]
    changes = apply(monkeypatch)
    found = _verdicts(training_compute.compute(**SETTINGS | changes, execution=trained))
    assert {claim: found[claim] for claim in expected} == expected


def test_operations_miscounted_at_full_size_are_seen(trained: dict[str, Rows]) -> None:
    wrong = copy.deepcopy(trained)
    row = next(
        row
        for row in wrong["mixtral-8x7b"]
        if row["phase"] == "train" and row["component"] == "router" and row["quantity"] == "flops"
    )
    row["value"] += 1
    assert _verdicts(training_compute.compute(**SETTINGS, execution=wrong))["A9.5"] == "refuted"
