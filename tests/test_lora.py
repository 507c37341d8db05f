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
    "divided": ADAMW
    | {"master_weights": "fp32", "devices": 3, "zero_stage": 3}
    | {"lora": {"rank": 2, "targets": MAPS[:1], "base": None}},
}


@pytest.mark.parametrize("name", ["llama", "gpt2", "mixtral", "deepseek_v3"])
def test_what_is_kept_is_what_a_decoder_with_adapters_keeps(name):
    pytest.importorskip("torch")
    from transformer_ledger.executed import count

    spec = FAMILIES[name].read(name)
    for recipe in LORA.values():
        held, shares = count.state_bytes(count.Kinds(spec), recipe)
        rows = training_state.compute({name: spec.to_json()}, {"r": recipe})
        assert {(row["item"], row["dtype"]): row["bytes"] for row in rows} == held
        assert {(row["item"], row["dtype"]): row["bytes_per_device"] for row in rows} == shares


def test_an_adapter_has_r_times_both_sides():
    spec = FAMILIES["llama"].read("llama")
    a, f = spec.layers[0][1].attention, spec.layers[0][1].feedforward.width
    d, q = spec.d_model, a.heads * a.head_dim
    lora = {"rank": 4, "targets": ["attention.query", "feedforward.down"]}
    found = sum(t.copies * t.shape[0] * t.shape[1] for t in training_state.adapters(tensors(spec), lora))
    assert found == spec.depth * 4 * ((d + q) + (f + d))


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
