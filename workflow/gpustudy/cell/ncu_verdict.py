"""Judges a run of ncu: good, a row of the table of failures, or an outcome of the profiled program itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpustudy.cell.ncu_compare import NameComparison
from gpustudy.cell.ncu_failures import CONSEQUENCES, FailureRow, fatal_row, row
from gpustudy.cell.ncu_log import NcuLog
from gpustudy.cell.ncu_watchdog import RunEnd
from gpustudy.cell.outcomes import Outcome

REPORT_MAGIC = b"NVR\0"
"""First bytes of a report (Nsight Compute's Customization Guide, report file format)."""


def judge(
    end: RunEnd,
    text: str,
    log: NcuLog,
    comparison: NameComparison,
    record: dict[str, Any],
    report: Path,
) -> FailureRow | None:
    """Return the row of the table that a run of ncu ended in, or None when it gave what it should.

    Args:
        end: how the run ended.
        text: log and output of the program.
        log: the same, parsed.
        comparison: profiled names beside the census.
        record: what the program left (``profiled.json``); empty when it came to no end.
        report: path of the report.

    Raises:
        Outcome: the profiled program itself ended as one, such as failed(oom).
    """
    if end.stopped_by is not None:
        return row(end.stopped_by)
    if "outcome" in record:
        outcome = record["outcome"]
        raise Outcome(outcome["state"], outcome["reason"], outcome["detail"])
    shown = fatal_row(text)
    if shown is not None and shown.name not in CONSEQUENCES:
        return shown
    if end.is_stalled:
        return row("stall")
    if shown is not None:
        return shown
    if end.exit_code != 0 or not record:
        return row("application")
    if not log.complete or not _is_report(report):
        return row("no-kernels")
    gate_missed_backward = record.get("gate") == "operators" and not record["profiled"].get("backward")
    if comparison.lacks_backward or gate_missed_backward:
        return row("no-backward")
    return None


def _is_report(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(REPORT_MAGIC)) == REPORT_MAGIC
    except OSError:
        return False
