"""How far long work has come: a line in the job's log, at most one a second."""

from __future__ import annotations

import sys
import time

EVERY = 1.0  # second


class Progress:
    """Says `n of m`, and about how long the rest takes at the mean rate so far."""

    def __init__(self, total: int, unit: str):
        self.total, self.unit = total, unit
        self.first: tuple[float, int] | None = None  # when the first call came, and what was done then
        self.said = 0.0

    def __call__(self, done: int) -> None:
        """`done` of the total are done. The first call starts the clock: the first piece may hold what is done only once."""
        now = time.monotonic()
        if self.first is None:
            self.first, self.said = (now, done), now
        begin, before = self.first
        if now - self.said < EVERY or done <= before:
            return
        self.said = now
        left = (now - begin) / (done - before) * max(self.total - done, 0)
        print(f"{done:,} of {self.total:,} {self.unit}, about {left:.0f} s left", file=sys.stderr, flush=True)
