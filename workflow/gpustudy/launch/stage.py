"""Starting one stage of one cell: its cell file, its folders, its container, its device."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from gpustudy.base.atomic import write_json
from gpustudy.base.errors import UserError
from gpustudy.launch.devices import hold_device
from gpustudy.launch.kept import note_finished, put_back
from gpustudy.launch.process import StageCall, box_of, run_stage_process
from gpustudy.study.cells import MEASURING_STAGES, PREVIOUS, Cell, Keys
from gpustudy.study.load import Effective
from gpustudy.study.paths import CELLS, data_directory, stage_directory

CELL_FILE = "cell.json"


def launch_stage(effective: Effective, cell: Cell, stage: str, planned_key: str | None) -> int:
    """Run one stage of one cell and return the exit code of its process.

    Args:
        effective: the study as seen from the site that runs it.
        cell: the cell.
        stage: name of the stage.
        planned_key: the key that the workflow planned with, or None to take the present one.

    Raises:
        UserError: the key is another than planned, the gpu cannot run at this site, or its container cannot be had.
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
    folder = stage_directory(effective.results, CELLS, cell.gpu, cell.config, cell.repeat, stage, key)
    if put_back(effective.results, folder):
        print(f"{cell} {stage}: finished before in this run, put back", file=sys.stderr)
        return 0
    code = _run(effective, keys, cell, stage)
    if code == 0:
        note_finished(effective.results, folder)
    return code


def _run(effective: Effective, keys: Keys, cell: Cell, stage: str) -> int:
    """Run the stage where and as its site says, and return the exit code of its process."""
    gpu = effective.study.gpus[cell.gpu]
    box = box_of(effective, cell.gpu, keys)
    # A cell of a container works where the site is fast; on the bare machine TMPDIR decides.
    with tempfile.TemporaryDirectory(prefix="gpustudy-", dir=box.scratch if box else None) as folder:
        call = _call(effective, keys, cell, stage, Path(folder))
        write_json(call.cell_file, keys.cell_file(cell, stage))
        with hold_device(gpu, cell.gpu, f"{cell} {stage}", alone=stage in MEASURING_STAGES) as chosen:
            return run_stage_process(call, box, chosen)


def _call(effective: Effective, keys: Keys, cell: Cell, stage: str, folder: Path) -> StageCall:
    def folder_of(name: str) -> Path:
        key = keys.stage_key(cell, name)
        return stage_directory(effective.results, CELLS, cell.gpu, cell.config, cell.repeat, name, key)

    data = effective.study.workloads[effective.study.gpus[cell.gpu].workload].data
    prepared = data_directory(effective.results, data, keys.data_key(data))
    previous = PREVIOUS[stage]
    return StageCall(
        stage, folder, folder / CELL_FILE, prepared, folder_of(stage), folder_of(previous) if previous else None
    )
