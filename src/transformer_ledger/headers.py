"""A local checkpoint against the closed form, tensor by tensor: names, shapes and types of its safetensors files.

Only headers are read, no weight (the format: eight bytes that give the header's length, then JSON). Names are those that
transformers writes, or those of our own decoder.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformer_ledger.ledger.parameters import tensors
from transformer_ledger.ledger.stored import MODULES, file_type, quantization
from transformer_ledger.model import Layer, ModelError, ModelSpec

MOST = 2**27  # bytes of a header; the largest published ones have a few million
DTYPES = {"F64": "fp64", "F32": "fp32", "F16": "fp16", "BF16": "bf16", "F8_E4M3": "fp8"}
OWN = "transformer_ledger"  # key of a header's metadata that describes a model of our own
SHOWN = 5  # names of each kind of difference that the text shows

Shapes = dict[str, tuple[int, ...]]

# Component → module of a layer, as most of transformers' families call it.
_PLAIN = {
    **MODULES,
    "attention.query_norm": "self_attn.q_norm",
    "attention.key_norm": "self_attn.k_norm",
    "attention.query_down_norm": "self_attn.q_a_layernorm",
    "attention.latent_norm": "self_attn.kv_a_layernorm",
    "attention.key+value": "self_attn.kv_b_proj",
    "attention.indexer.key_norm": "self_attn.indexer.k_norm",
    "attention.indexer.shares": "self_attn.indexer.weights_proj",
    "router": "mlp.gate",
    "shared_gate": "mlp.shared_expert_gate",
}
_BLOCK_SPARSE = {"router": "block_sparse_moe.gate"} | {
    f"feedforward.{name}": f"block_sparse_moe.experts.#.{own}"
    for name, own in (("gate", "w1"), ("up", "w3"), ("down", "w2"))
}
_SHARED = {f"shared_feedforward.{name}": f"mlp.shared_expert.{name}_proj" for name in ("gate", "up", "down")}
_TWO = {"feedforward.up": "mlp.fc1", "feedforward.down": "mlp.fc2", "attention.output": "self_attn.dense"}
NAMES: dict[str, dict[str, str]] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "granite"), _PLAIN),
    **dict.fromkeys(("olmo2", "olmo3", "smollm3", "stablelm", "cohere"), _PLAIN),
    **dict.fromkeys(("qwen3_moe", "glm4_moe", "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa"), _PLAIN),
    "qwen2_moe": _PLAIN | _SHARED,
    "mixtral": _PLAIN | _BLOCK_SPARSE,
    "minimax_m2": _PLAIN | _BLOCK_SPARSE,
    "phimoe": _PLAIN | _BLOCK_SPARSE,
    "phi": _PLAIN | _TWO,
    "starcoder2": _PLAIN | {"feedforward.up": "mlp.c_fc", "feedforward.down": "mlp.c_proj"},
}
"""Families whose checkpoints are held name by name; of the others, parameters and bytes are."""

FINAL_NORM = {"phi": "final_layernorm"}
# Buffers and states that checkpoints keep beside the parameters.
_BUFFERS = re.compile(r"(^|\.)(rotary_emb\.inv_freq|e_score_correction_bias|(attn|attention)\.(masked_)?bias)$")


def _norms(layer: Layer) -> list[str]:
    places: tuple[str, ...]
    if layer.norms == 4:
        places = ("input", "post_attention", "pre_feedforward", "post_feedforward")
    elif layer.post_norm:
        places = ("post_attention", "post_feedforward")
    else:
        places = ("input", "post_attention")[: layer.norms]
    return [f"{place}_layernorm" for place in places]


def _layer(spec: ModelSpec, layer: Layer, names: Mapping[str, str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(name below the layer, shape) of one layer's tensors."""
    a, parts = layer.attention, tensors(replace(spec, layers=((1, layer),), final_norm=False))
    for tensor in parts:
        component, shape, end = tensor.component, tensor.shape, "bias" if tensor.bias else "weight"
        if component == "attention.sinks":
            yield "self_attn.sinks", shape
        elif component == "norm":
            yield from ((f"{name}.{end}", shape) for name in _norms(layer))
        elif a.latent and component == "attention.query" and a.latent.query_rank:
            yield "self_attn.q_b_proj.weight", shape
        elif a.latent and component == "attention.key":
            rows = a.heads * (a.latent.nope_dim + a.latent.value_dim)
            yield f"{names['attention.key+value']}.weight", (rows, a.latent.kv_rank)
        elif a.latent and component == "attention.value":
            continue
        elif tensor.k is not None:
            module = names[component]
            module = module if "#" in module else module.replace("mlp.", "mlp.experts.#.")
            yield from ((f"{module.replace('#', str(e))}.{end}", shape[1:]) for e in range(shape[0]))
        elif component in names:
            yield f"{names[component]}.{end}", shape


def expected(spec: ModelSpec, kind: str) -> Shapes:
    """Shapes by name of the tensors that a checkpoint of a family holds."""
    names, found = NAMES[kind], dict[str, tuple[int, ...]]()
    outside = {"token_embedding": "model.embed_tokens", "head": "lm_head" if spec.outputs is None else "score"}
    for tensor in tensors(spec):
        if tensor.component in outside:
            found[f"{outside[tensor.component]}.{'bias' if tensor.bias else 'weight'}"] = tensor.shape
    layers = {layer: list(_layer(spec, layer, names)) for _, layer in spec.kinds()}
    for index, layer in enumerate(spec.each_layer()):
        found |= {f"model.layers.{index}.{name}": shape for name, shape in layers[layer]}
    final = f"model.{FINAL_NORM.get(kind, 'norm')}"
    found |= {f"{final}.{end}": (spec.d_model,) for end in ("weight", *(["bias"] if spec.norm_bias else []))}
    return found


def own(spec: ModelSpec) -> Shapes:
    """The same for a decoder of ours, whose modules carry the ledger's names."""
    outside = tensors(replace(spec, layers=(), final_norm=False))
    known = {tensor.component for tensor in outside}
    found = {f"{tensor.component}.{'bias' if tensor.bias else 'weight'}": tensor.shape for tensor in outside}
    for index, layer in enumerate(spec.each_layer()):
        for tensor in tensors(replace(spec, layers=((1, layer),), final_norm=False)):
            if tensor.component in known:
                continue
            end = "" if tensor.component.endswith("sinks") else ".bias" if tensor.bias else ".weight"
            numbers = [f".{i}" for i in range(tensor.copies)] if tensor.component == "norm" else [""]
            found |= {f"layers.{index}.{tensor.component}{number}{end}": tensor.shape for number in numbers}
    if spec.final_norm:
        found |= {f"norm.{end}": (spec.d_model,) for end in ("weight", *(["bias"] if spec.norm_bias else []))}
    return found


def header(path: Path) -> dict[str, Any]:
    """The header of one safetensors file. Raises ModelError where it has none."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= MOST:
                raise ValueError(f"its header has {length} bytes; at most {MOST} are read")
            found = json.loads(file.read(length))
        for name, held in found.items():
            if name != "__metadata__" and not (
                math.prod(held["shape"]) >= 0 and held["dtype"] and held["data_offsets"]
            ):
                raise ValueError(f"{name}: no shape, type and place")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError("", f"{path.name}: not a safetensors file: {error}") from None
    return dict(found)


def files(folder: Path) -> list[Path]:
    """The safetensors files of a folder: those of its index, or all. Raises ModelError where one is missing."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return sorted(folder.glob("*.safetensors"))
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError("", f"{index.name}: no index of a checkpoint: {error}") from None
    missing = [name for name in names if Path(str(name)).name != name or not (folder / name).exists()]
    if missing:
        raise ModelError(
            "", f"{index.name}: {missing[0]} is not there; {len(missing)} of {len(names)} files are missing"
        )
    return [folder / name for name in names]


def described(paths: list[Path]) -> ModelSpec | None:
    """The model of our own that a file's header describes, or None."""
    for path in paths:
        given = header(path).get("__metadata__", {}).get(OWN)
        if given:
            return ModelSpec.from_json(json.loads(given)["model"])
    return None


def _layer_of(name: str) -> int:
    found = re.match(r"model\.layers\.(\d+)\.", name)
    return int(found[1]) if found else -1


def compared(
    spec: ModelSpec, kind: str, config: Mapping[str, Any], paths: list[Path], stored_bytes: int
) -> dict[str, Any]:
    """What the tensors of `paths` have and the closed form has not, and the other way round.

    Names by kind of difference: missing, extra, shape, type (not the file's own), tied_copies (a tied head that is stored
    all the same), buffers, multi_token (layers past the model's own). `kind` is the family's model_type; "" is our own
    decoder. Of a family without names here only the parameters are compared, and of a quantised checkpoint only the bytes,
    with `stored_bytes`, which the closed form says.
    """
    held: dict[str, tuple[tuple[int, ...], str, int]] = {}
    for path in paths:
        for name, entry in header(path).items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                name = (
                    name if kind in ("", "gpt2") or name.startswith(("model.", "lm_head", "score")) else f"model.{name}"
                )
                held[name] = (tuple(entry["shape"]), entry["dtype"], end - start)
    buffers = [name for name in held if _BUFFERS.search(name)]
    copies = [name for name in held if name == "lm_head.weight" and spec.tied_head]
    further = (
        [] if not config.get("num_nextn_predict_layers") else [name for name in held if _layer_of(name) >= spec.depth]
    )
    kept = {name: entry for name, entry in held.items() if name not in (*buffers, *copies, *further)}
    found: dict[str, Any] = {
        "files": len(paths),
        "tensors": len(held),
        "bytes": sum(size for _, _, size in held.values()),
        "parameters": sum(math.prod(shape) for shape, _, _ in kept.values()),
        "model_bytes": sum(size for _, _, size in kept.values()),
        "closed_form_bytes": stored_bytes,
        "closed_form_parameters": sum(tensor.parameters for tensor in tensors(spec)),
        "tied_copies": copies,
        "buffers": sorted(buffers),
        "multi_token": sorted(further),
    }
    quantised = bool(quantization(config))
    if (kind and kind not in NAMES) or quantised:
        return {**found, "by_name": False, "quantised": quantised}
    want = expected(spec, kind) if kind else own(spec)
    dtype = file_type(config, []) if config.get("torch_dtype") or config.get("dtype") else None
    types = Counter(dtype for _, dtype, _ in kept.values())
    return {
        **found,
        "by_name": True,
        "types": dict(types),
        "missing": sorted(set(want) - set(kept)),
        "extra": sorted(set(kept) - set(want)),
        "shape": sorted(name for name in set(want) & set(kept) if want[name] != kept[name][0]),
        "type": sorted(name for name in kept if dtype and DTYPES.get(kept[name][1]) != dtype),
    }


def agrees(found: Mapping[str, Any]) -> bool:
    """Whether the checkpoint is the model of the closed form: the same tensors, or at least as many numbers or bytes."""
    if found["by_name"]:
        return not (found["missing"] or found["extra"] or found["shape"])
    if found["quantised"]:
        return bool(found["model_bytes"] == found["closed_form_bytes"])
    return bool(found["parameters"] == found["closed_form_parameters"])
