"""Quality of generated volumes: a column of points for each kind of quantity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from gpustudy.analysis import marks, panels, style
from gpustudy.analysis.statistics import Estimate, mean_over_repeats
from gpustudy.study.labels import label_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset

_ROW_IN = 0.27
"""Height of one row, in inches: room for the marks of three or four series."""

_SPREAD = 0.4
"""Distance between the first and the last series of a row, in rows."""

_MOST_INTERVALS = 2
"""Intervals between the ticks of an axis an inch wide: three numbers side by side are all that fits."""

_LEAST_SPAN = 0.05
"""Least span of an axis, as a share of the values on it: a difference of a hundredth should look like one."""

_LEGEND_BELOW_IN = 0.48
"""Distance of a legend below its axis, in inches: ticks and a title of two lines lie between."""

_MARK_POINTS = 3.0
"""Size of a mark, in points."""


@dataclass(frozen=True)
class Measure:
    """A kind of quantity with an axis of its own: its title, its quantities with their names in the legend.

    ``averages`` is false where a mean over repeats means nothing (p values): then the repeats alone are drawn.
    """

    title: str
    quantities: dict[str, str]
    averages: bool = True


MEASURES = (
    Measure("MS-SSIM of pairs", {"ms_ssim_generated": "generated", "ms_ssim_real": "real"}),
    Measure("MMD² (lower ←)", {"mmd2_rbf": ""}),
    Measure("p of equal\ndistributions", {"mmd_p_value": ""}, averages=False),
    Measure("intensity distance\nby label (lower ←)", {"histogram_distance": ""}),
    Measure("mask fidelity\n(→ higher)", {"mask_fidelity": "generated", "mask_fidelity_real": "real"}),
)
"""What is drawn, left to right. MS-SSIM of generated pairs should match that of real ones: above it, the samples are
too alike; below, too different. Mask fidelity of real volumes is the most that its threshold allows."""


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``quality``."""
    rows = dataset.quantities[(dataset.quantities["stage"] == "quality") & dataset.quantities["value"].notna()]
    measures = [measure for measure in MEASURES if rows["quantity"].isin(list(measure.quantities)).any()]
    figure, parts = panels.gpu_panels(
        dataset,
        "quality",
        lambda group: _has_any(dataset.of(rows, group), measures),
        columns=max(len(measures), 1),
        width_in=style.TEXT_IN,
        row_in=_ROW_IN,
        legend_in=_LEGEND_BELOW_IN,
    )
    names = scope_names(dataset)
    for panel in parts:
        for axes, measure in zip(panel.axes, measures, strict=True):
            _column(axes, dataset, rows, panel, measure, _series(rows, measure, names))
    for axes, measure in zip(parts[-1].axes if parts else (), measures, strict=True):
        axes.set_xlabel(measure.title)
        _legend(figure, axes, [label for label, _, _ in _series(rows, measure, names)])
    return figure


def _column(
    axes: Axes,
    dataset: Dataset,
    rows: pd.DataFrame,
    panel: panels.Panel,
    measure: Measure,
    series: Sequence[tuple[str, str, str]],
) -> None:
    """Draw one measure of one gpu: a mark for each series in each row."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(_MOST_INTERVALS))
    for y, group in panel.rows():
        of_group = dataset.of(rows, group)
        for place, (_, quantity, scope) in enumerate(series):
            own = of_group[(of_group["quantity"] == quantity) & (of_group["scope"] == scope)]
            at = y + _offset(place, len(series))
            if not measure.averages:
                marks.points(axes, at, own["value"].tolist())
            elif not own.empty:
                marker, colour = style.MARKERS[place % len(style.MARKERS)], style.COLOURS[place % len(style.COLOURS)]
                marks.interval(axes, at, estimate(own), marker, colour, _MARK_POINTS)
    marks.span_at_least(axes, _LEAST_SPAN)
    axes.ticklabel_format(axis="x", style="plain", useOffset=False)


def estimate(rows: pd.DataFrame) -> Estimate:
    """Return the mean over repeats; with one repeat, its value with the interval that the metric itself carries."""
    if len(rows) > 1:
        return mean_over_repeats(rows["value"].tolist())
    (row,) = rows.to_dict("records")
    low, high = (None if pd.isna(row[end]) else float(row[end]) for end in ("low", "high"))
    return Estimate(float(row["value"]), low, high, 1, row["interval"] if low is not None else None)


def scope_names(dataset: Dataset) -> dict[str, str]:
    """Return scope -> name of the label it is about, where all gpus' data sets agree on it."""
    found: dict[str, set[str]] = {}
    for gpu in dataset.gpus:
        for label, name in label_names(dataset.survey.study, gpu).items():
            found.setdefault(f"label_{label}", set()).add(name.replace("_", " "))
    return {scope: next(iter(names)) for scope, names in found.items() if len(names) == 1}


def _has_any(rows: pd.DataFrame, measures: Sequence[Measure]) -> bool:
    return bool(rows["quantity"].isin([name for measure in measures for name in measure.quantities]).any())


def _series(rows: pd.DataFrame, measure: Measure, names: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return the series of a measure: label, quantity, scope; ``names`` are those of scopes."""
    series = []
    for quantity, label in measure.quantities.items():
        scopes = sorted(rows[rows["quantity"] == quantity]["scope"].unique())
        series += [(label or names.get(scope, scope.replace("_", " ")), quantity, scope) for scope in scopes]
    return series


def _offset(place: int, count: int) -> float:
    """Return the shift of series ``place`` of ``count`` within its row, in rows."""
    return 0.0 if count == 1 else _SPREAD * (place / (count - 1) - 0.5)


def _legend(figure: Figure, axes: Axes, labels: Sequence[str]) -> None:
    """Name the marks below the axis; a single series needs no legend."""
    from matplotlib.transforms import ScaledTranslation

    if len(labels) < 2:
        return
    for place, label in enumerate(labels):
        colour = style.COLOURS[place % len(style.COLOURS)]
        axes.plot([], [], style.MARKERS[place % len(style.MARKERS)], color=colour, markersize=_MARK_POINTS, label=label)
    below = ScaledTranslation(0, -_LEGEND_BELOW_IN, figure.dpi_scale_trans)
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        bbox_transform=axes.transAxes + below,
        fontsize=6,
        handletextpad=0.1,
        borderpad=0,
    )
