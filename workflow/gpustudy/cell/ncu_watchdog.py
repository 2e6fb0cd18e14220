"""Runs ncu and ends it, with every process below it, when it stalls or when there is no sense in waiting.

ncu may hang without a word (a kernel that waits for another process), and after some errors it lets the program
train on unprofiled. Progress is any growth of the watched files: log, report, the program's output, its heartbeat.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

POLL_S = 0.5
"""Seconds between looks at the watched files."""
GRACE_S = 20.0
"""Seconds between SIGTERM and SIGKILL: ncu needs some to unlock the clocks and to close its report."""


@dataclass(frozen=True)
class RunEnd:
    """How a watched run ended.

    Attributes:
        exit_code: that of the command; negative for a signal, as ``subprocess`` gives it.
        is_stalled: it was ended because nothing grew for the stall timeout.
        stopped_by: what ``stop_when`` returned when it ended the run, or None.
        seconds: wall time.
    """

    exit_code: int
    is_stalled: bool
    stopped_by: str | None
    seconds: float


def run_watched(
    command: Sequence[str],
    environment: dict[str, str],
    working_folder: Path,
    output: Path,
    watched: Sequence[Path],
    stall_timeout_s: float,
    stop_when: Callable[[], str | None],
    grace_s: float = GRACE_S,
) -> RunEnd:
    """Run ``command`` in a process group of its own until it ends, stalls, or ``stop_when`` gives a reason.

    Args:
        command: program and arguments.
        environment: its whole environment.
        working_folder: its working folder.
        output: file that takes its standard output and standard error; watched too.
        watched: files and folders whose growth or modification is progress; they need not exist yet.
        stall_timeout_s: seconds without progress after which it is ended.
        stop_when: asked at every look; a text ends the run at once.
        grace_s: seconds from SIGTERM to SIGKILL.

    Raises:
        OSError: the command cannot be started.
    """
    started = time.monotonic()
    files = [output, *watched]
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=working_folder,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    is_stalled, stopped_by = False, None
    try:
        is_stalled, stopped_by = _watch(process, files, stall_timeout_s, stop_when)
    finally:
        # Also on Ctrl-C and on SIGTERM, which the command line turns into an exception: no process may outlive it.
        end_group(process, grace_s)
    return RunEnd(process.returncode, is_stalled, stopped_by, round(time.monotonic() - started, 3))


def _watch(
    process: subprocess.Popen[bytes],
    files: Sequence[Path],
    stall_timeout_s: float,
    stop_when: Callable[[], str | None],
) -> tuple[bool, str | None]:
    """Wait for the end; return (stalled, reason to stop)."""
    seen, last_progress = progress_mark(files), time.monotonic()
    while True:
        try:
            process.wait(timeout=min(POLL_S, stall_timeout_s))
        except subprocess.TimeoutExpired:
            pass
        else:
            return False, None
        if reason := stop_when():
            return False, reason
        mark = progress_mark(files)
        if mark != seen:
            seen, last_progress = mark, time.monotonic()
        elif time.monotonic() - last_progress > stall_timeout_s:
            return True, None


def progress_mark(paths: Sequence[Path]) -> tuple[tuple[int, int], ...]:
    """Return (bytes, newest modification in ns) of each file or folder tree; (0, 0) for one that is not there."""
    return tuple(_mark(path) for path in paths)


def _mark(path: Path) -> tuple[int, int]:
    total, newest = 0, 0
    files = path.rglob("*") if path.is_dir() else (path,)
    for file in files:
        with contextlib.suppress(OSError):  # a temporary file may go while it is looked at
            stat = file.stat()
            total, newest = total + stat.st_size, max(newest, stat.st_mtime_ns)
    return total, newest


def end_group(process: subprocess.Popen[bytes], grace_s: float = GRACE_S) -> None:
    """End ``process``, its group and every descendant: SIGTERM, then after ``grace_s`` SIGKILL for what is left."""
    # The number of a process that has ended may be another's by now: only its group is asked then.
    has_ended = process.poll() is not None
    targets = set() if has_ended else {process.pid, *descendants(process.pid)}
    _signal_all(process.pid, targets, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline and _any_alive(process, targets):
        time.sleep(min(0.1, grace_s))
    if process.poll() is None:
        targets |= set(descendants(process.pid))
    _signal_all(process.pid, targets, signal.SIGKILL)
    process.wait()


def _any_alive(process: subprocess.Popen[bytes], targets: set[int]) -> bool:
    process.poll()  # reap it, or it would look alive
    return any(_is_alive(target) for target in targets)


def _signal_all(group: int, targets: set[int], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
    for target in targets:
        if _is_alive(target):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(target, number)


def _is_alive(pid: int) -> bool:
    fields = _stat(pid)
    return fields is not None and fields[0] != "Z"


def descendants(pid: int) -> list[int]:
    """Return the processes below ``pid``, also those that began a session of their own; empty without /proc."""
    parents = dict(_parents())
    below, level = [], {pid}
    while level:
        level = {child for child, parent in parents.items() if parent in level}
        below += sorted(level)
    return below


def _parents() -> Iterator[tuple[int, int]]:
    """Yield (process id, parent's id) of every process."""
    for folder in Path("/proc").glob("[0-9]*"):
        fields = _stat(int(folder.name))
        if fields is not None:
            yield int(folder.name), int(fields[1])


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the state on (proc(5)), or None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()
