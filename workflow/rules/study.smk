# A checkpoint trained here, and what is done to it; the extensions of the model function.


# The longest chain of jobs begins here, so it starts early.
rule checkpoint:
    output:
        "results/study/loss.parquet",
        jobs.CHECKPOINT,
    log:
        "logs/study/checkpoint.log",
    priority: 2
    conda:
        "../../environment.yml"
    threads: 1
    params:
        spec=spec("study/checkpoint"),
    message:
        "Train the checkpoint"
    shell:
        "python -m transformer_ledger study.checkpoint --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"


rule extension:
    output:
        "results/study/extension.parquet",
        "results/study/extension_tensors.parquet",
        "results/study/extension_runs.parquet",
    log:
        "logs/study/extension.log",
    priority: 1
    conda:
        "../../environment.yml"
    threads: 1
    params:
        spec=spec("study/extension"),
    message:
        "Train the extensions"
    shell:
        "python -m transformer_ledger study.extension --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"


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
    params:
        spec=spec("study/{study}"),
    message:
        "Study {wildcards.study}"
    shell:
        "python -m transformer_ledger study.{wildcards.study} --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"
