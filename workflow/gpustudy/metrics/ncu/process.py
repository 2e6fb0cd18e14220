"""A process that reads parts of a report with NVIDIA's reader, and everything that may go wrong with it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
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
    """One process of ``worker.py``, started with its first part and ended with the block that uses it."""

    def __init__(self, report: Path, folder: Path) -> None:
        """Prepare; ``report`` is named in errors, ``folder`` is made for the process's files."""
        self._report, self._folder = report, folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PartReader:
        self._folder.mkdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()

    def read(self, part: Path, what: str, metrics: Sequence[str] | None) -> bytes:
        """Return the frame of one part.

        Args:
            part: the part, a report of its own; removed afterwards.
            what: which launches it holds, for errors.
            metrics: names of the metrics to read; None for all.

        Raises:
            UserError: the reader is not installed, crashed or hung.
        """
        output = self._folder / "frame"
        errors = self._folder / "errors"
        before = errors.stat().st_size if errors.exists() else 0
        request = {"report": str(part), "output": str(output), "metrics": metrics}
        code = self._ask(json.dumps(request).encode() + b"\n", errors, what)
        said = errors.read_bytes()[before:]
        part.unlink()
        if code:
            raise self._failure(code, said, what)
        frame = output.read_bytes()
        output.unlink()
        return frame

    def _ask(self, request: bytes, errors: Path, what: str) -> int:
        """Send a request; return the exit code of whatever answered or failed to."""
        if self._process is None:
            with errors.open("wb") as stream:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", worker.__file__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stream,
                    env=os.environ | _ALLOCATOR,
                    start_new_session=True,
                )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        hung = threading.Event()

        def end() -> None:
            hung.set()
            self._kill()

        timer = threading.Timer(_SECONDS_PER_PART, end)
        timer.start()
        with contextlib.suppress(BrokenPipeError):  # it ended before it read: its exit code tells
            process.stdin.write(request)
            process.stdin.flush()
        answer = process.stdout.readline()
        timer.cancel()
        if hung.is_set():
            raise UserError(
                f"{self._report}: NVIDIA's reader (ncu-report) did not end within {_SECONDS_PER_PART:.0f} s on {what}: "
                "try another version of ncu-report."
            )
        return int(answer) if answer else process.wait()

    def _kill(self) -> None:
        """End the process and its copies, which share its session."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _failure(self, code: int, said: bytes, what: str) -> UserError:
        if code == worker.EXIT_NO_READER:
            return UserError(
                f"{self._report} needs NVIDIA's reader, which is not installed here: run 'pip install ncu-report', "
                "or give a CSV export."
            )
        ending = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        last = said.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
        return UserError(
            f"{self._report}: NVIDIA's reader (ncu-report) ended with {ending} on {what} ({last[0]}): "
            "try another version of ncu-report, or give a CSV export."
        )
