"""Bytes of the weights as a file says that they are stored: `torch_dtype` and `quantization_config`.

What a quantised map keeps beside its numbers (scales, zero points, code books) is counted, tensor by tensor, as the
method's own checkpoints have it. Embedding, head, router, norms and biases stay in the file's type unless it says
otherwise, and so do the modules that the file leaves out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from transformer_ledger.ledger.parameters import Tensor, tensors
from transformer_ledger.ledger.storage import bytes_per_number, whole
from transformer_ledger.model import ModelError, ModelSpec

TYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64", "float8_e4m3fn": "fp8"}
USUAL = "bf16"  # of a file that names no type


@dataclass(frozen=True)
class Stored:
    """Bytes by type: `parts` has the weights of each type, and what quantised maps keep beside theirs (`constants`)."""

    name: str
    parts: Mapping[str, int]

    @property
    def bytes(self) -> int:
        """All of them."""
        return sum(self.parts.values())


# One quantised matrix of `out` rows of `into` numbers → (type, bytes of its numbers, bytes of its constants).
Sizes = tuple[str, int, int]
Method = Callable[[Mapping[str, Any], str], Callable[[int, int], Sizes]]


def _integer(given: Mapping[str, Any], key: str, default: int | None, *allowed: int) -> int:
    value = given.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or (value not in allowed if allowed else value < 1):
        words = ", ".join(map(str, allowed)) or "an integer from 1"
        raise ModelError("quantization_config", f"{key} {value!r}; allowed: {words}")
    return value


def _fp8(given: Mapping[str, Any], dtype: str) -> Callable[[int, int], Sizes]:
    """One fp32 scale a block, or a matrix; # ASSUME fp32, as DeepSeek's `weight_scale_inv`."""
    block = given.get("weight_block_size")
    if block is None:
        return lambda out, into: ("fp8", out * into, 4)
    if not isinstance(block, list) or len(block) != 2 or not all(isinstance(n, int) and n > 0 for n in block):
        raise ModelError("quantization_config", f"weight_block_size {block!r}; allowed: a list of two sizes")
    rows, columns = block
    return lambda out, into: ("fp8", out * into, 4 * math.ceil(out / rows) * math.ceil(into / columns))


def _mxfp4(given: Mapping[str, Any], dtype: str) -> Callable[[int, int], Sizes]:
    """A scale of one byte for 32 numbers (OCP Microscaling Formats, version 1.0)."""
    return lambda out, into: ("mxfp4", out * into // 2, out * math.ceil(into / 32))


def _nvfp4(given: Mapping[str, Any], dtype: str) -> Callable[[int, int], Sizes]:
    """A scale in fp8 for 16 numbers, and two in fp32 a matrix: of its weights and of its input."""
    return lambda out, into: ("nvfp4", out * into // 2, out * math.ceil(into / 16) + 8)


def _packed(given: Mapping[str, Any], dtype: str, indexed: bool) -> Callable[[int, int], Sizes]:
    """AWQ and GPTQ: integers packed into 32 bits; for each group and row a scale in fp16 and a packed zero point; of
    GPTQ also each column's group in 32 bits."""
    bits = _integer(given, "bits" if "bits" in given else "w_bit", 4, 2, 3, 4, 8)
    name = "group_size" if "group_size" in given else "q_group_size"
    group = 0 if given.get(name) == -1 else _integer(given, name, 128)

    def sizes(out: int, into: int) -> Sizes:
        groups = math.ceil(into / (group or into))
        return f"int{bits}", out * into * bits // 8, groups * out * 2 + groups * out * bits // 8 + 4 * into * indexed

    return sizes


def _bitsandbytes(given: Mapping[str, Any], dtype: str) -> Callable[[int, int], Sizes]:
    """8 bits: a scale in fp32 a row. 4 bits: one for 64 numbers, in fp32 or in 8 bits with scales of their own, and the
    code books; # ASSUME without the few bytes of JSON that a checkpoint keeps beside each matrix."""
    if given.get("load_in_8bit"):
        return lambda out, into: ("int8", out * into, 4 * out)
    nested = given.get("bnb_4bit_use_double_quant", False)

    def sizes(out: int, into: int) -> Sizes:
        blocks = math.ceil(out * into / 64)
        scales = blocks + 4 * math.ceil(blocks / 256) + 4 * 256 if nested else 4 * blocks
        return str(given.get("bnb_4bit_quant_type", "fp4")), math.ceil(out * into / 2), scales + 4 * 16

    return sizes


def _compressed(given: Mapping[str, Any], dtype: str) -> Callable[[int, int], Sizes]:
    """compressed-tensors: one scheme for all maps; scales in the file's type, for a group, a row, a block or a matrix."""
    groups = given.get("config_groups")
    schemes = [group.get("weights") for group in groups.values()] if isinstance(groups, dict) else []
    if len(schemes) != 1 or not isinstance(schemes[0], dict):
        raise ModelError("quantization_config", f"config_groups with {len(schemes)} schemes of weights; one is counted")
    scheme = schemes[0]
    bits, strategy = _integer(scheme, "num_bits", None, 4, 8), scheme.get("strategy", "tensor")
    kind = "fp" if scheme.get("type") == "float" else "int"
    if kind == "fp" and bits == 4:
        return _nvfp4(given, dtype) if scheme.get("group_size", 16) == 16 else _mxfp4(given, dtype)
    if strategy == "block":
        rows, columns = scheme["block_structure"]
    else:
        rows = 0 if strategy == "tensor" else 1
        columns = _integer(scheme, "group_size", None) if strategy == "group" else 0
    scale = int(bytes_per_number(dtype)) + (0 if scheme.get("symmetric", True) else Fraction(bits, 8))
    shape = 16 if bits == 4 else 0  # a packed matrix keeps its shape, two numbers of 64 bits

    def sizes(out: int, into: int) -> Sizes:
        scales = math.ceil(out / (rows or out)) * math.ceil(into / (columns or into))
        return f"{kind}{bits}", out * into * bits // 8, whole(Fraction(scales * scale)) + shape

    return sizes


METHODS: dict[str, Method] = {
    "fp8": _fp8,
    "mxfp4": _mxfp4,
    "nvfp4": _nvfp4,
    "awq": lambda given, dtype: _packed(given, dtype, False),
    "gptq": lambda given, dtype: _packed(given, dtype, True),
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed,
}

# The maps of a layer by the paths that checkpoints and lists of modules left out give them.
MODULES = {
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "attention.query_down": "self_attn.q_a_proj",
    "attention.latent_down": "self_attn.kv_a_proj_with_mqa",
    "attention.indexer.query": "self_attn.indexer.wq_b",
    "attention.indexer.key": "self_attn.indexer.wk",
    "feedforward.gate": "mlp.gate_proj",
    "feedforward.up": "mlp.up_proj",
    "feedforward.down": "mlp.down_proj",
    "shared_feedforward.gate": "mlp.shared_experts.gate_proj",
    "shared_feedforward.up": "mlp.shared_experts.up_proj",
    "shared_feedforward.down": "mlp.shared_experts.down_proj",
}


def _method(given: Mapping[str, Any]) -> str:
    name = given.get("quant_method")
    if name == "modelopt":
        name = {"NVFP4": "nvfp4", "FP8": "fp8"}.get(str(given.get("quant_algo")), "modelopt")
    elif name is None and ("load_in_4bit" in given or "load_in_8bit" in given):
        name = "bitsandbytes"
    return str(name)


def _left_out(given: Mapping[str, Any]) -> list[re.Pattern[str]]:
    """Patterns of the paths that stay as they are, whole parts of a path each."""
    names: list[Any] = []
    for key in ("modules_to_not_convert", "ignored_layers", "ignore", "llm_int8_skip_modules", "exclude_modules"):
        value = given.get(key) or []
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise ModelError("quantization_config", f"{key} {value!r} is not a list of names")
        names += value
    made = []
    for name in names:
        own = name.removeprefix("re:").replace("language_model.", "")
        own = own if name.startswith("re:") else own.replace(".", r"\.").replace("*", ".*")
        try:
            made.append(re.compile(own if name.startswith("re:") else rf"(^|\.){own}(\.|$)"))
        except re.error:
            raise ModelError("quantization_config", f"{name!r} is no pattern of names") from None
    return made


def _maps(spec: ModelSpec, only_experts: bool) -> Iterator[tuple[str, Tensor]]:
    """(path, tensor) of every map that a method quantises, layer by layer."""
    kinds = {
        layer: [
            (
                tensor,
                f"mlp.experts.0.{MODULES[tensor.component].removeprefix('mlp.')}"
                if tensor.k
                else MODULES[tensor.component],
            )
            for tensor in tensors(replace(spec, layers=((1, layer),)))
            if tensor.component in MODULES and not tensor.bias and (tensor.k or not only_experts)
        ]
        for _, layer in spec.kinds()
    }
    for index, layer in enumerate(spec.each_layer()):
        for tensor, module in kinds[layer]:
            yield f"model.layers.{index}.{module}", tensor


def file_type(config: Mapping[str, Any], notes: list[str]) -> str:
    """The type of the tensors that are not quantised, as we call it; the usual one, noted, where the file names none."""
    inner = config.get("text_config") or {}
    named = next((part[key] for part in (inner, config) for key in ("dtype", "torch_dtype") if part.get(key)), None)
    if named is None:
        notes.append(f"torch_dtype: not in the file, taken as {USUAL}")
        return USUAL
    dtype = TYPES.get(str(named).removeprefix("torch."))
    if dtype is None:
        raise ModelError("torch_dtype", f"{named!r}; known: {', '.join(TYPES)}")
    return dtype


def quantization(config: Mapping[str, Any]) -> dict[str, Any]:
    """The file's `quantization_config`; empty where it has none."""
    given = config.get("quantization_config") or (config.get("text_config") or {}).get("quantization_config") or {}
    if not isinstance(given, dict):
        raise ModelError("quantization_config", f"{given!r} is not a mapping")
    return given


def multi_token(spec: ModelSpec, config: Mapping[str, Any]) -> int:
    """Numbers that the multi-token layers of DeepSeek-V3 and GLM-4.5 add to a checkpoint; the model that runs has none.

    Each is a layer as the last one, a map of two widths to one, three norms, and copies of embedding and head
    (DeepSeek-V3, arXiv:2412.19437, section 2.2, and its checkpoint).
    """
    kind, count = config.get("model_type"), config.get("num_nextn_predict_layers")
    if kind not in ("deepseek_v3", "deepseek_v32", "glm4_moe", "glm_moe_dsa") or not isinstance(count, int):
        return 0
    layer = tensors(replace(spec, layers=((1, spec.each_layer()[-1]),), tied_head=False, final_norm=False))
    return count * (sum(tensor.parameters for tensor in layer) + (2 * spec.d_model + 3) * spec.d_model)


def stored(spec: ModelSpec, config: Mapping[str, Any], notes: list[str]) -> Stored:
    """What the weights take as the file stores them. `config` is the whole config.json.

    Raises ModelError where the file's own account of it cannot be followed.
    """
    dtype, given = file_type(config, notes), quantization(config)
    total, each = sum(tensor.parameters for tensor in tensors(spec)), bytes_per_number(dtype)
    if not given:
        return Stored(dtype, {dtype: whole(total * each)})
    method = _method(given)
    if method not in METHODS:
        notes.append(
            f"quantization_config: {method} is not known here, bytes are those of {dtype}; known: {', '.join(METHODS)}"
        )
        return Stored(dtype, {dtype: whole(total * each)})
    sizes, patterns = METHODS[method](given, dtype), _left_out(given)
    parts: Counter[str] = Counter()
    for path, tensor in _maps(spec, method == "mxfp4"):
        if any(pattern.search(path) for pattern in patterns):
            continue
        count, (out, into) = math.prod(tensor.shape[:-2]), tensor.shape[-2:]
        kind, numbers, constants = sizes(out, into)
        parts[kind] += count * numbers
        parts["constants"] += count * constants
        total -= tensor.parameters
    parts[dtype] += whole(total * each)
    return Stored(f"{method}, the rest {dtype}", dict(parts))
