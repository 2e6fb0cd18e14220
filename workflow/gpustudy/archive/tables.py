"""The tables of an archive as cells to look at, without importing anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from gpustudy.archive.check import ArchivedStage, Contents, check_archive
from gpustudy.archive.folder import Archive
from gpustudy.study.cells import PREVIOUS
from gpustudy.study.paths import METRICS
from gpustudy.study.states import CellState, StageState

_SUFFIXES = (".parquet", ".json")
"""Endings of the files that a look at an archive needs; pictures and volumes stay in it."""


def unpacked_cells(archive: Archive, target: Path) -> tuple[CellState, ...]:
    """Check an archive, write its tables below ``target`` and return its cells, as it holds them.

    Whether their keys are present ones is not asked: they are what was measured then.

    Raises:
        UserError: the archive is wrong.
    """
    contents = check_archive(archive)
    return tuple(_cells(_unpacked(archive, contents, target)))


def _unpacked(archive: Archive, contents: Contents, target: Path) -> Iterator[tuple[ArchivedStage, Path]]:
    for stage in contents.stages:
        if stage.folder.room != METRICS:
            continue
        folder = target / stage.folder.path
        folder.mkdir(parents=True)
        for name, member in stage.files.items():
            if name.endswith(_SUFFIXES) and "/" not in name:
                with (folder / name).open("xb") as stream:
                    stream.writelines(archive.blocks(member))
        yield stage, folder


def _cells(stages: Iterable[tuple[ArchivedStage, Path]]) -> Iterator[CellState]:
    """Put stages together to cells."""
    by_cell: dict[tuple[str, str, int], list[StageState]] = {}
    for stage, folder in stages:
        last, key = stage.last, str(stage.cell_file["key"])
        state = StageState(stage.folder.stage, key, last["state"], last["reason"], None, folder, stage.folder.key)
        by_cell.setdefault((stage.folder.gpu, stage.folder.config, stage.folder.repeat), []).append(state)
    for (gpu, config, repeat), own in sorted(by_cell.items()):
        own.sort(key=lambda state: list(PREVIOUS).index(state.stage))
        outcome = next((one.state for one in own if one.state != "done"), "done")
        yield CellState(gpu, config, repeat, outcome, "", (), False, tuple(own))
