"""What figures, tables and sentences share about a group: speed-up, layout conversions, largest class."""

from __future__ import annotations

import pandas as pd

from gpustudy.analysis.dataset import BASELINE, Dataset, Group
from gpustudy.analysis.statistics import Estimate, median, speedup, summarise_steps


def baseline_of(dataset: Dataset, gpu: str) -> Group:
    """Return the group of ``gpu`` that speed-ups are taken over; without cells where the study has none."""
    found = [group for group in dataset.groups(gpu) if group.config == BASELINE]
    return found[0] if found else Group(gpu, BASELINE, ())


def step_time_of(dataset: Dataset, group: Group) -> Estimate | None:
    """Return the measured time of a step of ``group`` in seconds; None where none was measured."""
    times = dataset.step_times(group)
    return summarise_steps(times) if times else None


def speedup_of(dataset: Dataset, group: Group) -> Estimate | None:
    """Return the speed-up of ``group`` over baseline on its gpu, paired by repeat; None without a pair."""
    baseline = dataset.step_times(baseline_of(dataset, group.gpu))
    own = dataset.step_times(group)
    return speedup(
        {repeat: median(steps) for repeat, steps in baseline.items()},
        {repeat: median(steps) for repeat, steps in own.items()},
    )


def conversions_of(dataset: Dataset, group: Group) -> pd.DataFrame | None:
    """Return calls and bytes of layout conversions of one iteration by kind, means over the repeats.

    Returns:
        A frame indexed by kind, empty where nothing was converted; None where layouts were not recorded.
    """
    rows = dataset.of(dataset.layouts, group)
    if rows.empty:
        return None
    converted = rows[rows["conversion"].notna()]
    return converted.groupby("conversion")[["calls", "bytes"]].sum() / rows["repeat"].nunique()


def largest_class(dataset: Dataset, group: Group) -> tuple[str, float] | None:
    """Return the class that takes most of the profiled time of ``group``, and its share; None without a census."""
    time = dataset.of(dataset.class_time, group).groupby("class")["step_ns"].sum()
    total = float(time.sum())
    return (str(time.idxmax()), float(time.max()) / total) if total > 0 else None
