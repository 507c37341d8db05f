"""Parts of a model, coarser than the ledgers' components: what pictures tell apart."""

from __future__ import annotations

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
