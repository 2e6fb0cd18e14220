"""All tables of a survey's cells as pandas frames, read when first asked for and only as far as needed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from gpustudy.analysis.cellrows import CellRows
from gpustudy.analysis.damage import not_as_made, told_apart
from gpustudy.base.digests import file_sha256
from gpustudy.base.errors import UserError
from gpustudy.metrics import schemas

if TYPE_CHECKING:
    import pyarrow as pa

    from gpustudy.study.states import CellState, StageState, Survey

BASELINE = "baseline"
"""Config that speed-ups are taken over."""

CRAFTED = "crafted"
"""Origin of values that nobody measured: tests and examples."""

IDENTITY = list(schemas.Identity._fields)

_LAUNCH_COLUMNS = ["step", "phase", "class", "duration_ns"]
_CLASS_COLUMNS = ["gpu", "config", "repeat", "phase", "class", "step_ns"]


@dataclass(frozen=True)
class Group:
    """All repeats of one gpu and config: a row of most figures and tables."""

    gpu: str
    config: str
    cells: tuple[CellState, ...]

    @property
    def label(self) -> str:
        """The config's name with what a reader must know about its cells."""
        marks = []
        if any(cell.null_control for cell in self.cells):
            marks.append("null control")
        if any(cell.accepted for cell in self.cells):
            marks.append("accepted")
        return f"{self.config} ({', '.join(marks)})" if marks else self.config

    def word(self, stage: str) -> str:
        """Say why ``stage`` has nothing to show: its states in words, each once."""
        return " / ".join(dict.fromkeys(stage_word(cell, stage) for cell in self.cells))


class Dataset:
    """What is known about the cells of a survey.

    Frames hold only stages that are done with current keys. A cell without rows is missing, unsupported, stale,
    ...: ``groups`` has every gpu and config, with or without data.
    """

    def __init__(self, survey: Survey) -> None:
        self.survey = survey = told_apart(survey)
        self.gpus: tuple[str, ...] = tuple(dict.fromkeys(cell.gpu for cell in survey.cells))
        self.configs: tuple[str, ...] = tuple(dict.fromkeys(cell.config for cell in survey.cells))

    def groups(self, gpu: str) -> tuple[Group, ...]:
        """Return the groups of ``gpu``, one a config, in the order of the study."""
        own = [cell for cell in self.survey.cells if cell.gpu == gpu]
        names = dict.fromkeys(cell.config for cell in own)
        return tuple(Group(gpu, name, tuple(cell for cell in own if cell.config == name)) for name in names)

    @cached_property
    def steps(self) -> pd.DataFrame:
        """The table steps of all cells."""
        return self._frame("train", "steps")

    @cached_property
    def layouts(self) -> pd.DataFrame:
        """The table layouts of all cells."""
        return self._frame("census", "layouts")

    @cached_property
    def quantities(self) -> pd.DataFrame:
        """The table cells of all stages of all cells."""
        return _joined([part for stage in self._stages() for part in self._parts(stage, "cells")], "cells")

    @cached_property
    def cell_rows(self) -> CellRows:
        """The rows of ``quantities`` that have a value, by what they are."""
        return CellRows(self.quantities)

    @cached_property
    def class_time(self) -> pd.DataFrame:
        """Time per step by phase and class: gpu, config, repeat, phase, class, step_ns (a mean over the steps).

        Summed file by file, so that a census of a million launches costs the memory of one.
        """
        frames = [_sum_launches(path, cell) for cell, path in self._files("census", "launches")]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=_CLASS_COLUMNS)

    @cached_property
    def first_census(self) -> dict[tuple[str, str], Path]:
        """The launches of the first repeat that has a census: (gpu, config) -> file."""
        found: dict[tuple[str, str], Path] = {}
        for cell, path in self._files("census", "launches"):
            found.setdefault((cell.gpu, cell.config), path)
        return found

    @cached_property
    def priority(self) -> pd.DataFrame:
        """The table priority of all cells."""
        return self._frame("counters", "priority")

    @cached_property
    def mosaics(self) -> dict[tuple[str, str], tuple[int, Path]]:
        """The picture of samples of each gpu and config that has one: (gpu, config) -> first repeat, file."""
        found: dict[tuple[str, str], tuple[int, Path]] = {}
        for cell, stage in self._done("quality"):
            if stage.metrics is not None and (path := _whole(stage.metrics, "mosaic.png")) is not None:
                found.setdefault((cell.gpu, cell.config), (cell.repeat, path))
        return found

    @cached_property
    def manifests(self) -> list[tuple[CellState, StageState, dict[str, Any]]]:
        """The metrics.json of every stage with current metrics, in the order of the cells."""
        return [
            (cell, stage, json.loads((stage.metrics / "metrics.json").read_text()))
            for cell in self.survey.cells
            for stage in cell.stages
            if stage.metrics is not None and (stage.metrics / "metrics.json").is_file()
        ]

    @cached_property
    def crafted(self) -> bool:
        """Whether any value shown was made up, for a test or an example: said on everything made from it."""
        import pyarrow.compute as pc

        origins = (_read_columns(path, ["origin"])["origin"] for stage in self._stages() for path in self._cells(stage))
        return any(pc.any(pc.equal(column, CRAFTED)).as_py() for column in origins)

    def step_times(self, group: Group) -> dict[int, Sequence[float]]:
        """Return the measured step times of ``group`` in seconds: repeat -> one value a step."""
        rows = _of(self.steps, group)
        rows = rows[rows["phase"] == "measured"]
        return {repeat: (own["step_ns"] / 1e9).tolist() for repeat, own in _by_repeat(rows)}

    def peak_memory(self, group: Group) -> dict[int, float]:
        """Return the peak memory of ``group`` in bytes: repeat -> the largest value of its steps."""
        return {repeat: float(own["peak_memory_bytes"].max()) for repeat, own in _by_repeat(_of(self.steps, group))}

    def of(self, frame: pd.DataFrame, group: Group) -> pd.DataFrame:
        """Return the rows of ``frame`` that belong to ``group``."""
        return _of(frame, group)

    def files(self, stage: str, table: str) -> Iterator[tuple[CellState, Path]]:
        """Yield each cell whose ``stage`` is done with its file of ``table``, as it was made, to be read in parts.

        Raises:
            UserError: a file is missing or another one than was made.
        """
        yield from self._files(stage, table)

    def _stages(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(stage.stage for cell in self.survey.cells for stage in cell.stages))

    def _done(self, name: str) -> Iterator[tuple[CellState, StageState]]:
        """Yield the cells whose stage ``name`` is done and has current metrics."""
        for cell in self.survey.cells:
            for stage in cell.stages:
                if stage.stage == name and stage.state == "done" and stage.metrics is not None:
                    yield cell, stage

    def _files(self, stage_name: str, table: str) -> Iterator[tuple[CellState, Path]]:
        for cell, stage in self._done(stage_name):
            if stage.metrics is not None and (path := _whole(stage.metrics, f"{table}.parquet")) is not None:
                yield cell, path

    def _cells(self, stage_name: str) -> Iterator[Path]:
        """Yield the table cells of every cell whose stage is done."""
        for _, path in self._files(stage_name, "cells"):
            yield path

    def _frame(self, stage_name: str, table: str) -> pd.DataFrame:
        """Return ``table`` of all cells whose stage is done, with the names of the survey's cells."""
        return _joined(list(self._parts(stage_name, table)), table)

    def _parts(self, stage_name: str, table: str) -> Iterator[pa.Table]:
        """Yield ``table`` of each cell whose stage is done, texts as dictionaries, named as the survey names it."""
        for cell, path in self._files(stage_name, table):
            yield _named(_encoded(schemas.read_table(path, table)), cell)


def stage_word(cell: CellState, stage: str) -> str:
    """Say in a word or two what became of ``stage`` of ``cell``; empty when it is done and has metrics."""
    found = next((own for own in cell.stages if own.stage == stage), None)
    if found is None:
        return "not a stage here"
    if found.state == "done":
        return "" if found.metrics is not None else "without tables yet"
    foreign = found.state in ("missing", "stale") and cell.state.startswith("foreign-")
    return f"{found.state} (foreign)" if foreign else found.state


def _whole(folder: Path, name: str) -> Path | None:
    """Return a file of a stage's tables as it was made; None where the stage has none of this name.

    Raises:
        UserError: the file is missing or another one, though metrics.json lists it.
    """
    path = folder / name
    content = json.loads((folder / "metrics.json").read_text())
    listed = content.get("tables", {}) | content.get("files", {})
    if name not in listed:
        return path if path.is_file() else None
    if not path.is_file() or file_sha256(path) != listed[name]["sha256"]:
        raise UserError(not_as_made(path))
    return path


def _of(frame: pd.DataFrame, group: Group) -> pd.DataFrame:
    return frame[(frame["gpu"] == group.gpu) & (frame["config"] == group.config)]


def _by_repeat(rows: pd.DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    """Yield each repeat with its rows, in order."""
    for repeat in sorted(rows["repeat"].unique()):
        yield int(repeat), rows[rows["repeat"] == repeat]


def _encoded(table: pa.Table) -> pa.Table:
    """Return ``table`` with its columns of text as dictionaries: a million rows then hold each text once."""
    import pyarrow as pa

    for position, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(position, field.name, table.column(position).dictionary_encode())
    return table.replace_schema_metadata(None)


def _named(table: pa.Table, cell: CellState) -> pa.Table:
    """Return ``table`` under the names of ``cell``: an imported file keeps those of the study it came from."""
    import pyarrow as pa

    count = len(table)
    codes = pa.array([0] * count, type=pa.int32())
    for name, text in (("gpu", cell.gpu), ("config", cell.config)):
        column = pa.DictionaryArray.from_arrays(codes, pa.array([text]))
        table = table.set_column(table.schema.get_field_index(name), name, column)
    repeats = pa.array([cell.repeat] * count, type=pa.int32())
    return table.set_column(table.schema.get_field_index("repeat"), "repeat", repeats)


def _joined(parts: list[pa.Table], table: str) -> pd.DataFrame:
    """Return the rows of all parts as one frame, texts as categories."""
    import pyarrow as pa

    whole = pa.concat_tables(parts) if parts else _encoded(schemas.arrow_schema(table).empty_table())
    frame: pd.DataFrame = whole.unify_dictionaries().to_pandas()
    return frame


def _sum_launches(path: Path, cell: CellState) -> pd.DataFrame:
    """Return the time per step by phase and class of one census file; launches outside every step do not count."""
    launches = _read_columns(path, _LAUNCH_COLUMNS)
    sums = launches.group_by(["step", "phase", "class"]).aggregate([("duration_ns", "sum")]).to_pandas()
    sums = sums[sums["step"] >= 0]
    steps = max(sums["step"].nunique(), 1)
    totals = sums.groupby(["phase", "class"], as_index=False)["duration_ns_sum"].sum()
    return pd.DataFrame(
        {
            "gpu": cell.gpu,
            "config": cell.config,
            "repeat": cell.repeat,
            "phase": totals["phase"],
            "class": totals["class"],
            "step_ns": totals["duration_ns_sum"] / steps,
        },
        columns=_CLASS_COLUMNS,
    )


def _read_columns(path: Path, columns: list[str]) -> pa.Table:
    """Read only ``columns`` of a Parquet file.

    Raises:
        UserError: the file is unreadable or lacks one of them.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path, columns=columns, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        sentence = str(error).splitlines()[0]
        raise UserError(
            f"{path} is not a readable table ({sentence}): make it again with 'gpustudy metrics'."
        ) from error
