"""Timing on this machine: its measured peak and bandwidth, interleaved repeats with intervals, and peak memory.

A `Work` states its operations and bytes before it is run. From them and the machine's two peaks follows what should
bind it, and how long it should take (the roofline model: Williams, Waterman, Patterson, CACM 52(4), 2009).
"""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformer_ledger.progress import Progress

# Before torch is imported: threads that wait for each other sleep soon. Without a limit they spin on a core that another
# process wants, and a run on a busy machine takes ten times as long.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")
os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or the profiler writes two lines a run into the log

PEAK_SIZE = 1024  # rows and columns of the square product that measures the peak rate
COPY_BYTES = 2**27  # of the copy that measures bandwidth: far past the caches
PEAK_REPEATS = 7
WARMUPS = 1  # runs of a work before it is timed
CONFIDENCE = 0.9  # of the interval of a median, at least


@dataclass(frozen=True)
class Work:
    """Something to time: `run` does it once; `parameters` are what its case says in words; `baseline` names the case that
    it is compared with."""

    case: str
    part: str
    parameters: Mapping[str, Any]
    run: Callable[[], Any]
    flops: int
    bytes_moved: int
    baseline: str | None = None


@dataclass(frozen=True)
class Repeats:
    """How often a work is timed: `least` to `most` times, until its spread is no more than `spread`."""

    least: int
    most: int
    spread: float  # see the function of this name


def once(run: Callable[[], Any]) -> float:
    """Seconds of one call."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def peaks() -> tuple[float, float]:
    """Best rate of a large fp32 matrix product [FLOP/s] and of a large copy, reads and writes counted [byte/s]."""
    import torch

    a = torch.ones(PEAK_SIZE, PEAK_SIZE)
    product = torch.empty_like(a)
    source = torch.ones(COPY_BYTES // 4)
    target = torch.empty_like(source)
    seconds = min(once(lambda: torch.mm(a, a, out=product)) for _ in range(PEAK_REPEATS))
    copy_seconds = min(once(lambda: target.copy_(source)) for _ in range(PEAK_REPEATS))
    return 2 * PEAK_SIZE**3 / seconds, 2 * COPY_BYTES / copy_seconds


def peak_bytes(run: Callable[[], Any]) -> int:
    """Most bytes held at once during one call, beyond what was held before it, from the profiler's memory events."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = run()
    held = most = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    del result
    return most


def products() -> Any:
    """torch's FlopCounterMode, which also counts in-place batched products: by itself it takes them for nothing."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode, baddbmm_flop

    def in_place(*shapes: Any, out_shape: Any = None, **rest: Any) -> int:
        return int(baddbmm_flop(*shapes[:3]))

    return FlopCounterMode(display=False, custom_mapping={torch.ops.aten.baddbmm_: in_place})


def warmed_up(run: Callable[[], Any]) -> tuple[int, int | None]:
    """The warm-up: most bytes held, and the operations of the matrix products that ran, by torch's count of each call.

    None where no product shows: a norm has none, and the fused kernel keeps its own to itself.
    """
    with products() as counter:
        held = peak_bytes(run)
    return held, counter.get_total_flops() or None


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """An interval for the median of independent values of any one distribution, and its exact confidence.

    Its ends are order statistics, the kth from either side: P = 1 − 2·P(Binomial(n, ½) < k) (David and Nagaraja, Order
    Statistics, 3rd edition, section 7.1). k is the largest that leaves CONFIDENCE, or 1 where there are too few values.
    """
    ordered, n = sorted(values), len(values)
    missed = [2 * sum(math.comb(n, i) for i in range(k)) / 2**n for k in range(1, n // 2 + 1)]
    k = max((k for k, chance in enumerate(missed, 1) if 1 - chance >= CONFIDENCE), default=1)
    return ordered[k - 1], ordered[n - k], 1 - missed[k - 1] if missed else 0.0


def spread(seconds: Sequence[float]) -> float:
    """Half the width of the median's interval, as a share of the median."""
    low, high, _ = median_interval(seconds)
    return (high - low) / 2 / statistics.median(seconds)


def sampled(works: Sequence[Work], repeats: Repeats) -> list[list[float]]:
    """Seconds of every work, all of them in turn, so that a drift of the machine spreads over all cases.

    What is compared stays together, and ends when the spread of each of its members is small enough.
    """
    samples: list[list[float]] = [[] for _ in works]
    groups: dict[tuple[str, str], list[int]] = {}
    for i, work in enumerate(works):
        groups.setdefault((work.part, work.baseline or work.case), []).append(i)
    done, progress = 0, Progress(repeats.most * len(works), "timed runs at most")
    for turn in range(1, repeats.most + 1):
        for i in sorted(i for members in groups.values() for i in members):
            samples[i].append(once(works[i].run))
            done += 1
            progress(done)
        if turn >= repeats.least:
            settled = [key for key, own in groups.items() if all(spread(samples[i]) <= repeats.spread for i in own)]
            for key in settled:
                progress.total -= (repeats.most - turn) * len(groups.pop(key))
    return samples


def compared(seconds: Sequence[float], base: Sequence[float]) -> dict[str, Any]:
    """How many times as long as the baseline: the median over the turns, in each of which both ran, and its interval."""
    ratios = [a / b for a, b in zip(seconds, base, strict=True)]
    low, high, confidence = median_interval(ratios)
    outcome = "no clear difference" if low <= 1 <= high else "longer" if low > 1 else "shorter"
    return {
        "measured_ratio": statistics.median(ratios),
        "ratio_low": low,
        "ratio_high": high,
        "ratio_confidence": confidence,
        "outcome": outcome,
    }


def measure(works: Sequence[Work], repeats: Mapping[str, Any], threads: int = 1) -> list[dict[str, Any]]:
    """Rows of a timing table: every work run once to warm up, under the memory profiler, then timed in turns.

    `repeats` are Repeats' fields. `threads` as given, whatever the environment says.
    """
    import torch

    torch.set_num_threads(threads)
    flops_per_second, bytes_per_second = peaks()
    warm = [warmed_up(work.run) for work in works]
    asked = Repeats(**repeats)
    samples = sampled(works, asked)
    known = {(work.part, work.case): (work.flops, seconds) for work, seconds in zip(works, samples, strict=True)}
    rows = []
    for work, seconds, (held, ran) in zip(works, samples, warm, strict=True):
        q1, median, q3 = statistics.quantiles(seconds, n=4, method="inclusive")
        compute, traffic = work.flops / flops_per_second, work.bytes_moved / bytes_per_second
        row = {
            "case": work.case,
            "part": work.part,
            "parameters": json.dumps(work.parameters, sort_keys=True),
            "flops": work.flops,
            "counted_flops": ran,
            "difference": None if ran is None else work.flops - ran,
            "bytes_moved": work.bytes_moved,
            "flops_per_byte": work.flops / work.bytes_moved,
            "peak_flops_per_second": flops_per_second,
            "peak_bytes_per_second": bytes_per_second,
            "bottleneck": "compute" if compute >= traffic else "memory",
            "expected_seconds": max(compute, traffic),
            "warmups": WARMUPS,
            "interleaved": len(works),
            "repeats": len(seconds),
            "median_seconds": median,
            "q1_seconds": q1,
            "q3_seconds": q3,
            "spread": spread(seconds),
            "spread_wanted": asked.spread,
            "measured_to_expected": median / max(compute, traffic),
            "peak_bytes": held,
            "threads": torch.get_num_threads(),
            "device": "cpu",
        }
        if work.baseline:
            flops, base = known[work.part, work.baseline]
            row |= {"baseline": work.baseline, "expected_ratio": work.flops / flops, **compared(seconds, base)}
        rows.append(row)
    return rows
