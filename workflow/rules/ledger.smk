# One ledger a job: closed forms for every model, each row held against the executed count.


rule ledger:
    input:
        tables("ledger/{ledger}"),
    output:
        "results/ledger/{ledger}.parquet",
    log:
        "logs/ledger/{ledger}.log",
    params:
        spec=spec("ledger/{ledger}"),
    wildcard_constraints:
        ledger="|".join(jobs.LEDGERS),
    threads: 1
    conda:
        "../../environment.yml"
    message:
        "Compute the ledger {wildcards.ledger}"
    shell:
        "{RUN} ledger.{wildcards.ledger} --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"
