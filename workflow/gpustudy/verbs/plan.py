"""``gpustudy plan``: what would run and why."""

from __future__ import annotations

import argparse

from gpustudy.verbs.common import add_study_options, effective_of, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_study_options(parser)
    parser.epilog = (
        "examples:\n  gpustudy plan\n  gpustudy plan --json\n"
        "  gpustudy plan --configfile mine.yaml --site expanse\n\n"
        "The same jobs as 'snakemake -n' lists, with the first field that made each one stale."
    )


def run(arguments: argparse.Namespace) -> int:
    """Print what would run."""
    from gpustudy.study.pending import pending
    from gpustudy.study.workplan import Workplan

    plan = Workplan(effective_of(arguments))
    found = list(pending(plan.survey, plan.keys))
    if arguments.json:
        notes = {"foreign": plan.foreign_notes(), "damaged": plan.damaged_notes()}
        print_json({"pending": [entry.as_json() for entry in found], **notes})
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
    return 0
