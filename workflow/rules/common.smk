# The checked config and a job's spec, for all rules.
import os
import re
import shlex
import sys
import time
from functools import cache
from pathlib import Path

STARTED = time.time()

# The jobs run the interpreter that runs Snakemake, with the package as it lies in src/, installed or not.
HOME = Path(str(workflow.current_basedir)).parents[1]
SOURCE = HOME / "src"
sys.path.insert(0, str(SOURCE))
for variable, folder in {"PYTHONPATH": SOURCE, "PATH": Path(sys.executable).parent}.items():
    os.environ[variable] = os.pathsep.join(filter(None, [str(folder), os.environ.get(variable)]))

from transformer_ledger import fingerprint, fork, jobs
from transformer_ledger.config import exit_on_fault, laid_over, load, read, sources

# Another Snakefile takes this one with `module`: its `config` lies over config.yaml, its `prefix` is the folder of results/.
MODULE = not workflow.modifier.is_main_snakefile()
ROOT = workflow.modifier.path_modifier.replace_prefix("x").removesuffix("x")
if workflow.modifier.path_modifier.modifies_prefixes:
    sys.exit(
        "module: replace_prefix tears results/ and logs/ apart; give `prefix`, the folder in which both are to lie"
    )
if not (MODULE or Path("config.yaml").exists()):
    sys.exit(f"no config.yaml in {Path.cwd()}; run snakemake in the project's folder, or name it with --directory")
with exit_on_fault():
    if not MODULE:
        read("config.yaml")  # Snakemake would not say in which line it is wrong

        configfile: "config.yaml"

    settings = load(*laid_over(HOME / "config.yaml", config)) if MODULE else load(config, *sources(workflow))


os.environ |= {"TRANSFORMER_LEDGER_RUN": str(os.getpid())}  # a job ends when this process does
# A limit decides no result, so it is no part of a spec.
os.environ.setdefault("TRANSFORMER_LEDGER_TIME_LIMIT", str(settings["execution"]["time_limit"]))


fingerprint.learn(Path(".snakemake/fingerprints.json"))
plan = jobs.Plan(settings, ROOT)
WHERE = f" --directory {shlex.quote(ROOT)}".replace("{", "{{").replace("}", "}}") if ROOT else ""
RUN = f"python -m transformer_ledger{WHERE} --spec {{params.spec:q}} --output {{output:q}} > {{log:q}} 2>&1"


def names(kind):
    """A wildcard's constraint: the jobs of one kind, or the models of the executions."""
    return "|".join(map(re.escape, plan.of(kind))) or "none"


@cache
def mend(name):
    """Have a job run where its files are not what its seals say; Snakemake looks at their time stamps only."""
    try:
        faults = plan.unseen(name)
    except OSError as error:
        sys.exit(f"{error.filename}: {error.strerror}; move it away, and the run makes the file")
    for path, fault in faults.items():
        print(f"{path}: {fault}; it is made anew", file=sys.stderr)
        workflow.dag.forcefiles.add(path)


def tables(job):
    """Input files of a job; {wildcards} are filled in from the wildcards."""

    def files(wildcards):
        name = job.format(**dict(wildcards.items()))
        if workflow.is_main_process:
            mend(name)
        return plan.inputs(name)

    return files


def spec(job):
    """Where a job's spec lies, and its digest, for `params`: a plain string, so that it is compared."""

    def address(wildcards):
        name = job.format(**dict(wildcards.items()))
        # On another machine, which may not see what the first one wrote; in a module, whose `onstart` is not called.
        if not workflow.is_main_process or (MODULE and workflow.executor_plugin and not workflow.dryrun):
            plan.store([name])
        return plan.address(name)

    return address
