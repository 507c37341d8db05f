# One verification a job, then every claim's verdict.


rule verification:
    input:
        tables("verification/{verification}"),
    output:
        "results/verification/{verification}.parquet",
    log:
        "logs/verification/{verification}.log",
    params:
        spec=spec("verification/{verification}"),
    wildcard_constraints:
        verification="|".join(settings["verification"]) or "none",
    threads: 1
    conda:
        "../../environment.yml"
    message:
        "Verify {wildcards.verification}"
    shell:
        "{RUN} verification.{wildcards.verification} --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"


rule claims:
    input:
        tables("claims"),
    output:
        "results/claims.parquet",
    log:
        "logs/claims.log",
    params:
        spec=spec("claims"),
    threads: 1
    conda:
        "../../environment.yml"
    message:
        "Settle the claims"
    shell:
        "{RUN} claims.table --spec {params.spec:q} --output {output:q} > {log:q} 2>&1"
