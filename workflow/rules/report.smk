# What people read: the page, the provenance of every file, the closing summary.
REPORT = SOURCE / "transformer_ledger/report"
PAGE = sorted(os.path.relpath(path) for path in REPORT.rglob("*") if path.suffix in (".j2", ".css", ".js"))


rule report:
    input:
        tables=tables("report"),
        files=PAGE,
    output:
        "results/report.html",
    log:
        "logs/report.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        spec=spec("report", *PAGE),
    message:
        "Write the page"
    shell:
        "python -m transformer_ledger report.page --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"


rule provenance:
    input:
        tables=tables("provenance"),
        page=rules.report.output,
    output:
        "results/provenance.json",
    log:
        "logs/provenance.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        spec=spec("provenance"),
    message:
        "Record where every file comes from"
    shell:
        "python -m transformer_ledger provenance --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"


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
    params:
        spec=spec("summary"),
    message:
        "Summarise"
    shell:
        "python -m transformer_ledger summary --spec {params.spec:q} --output {output:q} > {log:q} 2>&1; "
        "cat {output:q} >> {log:q}; grep --quiet 'surprises: 0' {output:q}"
