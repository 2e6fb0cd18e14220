"""What measuring cost: time of every stage, and what profiling adds to a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustudy.analysis.overview import measured_first
from gpustudy.analysis.quantities import NO_CACHE_CONTROL, STEP, TOTAL, value
from gpustudy.analysis.style import count, duration
from gpustudy.analysis.style import number as digits
from gpustudy.analysis.tables import NOT_KNOWN, Column, Content, Value, number
from gpustudy.study.charges import units

if TYPE_CHECKING:
    from gpustudy.analysis.dataset import Dataset, Group

STAGES = ("train", "census", "counters", "quality")
_S_PER_HOUR = 3600.0
_S_PER_MINUTE = 60.0

COLUMNS = (
    Column("GPU", ("gpu",)),
    Column("config", ("config",)),
    *(Column(stage, (f"{stage}_s",), is_number=True) for stage in STAGES),
    Column("all repeats", ("device_hours",), is_number=True),
    Column("units of all repeats", ("service_units",), is_number=True, is_printed=False),
    Column("unit and site", ("unit_and_site",), is_printed=False),
    Column("profiled step over plain", ("census_slowdown",), is_number=True),
    Column("launches profiled", ("profiled_launches",), is_number=True),
    Column("of a step's", ("launches_per_step",), is_number=True),
    Column("their share of the time", ("coverage_pct",), is_number=True),
    Column("counters over training", ("counters_over_train",), is_number=True),
)


def content(dataset: Dataset) -> Content:
    """Return columns and rows of the groups with a stage that ran, gpus with results first."""
    groups = [group for gpu in measured_first(dataset) for group in dataset.groups(gpu)]
    found = ((group, stage_seconds(dataset, group)) for group in groups)
    return COLUMNS, tuple(_row(dataset, group, seconds) for group, seconds in found if seconds)


def stage_seconds(dataset: Dataset, group: Group) -> dict[str, list[float]]:
    """Return the wall time of each stage of each repeat in seconds."""
    found: dict[str, list[float]] = {}
    for stage, seconds in dataset.cell_rows.by_stage(group, "stage_s", TOTAL):
        found.setdefault(stage, []).append(seconds)
    return found


def _row(dataset: Dataset, group: Group, seconds: dict[str, list[float]]) -> tuple[Value, ...]:
    means = {stage: sum(own) / len(own) for stage, own in seconds.items()}
    hours = sum(sum(own) for own in seconds.values()) / _S_PER_HOUR
    slowdown = _quotient(_value(dataset, group, "census_step_s", "median"), _value(dataset, group, "step_s", "median"))
    profiled = [_value(dataset, group, "profiled_launches", f"{TOTAL}{suffix}") for suffix in ("", NO_CACHE_CONTROL)]
    return (
        Value(group.gpu),
        Value(group.label),
        *(number(means.get(stage), duration) for stage in STAGES),
        Value(f"{digits(hours)} h", (hours,)),
        *_units(dataset, group),
        number(slowdown, lambda ratio: f"{digits(ratio)}x"),
        number(sum(one or 0.0 for one in profiled) or None, _count),
        number(_value(dataset, group, "launches", STEP), _count),
        number(_value(dataset, group, "coverage_pct", TOTAL), "{:.1f}%".format),
        number(_quotient(means.get("counters"), means.get("train")), lambda ratio: f"{digits(ratio)}x"),
    )


def _units(dataset: Dataset, group: Group) -> tuple[Value, Value]:
    """Return what the measured time is charged, a job per cell, at the cheapest site with this gpu; and where that is.

    Which site measured a cell stands in none of its files.
    """
    seconds: dict[int, float] = {}
    for repeat, _, _, of_stage in dataset.cell_rows.parts(group, "stage_s", TOTAL):
        seconds[repeat] = seconds.get(repeat, 0.0) + of_stage
    charged = {}
    for name, site in dataset.survey.study.sites.items():
        of_cells = [units(site, own / _S_PER_MINUTE) for own in seconds.values()]
        if group.gpu in site.gpus and site.rate is not None:
            charged[f"{site.rate.unit} at {name}"] = sum(one or 0.0 for one in of_cells)
    if not charged:
        return number(None, digits), Value(NOT_KNOWN)
    place = min(charged, key=lambda name: charged[name])
    return number(charged[place], digits), Value(place)


def _value(dataset: Dataset, group: Group, quantity: str, scope: str) -> float | None:
    found = value(dataset, group, quantity, scope)
    return None if found is None else found.value


def _count(mean: float) -> str:
    """Return a mean of counts for people; a mean of logarithms is off in the last digits."""
    return count(round(mean, 6))


def _quotient(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
