# Pictures: one rule a job, for each job draws pictures of other names.


for figure in plan.of("figure"):

    rule:
        name:
            f"figure_{figure}"
        input:
            tables(f"figure/{figure}"),
        output:
            jobs.outputs(f"figure/{figure}"),
        log:
            f"logs/figure/{figure}.log",
        conda:
            "../../environment.yml"
        threads: 1
        resources:
            mem_mb=500,
            runtime=5,
        params:
            spec=spec(f"figure/{figure}"),
        message:
            f"Draw the pictures of {figure}"
        shell:
            RUN
