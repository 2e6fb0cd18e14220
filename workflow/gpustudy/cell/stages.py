"""Runs one stage of one cell: refuses what does not fit, then writes the stage's directory whole or not at all."""

from __future__ import annotations

import importlib
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from gpustudy.base.atomic import atomic_directory
from gpustudy.base.errors import UserError
from gpustudy.base.status import Status, write_status
from gpustudy.cell.document import (
    CELL_FILE,
    Cell,
    applicable,
    check_data,
    check_pins,
    check_previous,
    check_sources,
    read_cell,
)
from gpustudy.cell.outcomes import Outcome, is_out_of_memory, out_of_memory
from gpustudy.cell.provenance import write_provenance

STAGES = {
    "train": "gpustudy.cell.train",
    "census": "gpustudy.cell.census",
    "counters": "gpustudy.cell.counters",
    "quality": "gpustudy.cell.quality",
}
"""Stage name to the module whose ``run(job)`` does it; imported only when it runs, because it imports torch."""


@dataclass(frozen=True)
class Job:
    """What the module of a stage is given.

    Attributes:
        cell: the cell, checked.
        optimisations: names to apply, null controls left out.
        data: folder of prepared data, of the cell's key.
        out: folder to write raw files into; it gets its final name when the stage is complete.
        previous: folder of the stage before, or None for the first.
    """

    cell: Cell
    optimisations: tuple[str, ...]
    data: Path
    out: Path
    previous: Path | None


def run_stage(stage: str, cell_path: Path, data: Path, out: Path, previous: Path | None = None) -> Status:
    """Run ``stage`` and write ``out``: cell.json, the raw files, provenance.json and last of all status.json.

    Returns:
        The status as written (without the files' sums).

    Raises:
        UserError: the cell, the sources, the versions, the data or the device do not fit; nothing is written.
    """
    started = time.monotonic()
    cell = read_cell(cell_path, stage)
    check_sources(cell)
    check_pins(cell)
    check_data(cell, data)
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file: give another folder with --out.")
    _remove_leftovers(out)
    with atomic_directory(out) as directory:
        shutil.copyfile(cell_path, directory / CELL_FILE)
        left_out: tuple[str, ...] = ()
        state, reason, detail = "done", "", ""
        try:
            before = check_previous(cell, previous)
            applied, left_out = applicable(cell)
            _run_module(Job(cell, applied, data, directory, before))
        except Outcome as outcome:
            state, reason, detail = outcome.state, outcome.reason, outcome.detail
            if not (directory / "provenance.json").exists():
                write_provenance(directory, cell)
        seconds = round(time.monotonic() - started, 3)
        status = Status(stage, cell.key, state, reason, detail, left_out, seconds)
        write_status(directory, status)
    return status


def _run_module(job: Job) -> None:
    """Run the stage's module; an allocation that fails becomes the outcome failed(oom)."""
    module = importlib.import_module(STAGES[job.cell.stage])
    try:
        module.run(job)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        first_line = str(error).strip().split("\n")[0] or type(error).__name__
        raise out_of_memory(
            f"{job.cell.label} ran out of memory ({first_line}): "
            "add 'checkpointing' to the config, or take a smaller volume or model."
        ) from error


def _remove_leftovers(out: Path) -> None:
    """Remove what a killed run of this very stage left beside ``out``; ``kill -9`` gives it no chance to do so."""
    for leftover in out.parent.glob(f".{out.name}.*.part*"):
        shutil.rmtree(leftover, ignore_errors=True)
