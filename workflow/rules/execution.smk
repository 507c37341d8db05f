# One process a model runs it (on the meta device at full size) and counts what really ran.


rule execution:
    output:
        "results/execution/{model}.parquet",
    log:
        "logs/execution/{model}.log",
    params:
        spec=spec("execution/{model}"),
    wildcard_constraints:
        model=r"[^/]+",
    threads: 1
    conda:
        "../../environment.yml"
    message:
        "Run {wildcards.model} and count parameters, operations, cache and optimiser state"
    shell:
        "{RUN} executed.run --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"
