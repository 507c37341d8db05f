"""A8 and A9: what the run does not show, with other models and other settings than the shipped ones."""

import pytest

from transformer_ledger.claims import table
from transformer_ledger.executed import count, run
from transformer_ledger.model import from_architecture
from transformer_ledger.verification import parameter_rule, training_compute


def _llama(layers, d, heads, kv_heads, d_ff, vocabulary, **more):
    shape = {"layers": layers, "d_model": d, "heads": heads, "kv_heads": kv_heads, "d_ff": d_ff}
    kinds = {"positions": "rope", "norm": "rmsnorm", "feedforward": "gated"}
    return {**shape, "vocabulary": vocabulary, "context": 8192, **kinds, **more}


SMALL = _llama(2, 32, 4, 2, 48, 40)
SLIDERS = {"layers": 80, "d_model": 8192, "vocabulary": 128256}
CARD = {
    "model": "llama-3-70b",
    "architecture": from_architecture("llama-3-70b", _llama(80, 8192, 64, 8, 28672, 128256)).to_json(),
    "tokens": 15 * 10**12,
    "published_device_hours": 6_400_000,
}
SETTINGS = {
    "text": {"parameters": 70 * 10**9, "tokens": 15 * 10**12, "devices": 16_000, "flops_per_second_per_device": 4e14},
    "sliders": SLIDERS,
    "runs": {"llama-3-70b": CARD},
    "text_run": "llama-3-70b",
    "device_peak": 989.4e12,
    "models": {},
    "counted": {"batch": 2, "tokens": 16},
    "dense": SMALL,
    "mixture": {**SMALL, "experts": {"count": 6, "per_token": 2, "shared_width": 20}},
}


def _counted(spec):
    return run._rows(spec.name, "ours")("parameters", count.parameters(count.full_depth(spec))[0])


def _verdicts(name, rows):
    return {row["claim"]: row["verdict"] for row in table.compute(verification={name: rows}) if row["value"]}


def _rule(**keys):
    """Verdicts with these architectures; `text` is the one that the text breaks down."""
    specs = {name: from_architecture(name, own) for name, own in keys.items()}
    settings = {"models": {name: spec.to_json() for name, spec in specs.items()}, "text_model": "text"}
    rows = {name: _counted(spec) for name, spec in specs.items()}
    made = parameter_rule.compute(settings, **settings, limit_percent=0.5, execution=rows)
    return _verdicts("parameter_rule", made)


@pytest.mark.parametrize(
    "keys",
    [
        _llama(2, 24, 4, 2, 40, 30, experts={"count": 3, "per_token": 1, "shared_width": 8}),
        {**_llama(2, 24, 4, 4, 40, 30), "positions": "learned", "norm": "layernorm", "feedforward": "gelu"},
        _llama(2, 24, 4, 4, 40, 30, tied_head=True, biases={"query": True, "feedforward": True}),
    ],
)
def test_terms_cover_every_tensor_kind(keys):
    spec = from_architecture("x", keys)
    parts = parameter_rule.executed(_counted(spec))
    assert parts == parameter_rule.breakdown(spec)
    assert sum(parameter_rule.terms(spec, parts).values()) == sum(parts.values()) - parameter_rule.rule(spec)


def test_the_printed_miss_is_of_the_texts_model_alone():
    text = parameter_rule.TEXT
    assert _rule(text=text) == {"A8.1": "confirmed", "A8.2": "confirmed", "A8.3": "confirmed"}
    edited = _rule(text=text | {"kv_heads": 2})
    assert edited == {"A8.1": "confirmed", "A8.2": "not applicable", "A8.3": "not applicable"}


def test_the_rules_error_decides_at_llamas_scale():
    supposed = _llama(32, 4096, 32, 32, 16384, 256) | {"feedforward": "gelu"}
    assert _rule(large=_llama(32, 4096, 32, 32, 11008, 32000)) == {"A8.4": "refuted"}
    assert _rule(large=supposed) == {"A8.4": "confirmed"}
    assert _rule(small=_llama(4, 64, 4, 2, 168, 56)) == {}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {"A9.1": "confirmed", "A9.2": "confirmed", "A9.3": "refuted", "A9.6": "confirmed"}),
        ({"runs": {"llama-3-70b": CARD | {"published_device_hours": 4_224_000}}}, {"A9.3": "confirmed"}),
        ({"runs": {"llama-3-70b": CARD | {"published_device_hours": 1_000_000}}}, {"A9.3": "not settled"}),
        (
            {"text": SETTINGS["text"] | {"devices": 8_000}},
            {"A9.1": "confirmed", "A9.2": "not applicable", "A9.3": "not applicable", "A9.6": "not applicable"},
        ),
        ({"text": SETTINGS["text"] | {"tokens": 10**12}}, {"A9.1": "not applicable", "A9.6": "not applicable"}),
        ({"sliders": SLIDERS | {"layers": 81}}, {"A9.2": "confirmed", "A9.6": "not applicable"}),
    ],
)
def test_figures_speak_of_the_settings_that_they_were_printed_for(changes, expected):
    settings = SETTINGS | changes
    found = _verdicts("training_compute", training_compute.compute(settings, **settings, workloads={}, execution={}))
    assert {claim: found[claim] for claim in expected} == expected
