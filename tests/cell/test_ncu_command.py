"""The ncu command of a cell: what it holds, what it never holds, what is refused; and the environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpustudy.base.errors import UserError
from gpustudy.cell.ncu_command import (
    CounterSettings,
    build_command,
    build_environment,
    log_file,
    profiled_program,
    read_settings,
    report_file,
)

SECTION: dict[str, Any] = {
    "sections": ["SpeedOfLight", "LaunchStats"],
    "metrics": ["gpu__time_duration.sum", "sm__cycles_active.avg"],
    "replay": "kernel",
    "cache_control": "all",
    "clock_control": "base",
    "launches_per_stratum": 3,
    "iterations": 1,
    "warmup_iterations": 2,
    "stall_timeout_s": 300,
    "ncu_version": None,
}


def _after(command: list[str], option: str) -> list[str]:
    return [command[index + 1] for index, word in enumerate(command) if word == option]


def test_command_of_the_fact_sheet() -> None:
    settings = read_settings(SECTION, "cell.json")
    command = build_command(settings, "all", ["python", "-m", "x"], "/opt/ncu")
    assert command == [
        "/opt/ncu",
        *("--target-processes", "all", "--target-processes-filter", "regex:python", "--profile-from-start", "off"),
        *("--replay-mode", "kernel", "--clock-control", "base", "--cache-control", "all"),
        *("--section", "SpeedOfLight", "--section", "LaunchStats"),
        *("--metrics", "gpu__time_duration.sum,sm__cycles_active.avg"),
        *("-f", "-o", "report", "--log-file", "ncu.log"),
        *("python", "-m", "x"),
    ]


def test_never_live_csv_nor_nvtx_nor_name_filters() -> None:
    for replay in ("kernel", "application"):
        command = build_command(read_settings(SECTION | {"replay": replay}, "c"), "none", ["python"])
        assert not [
            word for word in command if word in ("--csv", "-k", "--kernel-name", "--kernel-id") or "nvtx" in word
        ]


def test_application_replay_matches_launches_by_grid() -> None:
    command = build_command(read_settings(SECTION | {"replay": "application"}, "c"), "all", ["python"])
    assert _after(command, "--replay-mode") == ["application"]
    assert _after(command, "--app-replay-match") == ["grid"]
    assert _after(command, "--app-replay-mode") == ["relaxed"]


def test_both_cache_controls_are_two_runs_with_their_own_files() -> None:
    both = read_settings(SECTION | {"cache_control": "both"}, "c")
    assert both.cache_controls == ("all", "none")
    assert [report_file(both, mode) for mode in both.cache_controls] == ["report.ncu-rep", "report-none.ncu-rep"]
    assert [log_file(both, mode) for mode in both.cache_controls] == ["ncu.log", "ncu-none.log"]
    warm = read_settings(SECTION | {"cache_control": "none"}, "c")
    assert (warm.cache_controls, report_file(warm, "none"), log_file(warm, "none")) == (
        ("none",),
        "report.ncu-rep",
        "ncu.log",
    )
    assert _after(build_command(both, "none", []), "--cache-control") == ["none"]


def test_defaults_are_the_documented_ones() -> None:
    assert read_settings({"metrics": ["gpu__time_duration.sum"]}, "c") == CounterSettings(
        sections=(),
        metrics=("gpu__time_duration.sum",),
        replay="kernel",
        cache_control="all",
        clock_control="base",
        launches_per_stratum=3,
        iterations=1,
        warmup_iterations=2,
        stall_timeout_s=300,
        ncu_version=None,
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"metric": []}, "unknown field 'metric'"),
        ({"metrics": [], "sections": []}, "neither metrics nor sections"),
        ({"metrics": ["gpu time"]}, "'gpu time', which is no metric's name"),
        ({"metrics": ["--csv"]}, "no metric's name"),
        ({"replay": "range"}, "replay is 'range'"),
        ({"cache_control": "warm"}, "cache_control is 'warm'"),
        ({"clock_control": "boost"}, "clock_control is 'boost'"),
        ({"iterations": 0}, "iterations is 0"),
        ({"warmup_iterations": 0}, "warmup_iterations is 0"),
        ({"launches_per_stratum": 0}, "launches_per_stratum is 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        read_settings(SECTION | change, "cell.json: workload.counters")


def test_catalogue_names_of_the_fact_sheet_are_metric_names(shared_facts: Path) -> None:
    lines = (shared_facts / "ncu_metric_availability.csv").read_text().splitlines()[1:]
    names = [line.split(",")[0].strip('"') for line in lines]
    real = [name for name in names if "__" in name]
    assert len(real) > 100
    read_settings({"metrics": real}, "c")


def test_environment_is_that_of_c_with_a_home_of_its_own(tmp_path: Path) -> None:
    environment = build_environment(
        tmp_path, {"PATH": "/bin", "HOME": "/home/u", "PYTHONPATH": "/a", "LC_ALL": "de_DE"}
    )
    assert environment["LC_ALL"] == "C"
    assert environment["HOME"] == environment["TMPDIR"] == str(tmp_path)
    assert environment["PATH"] == "/bin"
    assert environment["PYTHONUSERBASE"]
    assert environment["PYTHONPATH"].split(os.pathsep)[-1] == "/a"


def test_package_is_importable_in_that_environment(tmp_path: Path) -> None:
    program = profiled_program(tmp_path / "c", tmp_path / "d", tmp_path)
    assert program[1:3] == ["-m", "gpustudy.cell.profiled"]
    assert program[3:] == ["--cell", f"{tmp_path}/c", "--data", f"{tmp_path}/d", "--scratch", str(tmp_path)]
    environment = build_environment(tmp_path, {"PATH": os.environ["PATH"]})
    subprocess.run([program[0], "-c", "import gpustudy.base.errors"], env=environment, cwd=tmp_path, check=True)
