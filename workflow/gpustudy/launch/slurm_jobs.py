"""No Slurm job outlives the run that submitted it, however the run ends.

Snakemake cancels its jobs on Ctrl-C only, and not those whose state it is asking for at that moment; on SIGTERM it
waits for them, and a killed run leaves them queued. So each run keeps a record of its jobs, written by the ``sbatch``
of ``workflow/profiles/bin``, and a process of its own that cancels what is left when the run is gone. When that process
died as well (a login node that went down), the next run in the folder does it.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpustudy.base.errors import UserError

JOBS_RECORD = "GPUSTUDY_SLURM_JOBS"
"""Environment variable with the record of this run's jobs: a line with id, cell and log each. Without the file nothing
is submitted."""

SLURM_ACCOUNT = "GPUSTUDY_SLURM_ACCOUNT"
"""Environment variable with the account of this run, which the wrappers tell the plugin when it asks for valid ones."""

_RECORDS = Path(".snakemake/gpustudy-slurm")
_SNAKEMAKE_LOCKS = Path(".snakemake/locks")
_ASK_LIMIT_S = 60.0
_PAUSE_S = 1.0
_CANCELLED_LOG = "cancelled.log"
_UNFINISHED = "--states=PENDING,CONFIGURING,RUNNING,SUSPENDED"
_GONE_LIMIT_S = 60.0
"""Seconds that cancelled jobs may take to leave the queue (KillWait is 30 s by default: slurm.conf(5))."""
_WATCH_LIMIT_S = 3600.0
"""Seconds for which jobs of a run that is gone are tried to be cancelled while Slurm does not answer."""
_SETTLE_S = 2.0
"""Seconds after the end of a run in which a submission that it had begun takes the record's lock."""
_RETRY_S = 5.0
_NO_PROGRAM = 127
"""Exit code of a shell, and of the wrappers, where there is no such program."""
_watchers: list[subprocess.Popen[bytes]] = []
"""Held until this process ends: their standard input closes with it, however it ends."""


def guard_slurm_jobs() -> str | None:
    """Open the record of this run's jobs and start the process that cancels what the run leaves behind.

    Jobs that earlier runs of this folder left are cancelled first; the caller holds the folder's run lock.

    Returns:
        A note for the user when such jobs were cancelled.

    Raises:
        UserError: there may be such jobs and Slurm does not answer.
    """
    cancelled = [job for record in _left_records() for job in _cancel_left(record)]
    _RECORDS.mkdir(parents=True, exist_ok=True)
    record = (_RECORDS / f"{socket.gethostname()}-{os.getpid()}.jobs").resolve()
    record.touch()
    os.environ[JOBS_RECORD] = str(record)
    _watchers.append(_start_watcher(record))
    _print_notes(_notes_of(record))
    if not cancelled:
        return None
    return f"cancelled {_named(cancelled)} of a run that was killed: its cells are made anew."


def end_on_sigterm() -> None:
    """Let SIGTERM end this run as Ctrl-C does: jobs are cancelled. Called when Snakemake has set its own handler."""
    signal.signal(signal.SIGTERM, _interrupt)


def cancel_jobs(record: Path) -> list[str]:
    """Cancel the jobs of a record that are still queued, wait until they are gone, and remove the record.

    Returns:
        The jobs; none where another process has done it: that of the run itself may end while the next run begins.

    Raises:
        OSError, subprocess.SubprocessError: Slurm does not answer; the record stays.
    """
    with _locked(record) as there:
        if not there:
            return []
        jobs = _queued(_ids(record), _UNFINISHED)
        if jobs:
            _ask(["scancel", *jobs])
        deadline = time.monotonic() + _GONE_LIMIT_S
        while _queued(jobs) and time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
        record.unlink()
        _notes_of(record).unlink(missing_ok=True)
    return jobs


def _notes_of(record: Path) -> Path:
    return record.with_name(record.name + ".notes")


def _print_notes(notes: Path) -> None:
    """Print what the wrappers note: Snakemake drops the reason why a group of jobs failed or was not submitted."""
    printed = 0

    def print_new() -> None:
        nonlocal printed
        with contextlib.suppress(OSError):
            lines = notes.read_text(errors="replace").splitlines()
            for line in lines[printed:]:
                print(line, file=sys.stderr, flush=True)
            printed = len(lines)

    def keep_printing() -> None:
        while True:
            time.sleep(_PAUSE_S)
            print_new()

    threading.Thread(target=keep_printing, daemon=True).start()
    atexit.register(print_new)


def _start_watcher(record: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "gpustudy.launch.slurm_jobs", str(record)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,  # whoever reads this run's output is not kept waiting for the watcher's end
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _cancel_left(record: Path) -> list[str]:
    try:
        return cancel_jobs(record)
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(
            f"a killed run may have left jobs ({record}) and Slurm does not answer ({error}): run again when it does."
        ) from error


def _left_records() -> list[Path]:
    """Return the records of runs that are gone. One of another host is left alone while Snakemake's lock stands."""
    records = sorted(_RECORDS.glob("*.jobs"))
    if not any(_SNAKEMAKE_LOCKS.glob("*")):
        return records
    host = socket.gethostname()
    return [record for record in records if record.name.rpartition("-")[0] == host]


@contextmanager
def _locked(record: Path) -> Iterator[bool]:
    """Hold the record as ``sbatch`` does during a submission. False where it was removed before it could be held."""
    try:
        file = record.open("r+")
    except FileNotFoundError:
        yield False
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield record.exists()


def _ids(record: Path) -> list[str]:
    return [line.split()[0] for line in record.read_text().splitlines() if line.strip()]


def _queued(jobs: Sequence[str], *options: str) -> list[str]:
    """Return those of ``jobs`` that wait, run or end right now, or what ``options`` of squeue choose of them."""
    if not jobs:
        return []
    queue = _ask(["squeue", "--noheader", f"--user={os.getuid()}", "--format=%i", *options]).split()
    return [job for job in jobs if job in queue]


def _ask(command: Sequence[str]) -> str:
    done = subprocess.run(list(command), capture_output=True, text=True, check=True, timeout=_ASK_LIMIT_S)
    return done.stdout


def _named(jobs: Sequence[str]) -> str:
    return f"Slurm job{'s' if len(jobs) > 1 else ''} {', '.join(jobs)}"


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _watch(record: Path) -> None:
    """Wait until the run is gone (standard input ends), then cancel what it left."""
    sys.stdin.buffer.read()
    time.sleep(_SETTLE_S)
    deadline = time.monotonic() + _WATCH_LIMIT_S
    while record.exists() and time.monotonic() < deadline and not _try_to_cancel(record):
        time.sleep(_RETRY_S)


def _try_to_cancel(record: Path) -> bool:
    """Return False where Slurm does not answer now; if it stays so, the next run cancels."""
    try:
        jobs = cancel_jobs(record)
    except subprocess.CalledProcessError as error:
        return error.returncode == _NO_PROGRAM
    except subprocess.SubprocessError:
        return False
    if jobs:
        with record.with_name(_CANCELLED_LOG).open("a") as log:
            print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} cancelled {_named(jobs)} of {record.stem}", file=log)
    return True


if __name__ == "__main__":
    _watch(Path(sys.argv[1]))
