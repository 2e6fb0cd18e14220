"""Setting results aside: moved out of the way, never deleted, so that the next run makes them anew."""

from __future__ import annotations

import time
from pathlib import Path

from gpustudy.base.errors import UserError
from gpustudy.study.cells import PREVIOUS, Cell, Keys
from gpustudy.study.paths import ASIDE, CELLS, METRICS, cell_directory
from gpustudy.study.products import markers
from gpustudy.study.states import Survey


def set_aside(seen: Survey, keys: Keys, cell: Cell, stage: str | None) -> list[Path]:
    """Move the present results of ``stage`` of a cell, and all made from them, into ``results/.aside``.

    Args:
        seen: the survey of the present state.
        keys: the keys behind it.
        cell: the cell.
        stage: the stage, or None for the first one and so all of them.

    Returns:
        What was moved, as it was named before.

    Raises:
        UserError: the cell cannot run at this site, so that nothing would remake it; or nothing is there.
    """
    if cell.gpu not in keys.runnable:
        raise UserError(f"{cell} cannot run at site {seen.site}: retry it at a site that lists {cell.gpu}.")
    first = stage or keys.stages(cell.gpu)[0]
    chosen = {name for name in keys.stages(cell.gpu) if first in _chain(name)}
    state = next(state for state in seen.cells if state.cell == cell)
    current = [
        path
        for entry in state.stages
        if entry.stage in chosen
        for path in (entry.raw, entry.metrics)
        if path is not None
    ]
    if not current:
        raise UserError(f"{cell}/{first} has no present result to set aside: just run it.")
    stamp = time.strftime("%Y%m%dT%H%M%S")
    for room in (METRICS, CELLS):
        for path in current:
            if path.parent == cell_directory(seen.results, room, cell.gpu, cell.config, cell.repeat):
                move_aside(seen.results, path, stamp)
    for path in markers(seen).values():
        path.unlink(missing_ok=True)
    return current


def _chain(stage: str) -> list[str]:
    """Return a stage and all that it was made from."""
    chain: list[str] = []
    name: str | None = stage
    while name is not None:
        chain.append(name)
        name = PREVIOUS[name]
    return chain


def move_aside(results: Path, path: Path, stamp: str) -> None:
    """Move a folder of ``results`` to the same place below ``results/.aside/{stamp}``."""
    goal = results / ASIDE / stamp / path.relative_to(results)
    goal.parent.mkdir(parents=True, exist_ok=True)
    number = 0
    target = goal
    while target.exists():
        number += 1
        target = goal.with_name(f"{goal.name}.{number}")
    path.rename(target)
