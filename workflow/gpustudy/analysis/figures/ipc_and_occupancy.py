"""Instructions per cycle, and warps in flight: achieved, and as the launches would allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustudy.analysis import panels, quantities, series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset

IPC = {"total": quantities.TOTAL, "median launch": quantities.LAUNCH_MEDIAN}
"""Name in the legend -> scope."""

OCCUPANCY = {"achieved": "achieved_occupancy_pct", "theoretical": "theoretical_occupancy_pct"}
"""Name in the legend -> quantity."""

_NAMES = ("total, achieved", "median launch, theoretical")


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``ipc_and_occupancy``."""
    figure, parts = panels.gpu_panels(
        dataset,
        "counters",
        series.has_counters(dataset),
        columns=2,
        row_in=series.ROW_IN,
        legend_in=series.LEGEND_IN,
    )
    scopes, shares = list(IPC.values()), list(OCCUPANCY.values())
    for panel in parts:
        ipc, occupancy = panel.axes
        drawn = series.draw_series(
            ipc, panel, list(IPC), lambda group, place: quantities.value(dataset, group, "ipc", scopes[place])
        )
        ipc.set_xlim(0, max(drawn, default=1.0) * 1.1)
        series.draw_series(
            occupancy, panel, list(OCCUPANCY), lambda group, place: quantities.value(dataset, group, shares[place])
        )
        ipc.set_xlabel("IPC (inst/cycle)")
        series.percent_axis(occupancy, "occupancy (%)")
    if parts:
        series.mark_legend(figure, _NAMES, columns=2)
    return figure
