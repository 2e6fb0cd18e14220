"""``gpustudy table``: make one table from the cells at hand."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpustudy.analysis.names import TABLES
from gpustudy.verbs.common import add_study_options, effective_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("name", metavar="NAME", help=f"one of {', '.join(TABLES)}")
    parser.add_argument("-o", "--output", type=Path, default=None, metavar="DIR", help="default: results/tables")
    add_study_options(parser, with_json=False)
    parser.epilog = "examples:\n  gpustudy table summary\n  gpustudy table states -o /tmp/tables"


def run(arguments: argparse.Namespace) -> int:
    """Make it."""
    from gpustudy.analysis.draw import make_table
    from gpustudy.study.states import survey

    effective = effective_of(arguments)
    folder = arguments.output or effective.results / "tables"
    make_table(arguments.name, survey(effective), folder)
    print(f"wrote {folder / arguments.name}.*")
    return 0
