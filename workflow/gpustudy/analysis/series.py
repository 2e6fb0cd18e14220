"""Several quantities side by side: a mark for each in every row, and one legend that names them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpustudy.analysis import marks, quantities, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset, Group
    from gpustudy.analysis.panels import Panel
    from gpustudy.analysis.statistics import Estimate

ROW_IN = 0.3
"""Height of a row that holds up to four marks, in inches."""

LEGEND_IN = 0.22
"""Height of one line of a legend, in inches."""

NOT_COLLECTED = "not collected"

_SPREAD = 0.52
"""Distance between the first and the last mark of a row, in rows."""

_MARK_POINTS = 3.2


def has_counters(dataset: Dataset) -> Callable[[Group], bool]:
    """Return what says whether a group has hardware counters."""
    return lambda group: bool(quantities.values_by_repeat(dataset, group, "duration_ns"))


def draw_series(
    axes: Axes,
    panel: Panel,
    names: Sequence[str],
    estimate: Callable[[Group, int], Estimate | None],
    scale: float = 1.0,
) -> list[float]:
    """Draw in every row one mark for each of ``names`` that has an estimate.

    Args:
        axes: where.
        panel: whose rows.
        names: what the marks stand for, in the order of the legend.
        estimate: gives the estimate of mark i for a group.
        scale: what values are multiplied with.

    Returns:
        Every value and end of an interval that was drawn.
    """
    drawn: list[float] = []
    for y, group in panel.rows():
        if y > 0:
            axes.axhline(y - panel.height / 2, color=style.RULE, linewidth=0.5, zorder=0.5)
        for place in range(len(names)):
            found = estimate(group, place)
            if found is not None:
                scaled = found.scaled(scale)
                colour, marker = look_of(place)
                marks.interval(axes, y + _offset(place, len(names)), scaled, marker, colour, _MARK_POINTS)
                drawn += [value for value in (scaled.value, scaled.low, scaled.high) if value is not None]
    return drawn


def look_of(place: int) -> tuple[str, str]:
    """Return colour and marker of mark ``place``."""
    return style.COLOURS[place % len(style.COLOURS)], style.MARKERS[place % len(style.MARKERS)]


def mark_legend(figure: Figure, names: Sequence[str], columns: int = 4, extra: Sequence[tuple[str, str]] = ()) -> None:
    """Name the marks below the figure.

    Args:
        figure: the figure.
        names: what marks 0, 1, ... stand for.
        columns: names side by side.
        extra: further marks as (marker, name), drawn in ink.
    """
    from matplotlib.lines import Line2D

    looks = [(*look_of(place), name) for place, name in enumerate(names)]
    looks += [(style.INK, marker, name) for marker, name in extra]
    handles = [
        Line2D([], [], linestyle="none", color=colour, marker=marker, markersize=_MARK_POINTS + 0.6, label=name)
        for colour, marker, name in looks
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, handletextpad=0.1, columnspacing=1.2, borderpad=0.2
    )


def percent_axis(axes: Axes, label: str) -> None:
    """Let the axis span 0 to 100 %."""
    axes.set_xlim(0, 100)
    axes.set_xticks([0, 50, 100])
    axes.set_xlabel(label)


def _offset(place: int, count: int) -> float:
    return 0.0 if count == 1 else _SPREAD * (place / (count - 1) - 0.5)
