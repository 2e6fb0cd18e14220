"""One row for each cell: its state, why, and the keys of its stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustudy.analysis.dataset import stage_word
from gpustudy.analysis.overview import measured_first
from gpustudy.analysis.tables import Column, Content, Value

if TYPE_CHECKING:
    from gpustudy.analysis.dataset import Dataset
    from gpustudy.study.states import CellState

COLUMNS = (
    Column("cell", ("cell",)),
    Column("state", ("state",)),
    Column("marks", ("marks",)),
    Column("stages", ("stages",), is_long=True, is_printed=False),
    Column("keys", ("keys",), is_long=True, is_printed=False),
    Column("reason", ("reason",), is_long=True),
)


def content(dataset: Dataset) -> Content:
    """Return columns and rows: gpus with results first, within them cells with results first."""
    order = {gpu: place for place, gpu in enumerate(measured_first(dataset))}
    cells = sorted(dataset.survey.cells, key=lambda cell: (order[cell.gpu], not _has_results(cell)))
    return COLUMNS, tuple(_row(cell) for cell in cells)


def _has_results(cell: CellState) -> bool:
    return any(stage.metrics for stage in cell.stages)


def _row(cell: CellState) -> tuple[Value, ...]:
    marks = [*(["null control"] if cell.null_control else []), *(["accepted"] if cell.accepted else [])]
    return (
        Value(f"{cell.gpu}/{cell.config}/r{cell.repeat}"),
        Value(cell.state),
        Value(", ".join(marks)),
        Value(", ".join(f"{stage.stage}: {stage_word(cell, stage.stage) or 'done'}" for stage in cell.stages)),
        Value(" ".join(stage.key for stage in cell.stages)),
        Value(cell.reason),
    )
