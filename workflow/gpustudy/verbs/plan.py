"""``gpustudy plan``: what would run and why, and what it costs."""

from __future__ import annotations

import argparse

from gpustudy.verbs.common import add_study_options, effective_of, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_study_options(parser)
    parser.add_argument("--profile", help="look at the study from this profile's site, as 'snakemake --profile' does")
    parser.epilog = (
        "examples:\n  gpustudy plan\n  gpustudy plan --json\n"
        "  gpustudy plan --profile expanse\n"
        "  gpustudy plan --configfile mine.yaml --site expanse\n\n"
        "The same jobs as 'snakemake -n' lists, with the first field that made each one stale.\n"
        "With a profile or a site also what each cell costs there: estimated before it runs, measured afterwards."
    )


def run(arguments: argparse.Namespace) -> int:
    """Print what would run."""
    from gpustudy.launch.cost import site_cost, table
    from gpustudy.launch.dispatch import site_of_profile
    from gpustudy.launch.own import read_own
    from gpustudy.launch.requests import Requests
    from gpustudy.study.pending import pending
    from gpustudy.study.workplan import Workplan

    if arguments.profile is not None:
        arguments.site = site_of_profile(arguments.profile, arguments.site)
    effective = effective_of(arguments)
    read_own(effective.study)  # a mistake there would end the run that is planned
    plan = Workplan(effective)
    cost = site_cost(plan.survey, Requests(effective))
    found = list(pending(plan.survey, plan.keys))
    if arguments.json:
        notes = {"foreign": plan.foreign_notes(), "damaged": plan.damaged_notes()}
        print_json({"pending": [entry.as_json() for entry in found], **notes, "cost": cost.as_json()})
        return 0
    for entry in found:
        print(f"{entry.what}: {entry.why}")
    counts = {kind: sum(entry.kind == kind for entry in found) for kind in ("stage", "tables", "product")}
    if found:
        print(
            f"\n{counts['stage']} stages, {counts['tables']} sets of tables and {counts['product']} "
            "figures, tables and reports would be made."
        )
    else:
        print("Nothing to do: every cell that can run here is current, and so is everything made from it.")
    for note in [*plan.damaged_notes(), *plan.foreign_notes()]:
        print(note)
    if arguments.site is not None and cost.cells:
        print("", *table(cost), sep="\n")
    return 0
