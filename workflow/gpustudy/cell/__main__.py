"""Command line of the cell side: ``python -m gpustudy.cell STAGE --cell cell.json --data DIR --out DIR``."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from gpustudy.base.errors import EXIT_USER_ERROR, UserError
from gpustudy.cell.stages import STAGES, run_stage

_EXAMPLE = """\
examples:
  python -m gpustudy.cell train --cell cell.json --data results/data/mni152-demo-0123456789ab --out train-out
  python -m gpustudy.cell census --cell census.json --data results/data/mni152-demo-0123456789ab \\
      --previous train-out --out census-out

The folder given by --out appears whole or not at all; its status.json says how the stage ended. A stage that meets
a fact of the science or the place (out of memory, an optimisation this device lacks) exits with 0 and says so there.
"""

EXIT_FAILED = 1
"""Exit code after a failure of the place, which may be gone the next time."""

EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_TERMINATED = 128 + signal.SIGTERM
"""Exit codes after a signal, as shells give them."""


class _OneSentence(argparse.ArgumentParser):
    """A parser whose errors are one sentence, without the usage text."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; see --help.", file=sys.stderr)
        raise SystemExit(EXIT_USER_ERROR)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _OneSentence(
        prog="python -m gpustudy.cell",
        description="Run one stage of one cell of the study.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("stage", choices=tuple(STAGES), metavar="STAGE", help=f"one of {', '.join(STAGES)}")
    parser.add_argument("--cell", type=Path, required=True, metavar="FILE", help="cell.json of this stage")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of prepared data")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
    parser.add_argument("--previous", type=Path, metavar="DIR", help="folder of the stage before")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = make_parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        status = run_stage(arguments.stage, arguments.cell, arguments.data, arguments.out, arguments.previous)
    except UserError as error:
        print(error, file=sys.stderr)
        return EXIT_USER_ERROR
    except OSError as error:  # a full disk, a folder that may not be written, a file system that went away
        place = error.filename or arguments.out
        print(f"{arguments.stage}: {place}: {error.strerror or error}; mend that and run it again.", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print(f"{arguments.stage}: interrupted; nothing was written, run it again.", file=sys.stderr)
        return EXIT_INTERRUPTED
    if status.state != "done":
        print(f"{arguments.stage} ended as {status.state}({status.reason}): {status.detail}", file=sys.stderr)
    return 0


def _terminate(signal_number: int, frame: FrameType | None) -> None:
    """Turn SIGTERM into an exception, so that half-written folders are removed on the way out."""
    raise SystemExit(EXIT_TERMINATED)


if __name__ == "__main__":
    sys.exit(main())
