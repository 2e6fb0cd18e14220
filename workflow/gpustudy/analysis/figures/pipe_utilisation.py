"""Use of the tensor cores, of the CUDA cores' pipes, and of the SM as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustudy.analysis import panels, quantities, series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset

PIPES = {
    "tensor pipe": "tensor_pipe_pct",
    "FMA pipe": "fma_pipe_pct",
    "ALU pipe": "alu_pipe_pct",
    "SM throughput": "sm_throughput_pct",
}
"""Name in the legend -> quantity, totals of a step."""


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``pipe_utilisation``."""
    figure, parts = panels.gpu_panels(
        dataset, "counters", series.has_counters(dataset), row_in=series.ROW_IN, legend_in=2 * series.LEGEND_IN
    )
    names = list(PIPES.values())
    for panel in parts:
        (axes,) = panel.axes
        series.draw_series(
            axes, panel, list(PIPES), lambda group, place: quantities.value(dataset, group, names[place])
        )
        series.percent_axis(axes, "of peak (%)")
    if parts:
        series.mark_legend(figure, list(PIPES), columns=2)
    return figure
