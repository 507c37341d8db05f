"""The command that sizes one config.json: its keys, right values, no torch, one message for bad input."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from transformer_ledger import config, size

ROOT = Path(__file__).parents[1]
MODELS = ROOT / "resources/models"


def run(*arguments):
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


def found(name, *arguments):
    done = run("-m", "transformer_ledger", "size", str(MODELS / f"{name}.json"), "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_llama_3_8b():
    sizes = found("llama-3-8b")
    assert sizes["parameters"]["total"] == sizes["parameters"]["active"] == 8_030_261_248
    assert sum(sizes["parameters"]["components"].values()) == 8_030_261_248
    assert sizes["kv_cache"] == {"bytes": 536_870_912, "bytes_per_token": 131_072, "reserved_bytes": 536_870_912}
    work = sizes["matmul"]
    assert work["forward_flops"] == 70_274_254_897_152
    assert work["training_flops"] == 3 * work["forward_flops"]
    assert work["training_flops_causal_exact"] == 3 * work["forward_flops_causal_exact"]
    assert work["rule_6nd_flops"] == 6 * 8_030_261_248 * 4096
    assert sizes["training_state"]["adamw-bf16"]["bytes"] == 64_242_091_148
    assert any(note.startswith("attention_bias") for note in sizes["defaulted"])


def test_a_window_and_experts():
    sizes = found("gpt-oss-20b", "--batch", "32", "--context", "8192")
    assert sizes["kv_cache"]["bytes"] == 6_543_114_240
    assert sizes["kv_cache"]["reserved_bytes"] == 12_884_901_888
    assert sizes["parameters"]["active"] < sizes["parameters"]["total"]


def test_execute_agrees():
    rows = found("gpt2", "--context", "64", "--execute")["executed"]
    assert {row["implementation"] for row in rows} == {"ours", "transformers"}
    assert not any(row["difference"] for row in rows)


def test_it_imports_neither_torch_nor_pandas():
    code = (
        "import sys; from transformer_ledger.__main__ import main\n"
        f"assert main(['size', {str(MODELS / 'gpt2.json')!r}]) == 0\n"
        "sys.exit(bool({'torch', 'pandas', 'sympy', 'transformers'} & set(sys.modules)))"
    )
    assert run("-c", code).returncode == 0


def test_its_recipes_are_those_of_the_config(monkeypatch):
    monkeypatch.chdir(ROOT)
    recipes = config.load(yaml.safe_load(Path("config.yaml").read_text()), [Path("config.yaml")])["recipes"]
    for name, recipe in size.RECIPES.items():
        assert {key: recipes[name][key] for key in recipe} == recipe


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (None, [], "No such file"),
        ("{", [], "Expecting"),
        ("[]", [], "not a JSON object"),
        ('{"model_type": "x"}', [], "unknown model_type 'x'"),
        ('{"model_type": "gpt2", "n_layer": -3}', [], "n_layer"),
        ('{"model_type": "gpt2"}', ["--context", "5000"], "longer than the model's 1024"),
        ('{"model_type": "gpt2"}', ["--dtype", "foo"], "unknown dtype 'foo'"),
        ('{"model_type": "gpt2"}', ["--batch", "0"], "'0' is not an integer from 1"),
    ],
)
def test_bad_input_is_one_message(tmp_path, text, arguments, message):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    done = run("-m", "transformer_ledger", "size", str(path), *arguments)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
