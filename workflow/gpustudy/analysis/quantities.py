"""Any quantity of the table ``cells`` for a group of cells: its value with interval, and its ratio to baseline.

Every counter quantity comes in several scopes (``SCOPES``), which answer different questions and are never mixed: the
total of a step, one launch, the first launches of a run. A percentage of several classes together is made anew from
its numerators and denominators, never by averaging percentages.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from gpustudy.analysis.cellrows import CellValue
from gpustudy.analysis.groups import baseline_of
from gpustudy.analysis.statistics import Estimate, mean_over_repeats, positive_mean_over_repeats, ratio_over_repeats

if TYPE_CHECKING:
    from gpustudy.analysis.dataset import Dataset, Group

TOTAL = "total"
"""All launches of a step; ratios are sums of numerators over sums of denominators."""

LAUNCH_MEDIAN, LAUNCH_MEAN = "launch_median", "launch_mean"
"""The middle and the average launch of a step."""

FIRST_N = "first_n"
"""Totals of the first launches of a run alone, as ``ncu --launch-count`` gives them."""

STEP = "step"
"""Scope of census quantities: mean over the profiled steps."""

SCOPES = (TOTAL, LAUNCH_MEAN, LAUNCH_MEDIAN, FIRST_N)
"""Scopes of a counter quantity."""

NO_CACHE_CONTROL = "_cache_none"
"""Follows a scope's name where caches were left as they were instead of flushed before each pass."""

CYCLES = "sm_active_cycles"
_STALLS = (
    "barrier", "branch_resolving", "dispatch_stall", "drain", "imc_miss", "lg_throttle", "long_scoreboard",
    "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "not_selected", "selected",
    "short_scoreboard", "sleeping", "tex_throttle", "wait", "gmma",
)  # fmt: skip

STALLS: Mapping[str, str] = {f"stall_{reason}": f"stall_{reason}_cycles" for reason in _STALLS}
"""Stall reason per issue -> the same in warp cycles."""

RATIO_OVER: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "tensor_pipe_pct", "tensor_pipe_fp_pct", "tensor_pipe_mma_only_pct", "tensor_pipe_int_pct",
            "tensor_pipe_fp64_pct", "tma_pct", "fma_pipe_pct", "alu_pipe_pct", "fp64_pipe_pct", "fp16_pipe_pct",
            "lsu_pipe_pct", "xu_pipe_pct", "cbu_pipe_pct", "ipc", "ipc_issued", "issued_pct",
            "instruction_throughput_pct", "achieved_occupancy_pct", "theoretical_occupancy_pct",
        ),
        CYCLES,
    ),
    **dict.fromkeys(("tensor_pipe_fp_elapsed_pct", "ipc_elapsed", "sm_throughput_pct"), "elapsed_cycles"),
    **dict.fromkeys(
        (
            "dram_throughput_pct", "l2_throughput_pct", "memory_throughput_pct", "l1_throughput_elapsed_pct",
            "dram_bytes_per_s", "sm_frequency_hz",
        ),
        "duration_ns",
    ),
    **dict.fromkeys(("issue_active", "eligible_warps", "active_warps"), "smsp_active_cycles"),
    **dict.fromkeys(("threads_per_instruction", "mma_share_pct", "warp_latency_cycles"), "warp_instructions"),
    "l1_throughput_pct": "l1_active_cycles",
    "branch_uniformity_pct": "warp_instructions_branch",
}  # fmt: skip
"""Ratio -> the sum that its denominators make: with it, classes can be put together. The metric catalogue's own."""

HIT_RATES: Mapping[str, tuple[str, str]] = {
    "l1_hit_pct": ("l1_sector_hits", "l1_sector_misses"),
    "l2_hit_pct": ("l2_sector_hits", "l2_sector_misses"),
}
"""Hit rate -> hits and misses that it is made of."""

_ADDITIVE = ("class_time_ns", "class_launches", "phase_flops")
"""Census quantities that add up over classes and phases; a row is of one class and phase."""

Classes = str | Collection[str] | None
"""One kernel class, several together, or None for all launches."""


def value(
    dataset: Dataset,
    group: Group,
    quantity: str,
    scope: str = TOTAL,
    kernel_class: Classes = None,
    phase: str | None = None,
) -> Estimate | None:
    """Return ``quantity`` of ``group`` over its repeats.

    Args:
        dataset: where to look.
        group: one gpu and config.
        quantity: name in the table ``cells``, such as ``sm_active_cycles``.
        scope: one of ``SCOPES``, also with ``NO_CACHE_CONTROL``; ``step`` for what the census gives.
        kernel_class: one class or several; several only where the quantity adds up or its denominators are known.
        phase: phase of the step, where the quantity has one.

    Returns:
        Where all repeats are positive and the quantity adds up, the geometric mean with the t interval of the
        logarithms; else the mean with its t interval. One repeat keeps the interval that its row carries, if any.
        None where no repeat has it. In the unit of the table.
    """
    rows = by_repeat(dataset, group, quantity, scope, kernel_class, phase)
    if not rows:
        return None
    if len(rows) == 1:
        (row,) = rows.values()
        return Estimate(row.value, row.low, row.high, 1, row.interval if row.low is not None else None)
    values = [row.value for row in rows.values()]
    if min(values) > 0 and not is_ratio(quantity):
        return positive_mean_over_repeats(values)
    return mean_over_repeats(values)


def ratio_to_baseline(
    dataset: Dataset,
    group: Group,
    quantity: str,
    scope: str = TOTAL,
    kernel_class: Classes = None,
    phase: str | None = None,
) -> Estimate | None:
    """Return ``quantity`` of ``group`` over that of baseline on the same gpu, paired by repeat.

    Above 1: the config has more. The geometric mean of the pairs with the t interval of the log ratios; without an
    interval for a single pair. None where no repeat has both, or one of them is not positive.
    """
    own = values_by_repeat(dataset, group, quantity, scope, kernel_class, phase)
    base = values_by_repeat(dataset, baseline_of(dataset, group.gpu), quantity, scope, kernel_class, phase)
    return ratio_over_repeats(own, base)


def share(
    dataset: Dataset,
    group: Group,
    quantity: str,
    kernel_class: str | Collection[str],
    scope: str = TOTAL,
    phase: str | None = None,
) -> Estimate | None:
    """Return what part of ``quantity`` the classes make, from 0 to 1: mean over repeats with its t interval.

    A class without rows has no part (0). None where no repeat has a total.
    """
    whole = values_by_repeat(dataset, group, quantity, scope, None, phase)
    part = values_by_repeat(dataset, group, quantity, scope, kernel_class, phase)
    shares = [part.get(repeat, 0.0) / total for repeat, total in whole.items() if total > 0]
    return mean_over_repeats(shares) if shares else None


def values_by_repeat(
    dataset: Dataset,
    group: Group,
    quantity: str,
    scope: str = TOTAL,
    kernel_class: Classes = None,
    phase: str | None = None,
) -> dict[int, float]:
    """Return the value of each repeat that has one."""
    found = by_repeat(dataset, group, quantity, scope, kernel_class, phase)
    return {repeat: row.value for repeat, row in found.items()}


def by_repeat(
    dataset: Dataset, group: Group, quantity: str, scope: str, kernel_class: Classes, phase: str | None
) -> dict[int, CellValue]:
    """Return the value of each cell with its own interval: looked up, added up, or made anew from totals."""
    if kernel_class is None or isinstance(kernel_class, str):
        found = dataset.cell_rows.rows(group, quantity, scope, kernel_class, phase)
        return found or _added(dataset, group, quantity, scope, kernel_class, phase)
    names = tuple(dict.fromkeys(kernel_class))
    if scope.startswith((LAUNCH_MEDIAN, LAUNCH_MEAN)):
        return {}  # the middle of all launches does not follow from those of the classes
    if quantity in HIT_RATES:
        hits, misses = (_summed(dataset, group, part, scope, names, phase) for part in HIT_RATES[quantity])
        return _quotients(hits, {repeat: hits[repeat] + misses.get(repeat, 0.0) for repeat in hits}, 100.0)
    if quantity in STALLS:
        return _stall_of_classes(dataset, group, quantity, scope, names, phase)
    if quantity in RATIO_OVER:
        return _pooled(dataset, group, quantity, scope, names, phase)
    if is_ratio(quantity):
        return {}
    return _plain(_summed(dataset, group, quantity, scope, names, phase))


def origins(dataset: Dataset, group: Group, quantity: str, scope: str = TOTAL) -> frozenset[str]:
    """Return the origins of the rows behind a quantity: ``measured``, ``modelled``, ``crafted``."""
    return dataset.cell_rows.origins(group, quantity, scope)


def is_ratio(quantity: str) -> bool:
    """Say whether a quantity is a ratio of totals, so that it neither adds up nor takes a geometric mean."""
    ratios = quantity in RATIO_OVER or quantity in HIT_RATES or quantity in STALLS
    return ratios or quantity.endswith(("_pct", "_share"))


def _added(
    dataset: Dataset, group: Group, quantity: str, scope: str, kernel_class: str | None, phase: str | None
) -> dict[int, CellValue]:
    """Add up an additive quantity over the classes and phases that are not asked for."""
    if quantity not in _ADDITIVE:
        return {}
    totals: dict[int, float] = {}
    for repeat, name, of_phase, amount in dataset.cell_rows.parts(group, quantity, scope):
        if kernel_class in (None, name) and phase in (None, of_phase):
            totals[repeat] = totals.get(repeat, 0.0) + amount
    return _plain(totals)


def _plain(values: Mapping[int, float]) -> dict[int, CellValue]:
    return {repeat: CellValue(amount) for repeat, amount in values.items()}


def _summed(
    dataset: Dataset, group: Group, quantity: str, scope: str, names: Iterable[str], phase: str | None
) -> dict[int, float]:
    totals: dict[int, list[float]] = {}
    for name in names:
        for repeat, row in by_repeat(dataset, group, quantity, scope, name, phase).items():
            totals.setdefault(repeat, []).append(row.value)
    return {repeat: math.fsum(parts) for repeat, parts in totals.items()}


def _pooled(
    dataset: Dataset, group: Group, quantity: str, scope: str, names: Iterable[str], phase: str | None
) -> dict[int, CellValue]:
    """Put a ratio of several classes together: its numerators are value x denominator."""
    numerators: dict[int, float] = {}
    denominators: dict[int, float] = {}
    for name in names:
        weights = values_by_repeat(dataset, group, RATIO_OVER[quantity], scope, name, phase)
        for repeat, row in by_repeat(dataset, group, quantity, scope, name, phase).items():
            if repeat in weights:
                numerators[repeat] = numerators.get(repeat, 0.0) + row.value * weights[repeat]
                denominators[repeat] = denominators.get(repeat, 0.0) + weights[repeat]
    return _quotients(numerators, denominators, 1.0)


def _stall_of_classes(
    dataset: Dataset, group: Group, quantity: str, scope: str, names: Iterable[str], phase: str | None
) -> dict[int, CellValue]:
    """Put stalls per issue together: stalled cycles over issues, where issues are cycles over stalls per issue."""
    cycles: dict[int, float] = {}
    issues: dict[int, float] = {}
    for name in names:
        chosen = values_by_repeat(dataset, group, "stall_selected_cycles", scope, name, phase)  # one warp an issue
        stalled = values_by_repeat(dataset, group, STALLS[quantity], scope, name, phase)
        for repeat in chosen.keys() & stalled.keys():
            cycles[repeat] = cycles.get(repeat, 0.0) + stalled[repeat]
            issues[repeat] = issues.get(repeat, 0.0) + chosen[repeat]
    return _quotients(cycles, issues, 1.0)


def _quotients(
    numerators: Mapping[int, float], denominators: Mapping[int, float], scale: float
) -> dict[int, CellValue]:
    return {
        repeat: CellValue(scale * numerators[repeat] / denominators[repeat])
        for repeat in sorted(numerators)
        if denominators.get(repeat, 0.0) > 0
    }
