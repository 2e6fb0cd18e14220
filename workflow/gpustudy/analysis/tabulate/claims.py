"""One row for each claim of the paper: verdict, why, and the cells behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustudy.analysis.claims import judge_all
from gpustudy.analysis.tables import NOT_KNOWN, Column, Content, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpustudy.analysis.claims import Judgement
    from gpustudy.analysis.dataset import Dataset

COLUMNS = (
    Column("claim", ("claim",)),
    Column("what the paper says", ("sentence",), is_long=True),
    Column("where", ("source",), is_long=True, is_printed=False),
    Column("verdict", ("verdict",)),
    Column("why", ("why",), is_long=True),
    Column("cells", ("cells",), is_long=True, is_printed=False),
    Column("shown in", ("shown_in",), is_printed=False),
)


def content(dataset: Dataset) -> Content:
    """Return columns and rows, in the order of the paper."""
    return COLUMNS, tuple(_row(one) for one in judge_all(dataset))


def _row(one: Judgement) -> tuple[Value, ...]:
    return (
        Value(one.claim.id),
        Value(one.claim.sentence),
        Value(one.claim.source),
        Value(f"{one.verdict} (crafted)" if one.crafted else one.verdict),
        Value(one.why),
        Value(cells_in_short(one.cells)),
        Value(", ".join(one.claim.figures)),
    )


def cells_in_short(cells: Sequence[str]) -> str:
    """Name cells in short: ``a100/baseline/r1,2,3``."""
    repeats: dict[str, list[str]] = {}
    for cell in cells:
        place, _, repeat = cell.rpartition("/r")
        repeats.setdefault(place, []).append(repeat)
    return ", ".join(f"{place}/r{','.join(own)}" for place, own in repeats.items()) or NOT_KNOWN
