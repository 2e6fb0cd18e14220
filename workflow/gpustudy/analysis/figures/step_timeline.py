"""One step of the census over time: a lane for each family of kernels, one block of lanes for each config."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from gpustudy.analysis import marks, panels, style
from gpustudy.analysis.bounds import architecture_of
from gpustudy.analysis.families import FAMILIES, by_family
from gpustudy.analysis.launches import one_step

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from gpustudy.analysis.dataset import Dataset

BINS = 600
"""Parts that a step is cut into: about one for each dot that a printer puts on the width of a page."""

PHASES = {"forward": "F", "backward": "B", "optimiser": "O"}
"""Phase -> its letter over the lanes."""

CPU = "cpu"
"""Architecture whose census holds operators instead of launches."""

_ROW_IN = 0.37
_TITLE_PAD = 8
"""Points between a panel and its title: the first row's letters stand there."""

_LANE = 0.7 / len(FAMILIES)
"""Height of a lane, in rows: all lanes of a config make seven tenths of its row."""

_LETTER_SHARE = 0.02
"""Share of the step below which a phase's letter has no room."""

_LEAST_SHARE = 1 / BINS
"""Share of the step below which a stretch of a phase is not drawn."""

_LEGEND_IN = 0.4
_NS_PER_S = 1e9


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``step_timeline``."""
    steps = {key: step for key, path in dataset.first_census.items() if not (step := one_step(path)).empty}
    figure, parts = panels.gpu_panels(
        dataset,
        "census",
        lambda group: (group.gpu, group.config) in steps,
        width_in=style.TEXT_IN,
        row_in=_ROW_IN,
        legend_in=_LEGEND_IN,
    )
    for panel in parts:
        (axes,) = panel.axes
        own = {y: steps[key] for y, group in panel.rows() if (key := (group.gpu, group.config)) in steps}
        axes.set_title(panel.gpu, pad=_TITLE_PAD)
        kind = "operators" if architecture_of(dataset, panel.gpu) == CPU else "launches"
        longest = max(_span_s(step) for step in own.values())
        scale, unit = style.time_unit(longest)
        for y, step in own.items():
            _lanes(axes, y, step, scale, longest)
            marks.note(axes, y, f"{len(step)} {kind}")
        axes.set_xlim(0, longest * scale)
        axes.set_xlabel(f"time from the step's first launch ({unit})")
        axes.grid(visible=False)
    if parts:
        marks.plain_legend(figure, FAMILIES)
    return figure


def runs(start: NDArray[np.float64], end: NDArray[np.float64], longest: float) -> list[tuple[float, float]]:
    """Return where something runs, as (begin, width), on a grid of ``BINS`` parts of ``longest``.

    Every launch fills the parts that it touches, so that the shortest is still seen.
    """
    first = np.clip((start / longest * BINS).astype(int), 0, BINS - 1)
    last = np.clip((end / longest * BINS).astype(int), first, BINS - 1)
    edges = np.zeros(BINS + 1)
    np.add.at(edges, first, 1)
    np.add.at(edges, last + 1, -1)
    busy = np.concatenate([[0], (np.cumsum(edges[:-1]) > 0).astype(int), [0]])
    begins, ends = np.flatnonzero(np.diff(busy) == 1), np.flatnonzero(np.diff(busy) == -1)
    part = longest / BINS
    return [(begin * part, (finish - begin) * part) for begin, finish in zip(begins, ends, strict=True)]


def _lanes(axes: Axes, y: float, step: pd.DataFrame, scale: float, longest: float) -> None:
    """Draw the lanes of one config, and its phases above them."""
    origin = int(step["start_ns"].min())
    start = ((step["start_ns"] - origin) / _NS_PER_S).to_numpy(dtype=np.float64)
    end = start + (step["duration_ns"] / _NS_PER_S).to_numpy(dtype=np.float64)
    families = by_family(step["class"]).to_numpy()
    top = y - _LANE * len(FAMILIES) / 2
    for lane, (name, colour) in enumerate(zip(FAMILIES, style.COLOURS, strict=True)):
        chosen = families == name
        spans = [(begin * scale, width * scale) for begin, width in runs(start[chosen], end[chosen], longest)]
        if spans:
            axes.broken_barh(spans, (top + lane * _LANE, _LANE), facecolor=colour, edgecolor="none")
    lettered: list[float] = []
    for phase, begin, finish in stretches(step["phase"].to_numpy(), start, end):
        share = (finish - begin) / longest
        if phase not in PHASES or share < _LEAST_SHARE:
            continue
        left, right = begin * scale, finish * scale
        axes.plot([left, right], [top - 0.04] * 2, color=style.INK, linewidth=0.7, marker="|", markersize=2.5)
        middle = (left + right) / 2
        room = _LETTER_SHARE * longest * scale
        if share > _LETTER_SHARE and all(abs(middle - other) > room for other in lettered):
            axes.text(middle, top - 0.06, PHASES[phase], ha="center", va="bottom", fontsize=5)
            lettered.append(middle)


def stretches(
    phases: NDArray[np.object_], start: NDArray[np.float64], end: NDArray[np.float64]
) -> list[tuple[str, float, float]]:
    """Return each stretch of launches of one phase, in order: phase, begin, end. Micro-batches give several."""
    changes = [0, *(np.flatnonzero(phases[1:] != phases[:-1]) + 1).tolist(), len(phases)]
    return [
        (str(phases[first]), float(start[first]), float(end[first:after].max()))
        for first, after in itertools.pairwise(changes)
    ]


def _span_s(step: pd.DataFrame) -> float:
    """Return the time from the first launch to the end of the last, in seconds."""
    return float(((step["start_ns"] + step["duration_ns"]).max() - step["start_ns"].min()) / _NS_PER_S)
