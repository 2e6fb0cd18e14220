"""Accepting stale results: a change that cannot matter need not cost GPU hours, and is never hidden."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpustudy.base.errors import UserError
from gpustudy.base.user import user_name
from gpustudy.study.acceptances import Acceptance, Acceptances, write_acceptances
from gpustudy.study.cells import Cell, Keys, made_from
from gpustudy.study.differences import TABLES_EDITED, Difference, differences, read_cell_file
from gpustudy.study.load import Effective
from gpustudy.study.paths import METRICS, METRICS_FILE
from gpustudy.study.states import StageState, cell_state

MEASURED_FIELDS = (
    "stage",
    "repeat",
    "seed",
    "config",
    "workload",
    "gpu.name",
    "gpu.device",
    "gpu.architecture",
    "gpu.threads",
    "gpu.null_control",
)
"""Fields that say what is measured: a result that differs in one of them is the result of another cell."""


@dataclass(frozen=True)
class _Old:
    """An old result of a stage: its cell file, and when its folder was written."""

    content: dict[str, Any]
    written_s: float


def accept(effective: Effective, cells: Iterable[Cell], reason: str) -> list[Acceptance]:
    """Record that the newest old result of every stale stage of ``cells`` stands for the present key.

    Nothing is recorded unless every stale stage of every cell can be accepted.

    Args:
        effective: the study, the site and the results.
        cells: the cells.
        reason: why the change cannot matter, in the user's words.

    Returns:
        The new records; none where nothing was stale.

    Raises:
        UserError: no reason; a result without a readable cell file; a result that measures something else.
    """
    text = " ".join(reason.split())
    if not text:
        raise UserError("--reason is empty: say why the change cannot matter; it is shown wherever the cells are.")
    present = Keys(effective).acceptances
    made: list[Acceptance] = []
    for cell in cells:
        for stage in Keys(effective).stages(cell.gpu):
            # An accepted stage decides the keys of those after it, and of its tables: look again after each record.
            while record := _record(effective, Keys(effective, acceptances=present.with_more(made)), cell, stage, text):
                made.append(record)
    if made:
        write_acceptances(effective.results, present.with_more(made))
    return made


def withdraw(effective: Effective, cells: Iterable[Cell]) -> list[Acceptance]:
    """Remove the records of ``cells``, so that their results are stale again, and return them."""
    present = Keys(effective).acceptances
    chosen = set(cells)
    gone = [record for record in present.records if Cell(record.gpu, record.config, record.repeat) in chosen]
    if gone:
        write_acceptances(effective.results, Acceptances(tuple(r for r in present.records if r not in gone)))
    return gone


def _record(effective: Effective, keys: Keys, cell: Cell, stage: str, reason: str) -> Acceptance | None:
    """Return the next record that makes a stage current; None where it is not stale."""
    seen = cell_state(effective.results, keys, cell)
    state = next(state for state in seen.stages if state.stage == stage)
    if state.state != "stale":
        return None
    differing: tuple[str, ...]
    tables = _tables_of(state)
    if tables is not None:
        old, new, differing = tables, keys.metrics_key(state.key, stage), (str(TABLES_EDITED),)
    else:
        content = _newest(keys, cell, state)
        found = differences(content, keys.cell_file(cell, stage))
        _refuse_another_cell(cell, stage, found)
        old, new, differing = content["key"], state.key, tuple(map(str, found))
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Acceptance(
        gpu=cell.gpu,
        config=cell.config,
        repeat=cell.repeat,
        stage=stage,
        tables=tables is not None,
        old=old,
        new=new,
        differing=differing,
        reason=reason,
        who=user_name(),
        when=when,
    )


def _tables_of(state: StageState) -> str | None:
    """Return the key of the newest tables made from present raw files by code edited since; None without any."""
    found = [path for path in state.old if METRICS in path.parts and made_from(path / METRICS_FILE) == state.key]
    return max(found, key=_written_s).name.rpartition("-")[2] if found else None


def _newest(keys: Keys, cell: Cell, state: StageState) -> dict[str, Any]:
    """Return the cell file of the newest old result that continues the present stage before it."""
    found = list(_old_results(state))
    if not found:
        raise UserError(f"{cell}/{state.stage} has no old result with a readable cell file: run it anew.")
    previous = keys.document(cell, state.stage)["previous"]
    chained = [old for old in found if old.content["document"].get("previous") == previous]
    if not chained:
        raise UserError(
            f"{cell}/{state.stage}: its old results continue a {previous['stage']} with another key than the "
            f"present {previous['key']}: run it anew."
        )
    return max(chained, key=lambda old: old.written_s).content


def _old_results(state: StageState) -> Iterator[_Old]:
    for path in state.old:
        content = read_cell_file(path)
        if content is not None and content["document"]["stage"] == state.stage:
            yield _Old(content, _written_s(path))


def _refuse_another_cell(cell: Cell, stage: str, found: Iterable[Difference]) -> None:
    for difference in found:
        if any(difference.field == name or difference.field.startswith(f"{name}.") for name in MEASURED_FIELDS):
            raise UserError(
                f"{cell}/{stage} cannot be accepted: it measured something else ({difference}): "
                "run it anew, or take the change back."
            )


def _written_s(path: Path) -> float:
    return path.stat().st_mtime


def parse_cells(texts: Iterable[str], effective: Effective, keys: Keys) -> list[Cell]:
    """Read ``GPU``, ``GPU/CONFIG`` and ``GPU/CONFIG/rN`` into the cells that they name, each once.

    Raises:
        UserError: a name that the study does not have.
    """
    found: dict[Cell, None] = {}
    for text in texts:
        gpu, *rest = text.strip("/").split("/")
        configs = [rest[0]] if rest else list(effective.study.configs)
        repeats = rest[1:] or [f"r{repeat}" for repeat in range(1, effective.study.repeats + 1)]
        if (len(repeats) != 1 and len(rest) > 1) or not all(re.fullmatch(r"r\d+", repeat) for repeat in repeats):
            raise UserError(f"'{text}' names no cells: write GPU, GPU/CONFIG or GPU/CONFIG/rN.")
        for config in configs:
            for repeat in repeats:
                cell = Cell(gpu, config, int(repeat[1:]))
                keys.require(cell)
                found[cell] = None
    return list(found)
