"""Limits on this process's heap, life and reading: what does not fit fails with a message, not with the machine."""

from __future__ import annotations

import errno
import os
import resource
import stat
import threading
import time
from pathlib import Path

TEXT_BYTES = 8 * 2**20  # of a config; the longest published one has some kilobytes


def shown(text: object, most: int) -> str:
    """A text as part of a message: on one line, control characters as their escapes, its middle left out past `most`."""
    line = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in str(text))
    return line if len(line) <= most else f"{line[: most // 2]} … {line[-(most // 2) :]}"


def memory(most: int) -> None:
    """Lower the soft limit on the heap to `most` bytes, or leave it where it is lower already."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [limit for limit in (most, soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))


def follow(leader: int) -> None:
    """End this process within a second after process `leader` has ended, so that it writes into no later run."""

    def watch() -> None:
        try:
            while True:
                os.kill(leader, 0)
                time.sleep(0.5)
        except OSError:
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def text(path: str | Path) -> str:
    """The text of a regular file of at most TEXT_BYTES in UTF-8, a byte order mark left out.

    Raises OSError, also where it is a pipe, a device or a folder, or too long; UnicodeDecodeError where it is no text.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe without a writer would wait
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if status.st_size > TEXT_BYTES:
            raise OSError(errno.EFBIG, f"{status.st_size} bytes; at most {TEXT_BYTES} are read")
        return file.read(TEXT_BYTES).decode("utf-8-sig")
