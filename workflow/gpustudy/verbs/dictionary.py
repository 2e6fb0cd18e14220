"""``gpustudy dictionary``: write docs/data.md, which describes every table, from the schemas."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpustudy.base.errors import UserError

_DOCUMENT = Path("docs/data.md")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("-o", "--output", type=Path, default=_DOCUMENT, metavar="FILE", help="default: %(default)s")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when FILE is not current")
    parser.epilog = "examples:\n  gpustudy dictionary\n  gpustudy dictionary --check"


def run(arguments: argparse.Namespace) -> int:
    """Write it, or compare it.

    Raises:
        UserError: with ``--check``, the file is absent or differs.
    """
    from gpustudy.base.atomic import write_text
    from gpustudy.metrics.dictionary import dictionary

    text = dictionary()
    if not arguments.check:
        write_text(arguments.output, text)
    elif not arguments.output.is_file() or arguments.output.read_text() != text:
        raise UserError(f"{arguments.output} is not current: write it anew with 'gpustudy dictionary'.")
    return 0
