"""Files of tables that are not as long as they were made: their stage has nothing to show, all others have."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from gpustudy.study.paths import METRICS_FILE
from gpustudy.study.states import DAMAGED

if TYPE_CHECKING:
    from pathlib import Path

    from gpustudy.study.states import CellState, StageState, Survey


def told_apart(survey: Survey) -> Survey:
    """Return ``survey`` with the stages as damaged whose tables were cut short or lost, as by a full disk.

    Lengths alone are compared here, so that looking costs nothing; a file of equal length and other content is
    refused when it is read.
    """
    return replace(survey, cells=tuple(_cell(cell) for cell in survey.cells))


def _cell(cell: CellState) -> CellState:
    stages = tuple(_stage(stage) for stage in cell.stages)
    reason = next((new.reason for new, old in zip(stages, cell.stages, strict=True) if new is not old), None)
    return cell if reason is None else replace(cell, state=DAMAGED, reason=reason, stages=stages)


def _stage(stage: StageState) -> StageState:
    sentence = damage(stage.metrics) if stage.metrics is not None else None
    return stage if sentence is None else replace(stage, state=DAMAGED, reason=sentence, metrics=None)


def damage(folder: Path) -> str | None:
    """Say which file of a stage's tables is missing or of another length than was made, and what to do; or None."""
    path = folder / METRICS_FILE
    if not path.is_file():
        return None
    content = json.loads(path.read_text())
    for name, about in (content.get("tables", {}) | content.get("files", {})).items():
        found = folder / name
        if not found.is_file() or ("bytes" in about and found.stat().st_size != about["bytes"]):
            return not_as_made(found)
    return None


def not_as_made(path: Path) -> str:
    """Return the sentence about a file that is not the one that was made."""
    return (
        f"{path} is not the file that metrics.json beside it lists: remove {path.parent} and run again, "
        "or import its archive again."
    )
