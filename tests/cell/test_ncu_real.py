"""The real ncu, where one is on PATH: it takes our command; without a driver its error is a row of the table."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpustudy.cell.ncu_command import build_command, build_environment, read_settings
from gpustudy.cell.ncu_failures import fatal_row, row
from gpustudy.cell.ncu_preflight import find_ncu

pytestmark = pytest.mark.skipif(shutil.which("ncu") is None, reason="Nsight Compute's ncu is not on PATH")

HAS_DRIVER = Path("/proc/driver/nvidia/version").exists()


@pytest.mark.parametrize("replay", ["kernel", "application"])
def test_command_is_taken_and_a_missing_driver_is_a_row(tmp_path: Path, replay: str) -> None:
    section = {"metrics": ["gpu__time_duration.sum"], "sections": ["SpeedOfLight"], "replay": replay}
    command = build_command(read_settings(section, "c"), "all", [sys.executable, "-c", "pass"], find_ncu(None).path)
    result = subprocess.run(
        command, cwd=tmp_path, env=build_environment(tmp_path), capture_output=True, text=True, timeout=120
    )
    text = result.stdout + result.stderr + (tmp_path / "ncu.log").read_text()
    assert "option" not in text
    expected = "no-kernels" if HAS_DRIVER else "driver"
    assert fatal_row(text) is row(expected)


def test_option_that_does_not_exist_is_a_row(tmp_path: Path) -> None:
    result = subprocess.run(
        ["ncu", "--bogus"], cwd=tmp_path, env=build_environment(tmp_path), capture_output=True, text=True, timeout=120
    )
    assert fatal_row(result.stdout + result.stderr) is row("ncu-options")


@pytest.mark.parametrize("option", ["--kernel-id", "--kernel-name"])
def test_a_second_kernel_filter_is_refused(tmp_path: Path, option: str) -> None:
    """Why launches are gated by the program and not by ncu: one filter cannot name the n-th launch of each stratum."""
    result = subprocess.run(
        ["ncu", option, "::a:1", option, "::b:2", "--list-sections"],
        cwd=tmp_path,
        env=build_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert f"option '{option}' cannot be specified more than once" in result.stdout + result.stderr
