"""Asking a site's own tools: nvidia-smi, sinfo, sacctmgr; each with a time limit, none that can raise."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

ASK_TIMEOUT_S = 20.0
"""Seconds to wait for a tool: nvidia-smi takes several where persistence mode is off, a busy Slurm too."""

_NOT_FOUND, _NOT_RUNNABLE, _TIMED_OUT = 127, 126, 124
"""Exit codes as shells and timeout(1) give them."""


@dataclass(frozen=True)
class Answer:
    """What a tool said.

    Attributes:
        code: its exit code; 127 when it is not on PATH, 124 when it did not answer in time.
        out: its standard output.
        err: its standard error, or why there is no answer.
    """

    code: int
    out: str = ""
    err: str = ""

    @property
    def is_absent(self) -> bool:
        """True when the tool is not on PATH."""
        return self.code == _NOT_FOUND

    @property
    def complaint(self) -> str:
        """What went wrong, for a sentence: the line that calls itself fatal, else the first one."""
        lines = [line.strip() for line in (*self.err.splitlines(), *self.out.splitlines()) if line.strip()]
        fatal = [line for line in lines if "fatal:" in line]
        return [*fatal, *lines, f"exit code {self.code}"][0].rstrip(".")


class Runner(Protocol):
    """Runs a command and returns its answer; tests give one that has the answers of a site recorded."""

    def __call__(self, command: Sequence[str], timeout_s: float = ASK_TIMEOUT_S) -> Answer:
        """Run ``command`` without a shell and without input."""


def ask(command: Sequence[str], timeout_s: float = ASK_TIMEOUT_S) -> Answer:
    """Run ``command`` on this machine and return its answer, whatever happens to it."""
    path = shutil.which(command[0])
    if path is None:
        return Answer(_NOT_FOUND, err=f"{command[0]} is not on PATH")
    try:
        done = subprocess.run(
            [path, *command[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return Answer(_TIMED_OUT, err=f"{command[0]} did not answer within {timeout_s:.0f} s")
    except OSError as error:
        return Answer(_NOT_RUNNABLE, err=f"{path} does not run ({error.strerror})")
    return Answer(done.returncode, done.stdout, done.stderr)
