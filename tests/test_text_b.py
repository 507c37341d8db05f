"""B1 to B8: the verdicts with small settings, and that they turn when something is broken on purpose."""

from __future__ import annotations

import copy
import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from transformer_ledger.claims import text_b
from transformer_ledger.claims.claim import verdict
from transformer_ledger.executed import run as execution
from transformer_ledger.formulas import architecture
from transformer_ledger.timing import machine
from transformer_ledger.verification import (
    grouped_query,
    matmul_scaling,
    norms,
    online_softmax,
    rope_precision,
    teaching_parameters,
    training_state,
)

Rows = list[dict[str, Any]]
SHAPE = {"layers": 2, "d_model": 12, "heads": 3, "d_ff": 20, "vocabulary": 29, "context": 16}
TEACHING = teaching_parameters.teaching(SHAPE)
RECIPES = {
    "fp32": {"weights": "fp32", "master_weights": None, "gradients": "fp32", "optimizer": "adamw", "moments": "fp32"},
    "bf16": {"weights": "bf16", "master_weights": None, "gradients": "bf16", "optimizer": "adamw", "moments": "bf16"},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "teaching_parameters": {"shapes": [SHAPE], "batch": 2, "lengths": [2, 4], "seed": 0},
    "training_state": {
        "models": {"teaching": TEACHING.to_json()},
        "shape": SHAPE,
        "batches": [1, 2],
        "length": 8,
        "seed": 0,
        "execution": {"teaching": execution.compute(TEACHING.to_json(), None, {}, RECIPES, [])},
    },
    "matmul_scaling": {"shape": SHAPE, "batches": [1, 2], "lengths": [8, 16], "blocks": [4]},
    "grouped_query": {
        "largest_heads": 8,
        "map": {"heads": 8, "kv_heads": 2},
        "printed": {"heads": 8, "kv_heads": 2, "head_dim": 16},
        "tokens": 2,
        "head_dim": 2,
        "cache": {"batch": 2, "context": 8, "heads": 8, "kv_heads": 2, "head_dim": 4},
        "seed": 0,
    },
}


def _rows(name: str, **changes: Any) -> Rows:
    module = importlib.import_module(f"transformer_ledger.verification.{name}")
    made: Rows = module.compute(**{**copy.deepcopy(SETTINGS[name]), **changes})
    return made


def _verdicts(rows: Rows) -> dict[str, str]:
    claims = {row["claim"] for row in rows}
    return {
        claim.id: verdict(claim, [row for row in rows if row["claim"] == claim.id])
        for claim in text_b.CLAIMS
        if claim.id in claims
    }


@pytest.fixture(scope="module")
def made() -> dict[str, Rows]:
    """Rows of every verification of B1 to B8, nothing broken."""
    return {name: _rows(name) for name in SETTINGS}


def test_registry_has_every_claim_once() -> None:
    counts = {1: 3, 2: 2, 3: 3, 4: 5, 5: 5, 6: 4, 7: 3, 8: 4, 9: 1, 10: 2}
    wanted = [f"B{section}.{number}" for section, n in counts.items() for number in range(1, n + 1)]
    assert [claim.id for claim in text_b.CLAIMS] == wanted
    assert [claim.id for claim in text_b.CLAIMS if claim.registered != "confirmed"] == ["B5.3"]


@pytest.mark.parametrize("name", SETTINGS)
def test_verdicts_are_the_registered_ones(made: dict[str, Rows], name: str) -> None:
    found = _verdicts(made[name])
    wanted = {claim.id: claim.registered for claim in text_b.CLAIMS if claim.verification == name}
    assert found == wanted


@pytest.mark.parametrize("name", SETTINGS)
def test_every_row_says_what_it_must(made: dict[str, Rows], name: str) -> None:
    for row in made[name]:
        assert math.isfinite(row["measured"]), row
        assert row["relation"] != "<=" or row["leg"] != "floating" or row["bound_source"], row
    shown = {row["claim"] for row in made[name] if row["headline"]}
    assert shown == {row["claim"] for row in made[name]}


def test_b5_3_gives_the_right_values(made: dict[str, Rows]) -> None:
    right = [row["measured_exact"] for row in made["grouped_query"] if row["scope"] == "corrected" and row["headline"]]
    assert right == ["32768", "8192"]
    wrong = [row for row in made["grouped_query"] if row["claim"] == "B5.3" and not row["holds"]]
    assert [row["printed"] for row in wrong] == ["32,776", "81,912"]


def test_edited_projections_are_not_the_text_s() -> None:
    rows = _rows("grouped_query", printed={"heads": 4, "kv_heads": 2, "head_dim": 8})
    assert _verdicts(rows)["B5.3"] == "not applicable"


def test_rotation_error_is_the_known_one() -> None:
    """fp32, base 10000, d_h 128: about 3e-5 at position 1000 and 5e-3 at 100000, known from elsewhere."""
    found = {
        position: rope_precision.Reference(40)
        .error(rope_precision.computed([position], 128, 1e4, "fp32"), [position], 128, 1e4)
        .max()
        for position in (1000, 100000)
    }
    assert 2e-5 < found[1000] < 4e-5
    assert 4e-3 < found[100000] < 6e-3


def test_ordered_partitions_are_all_there() -> None:
    assert [sum(1 for _ in online_softmax.ordered_partitions(range(n))) for n in range(6)] == [1, 1, 3, 13, 75, 541]


def test_octaves_hold_their_positions() -> None:
    for high, positions in rope_precision.sampled(12, 5, np.random.default_rng(0)):
        assert positions[-1] == high
        assert all(high // 2 < position <= high for position in positions)


def test_operations_are_counted_one_by_one() -> None:
    # By hand for two components: RMSNorm 2 squares, 1 sum, mean, ε, root, 2 quotients.
    assert (norms.operations(2, "rmsnorm"), norms.operations(2, "layernorm")) == (8, 12)


# Broken on purpose: (verification, claim, what is put in place of what, the verdict that it must turn to).

REFUTED, OPEN = "refuted", "not settled"
Patch = tuple[Any, str, Any]


trained = training_state._trained


def _same(spec: Any) -> Any:
    return spec


def _plain_sgd(shape: Any, batch: int, length: int, seed: int, optimizer: str) -> Any:
    return trained(shape, batch, length, seed, "sgd")


BROKEN: dict[str, tuple[str, str, Patch, str]] = {
    "a term of the formula": (
        "teaching_parameters",
        "B1.1",
        (architecture, "teaching_parameters", lambda V, d, C, L, f: 2 * V * d + C * d + L * (4 * d**2 + 2 * d * f)),
        REFUTED,
    ),
    "a control without a change": (
        "teaching_parameters",
        "B1.1",
        (teaching_parameters, "with_attention_biases", _same),
        OPEN,
    ),
    "probabilities linear in T": (
        "teaching_parameters",
        "B1.3",
        (architecture, "attention_probabilities", lambda B, h, T, b: B * h * T * b),
        REFUTED,
    ),
    "another optimiser": (
        "training_state",
        "B2.1",
        (training_state, "_trained", _plain_sgd),
        REFUTED,
    ),
    "half the projections": (
        "matmul_scaling",
        "B3.1",
        (architecture, "attention_projections", lambda B, T, d: 4 * B * T * d**2),
        REFUTED,
    ),
    "attention linear in T": (
        "matmul_scaling",
        "B3.3",
        (architecture, "attention_scores_and_values", lambda B, T, d: 4 * B * T * d),
        REFUTED,
    ),
    "a kernel that does not skip": (
        "matmul_scaling",
        "B3.2",
        (matmul_scaling, "skipping", lambda block: lambda x, tokens: (x @ x.transpose(-1, -2)) @ x),
        OPEN,
    ),
    "map i mod h_kv": ("grouped_query", "B5.1", (architecture, "key_value_head", lambda i, g: i % g), REFUTED),
    "another ratio": (
        "grouped_query",
        "B5.2",
        (grouped_query.cache_formulas, "ratio_to_multi_head", lambda h_kv, h: 1 - h_kv / h),
        REFUTED,
    ),
    "a formula that is wrong as well": (
        "grouped_query",
        "B5.3",
        (architecture, "grouped_attention_parameters", lambda d, h_kv, d_h: 2 * d**2 + d * h_kv * d_h),
        OPEN,
    ),
    "copies that lose nothing": (
        "grouped_query",
        "B5.4",
        (grouped_query.cache_formulas, "full", lambda B, T, h_kv, d_h, b: B * T * h_kv * d_h * b),
        REFUTED,
    ),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("broken", BROKEN)
def test_breaking_it_turns_the_verdict(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    name, claim, (owner, attribute, replacement), wanted = BROKEN[broken]
    monkeypatch.setattr(owner, attribute, replacement)
    assert _verdicts(_rows(name))[claim] == wanted


def test_timing_rows_are_complete() -> None:
    works = [
        machine.Work("one", "sum", lambda: sum(range(100)), 100, 800),
        machine.Work("two", "sum", lambda: sum(range(200)), 200, 1600, "one"),
    ]
    first, second = machine.measure(works, 3)
    assert first["q1_seconds"] <= first["median_seconds"] <= first["q3_seconds"]
    assert second["expected_ratio"] == 2
    assert second["bottleneck"] == "memory"
    assert first["measured_ratio"] is None


def test_peak_bytes_sees_what_is_held_at_once() -> None:
    import torch

    x = torch.ones(1000)

    def run() -> Any:
        y = x + 1
        return y + 1

    def lone() -> Any:
        return x.add(1).sum()

    # Two results at once, then one and its sum; torch wraps the 1 in a tensor of a few bytes.
    assert 8000 <= machine.peak_bytes(run) < 8100
    assert 4004 <= machine.peak_bytes(lone) < 4100


REPEATS = {"least": 5, "most": 6, "spread": 1.0}


@pytest.mark.parametrize(
    ("name", "settings", "cases"),
    [
        ("matmul_scaling", {"d_model": 16, "heads": 2, "batch": 1, "length": 8, "repeats": REPEATS, "seed": 0}, 3),
        ("norms", {"widths": [8, 16], "rows": 4, "repeats": REPEATS, "seed": 0}, 4),
    ],
)
def test_timed_jobs_give_their_rows(monkeypatch: pytest.MonkeyPatch, name: str, settings: Any, cases: int) -> None:
    monkeypatch.setattr(machine, "PEAK_SIZE", 32)
    monkeypatch.setattr(machine, "COPY_BYTES", 4096)
    module = importlib.import_module(f"transformer_ledger.timing.{name}")
    compute: Callable[..., Rows] = module.compute
    rows = compute(**settings)
    assert len({row["case"] for row in rows}) == cases
    assert all(row["median_seconds"] > 0 for row in rows)
    assert {row["difference"] for row in rows if row["counted_flops"] is not None} <= {0}
