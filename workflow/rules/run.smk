# One run at a time in a folder; a run that is stopped says in one line how to go on.
import fcntl
import logging
import signal

import psutil

STOPPED = []  # the signal that stopped this run
LOCK = []  # held open; the system gives it back when this process ends, however it ends


def stop(number, frame):
    """End the jobs, then this process, as it does where a job fails; what it would print then is no news."""
    for again in (signal.SIGINT, signal.SIGTERM):
        signal.signal(again, signal.SIG_IGN)
    STOPPED.append(signal.Signals(number).name)
    logging.disable(logging.CRITICAL)
    for process in psutil.Process().children(recursive=True):
        process.terminate()
    sys.exit(1)


def begin():
    """Keep other runs out, and be ready to be stopped."""
    LOCK.append(open(".snakemake/run", "a"))
    try:
        fcntl.flock(LOCK[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"another run is at work in {Path.cwd()}; wait until it has ended, or stop it")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    plan.store()


def broken():
    """What to do after a run that was stopped."""
    if STOPPED:
        jobs = f"{workflow.scheduler.finished_jobs} of {len(workflow.dag)} jobs finished"
        print(f"stopped by {STOPPED[0]}: {jobs}; the same command goes on from there", file=sys.stderr)


def close(current):
    """Remove tables that nothing in the config makes any more, then show the summary if this run made one."""
    from transformer_ledger.stale import prune

    prune(current)
    summary = Path("results/summary.txt")
    if summary.exists() and summary.stat().st_mtime >= STARTED:
        print(summary.read_text(encoding="utf-8"), flush=True)
