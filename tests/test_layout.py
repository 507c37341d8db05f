"""What the fullest of several devices holds, against tensors that torch really cuts (DTensor, a process group without
processes) and against caches of their heads; degrees that do not fit are refused."""

import dataclasses
import json
from pathlib import Path

import pytest
import yaml

from transformer_ledger import families, huggingface, size
from transformer_ledger.families import ADAMW, FAMILIES
from transformer_ledger.ledger import kv_cache, layout
from transformer_ledger.ledger import parameters as ledger
from transformer_ledger.ledger.layout import Layout
from transformer_ledger.model import ModelError

ROOT = Path(__file__).parents[1]
NEWER = ROOT / "resources/models/newer"


def read(name):
    return huggingface.read(name, json.loads((NEWER / f"{name}.json").read_text()))[0]


TRAINED = {"sequence_parallel": True, "zero_stage": 1}
SPREAD = [
    ("llama", {"tensor": 2, "checkpointing": "selective", "attention": "eager", **TRAINED}),
    ("llama", {"tensor": 4, "context": 2, "data": 3, "zero_stage": 2}),  # two key/value heads
    ("llama", {"tensor": 2, "checkpointing": "full", "pipeline": 2, "microbatches": 4, **TRAINED}),
    ("gpt2", {"tensor": 4, "pipeline": 2, "microbatches": 1, "attention": "eager", **TRAINED}),
    ("gemma2", {"tensor": 2, "checkpointing": "selective"}),
    ("gemma2", {"pipeline": 2, "attention": "eager"}),  # one mask a stage: the first has the window's
    ("mixtral", {"tensor": 2}),
    ("mixtral", {"data": 4, "expert": 2, "zero_stage": 3}),
    ("qwen2_moe", {"tensor": 2, "expert": 4, "data": 2, **TRAINED}),
    ("glm4_moe", {"tensor": 4, "zero_stage": 0}),
    ("deepseek_v3", {"tensor": 4, "expert": 4, "pipeline": 2, "microbatches": 2, **TRAINED}),
    ("deepseek_v3", {"tensor": 2, "expert": 2, "checkpointing": "selective", **TRAINED}),
    ("gpt_oss", {"tensor": 2, "expert": 2, **TRAINED}),
]
SPREAD = [(name, given, 12) for name, given in SPREAD]
SPREAD += [("llama", {"data": 2, "microbatches": 2, "pipeline": 2}, 7)]  # four sequences, and three


def rows(spec, given, recipe=ADAMW, batch=12, context=16):
    """The ledger's rows of one layout, against what torch cut and ran."""
    from transformer_ledger.executed import devices, run

    own = Layout(**given)
    settled = {
        "layout": dataclasses.asdict(own),
        "state": recipe,
        "batch": batch,
        "context": context,
        "cache_dtype": "bf16",
    }
    named = {"recipe": "adamw", "workload": "small", "models": [spec.name]}
    layouts = {"own": {**settled, **named, "trained": not layout.untrained(spec, own, recipe["weights"])}}
    counted = devices.rows(run._rows(spec.name, "ours"), spec, layouts)
    return layout.compute({spec.name: spec.to_json()}, layouts, {spec.name: counted})


@pytest.mark.parametrize(("name", "given", "batch"), SPREAD)
def test_every_item_is_that_of_tensors_that_torch_cuts_and_of_a_module_that_runs(name, given, batch):
    pytest.importorskip("torch")
    spec = FAMILIES[name].read(name)
    found = rows(spec, given, ADAMW | {"weights": "bf16"}, batch)
    assert [row["item"] for row in found if row["difference"] != 0] == []
    items = [row["item"] for row in found]
    assert items.count("all") == 2
    assert "cache" in items
    assert "activations" in items
    assert layout.parameters(spec, Layout()) == ledger.totals(spec)[0]


def korthikanti(s, b, a, h, t, sequence, selective):
    """Bytes of a GPT layer, arXiv:2205.05198, table 2, but for the two kinds of dropout: their masks (2sbh between the maps,
    as²b of the weights) and the dropped weights (2as²b)."""
    between = (10 - 2) * s * b * h
    return between // (t if sequence else 1) + 24 * s * b * h // t + (0 if selective else (5 - 3) * a * s * s * b // t)


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("selective", [False, True])
@pytest.mark.parametrize("t", [1, 8])
def test_a_gpt_layer_is_that_of_the_published_table(t, sequence, selective):
    s, b, a, h = 2048, 1, 96, 12288  # GPT-3
    config = {"model_type": "gpt2", "n_embd": h, "n_head": a, "n_layer": 2, "n_positions": s}
    spec = huggingface.read("gpt-3", config)[0]
    checkpointing = "selective" if selective else "none"
    own = Layout(tensor=t, sequence_parallel=sequence, checkpointing=checkpointing, attention="eager")
    one, two = (
        sum(layout.saved(dataclasses.replace(spec, layers=((depth, spec.layers[0][1]),)), own, b, s, "bf16"))
        for depth in (1, 2)
    )
    statistics = 8 * s * b // (t if sequence else 1)  # mean and deviation of two norms, which the table leaves out
    assert two - one == korthikanti(s, b, a, h, t, sequence, selective) + statistics


def test_stages_hold_all_layers_once_and_the_fullest_counts():
    spec = FAMILIES["olmo3"].read("olmo3")  # four layers, of which one is full
    held = [sum(t.copies for t in tensors) for tensors, _ in layout.stages(spec, Layout(pipeline=3))]
    assert [own.depth for _, own in layout.stages(spec, Layout(pipeline=3))] == [2, 1, 1]
    assert sum(held) == ledger.tensor_count(spec)
    tied = huggingface.read("t", dict(FAMILIES["qwen2"].config))[0]
    first, last = (sum(t.parameters for t in tensors) for tensors, _ in layout.stages(tied, Layout(pipeline=2)))
    assert first + last == ledger.totals(tied)[0] + 40 * 32  # the last stage has a copy of the embedding


def test_cache_and_state_on_a_device():
    spec = read("qwen3-32b-fp8")
    found = layout.sizes(spec, Layout(tensor=4), 3, 4096, "bf16", "bf16", {})
    assert found["cache_bytes_per_token"] == 65_536
    assert found["cache_bytes"] == 3 * 4096 * 65_536
    wide = layout.sizes(spec, Layout(tensor=16), 1, 4096, "bf16", "bf16", {})
    assert wide["cache_bytes_per_token"] == 32_768  # eight heads: each is there twice
    every = 2 * 2 * 8 * 128 * 64  # keys and values in bf16 of eight heads of 128, in 64 layers
    long = layout.sizes(spec, Layout(context=4), 1, 4096, "bf16", "bf16", {})
    assert long["cache_bytes_per_token"] == every // 4
    assert long["cache_bytes"] == 4096 * every // 4
    thirds = layout.sizes(spec, Layout(context=3), 1, 4095, "bf16", "bf16", {})
    assert thirds["cache_bytes_per_token"] == every // 3 + 1  # rounded up
    few = layout.sizes(FAMILIES["olmo2"].read("m"), Layout(tensor=2, context=4), 1, 2, "bf16", "bf16", {})
    assert few["cache_bytes"] == 2 * few["cache_bytes_per_token"]  # of two tokens, the fullest device has one
    latent = read("kimi-k2-instruct")
    whole = kv_cache.cache_bytes(latent, 1, 4096, "bf16", "needed")
    assert layout.cache_bytes(latent, Layout(tensor=8), 1, 4096, "bf16") == [whole]
    two = kv_cache.cache_bytes(spec, 2, 4096, "bf16", "needed")
    assert layout.cache_bytes(spec, Layout(data=4), 6, 4096, "bf16") == [two]
    recipes = {"zero": ADAMW | {"zero_stage": 3}, "plain": ADAMW}
    state = layout.sizes(spec, Layout(tensor=4, data=8), 8, 8, "bf16", "bf16", recipes)["training_state_bytes"]
    local = layout.parameters(spec, Layout(tensor=4))
    counters = 4 * ledger.tensor_count(spec)
    assert state == {"zero": 4 * (4 * -(-local // 8)) + counters, "plain": 16 * local + counters}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("tensor=3", "tensor 3 does not divide the attention heads 64"),
        ("tensor=12", "tensor 12 does not divide the attention heads 64"),
        ("pipeline=65", "pipeline 65 is more than the 64 layers"),
        ("data=2,expert=2", "expert 2: the model has no experts; allowed: 1"),
        ("context=2,attention=eager", "context 2 reads attention block by block; allowed: attention fused"),
        ("context=3", "context 3 does not divide the 4096 positions that it cuts"),
        ("zero_stage=4", "is no layout"),
        ("tensor=0", "is no layout; wanted is data=N,tensor=N,pipeline=N,expert=N,context=N"),
        ("tensor=2,tensor=2", "is no layout"),
        ("gpu=2", "is no layout"),
    ],
)
def test_degrees_that_do_not_fit(capsys, given, message):
    code = 0
    try:
        code = size.main([str(NEWER / "qwen3-32b-fp8.json"), "--layout", given])
    except SystemExit as ended:
        code = ended.code
    assert code
    assert message in capsys.readouterr().err


def test_experts_are_spread_where_a_layer_has_some():
    spec = FAMILIES["deepseek_v3"].read("deepseek_v3")  # its first layer is dense
    assert not all(layer.feedforward.experts for _, layer in spec.kinds())
    assert layout.parameters(spec, Layout(data=2, expert=2)) < layout.parameters(spec, Layout())
    with pytest.raises(ModelError, match="expert 2 does not divide the 1 devices of a stage, data × tensor × context"):
        layout.stages(spec, Layout(expert=2))


def test_an_indexer_is_whole_on_every_device():
    pytest.importorskip("torch")
    spec = FAMILIES["deepseek_v32"].read("m")
    found = rows(spec, {"tensor": 2, "expert": 2, "data": 2, "zero_stage": 1})
    assert [row["item"] for row in found if row["difference"] != 0] == []
    assert "cache" in [row["item"] for row in found]
    with pytest.raises(ModelError, match="context 2: no indexer is cut here; allowed: 1"):
        layout.stages(spec, Layout(context=2))


@pytest.mark.parametrize("degree", [2, 4])
def test_a_fixed_state_is_cut_by_its_heads(degree):
    pytest.importorskip("torch")
    spread = {name: FAMILIES[name].read(name) for name in families.layouts()[f"tensor {degree}"]["models"]}
    assert {state.rule for spec in spread.values() for _, state in spec.states()} >= {"ssm"}
    assert any(state.groups < degree for spec in spread.values() for _, state in spec.states()) == (degree == 4)
    for spec in spread.values():
        found = rows(spec, {"tensor": degree, "data": 2, "zero_stage": 2})
        assert [row["item"] for row in found if row["difference"] != 0] == []
        assert "cache" in [row["item"] for row in found]


def test_a_cut_state_of_a_published_model():
    spec = read("nemotron-3-nano-30b")
    one, two = (layout.sizes(spec, Layout(tensor=t), 1, 4096, "bf16", "bf16", {}) for t in (1, 2))
    (count, own), *_ = spec.states()
    state = count * (4 * own.heads * own.key_dim * own.value_dim + 2 * own.channels * own.kernel)
    assert one["cache_bytes"] - 4096 * one["cache_bytes_per_token"] == state
    assert two["cache_bytes"] - 4096 * two["cache_bytes_per_token"] == state // 2
    with pytest.raises(ModelError, match="context 2: no fixed state is cut here; allowed: 1"):
        layout.stages(spec, Layout(context=2))
    with pytest.raises(ModelError, match="tensor 3 does not divide the heads of a fixed state 64"):
        layout.stages(spec, Layout(tensor=3))


def test_the_last_stage_may_be_the_fullest():
    pytest.importorskip("torch")
    from transformer_ledger.executed import devices

    spec, own = FAMILIES["llama"].read("llama"), Layout(pipeline=2, microbatches=2, checkpointing="full")
    with devices.group(1):
        first, last = devices.saved(spec, devices.cut(spec, 1, 1), dataclasses.asdict(own), 12, 16, "bf16")
    assert last > first
    assert layout.sizes(spec, own, 12, 16, "bf16", "bf16", {})["activation_bytes"] == last


def test_activations_of_every_configured_layout_are_given():
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    reasons = {}
    for name, given in config["layouts"].items():
        own = Layout(**{field.name: given[field.name] for field in dataclasses.fields(Layout) if field.name in given})
        for model in given["models"]:
            raw = json.loads((ROOT / config["models"][model]["hf_config"]).read_text())
            dtype = config["recipes"][given["recipe"]]["weights"]
            reasons[name, model] = layout.untrained(huggingface.read(model, raw)[0], own, dtype)
    assert reasons == {
        ("tensor-8-eager", "llama-3-8b"): "",
        ("zero-3", "llama-3-8b"): "",
        ("three-ways", "llama-3-70b"): "",
        ("context-2", "llama-3-70b"): "",
        ("pipeline-2", "llama-3-8b"): "",
        ("experts-8", "mixtral-8x7b"): "",
    }


def test_size_says_what_the_fullest_device_holds(capsys):
    import jsonschema

    assert size.main([str(NEWER / "glm-4.5-air.json"), "--layout", "tensor=8,expert=8,pipeline=2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, json.loads(size.SCHEMA.read_text()))
    assert found["fullest_device"]["devices"] == 16
