"""Which of several things that show in one run is its verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpustudy.cell.ncu_census import Census
from gpustudy.cell.ncu_compare import compare_names
from gpustudy.cell.ncu_log import parse_log
from gpustudy.cell.ncu_verdict import judge
from gpustudy.cell.ncu_watchdog import RunEnd
from gpustudy.cell.outcomes import Outcome
from tests.cell.ncu_fake import RECORD
from tests.cell.ncu_texts import GOOD_LOG, TEXTS


def _judge(tmp_path: Path, text: str, record: dict[str, Any], **end: Any) -> str | None:
    report = tmp_path / "report.ncu-rep"
    report.write_bytes(b"NVR\0")
    run = RunEnd(**{"exit_code": 0, "is_stalled": False, "stopped_by": None, "seconds": 1.0} | end)
    failure = judge(run, text, parse_log(text), compare_names(Census(1, ()), []), record, report)
    return failure.name if failure else None


def test_good_run(tmp_path: Path) -> None:
    assert _judge(tmp_path, GOOD_LOG, RECORD) is None


def test_signal_of_the_watchdog_is_no_cause_of_its_own(tmp_path: Path) -> None:
    """ncu tells of the SIGTERM that ended it, and that the program failed; the cause is the stall."""
    assert _judge(tmp_path, TEXTS["interrupted"][0], {}, exit_code=15, is_stalled=True) == "stall"
    assert _judge(tmp_path, TEXTS["interrupted"][0], {}, exit_code=15) == "interrupted"


def test_cause_that_shows_wins_over_the_stall(tmp_path: Path) -> None:
    text = TEXTS["replay-memory"][0] + TEXTS["interrupted"][0]
    assert _judge(tmp_path, text, {}, is_stalled=True) == "replay-memory"


def test_program_without_memory_is_told_by_itself(tmp_path: Path) -> None:
    record = {"outcome": {"state": "failed", "reason": "oom", "detail": "d"}}
    with pytest.raises(Outcome) as caught:
        _judge(tmp_path, TEXTS["no-kernels"][0] + TEXTS["application"][0], record, exit_code=1)
    assert caught.value.reason == "oom"


def test_exit_code_alone_is_an_error_of_the_program(tmp_path: Path) -> None:
    assert _judge(tmp_path, GOOD_LOG, RECORD, exit_code=1) == "application"


def test_whole_step_without_gate_needs_no_count_of_backward_calls(tmp_path: Path) -> None:
    assert _judge(tmp_path, GOOD_LOG, {"gate": "steps", "profiled": {}}) is None
    assert _judge(tmp_path, GOOD_LOG, {"gate": "operators", "profiled": {"forward": 1}}) == "no-backward"
