# Grids of configurations, a shard a job, and what each grid answers.


rule sweep:
    input:
        tables("sweep/{shard}"),
    output:
        "results/sweep/{shard}.parquet",
    log:
        "logs/sweep/{shard}.log",
    wildcard_constraints:
        shard=names("sweep"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=30,
    params:
        spec=spec("sweep/{shard}"),
    message:
        "Sweep {wildcards.shard}"
    shell:
        RUN


rule answers:
    input:
        tables("answers/{sweep}"),
    output:
        "results/answers/{sweep}.parquet",
        "results/maps/{sweep}.parquet",
    log:
        "logs/answers/{sweep}.log",
    wildcard_constraints:
        sweep=names("answers"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        spec=spec("answers/{sweep}"),
    message:
        "Ask the sweep {wildcards.sweep}"
    shell:
        RUN
