"""A process that reads parts of a report with NVIDIA's reader, and everything that may go wrong with it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from gpustudy.base.errors import UserError
from gpustudy.metrics.ncu import worker

_SECONDS_PER_PART = 600.0
"""A part takes about half a second; a reader that hangs is ended after this."""


_ALLOCATOR = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Large pages for the reader's many small objects: a tenth less CPU time, measured on glibc 2.36; others ignore it."""


class PartReader:
    """The process of ``worker.py``: takes parts and gives their frames, in order; ended with the block that uses it.

    Before a frame is taken, ``worker.COPIES`` further parts must have been given, or ``finish`` called.
    """

    def __init__(self, report: Path, folder: Path, metrics: Sequence[str] | None) -> None:
        """Prepare.

        Args:
            report: named in errors.
            folder: where the process's files go.
            metrics: names of the metrics to read; None for all.
        """
        self._report, self._folder, self._metrics = report, folder, metrics
        self._given: deque[tuple[Path, str]] = deque()

    def __enter__(self) -> PartReader:
        with self._errors.open("wb") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-I", worker.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                env=os.environ | _ALLOCATOR,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()
        self._process.wait()
        self.finish()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def give(self, part: Path, what: str) -> None:
        """Ask for the frame of one part.

        Args:
            part: the part, a report of its own; removed when its frame is taken.
            what: which launches it holds, for errors.
        """
        self._given.append((part, what))
        request = {"report": str(part), "output": str(_frame_of(part)), "metrics": self._metrics}
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it ended before it read: its exit code tells
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def finish(self) -> None:
        """Say that no further part comes."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()

    def take(self) -> bytes:
        """Return the frame of the earliest part whose frame was not taken.

        Raises:
            UserError: the reader is not installed, crashed or hung.
        """
        part, what = self._given.popleft()
        if code := self._answer(what):
            raise self._failure(code, what)
        frame = _frame_of(part).read_bytes()
        _frame_of(part).unlink()
        part.unlink()
        return frame

    def _answer(self, what: str) -> int:
        """Return the exit code of whatever answered or failed to."""
        assert self._process.stdout is not None
        hung = threading.Event()

        def end() -> None:
            hung.set()
            self._kill()

        timer = threading.Timer(_SECONDS_PER_PART, end)
        timer.start()
        answer = self._process.stdout.readline()
        timer.cancel()
        if hung.is_set():
            raise UserError(
                f"{self._report}: NVIDIA's reader (ncu-report) did not end within {_SECONDS_PER_PART:.0f} s on {what}: "
                "try another version of ncu-report."
            )
        return int(answer) if answer else self._process.wait()

    @property
    def _errors(self) -> Path:
        return self._folder / "errors"

    def _kill(self) -> None:
        """End the process and its copies, which share its session."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _failure(self, code: int, what: str) -> UserError:
        if code == worker.EXIT_NO_READER:
            return UserError(
                f"{self._report} needs NVIDIA's reader, which is not installed here: run 'pip install ncu-report', "
                "or give a CSV export."
            )
        ending = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        last = self._errors.read_text("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
        return UserError(
            f"{self._report}: NVIDIA's reader (ncu-report) ended with {ending} on {what} ({last[0]}): "
            "try another version of ncu-report, or give a CSV export."
        )


def _frame_of(part: Path) -> Path:
    return part.with_suffix(".frame")
