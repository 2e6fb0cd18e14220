"""One row for each gpu and config: step time, speed-up, memory, what takes the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustudy.analysis.dataset import BASELINE
from gpustudy.analysis.groups import conversions_of, largest_class, speedup_of
from gpustudy.analysis.overview import measured_first
from gpustudy.analysis.statistics import mean_over_repeats, summarise_steps, verdict
from gpustudy.analysis.style import amount_of_bytes, count, duration
from gpustudy.analysis.tables import NOT_KNOWN, Column, Content, Value, interval, number

if TYPE_CHECKING:
    from gpustudy.analysis.dataset import Dataset, Group

COLUMNS = (
    Column("GPU", ("gpu",)),
    Column("config", ("config",)),
    Column("state", ("state",)),
    Column("n", ("repeats",), is_number=True),
    Column("step time", ("step_s",), is_number=True),
    Column("95% interval", ("step_low_s", "step_high_s"), is_number=True),
    Column("speed-up", ("speedup",), is_number=True),
    Column("95% interval", ("speedup_low", "speedup_high"), is_number=True),
    Column("verdict", ("verdict",)),
    Column("peak memory", ("peak_memory_bytes",), is_number=True),
    Column("largest class", ("largest_class",)),
    Column("layout conversions", ("layout_conversions_per_iteration",), is_number=True),
)


def content(dataset: Dataset) -> Content:
    """Return columns and rows: gpus with results first."""
    groups = [group for gpu in measured_first(dataset) for group in dataset.groups(gpu)]
    return COLUMNS, tuple(_row(dataset, group) for group in groups)


def _row(dataset: Dataset, group: Group) -> tuple[Value, ...]:
    steps = dataset.step_times(group)
    time = summarise_steps(steps) if steps else None
    ratio = speedup_of(dataset, group) if steps and group.config != BASELINE else None
    conversions = conversions_of(dataset, group)
    calls = None if conversions is None else float(conversions["calls"].sum())
    return (
        Value(group.gpu),
        Value(group.label),
        Value(" / ".join(dict.fromkeys(cell.state for cell in group.cells))),
        Value(str(len(steps)), (len(steps),)),
        number(time.value if time else None, duration),
        interval(time, lambda end: duration(end, time.value if time else end)),
        number(ratio.value if ratio else None, "{:.2f}x".format),
        interval(ratio, "{:.2f}".format),
        Value(verdict(ratio) if ratio else "reference" if group.config == BASELINE and steps else NOT_KNOWN),
        _peak(dataset, group),
        Value(_largest_class(dataset, group)),
        number(calls, count),
    )


def _peak(dataset: Dataset, group: Group) -> Value:
    peaks = dataset.peak_memory(group)
    if not peaks:
        return Value(NOT_KNOWN)
    mean = mean_over_repeats(list(peaks.values())).value
    return Value(amount_of_bytes(mean), (mean,))


def _largest_class(dataset: Dataset, group: Group) -> str:
    found = largest_class(dataset, group)
    return f"{found[0]} ({found[1]:.0%})" if found else NOT_KNOWN
