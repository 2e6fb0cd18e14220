"""``gpustudy figure``: draw figures from the cells at hand."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpustudy.analysis.names import FIGURES
from gpustudy.verbs.common import add_study_options, effective_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which of {', '.join(FIGURES)}; all where none is named"
    )
    parser.add_argument("-o", "--output", type=Path, default=None, metavar="DIR", help="default: results/figures")
    add_study_options(parser, with_json=False)
    parser.epilog = (
        "examples:\n  gpustudy figure\n  gpustudy figure step_time\n"
        "  gpustudy figure class_time loss_curves -o /tmp/figures"
    )


def run(arguments: argparse.Namespace) -> int:
    """Draw them."""
    from gpustudy.analysis.draw import draw_figures
    from gpustudy.study.states import survey

    effective = effective_of(arguments)
    folder = arguments.output or effective.results / "figures"
    names = arguments.names or list(FIGURES)
    draw_figures(names, survey(effective), folder)
    for name in names:
        print(f"wrote {folder / name}.*")
    return 0
