"""What would run and why: the present state of every stage, turned into reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from gpustudy.study.cells import Cell, Keys, made_from
from gpustudy.study.differences import TABLES_EDITED, Difference, differences, read_cell_file
from gpustudy.study.paths import METRICS, METRICS_FILE
from gpustudy.study.products import markers
from gpustudy.study.states import DAMAGED, CellState, StageState, Survey


@dataclass(frozen=True)
class Pending:
    """One thing that a run would make.

    Attributes:
        what: ``GPU/CONFIG/rN STAGE``, ``GPU/CONFIG/rN STAGE tables``, or the name of a product.
        kind: ``stage``, ``tables`` or ``product``.
        why: the reason in a few words.
        difference: for a stale stage, the first field that differs.
    """

    what: str
    kind: str
    why: str
    difference: Difference | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the entry for ``--json``."""
        return {
            "what": self.what,
            "kind": self.kind,
            "why": self.why,
            "difference": asdict(self.difference) if self.difference else None,
        }


def pending(seen: Survey, keys: Keys) -> Iterator[Pending]:
    """Yield everything that a full run at this site would make, stages first."""
    any_tables = False
    for state in seen.cells:
        for stage in state.stages:
            if stage.state == DAMAGED:
                continue
            runs = state.gpu in keys.runnable and stage.raw is None
            if runs and not (stage.metrics and stage.state not in ("stale", "missing")):
                yield stage_reason(state, stage, keys)
                any_tables = True
            if stage.metrics is None and (runs or stage.raw is not None):
                why = "its raw files are new" if runs else "its tables are missing, or their sources were edited"
                yield Pending(f"{state.cell} {stage.stage} tables", "tables", why)
                any_tables = True
    for name, path in markers(seen).items():
        if not path.exists():
            why = "its cells change" if any_tables else "its cells, their states or the analysis sources changed"
            yield Pending(name, "product", why)


def stage_reason(state: CellState, stage: StageState, keys: Keys) -> Pending:
    """Return why one stage is not current."""
    what = f"{state.cell} {stage.stage}"
    if not stage.old:
        return Pending(what, "stage", "missing")
    found = stale_differences(state.cell, stage, keys)
    if not found:
        return Pending(what, "stage", "stale: its old result has no readable cell file")
    return Pending(what, "stage", f"stale: {found[0]}", found[0])


def stale_differences(cell: Cell, stage: StageState, keys: Keys) -> list[Difference]:
    """Return in what the newest old result of a stage differs from the present.

    An imported cell may have tables alone; their folder then holds the cell file. Tables that were made from the
    present raw files are old because the code that makes tables was edited.
    """
    for path in sorted(stage.old, key=lambda path: path.stat().st_mtime, reverse=True):
        if METRICS in path.parts and made_from(path / METRICS_FILE) == stage.key:
            return [TABLES_EDITED]
        content = read_cell_file(path)
        if content is not None:
            return differences(content, keys.cell_file(cell, stage.stage))
    return []
