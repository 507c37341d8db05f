# One ledger a job: closed forms for every model, each row held against the executed count.


rule ledger:
    input:
        tables("ledger/{ledger}"),
    output:
        "results/ledger/{ledger}.parquet",
    log:
        "logs/ledger/{ledger}.log",
    wildcard_constraints:
        ledger=names("ledger"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        spec=spec("ledger/{ledger}"),
    message:
        "Compute the ledger {wildcards.ledger}"
    shell:
        RUN
