"""Hit rates of both caches and the use of DRAM, with caches flushed before each kernel and left as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpustudy.analysis import panels, quantities, series, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset, Group
    from gpustudy.analysis.statistics import Estimate

COLUMNS = {
    "L1 hit rate (%)": "l1_hit_pct",
    "L2 hit rate (%)": "l2_hit_pct",
    "DRAM throughput (% of peak)": "dram_throughput_pct",
}
"""Title of an axis -> quantity."""

SCOPES = {
    "total, caches flushed": quantities.TOTAL,
    "total, caches kept": quantities.TOTAL + quantities.NO_CACHE_CONTROL,
    "median launch, flushed": quantities.LAUNCH_MEDIAN,
}
"""Name in the legend -> scope."""


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``cache_and_dram``."""
    figure, parts = panels.gpu_panels(
        dataset,
        "counters",
        series.has_counters(dataset),
        columns=len(COLUMNS),
        width_in=style.TEXT_IN,
        row_in=series.ROW_IN,
        legend_in=series.LEGEND_IN,
    )
    for panel in parts:
        for axes, (label, quantity) in zip(panel.axes, COLUMNS.items(), strict=True):
            series.draw_series(axes, panel, list(SCOPES), _in_scopes(dataset, quantity))
            series.percent_axis(axes, label if panel is parts[-1] else "")
    if parts:
        series.mark_legend(figure, list(SCOPES))
    return figure


def _in_scopes(dataset: Dataset, quantity: str) -> Callable[[Group, int], Estimate | None]:
    """Return what gives a quantity in each of the scopes."""
    scopes = list(SCOPES.values())
    return lambda group, place: quantities.value(dataset, group, quantity, scopes[place])
