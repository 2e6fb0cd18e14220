"""One run at a time in a folder: a second one is told so, and what a killed one left behind is cleared."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

from gpustudy.base.errors import UserError

_LOCK = Path(".snakemake/gpustudy-run.lock")
_SNAKEMAKE_LOCKS = Path(".snakemake/locks")
_held: list[int] = []
"""Descriptors held until the process ends: closing one would release its lock."""


def run_in_this_folder() -> str:
    """Return the process and host of the run that holds this folder, or held it last; empty where there was none."""
    try:
        return _LOCK.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def hold_run_lock() -> str | None:
    """Take this folder's run lock for the life of the process.

    Snakemake keeps its own lock as plain files, which a killed run leaves behind; they are removed when this
    lock shows that no run of this machine is alive.

    Returns:
        A note for the user when a killed run's locks were cleared.

    Raises:
        UserError: another run holds the lock.
    """
    _LOCK.parent.mkdir(exist_ok=True)
    descriptor = os.open(_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    before = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UserError(
            f"another snakemake ({before}) is running in this folder: wait until it ends, or stop it."
        ) from None
    _held.append(descriptor)
    host = socket.gethostname()
    left = sorted(_SNAKEMAKE_LOCKS.glob("*")) if _SNAKEMAKE_LOCKS.is_dir() else []
    was_here = before.endswith(f"on {host}")
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()} on {host}".encode(), 0)
    if not left or not was_here:
        return None
    for path in left:
        path.unlink(missing_ok=True)
    return f"cleared the lock that a killed run ({before}) had left; continuing where it stopped."
