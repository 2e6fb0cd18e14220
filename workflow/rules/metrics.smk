# Raw files -> typed tables, wherever the raw files are: any site can do it. Under Slurm too this runs
# where Snakemake runs: minutes of light work, outside the groups that hold a GPU.


rule make_metrics:
    input:
        ancient(plan.stage_of_metrics),
    output:
        "results/metrics/{gpu}/{config}/r{repeat}/{stage}-{key}/metrics.json",
    log:
        "results/logs/metrics/{gpu}/{config}/r{repeat}/{stage}-{key}.log",
    localrule: True
    conda:
        "../../envs/host.yaml"
    params:
        raw=plan.raw_of_metrics,
    shell:
        "python -m gpustudy metrics {params.raw} -o $(dirname {output}) --metrics-key {wildcards.key}"
        " 2>&1 | tee {log}"
