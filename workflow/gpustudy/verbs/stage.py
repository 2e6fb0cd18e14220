"""``gpustudy stage``: run one stage of one cell, as the workflow's rules do."""

from __future__ import annotations

import argparse

from gpustudy.verbs.common import add_study_options, effective_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("stage", help="train, census, counters or quality")
    parser.add_argument("cell", metavar="GPU/CONFIG/rN", help="the cell")
    parser.add_argument("--key", help="the key that was planned; another one now is refused")
    add_study_options(parser, with_json=False)
    parser.epilog = "examples:\n  gpustudy stage train cpu/baseline/r1\n  gpustudy stage census cpu/baseline/r1"


def run(arguments: argparse.Namespace) -> int:
    """Run the stage; the exit code is that of its process."""
    from gpustudy.launch.stage import launch_stage
    from gpustudy.study.cells import Keys
    from gpustudy.study.workplan import parse_cell

    effective = effective_of(arguments)
    cell, _ = parse_cell(arguments.cell, Keys(effective))
    return launch_stage(effective, cell, arguments.stage, arguments.key)
