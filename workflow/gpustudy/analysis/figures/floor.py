"""The physical floor of a step beside its measured time, by phase and by family of kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpustudy.analysis import marks, panels, style
from gpustudy.analysis.families import FAMILIES
from gpustudy.analysis.floor import MODELLED, Floor, floor_of, why_no_floor
from gpustudy.analysis.groups import step_time_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset
    from gpustudy.analysis.statistics import Estimate

PHASES = ("forward", "backward", "optimiser", "rest")


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``floor``."""
    floors = {
        (gpu, group.config): floor
        for gpu in dataset.gpus
        for group in dataset.groups(gpu)
        if (floor := floor_of(dataset, group)) is not None
    }
    figure, parts = panels.gpu_panels(
        dataset,
        "census",
        lambda group: (group.gpu, group.config) in floors,
        columns=2,
        width_in=style.TEXT_IN,
        legend_in=marks.COLUMN_LEGEND_IN,
        word=lambda group: why_no_floor(dataset, group),
    )
    for panel in parts:
        rows = [
            (y, floors[group.gpu, group.config], step_time_of(dataset, group))
            for y, group in panel.rows()
            if (group.gpu, group.config) in floors
        ]
        largest = max(max(floor.seconds, step.value if step else 0.0) for _, floor, step in rows)
        scale, unit = style.time_unit(largest)
        by_phase, by_family = panel.axes
        for y, floor, step in rows:
            _bar(by_phase, y, phases_of(floor), scale, step)
            _bar(by_family, y, families_of(floor), scale, step)
            marks.note(by_family, y, _ratio(floor, step, scale, unit))
        steps = {y: step.scaled(scale) for y, _, step in rows if step is not None}
        for axes in panel.axes:
            marks.start_at_zero_with(axes, [floor.seconds * scale for _, floor, _ in rows], steps)
            axes.set_xlabel(f"time of a step ({unit})")
    if parts:
        for axes, names in zip(parts[-1].axes, (PHASES, tuple(FAMILIES)), strict=True):
            _legend(axes, names)
    return figure


def phases_of(floor: Floor) -> dict[str, float]:
    """Return the floor of each phase in seconds."""
    named = {phase: floor.of_phase(phase) for phase in PHASES[:-1]}
    return named | {PHASES[-1]: max(floor.seconds - sum(named.values()), 0.0)}


def families_of(floor: Floor) -> dict[str, float]:
    """Return the floor of each family in seconds."""
    return {name: sum(part.seconds for part in floor.parts if part.family == name) for name in FAMILIES}


def _bar(axes: Axes, y: float, parts: Mapping[str, float], scale: float, step: Estimate | None) -> None:
    """Draw the floor as a bar and the measured time as a mark: two kinds of value, two kinds of sign."""
    marks.stack(axes, y, {name: seconds * scale for name, seconds in parts.items()}, height=0.6)
    if step is not None:
        marks.interval(axes, y, step.scaled(scale), colour=style.INK)


def _ratio(floor: Floor, step: Estimate | None, scale: float, unit: str) -> str:
    if step is None:
        return f"{style.number(floor.seconds * scale)} {unit}"
    return f"{style.number(step.value / floor.seconds)}x floor"


def _legend(axes: Axes, names: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    mark = Line2D([], [], linestyle="none", marker="D", color=style.INK, markersize=3.6, label="measured step")
    marks.column_legend(axes, [*marks.area_handles([f"{name} ({MODELLED})" for name in names]), mark])
