"""``gpustudy retry``: set a stage and all made from it aside."""

from __future__ import annotations

import argparse

from gpustudy.verbs.common import add_study_options, effective_of, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "cell", metavar="GPU/CONFIG/rN[/STAGE]", help="what to make anew; without a stage all of the cell"
    )
    add_study_options(parser)
    parser.epilog = (
        "examples:\n  gpustudy retry cpu/opt2/r1\n  gpustudy retry cpu/opt2/r1/census\n\n"
        "Results are moved to results/.aside, never deleted; the next 'snakemake' makes them anew."
    )


def run(arguments: argparse.Namespace) -> int:
    """Move the results aside and say what moved."""
    from gpustudy.launch.run_lock import hold_run_lock
    from gpustudy.study.aside import set_aside
    from gpustudy.study.workplan import Workplan, parse_cell

    effective = effective_of(arguments)
    hold_run_lock()
    plan = Workplan(effective)
    cell, stage = parse_cell(arguments.cell, plan.keys)
    moved = set_aside(plan.survey, plan.keys, cell, stage)
    if arguments.json:
        print_json({"aside": moved})
        return 0
    for path in moved:
        print(f"set aside: {path}")
    print("The next run makes them anew: snakemake --cores all")
    return 0
