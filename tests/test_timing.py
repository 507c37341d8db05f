"""Timings: the interval of a median is as sure as it says, runs end when the spread is small, outcomes need an interval."""

from __future__ import annotations

import itertools
import random

import pytest

from transformer_ledger.progress import Progress
from transformer_ledger.timing import machine
from transformer_ledger.timing.machine import Repeats, Work, compared, median_interval, sampled


@pytest.mark.parametrize("n", [2, 5, 7, 8, 20])
def test_the_interval_of_a_median_by_enumeration(n):
    """Each value lies below the true median or above it with equal chance: the exact share of all 2ⁿ ways, counted."""
    low, high, confidence = median_interval(range(n))
    below = [ways.count(True) for ways in itertools.product([True, False], repeat=n)] if n < 10 else None
    if below is None:
        draws = random.Random(0)
        below = [sum(draws.random() < 0.5 for _ in range(n)) for _ in range(20000)]
    inside = sum(low + 1 <= count < high + 1 for count in below) / len(below)
    assert inside == pytest.approx(confidence, abs=1e-12 if n < 10 else 0.01)
    assert confidence >= machine.CONFIDENCE or n < 5
    assert (low + high) / 2 == (n - 1) / 2


def test_an_interval_of_one_value_is_no_statement():
    assert median_interval([3.0]) == (3.0, 3.0, 0.0)


def test_a_difference_needs_its_interval():
    base = [1.0, 1.1, 0.9, 1.2, 1.0, 0.8]
    drift = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    for factor, outcome in ((1.5, "longer"), (0.7, "shorter")):
        found = compared([factor * a for a in base], base)
        assert found["outcome"] == outcome
        assert found["measured_ratio"] == pytest.approx(factor)
        # A drift that both share within a turn takes nothing away from it.
        both = compared([factor * a * b for a, b in zip(base, drift, strict=True)],
                        [a * b for a, b in zip(base, drift, strict=True)])  # fmt: skip
        assert both["ratio_high"] - both["ratio_low"] < 1e-12
    # Quartiles of 63 and 130 of one baseline say nothing, though the medians differ.
    assert compared([63, 130, 90, 140, 50], [100, 90, 110, 70, 80])["outcome"] == "no clear difference"


def work(case, baseline=None):
    return Work(case, "all", {}, lambda: None, 1, 1, baseline)


def test_runs_end_when_what_is_compared_is_steady(monkeypatch):
    """Two steady cases that are compared, and one that never settles: it alone goes on to the most."""
    clock = {"steady": itertools.repeat(1.0), "like it": itertools.repeat(2.0), "wild": itertools.cycle([1.0, 9.0])}
    works = [work("steady"), work("like it", "steady"), work("wild")]
    names = itertools.chain(["steady", "like it", "wild"] * 5, itertools.repeat("wild"))
    monkeypatch.setattr(machine, "once", lambda run: next(clock[next(names)]))
    samples = sampled(works, Repeats(least=5, most=12, spread=0.05))
    assert [len(seconds) for seconds in samples] == [5, 5, 12]
    assert set(samples[1]) == {2.0}


def test_progress_is_a_line_a_second(monkeypatch, capsys):
    now = itertools.count(0.0, 0.4)
    monkeypatch.setattr("transformer_ledger.progress.time.monotonic", lambda: next(now))
    progress = Progress(10, "steps")
    for done in range(1, 11):
        progress(done)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "4 of 10 steps, about 2 s left", "7 of 10 steps, about 1 s left", "10 of 10 steps, about 0 s left"
    ]  # fmt: skip
