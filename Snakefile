# Transformer Ledger: config → executions, ledgers, verifications, experiments → claims → one page.
from snakemake.utils import min_version

min_version("9.0")


include: "workflow/rules/common.smk"
include: "workflow/rules/run.smk"
include: "workflow/rules/execution.smk"
include: "workflow/rules/ledger.smk"
include: "workflow/rules/verification.smk"
include: "workflow/rules/experiment.smk"
include: "workflow/rules/study.smk"
include: "workflow/rules/sweep.smk"
include: "workflow/rules/figure.smk"
include: "workflow/rules/report.smk"


# Light jobs, which stay on this machine where the others go to a cluster.
localrules:
    all,
    claims,
    ledgers,
    report,
    provenance,
    summary,
    crate,


rule all:
    default_target: True
    input:
        plan.files(),


onstart:
    begin()


onerror:
    broken()


onsuccess:
    close(rules.all.input)
