"""Which claims have a figure to touch, and which a setting of the calculator: data for the template, and no words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

FIGURES = ("A1.1", "A2.1", "A4.3", "A5.2", "A6.1", "A7.1", "B4.1", "B6.2", "B8.1")
"""Claims whose figure needs no model; `script/plays.js` draws each under its claim's name."""
MODEL_FIGURES = ("A8.4", "A9.2", "B5.2")
"""Claims whose figure runs the calculator's functions, so that it needs a model and a recipe."""

PICTURES = {"A2.3": "heads", "A4.3": "saturation", "B4.4": "rotation-error"}
"""Claims that a picture of results/figure/ shows."""

TRIES: dict[str, dict[str, str]] = {
    "A8.4": {"model": "llama-3-8b"},
    "A9.3": {"model": "llama-3-70b"},
    "A9.6": {"model": "llama-3-70b"},
    "B2.1": {"model": "teaching", "recipe": "adamw-fp32"},
    "B2.2": {"model": "teaching", "recipe": "adamw-bf16"},
    "B3.1": {"model": "teaching"},
    "B3.3": {"model": "teaching", "batch": "2"},
    "B5.2": {"model": "llama-3-8b", "kv_heads": "8"},
    "B5.3": {"model": "modern"},
}
"""Claim → setting of the calculator, by the keys of its address."""


def tries(models: Mapping[str, Any], recipes: Mapping[str, Any]) -> dict[str, str]:
    """Claim → address of a setting, where the configuration has its model and its recipe."""
    return {
        claim: urlencode(setting)
        for claim, setting in TRIES.items()
        if setting["model"] in models and recipes and setting.get("recipe", next(iter(recipes))) in recipes
    }


def plays(models: Mapping[str, Any], recipes: Mapping[str, Any]) -> tuple[str, ...]:
    """Claims that have a figure here."""
    return FIGURES + (MODEL_FIGURES if models and recipes else ())
