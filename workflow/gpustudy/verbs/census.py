"""``gpustudy census``: read PyTorch profiler traces, ours or anyone's, into the launches table."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpustudy.metrics.classes import UNCLASSIFIED_LIMIT


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("traces", type=Path, nargs="+", metavar="TRACE", help="a trace (.json or .json.gz)")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="write DIR/launches.parquet")
    parser.add_argument("--unclassified", action="store_true", help="list the names that no kernel class fits")
    parser.add_argument(
        "--limit",
        type=float,
        default=UNCLASSIFIED_LIMIT,
        metavar="SHARE",
        help="fail when more of the time than this is unclassified (default %(default)s)",
    )
    parser.epilog = (
        "examples:\n  gpustudy census trace.json.gz -o out\n"
        "  gpustudy census --unclassified rank0.json.gz rank1.json.gz"
    )


def run(arguments: argparse.Namespace) -> int:
    """Read the traces, write the table, print the time of each class."""
    from gpustudy.metrics.foreign import census, print_summary, print_unclassified

    if arguments.output is not None:
        from gpustudy.base.own import require_own_folder

        require_own_folder(arguments.output, "folder of launches", ("launches.parquet",))
    columns = census(arguments.traces)
    if arguments.output is not None:
        from gpustudy.metrics.schemas import write_table

        write_table(arguments.output / "launches.parquet", "launches", columns)
    if arguments.unclassified:
        print_unclassified(columns)
    else:
        print_summary(columns, arguments.limit)
    return 0
