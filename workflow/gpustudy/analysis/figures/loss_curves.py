"""Training loss over iterations, a line for each config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustudy.analysis import panels, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset, Group

_PLOT_IN = 1.25
"""Height of one panel's plot, in inches."""


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``loss_curves``."""
    from matplotlib.ticker import MaxNLocator

    figure, parts = panels.gpu_panels(
        dataset, "train", lambda group: not dataset.of(dataset.steps, group).empty, plot_in=_PLOT_IN
    )
    for panel in parts:
        (axes,) = panel.axes
        for position, group in enumerate(panel.groups):
            _curve(axes, dataset, group, position)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("optimiser step")
        axes.set_ylabel("loss")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.05), handlelength=2.4, borderpad=0)
    return figure


def _curve(axes: Axes, dataset: Dataset, group: Group, position: int) -> None:
    """Draw the mean of the repeats and the band they span; without data, a legend entry that says why."""
    rows = dataset.of(dataset.steps, group)
    if rows.empty:
        axes.plot([], [], linestyle="none", label=f"{group.label}: {group.word('train')}")
        return
    loss = rows.groupby("iteration")["loss"].agg(["mean", "min", "max"])
    colour, line = style.COLOURS[position % len(style.COLOURS)], style.LINES[position % len(style.LINES)]
    axes.fill_between(loss.index, loss["min"], loss["max"], color=colour, alpha=0.15, linewidth=0)
    label = f"{group.label}, n={rows['repeat'].nunique()}"
    axes.plot(loss.index, loss["mean"], color=colour, linestyle=line, label=label)
