"""Starting one stage of one cell: its cell file, its folders, its environment, its device."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from gpustudy.base.atomic import write_json
from gpustudy.base.errors import UserError
from gpustudy.launch.devices import hold_device
from gpustudy.launch.guard import run_guarded
from gpustudy.study.cells import MEASURING_STAGES, PREVIOUS, Cell, Keys
from gpustudy.study.load import ROOT, Effective
from gpustudy.study.paths import CELLS, data_directory, stage_directory


def launch_stage(effective: Effective, cell: Cell, stage: str, planned_key: str | None) -> int:
    """Run one stage of one cell and return the exit code of its process.

    Args:
        effective: the study as seen from the site that runs it.
        cell: the cell.
        stage: name of the stage.
        planned_key: the key that the workflow planned with, or None to take the present one.

    Raises:
        UserError: the key is another than planned, or the gpu cannot run at this site.
    """
    keys = Keys(effective)
    keys.require(cell, stage)
    if cell.gpu not in keys.runnable:
        raise UserError(f"{cell} cannot run at site {effective.site}: run it at a site that lists {cell.gpu}.")
    if keys.acceptance(cell, stage):
        raise UserError(f"{cell} {stage} has an accepted result: 'gpustudy retry {cell}/{stage}' lets it run anew.")
    key = keys.stage_key(cell, stage)
    if planned_key not in (None, key):
        raise UserError(
            f"{cell} {stage} has key {key} now, but was planned with {planned_key}: "
            "config or sources changed since; run snakemake again."
        )
    with tempfile.TemporaryDirectory(prefix="gpustudy-") as folder:
        cell_file = Path(folder) / "cell.json"
        write_json(cell_file, keys.cell_file(cell, stage))
        command = _command(effective, keys, cell, stage, cell_file)
        gpu = effective.study.gpus[cell.gpu]
        with hold_device(gpu, cell.gpu, f"{cell} {stage}", alone=stage in MEASURING_STAGES) as chosen:
            return run_guarded(command, {**_environment(), **chosen})


def _command(effective: Effective, keys: Keys, cell: Cell, stage: str, cell_file: Path) -> list[str]:
    def folder_of(name: str) -> Path:
        key = keys.stage_key(cell, name)
        return stage_directory(effective.results, CELLS, cell.gpu, cell.config, cell.repeat, name, key)

    data = effective.study.workloads[effective.study.gpus[cell.gpu].workload].data
    command = [sys.executable, "-m", "gpustudy.cell", stage, "--cell", str(cell_file)]
    command += ["--data", str(data_directory(effective.results, data, keys.data_key(data)))]
    command += ["--out", str(folder_of(stage))]
    previous = PREVIOUS[stage]
    return [*command, "--previous", str(folder_of(previous))] if previous else command


def _environment() -> dict[str, str]:
    """Return the environment of a stage: this one, with the commit it runs from as provenance."""
    commit = _git("rev-parse", "HEAD")
    dirty = _git("status", "--porcelain", "--untracked-files=no")
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT / "workflow"),
        "PYTHONUNBUFFERED": "1",
        **({"GPUSTUDY_GIT_COMMIT": commit} if commit else {}),
        **({"GPUSTUDY_GIT_DIRTY": "true" if dirty else "false"} if dirty is not None else {}),
    }


def _git(*words: str) -> str | None:
    """Return what git says of the checkout; None where there is no git or no checkout."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
