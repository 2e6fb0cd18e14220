"""The process of one stage: on the bare machine, or in the container of its stack with the same relative paths."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpustudy.base.errors import UserError
from gpustudy.launch.containers import (
    INSIDE,
    OWNER_LABEL,
    TEMPORARY,
    ContainerJob,
    Mount,
    container_command,
    left_behind,
)
from gpustudy.launch.guard import run_guarded
from gpustudy.launch.images import Image, usable_image, wanted_image
from gpustudy.launch.runtimes import Runtime, find_runtime, host_environment, scratch_folder
from gpustudy.launch.tools import ask
from gpustudy.study.cells import MEASURING_STAGES, Keys
from gpustudy.study.load import ROOT, Effective

_UNDO_TIMEOUT_S = 60.0
_JOB = "job"
"""Folder below /study with the cell file."""
_PASSED_ON = ("SLURM_JOB_ID",)
"""Variables of the host that a stage in a container sees: what provenance asks for, nothing that changes a result."""


@dataclass(frozen=True)
class StageCall:
    """One stage, as the cell side is called for it.

    Attributes:
        stage: name of the stage.
        folder: the job's own temporary folder; the cell file lies in it.
        cell_file: what the stage is given.
        data: prepared data.
        out: folder that the stage makes; its parent is the folder of the cell.
        previous: folder of the stage that it starts from, of the same cell.
    """

    stage: str
    folder: Path
    cell_file: Path
    data: Path
    out: Path
    previous: Path | None

    def arguments(self, cell_file: str) -> list[str]:
        """Return the words behind ``python``."""
        words = ["-m", "gpustudy.cell", self.stage, "--cell", cell_file, "--data", str(self.data)]
        words += ["--out", str(self.out)]
        return [*words, "--previous", str(self.previous)] if self.previous else words


@dataclass(frozen=True)
class Box:
    """The container that the cells of a gpu run in at a site: its runtime and its image, both checked.

    Attributes:
        runtime: the runtime.
        image: the image.
        scratch: fast folder of the site; None where it has none.
        uses_gpu: the gpu is an NVIDIA one.
    """

    runtime: Runtime
    image: Image
    scratch: Path | None
    uses_gpu: bool


def box_of(effective: Effective, gpu: str, keys: Keys) -> Box | None:
    """Return the container of a gpu's cells; None where the site runs them without.

    Raises:
        UserError: the runtime is missing, or the image is missing or damaged.
    """
    site = effective.study.sites[effective.site]
    if site.runtime == "none":
        return None
    runtime = find_runtime(site.runtime, site, effective.site)
    image = usable_image(wanted_image(effective, effective.study.gpus[gpu].stack, keys), runtime)
    return Box(runtime, image, scratch_folder(effective), effective.study.gpus[gpu].device == "cuda")


def run_stage_process(call: StageCall, box: Box | None, chosen: Mapping[str, str]) -> int:
    """Run a stage and return its exit code.

    Args:
        call: the stage.
        box: its container; None: this Python, on the bare machine.
        chosen: variables that name its device.
    """
    if box is None:
        fixed = {"PYTHONPATH": str(ROOT / "workflow"), **provenance_environment(), **waiting_environment(call.stage)}
        environment = {**os.environ, **fixed, **chosen}
        return run_guarded([sys.executable, *call.arguments(str(call.cell_file))], environment)
    _remove_left_behind(box.runtime)
    started = container_command(box.runtime, container_job(call, box, chosen))
    host = host_environment(box.runtime, box.scratch, os.environ)
    return run_guarded(started.command, host | started.environment, started.undo)


def container_job(call: StageCall, box: Box, chosen: Mapping[str, str]) -> ContainerJob:
    """Return the stage as a program in a container: what it may read, what it may write, what it sees.

    Raises:
        UserError: the prepared data is missing, which a runtime would tell in its own words.
    """
    if not call.data.is_dir():
        raise UserError(
            f"{call.data} is missing: 'gpustudy data prepare {call.data.name.rpartition('-')[0]}' makes it."
        )
    home, temporary, job = (call.folder / name for name in ("home", "tmp", _JOB))
    for folder in (home, temporary, job, call.out.parent):
        folder.mkdir(parents=True, exist_ok=True)
    call.cell_file.rename(job / call.cell_file.name)
    mounts = (
        Mount(ROOT / "workflow", f"{INSIDE}/workflow"),
        Mount(job, f"{INSIDE}/{_JOB}"),
        Mount(call.data.resolve(), f"{INSIDE}/{call.data}"),
        Mount(call.out.parent.resolve(), f"{INSIDE}/{call.out.parent}", writable=True),
        Mount(temporary, TEMPORARY, writable=True),
    )
    environment = {
        **{name: os.environ[name] for name in _PASSED_ON if name in os.environ},
        **provenance_environment(),
        **waiting_environment(call.stage),
        "PYTHONPATH": f"{INSIDE}/workflow",
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": TEMPORARY,
        "LC_ALL": "C.UTF-8",
        "GPUSTUDY_IMAGE_SHA256": box.image.sha256,
        **chosen,
    }
    words = call.arguments(f"{_JOB}/{call.cell_file.name}")
    reads_counters = call.stage == "counters"
    return ContainerJob(
        box.image.reference, ("python", *words), mounts, home, environment, box.uses_gpu, reads_counters
    )


def _remove_left_behind(runtime: Runtime) -> None:
    """Remove Docker's containers whose launcher was killed, so that none measures beside this stage."""
    if runtime.kind == "docker":
        form = f'{{{{.ID}}}} {{{{.Label "{OWNER_LABEL}"}}}}'
        listing = ask([runtime.program, "ps", "--filter", f"label={OWNER_LABEL}", "--format", form])
        for container in left_behind(listing.out):
            ask([runtime.program, "rm", "--force", container], _UNDO_TIMEOUT_S)


def provenance_environment() -> dict[str, str]:
    """Return what every stage sees: unbuffered output, and the commit that it runs from as provenance."""
    commit = _git("rev-parse", "HEAD")
    dirty = _git("status", "--porcelain", "--untracked-files=no")
    return {
        "PYTHONUNBUFFERED": "1",
        **({"GPUSTUDY_GIT_COMMIT": commit} if commit else {}),
        **({"GPUSTUDY_GIT_DIRTY": "true" if dirty else "false"} if dirty is not None else {}),
    }


def waiting_environment(stage: str) -> dict[str, str]:
    """Return how the idle threads of a stage wait: asleep in one that runs beside others, whose cores they would hold.

    Two sampling stages at once took twice as long as one after the other without it.
    """
    return {} if stage in MEASURING_STAGES else {"OMP_WAIT_POLICY": "PASSIVE"}


def _git(*words: str) -> str | None:
    """Return what git says of the checkout; None where there is no git or no checkout."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
