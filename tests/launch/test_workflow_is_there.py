"""A stage ends with the workflow that started it on this host, and takes no other host's process for it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from gpustudy.base.errors import UserError
from gpustudy.launch.guard import MAIN_PID, announce_workflow, require_workflow


@pytest.fixture
def ended() -> int:
    """Id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_workflow_that_announced_itself_is_there(monkeypatch):
    monkeypatch.setenv(MAIN_PID, "")
    announce_workflow()
    assert os.environ[MAIN_PID] == f"{os.getpid()}@{socket.gethostname()}"
    require_workflow()


def test_a_stage_ends_when_its_workflow_on_this_host_is_gone(monkeypatch, ended):
    monkeypatch.setenv(MAIN_PID, f"{ended}@{socket.gethostname()}")
    with pytest.raises(UserError, match="the workflow that started this stage is gone"):
        require_workflow()


@pytest.mark.parametrize("host", ["login02.expanse.sdsc.edu", ""])
def test_a_process_of_another_host_says_nothing_here(monkeypatch, ended, host):
    monkeypatch.setenv(MAIN_PID, f"{ended}@{host}")
    require_workflow()


def test_a_stage_started_by_hand_has_no_workflow(monkeypatch):
    monkeypatch.delenv(MAIN_PID, raising=False)
    require_workflow()
