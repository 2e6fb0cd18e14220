"""A running stage ends when it is told to, and when the workflow that started it is gone."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gpustudy.base.errors import UserError

MAIN_PID = "GPUSTUDY_MAIN_PID"
"""Environment variable with process id and host of the Snakemake that started this job, as ``PID@HOST``. In a job of
Slurm that is the Snakemake inside the job; one that came from another host with the environment says nothing here."""

_WATCHER = Path(__file__).with_name("watcher.py")
_POLL_S = 0.1
_GRACE_S = 5.0
"""Seconds between SIGTERM and SIGKILL."""


def announce_workflow() -> None:
    """Tell the jobs that this process starts that it is their workflow."""
    os.environ[MAIN_PID] = f"{os.getpid()}@{socket.gethostname()}"


def require_workflow() -> None:
    """Refuse to go on when the workflow that started this job is gone: killed with -9, say.

    Raises:
        UserError: it is gone.
    """
    pid, _, host = os.environ.get(MAIN_PID, "").partition("@")
    if pid.isdigit() and host == socket.gethostname() and not _is_alive(int(pid)):
        raise UserError("the workflow that started this stage is gone: start it again.")


def run_guarded(command: Sequence[str], environment: dict[str, str], undo: Sequence[str] = ()) -> int:
    """Run ``command`` in a process group of its own and return its exit code.

    The group is ended when this process is told to end, when the workflow that started this job is gone, and when this
    process itself is killed with -9: no orphan goes on measuring beside the next run.

    Args:
        command: what to run.
        environment: all its variables.
        undo: a command to run at its end, however that comes, where ending the group is not enough.
    """
    process = subprocess.Popen(list(command), env=environment, start_new_session=True)
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_WATCHER), str(process.pid), *undo],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    previous = {number: signal.signal(number, _raise_interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        while (code := process.poll()) is None:
            require_workflow()
            time.sleep(_POLL_S)
        return code
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        _end_group(process)
        watcher.communicate(b".")


def _raise_interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _end_group(process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _GRACE_S
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
