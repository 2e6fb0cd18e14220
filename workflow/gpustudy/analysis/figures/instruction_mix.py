"""What kinds of instructions a step executes: by thread and operation, and by warp and opcode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpustudy.analysis import marks, panels, quantities, series, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpustudy.analysis.dataset import Dataset, Group

OTHERS = "all others"

THREAD = {
    "FP32": "thread_instructions_fp32",
    "FP16": "thread_instructions_fp16",
    "FP64": "thread_instructions_fp64",
    "integer": "thread_instructions_integer",
    "load, store": "thread_instructions_memory",
    "control": "thread_instructions_control",
    "conversion": "thread_instructions_conversion",
}
"""Kind of thread-level instruction -> quantity; tensor instructions are among none of them but the others."""

OPCODE = {
    "MMA (tensor)": "opcode_mma",
    "FP32 (FFMA, FADD, FMUL)": "opcode_ffma",
    "FP16 (HFMA2, ...)": "opcode_hfma2",
    "integer (IMAD, IADD3, LEA)": "opcode_imad",
    "load, store": "opcode_load_store",
    "control": "opcode_control",
}
"""Kind of warp-level instruction -> quantity."""


def draw(dataset: Dataset) -> Figure:
    """Return the figure ``instruction_mix``."""
    figure, parts = panels.gpu_panels(
        dataset,
        "counters",
        series.has_counters(dataset),
        columns=2,
        width_in=style.TEXT_IN,
        legend_in=marks.COLUMN_LEGEND_IN,
    )
    for panel in parts:
        for axes, kinds, whole in (
            (panel.axes[0], THREAD, "thread_instructions"),
            (panel.axes[1], OPCODE, "warp_instructions"),
        ):
            for y, group in panel.rows():
                shares = mix_of(dataset, group, kinds, whole)
                if shares:
                    marks.stack(axes, y, shares, height=0.72)
                elif series.has_counters(dataset)(group):
                    marks.say(axes, y, series.NOT_COLLECTED)
            axes.set_xlim(0, 100)
    if parts:
        for axes, kinds, label in (
            (parts[-1].axes[0], THREAD, "thread instructions (%)"),
            (parts[-1].axes[1], OPCODE, "warp instructions (%)"),
        ):
            axes.set_xlabel(label)
            marks.column_legend(axes, marks.area_handles([*kinds, OTHERS]))
    return figure


def mix_of(dataset: Dataset, group: Group, kinds: Mapping[str, str], whole: str) -> dict[str, float]:
    """Return the share of each kind in percent of the total over all repeats, others last; empty without any."""
    totals = quantities.values_by_repeat(dataset, group, whole)
    counted = {name: quantities.values_by_repeat(dataset, group, quantity) for name, quantity in kinds.items()}
    repeats = [repeat for repeat in totals if any(repeat in own for own in counted.values())]
    everything = sum(totals[repeat] for repeat in repeats)
    if not everything:
        return {}
    shares = {name: 100 * sum(own.get(repeat, 0.0) for repeat in repeats) / everything for name, own in counted.items()}
    return shares | {OTHERS: max(100 - sum(shares.values()), 0.0)}
