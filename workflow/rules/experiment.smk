# The two re-run experiments, and what is measured by the clock.


rule rope_dot_product:
    input:
        tables("experiment/rope_dot_product"),
    output:
        "results/experiment/rope_dot_product.parquet",
    log:
        "logs/experiment/rope_dot_product.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=500,
        runtime=5,
    params:
        spec=spec("experiment/rope_dot_product"),
    message:
        "Rotate queries and keys (experiment E1)"
    shell:
        RUN


rule blocked_softmax:
    input:
        tables("experiment/blocked_softmax"),
    output:
        jobs.outputs("experiment/blocked_softmax"),
    log:
        "logs/experiment/blocked_softmax.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=500,
        runtime=5,
    params:
        spec=spec("experiment/blocked_softmax"),
    message:
        "Read attention block by block (experiment E2)"
    shell:
        RUN


# The clock wants the machine for itself, so a timing takes every core there is; first, or the cores would idle before it.
rule timing:
    input:
        tables("timing/{timing}"),
    output:
        "results/timing/{timing}.parquet",
    log:
        "logs/timing/{timing}.log",
    wildcard_constraints:
        timing=names("timing"),
    priority: 3
    conda:
        "../../environment.yml"
    threads: 1024
    resources:
        mem_mb=2000,
        runtime=15,
    params:
        spec=spec("timing/{timing}"),
    message:
        "Time {wildcards.timing}"
    shell:
        RUN
