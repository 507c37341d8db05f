"""What the page and the pictures tell apart: models, and parts of a model, coarser than the ledgers' components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GROUPS = {
    "token_embedding": "embeddings",
    "position_embedding": "embeddings",
    "embedding_projection": "embeddings",
    "attention": "attention",
    "feedforward": "feed-forward",
    "shared_feedforward": "feed-forward",
    "head": "head",
    "head_projection": "head",
}
OTHERS = "norms, routers"
PARTS = (*dict.fromkeys(GROUPS.values()), OTHERS)
PAIRS = "scores, values"
"""Attention's products of queries with keys and of weights with values, which have no parameters."""
WORK = ("attention", PAIRS, "feed-forward", "head", OTHERS)


def group(component: str) -> str:
    """The part of the model that a component belongs to."""
    return GROUPS.get(component.split(".")[0], OTHERS)


def work(component: str) -> str:
    """The part of the forward pass that a matrix product belongs to."""
    if component in ("attention.scores", "attention.values"):
        return PAIRS
    return "head" if component == "embedding_projection" else group(component)


MODELS = 24
"""Models that the page shows where its settings name none: each takes some 17 kB, and the page stays under 3 MB."""


def shown(models: Mapping[str, Any], report: Mapping[str, Any]) -> dict[str, Any]:
    """The models that the page shows, in the config's order: those that the settings name, else the first ones."""
    first = report.get("models") or list(models)[:MODELS]
    named = {*first, report.get("whatif", {}).get("model")}
    return {name: model for name, model in models.items() if name in named}
