# What people read: the page, the provenance of every file, the closing summary.
PAGE = sorted(map(str, Path(workflow.basedir, "src/transformer_ledger/report").glob("*.[!p]*")))


rule report:
    input:
        tables=tables("report"),
        files=PAGE,
    output:
        "results/report.html",
    log:
        "logs/report.log",
    params:
        spec=spec("report", *PAGE),
    threads: 1
    conda:
        "../../environment.yml"
    message:
        "Write the page"
    shell:
        "{RUN} report.page --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"


rule provenance:
    input:
        tables=tables("provenance"),
        page=rules.report.output,
    output:
        "results/provenance.json",
    log:
        "logs/provenance.log",
    params:
        spec=spec("provenance"),
    threads: 1
    conda:
        "../../environment.yml"
    message:
        "Record where every file comes from"
    shell:
        "{RUN} provenance --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"


# Last of all, and on the terminal; fails where a surprise was found, after everything else exists.
rule summary:
    input:
        tables=tables("summary"),
        page=rules.report.output,
        provenance=rules.provenance.output,
    output:
        "results/summary.txt",
    log:
        "logs/summary.log",
    params:
        spec=spec("summary"),
    threads: 1
    conda:
        "../../environment.yml"
    message:
        "Summarise"
    shell:
        "{RUN} summary --spec {params.spec:q} --output {output:q} 2> {log:q} && cat {output:q}"
