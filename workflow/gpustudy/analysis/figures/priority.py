"""Which kernels are worth work: the time of a step that the guided analysis says could be saved, kernel by kernel."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pandas as pd

from gpustudy.analysis import panels, series, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset

TOP = 8
"""Kernels of a gpu that are shown: those with the largest score in any config."""

_ROW_IN = 0.21
_EXTRA_IN = 0.6
_NAME_LENGTH = 46
"""Characters of a kernel's name that fit beside the axis."""

_NOISE = re.compile(r"^void |\(anonymous namespace\)::|at::native::|cudnn::|\(.*$")
_MARGIN = 1.4
_NS_PER_MS = 1e6
_SPREAD = 0.5
"""Distance between the first and the last config's mark of a row, in rows."""


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``priority``."""
    from matplotlib.figure import Figure

    scores = kernel_scores(dataset)
    tables = {gpu: own for gpu in dataset.gpus if not (own := top_kernels(scores, gpu)).empty}
    lines = panels.bare_lines(dataset, lambda group: group.word("counters") or "no estimates", list(tables))
    for gpu in tables:
        missing = [group for group in dataset.groups(gpu) if group.config not in tables[gpu].columns]
        lines += [f"{gpu}, {group.config}: {group.word('counters') or 'no estimates'}" for group in missing]
    heights = [len(own) * _ROW_IN + _EXTRA_IN for own in tables.values()]
    heights += [panels.strip_height(lines)] if lines else []
    height = sum(heights) + 0.3 + series.LEGEND_IN
    figure = Figure(figsize=(style.TEXT_IN, height), layout="constrained")
    panels.mark_crafted(figure, dataset)
    grid = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    configs = [name for name in dataset.configs if any(name in own.columns for own in tables.values())]
    for row, (gpu, own) in enumerate(tables.items()):
        axes = figure.add_subplot(grid[row, 0])
        axes.set_title(gpu)
        _panel(axes, own, configs)
    if lines:
        panels.draw_lines(figure.add_subplot(grid[-1, :]), lines)
    if tables:
        series.mark_legend(figure, configs, columns=len(configs))
    return figure


def kernel_scores(dataset: Dataset) -> pd.DataFrame:
    """Return the score of each kernel in ns of a step: gpu, config, kernel, score_ns, a mean over the repeats.

    Of a run with each cache control, the one with caches flushed counts: it is the first report.
    """
    rows = dataset.priority
    rows = rows[(rows["report"] == "report.ncu-rep") & rows["score_ns"].notna()]
    names = rows["name"].astype(object).map(short_name).astype(str) + " [" + rows["class"].astype(str) + "]"
    kernels = rows.assign(kernel=names)
    by_cell = kernels.groupby(["gpu", "config", "repeat", "kernel"], observed=True)["score_ns"].sum()
    means: pd.DataFrame = by_cell.groupby(["gpu", "config", "kernel"], observed=True).mean().reset_index()
    return means


def top_kernels(scores: pd.DataFrame, gpu: str) -> pd.DataFrame:
    """Return the scores in ms of the top kernels of ``gpu``, largest first: kernels as rows, configs as columns."""
    own = scores[(scores["gpu"] == gpu) & (scores["score_ns"] > 0)]
    wide = own.pivot_table(index="kernel", columns="config", values="score_ns", observed=True) / _NS_PER_MS
    if wide.empty:
        return wide
    wide.columns = wide.columns.astype(str)
    return wide.loc[wide.max(axis=1).sort_values(ascending=False, kind="stable").index[:TOP]]


def short_name(name: str) -> str:
    """Return what tells a kernel apart: its name without namespaces and arguments, its middle cut out if long."""
    text = re.sub(r"<.*", "", _NOISE.sub("", _NOISE.sub("", name))).strip() or name
    functor = (
        re.search(r"(\w*[fF]unctor\w*|\w+_kernel_cuda|\w+_kernel)\b", name.split("<", 1)[1]) if "<" in name else None
    )
    if functor and functor[1] not in text:
        text = f"{text}<{functor[1]}>"
    keep = (_NAME_LENGTH - 1) // 2
    return text if len(text) <= _NAME_LENGTH else f"{text[:keep]}…{text[-keep:]}"


def _panel(axes: Axes, own: pd.DataFrame, configs: list[str]) -> None:
    """Draw the kernels of one gpu: a row each, a mark for each config."""
    for place, config in enumerate(configs):
        if config not in own.columns:
            continue
        colour, marker = series.look_of(place)
        offset = _SPREAD * (place / max(len(configs) - 1, 1) - 0.5)
        axes.plot(
            own[config],
            [y + offset for y in range(len(own))],
            marker,
            color=colour,
            markersize=3.2,
            markeredgecolor="white",
            mew=0.3,
        )
    axes.set_xscale("log")
    axes.set_xlim(float(own.min().min()) / _MARGIN, float(own.max().max()) * _MARGIN)
    style.plain_log(axes.xaxis)
    axes.set_ylim(len(own) - 0.5, -0.5)
    axes.set_yticks(range(len(own)), [str(name) for name in own.index], fontsize=6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="both")
    axes.set_xlabel("score: time of a step that could be saved (ms)")
