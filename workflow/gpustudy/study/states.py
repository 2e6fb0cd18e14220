"""The state of every cell: what is there, what is stale, what is missing, what cannot run here."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpustudy.base.digests import file_sha256
from gpustudy.base.errors import UserError
from gpustudy.base.status import STATUS_FILE, read_status
from gpustudy.study.cells import Cell, Keys
from gpustudy.study.load import Effective
from gpustudy.study.models import Study
from gpustudy.study.paths import CELLS, METRICS, cell_directory, stage_directory

METRICS_FILE = "metrics.json"

CELL_STATES = (
    "done",
    "stale",
    "missing",
    "foreign-stale",
    "foreign-missing",
    "unsupported",
    "failed",
    "unavailable",
)


@dataclass(frozen=True)
class StageState:
    """One stage of one cell.

    Attributes:
        stage: name of the stage.
        key: its present key.
        state: ``done``, ``unsupported``, ``failed``, ``unavailable``, ``stale`` or ``missing``.
        reason: a sentence where the state needs one.
        raw: folder of the current raw files, if they are here.
        metrics: folder of the current tables, if they are here.
        metrics_key: key that current tables have.
        old: folders of other keys of this stage, newest first.
        null_control: optimisations that the device cannot apply and that were left out.
    """

    stage: str
    key: str
    state: str
    reason: str
    raw: Path | None
    metrics: Path | None
    metrics_key: str
    old: tuple[Path, ...] = ()
    null_control: tuple[str, ...] = ()


@dataclass(frozen=True)
class CellState:
    """One cell: its state is that of its worst stage."""

    gpu: str
    config: str
    repeat: int
    state: str
    reason: str
    null_control: tuple[str, ...]
    accepted: bool
    stages: tuple[StageState, ...]

    @property
    def cell(self) -> Cell:
        """The cell's coordinates."""
        return Cell(self.gpu, self.config, self.repeat)


@dataclass(frozen=True)
class Survey:
    """All cells of a study as seen from one site."""

    study: Study
    site: str
    results: Path
    cells: tuple[CellState, ...]


def survey(effective: Effective, keys: Keys | None = None) -> Survey:
    """Look at the results and return the state of every cell."""
    known = keys or Keys(effective)
    cells = tuple(_cell_state(effective.results, known, cell) for cell in known.cells())
    return Survey(effective.study, effective.site, effective.results, cells)


def _cell_state(results: Path, keys: Keys, cell: Cell) -> CellState:
    raw = _entries(cell_directory(results, CELLS, cell.gpu, cell.config, cell.repeat))
    metrics = _entries(cell_directory(results, METRICS, cell.gpu, cell.config, cell.repeat))
    stages = tuple(_stage_state(results, keys, cell, stage, raw, metrics) for stage in keys.stages(cell.gpu))
    state, reason = _worst(stages)
    if state in ("stale", "missing") and cell.gpu not in keys.runnable:
        state = f"foreign-{state}"
    null_control = next((stage.null_control for stage in stages if stage.null_control), ())
    return CellState(cell.gpu, cell.config, cell.repeat, state, reason, null_control, False, stages)


def _stage_state(
    results: Path, keys: Keys, cell: Cell, stage: str, raw_entries: list[str], metrics_entries: list[str]
) -> StageState:
    key = keys.stage_key(cell, stage)
    raw = stage_directory(results, CELLS, cell.gpu, cell.config, cell.repeat, stage, key)
    has_raw = f"{stage}-{key}" in raw_entries and (raw / STATUS_FILE).is_file()
    metrics_key = keys.metrics_key(key, stage)
    metrics = stage_directory(results, METRICS, cell.gpu, cell.config, cell.repeat, stage, metrics_key)
    made_from = _made_from(metrics) if metrics.name in metrics_entries else None
    if has_raw and made_from is not None:
        raw_sum = file_sha256(raw / STATUS_FILE)
        if made_from != raw_sum:
            metrics_key = keys.metrics_key(key, stage, raw_sum)
            metrics = metrics.with_name(f"{stage}-{metrics_key}")
            made_from = _made_from(metrics)
    old = tuple(
        path
        for room, entries, current in ((CELLS, raw_entries, raw), (METRICS, metrics_entries, metrics))
        for name in entries
        if (path := cell_directory(results, room, cell.gpu, cell.config, cell.repeat) / name).name != current.name
        and name.startswith(f"{stage}-")
    )
    has_metrics = made_from is not None
    if has_raw:
        status = read_status(raw)
        state, reason, null_control = status.state, status.detail, status.null_control
    elif has_metrics:
        content = json.loads((metrics / METRICS_FILE).read_text())
        state, reason = content["state"], content["reason"]
        null_control = tuple(content.get("null_control", ()))
    else:
        state, reason, null_control = ("stale" if old else "missing"), "", ()
    return StageState(
        stage,
        key,
        state,
        reason,
        raw if has_raw else None,
        metrics if has_metrics else None,
        metrics_key,
        old,
        null_control,
    )


def _worst(stages: tuple[StageState, ...]) -> tuple[str, str]:
    """Return the state of a cell with these stages, and the reason of the stage that decides it."""
    for state in ("stale", "missing", "failed", "unsupported", "unavailable"):
        for stage in stages:
            if stage.state == state:
                return state, stage.reason
    return "done", ""


def _made_from(metrics: Path) -> str | None:
    """Return the SHA-256 of the raw status file that tables were made from; None where there are none."""
    try:
        content = json.loads((metrics / METRICS_FILE).read_text())
        return str(content["raw"]["status_sha256"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{metrics / METRICS_FILE} is unreadable ({error}): remove that folder and run again."
        ) from error


def _entries(directory: Path) -> list[str]:
    """Return the stage folders in a cell's folder; hidden ones are work in progress."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if not entry.name.startswith("."))
    except FileNotFoundError:
        return []


@cache
def read_document(directory: Path) -> dict[str, Any] | None:
    """Return the cell file that a stage left with its result, None where only tables are here."""
    try:
        content: dict[str, Any] = json.loads((directory / "cell.json").read_text())
    except (OSError, ValueError):
        return None
    return content
