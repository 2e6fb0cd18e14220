# Figures, tables and the report, each a target by its name. The marker holds the product's key: it is missing
# when a cell, a state or the analysis changed, and then the product is drawn anew.

for figure_name in plan.figure_names:

    rule:
        name:
            f"draw_{figure_name}"
        input:
            ancient(plan.tables()),
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
            plan.tables(),
            plan.products([figure_name]),
            f"results/figures/{figure_name}.svg",


for table_name in plan.table_names:

    rule:
        name:
            f"make_{table_name}"
        input:
            ancient(plan.tables()),
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
            plan.tables(),
            plan.products([table_name]),
            f"results/tables/{table_name}.html",


rule write_report:
    input:
        ancient(plan.tables()),
    output:
        html="results/report.html",
        marker=touch(plan.markers["report"]),
    log:
        "results/logs/report.log",
    conda:
        "../../envs/host.yaml"
    shell:
        "python -m gpustudy report -o {output.html} 2>&1 | tee {log}"
