"""The command line that runs one program in a container, for Apptainer and for Docker.

Both give the program the same: its folders under /study and nothing else of the host's files, a temporary folder, a
home of its own, and no variable but those named. spython's ``Client.execute`` is not used for this: it holds all output
back until the end and hands no signal on.
"""

from __future__ import annotations

import csv
import io
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpustudy.launch.runtimes import Runtime

INSIDE = "/study"
"""Where the checkout stands in a container: working folder, so that relative paths mean the same as outside."""
HOME = f"{INSIDE}/home"
TEMPORARY = "/tmp"  # noqa: S108 - a folder of the job's own, bound there
OWNER_LABEL = "gpustudy.owner"
"""Docker label with host and process that started a container: what is left of a killed one is found by it."""


@dataclass(frozen=True)
class Mount:
    """A folder of the host in a container.

    Attributes:
        source: absolute path on the host.
        target: absolute path in the container.
        writable: False: read only.
    """

    source: Path
    target: str
    writable: bool = False

    def __str__(self) -> str:
        """Return the mount as both runtimes take it: one CSV record, so that commas and colons do no harm."""
        fields = ["type=bind", f"src={self.source}", f"dst={self.target}", *([] if self.writable else ["ro"])]
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(fields)
        return text.getvalue()


@dataclass(frozen=True)
class ContainerJob:
    """One program to run in a container.

    Attributes:
        image: path of a .sif, or id of a Docker image.
        command: program and arguments.
        mounts: folders of the host.
        home: folder of the host that becomes HOME.
        environment: all variables that the program sees beside those of the image.
        uses_gpu: give it NVIDIA's devices and driver libraries.
        reads_counters: give it the right to read hardware counters, where the runtime can.
    """

    image: str
    command: tuple[str, ...]
    mounts: tuple[Mount, ...]
    home: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    uses_gpu: bool = False
    reads_counters: bool = False


@dataclass(frozen=True)
class Started:
    """How a job is started.

    Attributes:
        command: the command line.
        environment: variables to add for that command itself.
        undo: the command that ends the container where killing the first is not enough; empty where it is.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    undo: tuple[str, ...] = ()


def container_command(runtime: Runtime, job: ContainerJob) -> Started:
    """Return how ``job`` is started with ``runtime``."""
    return _apptainer(runtime, job) if runtime.kind == "apptainer" else _docker(runtime, job)


def _apptainer(runtime: Runtime, job: ContainerJob) -> Started:
    """Return Apptainer's command line.

    ``--home`` replaces ``--no-home``: the user's own home stays outside all the same, and HOME is a folder that can be
    written. Variables go through the environment, as ``--env`` splits values at commas.
    """
    mounts = [word for mount in job.mounts for word in ("--mount", str(mount))]
    command = [runtime.program, "--silent", "exec", "--cleanenv", "--contain"]
    command += ["--home", f"{job.home}:{HOME}", "--pwd", INSIDE, *mounts]
    command += ["--nv"] if job.uses_gpu else []
    environment = {f"{runtime.prefix}ENV_{name}": value for name, value in job.environment.items()}
    return Started((*command, job.image, *job.command), environment)


def _docker(runtime: Runtime, job: ContainerJob) -> Started:
    """Return Docker's command line.

    The container belongs to the daemon, not to this process: it has a name, by which it is removed whatever happens.
    """
    name = f"gpustudy-{os.getpid()}-{secrets.token_hex(4)}"
    home = Mount(job.home, HOME, writable=True)
    command = [runtime.program, "run", "--rm", "--init", "--name", name, "--label", f"{OWNER_LABEL}={owner()}"]
    command += [
        "--hostname",
        os.uname().nodename,
        "--network",
        "none",
        "--read-only",
        "--user",
        f"{os.getuid()}:{os.getgid()}",
        "--workdir",
        INSIDE,
    ]
    command += [word for mount in (*job.mounts, home) for word in ("--mount", str(mount))]
    command += ["--gpus", "all"] if job.uses_gpu else []
    command += ["--cap-add", "SYS_ADMIN"] if job.reads_counters else []
    if len(cores := os.sched_getaffinity(0)) < (os.cpu_count() or 1):
        command += ["--cpuset-cpus", ",".join(map(str, sorted(cores)))]
    variables = {"HOME": HOME, "USER": "gpustudy", **job.environment}
    command += [word for key, value in variables.items() for word in ("--env", f"{key}={value}")]
    return Started((*command, job.image, *job.command), {}, (runtime.program, "rm", "--force", name))


def owner() -> str:
    """Return host and number of this process, for the label of what it starts."""
    return f"{os.uname().nodename}:{os.getpid()}"


def left_behind(listing: str) -> list[str]:
    """Return the ids of containers whose launcher was of this host and is gone, from lines ``ID LABEL``."""
    rows = [line.split(maxsplit=1) for line in listing.splitlines()]
    return [row[0] for row in rows if len(row) == 2 and _is_gone(row[1].strip())]


def _is_gone(label: str) -> bool:
    host, _, number = label.rpartition(":")
    return host == os.uname().nodename and number.isdigit() and not Path(f"/proc/{number}").exists()
