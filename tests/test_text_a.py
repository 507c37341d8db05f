"""Text A, sections 1 to 7: every claim gets its registered verdict, and a module broken on purpose turns it."""

from __future__ import annotations

import copy
import importlib
import inspect
from typing import Any

import numpy as np
import pytest

from transformer_ledger import bounds
from transformer_ledger.claims.claim import verdict
from transformer_ledger.claims.text_a import CLAIMS
from transformer_ledger.reference import decoder, rope
from transformer_ledger.reference.arithmetic import Blas, Sequential
from transformer_ledger.verification import (
    causal_prefix,
)

Rows = list[dict[str, Any]]
BY_ID = {claim.id: claim for claim in CLAIMS}
MODEL = {"d_model": 24, "d_ff": 16, "norm": "rmsnorm", "feedforward": "gated"}
TEXT = "the dog bit the man and the man bit the dog and then the dog and the man sat on the mat " * 6
# The printed settings, with smaller samples; the wider intervals want a control that is further off.
SETTINGS: dict[str, dict[str, Any]] = {
    "embedding_lookup": {
        "vocabulary": 29,
        "d_model": 24,
        "negative_zero": [3, 5],
        "infinite_row": 7,
        "two_hot": [3, 11],
        "seed": 0,
    },
    "output_projection": {"d_model": 24, "heads": [1, 2, 4, 24], "shown_heads": 4, "tokens": 5, "seed": 0},
    "head_count": {
        "architecture": MODEL | {"layers": 1, "vocabulary": 29, "context": 16, "positions": "rope"},
        "heads": [1, 3, 12],
        "widths": [24, 64],
        "tokens": 5,
        "seed": 0,
        "other_seed": 1,
    },
    "score_scale": {
        "d_model": 32,
        "widths": [2, 4, 8, 16, 32, 64, 128],
        "weight_draws": 300,
        "pairs": 32,
        "confidence": 0.999,
        "half_width": 0.06,
        "token_variance": 16.0,
        "fixed": {"weight_draws": 100, "pairs": 2000},
        "saturation": {"keys": 16, "draws": 60, "threshold": 0.5, "flat": 0.1},
        "seed": 0,
    },
    "permutation": {
        "words": ["el", "gos", "mossega", "l'", "home"],
        "architecture": MODEL | {"heads": 4, "vocabulary": 29, "context": 16},
        "seed": 0,
    },
    "rope_relative": {
        "head_dims": [8, 24],
        "text_head_dim": 24,
        "pairings": ["interleaved", "half-split"],
        "base": 10000.0,
        "positions": 25,
        "factor": 4.0,
        "scores": {
            "d_model": 32,
            "widths": [2, 128],
            "weight_draws": 300,
            "pairs": 32,
            "confidence": 0.999,
            "half_width": 0.06,
        },
        "seed": 0,
    },
    "causal_prefix": {
        "architecture": {
            "layers": 2,
            "d_model": 32,
            "heads": 2,
            "d_ff": 32,
            "positions": "rope",
            "norm": "rmsnorm",
            "feedforward": "gated",
        },
        "tokens": 11,
        "initialisations": 20,
        "training": {
            "layers": 1,
            "length": 8,
            "batch": 16,
            "steps": 100,
            "learning_rate": 0.01,
            "held_out": 0.3,
        },
        "confidence": 0.999,
        "seed": 0,
        "text": TEXT,
    },
}


def run(name: str, **edits: Any) -> Rows:
    """Rows of one verification, with the settings edited."""
    compute = importlib.import_module(f"transformer_ledger.verification.{name}").compute
    settings = copy.deepcopy(SETTINGS[name]) | edits
    more = {"settings": settings} if "settings" in inspect.signature(compute).parameters else {}
    return compute(**settings, **more)


def found(claim: str, rows: Rows) -> str:
    return verdict(BY_ID[claim], [row for row in rows if row["claim"] == claim])


@pytest.fixture(scope="module")
def tables() -> dict[str, Rows]:
    return {name: run(name) for name in SETTINGS}


def test_registry() -> None:
    sections = {1: 2, 2: 3, 3: 3, 4: 3, 5: 4, 6: 3, 7: 3, 8: 4, 9: 6}
    assert [claim.id for claim in CLAIMS] == [f"A{s}.{n + 1}" for s, count in sections.items() for n in range(count)]
    for claim in CLAIMS:
        assert claim.statement.endswith(".")
        assert (claim.condition is None) == (claim.registered == "confirmed"), claim.id
    assert len({claim.statement for claim in CLAIMS}) == len(CLAIMS)
    names = {claim.section: claim.verification for claim in CLAIMS}
    assert all(names[claim.section] == claim.verification for claim in CLAIMS)


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS if claim.verification in SETTINGS], ids=lambda c: c.id)
def test_registered_verdict(claim: Any, tables: dict[str, Rows]) -> None:
    own = [row for row in tables[claim.verification] if row["claim"] == claim.id]
    assert verdict(claim, own) == claim.registered
    assert {row["claim"] for row in tables[claim.verification]} <= set(BY_ID)
    assert any(row["headline"] for row in own)
    assert len(
        {
            tuple(
                row[key] for key in ("case", "leg", "scope", "route", "other_route", "backend", "quantity", "printed")
            )
            for row in own
        }
    ) == len(own)
    if claim.needs_control:
        assert any(row["leg"] == "control" for row in own)


@pytest.mark.parametrize("claim", ["A5.1", "A5.3", "A7.1"])
def test_rounding_bounds_are_useful(claim: str, tables: dict[str, Rows]) -> None:
    own = [row for row in tables[BY_ID[claim].verification] if row["claim"] == claim]
    ours = [row for row in own if row["leg"] == "floating" and row["relation"] == "<=" and row["backend"]]
    assert 1e-3 <= max(row["measured"] / row["expected"] for row in ours) <= 1
    controls = [row for row in own if row["leg"] == "control" and row["relation"] == ">="]
    assert all(row["measured"] >= row["expected"] for row in controls)


@pytest.mark.parametrize("name", ["output_projection", "permutation", "head_count"])
def test_same_settings_same_rows(name: str, tables: dict[str, Rows]) -> None:
    assert run(name) == tables[name]


def turned(claims: dict[str, str], rows: Rows) -> None:
    assert {claim: found(claim, rows) for claim in claims} == claims


@pytest.mark.parametrize(
    ("name", "edit", "claim"),
    [
        ("output_projection", {"d_model": 48}, "A2.1"),
        ("rope_relative", {"base": 500000.0}, "A6.1"),
        ("rope_relative", {"base": 500000.0}, "A6.2"),
        ("rope_relative", {"positions": 24}, "A6.1"),
        ("rope_relative", {"text_head_dim": 8}, "A6.2"),
        ("score_scale", {"widths": [2, 16, 64]}, "A4.1"),
    ],
)
def test_printed_figures_do_not_apply_to_other_settings(name: str, edit: dict[str, Any], claim: str) -> None:
    rows = [row for row in run(name, **edit) if row["claim"] == claim]
    printed = [row for row in rows if row["printed"]]
    assert printed
    assert not any(row["applicable"] for row in printed if row["printed"] not in ("625", "49"))
    assert verdict(BY_ID[claim], rows) == "not applicable"


# ---- modules broken on purpose


def test_permutation_missing_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    right = decoder.visibility
    monkeypatch.setattr(decoder, "visibility", lambda tokens, causal, window=None: right(tokens, False, window))
    turned({"A5.3": "refuted", "A5.4": "refuted"}, run("permutation"))


def test_permutation_rope_without_rotation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rope, "rotate", lambda x, *rest: x)
    turned({"A5.1": "not settled", "A5.2": "refuted"}, run("permutation"))


def test_permutation_bound_of_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds.Bounded, "error", property(lambda self: np.zeros(self.shape)))
    turned({"A5.1": "refuted"}, run("permutation"))


def test_permutation_last_word_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first word stands last in some orders: then the last position's own token is another one."""
    module = importlib.import_module("transformer_ledger.verification.permutation")
    right = module.orders
    monkeypatch.setattr(module, "orders", lambda words: np.concatenate([right(words), right(words)[:, ::-1]]))
    turned({"A5.1": "refuted"}, run("permutation"))


def test_permutation_other_words() -> None:
    rows = run("permutation", words=["a", "b", "c"])
    turned({"A5.1": "not applicable", "A5.2": "not applicable", "A5.3": "confirmed"}, rows)
    with pytest.raises(ValueError, match="vocabulary of 2"):
        run("permutation", architecture=SETTINGS["permutation"]["architecture"] | {"vocabulary": 2})


def passes(monkeypatch: pytest.MonkeyPatch) -> Rows:
    """A7.1 and A7.2 alone."""
    for name in ("_untrained", "_trained"):
        monkeypatch.setattr(causal_prefix, name, lambda *arguments: [])
    return run("causal_prefix")


def test_causal_prefix_missing_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    right = decoder.visibility
    monkeypatch.setattr(decoder, "visibility", lambda tokens, causal, window=None: right(tokens, False, window))
    turned({"A7.1": "refuted", "A7.2": "not settled"}, passes(monkeypatch))


def test_causal_prefix_mask_that_cannot_be_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    right = decoder.visibility
    monkeypatch.setattr(decoder, "visibility", lambda tokens, causal, window=None: right(tokens, True, window))
    turned({"A7.1": "not settled", "A7.2": "refuted"}, passes(monkeypatch))


def test_causal_prefix_order_that_depends_on_the_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_shape(self: Any, a: Any, b: Any) -> Any:
        half = a.shape[-2] % 5
        return Blas.matmul(self, a[..., :half], b[..., :half, :]) + Blas.matmul(self, a[..., half:], b[..., half:, :])

    monkeypatch.setattr(Sequential, "matmul", by_shape)
    turned({"A7.1": "refuted"}, passes(monkeypatch))


def test_causal_prefix_bound_of_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds.Bounded, "error", property(lambda self: np.zeros(self.shape)))
    turned({"A7.1": "refuted"}, passes(monkeypatch))


def test_causal_prefix_without_training(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_passes", "_exact"):
        monkeypatch.setattr(causal_prefix, name, lambda *arguments: [])
    training = SETTINGS["causal_prefix"]["training"] | {"steps": 0}
    turned({"A7.3": "not settled"}, [*run("causal_prefix", training=training)])
    with pytest.raises(ValueError, match="too few"):
        run("causal_prefix", text="too short")
