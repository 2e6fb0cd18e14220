"""Hierarchical roofline: work per byte at each level of the memory, against what the device can do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpustudy.analysis import panels, quantities, series, style
from gpustudy.analysis.families import FAMILIES
from gpustudy.analysis.floor import device_peaks, dram_ceiling

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset, Group

SECTOR_BYTES = 32
"""Bytes of a sector of L1 and L2, the unit in which their traffic is counted."""

LEVELS = {"L1": "o", "L2": "^", "DRAM": "s"}
"""Level of the memory -> marker."""

_FAMILIES = ("convolution", "matrix product, attention", "normalisation", "elementwise, reduction", "layout, padding")
"""Families that are drawn; the rest does next to no arithmetic."""

_LINES = dict(zip(LEVELS, style.LINES, strict=False))
"""Level of the memory -> line of its bandwidth."""

_PANEL_IN = 1.55
_LEGEND_IN = 0.42
_MARGIN = 2.0
_NS_PER_S = 1e9
_TERA = 1e12


@dataclass(frozen=True)
class Point:
    """Work of one family: operations per second, and operations per byte at each level that has traffic."""

    family: str
    flops_per_s: float
    intensity: Mapping[str, float]


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``roofline``."""
    from matplotlib.figure import Figure

    found = {
        (gpu, group.config): points
        for gpu in dataset.gpus
        for group in dataset.groups(gpu)
        if (points := points_of(dataset, group))
    }
    shown = [gpu for gpu in dataset.gpus if any(key[0] == gpu for key in found)]
    configs = [name for name in dataset.configs if any(key[1] == name for key in found)]
    lines = panels.bare_lines(dataset, lambda group: group.word("counters") or series.NOT_COLLECTED, shown)
    heights = [_PANEL_IN for _ in shown] + ([panels.strip_height(lines)] if lines else [])
    figure = Figure(figsize=(style.TEXT_IN, sum(heights) + 0.35 + _LEGEND_IN), layout="constrained")
    panels.mark_crafted(figure, dataset)
    grid = figure.add_gridspec(len(heights), max(len(configs), 1), height_ratios=heights)
    for row, gpu in enumerate(shown):
        ceilings = ceilings_of(dataset, gpu)
        limits = _limits([point for key, points in found.items() if key[0] == gpu for point in points], ceilings)
        for column, config in enumerate(configs):
            axes = figure.add_subplot(grid[row, column])
            group = next((one for one in dataset.groups(gpu) if one.config == config), None)
            _panel(axes, group, found.get((gpu, config)), ceilings, limits)
            axes.set_title(f"{gpu} {config}", fontsize=6.5)
            axes.set_xlabel("FLOP/B" if row == len(shown) - 1 else "")
            axes.set_ylabel("TFLOP/s" if column == 0 else "")
            axes.tick_params(labelleft=column == 0)
            if column == len(configs) - 1:
                _name_roofs(axes, ceilings)
    if lines:
        panels.draw_lines(figure.add_subplot(grid[-1, :]), lines)
    if shown:
        _legend(figure)
    return figure


def points_of(dataset: Dataset, group: Group) -> list[Point]:
    """Return the families of a group that did arithmetic, from totals of a step over the repeats."""
    return [point for family in _FAMILIES if (point := _point(dataset, group, family)) is not None]


def _point(dataset: Dataset, group: Group, family: str) -> Point | None:
    def total(quantity: str) -> float:
        return sum(quantities.values_by_repeat(dataset, group, quantity, kernel_class=FAMILIES[family]).values())

    seconds = total("duration_ns") / _NS_PER_S
    flops = float_operations({name: total(name) for name in OPERATIONS})
    moved = {
        "L1": SECTOR_BYTES * (total("l1_sector_hits") + total("l1_sector_misses")),
        "L2": SECTOR_BYTES * total("l2_sectors"),
        "DRAM": total("dram_bytes"),
    }
    if seconds <= 0 or flops <= 0 or not any(moved.values()):
        return None
    return Point(family, flops / seconds, {level: flops / count for level, count in moved.items() if count > 0})


OPERATIONS = (
    "thread_instructions_fp32",
    "opcode_fp32_fused",
    "opcode_fp32_unfused",
    "tf32_operations",
    "fp16_operations",
    "bf16_operations",
)
"""Quantities that operations are counted from."""


def float_operations(totals: Mapping[str, float]) -> float:
    """Return the floating-point operations behind these counters.

    A thread's FP32 instruction is one operation, a fused one two: the share of fused ones is that among the opcodes.
    Tensor operations are counted as such by the hardware, two for a multiply-add.
    """
    fused, unfused = totals["opcode_fp32_fused"], totals["opcode_fp32_unfused"]
    fused_share = fused / (fused + unfused) if fused + unfused > 0 else 0.0
    plain = totals["thread_instructions_fp32"] * (1 + fused_share)
    return plain + totals["tf32_operations"] + totals["fp16_operations"] + totals["bf16_operations"]


@dataclass(frozen=True)
class Ceilings:
    """Peaks of a device: operations per second by precision, bytes per second by level of the memory."""

    flops: Mapping[str, float]
    bytes: Mapping[str, float]
    is_dram_cited: bool


def ceilings_of(dataset: Dataset, gpu: str) -> Ceilings:
    """Return the ceilings that are known: cited ones, and the memory's bandwidth from counters where none is cited."""
    peaks = device_peaks(dataset, gpu)
    memory = dram_ceiling(dataset, gpu, peaks)
    rates = {"FP32": peaks.fp32, "TF32": peaks.tf32, "FP16": peaks.fp16} if peaks else {}
    moved = {"L1": peaks.l1_bytes, "L2": peaks.l2_bytes} if peaks else {}
    bandwidths = {name: rate for name, rate in moved.items() if rate is not None}
    if memory is not None:
        bandwidths["DRAM"] = memory.rate
    flops = {name: rate for name, rate in rates.items() if rate is not None}
    return Ceilings(flops, bandwidths, memory is None or memory.is_cited)


def _limits(points: list[Point], ceilings: Ceilings) -> tuple[float, float, float, float]:
    """Return the ends of both axes: all points, the highest ceiling, and the ridge of DRAM."""
    across = [value for point in points for value in point.intensity.values()]
    up = [point.flops_per_s for point in points] + list(ceilings.flops.values())
    if ceilings.flops and "DRAM" in ceilings.bytes:
        across.append(ceilings.flops.get("FP32", max(ceilings.flops.values())) / ceilings.bytes["DRAM"])
    return min(across) / _MARGIN, max(across) * _MARGIN * 2, min(up) / _MARGIN, max(up) * _MARGIN


def _panel(
    axes: Axes,
    group: Group | None,
    points: list[Point] | None,
    ceilings: Ceilings,
    limits: tuple[float, float, float, float],
) -> None:
    """Draw one gpu and config: ceilings, then a mark for each family and level."""
    left, right, low, high = limits
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_xlim(left, right)
    axes.set_ylim(low / _TERA, high / _TERA)
    if not points:
        word = "not in the study" if group is None else group.word("counters") or series.NOT_COLLECTED
        axes.set_facecolor(style.STRIP)
        axes.text(0.5, 0.5, word, transform=axes.transAxes, ha="center", va="center", fontsize=6, style="italic")
        return
    _roofs(axes, ceilings, limits)
    if group is not None and group.label != group.config:
        mark = group.label.removeprefix(group.config).strip(" ()")
        axes.text(0.97, 0.04, mark, transform=axes.transAxes, ha="right", va="bottom", fontsize=5.5, style="italic")
    for point in points:
        for level, intensity in point.intensity.items():
            axes.plot(
                [intensity],
                [point.flops_per_s / _TERA],
                LEVELS[level],
                color=_colour(point.family),
                markersize=3.4,
                markeredgecolor=style.INK,
                mew=0.3,
            )


def _roofs(axes: Axes, ceilings: Ceilings, limits: tuple[float, float, float, float]) -> None:
    """Draw the ceilings: slopes up to the highest flat one, flats from where the fastest level ends."""
    left, right, low, _ = limits
    highest = max(ceilings.flops.values(), default=math.inf)
    for name, rate in ceilings.bytes.items():
        end = min(highest / rate, right)
        start = max(low / rate, left)
        if end > start:
            ends = [start * rate / _TERA, end * rate / _TERA]
            axes.plot([start, end], ends, color=style.QUIET, linewidth=0.7, linestyle=_LINES[name])
    fastest = max(ceilings.bytes.values(), default=math.inf)
    for rate in ceilings.flops.values():
        axes.plot([max(rate / fastest, left), right], [rate / _TERA] * 2, color=style.QUIET, linewidth=0.7)


def _name_roofs(axes: Axes, ceilings: Ceilings) -> None:
    """Write the names of the flat ceilings at the right of the last panel of a row."""
    for name, rate in ceilings.flops.items():
        across = axes.get_yaxis_transform()
        axes.text(1.03, rate / _TERA, name, transform=across, ha="left", va="center", fontsize=5.5, color=style.QUIET)


def _legend(figure: Figure) -> None:
    from matplotlib.lines import Line2D

    families = [
        Line2D([], [], ls="none", marker="o", color=_colour(name), markersize=4, label=name) for name in _FAMILIES
    ]
    hollow: dict[str, Any] = {"ls": "none", "color": "white", "markeredgecolor": style.INK, "mew": 0.5, "markersize": 4}
    levels = [Line2D([], [], marker=mark, label=f"per byte of {name}", **hollow) for name, mark in LEVELS.items()]
    slopes = [
        Line2D([], [], color=style.QUIET, lw=0.7, ls=line, label=f"{name} bandwidth") for name, line in _LINES.items()
    ]
    gap = [Line2D([], [], ls="none", label=" ")]  # families take two columns of three
    figure.legend(
        handles=[*families, *gap, *levels, *slopes],
        loc="outside lower center",
        ncols=4,
        fontsize=6,
        columnspacing=1.2,
    )


def _colour(family: str) -> str:
    return style.COLOURS[list(FAMILIES).index(family)]
