"""Tries in seconds whether hardware counters can be had here: one kernel, profiled as the counters stage does it.

    python -m gpustudy.cell.counter_trial [--clock-control base] [--ncu-version 2024.1]

Rights, other tools that hold the counters, the driver's age and locked clocks show when ncu really profiles and not
before. It prints one line of JSON: ``state`` (``done``, or an outcome of the table of failures), ``reason``,
``detail``, ``ncu``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gpustudy.base.errors import UserError
from gpustudy.cell.ncu_command import CounterSettings, build_command, build_environment, log_file, report_file
from gpustudy.cell.ncu_failures import fatal_row, killing_row, row
from gpustudy.cell.ncu_log import parse_log
from gpustudy.cell.ncu_preflight import check_driver, check_rights, find_ncu
from gpustudy.cell.ncu_watchdog import run_watched
from gpustudy.cell.outcomes import Outcome

DONE = "done"
METRIC = "gpu__time_duration.sum"
"""Every device from Volta on has it, and it takes one pass."""
STALL_TIMEOUT_S = 60.0
"""Seconds without any progress: importing torch from a cold file system takes most of them."""

_PROGRAM = """
import torch
numbers = torch.ones(1 << 20, device="cuda")
torch.cuda.synchronize()
torch.cuda.profiler.start()
numbers.add_(1)
torch.cuda.synchronize()
torch.cuda.profiler.stop()
"""


def try_counters(clock_control: str, ncu_version: str | None) -> str:
    """Profile one kernel and return the version of the ncu that did.

    Raises:
        Outcome: counters cannot be had here; state and reason are those that the counters stage would end with.
        UserError: there is no driver or device.
    """
    ncu = find_ncu(ncu_version)
    check_driver()
    check_rights()
    settings = CounterSettings(sections=(), metrics=(METRIC,), cache_control="all", clock_control=clock_control)
    with tempfile.TemporaryDirectory(prefix="gpustudy-trial-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        files = [folder / log_file(settings, "all"), folder / report_file(settings, "all"), folder / "output.log"]

        def text() -> str:
            return "".join(path.read_text(errors="replace") for path in (files[0], files[2]) if path.exists())

        def look() -> str | None:
            killing = killing_row(text())
            return killing.name if killing else None

        command = build_command(settings, "all", [sys.executable, "-c", _PROGRAM], ncu.path)
        end = run_watched(command, build_environment(folder), folder, files[2], files[:2], STALL_TIMEOUT_S, look)
        shown = row(end.stopped_by) if end.stopped_by else fatal_row(text())
        if shown is None and end.is_stalled:
            shown = row("stall")
        if shown is None and (end.exit_code or not parse_log(text()).complete):
            shown = row("no-kernels")
    if shown is not None:
        raise Outcome(shown.outcome, shown.name, shown.detail)
    return ncu.version


def main(argv: Sequence[str] | None = None) -> int:
    """Try, and print the verdict; the exit code is 0 whatever it is."""
    parser = argparse.ArgumentParser(prog="python -m gpustudy.cell.counter_trial", description="Try counters.")
    parser.add_argument("--clock-control", default="base", choices=("base", "none"), help="as in workload.counters")
    parser.add_argument("--ncu-version", metavar="BEGINNING", help="as in workload.counters")
    arguments = parser.parse_args(argv)
    verdict = {"state": DONE, "reason": "", "detail": "", "ncu": ""}
    try:
        verdict["ncu"] = try_counters(arguments.clock_control, arguments.ncu_version)
    except Outcome as outcome:
        verdict |= {"state": outcome.state, "reason": outcome.reason, "detail": outcome.detail}
    except UserError as error:
        verdict |= {"state": "unavailable", "reason": "no-driver", "detail": str(error)}
    print(json.dumps(verdict))
    return 0


if __name__ == "__main__":
    sys.exit(main())
