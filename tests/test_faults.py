"""Input that once stopped a job with a traceback, or got through: each is refused by one message that names key and value."""

import importlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from conftest import OFFLINE
from faults import fuzz

from transformer_ledger import config, huggingface, size
from transformer_ledger.executed import run, same_function, transformers_model
from transformer_ledger.executed.decoder import Decoder
from transformer_ledger.model import ModelError, ModelSpec, from_architecture
from transformer_ledger.study import training
from transformer_ledger.tables import TableError

ROOT = Path(__file__).parents[1]


def merged(base, over):
    """What Snakemake makes of a config and an overlay."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    return {**base, **{key: merged(base[key], value) if key in base else value for key, value in over.items()}}


@pytest.fixture
def refused(tmp_path, monkeypatch):
    """The message that an overlay of config.yaml gives."""
    monkeypatch.chdir(ROOT)
    path = tmp_path / "over.yaml"

    def message(text):
        path.write_text(text)
        both = merged(yaml.safe_load(Path("config.yaml").read_text()), yaml.safe_load(text))
        with pytest.raises(config.ConfigError) as caught:
            config.load(both, ["config.yaml", path])
        return str(caught.value)

    return message


CONFIGS = {
    # a scalar over a mapping
    "models: {teaching: 5}": "models.teaching: 5 is not a mapping",
    "models: {llama-3-8b: true}": "models.llama-3-8b: true is not a mapping",
    "training_runs: {llama-3-8b: 5}": "training_runs.llama-3-8b: 5 is not a mapping",
    "training_runs: {x: {model: [a], tokens: 5}}": "training_runs.x.model: ['a'] is not text",
    # settings that a job cannot do
    "verification: {embedding_lookup: {negative_zero: [0, 24]}}": "negative_zero[1]: 24 does not fit d_model 24",
    "verification: {embedding_lookup: {negative_zero: [99999, 0]}}": "negative_zero[0]: 99999 does not fit vocabulary",
    "verification: {attention_schedules: {length: 2}}": "length: 2 is out of range; allowed: a multiple of 4",
    "verification: {attention_schedules: {length: 1023}}": "length: 1023 is out of range; allowed: a multiple of 4",
    "verification: {head_count: {heads: [1, 8]}}": "head_count.heads[1]: head_dim 3 is odd",
    "verification: {permutation: {architecture: {d_model: 12}}}": "architecture.heads: head_dim 3 is odd",
    "verification: {causal_prefix: {training: {held_out: 1.0e-9}}}": "training.held_out: 1e-09 leaves",
    "study: {extension: {sizes: {heads: 32}}}": "study.extension.sizes.heads: head_dim 1 is odd",
    "training_runs: {llama-3-8b: {flops_per_second_per_device: 1.0e-300}}": "1e-300 is out of range",
    # two models that three pictures would take for one
    "models: {teaching: {label: x}, modern: {label: x}}": "models.modern.label: 'x' is what 'teaching' is called too",
    "own: nothing.json": "own: nothing.json: no such file",
    # code
    "__use_yte__: true": "__use_yte__: Snakemake would run Python from this file",
}


@pytest.mark.parametrize("text", CONFIGS)
def test_a_config_that_no_job_can_do_is_refused(refused, text):
    assert CONFIGS[text] in refused(text)


@pytest.mark.parametrize("entry", ["x", "=x", "1=2", "modles={}", "__use_yte__=true"])
def test_an_entry_of_the_command_line_that_is_none_is_refused(entry):
    with pytest.raises(config.ConfigError, match=r"wanted is KEY=VALUE with a key of the config") as caught:
        config.arguments(["models={}", entry], ["config.yaml"])
    assert f"--config '{entry}'" in str(caught.value)


FILES_OF_CONFIG = {
    None: "No such file or directory",
    "a: [\n": ":2: not YAML",
    "- a\n": ":1: no mapping",
    "a: 1\n__use_yte__: no\n": ":2: __use_yte__: Snakemake would run Python from this file",
    '"__use\\u005fyte__": true': ":1: __use_yte__: Snakemake would run Python from this file",
    "a: &a {__use_yte__: true}\n<<: *a\n": ":1: __use_yte__: Snakemake would run Python from this file",
}


@pytest.mark.parametrize("text", FILES_OF_CONFIG)
def test_a_file_of_the_command_line_that_is_no_config_is_refused(tmp_path, text):
    path = tmp_path / "mine.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(config.ConfigError) as caught:
        config.arguments([], [path])
    assert str(caught.value).startswith(f"{path}:")
    assert FILES_OF_CONFIG[text] in str(caught.value)
    assert "\n" not in str(caught.value)


SMALL = {"layers": 1, "d_model": 16, "heads": 2, "d_ff": 32, "vocabulary": 64, "context": 64, "positions": "rope"}
SMALL |= {"norm": "rmsnorm", "feedforward": "gated"}
UNSTUDIED = {
    "a window": {"window": 5},
    "an odd head width": {"positions": "none", "heads": 16},
    "experts": {"experts": {"count": 4, "per_token": 2}},
}


@pytest.mark.parametrize("lacks", UNSTUDIED)
def test_a_model_that_no_study_can_treat_is_refused(refused, lacks):
    model = {"models": {"m": {"architecture": SMALL | UNSTUDIED[lacks]}}, "study": {"checkpoint": {"models": ["m"]}}}
    assert f"study.checkpoint.models[0]: m has {lacks}, which no study can do" in refused(yaml.safe_dump(model))


@pytest.mark.parametrize("kind", ["deepseek_v2", "olmo2", "bloom", "falcon", "opt", "gpt_oss", "mixtral", "gemma2"])
def test_a_family_that_no_study_can_treat_is_named(kind):
    keys = {"deepseek_v2": {"num_experts_per_tok": 2}, "falcon": {"num_attention_heads": 71}}.get(kind, {})
    assert config.unstudied(huggingface.read(kind, {"model_type": kind, **keys})[0])


def test_a_tied_head_is_trained_tied():
    spec = from_architecture("m", SMALL | {"tied_head": True})
    model = training.fresh(spec, 0)
    assert model.head.weight is model.token_embedding.weight
    assert (
        sum(tensor.numel() for tensor in model.parameters())
        == importlib.import_module("transformer_ledger.ledger.parameters").totals(spec)[0]
    )


def test_drawn_weights_do_not_depend_on_what_was_there():
    """A bias starts at random: two runs would hold our decoder against the reference on other weights."""
    made = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        model = Decoder(same_function.SWITCHES["head_bias"].spec).double()
        same_function.draw(model, 0)
        made.append(model.state_dict())
    assert all(torch.equal(made[0][name], made[1][name]) for name in made[0])


LLAMA = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 48, "vocab_size": 64}
CONFIG_JSON = {
    "num_kv_heads": ({"model_type": "falcon", "num_kv_heads": "71"}, "'71' is not an integer"),
    "max_window_layers": ({"model_type": "qwen3_moe", "max_window_layers": "28"}, "'28' is not an integer"),
    "text_config": ({"model_type": "llama", "text_config": 2}, "2 is not a mapping"),
    "rope_scaling": ({"model_type": "llama", "rope_scaling": []}, "[] is not a mapping"),
    "rms_norm_eps": ({"model_type": "llama", "rms_norm_eps": 1e300}, "1e+300 is out of range"),
    "factor": (
        {"model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": "32.0"}},
        "'32.0' is not a number",
    ),
    "rope_type": ({"model_type": "llama", "rope_scaling": {"rope_type": 8, "factor": 2}}, "8 is no name"),
    "quantization_config": ({"model_type": "deepseek_v3", "quantization_config": -1}, "-1 is not a mapping"),
    "query_pre_attn_scalar": ({"model_type": "gemma2", "query_pre_attn_scalar": [256]}, "[256] is not a number"),
    "mlp_only_layers": ({"model_type": "qwen3_moe", "mlp_only_layers": [-1, 999]}, "-1 is out of range"),
}


@pytest.mark.parametrize("key", CONFIG_JSON)
def test_a_config_json_that_says_what_no_model_has_is_refused(key):
    raw, message = CONFIG_JSON[key]
    with pytest.raises(ModelError) as caught:
        huggingface.read("m", raw)
    assert caught.value.key == key
    assert message in str(caught.value)


def test_a_long_list_of_layers_is_read_at_once():
    layers = {"model_type": "qwen3_moe", "num_hidden_layers": 10_000, "mlp_only_layers": list(range(10_000))}
    started = time.process_time()
    assert huggingface.read("m", layers)[0].depth == 10_000
    assert time.process_time() - started < 2


def test_keys_that_change_what_a_run_returns_change_nothing():
    asked = {"return_dict": False, "output_router_logits": True, "output_hidden_states": True, "torchscript": True}
    for raw in ({"model_type": "llama", **LLAMA}, {"model_type": "mixtral", **LLAMA, "num_key_value_heads": 2}):
        made = []
        for keys in (raw, raw | asked):
            spec = ModelSpec.to_json(huggingface.read("m", keys)[0])
            made.append(run.compute(spec, keys, {"w": {"batch": 1, "context": 4}}, {}, ["bf16"]))
        assert made[0] == made[1]
    assert transformers_model.NOT_OURS


@pytest.mark.parametrize("given", ["abc", "-1", "nan", "inf", "1e400", "0"])
def test_a_time_limit_that_is_no_time_is_refused(monkeypatch, given):
    monkeypatch.setenv(run.TIME_LIMIT, given)
    with pytest.raises(TableError, match=f"{run.TIME_LIMIT}: '{given}' is no time"):
        run.compute(from_architecture("m", SMALL).to_json(), None, {}, {}, [])


def _sparse(path):
    with open(path, "wb") as file:
        file.truncate(2**31)


FILES = {
    "x" * 300: (lambda path: None, "File name too long"),
    "zero": (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
    "pipe": (os.mkfifo, "not a regular file"),
    "long": (_sparse, "2147483648 bytes; at most 8388608 are read"),
    "bytes": (lambda path: path.write_bytes(b"\xff\xfe{}"), "not a text file"),
    "bell\a\x1b[31m": (lambda path: path.write_text("{"), "bell\\x07\\x1b[31m: not JSON"),
}


@pytest.mark.parametrize("name", FILES, ids=range(len(FILES)))
def test_a_file_that_is_no_config_is_refused_at_once(tmp_path, capsys, name):
    make, message = FILES[name]
    make(tmp_path / name)
    started = time.perf_counter()
    assert size.main([str(tmp_path / name)]) == 1
    assert time.perf_counter() - started < 5
    assert message in capsys.readouterr().err


def test_an_unknown_dtype_names_the_flag_and_not_all_of_its_value(capsys):
    with pytest.raises(SystemExit):
        size.main([str(ROOT / "resources/models/gpt2.json"), "--dtype", "x" * 100_000])
    error = capsys.readouterr().err
    assert "argument --dtype: unknown dtype 'xxx" in error
    assert len(error) < 1000


@pytest.mark.parametrize("text", ["models:\n  a: 5\n  b: 6\t\n", "models:\n  a: 5\n  b: {c: d? e, f: 1}\n"])
def test_what_only_snakemakes_parser_refuses_is_named_with_its_line(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    assert yaml.load(text, yaml.CSafeLoader)
    with pytest.raises(yaml.YAMLError):
        yaml.safe_load(text)
    with pytest.raises(config.ConfigError, match=r"mine\.yaml:3: not YAML"):
        config.read(path)


@pytest.mark.parametrize("value", ["9" * 5000, "x\ny\x1b[31m"])
def test_a_message_is_one_short_line_whatever_it_quotes(refused, value):
    said = refused(yaml.dump({"verification": {"training_compute": {"runs": [value]}}}))
    assert "verification.training_compute.runs[0]: " in said
    assert said.isprintable()
    assert len(said) < 3000


def test_a_message_about_a_config_json_is_one_line_too(tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "\n", "architectures": ["GPT2LMHeadModel"]}))
    assert size.main([str(path)]) == 1
    said = capsys.readouterr().err
    assert "architectures: 'GPT2LMHeadModel' is no class of \\n that" in said
    assert said.count("\n") == 1


def test_mutated_files_end_in_a_result_or_in_one_message(tmp_path):
    """500 of them; `make test-faults` tries 10,000."""
    seeds = [*range(0, 900, 2), *range(1, 100, 2)]  # nine config.json for each config.yaml, which takes longer
    counts, wrong = fuzz.run(seeds, tmp_path)
    assert not wrong
    assert counts.keys() == {
        f"config.{kind}" for kind in ("json: message", "json: model", "yaml: config", "yaml: message")
    }


def test_a_run_has_no_network():
    """Every run that the tests start, and each of its jobs, is refused it: see conftest.snakemake."""
    asks = "import socket; socket.create_connection(('127.0.0.1', 9))"
    done = subprocess.run(
        [sys.executable, "-c", asks], env={"PYTHONPATH": str(OFFLINE)}, capture_output=True, text=True
    )
    assert "PermissionError: asked for the network: socket.getaddrinfo" in done.stderr


def test_nothing_that_is_read_can_run():
    """Weights are safetensors, tables Parquet, settings JSON and YAML: no pickle, and no loader that makes objects."""
    source = {path: path.read_text() for path in (ROOT / "src").rglob("*.py")}
    unsafe = re.compile(
        r"\bpickle\b|torch\.(load|save)\b|(?<![.\w])(eval|exec)\(|yaml\.(unsafe_|full_)?load\((?!.*Loader)|Unsafe|FullLoader"
    )
    assert {path.name: unsafe.search(text) for path, text in source.items() if unsafe.search(text)} == {}
