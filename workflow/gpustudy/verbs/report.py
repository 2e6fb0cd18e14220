"""``gpustudy report``: one HTML file with states, findings, figures, tables and provenance."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpustudy.verbs.common import add_study_options, effective_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=None,
        metavar="FILE",
        help="a file that ends in .html (default: results/report.html)",
    )
    add_study_options(parser, with_json=False)
    parser.epilog = "examples:\n  gpustudy report\n  gpustudy report -o /tmp/report.html"


def run(arguments: argparse.Namespace) -> int:
    """Write it."""
    from gpustudy.analysis.report import write_report
    from gpustudy.study.states import survey

    effective = effective_of(arguments)
    path = arguments.output or effective.results / "report.html"
    write_report(survey(effective), path)
    print(f"wrote {path}")
    return 0
