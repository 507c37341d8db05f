"""What the page's calculator needs to read a `config.json` by itself: families whose layers are all of one kind.

Keys, defaults and tensors are those of `transformer_ledger.huggingface`; here they become data for a script, and one
model for each form of a family, tied or not, windowed or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from transformer_ledger import huggingface
from transformer_ledger.model import ModelSpec
from transformer_ledger.rotary import ROTARY, Rotary

FORMS = ("tied", "window")
WINDOW = 4096  # of a form that has one, until the file names its own
SAME_EXPERTS = ROTARY["mixtral"].experts  # in every layer, and none shared
GPT2: dict[str, Any] = {
    "keys": {
        "d": ["n_embd", "hidden_size"],
        "h": ["n_head", "num_attention_heads"],
        "L": ["n_layer", "num_hidden_layers"],
        "V": ["vocab_size"],
        "C": ["n_positions", "max_position_embeddings"],
    },
    "inner": "n_inner",
    "fixed": {"add_cross_attention": False, "sliding_window": None},
    "window": "none",
}


def _readable(family: Rotary) -> bool:
    """Whether all layers are of one kind, and no key of the family's own decides a tensor."""
    plain = family.norm == "rmsnorm" and not (
        family.sinks or family.latent or family.state or family.fixed or family.names or family.flags
    )
    return plain and family.window in ("none", "all", "upper") and (family.experts or SAME_EXPERTS) == SAME_EXPERTS


def _rotary(family: Rotary) -> dict[str, Any]:
    keys = {
        "d": ["hidden_size"],
        "h": ["num_attention_heads"],
        "L": ["num_hidden_layers"],
        "V": ["vocab_size"],
        "f": ["intermediate_size"],
        "limit": ["max_position_embeddings"],
    }
    fixed: dict[str, Any] = {"use_bidirectional_attention": False}
    fixed |= {key: default for key, (default, _) in family.biases.items() if key}
    if family.window == "none":
        fixed["sliding_window"] = None
    if family.window == "upper":
        fixed["use_sliding_window"] = False
    if family.experts:
        keys |= {"E": ["num_local_experts", "num_experts"], "k": ["num_experts_per_tok"]}
    return {
        "keys": keys,
        "fixed": fixed,
        "kv_heads": family.num_key_value_heads,
        "head_dim": family.head_dim,
        "divides": family.divides,
        "window": family.window,
        "sliding_window": family.sliding_window,
    }


def families() -> dict[str, dict[str, Any]]:
    """How to read each family's file: names of its keys by symbol, and what decides where a key is left out.

    `fixed` keys must have the one value that is counted here; defaults of sizes are those of the family's first form.
    """
    read = {kind: _rotary(family) for kind, family in ROTARY.items() if _readable(family)}
    tied = {kind: ROTARY[kind].tied for kind in read} | {"gpt2": True}
    return {kind: {**entry, "tied": tied[kind]} for kind, entry in (read | {"gpt2": GPT2}).items()}


def form(kind: str, tied: bool, window: bool) -> str:
    """Name of a family's form, as an address has it: llama.tied."""
    return ".".join([kind, *(name for name, has in zip(FORMS, (tied, window), strict=True) if has)])


def _forms() -> Iterator[tuple[str, str, ModelSpec]]:
    for kind, entry in families().items():
        for tied, window in product((False, True), (False, True) if entry["window"] == "all" else (False,)):
            config: dict[str, Any] = {"model_type": kind, "tie_word_embeddings": tied}
            if entry["window"] == "all":
                config["sliding_window"] = WINDOW if window else None
            words = ", ".join([kind, *(["tied head"] if tied else []), *(["window"] if window else [])])
            yield form(kind, tied, window), f"a config.json ({words})", huggingface.read(kind, config)[0]


def models() -> dict[str, dict[str, Any]]:
    """One model for each form of each family, with the family's default sizes."""
    return {name: {"spec": spec.to_json(), "label": label, "file": True} for name, label, spec in _forms()}
