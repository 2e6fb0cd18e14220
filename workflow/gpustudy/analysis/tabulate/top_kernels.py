"""The kernels that take most of a step, for each gpu and config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from gpustudy.analysis.explorer import explorer
from gpustudy.analysis.overview import measured_first
from gpustudy.analysis.style import count, duration
from gpustudy.analysis.tables import NOTHING, Column, Content, Value

if TYPE_CHECKING:
    from gpustudy.analysis.dataset import Dataset

MOST = 10
"""Kernels of each gpu and config."""
LONGEST_NAME = 70
"""Characters of a demangled name that are shown: what stands before the template arguments, mostly."""
_NS_PER_S = 1e9

COLUMNS = (
    Column("GPU", ("gpu",)),
    Column("config", ("config",)),
    Column("#", ("rank",), is_number=True),
    Column("kernel", ("name",), is_long=True),
    Column("class", ("class",)),
    Column("phase", ("phase",), is_printed=False),
    Column("launches", ("launches_per_step",), is_number=True),
    Column("time", ("step_s",), is_number=True),
    Column("share", ("share_pct",), is_number=True),
    Column("mean launch", ("launch_s",), is_number=True, is_printed=False),
    Column("score (modelled)", ("score_s",), is_number=True),
)


def content(dataset: Dataset) -> Content:
    """Return columns and rows: gpus with results first, configs in the order of the study, kernels by their time."""
    found = explorer(dataset)
    rows: list[tuple[Value, ...]] = []
    for gpu in measured_first(dataset):
        for group in dataset.groups(gpu):
            own = found[(found["gpu"] == gpu) & (found["config"] == group.config)]
            kernels = own.to_dict("records")[:MOST]
            rows += [_row(rank, group.label, kernel) for rank, kernel in enumerate(kernels, start=1)]
    return COLUMNS, tuple(rows)


def _row(rank: int, label: str, kernel: dict[Any, Any]) -> tuple[Value, ...]:
    share = 100 * float(kernel["share"])
    return (
        Value(str(kernel["gpu"])),
        Value(label),
        Value(str(rank), (rank,)),
        Value(_short(str(kernel["name"]))),
        Value(str(kernel["class"])),
        Value(str(kernel["phase"])),
        _count(float(kernel["launches"])),
        _time(kernel["step_ns"]),
        Value(f"{share:.1f}%", (share,)),
        _time(kernel["launch_ns"]),
        _time(kernel["score_ns"]),
    )


def _count(mean: float) -> Value:
    """Return a mean of counts, as an integer where it is one."""
    return Value(count(mean), (int(mean) if mean.is_integer() else mean,))


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}\N{HORIZONTAL ELLIPSIS}"


def _time(nanoseconds: Any) -> Value:
    if nanoseconds is None or pd.isna(nanoseconds):
        return NOTHING
    seconds = float(nanoseconds) / _NS_PER_S
    return Value(duration(seconds), (seconds,))
