"""The study as a workflow: config -> cells -> train, census, quality -> tables -> figures, tables, report.

snakemake --cores all                 everything that this machine can measure, and all figures
snakemake --profile NAME              the same at a site: expanse, stampede3, stampede3-node, jetstream2
snakemake --cores all -- cpu          the cells of one gpu
snakemake --cores all -- step_time    one figure, with the cells it needs
snakemake -n --cores all              what would run; 'gpustudy plan' also says why
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(workflow.basedir) / "workflow"))

from gpustudy.launch.parse import begin, on_error, on_start

plan, site = begin(workflow, config)


configfile: "config.yaml"


report: "workflow/report/workflow.rst"


wildcard_constraints:
    gpu=plan.patterns["gpu"],
    config=plan.patterns["config"],
    repeat=plan.patterns["repeat"],
    stage=plan.patterns["stage"],
    key=plan.patterns["key"],
    stack=plan.patterns["stack"],
    name=plan.patterns["name"],


rule all:
    input:
        plan.target(plan.all_products),


include: "workflow/rules/targets.smk"
include: "workflow/rules/containers.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/cells.smk"
include: "workflow/rules/metrics.smk"
include: "workflow/rules/products.smk"


onstart:
    on_start(site)


onsuccess:
    if Path(plan.markers["report"]).exists():
        print(f"Report: {Path('results/report.html').resolve()}")


onerror:
    on_error()
