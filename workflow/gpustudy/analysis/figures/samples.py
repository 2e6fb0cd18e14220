"""Pictures of generated volumes, one for each gpu and config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustudy.analysis import panels, style

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from gpustudy.analysis.dataset import Dataset, Group

_MOST_COLUMNS = 5
"""Pictures side by side: about 1.3 inches each at the width of a page."""

_LABEL_IN = 0.2
"""Height of the name over a picture, in inches."""


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``samples``."""
    from matplotlib.figure import Figure
    from matplotlib.image import imread

    shown = [
        gpu for gpu in dataset.gpus if any((gpu, group.config) in dataset.mosaics for group in dataset.groups(gpu))
    ]
    columns = min(max((len(dataset.groups(gpu)) for gpu in shown), default=1), _MOST_COLUMNS)
    pictures = {key: imread(path) for key, (_, path) in dataset.mosaics.items()}
    aspect = max((picture.shape[0] / picture.shape[1] for picture in pictures.values()), default=1.0)
    tiles = [
        (gpu, dataset.groups(gpu)[at : at + columns])
        for gpu in shown
        for at in range(0, len(dataset.groups(gpu)), columns)
    ]
    lines = panels.bare_lines(dataset, lambda group: group.word("quality"), shown)
    heights = [style.TEXT_IN / columns * aspect + _LABEL_IN for _ in tiles]
    heights += [panels.strip_height(lines)] if lines else []
    figure = Figure(figsize=(style.TEXT_IN, sum(heights) + _LABEL_IN), layout="constrained")
    panels.mark_crafted(figure, dataset)
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
    for row, (_, groups) in enumerate(tiles):
        for column, group in enumerate(groups):
            _tile(figure.add_subplot(grid[row, column]), group, pictures.get((group.gpu, group.config)), aspect)
    if lines:
        panels.draw_lines(figure.add_subplot(grid[-1, :]), lines)
    return figure


def _tile(axes: Axes, group: Group, picture: NDArray[np.float32] | None, aspect: float) -> None:
    """Show one picture, or the word that says why there is none, in a field of the same height over width."""
    axes.set_title(f"{group.gpu} {group.label}", fontsize=6.5, fontweight="normal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    if picture is None:
        axes.set_facecolor(style.STRIP)
        axes.set_box_aspect(aspect)
        axes.text(0.5, 0.5, group.word("quality"), transform=axes.transAxes, ha="center", va="center", style="italic")
    else:
        axes.imshow(picture, cmap="gray", interpolation="antialiased")
