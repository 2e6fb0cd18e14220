"""Step time for each gpu and config: the repeats, their mean, its interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustudy.analysis import marks, panels, style
from gpustudy.analysis.statistics import median, summarise_steps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``step_time``."""
    figure, parts = panels.gpu_panels(dataset, "train", lambda group: bool(dataset.step_times(group)))
    for panel in parts:
        times = {y: steps for y, group in panel.rows() if (steps := dataset.step_times(group))}
        scale, unit = style.time_unit(max(median(own) for steps in times.values() for own in steps.values()))
        (axes,) = panel.axes
        shown: list[float] = []
        estimates = {}
        for y, steps in times.items():
            repeats = [median(own) * scale for own in steps.values()]
            marks.points(axes, y, repeats)
            shown += repeats
            estimate = estimates[y] = summarise_steps(
                {repeat: [time * scale for time in own] for repeat, own in steps.items()}
            )
            marks.interval(axes, y, estimate)
            marks.note(axes, y, f"{style.number(estimate.value)} {unit}, n={estimate.n}")
        marks.start_at_zero_with(axes, shown, estimates)
        axes.set_xlabel(f"step time ({unit})")
    return figure
