"""What measuring cost: the time of every stage, and how much of a step the counters saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustudy.analysis import marks, panels, quantities, style
from gpustudy.analysis.tabulate.cost import STAGES, stage_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset, Group

_MINUTE_S = 60.0


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``profiling_cost``."""
    figure, parts = panels.gpu_panels(
        dataset, "train", lambda group: bool(mean_seconds(dataset, group)), legend_in=style.ROW_IN * 2
    )
    for panel in parts:
        (axes,) = panel.axes
        seconds = {y: own for y, group in panel.rows() if (own := mean_seconds(dataset, group))}
        divisor, unit = (
            (_MINUTE_S, "min") if max(sum(own.values()) for own in seconds.values()) >= 2 * _MINUTE_S else (1.0, "s")
        )
        for y, group in panel.rows():
            if y in seconds:
                marks.stack(axes, y, {stage: seconds[y].get(stage, 0.0) / divisor for stage in STAGES}, height=0.6)
                marks.note(axes, y, _seen(dataset, group))
        marks.start_at_zero(axes)
        axes.set_xlabel(f"time of a cell's stages ({unit})")
    if parts:
        marks.area_legend(figure, STAGES)
    return figure


def mean_seconds(dataset: Dataset, group: Group) -> dict[str, float]:
    """Return the wall time of each stage in seconds, a mean over its repeats."""
    return {stage: sum(values) / len(values) for stage, values in stage_seconds(dataset, group).items()}


def _seen(dataset: Dataset, group: Group) -> str:
    """Say how much of a step was profiled: launches of all, else how much slower the profiled steps are."""
    profiled = quantities.value(dataset, group, "profiled_launches")
    launches = quantities.value(dataset, group, "launches", quantities.STEP)
    if profiled is not None and launches is not None:
        return f"{profiled.value:.0f} of {launches.value:.0f} launches"
    census = quantities.value(dataset, group, "census_step_s", "median")
    step = quantities.value(dataset, group, "step_s", "median")
    return (
        f"profiled step {style.number(census.value / step.value)}x" if census is not None and step is not None else ""
    )
