"""The state of every cell: what is there, what is stale, what is missing, what cannot run here."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from gpustudy.base.errors import UserError
from gpustudy.base.status import STATES, STATUS_FILE, Status, parse_status, what_is_wrong
from gpustudy.study.acceptances import Acceptance
from gpustudy.study.cells import Cell, Keys
from gpustudy.study.load import Effective
from gpustudy.study.models import Study
from gpustudy.study.paths import CELLS, METRICS, METRICS_FILE, cell_folder

DAMAGED = "damaged"
"""State of a stage one of whose files cannot be read; only that cell is left out, nothing else stops."""

CELL_STATES = (
    "done",
    DAMAGED,
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
        state: ``done``, ``damaged``, ``unsupported``, ``failed``, ``unavailable``, ``stale`` or ``missing``.
        reason: a sentence where the state needs one.
        raw: folder of the current raw files, if they are here.
        metrics: folder of the current tables, if they are here.
        metrics_key: key that current tables have.
        old: folders of other keys of this stage, raw files first.
        null_control: optimisations that the device cannot apply and that were left out.
        acceptance: the record by which a result of another key stands for the present one.
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
    acceptance: Acceptance | None = None

    @property
    def accepted(self) -> bool:
        """Whether a result of another key was accepted for this stage."""
        return self.acceptance is not None


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
    cells = tuple(cell_state(effective.results, known, cell) for cell in known.cells())
    return Survey(effective.study, effective.site, effective.results, cells)


@dataclass(frozen=True)
class _Folders:
    """The stage folders of one cell: their names, and where they lie.

    Paths are text here: ten thousand cells have sixty thousand folders, and a ``Path`` costs more than its file.
    """

    raw: str
    metrics: str
    raw_names: frozenset[str]
    metrics_names: frozenset[str]

    @classmethod
    def of(cls, results: Path, cell: Cell) -> _Folders:
        raw = f"{results}/{cell_folder(CELLS, cell.gpu, cell.config, cell.repeat)}"
        metrics = f"{results}/{cell_folder(METRICS, cell.gpu, cell.config, cell.repeat)}"
        return cls(raw, metrics, _entries(raw), _entries(metrics))

    def status(self, name: str) -> tuple[str, Status] | None:
        """Return a raw status file's SHA-256 and what it says; None where there is none."""
        path = f"{self.raw}/{name}/{STATUS_FILE}"
        content = _content(path) if name in self.raw_names else None
        return None if content is None else (hashlib.sha256(content).hexdigest(), parse_status(content, path))

    def tables(self, name: str) -> dict[str, Any] | None:
        """Return the metrics file of a folder of tables; None where there is none."""
        return _read_metrics(f"{self.metrics}/{name}/{METRICS_FILE}") if name in self.metrics_names else None

    def old(self, stage: str, raw_name: str, metrics_name: str) -> tuple[Path, ...]:
        """Return the folders of a stage under other names than the present ones, raw files first."""
        beginning = f"{stage}-"
        raw = (name for name in self.raw_names if name != raw_name and name.startswith(beginning))
        metrics = (name for name in self.metrics_names if name != metrics_name and name.startswith(beginning))
        return (
            *(Path(self.raw, name) for name in sorted(raw)),
            *(Path(self.metrics, name) for name in sorted(metrics)),
        )


def cell_state(results: Path, keys: Keys, cell: Cell) -> CellState:
    """Look at the results of one cell and return its state."""
    folders = _Folders.of(results, cell)
    stages = tuple(_stage_state(keys, cell, stage, folders) for stage in keys.stages(cell.gpu))
    state, reason = _worst(stages)
    if state in ("stale", "missing") and cell.gpu not in keys.runnable:
        state = f"foreign-{state}"
    null_control = next((stage.null_control for stage in stages if stage.null_control), ())
    accepted = any(stage.accepted for stage in stages)
    return CellState(cell.gpu, cell.config, cell.repeat, state, reason, null_control, accepted, stages)


def _stage_state(keys: Keys, cell: Cell, stage: str, folders: _Folders) -> StageState:
    key = keys.stage_key(cell, stage)
    name = f"{stage}-{key}"
    try:
        return _readable_stage_state(keys, cell, stage, key, folders)
    except UserError as error:
        raw = Path(folders.raw, name)
        metrics_key = keys.metrics_key(key, stage)
        old = folders.old(stage, name, f"{stage}-{metrics_key}")
        here = raw if name in folders.raw_names else None
        return StageState(stage, key, DAMAGED, str(error), here, None, metrics_key, old)


def _readable_stage_state(keys: Keys, cell: Cell, stage: str, key: str, folders: _Folders) -> StageState:
    """Return the state of a stage.

    Raises:
        UserError: its status file or the file beside its tables is unreadable.
    """
    name = f"{stage}-{key}"
    found = folders.status(name)
    metrics_key, tables = _current_tables(keys, cell, stage, key, found[0] if found else None, folders)
    metrics_name = f"{stage}-{metrics_key}"
    old = folders.old(stage, name, metrics_name)
    null_control: tuple[str, ...] = ()
    if found is not None:
        status = found[1]
        state, reason, null_control = status.state, status.detail, status.null_control
    elif tables is not None:
        state, reason, null_control = tables["state"], tables.get("detail", ""), tuple(tables.get("null_control", ()))
    else:
        state, reason = ("stale" if old else "missing"), ""
    return StageState(
        stage,
        key,
        state,
        reason,
        Path(folders.raw, name) if found else None,
        Path(folders.metrics, metrics_name) if tables is not None else None,
        metrics_key,
        old,
        null_control,
        _acceptance(keys, cell, stage, key, metrics_key),
    )


def _acceptance(keys: Keys, cell: Cell, stage: str, key: str, metrics_key: str) -> Acceptance | None:
    """Return the record by which the result or the tables of another key stand for the present one."""
    if not keys.acceptances.records:
        return None
    plain = keys.metrics_key(key, stage)
    tables = keys.acceptances.of(cell.gpu, cell.config, cell.repeat, stage, plain, tables=True)
    return keys.acceptance(cell, stage) or next((record for record in tables if record.old == metrics_key), None)


def _current_tables(
    keys: Keys, cell: Cell, stage: str, key: str, status_sum: str | None, folders: _Folders
) -> tuple[str, dict[str, Any] | None]:
    """Return the key of current tables and, where they are here, their metrics file.

    Tables are current for the raw files that they were made from. Where raw files were replaced under the same
    key, here or at the site that sent tables alone, the sum of their status file is in the key of the tables.
    """
    plain = keys.metrics_key(key, stage)
    tables = folders.tables(f"{stage}-{plain}")
    if tables is not None and status_sum in (None, tables["raw"]["status_sha256"]):
        return plain, tables
    if status_sum is not None:
        replaced = keys.metrics_key(key, stage, status_sum)
        made_anew = folders.tables(f"{stage}-{replaced}")
        return (plain, None) if tables is None and made_anew is None else (replaced, made_anew)
    others = [name.removeprefix(f"{stage}-") for name in sorted(folders.metrics_names) if name.startswith(f"{stage}-")]
    for other in others:
        content = folders.tables(f"{stage}-{other}")
        if content is not None and other == keys.metrics_key(key, stage, content["raw"]["status_sha256"]):
            return other, content
    for record in keys.acceptances.of(cell.gpu, cell.config, cell.repeat, stage, plain, tables=True):
        if (accepted := folders.tables(f"{stage}-{record.old}")) is not None:
            return record.old, accepted
    return plain, None


def _worst(stages: tuple[StageState, ...]) -> tuple[str, str]:
    """Return the state of a cell with these stages, and the reason of the stage that decides it."""
    for state in (DAMAGED, "stale", "missing", "failed", "unsupported", "unavailable"):
        for stage in stages:
            if stage.state == state:
                return state, stage.reason
    return "done", ""


def _content(path: str) -> bytes | None:
    """Return the bytes of a file; None where there is none."""
    try:
        with FileIO(path) as stream:
            return stream.readall()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): check its permissions.") from error


def _read_metrics(path: str) -> dict[str, Any] | None:
    """Return the content of a metrics file; None where there is none.

    Raises:
        UserError: the file is unreadable.
    """
    text = _content(path)
    if text is None:
        return None
    try:
        content: dict[str, Any] = json.loads(text)
        texts = (content["raw"]["status_sha256"], content["state"], content["reason"], content.get("detail", ""))
        if content["state"] not in STATES:
            raise ValueError(f"its state {content['state']!r} is unknown")
        if not all(isinstance(text, str) for text in (*texts, *content.get("null_control", ()))):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is unreadable ({what_is_wrong(error)}): remove that folder and run again.") from error
    return content


def _entries(directory: str) -> frozenset[str]:
    """Return the stage folders in a cell's folder; hidden ones are work in progress."""
    try:
        names = os.listdir(directory)  # noqa: PTH208 (a Path per name, see _Folders)
        return frozenset([name for name in names if name[0] != "."])
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
