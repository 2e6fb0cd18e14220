"""One stage at a time on a device: file locks that all users and checkouts of a machine share."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpustudy.base.errors import UserError
from gpustudy.launch.guard import require_workflow

_POLL_S = 0.2
_REMIND_S = 600.0
"""Seconds between messages of a stage that waits: few enough for a log, often enough to see that it is alive."""
_MOST_LABEL_BYTES = 200


@contextmanager
def hold_one_of(devices: Sequence[str], label: str, folder: Path, alone: bool = True) -> Iterator[str]:
    """Hold one of ``devices`` of this machine; wait, and say so, while other stages hold all of them.

    The lock is the kernel's (flock): it ends with the process that holds it, however that ends.

    Args:
        devices: names of devices, part of the lock's file name; earlier ones are taken first.
        label: who holds it, for the message to those that wait.
        folder: where the lock files lie, the same for all users of the machine.
        alone: False for a stage that measures nothing: it shares the device with others that do not measure either.

    Raises:
        UserError: a lock file is closed to this user, or the workflow that started this stage is gone.
    """
    kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    told = float("-inf")
    while (taken := _take_one(devices, folder, kind)) is None:
        if time.monotonic() - told > _REMIND_S:
            told = time.monotonic()
            print(f"{label}: waiting, {_holders(devices, folder)}", file=sys.stderr, flush=True)
        require_workflow()
        time.sleep(_POLL_S)
    device, descriptor = taken
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{label} (process {os.getpid()})".encode()[:_MOST_LABEL_BYTES], 0)
        yield device
    finally:
        os.close(descriptor)


def _take_one(devices: Sequence[str], folder: Path, kind: int) -> tuple[str, int] | None:
    """Lock the first of ``devices`` that is free and return it with its descriptor; None when none is."""
    for device in devices:
        path = _path(folder, device)
        descriptor = _open_shared(path)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        if _is_still(path, descriptor):
            return device, descriptor
        os.close(descriptor)  # a cleaner of temporary files removed it between open and lock: try again next round
    return None


def _path(folder: Path, device: str) -> Path:
    return folder / f"gpustudy-{device}.lock"


def _is_still(path: Path, descriptor: int) -> bool:
    """Tell whether ``descriptor`` is the file that the next stage would open at ``path``."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _holders(devices: Sequence[str], folder: Path) -> str:
    """Return who holds each device, as the holders wrote it."""
    held = []
    for device in devices:
        try:
            text = _path(folder, device).read_bytes()[:_MOST_LABEL_BYTES].decode(errors="replace").strip()
        except OSError:
            text = ""
        held.append(f"{text or 'another stage'} holds {device}")
    return ", ".join(held)


def _open_shared(path: Path) -> int:
    """Open a lock file that users of this machine share; a sticky folder may forbid creating over another's."""
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        pass
    except PermissionError as error:
        raise UserError(f"{path} belongs to another user and is closed to you: ask its owner to remove it.") from error
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:  # another stage was faster
        return _open_shared(path)
    except OSError as error:
        raise UserError(f"{path} cannot be made ({error.strerror}): make {path.parent}/ writable for all.") from error
    os.fchmod(descriptor, 0o666)
    return descriptor
