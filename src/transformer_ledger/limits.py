"""A limit on this process's heap: what does not fit fails with a message, not with the machine."""

from __future__ import annotations

import resource


def memory(most: int) -> None:
    """Lower the soft limit on the heap to `most` bytes, or leave it where it is lower already."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [limit for limit in (most, soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
