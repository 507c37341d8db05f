# The two re-run experiments, and what is measured by the clock.


rule rope_dot_product:
    output:
        "results/experiment/rope_dot_product.parquet",
    log:
        "logs/experiment/rope_dot_product.log",
    params:
        spec=spec("experiment/rope_dot_product"),
    threads: 1
    conda:
        "../../environment.yml"
    message:
        "Rotate queries and keys (experiment E1)"
    shell:
        "{RUN} experiment.rope_dot_product --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"


rule blocked_softmax:
    output:
        "results/experiment/blocked_softmax.parquet",
        "results/experiment/blocked_softmax_states.parquet",
    log:
        "logs/experiment/blocked_softmax.log",
    params:
        spec=spec("experiment/blocked_softmax"),
    threads: 1
    conda:
        "../../environment.yml"
    message:
        "Read attention block by block (experiment E2)"
    shell:
        "{RUN} experiment.blocked_softmax --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"


# The clock wants the machine for itself, so a timing takes every core.
rule timing:
    output:
        "results/timing/{timing}.parquet",
    log:
        "logs/timing/{timing}.log",
    params:
        spec=spec("timing/{timing}"),
    wildcard_constraints:
        timing="|".join(settings["timing"]) or "none",
    threads: workflow.cores
    conda:
        "../../environment.yml"
    message:
        "Time {wildcards.timing}"
    shell:
        "{RUN} timing.{wildcards.timing} --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"
