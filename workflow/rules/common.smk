# What every rule shares: the checked config and a job's spec. No rules here.
import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

# The jobs run the interpreter that runs Snakemake, with the package as it lies in src/, installed or not.
SOURCE = Path(workflow.basedir, "src")
sys.path.insert(0, str(SOURCE))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])

from transformer_ledger import jobs
from transformer_ledger.config import ConfigError, load
from transformer_ledger.stale import prune

try:
    settings = load(config, workflow.configfiles)
except ConfigError as error:
    raise WorkflowError(f"{error}") from None

# Every job: one interpreter, one spec, its tables in and out. Standard error goes to the log as well.
RUN = "python -m transformer_ledger"


def tables(job):
    """Input tables of a job; {wildcards} are filled in from the wildcards."""
    return lambda wildcards: jobs.inputs_of(settings, job.format(**dict(wildcards.items())))


def spec(job, *files):
    """A job's spec as one canonical JSON string, for `params`. Closed over names only, so that the value is compared."""

    def make(wildcards):
        name = job.format(**dict(wildcards.items()))
        return jobs.canonical(jobs.spec(settings, name, jobs.inputs_of(settings, name), files))

    return make
