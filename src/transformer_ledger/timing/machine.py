"""Timing on this machine: its measured peak and bandwidth, interleaved repeats with quartiles, and peak memory.

A `Work` states its operations and bytes before it is run. From them and the machine's two peaks follows what should
bind it, and how long it should take (the roofline model: Williams, Waterman, Patterson, CACM 52(4), 2009).
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# Before torch is imported: threads that wait for each other sleep soon. Without a limit they spin on a core that another
# process wants, and a run on a busy machine takes ten times as long.
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

PEAK_SIZE = 1024  # rows and columns of the square product that measures the peak rate
COPY_BYTES = 2**27  # of the copy that measures bandwidth: far past the caches
PEAK_REPEATS = 7


@dataclass(frozen=True)
class Work:
    """Something to time: `run` does it once; `baseline` names the case that it is compared with."""

    case: str
    part: str
    run: Callable[[], Any]
    flops: int
    bytes_moved: int
    baseline: str | None = None


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


def measure(works: Sequence[Work], repeats: int, threads: int = 1) -> list[dict[str, Any]]:
    """Rows of a timing table: every work run `repeats` times after one warm-up, all of them in turn.

    Taking turns spreads a drift of the machine over all cases. `threads` as given, whatever the environment says.
    """
    import torch

    torch.set_num_threads(threads)
    flops_per_second, bytes_per_second = peaks()
    memory = [peak_bytes(work.run) for work in works]  # the warm-up
    samples: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, seconds in zip(works, samples, strict=True):
            seconds.append(once(work.run))
    medians = {(work.part, work.case): statistics.median(seconds) for work, seconds in zip(works, samples, strict=True)}
    counted = {(work.part, work.case): work.flops for work in works}
    rows = []
    for work, seconds, held in zip(works, samples, memory, strict=True):
        q1, median, q3 = statistics.quantiles(seconds, n=4, method="inclusive")
        compute, traffic = work.flops / flops_per_second, work.bytes_moved / bytes_per_second
        base = (work.part, work.baseline or work.case)
        rows.append(
            {
                "case": work.case,
                "part": work.part,
                "flops": work.flops,
                "bytes_moved": work.bytes_moved,
                "flops_per_byte": work.flops / work.bytes_moved,
                "peak_flops_per_second": flops_per_second,
                "peak_bytes_per_second": bytes_per_second,
                "bottleneck": "compute" if compute >= traffic else "memory",
                "expected_seconds": max(compute, traffic),
                "repeats": repeats,
                "median_seconds": median,
                "q1_seconds": q1,
                "q3_seconds": q3,
                "measured_to_expected": median / max(compute, traffic),
                "baseline": work.baseline,
                "expected_ratio": work.flops / counted[base] if work.baseline else None,
                "measured_ratio": median / medians[base] if work.baseline else None,
                "peak_bytes": held,
                "threads": torch.get_num_threads(),
                "device": "cpu",
            }
        )
    return rows
