# The stages of a cell. The key in the path says when a stage is current, so every input is ancient().
# A gpu that this site does not list matches no rule here: foreign cells are never attempted.
# The stages of a cell are a chain in one group: Slurm runs them in one job, on one GPU, one after the other.


rule run_train:
    input:
        ancient(plan.data),
        ancient(plan.image),
    output:
        "results/cells/{gpu}/{config}/r{repeat}/train-{key}/status.json",
    log:
        "results/logs/cells/{gpu}/{config}/r{repeat}/train-{key}.log",
    wildcard_constraints:
        gpu=plan.patterns["runnable"],
    priority: plan.priority
    retries: site.retries
    group:
        site.group
    conda:
        "../../envs/host.yaml"
    threads: site.threads("train")
    resources:
        **site.resources("train"),
    shell:
        "python -m gpustudy stage train {wildcards.gpu}/{wildcards.config}/r{wildcards.repeat}"
        " --key {wildcards.key} 2>&1 | tee {log}"


rule run_census:
    input:
        ancient(plan.data),
        ancient(plan.image),
        ancient(plan.stages_before("census")),
    output:
        "results/cells/{gpu}/{config}/r{repeat}/census-{key}/status.json",
    log:
        "results/logs/cells/{gpu}/{config}/r{repeat}/census-{key}.log",
    wildcard_constraints:
        gpu=plan.patterns["runnable"],
    priority: plan.priority
    retries: site.retries
    group:
        site.group
    conda:
        "../../envs/host.yaml"
    threads: site.threads("census")
    resources:
        **site.resources("census"),
    shell:
        "python -m gpustudy stage census {wildcards.gpu}/{wildcards.config}/r{wildcards.repeat}"
        " --key {wildcards.key} 2>&1 | tee {log}"


rule run_counters:
    input:
        ancient(plan.data),
        ancient(plan.image),
        ancient(plan.stages_before("counters")),
    output:
        "results/cells/{gpu}/{config}/r{repeat}/counters-{key}/status.json",
    log:
        "results/logs/cells/{gpu}/{config}/r{repeat}/counters-{key}.log",
    wildcard_constraints:
        gpu=plan.patterns["runnable"],
    priority: plan.priority
    retries: site.retries
    group:
        site.group
    conda:
        "../../envs/host.yaml"
    threads: site.threads("counters")
    resources:
        **site.resources("counters"),
    shell:
        "python -m gpustudy stage counters {wildcards.gpu}/{wildcards.config}/r{wildcards.repeat}"
        " --key {wildcards.key} 2>&1 | tee {log}"


rule run_quality:
    input:
        ancient(plan.data),
        ancient(plan.image),
        ancient(plan.stages_before("quality")),
    output:
        "results/cells/{gpu}/{config}/r{repeat}/quality-{key}/status.json",
    log:
        "results/logs/cells/{gpu}/{config}/r{repeat}/quality-{key}.log",
    wildcard_constraints:
        gpu=plan.patterns["runnable"],
    retries: site.retries
    group:
        site.group
    conda:
        "../../envs/host.yaml"
    threads: site.threads("quality")
    resources:
        **site.resources("quality"),
    shell:
        "python -m gpustudy stage quality {wildcards.gpu}/{wildcards.config}/r{wildcards.repeat}"
        " --key {wildcards.key} 2>&1 | tee {log}"
