# One run at a time in a folder; a run that is stopped says in one line how to go on.
import atexit
import contextlib
import errno
import fcntl
import logging
import shutil
import signal
import subprocess
import tempfile
import threading

import psutil

STOPPED = []  # the signal that stopped this run
FORKS = []  # the process whose forks are jobs
LOCK = []  # held open; the system gives it back when this process ends, however it ends


def stop(number, frame):
    """End the jobs, then this process, as it does where a job fails; what it would print then is no news."""
    for again in (signal.SIGINT, signal.SIGTERM):
        signal.signal(again, lambda *_: None)  # SIG_IGN would pass on to a job that is just being started, and keep it
    STOPPED.append(signal.Signals(number).name)
    logging.disable(logging.CRITICAL)
    threading.Thread(target=end_jobs, daemon=True).start()
    sys.exit(1)


def end_jobs():
    """End the jobs, those too that are just being started, for as long as this process lives."""
    while True:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        time.sleep(0.2)


def preload():
    """Start the parents that fork jobs, where enough jobs want one; on this machine, for a job elsewhere finds none."""
    wanted = [plan.spec(plan.maker(job.output[0]))["packages"] for job in workflow.dag.needrun_jobs() if job.output]
    many = sum(not fork.PARENTS.keys().isdisjoint(packages) for packages in wanted) >= fork.ENOUGH
    if not settings["execution"]["preload"] or not many or workflow.non_local_exec:
        return
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ[fork.PLACE] = folder
    with open("logs/fork.log", "w") as log:
        command = [sys.executable, "-m", "transformer_ledger.fork", folder]
        command += ["transformers"] if any("transformers" in packages for packages in wanted) else []
        FORKS.append(
            subprocess.Popen(
                command, env={**os.environ, **fork.ENVIRONMENT}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        )
        atexit.register(FORKS[0].kill)


def begin():
    """Keep other runs out, and be ready to be stopped."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        LOCK.append(open(".snakemake/run", "a"))
        fcntl.flock(LOCK[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        plan.store()
        Path("results").mkdir(exist_ok=True)
        if not os.access("results", os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "results")
    except BlockingIOError:
        sys.exit(f"another run is at work in {Path.cwd()}; wait until it has ended, or stop it")
    except OSError as error:
        sys.exit(f"{error.filename or Path.cwd()} cannot be written: {error.strerror}")
    with contextlib.suppress(OSError):  # without it each job imports what it needs
        preload()


def moved():
    """Say what moved against the run before, where this one came as far as its record."""
    from transformer_ledger import compare, tables

    record = Path("results/provenance.json")
    if record.exists() and record.stat().st_mtime >= STARTED:
        try:
            print(compare.keep(Path("results"), Path("logs")), flush=True)
        except (tables.TableError, OSError, KeyError) as error:  # the run before may have had other columns
            print(f"{error}; what moved against the run before is not known", flush=True)


def broken():
    """What to do after a run that was stopped or had no room for its logs; what moved, where one ended with a surprise."""
    moved()
    if STOPPED:
        jobs = f"{workflow.scheduler.finished_jobs} of {len(workflow.dag)} jobs finished"
        print(f"stopped by {STOPPED[0]}: {jobs}; the same command goes on from there", file=sys.stderr)
    elif shutil.disk_usage(".").free < 2**20:
        print(f"the disk of {Path.cwd()} is full; make room, and the same command goes on", file=sys.stderr)


def close(current):
    """Remove tables that nothing in the config makes any more, then show the summary if this run made one."""
    from transformer_ledger.stale import prune

    prune([*current, *jobs.outputs(jobs.ASKED)])
    summary = Path("results/summary.txt")
    if summary.exists() and summary.stat().st_mtime >= STARTED:
        print(summary.read_text(encoding="utf-8"), flush=True)
    moved()
