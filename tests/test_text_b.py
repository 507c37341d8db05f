"""B4, B6, B8 and the timings: helpers against values known from elsewhere."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from transformer_ledger.timing import machine
from transformer_ledger.verification import norms, online_softmax, rope_precision

Rows = list[dict[str, Any]]


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


def test_timing_rows_are_complete() -> None:
    works = [
        machine.Work("one", "sum", {}, lambda: sum(range(100)), 100, 800),
        machine.Work("two", "sum", {}, lambda: sum(range(200)), 200, 1600, "one"),
    ]
    first, second = machine.measure(works, {"least": 3, "most": 3, "spread": 1.0})
    assert first["q1_seconds"] <= first["median_seconds"] <= first["q3_seconds"]
    assert second["expected_ratio"] == 2
    assert second["bottleneck"] == "memory"
    assert second["baseline"] == "one"
    assert "measured_ratio" not in first


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
