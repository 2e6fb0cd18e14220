# Prepared volumes and masks, one folder per data set and key.


rule prepare_data:
    output:
        "results/data/{name}-{key}/manifest.json",
    log:
        "results/logs/data/{name}-{key}.log",
    localrule: True
    conda:
        "../../envs/host.yaml"
    shell:
        "python -m gpustudy data prepare {wildcards.name} --key {wildcards.key} --out $(dirname {output})"
        " 2>&1 | tee {log}"
