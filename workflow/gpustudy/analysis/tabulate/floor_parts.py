"""The physical floor of a step by phase and kind of kernel, and the time over it; every floor is modelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustudy.analysis.families import by_family
from gpustudy.analysis.floor import Floor, FloorPart, floor_of
from gpustudy.analysis.groups import step_time_of
from gpustudy.analysis.overview import measured_first
from gpustudy.analysis.style import duration
from gpustudy.analysis.style import number as digits
from gpustudy.analysis.tables import NOTHING, Column, Content, Value

if TYPE_CHECKING:
    from gpustudy.analysis.dataset import Dataset, Group

_NS_PER_S = 1e9
_GIGA = 1e9

COLUMNS = (
    Column("GPU", ("gpu",)),
    Column("config", ("config",)),
    Column("phase", ("phase",)),
    Column("kind of kernel", ("family",)),
    Column("operations (GFLOP)", ("flops",), is_number=True),
    Column("bytes read (GB)", ("bytes",), is_number=True),
    Column("floor", ("floor_s",), is_number=True),
    Column("bound by", ("bound",)),
    Column("time", ("time_s",), is_number=True),
    Column("time over floor", ("time_over_floor",), is_number=True),
    Column("origin of the floor", ("origin",)),
)


def content(dataset: Dataset) -> Content:
    """Return columns and rows: for each group the whole step, then its parts."""
    rows: list[tuple[Value, ...]] = []
    for gpu in measured_first(dataset):
        for group in dataset.groups(gpu):
            floor = floor_of(dataset, group)
            if floor is not None:
                rows.append(_step_row(dataset, group, floor))
                rows += _part_rows(dataset, group, floor)
    return COLUMNS, tuple(rows)


def _step_row(dataset: Dataset, group: Group, floor: Floor) -> tuple[Value, ...]:
    """Return the row of a whole step, whose time is that of training without a profiler."""
    step = step_time_of(dataset, group)
    whole = FloorPart(
        "step",
        "all",
        floor.seconds,
        sum(part.flops for part in floor.parts),
        sum(part.bytes for part in floor.parts),
        sum(part.compute_s for part in floor.parts),
    )
    return _row(group, whole, None if step is None else step.value, floor.origin)


def _part_rows(dataset: Dataset, group: Group, floor: Floor) -> list[tuple[Value, ...]]:
    """Return a row for each phase and kind of kernel, whose time is that of its launches in the census."""
    own = dataset.of(dataset.class_time, group)
    sums = own.groupby(["phase", by_family(own["class"])], observed=True)["step_ns"].sum()
    repeats = max(own["repeat"].nunique(), 1)
    times = {key: float(total) / repeats / _NS_PER_S for key, total in sums.items()}
    return [_row(group, part, times.get((part.phase, part.family)), floor.origin) for part in floor.parts]


def _row(group: Group, part: FloorPart, time_s: float | None, origin: str) -> tuple[Value, ...]:
    over = time_s / part.seconds if time_s is not None and part.seconds > 0 else None
    return (
        Value(group.gpu),
        Value(group.label),
        Value(part.phase),
        Value(part.family),
        Value(digits(part.flops / _GIGA), (part.flops,)),
        Value(digits(part.bytes / _GIGA), (part.bytes,)),
        Value(duration(part.seconds), (part.seconds,)),
        Value(_bound(part)),
        NOTHING if time_s is None else Value(duration(time_s), (time_s,)),
        NOTHING if over is None else Value(f"{digits(over)}x", (over,)),
        Value(origin),
    )


def _bound(part: FloorPart) -> str:
    """Say what bounds most of the floor."""
    return "operations" if part.compute_s >= part.seconds / 2 else "memory"
