"""The command that sizes one config.json: its keys, right values, no torch, one message for bad input."""

import json
import os
import resource
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
    state = sizes["training_state"]
    assert state["adamw-bf16"] == {"bytes": 64_242_091_148, "bytes_per_device": 64_242_091_148, "devices": 1}
    # adamw-bf16-master on 8 devices: 16 bytes a parameter, of which 12, 14 and all are divided, and the step counters.
    counters = state["zero-1"]["bytes"] - 16 * 8_030_261_248
    for stage, each in enumerate((4 + 12 / 8, 2 + 14 / 8, 16 / 8), 1):
        assert state[f"zero-{stage}"] == {
            "bytes": 16 * 8_030_261_248 + counters,
            "bytes_per_device": each * 8_030_261_248 + counters,
            "devices": 8,
        }
    assert any(note.startswith("attention_bias") for note in sizes["defaulted"])


def test_execute_agrees():
    sizes = found("gpt2", "--context", "64", "--execute")
    assert {row["implementation"] for row in sizes["executed"]} == {"ours", "transformers"}
    assert not any(row["difference"] for row in sizes["executed"])
    stepped = {row["phase"]: row["executed"] for row in sizes["executed"] if row["quantity"] == "state_bytes"}
    assert stepped == {name: held["bytes"] for name, held in sizes["training_state"].items()}


def test_a_difference_is_shown_and_fails(monkeypatch, capsys):
    row = {"implementation": "ours", "quantity": "flops", "phase": "decode", "policy": ""}
    off = {**row, "ledger": 1000, "executed": 1234, "difference": -234}
    monkeypatch.setattr(size, "executed", lambda *_: [off])
    assert size.main([str(MODELS / "gpt2.json"), "--execute"]) == 1
    assert "executed by ours: flops.decode 1,234, difference -234" in capsys.readouterr().out


def test_the_text_groups_digits_and_names_what_was_defaulted(capsys):
    assert size.main([str(MODELS / "gpt2.json")]) == 0
    lines = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert lines["parameters.total"] == ["124,439,808"]
    assert lines["kv_cache.bytes"] == ["37,748,736", "0.04", "GiB", "=", "0.04", "GB"]
    assert lines["matmul.forward_flops"] == ["291,648,307,200", "2.916e+11", "FLOP"]
    assert "training_state.zero-1.bytes_per_device" in lines
    assert "training_state.adamw-fp32.bytes_per_device" not in lines
    assert "defaulted:" in lines


def test_help_has_an_example_that_runs(capsys):
    with pytest.raises(SystemExit):
        size.main(["--help"])
    example = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("  python -m"))
    assert run(*example.split()[1:]).returncode == 0


def test_it_imports_neither_torch_nor_pandas():
    code = (
        "import sys; from transformer_ledger.__main__ import main\n"
        f"assert main(['size', {str(MODELS / 'gpt2.json')!r}]) == 0\n"
        "sys.exit(bool({'torch', 'pandas', 'sympy', 'transformers'} & set(sys.modules)))"
    )
    assert run("-c", code).returncode == 0


def test_it_takes_less_than_half_a_second_of_processor_time():
    def used():
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime

    seconds = []
    for _ in range(3):  # the least of them: other work on the machine slows some
        before = used()
        found("deepseek-v3")
        seconds.append(used() - before)
    assert min(seconds) < 0.5


def test_its_recipes_are_those_of_the_config(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(ROOT)
    recipes = config.load(yaml.safe_load(Path("config.yaml").read_text()), [Path("config.yaml")])["recipes"]
    assert size.recipes() == recipes
    monkeypatch.setattr(size, "CONFIG", tmp_path / "config.yaml")
    assert size.recipes() == recipes  # those that an installed package ships: make dictionary
    size.CONFIG.write_text("recipes: {a: {weights: fp32, gradients: fp32, optimizer: sgd}, b: null}")
    assert list(size.recipes()) == ["a"]
    for broken, message in (
        ("recipes: [", "config.yaml:2: not YAML"),
        ("", "config.yaml:1: empty"),
        ("- 1", "config.yaml:1: no mapping"),
        ("recipes: 5", "recipes: 5 is not a mapping"),
        ("recipes: {a: 5}", "recipes.a: 5 is not a mapping"),
        ("recipes: {a: {weights: fp32}}", "config.yaml:1: recipes.a.gradients: missing"),
        *(
            (f"recipes: {{a: {{weights: fp32, gradients: fp32, optimizer: adamw, {key}: {value}}}}}", f"a.{key}: ")
            for key, value in (("devices", 0), ("devices", -1), ("zero_stage", 9), ("moments", 7), ("optimizr", "foo"))
        ),
    ):
        size.CONFIG.write_text(broken)
        assert size.main([str(MODELS / "gpt2.json")]) == 1
        shown = capsys.readouterr().err
        assert message in shown
        assert "gpt2.json" not in shown


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (None, [], "No such file"),
        ("{", [], "not JSON: Expecting"),
        ("[" * 100_000, [], "not JSON"),
        ("[]", [], "not a mapping"),
        ('{"n_embd": 8, "n_embd": 16}', [], "n_embd: given twice"),
        ('{"model_type": "%s"}' % ("x" * 100_000), [], "unknown model_type 'xxx"),
        ('{"model_type": "gpt2", "layer_norm_epsilon": 1%s}' % ("0" * 400), [], "an integer of 401 digits"),
        ('{"model_type": "gpt2"}', ["--cache-dtype", "int4-g²"], "unknown dtype 'int4-g²'"),
        ('{"model_type": "gpt2"}', ["--batch", "9" * 400], "is not an integer from 1 to 999999999"),
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
    assert len(done.stderr) < 2000


def test_a_closed_pipe_is_no_error():
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "transformer_ledger", "size", str(MODELS / "gpt2.json")]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert done.stderr == ""


def test_says_what_it_sized_and_what_may_have_been_meant():
    lines = run("-m", "transformer_ledger", "size", "resources/models/gpt-oss-20b.json", "--batch", "32").stdout
    first = "gpt-oss-20b: 32 × 4,096 tokens, weights as stored: mxfp4, the rest bf16, cache bf16"
    assert lines.splitlines()[0] == first
    given = {"model": "gpt2", "batch": 1, "context": 1024, "dtype": "as stored: bf16", "cache_dtype": "bf16"}
    assert found("gpt2")["input"] == given
    done = run("-m", "transformer_ledger", "size", "resources/models/gpt-oss.json")
    assert done.returncode == 1
    assert done.stderr.strip().endswith("did you mean resources/models/gpt-oss-20b.json?")
