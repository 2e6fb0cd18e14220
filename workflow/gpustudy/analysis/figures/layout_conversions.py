"""Memory-layout conversions of one training iteration: how many calls, how many bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from gpustudy.analysis import marks, panels, style
from gpustudy.analysis.groups import conversions_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``layout_conversions``."""
    figure, parts = panels.gpu_panels(
        dataset,
        "census",
        lambda group: not dataset.of(dataset.layouts, group).empty,
        columns=2,
        width_in=style.TEXT_IN,
        legend_in=style.ROW_IN,
    )
    kinds = sorted(dataset.layouts["conversion"].dropna().unique())
    for panel in parts:
        found = {y: own for y, group in panel.rows() if (own := conversions_of(dataset, group)) is not None}
        divisor, unit = style.byte_unit(max(float(own["bytes"].sum()) for own in found.values()))
        calls, moved = panel.axes
        for y, own in found.items():
            total = float(own["bytes"].sum()) / divisor
            _bar(calls, y, own["calls"], kinds, style.count(float(own["calls"].sum())))
            _bar(moved, y, own["bytes"] / divisor, kinds, f"{style.number(total)} {unit}" if total else "0")
        calls.set_xlabel("calls per iteration")
        moved.set_xlabel(f"bytes written per iteration ({unit})")
        for axes in panel.axes:
            marks.start_at_zero(axes)
    if parts and kinds:
        marks.area_legend(figure, kinds)
    return figure


def _bar(axes: Axes, y: float, values: pd.Series[float], kinds: list[str], total: str) -> None:
    """Draw one stacked bar with its total beside it."""
    marks.stack(axes, y, {kind: float(values.get(kind, 0.0)) for kind in kinds}, height=0.6)
    marks.note(axes, y, total)
