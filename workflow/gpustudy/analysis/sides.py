"""The two sides of a comparison: cells of this study, present or earlier ones, by what a person types.

``.`` is everything that is here; ``GPU``, ``CONFIG``, ``GPU/CONFIG`` and ``GPU/CONFIG/rN`` are parts of it. ``@WHEN``
behind any of them takes earlier results: ``@old`` the newest that another key made, ``@2026-11-01`` the newest of
that day or before, ``@KEY`` those of a stage's key and all made from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpustudy.base.errors import UserError
from gpustudy.base.words import nearest
from gpustudy.study.differences import read_cell_file
from gpustudy.study.paths import CELLS, METRICS, METRICS_FILE, stage_directory
from gpustudy.study.states import CellState, StageState, Survey

HERE = "."
"""What a person types for all results of this study."""

OLD = "old"
_DATE = re.compile(r"\d{4}-\d{2}(-\d{2}.*)?")
_KEY = re.compile(r"[0-9a-f]{6,12}")


@dataclass(frozen=True)
class Side:
    """One side of a comparison.

    Attributes:
        name: as it was typed.
        survey: its cells, each with the tables to compare.
        gpu: the gpu that it was narrowed to, if any.
        config: the config that it was narrowed to, if any.
    """

    name: str
    survey: Survey
    gpu: str | None = None
    config: str | None = None


def side_of(word: str, seen: Survey) -> Side:
    """Return the cells of this study that ``word`` names.

    Args:
        word: what a person typed; see above.
        seen: the survey of the present state.

    Raises:
        UserError: it names no gpu, config or repeat of the study, or no such earlier result is here.
    """
    place, _, when = word.partition("@")
    gpu, config, repeat = _coordinates(place, seen)
    cells = [
        cell
        for cell in seen.cells
        if gpu in (None, cell.gpu) and config in (None, cell.config) and repeat in (None, cell.repeat)
    ]
    if when:
        cells = _earlier(cells, when, seen.results)
        if not any(stage.metrics for cell in cells for stage in cell.stages):
            raise UserError(f"{word}: no tables of {place or HERE} fit '@{when}': {_known_times(place, seen)}")
    return Side(word, replace(seen, cells=tuple(cells)), gpu, config)


def _coordinates(place: str, seen: Survey) -> tuple[str | None, str | None, int | None]:
    """Return gpu, config and repeat of a place; None for what it leaves open."""
    gpus = list(dict.fromkeys(cell.gpu for cell in seen.cells))
    configs = list(dict.fromkeys(cell.config for cell in seen.cells))
    if place in ("", HERE):
        return None, None, None
    parts = place.strip("/").split("/")
    if len(parts) == 1:
        if place in gpus:
            return place, None, None
        if place in configs:
            return None, place, None
        known = [*gpus, *configs]
        raise UserError(f"'{place}' is no archive, gpu or config: {nearest(place, known)}")
    repeats = [f"r{number}" for number in sorted({cell.repeat for cell in seen.cells})]
    for kind, word, known in zip(("gpu", "config", "repeat"), parts, (gpus, configs, repeats), strict=False):
        if word not in known:
            raise UserError(f"{place}: unknown {kind} '{word}': {nearest(word, known)}")
    if len(parts) > len(("gpu", "config", "repeat")):
        raise UserError(f"{place} is no cell: write GPU/CONFIG or GPU/CONFIG/rN.")
    return parts[0], parts[1], int(parts[2].removeprefix("r")) if len(parts) > 2 else None


@dataclass(frozen=True)
class _Result:
    """The tables of one stage under one key."""

    stage: str
    key: str
    started: str
    is_current: bool
    previous: str | None
    folder: Path
    content: dict[str, Any]


def _earlier(cells: Iterable[CellState], when: str, results: Path) -> list[CellState]:
    """Return the cells with the tables that ``when`` chooses in place of the present ones."""
    if when != OLD and not _DATE.fullmatch(when) and not _KEY.fullmatch(when):
        raise UserError(f"'@{when}' is no time of a result: write @old, @YYYY-MM-DD or @KEY (6 to 12 hex digits).")
    return [replace(cell, state="done", stages=tuple(_chosen(cell, when, results))) for cell in cells]


def _chosen(cell: CellState, when: str, results: Path) -> list[StageState]:
    """Return the stages of a cell with the tables of then; stages that had none are left out."""
    chosen: list[StageState] = []
    keys: set[str] = set()
    for stage in cell.stages:
        found = [one for one in _results(cell, stage, results) if _fits(one, when, keys)]
        if found:
            newest = max(found, key=lambda one: one.started)
            keys.add(newest.key)
            state = newest.content["state"]
            chosen.append(replace(stage, key=newest.key, state=state, metrics=newest.folder, raw=None, acceptance=None))
    return chosen


def _fits(result: _Result, when: str, keys: set[str]) -> bool:
    if when == OLD:
        return not result.is_current
    if _KEY.fullmatch(when):
        return result.key.startswith(when) or result.previous in keys
    return result.started[: len(when)] <= when and bool(result.started)


def _results(cell: CellState, stage: StageState, results: Path) -> list[_Result]:
    """Return all tables of a stage that are here, those of the present key among them."""
    folders = [path for path in stage.old if METRICS in path.parts]
    return [
        result
        for folder, is_current in [(stage.metrics, True), *((path, False) for path in folders)]
        if folder is not None and (result := _result(cell, stage.stage, folder, is_current, results)) is not None
    ]


def _result(cell: CellState, stage: str, folder: Path, is_current: bool, results: Path) -> _Result | None:
    """Read what tables say of themselves; None for a folder without a readable metrics.json."""
    try:
        content = json.loads((folder / METRICS_FILE).read_text())
        key, _ = content["key"], content["state"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    raw = stage_directory(results, CELLS, cell.gpu, cell.config, cell.repeat, stage, key)
    about = read_cell_file(folder) or read_cell_file(raw)
    previous = ((about or {}).get("document", {}).get("previous") or {}).get("key")
    started = str((content.get("provenance") or {}).get("started") or "")
    return _Result(stage, key, started, is_current, previous, folder, content)


_MOST_TIMES = 6
"""Earlier results that an error lists."""


def _known_times(place: str, seen: Survey) -> str:
    """List the earlier results of a place, for people who look for one."""
    gpu, config, repeat = _coordinates(place, seen)
    told: Sequence[str] = [
        f"{one.key} ({one.started[:10] or 'unknown day'}{', current' if one.is_current else ''})"
        for cell in seen.cells
        if gpu in (None, cell.gpu) and config in (None, cell.config) and repeat in (None, cell.repeat)
        for stage in cell.stages[:1]
        for one in _results(cell, stage, seen.results)
    ]
    if not told:
        return "nothing is here; 'gpustudy status' shows what is."
    listed = ", ".join(dict.fromkeys(told[:_MOST_TIMES]))
    return f"of its first stage there are {listed}{', ...' if len(told) > _MOST_TIMES else ''}."
