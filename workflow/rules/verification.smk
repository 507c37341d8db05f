# One verification a job, then every claim's verdict.


rule verification:
    input:
        tables("verification/{verification}"),
    output:
        "results/verification/{verification}.parquet",
    log:
        "logs/verification/{verification}.log",
    wildcard_constraints:
        verification=names("verification"),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=1500,
        runtime=15,
    params:
        spec=spec("verification/{verification}"),
    message:
        "Verify {wildcards.verification}"
    shell:
        RUN


rule claims:
    input:
        tables("claims"),
    output:
        "results/claims.parquet",
    log:
        "logs/claims.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=500,
        runtime=5,
    params:
        spec=spec("claims"),
    message:
        "Settle the claims"
    shell:
        RUN
