"""The marks that figures are made of: repeats, intervals, stacked bars, notes, words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpustudy.analysis.style import COLOURS, HATCHES, INK, QUIET, STRIP

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    from gpustudy.analysis.statistics import Estimate

_HEADROOM = 1.04
"""Length of an axis over the largest value on it."""

_ARROW_POINTS = 3.4
"""Size of the arrow where an interval is cut, in points."""

REACH = 1.5
"""How far an interval may lengthen an axis beyond the outermost value, as a factor: a wide one must not fill it."""

LEGEND_COLUMNS = 4
"""Names side by side under a figure of text width."""

COLUMN_LEGEND_IN = 0.95
"""Height of a legend below a column, in inches: five lines under ticks and title."""

_COLUMN_LEGEND_BELOW_IN = 0.36
"""Distance from the axes to such a legend, in inches."""

_ABOVE_GRID = 0.9
"""Drawing order: grid lines have 0.5, data have 1 and more."""


_QUIET: dict[str, Any] = {"va": "center", "ha": "left", "fontsize": 6.5, "style": "italic", "color": QUIET}
"""How words look that stand where data would."""


def points(axes: Axes, y: float, values: Sequence[float]) -> None:
    """Draw one open circle a repeat."""
    axes.plot(values, [y] * len(values), "o", markersize=2.6, markerfacecolor="white", markeredgecolor=INK, mew=0.5)


def interval(
    axes: Axes, y: float, estimate: Estimate, marker: str = "D", colour: str = COLOURS[0], size: float = 3.6
) -> None:
    """Draw an estimate with its interval: a solid line over repeats, a dotted one within a single run."""
    if estimate.low is not None and estimate.high is not None:
        line = "-" if estimate.over_repeats else (0, (1, 1))
        bar_colour = colour if marker else INK
        axes.plot([estimate.low, estimate.high], [y, y], linestyle=line, color=bar_colour, linewidth=1.1)
    if marker:
        axes.plot([estimate.value], [y], marker, color=colour, markersize=size, markeredgecolor="white", mew=0.3)


def mark_cuts(axes: Axes, drawn: Mapping[float, Estimate]) -> None:
    """Put an arrow at the end of the axis where an interval runs on beyond it; to call once the axis has its span.

    Args:
        axes: where the intervals are.
        drawn: y -> estimate whose interval stands there.
    """
    from matplotlib.markers import CARETLEFT, CARETRIGHT  # their tips are at the point, inside the axes

    first, last = axes.get_xlim()
    for y, estimate in drawn.items():
        if estimate.low is not None and estimate.low < first:
            axes.plot([first], [y], marker=CARETLEFT, color=INK, markersize=_ARROW_POINTS, mew=0, clip_on=False)
        if estimate.high is not None and estimate.high > last:
            axes.plot([last], [y], marker=CARETRIGHT, color=INK, markersize=_ARROW_POINTS, mew=0, clip_on=False)


def look_of_place(place: int) -> tuple[str, str]:
    """Return colour and hatch of part ``place`` of a bar."""
    return COLOURS[place % len(COLOURS)], HATCHES[place % len(HATCHES)]


def stack(
    axes: Axes,
    y: float,
    parts: Mapping[str, float],
    height: float = 0.86,
    looks: Mapping[str, tuple[str, str]] | None = None,
) -> None:
    """Draw one bar from ``parts`` in their order; part i has colour and hatch i, or those that ``looks`` has for it."""
    left = 0.0
    for place, (name, value) in enumerate(parts.items()):
        if value:
            colour, hatch = looks[name] if looks else look_of_place(place)
            axes.barh(y, value, height=height, left=left, facecolor=colour, hatch=hatch, edgecolor=INK, linewidth=0.25)
        left += value


def area_handles(names: Iterable[str], looks: Mapping[str, tuple[str, str]] | None = None) -> list[Patch]:
    """Return the looks of parts of stacked bars with their names, in their order."""
    from matplotlib.patches import Patch

    handles = []
    for place, name in enumerate(names):
        colour, hatch = looks[name] if looks else look_of_place(place)
        handles.append(Patch(facecolor=colour, hatch=hatch, edgecolor=INK, linewidth=0.25, label=name))
    return handles


def area_legend(
    figure: Figure,
    names: Iterable[str],
    columns: int = LEGEND_COLUMNS,
    looks: Mapping[str, tuple[str, str]] | None = None,
) -> None:
    """Name the parts of stacked bars below the figure, in their order."""
    figure.legend(handles=area_handles(names, looks), loc="outside lower center", ncols=columns, handlelength=2.2)


def column_legend(axes: Axes, handles: Sequence[Artist]) -> None:
    """Name what stands in one column of a figure below its last axes, two names side by side."""
    from matplotlib.transforms import ScaledTranslation

    below = ScaledTranslation(0, -_COLUMN_LEGEND_BELOW_IN, axes.figure.dpi_scale_trans)
    axes.legend(
        handles=handles,
        loc="upper center",
        bbox_to_anchor=(0.5, 0),
        bbox_transform=axes.transAxes + below,
        ncols=2,
        fontsize=6,
        handlelength=2.0,
        borderpad=0,
    )


def plain_legend(figure: Figure, names: Iterable[str], columns: int = LEGEND_COLUMNS) -> None:
    """Name areas that are told apart by place and colour, without hatches, in their order."""
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=colour, label=name) for name, colour in zip(names, COLOURS, strict=False)]
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, handlelength=2.2)


def note(axes: Axes, y: float, text: str) -> None:
    """Write ``text`` at the right of the row, outside the axes."""
    axes.text(1.015, y, text, transform=axes.get_yaxis_transform(), va="center", ha="left", fontsize=6, color=INK)


def say(axes: Axes, y: float, word: str, extent: float = 1.0) -> None:
    """Write ``word`` on a grey strip across the row at ``y``: nothing to draw here, and why."""
    axes.axhspan(y - 0.42 * extent, y + 0.42 * extent, facecolor=STRIP, edgecolor="none", zorder=_ABOVE_GRID)
    axes.text(0.015, y, word, transform=axes.get_yaxis_transform(), **_QUIET)


def write_line(axes: Axes, y: float, text: str) -> None:
    """Write ``text`` at ``y`` from the left edge of the figure on; the layout gives it no room at the sides."""
    from matplotlib.transforms import blended_transform_factory

    across = blended_transform_factory(axes.figure.transFigure, axes.transData)
    ground = {"facecolor": STRIP, "edgecolor": "none", "pad": 2}
    axes.text(0.02, y, text, transform=across, bbox=ground, in_layout=False, **_QUIET)


def start_at_zero(axes: Axes) -> None:
    """Let the axis begin at 0, so that lengths compare as the values do."""
    largest = float(axes.dataLim.x1)
    axes.set_xlim(0, largest * _HEADROOM if largest > 0 else 1)


def start_at_zero_with(axes: Axes, values: Iterable[float], drawn: Mapping[float, Estimate]) -> None:
    """Let the axis begin at 0 and reach all values; an interval lengthens it within ``REACH`` and is cut beyond.

    Args:
        axes: where everything is drawn already.
        values: repeats and bars.
        drawn: y -> estimate whose value and interval stand there.
    """
    largest = max([*values, *(estimate.value for estimate in drawn.values())])
    ends = [estimate.high for estimate in drawn.values() if estimate.high is not None]
    axes.set_xlim(0, max(largest, min(max(ends, default=0.0), REACH * largest)) * _HEADROOM)
    mark_cuts(axes, drawn)


def span_at_least(axes: Axes, share: float) -> None:
    """Let the axis span at least ``share`` of its largest value: noise in the last digits must not fill it."""
    low, high = axes.get_xlim()
    missing = share * max(abs(low), abs(high)) - (high - low)
    if missing > 0:
        axes.set_xlim(low - missing / 2, high + missing / 2)
