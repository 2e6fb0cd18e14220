"""The trial of counters ends as the counters stage would, in seconds: before a real process that stands for ncu."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpustudy.cell import counter_trial
from gpustudy.cell.counter_trial import METRIC, main
from gpustudy.cell.outcomes import Outcome
from tests.cell.ncu_fake import FakeNcu
from tests.cell.ncu_texts import TEXTS

GOOD = """\
==PROF== Connected to process 1 (/usr/bin/python3.11)
==PROF== Profiling "vectorized_elementwise_kernel" - 0: 0%....50%....100% - 1 pass
==PROF== Disconnected from process 1
"""


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNcu:
    monkeypatch.setattr(counter_trial, "check_driver", lambda: None)
    monkeypatch.setattr(counter_trial, "check_rights", lambda: None)
    return FakeNcu(tmp_path / "bin", monkeypatch)


def verdict(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, str]:
    assert main(words) == 0
    found: dict[str, str] = json.loads(capsys.readouterr().out)
    return found


def test_one_kernel_is_profiled_as_the_stage_profiles(ncu: FakeNcu, capsys: pytest.CaptureFixture[str]) -> None:
    ncu.will({"log": GOOD, "report": True})
    assert verdict(capsys, "--clock-control", "none") == {
        "state": "done",
        "reason": "",
        "detail": "",
        "ncu": "2024.1.1.0",
    }
    (call,) = ncu.calls
    line = " ".join(call["argv"])
    assert "--profile-from-start off" in line
    assert "--clock-control none" in line
    assert f"--metrics {METRIC}" in line


@pytest.mark.parametrize("reason", ["permission", "driver-busy", "driver", "profiler-library", "clock-control"])
def test_what_stands_in_the_way_is_named_as_in_the_stage(
    ncu: FakeNcu, capsys: pytest.CaptureFixture[str], reason: str
) -> None:
    ncu.will({"log": TEXTS[reason][0], "sleep": 60})
    found = verdict(capsys)
    assert (found["state"], found["reason"]) == ("unavailable", reason)
    assert found["detail"]


def test_a_run_without_a_kernel_is_no_success(ncu: FakeNcu, capsys: pytest.CaptureFixture[str]) -> None:
    ncu.will({"log": "==PROF== Connected to process 1 (/usr/bin/python3.11)\n"})
    assert verdict(capsys)["state"] != "done"


def test_rights_are_looked_at_before_anything_runs(
    ncu: FakeNcu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise Outcome("unavailable", "permission", "this user may not")

    ncu.will({"log": GOOD})
    monkeypatch.setattr(counter_trial, "check_rights", refuse)
    assert verdict(capsys)["reason"] == "permission"
    assert not ncu.calls


def test_a_machine_without_a_driver_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    FakeNcu(tmp_path / "bin", monkeypatch).will({"log": GOOD})
    found = verdict(capsys)
    assert (found["state"], found["reason"]) == ("unavailable", "no-driver")


def test_another_version_of_ncu_than_asked_for(ncu: FakeNcu, capsys: pytest.CaptureFixture[str]) -> None:
    ncu.will({"log": GOOD})
    assert verdict(capsys, "--ncu-version", "2025.1")["reason"] == "ncu-version"
