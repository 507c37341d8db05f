"""A real Slurm of one node on this machine, started and stopped without systemd.

All its files are in one temporary folder, but for a link to its slurm.conf in /etc/slurm: srun, which the plugin starts in
a job, is not told of another place. A machine that has a slurm.conf of its own is left alone.

`python tests/cluster/slurm.py COMMAND …` starts it, runs the command with SLURM_CONF set, and stops it. It wants
Debian's packages slurm-wlm and munge, and root: slurmd starts the processes of jobs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
KNOWN = Path("/etc/slurm/slurm.conf")  # where Debian's Slurm looks
SBIN = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=1,bf_interval=1
MinJobAge=300
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory={memory} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> list[str]:
    """Programs of Slurm and munge that this machine lacks."""
    return [name for name in (*DAEMONS, "sbatch", "squeue") if not shutil.which(name, path=SBIN)]


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in opened:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in opened]


def _configure(folder: Path) -> Path:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o400)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    path = folder / "slurm.conf"
    text = CONFIG.format(
        host=socket.gethostname().split(".")[0],
        folder=folder,
        ports=_free_ports(2),
        cores=os.cpu_count(),
        memory=memory * 3 // 4,
    )
    path.write_text(text, encoding="utf-8")
    return path


def _ready(config: dict[str, str], daemons: list[subprocess.Popen[bytes]], folder: Path) -> None:
    """Wait until the node takes jobs. Raises RuntimeError with the daemons' logs where it does not."""
    for _ in range(60):
        found = subprocess.run(["sinfo", "--noheader", "--format=%T"], env=config, capture_output=True, text=True)
        if found.stdout.strip() == "idle":
            return
        if any(daemon.poll() is not None for daemon in daemons):
            break
        time.sleep(0.5)
    logs = "".join(path.read_text(errors="replace")[-2000:] for path in sorted(folder.glob("*.log")))
    raise RuntimeError(f"Slurm does not start: {found.stdout}{found.stderr}\n{logs}")


@contextlib.contextmanager
def cluster() -> Iterator[dict[str, str]]:
    """The environment in which sbatch and squeue talk to a Slurm of one node, as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        environment = {**os.environ, "PATH": SBIN, "SLURM_CONF": str(_configure(folder))}
        own = [f"--{name}={folder}/munge.{name}" for name in ("socket", "pid-file", "log-file", "seed-file")]
        commands = {
            "munged": ["munged", "--foreground", "--force", f"--key-file={folder}/key", *own],
            "slurmctld": ["slurmctld", "-D", "-i"],
            "slurmd": ["slurmd", "-D"],
        }
        daemons = []
        KNOWN.symlink_to(environment["SLURM_CONF"])  # fails where there is one already
        try:
            for name, command in commands.items():
                log = (folder / f"{name}.log").open("wb")
                daemons.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
                time.sleep(0.5 if name == "munged" else 0)
            _ready(environment, daemons, folder)
            yield environment
        finally:
            for daemon in reversed(daemons):
                daemon.terminate()
            for daemon in daemons:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    daemon.wait(20)
                daemon.kill()
            KNOWN.unlink()


if __name__ == "__main__":
    if lacking := missing():
        sys.exit(f"missing: {', '.join(lacking)} (Debian: apt-get install slurm-wlm munge)")
    with cluster() as environment:
        sys.exit(subprocess.run(sys.argv[1:] or ["sinfo"], env=environment).returncode)
