# One ledger a job: closed forms for every model, each row held against the executed count.


rule ledger:
    input:
        tables("ledger/{ledger}"),
    output:
        "results/ledger/{ledger}.parquet",
    log:
        "logs/ledger/{ledger}.log",
    wildcard_constraints:
        ledger="|".join(jobs.LEDGERS),
    conda:
        "../../environment.yml"
    threads: 1
    params:
        spec=spec("ledger/{ledger}"),
    message:
        "Compute the ledger {wildcards.ledger}"
    shell:
        "python -m transformer_ledger ledger.{wildcards.ledger} --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"
