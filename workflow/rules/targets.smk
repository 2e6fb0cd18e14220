# Targets: one per gpu and one per config, and the groups of products. Each lists the keyed paths themselves: Snakemake plans a
# missing intermediate only if it is a target or remembered.


rule figures:
    input:
        plan.target(plan.figure_names),


rule tables:
    input:
        plan.target(plan.table_names),


rule report:
    input:
        plan.target(["report"]),


for gpu_name in plan.runnable_gpus:

    rule:
        name:
            gpu_name
        input:
            plan.target(gpu=gpu_name),


for gpu_name in plan.foreign_gpus:

    rule:
        name:
            gpu_name
        input:
            plan.target(gpu=gpu_name),
        log:
            f"results/logs/status/{gpu_name}.log",
        localrule: True
        conda:
            "../../envs/host.yaml"
        params:
            gpu=gpu_name,
        shell:
            "python -m gpustudy status --gpu {params.gpu} 2>&1 | tee {log}"


for config_name in plan.config_names:

    rule:
        name:
            config_name
        input:
            plan.target(config=config_name),
