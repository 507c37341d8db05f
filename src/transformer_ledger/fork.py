"""Parents for jobs: each imports slow packages once, then forks itself for every job that asks.

Usage: `python -m transformer_ledger.fork FOLDER [transformers]`; with `transformers`, a second parent imports that too.

A run of many jobs would import torch two dozen times. A parent imports no job code of this project, so a forked job reads
the code as it would by itself. If an import starts a thread, the parent exits, because a fork would not be safe. A parent
ends when its run ends. A job runs by itself if it finds no parent, or if a variable of THREADS is not 1 in its environment.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Container
from pathlib import Path

PLACE = "TRANSFORMER_LEDGER_FORK"  # environment: the folder of the parents' sockets
ENOUGH = 4  # jobs that a parent can serve, from which on it saves more than it costs
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # read at import
ENVIRONMENT = {**THREADS, "HF_HUB_OFFLINE": "1"}  # of a parent
PARENTS = {"torch": ("numpy", "torch"), "transformers": ("transformers.models.llama.modeling_llama",)}
"""Package that a job uses → what its parent imports, in this order; the second parent is forked from the first."""
BEGUN = b"+"
WHO = [sys.prefix, __file__]  # the packages and the code: a parent serves its own only


def ask(packages: Container[str]) -> int | None:
    """Have a parent run this process's command, with its files and environment; the exit code, None where none does."""
    wanted = [name for name in PARENTS if name in packages]
    if not wanted or any(os.environ.get(name) != one for name, one in THREADS.items()):
        return None
    message = json.dumps([WHO, sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(os.path.join(os.environ[PLACE], wanted[-1]))
            socket.send_fds(connection, [len(message).to_bytes(8, "big")], [0, 1, 2])
            connection.sendall(message)
            if connection.recv(1) != BEGUN:
                return None
        except OSError:
            return None
        code = connection.recv(1)
    if not code:
        print("the job was killed", file=sys.stderr)
    return code[0] if code else 1


def _job(connection: socket.socket) -> int:
    """Run the command that a connection asks for, in this process, which ends with the one that asked."""
    from transformer_ledger import __main__ as job

    size, files, *_ = socket.recv_fds(connection, 8, 3)
    if not size:  # who asked is gone
        os._exit(0)
    with connection.makefile("rb") as stream:
        who, arguments, folder, environment = json.loads(stream.read(int.from_bytes(size, "big")))
    if who != WHO:  # of a run around this one, or in a conda environment: it runs by itself
        os._exit(0)
    for target, file in enumerate(files):
        os.dup2(file, target)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    connection.send(BEGUN)
    threading.Thread(target=lambda: (connection.recv(1), os._exit(1)), daemon=True).start()
    return job.command(arguments)


def _forked(connection: socket.socket) -> None:
    """The life of a job's process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code = 1
    try:
        code = _job(connection)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    connection.send(bytes([code]))
    os._exit(0)


def _follow(leader: int) -> None:
    """From now on, end this process within half a second of its leader's end, whatever it is doing."""
    signal.signal(signal.SIGALRM, lambda *_: os.getppid() == leader or os._exit(1))
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, 0.5, 0.5)


def serve(place: Path) -> None:
    """Fork a job for every connection to `place`, until the process that started this one has ended."""
    leader = os.getppid()
    _follow(leader)  # the imports take seconds
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen(1024)  # who asks during the imports waits
        for package in PARENTS[place.name]:
            importlib.import_module(package)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if len(os.listdir("/proc/self/task")) > 1:
            sys.exit(f"{place.name} starts threads where it is imported, so its jobs run by themselves")
        if place.name == "torch" and "transformers" in sys.argv and os.fork() == 0:
            listener.close()
            serve(place.with_name("transformers"))
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody here waits for a job
        listener.settimeout(0.5)
        while os.getppid() == leader:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            if os.fork() == 0:
                listener.close()
                _forked(connection)
            connection.close()
        with contextlib.suppress(OSError):  # the run itself removes the folder, unless it was killed
            place.unlink()
            place.parent.rmdir()
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C also reaches this process; the run ends it
    serve(Path(sys.argv[1], "torch"))
