"""Recipes that train adapters: what they keep is what our decoder with adapters keeps, and what LoRA's definition says."""

import pytest

from transformer_ledger import config
from transformer_ledger.families import ADAMW, FAMILIES
from transformer_ledger.ledger import training_state
from transformer_ledger.ledger.parameters import tensors

MAPS = ["attention.query", "attention.value", "attention.output", "feedforward.up", "feedforward.down"]
LORA = {
    "all maps": ADAMW | {"weights": "bf16", "lora": {"rank": 3, "targets": MAPS, "base": None}},
    "packed": ADAMW | {"weights": "bf16", "lora": {"rank": 5, "targets": MAPS[:2], "base": "nf4"}},
    "none in GPT-2": ADAMW | {"weights": "bf16", "lora": {"rank": 2, "targets": ["feedforward.gate"], "base": None}},
    "divided": ADAMW
    | {"master_weights": "fp32", "devices": 3, "zero_stage": 3}
    | {"lora": {"rank": 2, "targets": MAPS[:1], "base": None}},
}
LORA |= {f"packed, ZeRO {stage}": LORA["packed"] | {"devices": 3, "zero_stage": stage} for stage in (1, 2, 3)}


@pytest.mark.parametrize("name", ["llama", "gpt2", "mixtral", "deepseek_v3"])
def test_what_is_kept_is_what_a_decoder_with_adapters_keeps(name):
    pytest.importorskip("torch")
    from transformer_ledger.executed import count

    spec = FAMILIES[name].read(name)
    for recipe in LORA.values():
        held, shares = count.state_bytes(count.Kinds(spec), recipe)
        rows = training_state.compute({name: spec.to_json()}, {"r": recipe})
        kept = [row for row in rows if row["bytes"]]
        assert {(row["item"], row["dtype"]): row["bytes"] for row in kept} == held
        assert {(row["item"], row["dtype"]): row["bytes_per_device"] for row in kept} == shares


def test_an_adapter_has_r_times_both_sides():
    spec = FAMILIES["llama"].read("llama")
    a, f = spec.layers[0][1].attention, spec.layers[0][1].feedforward.width
    d, q = spec.d_model, a.heads * a.head_dim
    lora = {"rank": 4, "targets": ["attention.query", "feedforward.down"]}
    found = sum(t.copies * t.shape[0] * t.shape[1] for t in training_state.adapters(tensors(spec), lora))
    assert found == spec.depth * 4 * ((d + q) + (f + d))


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_what_devices_divide_of_adapters_and_of_a_packed_base(stage):
    spec, recipe = FAMILIES["llama"].read("m").to_json(), LORA[f"packed, ZeRO {stage}"]
    rows = training_state.compute({"m": spec}, {"r": recipe})
    divided = {row["item"] for row in rows if row["bytes_per_device"] < row["bytes"]}
    from_stage = {"first_moment": 1, "second_moment": 1, "gradients": 2, "weights": 3, "adapters": 3}
    assert divided == {item for item, first in from_stage.items() if first <= stage}


def test_frozen_weights_have_neither_gradient_nor_moments():
    rows = training_state.compute({"m": FAMILIES["llama"].read("m").to_json()}, {"r": LORA["packed"]})
    size = {row["item"]: row["bytes"] for row in rows}
    assert size["gradients"] == 2 * size["adapters"]  # fp32 beside bf16
    assert size["weights"] > 0
    assert size["quantised_weights"] > 0


def test_a_layout_of_adapters_is_refused():
    with pytest.raises(
        config.ConfigError, match=r"layouts\.l\.recipe: a trains adapters; allowed: recipes without lora"
    ):
        config.load(
            {
                "models": {"m": {"hf_config": "resources/models/gpt2.json"}},
                "workloads": {"w": {"batch": 1, "context": 8}},
                "recipes": {
                    "a": {**dict.fromkeys(("weights", "gradients"), "bf16"), "optimizer": "sgd", "lora": {"rank": 1}}
                },
                "layouts": {"l": {"models": ["m"], "recipe": "a", "workload": "w"}},
            },
            [],
        )
