"""Why warps wait: a table of shades for each gpu, per issued instruction and in warp cycles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pandas as pd

from gpustudy.analysis import panels, quantities, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset, Group

OTHERS = "all others"

_MOST_REASONS = 10
"""Rows of a table; the other reasons are added up."""

_ROW_IN = 0.15
_EXTRA_IN = 0.85
"""Heights of a row, and of a table's title, ticks and room around it, in inches."""


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``stalls``."""
    from matplotlib.figure import Figure

    tables = {gpu: both for gpu in dataset.gpus if not (both := stall_tables(dataset, gpu))[0].empty}
    lines = panels.bare_lines(dataset, lambda group: group.word("counters") or "nothing to show", list(tables))
    heights = [len(per_issue) * _ROW_IN + _EXTRA_IN for per_issue, _ in tables.values()]
    heights += [panels.strip_height(lines)] if lines else []
    figure = Figure(figsize=(style.TEXT_IN, sum(heights) + 0.3), layout="constrained")
    panels.mark_crafted(figure, dataset)
    grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
    for row, (gpu, (per_issue, cycles)) in enumerate(tables.items()):
        left, right = (figure.add_subplot(grid[row, column]) for column in (0, 1))
        divisor, unit = _unit(cycles)
        _shades(left, per_issue, f"{gpu}: warps stalled per issue")
        _shades(right, cycles / divisor, f"{gpu}: warp cycles of a step ({unit})")
        right.set_yticks([])
    if lines:
        panels.draw_lines(figure.add_subplot(grid[-1, :]), lines)
    return figure


def stall_tables(dataset: Dataset, gpu: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return stalls per issue and in warp cycles: reasons as rows, largest first, the configs of ``gpu`` as columns.

    A config without counters has a column without values.
    """
    groups = dataset.groups(gpu)
    per_issue = pd.DataFrame({_name(group): _column(dataset, group, quantities.STALLS) for group in groups})
    cycles = pd.DataFrame({_name(group): _column(dataset, group, quantities.STALLS.values()) for group in groups})
    if per_issue.empty or not per_issue.notna().to_numpy().any():
        return pd.DataFrame(), pd.DataFrame()
    largest = per_issue.max(axis=1).sort_values(ascending=False, kind="stable").index
    kept, rest = list(largest[:_MOST_REASONS]), list(largest[_MOST_REASONS:])
    return _with_others(per_issue, kept, rest), _with_others(cycles, kept, rest)


def _column(dataset: Dataset, group: Group, names: Iterable[str]) -> pd.Series[float]:
    found = {}
    for name in names:
        estimate = quantities.value(dataset, group, name)
        if estimate is not None:
            found[name.removeprefix("stall_").removesuffix("_cycles").replace("_", " ")] = estimate.value
    return pd.Series(found, dtype=float)


def _with_others(table: pd.DataFrame, kept: list[str], rest: list[str]) -> pd.DataFrame:
    shown = table.reindex(kept)
    if rest:
        shown.loc[OTHERS] = table.reindex(rest).sum(min_count=1)
    return shown


def _unit(cycles: pd.DataFrame) -> tuple[float, str]:
    largest = float(cycles.max().max())
    return next(((10.0**power, f"10$^{power}$") for power in (9, 6, 3) if largest >= 10**power), (1.0, "cycles"))


def _shades(axes: Axes, table: pd.DataFrame, title: str) -> None:
    """Draw one table: a darker field is a larger value, its number stands in it; no value, no field."""
    import seaborn as sns

    texts = table.map(lambda value: "" if pd.isna(value) else style.number(float(value), 2))
    sns.heatmap(
        table,
        ax=axes,
        annot=texts,
        fmt="",
        cmap="Greys",
        vmin=0,
        vmax=float(table.max().max()) * 1.25 or 1.0,
        cbar=False,
        linewidths=0.4,
        linecolor="white",
        annot_kws={"fontsize": 6},
    )
    for place, name in enumerate(table.columns):
        if table[name].isna().all():
            axes.axvspan(place, place + 1, facecolor=style.STRIP, edgecolor="white", hatch="////", linewidth=0)
    axes.set_title(title)
    axes.set_xticks(axes.get_xticks(), list(table.columns), rotation=0)
    axes.tick_params(length=0)
    axes.set_xlabel("")
    axes.set_ylabel("")


def _name(group: Group) -> str:
    """Return the name of a column, and below it, word by word, what must be known of it or why it is empty."""
    word = group.word("counters")
    return f"{group.config} {word}".replace(" ", "\n") if word else group.label.replace(" ", "\n")
