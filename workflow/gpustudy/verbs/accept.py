"""``gpustudy accept``: let stale results stand for the present keys, with a reason."""

from __future__ import annotations

import argparse

from gpustudy.verbs.common import add_study_options, effective_of, print_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "cells", nargs="+", metavar="CELLS", help="GPU/CONFIG/rN, GPU/CONFIG for all repeats, or GPU for all its cells"
    )
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--reason", help="why the change cannot matter; shown wherever the cells are")
    way.add_argument("--withdraw", action="store_true", help="remove the records of these cells: they are stale again")
    add_study_options(parser)
    parser.epilog = (
        'examples:\n  gpustudy accept cpu --reason "only a comment in unet.py was changed"\n'
        '  gpustudy accept a100/opt1 h100/opt1/r2 --reason "renamed a variable; results compared equal"\n'
        "  gpustudy accept cpu/opt2/r1 --withdraw\n\n"
        "The newest old result of every stale stage then counts as current and is marked accepted in status, figures\n"
        "and report. Records are kept in results/accepted.jsonl and travel in archives. A result that measured\n"
        "something else (another config, workload, seed or device) is refused."
    )


def run(arguments: argparse.Namespace) -> int:
    """Record it and say what was accepted in spite of what."""
    from gpustudy.launch.run_lock import hold_run_lock
    from gpustudy.study.accept import accept, parse_cells, withdraw
    from gpustudy.study.cells import Keys

    effective = effective_of(arguments)
    hold_run_lock()
    cells = parse_cells(arguments.cells, effective, Keys(effective))
    made = withdraw(effective, cells) if arguments.withdraw else accept(effective, cells, arguments.reason)
    if arguments.json:
        print_json([record.as_json() for record in made])
        return 0
    for record in made:
        what = f"{record.gpu}/{record.config}/r{record.repeat} {record.stage}{' tables' if record.tables else ''}"
        word = "withdrawn" if arguments.withdraw else "accepted"
        print(f"{word}: {what} {record.old} for {record.new}: {'; '.join(record.differing)}")
    if not made:
        print("Nothing to do: none of these cells is " + ("accepted." if arguments.withdraw else "stale."))
    return 0
