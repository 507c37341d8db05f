# A checkpoint trained here, and what is done to it; the extensions of the model function.


# The longest chain of jobs begins here, so it starts early.
rule checkpoint:
    input:
        tables("study/checkpoint"),
    output:
        jobs.outputs("study/checkpoint"),
    log:
        "logs/study/checkpoint.log",
    priority: 2
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=15,
    params:
        spec=spec("study/checkpoint"),
    message:
        "Train the checkpoint"
    shell:
        RUN


rule extension:
    input:
        tables("study/extension"),
    output:
        jobs.outputs("study/extension"),
    log:
        "logs/study/extension.log",
    priority: 1
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=60,
    params:
        spec=spec("study/extension"),
    message:
        "Train the extensions"
    shell:
        RUN


rule study:
    input:
        tables("study/{study}"),
    output:
        "results/study/{study}.parquet",
    log:
        "logs/study/{study}.log",
    wildcard_constraints:
        study="classification|attention",
    priority: 2
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=1500,
        runtime=30,
    params:
        spec=spec("study/{study}"),
    message:
        "Study {wildcards.study}"
    shell:
        RUN
