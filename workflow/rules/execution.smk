# One process a model runs it (on the meta device at full size) and counts what really ran.


rule execution:
    output:
        "results/execution/{model}.parquet",
    log:
        "logs/execution/{model}.log",
    wildcard_constraints:
        model=names("execution"),
    conda:
        "../../environment.yml"
    threads: 1
    params:
        spec=spec("execution/{model}"),
    message:
        "Run {wildcards.model} and count parameters, operations, cache and optimiser state"
    shell:
        RUN
