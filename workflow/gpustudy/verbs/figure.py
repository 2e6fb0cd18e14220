"""``gpustudy figure``: draw one figure from the cells at hand."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpustudy.analysis.names import FIGURES
from gpustudy.verbs.common import add_study_options, effective_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("name", metavar="NAME", help=f"one of {', '.join(FIGURES)}")
    parser.add_argument("-o", "--output", type=Path, default=None, metavar="DIR", help="default: results/figures")
    add_study_options(parser, with_json=False)
    parser.epilog = "examples:\n  gpustudy figure step_time\n  gpustudy figure class_time -o /tmp/figures"


def run(arguments: argparse.Namespace) -> int:
    """Draw it."""
    from gpustudy.analysis.draw import draw_figure
    from gpustudy.study.states import survey

    effective = effective_of(arguments)
    folder = arguments.output or effective.results / "figures"
    draw_figure(arguments.name, survey(effective), folder)
    print(f"wrote {folder / arguments.name}.*")
    return 0
