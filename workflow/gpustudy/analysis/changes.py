"""What changed between two sets of cells beyond noise: step time, memory, counters, kernel classes and kernels.

The same statistics as everywhere: a run counts once, repeats are paired, and a change is one only where the whole 95 %
interval of the ratio lies beyond the noise floor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from gpustudy.analysis.dataset import Dataset, Group
from gpustudy.analysis.explorer import kernels_by_repeat
from gpustudy.analysis.quantities import values_by_repeat
from gpustudy.analysis.statistics import (
    NOISE_FLOOR,
    Estimate,
    change,
    median,
    positive_mean_over_repeats,
    ratio_over_repeats,
    speedup,
    verdict,
)
from gpustudy.study.differences import differences, read_cell_file
from gpustudy.study.paths import CELLS, stage_directory

if TYPE_CHECKING:
    from pathlib import Path

    from gpustudy.analysis.sides import Side
    from gpustudy.study.states import CellState

COUNTERS = ("sm_active_cycles", "warp_instructions", "dram_bytes")
"""Totals of a step that are compared where both sides have counters: the work, and what it moved."""

LEAST_SHARE = 0.001
"""Part of a step below which a kernel is left out on both sides: its time says nothing about the step's."""

_TIME = "s"


@dataclass(frozen=True)
class Change:
    """One thing on both sides.

    Attributes:
        what: ``step time``, ``peak memory``, a counter's name, a kernel class, or a kernel's name.
        phase: of a kernel; empty for everything else.
        kernel_class: of a kernel; empty for everything else.
        before: geometric mean of the first side over the repeats that both have, so that it belongs to the ratio; over
            its own where they share none; None where it has none.
        after: the same of the second side.
        unit: of both.
        ratio: of a time first / second, so that above 1 is faster; of an amount second / first. None without a pair.
        verdict: FASTER or SLOWER (of an amount, MORE or LESS), SAME, AMBIGUOUS; ``ONLY A`` or ``ONLY B`` of one side.
    """

    what: str
    phase: str
    kernel_class: str
    before: float | None
    after: float | None
    unit: str
    ratio: Estimate | None
    verdict: str


ONLY_FIRST, ONLY_SECOND = "ONLY A", "ONLY B"


@dataclass(frozen=True)
class PairOfGroups:
    """One gpu and config of the first side and its counterpart of the second.

    Attributes:
        first: gpu/config of the first side.
        second: gpu/config of the second side.
        repeats: repeats that both have step times of.
        why: fields of the train stage's document that differ, for people; empty where that is not known.
        step_time: None where a side has none.
        others: peak memory and counters.
        classes: by kernel class, the largest difference first.
        kernels: by kernel, the largest difference first.
    """

    first: str
    second: str
    repeats: tuple[int, ...]
    why: tuple[str, ...]
    step_time: Change | None
    others: tuple[Change, ...]
    classes: tuple[Change, ...]
    kernels: tuple[Change, ...]


@dataclass(frozen=True)
class Comparison:
    """All pairs of two sides, and what one side alone has."""

    pairs: tuple[PairOfGroups, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    noise_floor: float
    crafted: bool


def compare(first: Side, second: Side, noise_floor: float = NOISE_FLOOR) -> Comparison:
    """Compare two sides, pair by pair.

    Groups are paired whose gpu and config are equal, but for what both sides were narrowed to.

    Args:
        first: the earlier one, or the one to compare with.
        second: the later one.
        noise_floor: relative difference that is taken as none.
    """
    one, two = _Measured(first), _Measured(second)
    pairs: list[PairOfGroups] = []
    paired: set[tuple[int, str]] = set()
    for group in one.groups:
        for other in two.groups:
            if _belong_together(first, second, group, other):
                pairs.append(_pair(one, two, group, other, noise_floor))
                paired |= {(1, _name(group)), (2, _name(other))}
    return Comparison(
        tuple(pairs),
        tuple(_name(group) for group in one.groups if (1, _name(group)) not in paired),
        tuple(_name(group) for group in two.groups if (2, _name(group)) not in paired),
        noise_floor,
        one.dataset.crafted or two.dataset.crafted,
    )


class _Measured:
    """The groups of one side that have anything to compare, and their kernels."""

    def __init__(self, side: Side) -> None:
        self.dataset = Dataset(side.survey)
        self.results = side.survey.results
        self.groups = [
            group
            for gpu in self.dataset.gpus
            for group in self.dataset.groups(gpu)
            if any(stage.metrics is not None and stage.state == "done" for cell in group.cells for stage in cell.stages)
        ]
        self.kernels = kernels_by_repeat(self.dataset)


def _belong_together(first: Side, second: Side, group: Group, other: Group) -> bool:
    gpus_chosen = first.gpu is not None and second.gpu is not None
    configs_chosen = first.config is not None and second.config is not None
    return (gpus_chosen or group.gpu == other.gpu) and (configs_chosen or group.config == other.config)


def _name(group: Group) -> str:
    return f"{group.gpu}/{group.config}"


def _pair(one: _Measured, two: _Measured, group: Group, other: Group, noise_floor: float) -> PairOfGroups:
    before = {repeat: median(steps) for repeat, steps in one.dataset.step_times(group).items()}
    after = {repeat: median(steps) for repeat, steps in two.dataset.step_times(other).items()}
    both = sorted(before.keys() & after.keys())
    return PairOfGroups(
        _name(group),
        _name(other),
        tuple(both),
        tuple(_why(one.results, two.results, group, other)),
        _time("step time", before, after, noise_floor) if before and after else None,
        tuple(_others(one, two, group, other, noise_floor)),
        _by_key(one, two, group, other, ["class"], noise_floor),
        _by_key(one, two, group, other, ["class", "phase", "name"], noise_floor),
    )


def _time(
    what: str,
    before: Mapping[int, float],
    after: Mapping[int, float],
    noise_floor: float,
    phase: str = "",
    kernel_class: str = "",
) -> Change:
    """Compare one time in seconds per repeat."""
    ratio = speedup(before, after)
    if not before or not after:
        found = ONLY_FIRST if before else ONLY_SECOND
    else:
        found = verdict(ratio, noise_floor) if ratio else "AMBIGUOUS"
    return Change(what, phase, kernel_class, *_means(before, after), _TIME, ratio, found)


def _means(before: Mapping[int, float], after: Mapping[int, float]) -> tuple[float | None, float | None]:
    """Return the mean of each side, over the repeats that both have if there are any."""
    both = before.keys() & after.keys()
    if both:
        before, after = ({repeat: side[repeat] for repeat in both} for side in (before, after))
    return _mean(before), _mean(after)


def _mean(values: Mapping[int, float]) -> float | None:
    return positive_mean_over_repeats(list(values.values())).value if values else None


def _others(one: _Measured, two: _Measured, group: Group, other: Group, noise_floor: float) -> Iterator[Change]:
    """Compare peak memory and the totals of counters, where both sides have them."""
    yield from _amount("peak memory", "B", one.dataset.peak_memory(group), two.dataset.peak_memory(other), noise_floor)
    for quantity in COUNTERS:
        before = values_by_repeat(one.dataset, group, quantity)
        yield from _amount(quantity, "", before, values_by_repeat(two.dataset, other, quantity), noise_floor)


def _amount(
    what: str, unit: str, before: Mapping[int, float], after: Mapping[int, float], noise_floor: float
) -> Iterator[Change]:
    if before and after and min(*before.values(), *after.values()) > 0:
        ratio = ratio_over_repeats(after, before)
        found = change(ratio, noise_floor) if ratio else "AMBIGUOUS"
        yield Change(what, "", "", *_means(before, after), unit, ratio, found)


def _by_key(
    one: _Measured, two: _Measured, group: Group, other: Group, key: list[str], noise_floor: float
) -> tuple[Change, ...]:
    """Compare the time of a profiled step by class or by kernel, the largest difference first."""
    before, after = _times(one.kernels, group, key), _times(two.kernels, other, key)
    if not before or not after:
        return ()
    least = LEAST_SHARE * max(_step(before), _step(after))
    found = []
    for name in dict.fromkeys([*before, *after]):
        own, theirs = before.get(name, {}), after.get(name, {})
        if max(_mean(own) or 0.0, _mean(theirs) or 0.0) >= least:
            phase, kernel_class = (name[1], name[0]) if len(name) > 1 else ("", "")
            found.append(_time(name[-1], own, theirs, noise_floor, phase, kernel_class))
    return tuple(sorted(found, key=lambda one: (-abs((one.after or 0.0) - (one.before or 0.0)), one.what)))


def _step(times: Mapping[tuple[str, ...], Mapping[int, float]]) -> float:
    """Return the time of a profiled step, from the means of its parts."""
    return sum(_mean(own) or 0.0 for own in times.values())


def _times(kernels: pd.DataFrame, group: Group, key: list[str]) -> dict[tuple[str, ...], dict[int, float]]:
    """Return the time in seconds of a step by ``key`` and repeat; what takes no time is left out."""
    rows = kernels[(kernels["gpu"] == group.gpu) & (kernels["config"] == group.config)]
    sums = rows.groupby([*key, "repeat"], observed=True)["step_ns"].sum()
    found: dict[tuple[str, ...], dict[int, float]] = {}
    for place, step_ns in zip(sums.index.to_list(), sums.to_list(), strict=True):
        if step_ns > 0:
            found.setdefault(tuple(map(str, place[:-1])), {})[int(place[-1])] = step_ns / 1e9
    return found


def _why(results: Path, others: Path, group: Group, other: Group) -> Iterator[str]:
    """Say in which fields a stage of the two sides differs; nothing where a cell file is not here."""
    before, after = dict(_documents(results, group.cells)), dict(_documents(others, other.cells))
    place = next((place for place in before if place in after), None)
    if place is not None:
        yield from (str(one) for one in differences(before[place], after[place]))


def _documents(results: Path, cells: Iterable[CellState]) -> Iterator[tuple[tuple[int, str], dict[str, Any]]]:
    """Yield repeat and stage with the cell file beside the raw files, or beside tables that came without them."""
    for cell in cells:
        for stage in cell.stages:
            raw = stage_directory(results, CELLS, cell.gpu, cell.config, cell.repeat, stage.stage, stage.key)
            found = read_cell_file(raw) or (read_cell_file(stage.metrics) if stage.metrics else None)
            if found is not None:
                yield (cell.repeat, stage.stage), found
