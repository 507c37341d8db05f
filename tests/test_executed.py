"""The executed side: our decoder is the function it says it is, and what is counted on it is what ran."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from transformer_ledger import huggingface  # noqa: E402
from transformer_ledger.executed import cache, count, optimizer, run  # noqa: E402
from transformer_ledger.executed.decoder import Decoder  # noqa: E402
from transformer_ledger.families import FAMILIES, WORKLOADS  # noqa: E402
from transformer_ledger.model import Attention, Feedforward, Latent, Layer, ModelSpec  # noqa: E402
from transformer_ledger.tables import TableError  # noqa: E402

torch.set_num_threads(1)

BIASES = {f"{name}_bias": True for name in ("query", "key", "value", "output")}
LATENT = Latent(query_rank=12, kv_rank=16, nope_dim=8, rope_dim=4, value_dim=6)


def spec(attention: dict | None = None, feedforward: dict | None = None, depth: int = 2, **keys) -> ModelSpec:
    """A tiny Llama, changed by the keys given."""
    layer = {name: keys.pop(name) for name in ("norms", "parallel", "post_norm") if name in keys}
    own = Attention(**({"heads": 4, "kv_heads": 2, "head_dim": 8} | (attention or {})))
    feed = Feedforward(**({"kind": "gated", "width": 24} | (feedforward or {})))
    plain = {"d_model": 32, "vocabulary": 40, "context": 24, "positions": "rope", "norm_epsilon": 1e-6}
    return ModelSpec(name="tiny", layers=((depth, Layer(own, feed, **layer)),), **(plain | keys))


GPT2 = spec(
    {"kv_heads": 4, **BIASES},
    {"kind": "gelu", "bias": True},
    positions="learned",
    position_rows=24,
    norm="layernorm",
    norm_bias=True,
    tied_head=True,
)
MIXED = dataclasses.replace(
    spec(),
    layers=(
        (1, spec({"window": 5}).layers[0][1]),
        (2, spec(feedforward={"experts": 4, "experts_per_token": 2}).layers[0][1]),
    ),
)
SPECS = {
    "llama": spec(),
    "gpt2": GPT2,
    "window": spec({"window": 5}),
    "experts": spec(feedforward={"experts": 4, "experts_per_token": 2, "shared_width": 12, "shared_gate": True}),
    "latent": spec({"kv_heads": 4, "latent": LATENT}),
    "sinks": spec({"sinks": True, "query_key_norm": "head", "window": 3}),
    "parallel": spec({"query_key_norm": "full"}, parallel=True, norms=1),
    "narrow": spec(embedding_width=16, positions="learned", position_rows=26, final_norm=False, post_norm=True),
    "sandwich": spec(norms=4, head_bias=True, embedding_norm=True),
    "mixed": MIXED,
}


def decoder(model: ModelSpec) -> Decoder:
    """The decoder on the CPU in fp64, every parameter drawn (norms and sinks are constants otherwise)."""
    torch.manual_seed(0)
    made = Decoder(model).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2)
    return made


def ids(batch: int = 2, tokens: int = 11) -> torch.Tensor:
    return torch.randint(0, 40, (batch, tokens), generator=torch.Generator().manual_seed(1))


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal up to rounding: fp64, some hundred operations deep."""
    return bool((a - b).abs().max() < 1e-12 * (1 + b.abs().max()))


@pytest.mark.parametrize("name", SPECS)
def test_decoding_with_a_cache_gives_the_logits_of_the_full_forward(name: str) -> None:
    model, tokens = decoder(SPECS[name]), ids()
    with torch.no_grad():
        full = model(tokens)
        for kept in (cache.Cache("fp64"), cache.Reserved("fp64", 11)):
            steps = [model(part, kept) for part in tokens.split([6, 1, 1, 1, 1, 1], 1)]
            assert close(torch.cat(steps, 1), full)
    assert not close(full[:, 0], full[:, 1])  # and the logits do depend on the input


def test_absorbed_latent_attention_is_the_same_function() -> None:
    model, tokens = decoder(SPECS["latent"]), ids()
    with torch.no_grad():
        expanded = model(tokens)
        model.absorb(True)
        assert close(model(tokens), expanded)


@pytest.mark.parametrize("name", SPECS)
def test_the_mask_is_causal_and_every_tensor_gets_a_gradient(name: str) -> None:
    model, tokens = decoder(SPECS[name]), ids()
    changed = tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 40
    before, after = model(tokens), model(changed)
    assert close(before[:, :7], after[:, :7])
    assert not close(before[:, 7:], after[:, 7:])
    before.square().mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_window_hides_what_lies_behind_it() -> None:
    model, tokens = decoder(spec({"window": 5}, depth=1)), ids()
    changed = tokens.clone()
    changed[:, 0] = (changed[:, 0] + 1) % 40
    before, after = model(tokens), model(changed)
    assert close(before[:, 5:], after[:, 5:])  # position 5 sees 1…5
    assert not close(before[:, 4], after[:, 4])


# --- families that transformers runs too ------------------------------------------------------------------------------


COMMON = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
}
LLAMA = COMMON | {"num_key_value_heads": 2, "max_position_embeddings": 24, "rms_norm_eps": 1e-6}
PAIRS: dict[str, tuple[dict, ModelSpec]] = {
    "llama": (LLAMA | {"tie_word_embeddings": False}, spec()),
    "mixtral": (
        LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8},
        spec(feedforward={"experts": 4, "experts_per_token": 2}, rope_base=1e6),
    ),
    "deepseek_v3": (
        COMMON
        | {"num_key_value_heads": 4, "q_lora_rank": 12, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "v_head_dim": 6}
        | {"qk_rope_head_dim": 4, "first_k_dense_replace": 2, "max_position_embeddings": 24, "rope_interleave": False}
        | {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 8},
        spec({"kv_heads": 4, "latent": LATENT}),
    ),
}


# --- counting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SPECS)
def test_one_layer_of_each_kind_counts_for_the_whole_depth(name: str) -> None:
    kinds, whole = count.Kinds(SPECS[name]), count.full_depth(SPECS[name])
    forward, both = count.forward_backward(kinds, 2, 6)
    with FlopCounterMode(display=False) as counter:
        logits = whole(count.token_ids(whole, 2, 6))
        assert counter.get_total_flops() == forward.total()
        logits.sum().backward()
    assert counter.get_total_flops() == both.total()
    assert count.forward_flops(lambda: whole(count.token_ids(whole, 2, 6))) == forward.total()
    assert both == Counter({component: 3 * flops for component, flops in forward.items()})


def test_counts_of_a_llama_by_hand() -> None:
    every, used = count.parameters(count.full_depth(SPECS["experts"]))
    assert every["feedforward.up", "weight"] == 2 * 4 * 24 * 32
    assert used["feedforward.up", "weight"] == 2 * 2 * 24 * 32
    assert every["shared_gate", "weight"] == used["shared_gate", "weight"] == 2 * 32
    forward, _ = count.forward_backward(count.Kinds(SPECS["experts"]), 3, 5)
    assert forward["feedforward.up"] == 2 * 2 * (3 * 5) * 2 * 24 * 32
    assert forward["attention.scores"] == forward["attention.values"] == 2 * 2 * 3 * 4 * 5 * 5 * 8
    step = count.decode(count.Kinds(SPECS["window"]), 3, 9)
    assert step["attention.scores"] == 2 * 2 * 3 * 4 * 5 * 8  # window of 5
    assert step["head"] == 2 * 3 * 32 * 40


def test_an_operation_outside_the_components_is_refused() -> None:
    kinds = count.Kinds(SPECS["llama"])
    kinds.model.head.register_forward_hook(lambda module, inputs, output: output + (inputs[0] @ inputs[0].mT).sum())
    with pytest.raises(count.CountError, match="modules sum to"):
        count.forward_backward(kinds, 1, 4)


def test_a_product_that_is_not_counted_is_refused() -> None:
    kinds = count.Kinds(SPECS["llama"])
    kinds.model.layers[0].attention.scores.forward = lambda left, right: (left.unsqueeze(-1) * right.unsqueeze(-3)).sum(
        -2
    )
    with pytest.raises(count.CountError, match=r"no operation counted in layers\.0\.attention\.scores"):
        count.forward_backward(kinds, 1, 4)


@pytest.mark.parametrize("dtype", ["fp64", "bf16", "fp8", "int8", "int4", "int4-g16"])
def test_cache_bytes_are_those_of_real_tensors(dtype: str) -> None:
    kinds = count.Kinds(SPECS["window"])
    _, held, added = count.decode_and_cache(kinds, 3, 9, [dtype])
    numbers = 2 * 2 * 3 * 2 * 8  # layers, key and value, batch, heads, width
    bits = {"fp64": 64, "bf16": 16, "fp8": 8, "int8": 8, "int4": 4, "int4-g16": 4 + 32 // 16}[dtype]
    every = numbers * 2 * 9 * bits // 8  # twice as many query heads
    assert held[dtype] == {"needed": numbers * 5 * bits // 8, "reserved": numbers * 9 * bits // 8, "multi_head": every}
    assert added[dtype] == {
        "needed": 0,
        "reserved": numbers * bits // 8,
    }  # a full window lets go of as much as it takes


def test_a_stored_integer_is_close_to_the_number() -> None:
    x = torch.randn(2, 3, 5, 20, generator=torch.Generator().manual_seed(0))
    for dtype, steps in (("int8", 255), ("int4", 15), ("int8-g16", 255), ("int4-g16", 15), ("int2-g16", 3)):
        error = (cache.decode(cache.encode(x, dtype), dtype, x) - x).abs().max()
        reach = 2 * cache.STATIC_RANGE if "-g" not in dtype else (x.max() - x.min())
        assert 0 < error < reach / steps * 0.5 + 0.02 * reach, dtype  # half a step, and bf16 scale and shift


RECIPE = {"weights": "fp32", "gradients": "fp32", "optimizer": "adamw", "moments": "fp32"}


@pytest.mark.parametrize(
    ("changes", "per_parameter", "per_tensor"),
    [
        ({}, 16, 4),
        ({"optimizer": "adamw-amsgrad"}, 20, 4),
        ({"weights": "bf16", "gradients": "bf16", "moments": "bf16"}, 8, 4),
        ({"weights": "bf16", "gradients": "bf16", "master_weights": "fp32"}, 16, 4),
        ({"weights": "bf16", "gradients": "bf16", "master_weights": "fp32", "master_gradients": "fp32"}, 20, 4),
        ({"optimizer": "sgd"}, 8, 0),
        ({"optimizer": "sgd-momentum"}, 12, 0),
        ({"moments": "bf16"}, 12, 4),
    ],
)
def test_state_bytes_after_a_real_step(changes: dict, per_parameter: int, per_tensor: int) -> None:
    kinds, whole = count.Kinds(MIXED), count.full_depth(MIXED)
    count.forward_backward(kinds, 1, 4)
    held, shares = count.state_bytes(kinds, RECIPE | changes)
    tensors = list(whole.parameters())
    assert sum(held.values()) == per_parameter * sum(t.numel() for t in tensors) + per_tensor * len(tensors)
    assert shares == held


def test_devices_share_what_their_stage_says() -> None:
    kinds = count.Kinds(MIXED)
    count.forward_backward(kinds, 1, 4)
    N = sum(t.numel() for t in count.full_depth(MIXED).parameters())
    for stage, shared in ((1, ["first_moment"]), (2, ["first_moment", "gradients"]), (3, ["gradients", "weights"])):
        held, shares = count.state_bytes(kinds, RECIPE | {"devices": 7, "zero_stage": stage})
        for (item, dtype), size in held.items():
            divided = item in shared or item in ("first_moment", "second_moment")
            assert shares[item, dtype] == (4 * -(-N // 7) if divided else size), (stage, item)


def test_adafactor_and_eight_bit_moments_keep_what_they_say() -> None:
    kinds = count.Kinds(spec(depth=1))
    count.forward_backward(kinds, 1, 4)
    tensors = list(kinds.model.parameters())
    held, _ = count.state_bytes(kinds, RECIPE | {"optimizer": "adafactor"})
    factored = sum(sum(t.shape) for t in tensors)  # a row and a column of a matrix, all of a vector
    assert held["second_moment", "fp32"] == 4 * factored
    held, _ = count.state_bytes(kinds, RECIPE | {"moments": "int8-g256"})
    blocks = sum(-(-t.numel() // 256) for t in tensors)
    assert held["first_moment", "int8-g256"] == sum(t.numel() for t in tensors) + 4 * blocks
    assert held["first_moment", "int8-g256"] == held["second_moment", "int8-g256"]


def test_the_step_moves_real_weights() -> None:
    model = decoder(SPECS["llama"]).float()
    model(ids()).sum().backward()
    parameters = list(model.parameters())
    kept = optimizer.step(parameters, RECIPE)
    assert all((items["weights", "fp32"][0] != p).any() for items, p in zip(kept, parameters, strict=True))


def test_compute_makes_rows_that_add_up_twice_the_same() -> None:
    settings = {"model": json.loads(json.dumps(MIXED.to_json())), "hf_config": None, "cache_dtypes": ["bf16"]}
    settings |= {"workloads": {"short": {"batch": 2, "context": 7}}, "recipes": {"plain": RECIPE}}
    rows = run.compute(**settings)
    assert rows == run.compute(**settings)
    groups: dict = {}
    for row in rows:
        key = (row["quantity"], row["workload"], row["phase"], row["component"] == "total")
        groups[key] = groups.get(key, 0) + row["value"]
    for quantity, workload, phase, total in groups:
        if not total and "cache_bytes" not in quantity and "per_device" not in quantity:
            assert groups[quantity, workload, phase, False] == groups[quantity, workload, phase, True]
    kinds = {"parameters", "active_parameters", "flops", "cache_bytes", "cache_bytes_added"}
    assert {key[0] for key in groups} == kinds | {"state_bytes", "state_bytes_per_device"}


@pytest.mark.parametrize("family", ["llama", "mixtral", "deepseek_v3"])
def test_both_implementations_count_the_same(family: str) -> None:
    keys, model = PAIRS[family]
    settings = {"model": model.to_json(), "hf_config": {"model_type": family, **keys}, "cache_dtypes": ["bf16"]}
    rows = run.compute(**settings, workloads={"w": {"batch": 2, "context": 7}}, recipes={})
    counted: dict = {"ours": {}, "transformers": {}}
    for row in rows:
        if row["phase"] != "decode_absorbed" and not row["quantity"].startswith(("cache_bytes", "active_parameters")):
            key = (row["quantity"], row["phase"], row["component"], row["part"])
            counted[row["implementation"]][key] = row["value"]
    assert counted["ours"] == counted["transformers"]
    caches = {
        (row["implementation"], row["component"]): row["value"] for row in rows if row["quantity"] == "cache_bytes"
    }
    every = caches.pop(("ours", "multi_head"))
    assert {caches[key] for key in caches} == {caches["ours", "needed"]}
    assert every >= caches["ours", "needed"]
    assert {("transformers", policy) for policy in ("dynamic", "static", "needed", "reserved")} < set(caches)


def test_grouped_experts_that_count_as_nothing_are_refused() -> None:
    from transformer_ledger.executed import transformers_model

    keys, model = PAIRS["mixtral"]
    theirs = transformers_model.build({"model_type": "mixtral", **keys})
    runner = transformers_model.Runner(theirs, model)
    assert runner.decode(1, 4).total() > 0
    theirs.set_experts_implementation("grouped_mm")
    with pytest.raises(count.CountError, match=r"no operation counted in feedforward\.up, feedforward\.down"):
        runner.decode(1, 4)


@pytest.mark.parametrize(
    ("absurd", "message"), [({"depth": 10**9}, "1000000000 layers"), ({"vocabulary": 10**18}, "64 bits can count")]
)
def test_an_absurd_model_is_refused_with_a_message(absurd: dict, message: str) -> None:
    settings = {"hf_config": None, "workloads": {}, "recipes": {}, "cache_dtypes": []}
    with pytest.raises(TableError, match=message):
        run.compute(model=spec(**absurd).to_json(), **settings)


# --- limits -----------------------------------------------------------------------------------------------------------


def held_up(*_: object) -> list:
    """A call that never comes back to the interpreter."""
    return [sum(itertools.repeat(0))]


@pytest.mark.parametrize(
    ("ended", "message"),
    [
        (held_up, r"tiny: running it takes more than 0\.2 s, the time limit; check its sizes"),
        (lambda *_: os.kill(os.getpid(), signal.SIGKILL), "tiny: SIGKILL ended its run; is there memory enough"),
        (lambda *_: [bytearray(2 * run.MEMORY_BYTES)], "tiny: running it takes more than 4 GiB"),
        (lambda *_: 1 / 0, "tiny: its run failed, as shown above"),
    ],
)
def test_a_run_that_does_not_end_well_gives_one_message(monkeypatch: pytest.MonkeyPatch, ended, message: str) -> None:
    settings = {"hf_config": None, "workloads": {}, "recipes": {}, "cache_dtypes": []}
    assert run.compute(model=spec().to_json(), **settings)
    monkeypatch.setattr(run, "_ours", ended)
    monkeypatch.setenv(run.TIME_LIMIT, "0.2" if ended is held_up else "60")
    with pytest.raises(TableError, match=message):
        run.compute(model=spec().to_json(), **settings)


def test_a_job_past_its_time_writes_a_message_and_nothing_else(tmp_path: Path) -> None:
    source = Path(run.__file__).parents[2]
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"} | LLAMA))
    settings = {"model": spec().to_json(), "hf_config": None, "workloads": {}, "recipes": {}, "cache_dtypes": []}
    (tmp_path / "spec.json").write_text(json.dumps({"module": "executed.run", "settings": settings, "inputs": {}}))
    job = ["--spec", "spec.json", "--output", "made.parquet"]
    for command in (job, ["size", "config.json", "--execute"]):
        done = subprocess.run(
            [sys.executable, "-m", "transformer_ledger", *command],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(source), run.TIME_LIMIT: "0.1"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 1
        assert "running it takes more than 0.1 s, the time limit" in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "spec.json"]


def test_a_config_json_that_names_code_runs_none_and_asks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An auto_map would be followed, or asked about, by whoever trusts the file."""
    from transformer_ledger.executed import transformers_model

    assert os.environ["HF_HUB_OFFLINE"] == "1"
    mark = tmp_path / "ran"
    (tmp_path / "own.py").write_text(f"open({str(mark)!r}, 'w')\nclass Config: pass\nclass Model: pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked"))
    keys = {"model_type": "llama", **LLAMA, "_name_or_path": str(tmp_path)}
    named = {"auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    plain, other = transformers_model.build(keys), transformers_model.build(keys | named)
    assert type(plain) is type(other)
    assert not mark.exists()


def test_what_transformers_does_not_build_is_named() -> None:
    from transformer_ledger.executed import transformers_model

    keys = {"model_type": "mistral", **LLAMA, "num_key_value_heads": None}
    with pytest.raises(count.CountError, match=r"tiny: transformers does not build this config\.json: .*expected int"):
        transformers_model.rows(run._rows("tiny", "transformers"), spec(), keys, {}, [])


def test_the_text_part_of_a_multimodal_file_is_built_with_what_the_file_says_at_its_top() -> None:
    from transformer_ledger import huggingface
    from transformer_ledger.executed import transformers_model

    text = {"model_type": "gemma3_text", **COMMON, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 5}
    config = {"model_type": "gemma3", "text_config": text, "tie_word_embeddings": False, "vision_config": {}}
    model, read = transformers_model.build(config), huggingface.read("tiny", config)[0]
    assert transformers_model.parameters(model, read)["head", "weight"] == 40 * 32
    assert ("head", "weight") not in transformers_model.parameters(transformers_model.build(text), read)


@pytest.mark.parametrize("new", [True, False])
def test_falcon_decodes_with_alibi_and_caches_as_its_layout_does(new: bool) -> None:
    """What is not in the random models: falcon-rw-1b's own layout, and the one that copies keys and values."""
    from transformer_ledger import huggingface
    from transformer_ledger.ledger import agreement

    config = {"model_type": "falcon", "vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 4, "max_position_embeddings": 24, "new_decoder_architecture": new}
    config |= (
        {"num_kv_heads": 2} if new else {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True}
    )
    model = {"m": json.loads(json.dumps(huggingface.read("m", config)[0].to_json()))}
    loads = {"w": {"batch": 2, "context": 20}}
    rows = run.compute(model["m"], config, loads, {}, ["bf16"])
    totals = agreement.compute(model, loads, ["bf16"], {"m": rows})
    assert [row for row in totals if row["difference"]] == []
    held = {row["policy"]: row["executed"] for row in totals if row["quantity"] == "cache_bytes"}
    assert held["dynamic"] == held["static"] == (2 if new else 1) * held["needed"]


def test_a_small_model_of_each_family_is_run_under_its_own_name() -> None:
    assert {family.config["model_type"] for family in FAMILIES.values()} >= set(huggingface.KNOWN)
    assert {name: family.read(name).name for name, family in FAMILIES.items()} == {name: name for name in FAMILIES}
    assert all(
        family.read(name).context > load["context"] for name, family in FAMILIES.items() for load in WORKLOADS.values()
    )
