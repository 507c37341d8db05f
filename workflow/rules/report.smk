# What people read: the page, the provenance of every file, the closing summary.


rule formulas:
    input:
        tables("formulas"),
    output:
        "results/formulas.json",
    log:
        "logs/formulas.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=500,
        runtime=5,
    params:
        spec=spec("formulas"),
    message:
        "Typeset the formulas, and write them for the calculator"
    shell:
        RUN


# Only where somebody asks for it: `snakemake --cores 8 results/ledgers.html`.
rule ledgers:
    input:
        tables=tables("ledgers"),
        files=local(jobs.parts("ledgers")),
    output:
        update("results/ledgers.html"),
    log:
        "logs/ledgers.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=5,
    params:
        spec=spec("ledgers"),
    message:
        "Write the page of the ledgers alone"
    shell:
        RUN


rule report:
    input:
        tables=tables("report"),
        files=local(jobs.parts("report")),  # a module's prefix is not theirs
    output:
        update("results/report.html"),  # the last page stays until the new one is there
    log:
        "logs/report.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        spec=spec("report"),
    message:
        "Write the page"
    shell:
        RUN


rule provenance:
    input:
        tables("provenance"),
    output:
        update("results/provenance.json"),
    log:
        "logs/provenance.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=500,
        runtime=5,
    params:
        spec=spec("provenance"),
    message:
        "Record where every file comes from"
    shell:
        RUN


# Beside the summary, which so ends no later.
rule crate:
    input:
        tables("crate"),
    output:
        jobs.outputs("crate"),
    log:
        "logs/crate.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=500,
        runtime=5,
    params:
        spec=spec("crate"),
    message:
        "Describe the run as an RO-Crate"
    shell:
        RUN


# Last of all: fails, and so shows its log, where a surprise was found; by then everything else exists.
rule summary:
    input:
        tables=tables("summary"),
        page=rules.report.output,
        provenance=rules.provenance.output,
    output:
        "results/summary.txt",
    log:
        "logs/summary.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=500,
        runtime=5,
    params:
        spec=spec("summary"),
    message:
        "Summarise"
    shell:
        RUN + "; cat {output:q} >> {log:q}; grep --quiet 'surprises: 0' {output:q}"
