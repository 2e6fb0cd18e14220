"""Share of the profiled time that each family of kernels takes: one full bar for each config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustudy.analysis import marks, panels
from gpustudy.analysis.families import FAMILIES, by_family

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset, Group

_LEGEND_IN = 0.62
"""Height of the legend, in inches: four lines of two names."""


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``class_share``."""
    time = dataset.class_time
    figure, parts = panels.gpu_panels(
        dataset, "census", lambda group: not dataset.of(time, group).empty, legend_in=_LEGEND_IN
    )
    for panel in parts:
        (axes,) = panel.axes
        for y, group in panel.rows():
            shares = family_shares(dataset, group)
            if shares:
                marks.stack(axes, y, {name: 100 * shares.get(name, 0.0) for name in FAMILIES}, height=0.72)
                marks.note(axes, y, f"n={dataset.of(time, group)['repeat'].nunique()}")
        axes.set_xlim(0, 100)
        axes.set_xlabel("share of the profiled time (%)")
    if parts:
        marks.area_legend(figure, FAMILIES, columns=2)
    return figure


def family_shares(dataset: Dataset, group: Group) -> dict[str, float]:
    """Return the share of the profiled time of each family, from totals over the repeats; empty without a census."""
    own = dataset.of(dataset.class_time, group)
    totals = own.groupby(by_family(own["class"]))["step_ns"].sum()
    whole = float(totals.sum())
    return {str(name): float(part) / whole for name, part in totals.items()} if whole > 0 else {}
