"""How far long work has come: a line in the job's log, at most one a second."""

from __future__ import annotations

import sys
import time

EVERY = 1.0  # second


class Progress:
    """Says `n of m`, and about how long the rest takes at the mean rate so far."""

    def __init__(self, total: int, unit: str):
        self.total, self.unit = total, unit
        self.begin = self.said = time.monotonic()

    def __call__(self, done: int) -> None:
        """`done` of the total are done, one or more of them since the last call."""
        now = time.monotonic()
        if now - self.said < EVERY or not done:
            return
        self.said = now
        left = (now - self.begin) / done * max(self.total - done, 0)
        print(f"{done:,} of {self.total:,} {self.unit}, about {left:.0f} s left", file=sys.stderr, flush=True)
