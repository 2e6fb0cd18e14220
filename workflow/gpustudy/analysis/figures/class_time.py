"""Time per step by kernel class and phase: a stacked bar for each phase of each config."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from gpustudy.analysis import marks, panels, style
from gpustudy.analysis.families import look_of_class

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset, Group

BARS = {"forward": "F", "backward": "B", "optimiser": "O", "rest": "R"}
"""Bar of a config -> its letter. What is in no other phase is in the rest."""

OTHERS = "all other classes"

_MOST_CLASSES = 8
"""Classes with a name of their own: two lines of the legend."""

_OTHERS_LOOK = ("white", "")

_BAR_IN = 0.08
"""Height of one bar, in inches: the letter beside it is 5-point type."""

_LEGEND_IN = 0.4
"""Height of the legend, in inches: two lines."""


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``class_time``."""
    time = named_classes(dataset.class_time, _MOST_CLASSES)
    classes = list(dict.fromkeys(time.groupby("class")["step_ns"].sum().sort_values(ascending=False).index))
    classes.sort(key=lambda name: name == OTHERS)  # a stable sort: the others last
    looks = {name: _OTHERS_LOOK if name == OTHERS else look_of_class(name) for name in classes}
    figure, parts = panels.gpu_panels(
        dataset,
        "census",
        lambda group: not dataset.of(time, group).empty,
        width_in=style.TEXT_IN,
        bars=len(BARS),
        row_in=_BAR_IN * (len(BARS) + 1),
        legend_in=_LEGEND_IN,
    )
    for panel in parts:
        means = {y: mean for y, group in panel.rows() if not (mean := _mean_of_repeats(dataset, time, group)).empty}
        scale, unit = style.time_unit(max(mean.groupby("bar").sum().max() for mean in means.values()) / 1e9)
        repeats = {y: dataset.of(time, group)["repeat"].nunique() for y, group in panel.rows()}
        (axes,) = panel.axes
        for y, mean in means.items():
            for offset, bar in enumerate(BARS):
                at = y + offset - (len(BARS) - 1) / 2
                own = {name: mean.get((bar, name), 0.0) / 1e9 * scale for name in classes}
                marks.stack(axes, at, own, looks=looks)
            total = style.number(float(mean.sum()) / 1e9 * scale)
            marks.note(axes, y, f"{total} {unit}, n={repeats[y]}")
        _letters(axes, list(means))
        marks.start_at_zero(axes)
        axes.set_xlabel(f"time per step ({unit})")
    if parts:
        marks.area_legend(figure, classes, looks=looks)
    return figure


def named_classes(time: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return ``time`` with at most ``most`` classes: the smallest are put together and named so."""
    totals = time.groupby("class")["step_ns"].sum().sort_values(ascending=False)
    if len(totals) <= most:
        return time
    small = set(totals.index[most - 1 :])
    return time.assign(**{"class": time["class"].where(~time["class"].isin(small), OTHERS)})


def _mean_of_repeats(dataset: Dataset, time: pd.DataFrame, group: Group) -> pd.Series[float]:
    """Return the time in ns by (bar, class), a mean over the repeats that have a census."""
    own = dataset.of(time, group)
    bars = own["phase"].where(own["phase"].isin(list(BARS)), "rest").rename("bar")
    return own.groupby([bars, "class"])["step_ns"].sum() / max(own["repeat"].nunique(), 1)


def _letters(axes: Axes, centres: list[float]) -> None:
    """Write each bar's letter beside it, between the config's name and the axis."""
    middle = (len(BARS) - 1) / 2
    axes.set_yticks([y + offset - middle for y in centres for offset in range(len(BARS))], minor=True)
    axes.set_yticklabels([letter for _ in centres for letter in BARS.values()], minor=True, fontsize=5)
    axes.tick_params(axis="y", which="minor", length=0, pad=1)
    axes.tick_params(axis="y", which="major", pad=10)
