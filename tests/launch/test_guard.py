"""A stage ends with its launcher, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpustudy.launch.guard import run_guarded

PROGRAM = """
import os, sys
from gpustudy.launch.guard import run_guarded
code = "import os, time; open({pid!r}, 'w').write(str(os.getpid())); time.sleep(60)"
sys.exit(run_guarded([sys.executable, "-c", code], dict(os.environ), ["touch", {undone!r}]))
"""
WAIT_S = 10.0


def wait_for(condition, limit_s: float = WAIT_S) -> bool:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
def test_a_stage_ends_and_is_undone_when_its_launcher_is_ended(number, tmp_path, repository):
    pid_file, undone = tmp_path / "pid", tmp_path / "undone"
    program = PROGRAM.format(pid=str(pid_file), undone=str(undone))
    environment = {**os.environ, "PYTHONPATH": str(repository / "workflow")}
    launcher = subprocess.Popen([sys.executable, "-c", program], env=environment, stderr=subprocess.DEVNULL)
    assert wait_for(lambda: pid_file.exists() and pid_file.read_text())
    stage = Path(f"/proc/{pid_file.read_text()}")
    launcher.send_signal(number)
    launcher.wait()
    assert wait_for(lambda: not stage.exists())
    assert wait_for(undone.exists)


def test_the_exit_code_passes_through_and_what_is_to_be_undone_is(tmp_path):
    undone = tmp_path / "undone"
    assert run_guarded(["sh", "-c", "exit 7"], dict(os.environ), ["touch", str(undone)]) == 7
    assert undone.exists()


def test_nothing_is_left_running_after_a_good_end(tmp_path):
    before = set(Path("/proc").glob("[0-9]*"))
    assert run_guarded(["true"], dict(os.environ)) == 0
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    assert not [pid for pid in children if Path(f"/proc/{pid}") not in before]
