"""Speed-up over baseline, paired by repeat, with its verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gpustudy.analysis import marks, panels, style
from gpustudy.analysis.dataset import BASELINE
from gpustudy.analysis.groups import baseline_of, speedup_of
from gpustudy.analysis.statistics import NOISE_FLOOR, Estimate, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset

_LEAST_SPAN = (0.9, 1.1)
"""What the axis shows at least: several times the noise floor, so that its band reads as a band."""

_BAND = "#bdbdbd"
_BAND_EDGE = "#7d7d7d"
"""Ground and edges of the noise floor's band: the edges keep it visible where the axis spans much."""

_MARGIN = 1.06
"""Factor between the outermost value or end of an interval and the end of the axis."""


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``speedup``."""
    figure, parts = panels.gpu_panels(dataset, "train", lambda group: bool(dataset.step_times(group)))
    for panel in parts:
        (axes,) = panel.axes
        low, high = 1 / (1 + NOISE_FLOOR), 1 + NOISE_FLOOR
        axes.axvspan(low, high, facecolor=_BAND, edgecolor=_BAND_EDGE, linewidth=0.5, zorder=0.55)
        values = list(_LEAST_SPAN)
        ratios: dict[float, Estimate] = {}
        for y, group in panel.rows():
            if not dataset.step_times(group):
                continue
            if group.config == BASELINE:
                marks.note(axes, y, "reference")
                continue
            ratio = speedup_of(dataset, group)
            if ratio is None:
                reason = "no pair of repeats" if dataset.step_times(baseline_of(dataset, group.gpu)) else "no baseline"
                marks.say(axes, y, reason)
                continue
            marks.interval(axes, y, ratio)
            marks.note(axes, y, f"{ratio.value:.2f}x {verdict(ratio)}, n={ratio.n}")
            ratios[y] = ratio
            values.append(ratio.value)
        axes.set_xscale("log")  # twice as fast and twice as slow are equally far from 1
        axes.set_xlim(*_span(values, ratios.values()))
        marks.mark_cuts(axes, ratios)
        style.plain_log(axes.xaxis)
        axes.set_xlabel("speed-up over baseline (x)")
    return figure


def _span(values: Sequence[float], ratios: Iterable[Estimate]) -> tuple[float, float]:
    """Return the ends of the axis: all values, and intervals as far as ``marks.REACH`` beyond them."""
    ends = [end for ratio in ratios for end in (ratio.low, ratio.high) if end is not None]
    least, most = min(values), max(values)
    low = min(least, max(min(ends, default=least), least / marks.REACH))
    high = max(most, min(max(ends, default=most), most * marks.REACH))
    return low / _MARGIN, high * _MARGIN
