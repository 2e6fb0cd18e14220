"""``gpustudy appendix``: write the artifact description, as Markdown and as LaTeX."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpustudy.verbs.common import add_study_options, effective_of

_SUFFIXES = {".md": "to_markdown", ".tex": "to_latex"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        action="append",
        metavar="FILE",
        help="a .md or .tex file; may be given twice (default: results/appendix.md and results/appendix.tex)",
    )
    add_study_options(parser, with_json=False)
    parser.epilog = "examples:\n  gpustudy appendix\n  gpustudy appendix -o paper/artifact.tex"


def run(arguments: argparse.Namespace) -> int:
    """Write it."""
    from gpustudy.analysis import appendix
    from gpustudy.analysis.dataset import Dataset
    from gpustudy.base.atomic import write_text
    from gpustudy.base.own import require_own
    from gpustudy.study.states import survey

    effective = effective_of(arguments)
    files = arguments.output or [effective.results / f"appendix{suffix}" for suffix in _SUFFIXES]
    for file in files:
        require_own(file, "artifact description", appendix.TITLE, tuple(_SUFFIXES))
    parts = appendix.sections(Dataset(survey(effective)), effective.results.parent / appendix.RECORDS)
    for file in files:
        write_text(file, getattr(appendix, _SUFFIXES[file.suffix.lower()])(parts))
        print(f"wrote {file}")
    return 0
