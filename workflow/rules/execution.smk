# One process a model runs it (on the meta device at full size) and counts what really ran.


rule execution:
    input:
        tables("execution/{model}"),
    output:
        "results/execution/{model}.parquet",
    log:
        "logs/execution/{model}.log",
    wildcard_constraints:
        model=names("execution"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=15,
    params:
        spec=spec("execution/{model}"),
    message:
        "Run {wildcards.model} and count parameters, operations, cache and optimiser state"
    shell:
        RUN


# Small models of every family and feature, in one process: what they hold and run, and that our decoder is their function.
rule families:
    input:
        tables("families"),
    output:
        "results/families.parquet",
        "results/experiment/decoder.parquet",
    log:
        "logs/families.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=2000,
        runtime=15,
    params:
        spec=spec("families"),
    message:
        "Run small models of every family, and compare our decoder with transformers and the NumPy reference"
    shell:
        RUN
