"""A real Slurm of one node for tests (tests/sites/slurm_up.sh), and runs of Snakemake that submit to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.support.checkout import REPOSITORY, Checkout

SCRIPTS = REPOSITORY / "tests" / "sites"
Found = TypeVar("Found")
ACCOUNT = "abc123"
"""The account that slurm_up.sh adds."""
FAST_POLLING = (
    *("--slurm-init-seconds-before-status-checks", "2"),
    *("--max-status-checks-per-second", "1", "--latency-wait", "10"),
)
"""What tests change of a profile: the seconds between looks."""


@dataclass(frozen=True)
class Slurm:
    """The Slurm in a folder.

    Attributes:
        folder: its state.
    """

    folder: Path

    @property
    def variables(self) -> dict[str, str]:
        """What a program needs to know to find this Slurm."""
        return {"SLURM_CONF": str(self.folder / "etc" / "slurm.conf")}

    def up(self) -> None:
        """Start what is not running."""
        self._script("slurm_up.sh")

    def down(self, *daemon: str) -> None:
        """Stop one daemon, or all."""
        self._script("slurm_down.sh", *daemon)

    def ask(self, *command: str, limit_s: float = 60) -> str:
        """Return what one of Slurm's programs prints."""
        environment = {**os.environ, **self.variables}
        done = subprocess.run(list(command), env=environment, capture_output=True, text=True, timeout=limit_s)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def queue(self, *options: str) -> dict[str, str]:
        """Return the state of each job that is in the queue."""
        lines = self.ask("squeue", "--noheader", "--format=%i %T", *options).splitlines()
        return dict(line.split() for line in lines)

    def wait_for(self, state: str, limit_s: float = 60) -> str:
        """Wait until a job is in ``state`` and return its id."""
        return wait_until(
            lambda: next((job for job, found in self.queue().items() if found == state), ""), limit_s, f"a {state} job"
        )

    def wait_until_empty(self, limit_s: float = 30) -> None:
        """Wait until no job is left."""
        wait_until(lambda: not self.queue(), limit_s, "an empty queue")

    def last_jobs(self, count: int) -> list[list[str]]:
        """Return id and state of the last jobs, as accounting has them; a job that was requeued is there twice."""
        words = ("-X", "-n", "--duplicates", "--parsable2", "--starttime=now-1day", "--format=JobID,State")
        lines = self.ask("sacct", *words).splitlines()  # without a start: those since midnight alone
        return [line.split("|") for line in lines[-count:]]

    def set_node(self, state: str) -> None:
        """Set the state of the one node: down or drain."""
        self.ask("scontrol", "update", f"nodename={self._node()[0]}", f"state={state}", "reason=test")

    def resume_node(self, limit_s: float = 30) -> None:
        """Bring the node back, which may come back by itself in the same moment: then Slurm refuses to resume it."""

        def is_up() -> bool:
            name, state = self._node()
            if state.startswith(("down", "drain")):
                with suppress(AssertionError):
                    self.ask("scontrol", "update", f"nodename={name}", "state=resume")
                return False
            return True

        wait_until(is_up, limit_s, "a node that is up")

    def _node(self) -> list[str]:
        """Return name and state of the one node."""
        return self.ask("sinfo", "--noheader", "--format=%n %T").split()[:2]

    def mend(self) -> None:
        """Start what a test left stopped and bring the node back."""
        self.up()
        self.resume_node()

    def _script(self, name: str, *arguments: str) -> None:
        environment = {**os.environ, "GPUSTUDY_SLURM_DIR": str(self.folder), "GPUSTUDY_SLURM_ACCOUNT": ACCOUNT}
        command = ["bash", str(SCRIPTS / name), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr


class Run:
    """A run of Snakemake in a checkout, in the background."""

    def __init__(self, checkout: Checkout, slurm: Slurm, *arguments: str, **extra: str) -> None:
        self.log = checkout.root / f"run-{time.monotonic_ns()}.log"
        variables = slurm.variables | {"GPUSTUDY_ACCOUNT": ACCOUNT} | extra
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "snakemake", *arguments],
                cwd=checkout.root,
                env=checkout.environment(**variables),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def printed(self) -> str:
        """What it has printed so far, stderr merged."""
        return self.log.read_text()

    def finish(self, limit_s: float = 150) -> int:
        """Wait for its end and return its exit code; a run that hangs is killed and fails the test."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self.process.wait()
            raise AssertionError(f"the run hangs: no end after {limit_s:g} s\n{self.printed[-4000:]}") from None

    def signal(self, number: int) -> None:
        """Send a signal to Snakemake alone."""
        self.process.send_signal(number)


def wait_until(look: Callable[[], Found], limit_s: float, what: str) -> Found:
    """Return what ``look`` returns once that is true; fail after ``limit_s`` seconds."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.3)
    raise AssertionError(f"no {what} after {limit_s:g} s")
