"""The layout that most figures share: a panel for each gpu, a row for each config, a word where nothing is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpustudy.analysis import style
from gpustudy.analysis.marks import say, write_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset, Group

_PANEL_EXTRA_IN = 0.55
"""Height of a panel's title, ticks and axis label, in inches."""

_FIGURE_EXTRA_IN = 0.3
"""Height left for a banner, in inches."""


@dataclass(frozen=True)
class Panel:
    """The part of a figure that belongs to one gpu: a row for each config.

    Attributes:
        gpu: its name, the panel's title.
        groups: the configs in the order of the rows, top down; row i is centred on y = i * height.
        axes: one for each column of the figure.
        height: bars within a row.
    """

    gpu: str
    groups: tuple[Group, ...]
    axes: tuple[Axes, ...]
    height: int

    def rows(self) -> Iterator[tuple[float, Group]]:
        """Yield the centre of each row with its group."""
        for position, group in enumerate(self.groups):
            yield float(position * self.height), group


def gpu_panels(
    dataset: Dataset,
    stage: str,
    has_data: Callable[[Group], bool],
    columns: int = 1,
    width_in: float = style.COLUMN_IN,
    bars: int = 1,
    row_in: float = style.ROW_IN,
    plot_in: float | None = None,
    legend_in: float = 0.0,
    word: Callable[[Group], str] | None = None,
) -> tuple[Figure, list[Panel]]:
    """Lay out a figure with a panel for each gpu and a row for each config.

    Configs without data get their row too, with a word that says why. A gpu without any data gets a line below the
    panels instead of one of its own.

    Args:
        dataset: what to draw.
        stage: the stage whose state explains an empty row.
        has_data: whether a group has something to draw.
        columns: axes side by side in every panel.
        width_in: width of the figure, in inches.
        bars: bars within a row; rows are ``bars + 1`` apart then, one for the gap.
        row_in: height of one row, in inches.
        plot_in: height of a panel that is a plot of its own kind: it gets no rows. None for rows.
        legend_in: height of a legend below the panels, in inches.
        word: says why a group has nothing to draw; the state of ``stage`` where it is None or says nothing.

    Returns:
        The figure and its panels that have data, top down.
    """
    from matplotlib.figure import Figure

    shown = [gpu for gpu in dataset.gpus if any(has_data(group) for group in dataset.groups(gpu))]

    def why(group: Group) -> str:
        return group.word(stage) or (word(group) if word else "") or "nothing to show"

    lines = bare_lines(dataset, why, shown)
    heights = [(plot_in or len(dataset.groups(gpu)) * row_in) + _PANEL_EXTRA_IN for gpu in shown]
    heights += [strip_height(lines)] if lines else []
    figure = Figure(figsize=(width_in, sum(heights) + _FIGURE_EXTRA_IN + legend_in), layout="constrained")
    mark_crafted(figure, dataset)
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
    panels = []
    for row, gpu in enumerate(shown):
        axes = tuple(figure.add_subplot(grid[row, column]) for column in range(columns))
        panel = Panel(gpu, dataset.groups(gpu), axes, bars + 1 if bars > 1 else 1)
        axes[0].set_title(gpu)
        if plot_in is None:
            _draw_rows(panel, why, has_data)
        panels.append(panel)
    if lines:
        draw_lines(figure.add_subplot(grid[-1, :]), lines)
    return figure, panels


def bare_lines(dataset: Dataset, why: Callable[[Group], str], shown: Sequence[str]) -> list[str]:
    """Return what stands below the panels: a line for each gpu that is not ``shown`` and each reason why."""
    lines = []
    for gpu in dataset.gpus:
        words: dict[str, list[str]] = {}
        for group in dataset.groups(gpu) if gpu not in shown else ():
            words.setdefault(why(group), []).append(group.config)
        for word, names in words.items():
            all_of_it = len(words) == 1 and len(names) > 1
            lines.append(f"{gpu}, {f'all {len(names)} configs' if all_of_it else ', '.join(names)}: {word}")
    return lines if dataset.gpus else ["no cells"]


def strip_height(lines: Sequence[str]) -> float:
    """Return the height in inches of these lines."""
    return len(lines) * style.ROW_IN


def draw_lines(axes: Axes, lines: Sequence[str]) -> None:
    """Write ``lines`` below each other from the figure's left edge on, each on a grey ground."""
    axes.set_axis_off()
    axes.set_ylim(len(lines) - 0.5, -0.5)
    for position, text in enumerate(lines):
        write_line(axes, position, text)


def mark_crafted(figure: Figure, dataset: Dataset) -> None:
    """Put the banner over a figure that shows values nobody measured."""
    if dataset.crafted:
        figure.suptitle(style.CRAFTED_BANNER, fontsize=7, fontweight="bold", color="#a00000")


def _draw_rows(panel: Panel, why: Callable[[Group], str], has_data: Callable[[Group], bool]) -> None:
    """Give every config its row: name at the left, word where it has no data."""
    extent = panel.height
    positions = [y for y, _ in panel.rows()]
    for column, axes in enumerate(panel.axes):
        axes.set_ylim(positions[-1] + extent / 2, -extent / 2)
        axes.set_yticks(positions, [group.label for group in panel.groups] if column == 0 else [""] * len(positions))
        axes.tick_params(axis="y", length=0)
        axes.patch.set_visible(column == 0)  # a long word of the first column runs on over its neighbours
        axes.grid(axis="x")
        for y, group in panel.rows():
            if not has_data(group):
                say(axes, y, why(group) if column == 0 else "", extent)
