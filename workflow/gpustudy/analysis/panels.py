"""The layout that most figures share: a panel for each gpu, a row for each config, a word where nothing is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpustudy.analysis import style
from gpustudy.analysis.marks import say

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset, Group

_PANEL_EXTRA_IN = 0.55
"""Height of a panel's title, ticks and axis label, in inches."""

_BARE_PANEL_EXTRA_IN = 0.24
"""Height of the title of a panel without an axis, in inches."""


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
) -> tuple[Figure, list[Panel]]:
    """Lay out a figure with a panel for each gpu and a row for each config.

    Configs without data get their row too, with a word that says why. A gpu without any data gets a strip for each
    such word, which names its configs.

    Args:
        dataset: what to draw.
        stage: the stage whose state explains an empty row.
        has_data: whether a group has something to draw.
        columns: axes side by side in every panel.
        width_in: width of the figure, in inches.
        bars: bars within a row; rows are ``bars + 1`` apart then, one for the gap.
        row_in: height of one row, in inches.
        plot_in: height of a panel that is a plot of its own kind: it gets no rows. None for rows.

    Returns:
        The figure and its panels that have data, top down.
    """
    from matplotlib.figure import Figure

    height = bars + 1 if bars > 1 else 1
    full = {gpu: any(has_data(group) for group in dataset.groups(gpu)) for gpu in dataset.gpus}
    lines = {gpu: strips(dataset.groups(gpu), stage) for gpu in dataset.gpus}
    heights = [
        (plot_in or len(dataset.groups(gpu)) * row_in) + _PANEL_EXTRA_IN if full[gpu] else strip_height(lines[gpu])
        for gpu in dataset.gpus
    ] or [strip_height([""])]
    figure = Figure(figsize=(width_in, sum(heights) + _PANEL_EXTRA_IN), layout="constrained")
    mark_crafted(figure, dataset)
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
    panels = []
    for row, gpu in enumerate(dataset.gpus):
        if not full[gpu]:
            draw_strips(figure.add_subplot(grid[row, :]), gpu, lines[gpu])
            continue
        axes = tuple(figure.add_subplot(grid[row, column]) for column in range(columns))
        panel = Panel(gpu, dataset.groups(gpu), axes, height)
        axes[0].set_title(gpu)
        if plot_in is None:
            _draw_rows(panel, stage, has_data)
        panels.append(panel)
    if not dataset.gpus:
        draw_strips(figure.add_subplot(grid[0, :]), "", ["no cells"])
    return figure, panels


def mark_crafted(figure: Figure, dataset: Dataset) -> None:
    """Put the banner over a figure that shows values nobody measured."""
    if dataset.crafted:
        figure.suptitle(style.CRAFTED_BANNER, fontsize=7, fontweight="bold", color="#a00000")


def strip_height(lines: Sequence[str]) -> float:
    """Return the height in inches of a panel that has only such lines."""
    return len(lines) * style.ROW_IN + _BARE_PANEL_EXTRA_IN


def strips(groups: Sequence[Group], stage: str) -> list[str]:
    """Return a line for each reason why groups have nothing to show, naming their configs."""
    words: dict[str, list[str]] = {}
    for group in groups:
        words.setdefault(group.word(stage), []).append(group.config)
    return [
        f"all {len(names)} configs: {word}" if len(words) == 1 and len(names) > 1 else f"{', '.join(names)}: {word}"
        for word, names in words.items()
    ]


def draw_strips(axes: Axes, gpu: str, lines: Sequence[str]) -> None:
    """Write ``lines`` under the name of a gpu that has nothing else to show."""
    axes.set_title(gpu)
    axes.set_axis_off()
    axes.set_ylim(len(lines) - 0.5, -0.5)
    for position, text in enumerate(lines):
        say(axes, position, text, grounded=False)


def _draw_rows(panel: Panel, stage: str, has_data: Callable[[Group], bool]) -> None:
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
                say(axes, y, group.word(stage) if column == 0 else "", extent)
