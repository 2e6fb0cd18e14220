# The stages of a cell. The key in the path says when a stage is current, so every input is ancient().
# A gpu that this site does not list matches no rule here: foreign cells are never attempted.


rule run_train:
    input:
        ancient(plan.data),
    output:
        "results/cells/{gpu}/{config}/r{repeat}/train-{key}/status.json",
    log:
        "results/logs/cells/{gpu}/{config}/r{repeat}/train-{key}.log",
    wildcard_constraints:
        gpu=plan.patterns["runnable"],
    priority: plan.priority
    conda:
        "../../envs/host.yaml"
    threads: plan.cores("train")
    shell:
        "python -m gpustudy stage train {wildcards.gpu}/{wildcards.config}/r{wildcards.repeat}"
        " --key {wildcards.key} 2>&1 | tee {log}"


rule run_census:
    input:
        ancient(plan.data),
        ancient(plan.stages_before("census")),
    output:
        "results/cells/{gpu}/{config}/r{repeat}/census-{key}/status.json",
    log:
        "results/logs/cells/{gpu}/{config}/r{repeat}/census-{key}.log",
    wildcard_constraints:
        gpu=plan.patterns["runnable"],
    priority: plan.priority
    conda:
        "../../envs/host.yaml"
    threads: plan.cores("census")
    shell:
        "python -m gpustudy stage census {wildcards.gpu}/{wildcards.config}/r{wildcards.repeat}"
        " --key {wildcards.key} 2>&1 | tee {log}"


rule run_counters:
    input:
        ancient(plan.data),
        ancient(plan.stages_before("counters")),
    output:
        "results/cells/{gpu}/{config}/r{repeat}/counters-{key}/status.json",
    log:
        "results/logs/cells/{gpu}/{config}/r{repeat}/counters-{key}.log",
    wildcard_constraints:
        gpu=plan.patterns["runnable"],
    priority: plan.priority
    conda:
        "../../envs/host.yaml"
    threads: plan.cores("counters")
    shell:
        "python -m gpustudy stage counters {wildcards.gpu}/{wildcards.config}/r{wildcards.repeat}"
        " --key {wildcards.key} 2>&1 | tee {log}"


rule run_quality:
    input:
        ancient(plan.data),
        ancient(plan.stages_before("quality")),
    output:
        "results/cells/{gpu}/{config}/r{repeat}/quality-{key}/status.json",
    log:
        "results/logs/cells/{gpu}/{config}/r{repeat}/quality-{key}.log",
    wildcard_constraints:
        gpu=plan.patterns["runnable"],
    conda:
        "../../envs/host.yaml"
    threads: plan.cores("quality")
    shell:
        "python -m gpustudy stage quality {wildcards.gpu}/{wildcards.config}/r{wildcards.repeat}"
        " --key {wildcards.key} 2>&1 | tee {log}"
