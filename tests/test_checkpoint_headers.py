"""A checkpoint's tensors against the closed form: files that transformers writes, and the one that the pipeline makes."""

import json
import math

import pytest

from transformer_ledger import headers, size
from transformer_ledger.families import FAMILIES
from transformer_ledger.model import ModelError

KINDS = ("llama", "mixtral", "qwen3_moe", "gemma2", "olmo3", "phi", "glm4_moe", "deepseek_v3", "gpt2")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder for each family, as transformers saves a small model of it."""
    import torch

    from transformer_ledger.executed.transformers_model import build

    folders = {}
    for kind in KINDS:
        folders[kind] = tmp_path_factory.mktemp(kind)
        build(FAMILIES[kind].config, device="cpu", dtype=torch.float32).save_pretrained(folders[kind])
    return folders


def sized(folder, capsys):
    code = size.main([str(folder), "--json", "--context", "8"])
    shown = capsys.readouterr()
    return code, json.loads(shown.out) if shown.out else shown.err


def edited(folder, change):
    """Rewrite the header of the folder's file, its data left out: no weight is read."""
    (path,) = headers.files(folder)
    held = headers.header(path)
    change(held)
    text = json.dumps(held).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)


@pytest.mark.parametrize("kind", KINDS)
def test_what_transformers_saves_is_what_the_closed_form_says(saved, capsys, kind):
    code, found = sized(saved[kind], capsys)
    held = found["checkpoint"]
    assert code == 0
    assert held["parameters"] == held["closed_form_parameters"] == found["parameters"]["total"]
    assert held["by_name"] == (kind != "gpt2")
    if held["by_name"]:
        assert held["missing"] == held["extra"] == held["shape"] == held["type"] == held["tied_copies"] == []
        assert held["types"] == {"F32": held["tensors"] - len(held["buffers"])}


def test_each_kind_of_difference_is_named(saved, capsys, tmp_path):
    (tmp_path / "config.json").write_bytes((saved["llama"] / "config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes((saved["llama"] / "model.safetensors").read_bytes())
    up, down = "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight"

    def change(held):
        held["model.layers.0.self_attn.rotary_emb.inv_freq"] = {**held[up], "shape": [4]}
        held["model.extra.weight"] = held.pop(up)
        held[down] = {**held[down], "shape": held[down]["shape"][::-1]}
        held["model.norm.weight"] = {**held["model.norm.weight"], "dtype": "BF16"}

    edited(tmp_path, change)
    code, found = sized(tmp_path, capsys)
    held = found["checkpoint"]
    assert code == 1
    assert (held["missing"], held["extra"], held["shape"]) == ([up], ["model.extra.weight"], [down])
    assert held["type"] == ["model.norm.weight"]
    assert held["buffers"] == ["model.layers.0.self_attn.rotary_emb.inv_freq"]
    assert size.main([str(tmp_path)]) == 1
    assert f"checkpoint missing: 1: {up}" in capsys.readouterr().out
    tied = json.loads((tmp_path / "config.json").read_text()) | {"tie_word_embeddings": True}
    (tmp_path / "config.json").write_text(json.dumps(tied))
    assert sized(tmp_path, capsys)[1]["checkpoint"]["tied_copies"] == ["lm_head.weight"]


def test_a_quantised_checkpoint_is_held_by_its_bytes(saved, capsys, tmp_path):
    raw = json.loads((saved["llama"] / "config.json").read_text())
    raw |= {"dtype": "float32", "quantization_config": {"quant_method": "fp8"}}  # a number a byte, a scale a matrix
    (tmp_path / "config.json").write_text(json.dumps(raw))
    (tmp_path / "model.safetensors").write_bytes((saved["llama"] / "model.safetensors").read_bytes())

    def change(held):
        for name in [name for name in held if name.endswith("_proj.weight")]:
            held[name] |= {"dtype": "F8_E4M3", "data_offsets": [0, math.prod(held[name]["shape"])]}
            held[f"{name}_scale_inv"] = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}

    edited(tmp_path, change)
    code, found = sized(tmp_path, capsys)
    assert (code, found["checkpoint"]["by_name"]) == (0, False)
    assert found["checkpoint"]["model_bytes"] == found["parameters"]["bytes"]
    edited(tmp_path, lambda held: held.pop("model.layers.0.mlp.up_proj.weight_scale_inv"))
    assert sized(tmp_path, capsys)[0] == 1


def test_the_pipelines_own_checkpoint(finished, capsys):
    folder = finished / "results" / "checkpoint"
    code, found = sized(folder, capsys)
    held = found["checkpoint"]
    assert code == 0
    assert held["by_name"]
    assert held["missing"] == held["extra"] == held["shape"] == []
    assert held["bytes"] == found["parameters"]["bytes"] == 4 * held["closed_form_parameters"]


def test_a_folder_that_is_no_checkpoint_is_one_message(tmp_path, capsys):
    assert size.main([str(tmp_path)]) == 1
    assert "No such file" in capsys.readouterr().err
    (tmp_path / "model.safetensors").write_bytes((2**40).to_bytes(8, "little"))
    with pytest.raises(ModelError, match="its header has 1099511627776 bytes"):
        headers.header(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "part-1.safetensors"}}')
    assert size.main([str(tmp_path)]) == 1
    assert "part-1.safetensors is not there; 1 of 1 files are missing" in capsys.readouterr().err
