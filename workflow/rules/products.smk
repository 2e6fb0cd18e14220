# Figures, tables and the report, each a target by its name. The marker holds the product's key: it is missing
# when a cell, a state or the analysis changed, and then the product is drawn anew. All products wait for one marker
# that the tables are here: a line from each product to each table would cost Snakemake minutes.


if plan.gathers:

    rule gather_tables:
        input:
            plan.target(),
        output:
            touch(plan.gathered),
        localrule: True


for figure_name in plan.figure_names:

    rule:
        name:
            f"draw_{figure_name}"
        input:
            ancient(plan.gathered),
        output:
            svg=report(
                f"results/figures/{figure_name}.svg",
                caption=f"../report/{figure_name}.rst",
                category=plan.category(figure_name),
            ),
            pdf=f"results/figures/{figure_name}.pdf",
            marker=touch(plan.markers[figure_name]),
        log:
            f"results/logs/figures/{figure_name}.log",
        localrule: True
        conda:
            "../../envs/host.yaml"
        params:
            figure=figure_name,
        shell:
            "python -m gpustudy figure {params.figure} -o results/figures 2>&1 | tee {log}"

    rule:
        name:
            figure_name
        input:
            plan.target([figure_name]),
            f"results/figures/{figure_name}.svg",


for table_name in plan.table_names:

    rule:
        name:
            f"make_{table_name}"
        input:
            ancient(plan.gathered),
        output:
            html=report(
                f"results/tables/{table_name}.html",
                caption=f"../report/{table_name}.rst",
                category=plan.category(table_name),
            ),
            csv=f"results/tables/{table_name}.csv",
            tex=f"results/tables/{table_name}.tex",
            marker=touch(plan.markers[table_name]),
        log:
            f"results/logs/tables/{table_name}.log",
        localrule: True
        conda:
            "../../envs/host.yaml"
        params:
            table=table_name,
        shell:
            "python -m gpustudy table {params.table} -o results/tables 2>&1 | tee {log}"

    rule:
        name:
            table_name
        input:
            plan.target([table_name]),
            f"results/tables/{table_name}.html",


rule write_report:
    input:
        ancient(plan.gathered),
    output:
        html="results/report.html",
        marker=touch(plan.markers["report"]),
    log:
        "results/logs/report.log",
    localrule: True
    conda:
        "../../envs/host.yaml"
    shell:
        "python -m gpustudy report -o {output.html} 2>&1 | tee {log}"


rule write_evidence:
    input:
        ancient(plan.gathered),
    output:
        json="results/claims.json",
        marker=touch(plan.markers["evidence"]),
    log:
        "results/logs/evidence.log",
    localrule: True
    conda:
        "../../envs/host.yaml"
    shell:
        "python -m gpustudy claims -o {output.json} 2>&1 | tee {log}"


rule evidence:
    input:
        plan.target(["evidence"]),
        "results/claims.json",


rule write_appendix:
    input:
        ancient(plan.gathered),
    output:
        markdown="results/appendix.md",
        latex="results/appendix.tex",
        marker=touch(plan.markers["appendix"]),
    log:
        "results/logs/appendix.log",
    localrule: True
    conda:
        "../../envs/host.yaml"
    shell:
        "python -m gpustudy appendix -o {output.markdown} -o {output.latex} 2>&1 | tee {log}"


rule appendix:
    input:
        plan.target(["appendix"]),
        "results/appendix.md",
