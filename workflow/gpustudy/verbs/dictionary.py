"""``gpustudy dictionary``: write what follows from schemas and catalogue: docs/data.md, and the metrics to collect."""

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
    from gpustudy.base.own import require_own
    from gpustudy.metrics.dictionary import SIGN, dictionary, requested_text
    from gpustudy.metrics.requested import REQUESTED_FILE

    for path, text in ((arguments.output, dictionary()), (REQUESTED_FILE, requested_text())):
        if not arguments.check:
            if path is arguments.output:
                require_own(path, "dictionary", SIGN, (".md",))
            write_text(path, text)
        elif not path.is_file() or path.read_bytes() != text.encode():
            raise UserError(f"{path} is not current: write it anew with 'gpustudy dictionary'.")
    return 0
