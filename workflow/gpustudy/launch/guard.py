"""Guards around a running stage: alone on its device, and gone when the workflow that started it is gone."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpustudy.base.errors import UserError

MAIN_PID = "GPUSTUDY_MAIN_PID"
"""Environment variable with the process id of the Snakemake that started this job."""

_POLL_S = 0.1
_GRACE_S = 5.0
"""Seconds between SIGTERM and SIGKILL."""


@contextmanager
def hold_device(device: str, label: str, alone: bool = True) -> Iterator[None]:
    """Hold ``device`` of this machine; wait, and say so, while another stage holds it.

    Args:
        device: name of the device, part of the lock's file name.
        label: who holds it, for the message to those that wait.
        alone: False for a stage that measures nothing: it shares the device with others that do not measure either.
    """
    kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    path = Path(tempfile.gettempdir()) / f"gpustudy-{device}.lock"
    descriptor = _open_shared(path)
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another stage"
            print(f"{label}: waiting, {holder} holds {device}", file=sys.stderr, flush=True)
            fcntl.flock(descriptor, kind)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{label} (process {os.getpid()})".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def run_guarded(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run ``command`` in a process group of its own and return its exit code.

    The group is ended when this process is told to end, and when the workflow that started this job is gone
    (killed with -9, say): no orphan goes on measuring beside the next run.
    """
    main_pid = int(os.environ.get(MAIN_PID, "0"))
    process = subprocess.Popen(list(command), env=environment, start_new_session=True)
    previous = {number: signal.signal(number, _raise_interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        while (code := process.poll()) is None:
            if main_pid and not _is_alive(main_pid):
                raise UserError("the workflow that started this stage is gone: start it again.")
            time.sleep(_POLL_S)
        return code
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        _end_group(process)


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


def _open_shared(path: Path) -> int:
    """Open a lock file that users of this machine share; a sticky folder may forbid creating over another's."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.fchmod(descriptor, 0o666)
        return descriptor
    except PermissionError as error:
        raise UserError(f"{path} belongs to another user and is closed to you: ask its owner to remove it.") from error
