"""Peak memory of training for each gpu and config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustudy.analysis import marks, panels, style
from gpustudy.analysis.statistics import Estimate, mean_over_repeats

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``peak_memory``."""
    figure, parts = panels.gpu_panels(dataset, "train", lambda group: bool(dataset.peak_memory(group)))
    for panel in parts:
        peaks = {y: own for y, group in panel.rows() if (own := dataset.peak_memory(group))}
        divisor, unit = style.byte_unit(max(peak for own in peaks.values() for peak in own.values()))
        (axes,) = panel.axes
        shown: list[float] = []
        estimates: dict[float, Estimate] = {}
        for y, own in peaks.items():
            values = [peak / divisor for peak in own.values()]
            estimate = estimates[y] = mean_over_repeats(values)
            axes.barh(y, estimate.value, height=0.6, facecolor=style.COLOURS[4], edgecolor=style.INK, linewidth=0.4)
            marks.interval(axes, y, estimate, marker="")
            marks.points(axes, y, values)
            shown += values
            marks.note(axes, y, f"{style.number(estimate.value)} {unit}, n={estimate.n}")
        marks.start_at_zero_with(axes, shown, estimates)
        axes.set_xlabel(f"peak memory ({unit})")
    return figure
