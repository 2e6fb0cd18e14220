"""``gpustudy table``: make tables from the cells at hand."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpustudy.analysis.names import TABLES
from gpustudy.verbs.common import add_study_options, effective_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which of {', '.join(TABLES)}; all where none is named"
    )
    parser.add_argument("-o", "--output", type=Path, default=None, metavar="DIR", help="default: results/tables")
    add_study_options(parser, with_json=False)
    parser.epilog = (
        "examples:\n  gpustudy table\n  gpustudy table summary\n  gpustudy table states summary -o /tmp/tables"
    )


def run(arguments: argparse.Namespace) -> int:
    """Make them."""
    from gpustudy.analysis.draw import make_tables
    from gpustudy.study.states import survey

    effective = effective_of(arguments)
    folder = arguments.output or effective.results / "tables"
    names = arguments.names or list(TABLES)
    make_tables(names, survey(effective), folder)
    for name in names:
        print(f"wrote {folder / name}.*")
    return 0
