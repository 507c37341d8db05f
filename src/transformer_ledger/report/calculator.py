"""What the page's calculator is told beside its functions: models and their sizes, types, recipes, and its first state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from transformer_ledger.keys import SAME
from transformer_ledger.ledger.fit import available
from transformer_ledger.ledger.storage import BITS, GROUP_BYTES, bytes_per_number, split
from transformer_ledger.model import Layer, ModelSpec
from transformer_ledger.report import configurations, parts

SIZES = ("L", "d", "h", "h_kv", "d_h", "f", "V", "C", "w", "E", "k")
"""Sizes of a model that the calculator can change, where the model has them."""


def specs(models: Mapping[str, Any]) -> dict[str, ModelSpec]:
    """The models' descriptions by name."""
    return {name: ModelSpec.from_json(model["spec"]) for name, model in models.items()}


def variable(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The models whose sizes can be changed here: those without fixed states."""
    return {name: models[name] for name, spec in specs(models).items() if spec.plain}


class Stored(NamedTuple):
    """How a type stores numbers side by side: bytes of one, numbers in a group, bytes of a group's constants."""

    size: Any
    group: Any
    constants: Any


def stored(dtype: str) -> Stored:
    """The type `dtype`; one without groups has groups of one number, and no constants."""
    size, group = split(dtype)
    return Stored(size, group or 1, GROUP_BYTES if group else 0)


def main_layer(spec: ModelSpec) -> Layer:
    """The most frequent kind of layer, the one whose sizes are changed."""
    return max(spec.kinds(), key=lambda pair: pair[0])[1]


def sizes(spec: ModelSpec) -> dict[str, int]:
    """The model's own values of the sizes that it has."""
    a, ff = main_layer(spec).attention, main_layer(spec).feedforward
    found = {"L": spec.depth, "d": spec.d_model, "h": a.heads, "h_kv": a.kv_heads, "d_h": a.head_dim, "f": ff.width}
    if a.latent:  # K/V heads and their width are ranks there, and stay as they are
        del found["h_kv"], found["d_h"]
    found["V"] = spec.vocabulary
    if spec.positions == "learned":
        found["C"] = spec.position_rows
    if a.window is not None:
        found["w"] = a.window
    if ff.experts:
        found |= {"E": ff.experts, "k": ff.experts_per_token}
    return found


def quoted(value: Any) -> str:
    """JSON that is also safe inside a script element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return (
        text.replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("&", "\\u0026")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )


RUN_KEYS = {"D": "tokens", "G": "devices", "R": "flops_per_second_per_device"}


def starting_points(models: Mapping[str, Mapping[str, Any]], runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What the calculator starts from: each model's label, sizes, context, constraints and first training run."""
    points = {}
    for name, model in models.items():
        spec = ModelSpec.from_json(model["spec"])
        own = sizes(spec)
        run: Mapping[str, Any] = next((run for run in runs.values() if run.get("model") == name), {})
        points[name] = {
            "label": model.get("label") or name,
            "sizes": own,
            "context": spec.context,
            "run": {symbol: str(int(run[key])) for symbol, key in RUN_KEYS.items() if run.get(key)},
            "length": run.get("context") or min(spec.context, 4096),
            "follows": "d_h" in own and own["d_h"] * own["h"] == own["d"],
            "rotary": spec.positions == "rope",
            "others": sum(count for count, kind in spec.kinds() if kind != main_layer(spec)),
            "file": bool(model.get("file")),
        }
    return points


def dtypes(cache_dtypes: list[str]) -> dict[str, list[int]]:
    """Numerator and denominator of the bytes of one of many numbers, by type name."""
    named: dict[str, Fraction] = {name: bytes_per_number(name) for name in (*BITS, *cache_dtypes)}
    return {name: [size.numerator, size.denominator] for name, size in named.items()}


def rows(cache_dtypes: list[str]) -> dict[str, list[int]]:
    """How each type stores a row: numerator and denominator of a number's bytes, group, bytes of its constants."""
    named = {name: stored(name) for name in (*BITS, *cache_dtypes)}
    return {name: [s.size.numerator, s.size.denominator, s.group, s.constants] for name, s in named.items()}


def described(
    models: Mapping[str, Mapping[str, Any]],
    runs: Mapping[str, Mapping[str, Any]],
    recipes: Mapping[str, Mapping[str, Any]],
    cache_dtypes: list[str],
    devices: Mapping[str, Mapping[str, Any]],
    start: Mapping[str, Any],
) -> dict[str, Any]:
    """What the calculator is told beside its functions: models, recipes, types, devices, families, and its first state."""
    return {
        "models": starting_points(models, runs),
        "recipes": {name: recipe.get("zero_stage", 0) for name, recipe in recipes.items()},
        "dtypes": dtypes(cache_dtypes),
        "rows": rows(cache_dtypes),
        "parts": parts.PARTS,
        "work": parts.WORK,
        "families": configurations.families(),
        "same": SAME,
        "devices": {name: [device["memory_bytes"], device["reserve"]] for name, device in devices.items()},
        "start": {**start, **first_recipe(recipes), "device": first_device(devices)},
    }


def every_model(models: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The configuration's models, and the forms of a config.json that the page reads by itself."""
    return {**configurations.models(), **variable(models)} if models else {}


def first_recipe(recipes: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe that the calculator opens on, and its devices: plain AdamW in fp32 where there is one."""
    name = "adamw-fp32" if "adamw-fp32" in recipes else next(iter(recipes), "")
    return {"recipe": name or None, "devices": recipes.get(name, {}).get("devices", 1)}


def first_device(devices: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The device that the calculator opens on: the one with the least room, as where the page says what fits."""
    if not devices:
        return {"name": None, "memory_bytes": 80 * 10**9, "reserve": 0.1}
    name = min(devices, key=lambda name: available(devices[name]))
    return {"name": name, **devices[name]}
