"""SM cycles and dynamic instructions over those of baseline, in every scope that a claim can mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustudy.analysis import bounds, marks, panels, quantities, series, style
from gpustudy.analysis.dataset import BASELINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset, Group
    from gpustudy.analysis.statistics import Estimate

COLUMNS = {"SM active cycles, of baseline": "sm_active_cycles", "warp instructions, of baseline": "warp_instructions"}
"""Title of an axis -> quantity."""

SCOPES = {
    "all launches of a step": quantities.TOTAL,
    "average launch": quantities.LAUNCH_MEAN,
    "median launch": quantities.LAUNCH_MEDIAN,
    "first launches": quantities.FIRST_N,
}
"""Name in the legend -> scope."""

_BOUND = "least for the same work"
_LEAST_SPAN = (0.5, 2.0)
"""What an axis shows at least: a factor of two each way."""

_MARGIN = 1.3
"""Factor between the outermost mark and the end of the axis."""


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``cycles_and_instructions``."""
    figure, parts = panels.gpu_panels(
        dataset,
        "counters",
        series.has_counters(dataset),
        columns=len(COLUMNS),
        width_in=style.TEXT_IN,
        row_in=series.ROW_IN + 0.06,
        legend_in=series.LEGEND_IN,
    )
    for panel in parts:
        for axes, (label, quantity) in zip(panel.axes, COLUMNS.items(), strict=True):
            _column(axes, dataset, panel, quantity)
            axes.set_xlabel(label if panel is parts[-1] else "")
    if parts:
        series.mark_legend(figure, list(SCOPES), columns=5, extra=[("|", _BOUND)])
    return figure


def _column(axes: Axes, dataset: Dataset, panel: panels.Panel, quantity: str) -> None:
    """Draw the ratios of one quantity of one gpu."""
    scopes = list(SCOPES.values())

    def ratio(group: Group, place: int) -> Estimate | None:
        return (
            None if group.config == BASELINE else quantities.ratio_to_baseline(dataset, group, quantity, scopes[place])
        )

    drawn = [*_LEAST_SPAN, *series.draw_series(axes, panel, list(SCOPES), ratio)]
    for y, group in panel.rows():
        if not series.has_counters(dataset)(group):
            continue
        if group.config == BASELINE:
            axes.text(1.0, y, "reference  ", va="center", ha="right", fontsize=6, color=style.QUIET, style="italic")
        elif ratio(group, 0) is None:
            marks.say(axes, y, "no ratio to baseline")
        elif quantity == "warp_instructions" and (least := bounds.least_measured_ratio(dataset, group)):
            axes.plot([least], [y], "|", color=style.INK, markersize=9, mew=0.9)
            drawn.append(least)
    axes.axvline(1, color=style.QUIET, linewidth=0.6, zorder=0.6)
    axes.set_xscale("log")
    axes.set_xlim(min(drawn) / _MARGIN, max(drawn) * _MARGIN)
    style.plain_log(axes.xaxis)
