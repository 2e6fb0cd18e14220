"""The published formulas of ncu's guided analysis, for reports that were collected without its rules.

Source: the rule scripts that Nsight Compute 2024.1.1 ships as documentation of its rules. Other versions differ (the
issue-slot rule and its children changed in 2023.3.1), so results are marked as recomputed and compared with none.
The script of the access patterns takes a miss rate of exactly 0 for 1; here the levels below such a cache gain
nothing.

A GLOBAL estimate is the share of a launch's duration that would go; a LOCAL one the gain of a part looked at alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

WARP_THREADS = 32

_STALLS = (
    *("barrier", "branch_resolving", "dispatch_stall", "drain", "imc_miss", "lg_throttle", "long_scoreboard"),
    *("math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "short_scoreboard", "sleeping"),
    *("tex_throttle", "wait", "gmma"),
)
_PIPES = (
    "fma_pipe_pct",
    "alu_pipe_pct",
    "fp64_pipe_pct",
    "fp16_pipe_pct",
    "lsu_pipe_pct",
    "xu_pipe_pct",
    "tensor_pipe_pct",
)

_UNITS = {"sm": "SM", "smsp": "scheduler", "l1": "L1 slice", "l2": "L2 slice", "dram": "DRAM channel"}
_PRECISIONS = {"fp32": "fma_pipe_pct", "fp64": "fp64_pipe_pct"}
"""Floating-point format -> the pipe that runs it."""
_ACCESSES = {
    ("global", "load"): "read",
    ("global", "store"): "write",
    ("local", "load"): "read",
    ("local", "store"): "write",
}
"""Memory space and operation -> what L2 calls the operation."""

_LEAST = ("issue_active", "achieved_occupancy_pct")

# Thresholds of the rule scripts, as fractions or percent of what each rule looks at.
_ISSUE_SLOTS_LOW = 0.6
_ISSUE_SLOTS_STALLED = 0.8
_STALL_SHARE = 0.3
_OCCUPANCY_GAP_PCT = 10.0
_OCCUPANCY_LOW_PCT = 80.0
_PIPE_LOW_PCT = 20.0
_TAIL_SHARE = 0.2
_TAIL_OCCUPANCY = 0.8
_IMBALANCE_PCT = 5.0
_SLOW_PIPE_BUSY_PCT = 80.0
_SLOW_PIPE_ISSUED_PCT = 20.0
_SLOW_PIPE_GAP_PCT = 25.0
_UNFUSED_GAIN = 0.1
_FUSED_RATE = 2
"""Operations of a fused multiply-add for one of a multiplication or an addition."""


class Recomputed(NamedTuple):
    """One estimate: ``speedup`` in percent, ``kind`` global or local."""

    section: str
    rule: str
    message: str
    speedup: float
    kind: str


Values = Mapping[str, float]
"""Quantities of one launch by their catalogue names, without those it lacks; and ``grid_blocks``, ``block_threads``."""


def recompute(values: Values) -> list[Recomputed] | None:
    """Return what the formulas estimate for one launch; a formula that lacks a quantity says nothing.

    None where the launch has none of the quantities that most formulas start from: silence would read as no speed-up.
    """
    if not any(name in values for name in _LEAST):
        return None
    weight = _issue_weight(values)
    able = [formula for needs, formula in _FORMULAS if all(name in values for name in needs)]
    return [found for formula in able for found in formula(values, weight)]


def _issue_weight(values: Values) -> float | None:
    """Return what the issue-slot rule hands on to its children; None where it does not fire."""
    if "issue_active" not in values or values["issue_active"] >= _ISSUE_SLOTS_LOW:
        return None
    throughputs = [values[name] for name in ("sm_throughput_pct", "memory_throughput_pct") if name in values]
    return min(1 - values["issue_active"], 1 - max(throughputs) / 100) if throughputs else None


def _child(weight: float | None, fraction: float) -> tuple[float, str]:
    """Return estimate and kind of a child of the issue-slot rule: global where the parent fired."""
    return (100 * fraction, "local") if weight is None else (100 * min(weight, fraction), "global")


def _issue_slots(values: Values, weight: float | None) -> Iterator[Recomputed]:
    if weight is not None:
        message = f"schedulers issue in {100 * values['issue_active']:.1f} % of their cycles"
        yield Recomputed("SchedulerStats", "IssueSlotUtilization", message, 100 * weight, "local")


def _stalls(values: Values, weight: float | None) -> Iterator[Recomputed]:
    if values["issue_active"] >= _ISSUE_SLOTS_STALLED:
        return
    latency = values["warp_latency_cycles"]
    for stall in _STALLS:
        share = values.get(f"stall_{stall}", 0.0) / latency
        if share > _STALL_SHARE:
            message = f"{100 * share:.1f} % of the cycles between two issues are stall {stall}"
            yield Recomputed("WarpStateStats", "CPIStall", message, *_child(weight, share))


def _achieved_occupancy(values: Values, weight: float | None) -> Iterator[Recomputed]:
    theoretical, achieved = values["theoretical_occupancy_pct"], values["achieved_occupancy_pct"]
    if theoretical - achieved > _OCCUPANCY_GAP_PCT:
        message = f"occupancy is {achieved:.1f} % of a possible {theoretical:.1f} %"
        gap = (theoretical - achieved) / theoretical
        yield Recomputed("Occupancy", "AchievedOccupancy", message, *_child(weight, gap))


def _theoretical_occupancy(values: Values, weight: float | None) -> Iterator[Recomputed]:
    theoretical = values["theoretical_occupancy_pct"]
    if theoretical < _OCCUPANCY_LOW_PCT:
        message = f"the launch allows an occupancy of {theoretical:.1f} %"
        yield Recomputed("Occupancy", "TheoreticalOccupancy", message, *_child(weight, 1 - theoretical / 100))


def _pipes(values: Values, weight: float | None) -> Iterator[Recomputed]:
    busiest = max(values[pipe] for pipe in _PIPES if pipe in values)
    if busiest < _PIPE_LOW_PCT:
        message = f"the busiest pipe is in use for {busiest:.1f} % of the cycles"
        yield Recomputed("ComputeWorkloadAnalysis", "HighPipeUtilization", message, 100 - busiest, "local")


def _block_size(values: Values, weight: float | None) -> Iterator[Recomputed]:
    threads = values["block_threads"]
    rest = threads % WARP_THREADS
    if threads and rest:
        warps = -(-threads // WARP_THREADS)
        message = f"blocks of {threads:.0f} threads leave {WARP_THREADS - rest:.0f} of their last warp idle"
        gain = (1 / warps) * (1 - rest / WARP_THREADS)
        yield Recomputed("LaunchStats", "LaunchConfiguration", message, 100 * gain, "global")


def _grid_size(values: Values, weight: float | None) -> Iterator[Recomputed]:
    blocks, sms = values["grid_blocks"], values["sm_count"]
    if 0 < blocks < sms:
        message = f"a grid of {blocks:.0f} blocks leaves some of {sms:.0f} SMs idle"
        yield Recomputed("LaunchStats", "LaunchConfiguration", message, 100 * (sms - blocks) / sms, "global")


def _tail(values: Values, weight: float | None) -> Iterator[Recomputed]:
    whole, part = divmod(values["waves_per_sm"], 1)
    is_thin = values["achieved_occupancy_pct"] < _TAIL_OCCUPANCY * values["theoretical_occupancy_pct"]
    if whole >= 1 and part and 1 / (whole + 1) >= _TAIL_SHARE and is_thin:
        message = f"{whole:.0f} full waves are followed by a part of one"
        yield Recomputed("LaunchStats", "LaunchConfiguration", message, 100 / (whole + 1), "global")


def _imbalance(values: Values, weight: float | None, *, unit: str) -> Iterator[Recomputed]:
    mean, most = values[f"{unit}_active_cycles"], values[f"{unit}_active_cycles_max"]
    active, elapsed = values[f"{unit}_active_cycles_all"], values[f"{unit}_elapsed_cycles_all"]
    gain = 100 * (1 - mean / most) * active / elapsed if most and elapsed else 0.0
    if gain >= _IMBALANCE_PCT:
        message = f"the busiest {_UNITS[unit]} is active {most / mean:.2f} times as long as the mean"
        yield Recomputed("WorkloadDistribution", "WorkloadImbalance", message, gain, "global")


def _slow_pipe(values: Values, weight: float | None) -> Iterator[Recomputed]:
    mean, most = values["issued_pct"], values["issued_pct_max"]
    is_busy = values["instruction_throughput_pct"] >= _SLOW_PIPE_BUSY_PCT
    if is_busy and mean < _SLOW_PIPE_ISSUED_PCT and most - mean > _SLOW_PIPE_GAP_PCT:
        message = f"instructions take {mean:.1f} % of the issue slots, {most:.1f} % on the busiest SM: a slow pipe"
        gain = (most - mean) / most
        yield Recomputed(
            "ComputeWorkloadAnalysis", "SlowPipeLimiter", message, *_weighed(values, gain, "sm_throughput_pct")
        )


def _unfused(values: Values, weight: float | None, *, precision: str) -> Iterator[Recomputed]:
    fused, unfused = values[f"opcode_{precision}_fused"], values[f"opcode_{precision}_unfused"]
    gain = unfused / (fused + unfused) / _FUSED_RATE if fused + unfused else 0.0
    if gain > _UNFUSED_GAIN:
        message = f"{unfused:.0f} of {fused + unfused:.0f} {precision} instructions multiply or add alone"
        yield Recomputed("InstructionStats", "FPInstructions", message, *_weighed(values, gain, _PRECISIONS[precision]))


def _access_pattern(values: Values, weight: float | None, *, space: str, operation: str) -> Iterator[Recomputed]:
    """Estimate each level that the accesses reach, and tell the one that would gain most."""
    use = values[f"sector_use_{space}_{operation}_pct"]
    if not use:
        return
    lost = 1 - use / 100
    to_l2 = lost * (1 - values[f"l1_{space}_{operation}_hit_pct"] / 100)
    to_dram = to_l2 * (1 - values[f"l2_{_ACCESSES[space, operation]}_hit_pct"] / 100)
    levels = {
        "L1": _weighed(values, lost, "l1_throughput_elapsed_pct"),
        "L2": _weighed(values, to_l2, "l2_throughput_pct"),
        "DRAM": _weighed(values, to_dram, "dram_throughput_pct"),
    }
    level = max(levels, key=lambda name: levels[name][0])
    if levels[level][0] > 0:
        message = f"{space} {operation}s use {use:.1f} % of the bytes of their sectors; {level} would gain most"
        yield Recomputed("MemoryWorkloadAnalysis_Tables", "MemoryCacheAccessPattern", message, *levels[level])


def _weighed(values: Values, fraction: float, pct: str) -> tuple[float, str]:
    """Return estimate and kind: global, as the share of the time that the unit is in use for, where that is known."""
    return (fraction * values[pct], "global") if pct in values else (100 * fraction, "local")


_Formula = Callable[[Values, "float | None"], Iterator[Recomputed]]

_FORMULAS: tuple[tuple[tuple[str, ...], _Formula], ...] = (
    (("issue_active",), _issue_slots),
    (("issue_active", "warp_latency_cycles"), _stalls),
    (("theoretical_occupancy_pct", "achieved_occupancy_pct"), _achieved_occupancy),
    (("theoretical_occupancy_pct",), _theoretical_occupancy),
    (("fma_pipe_pct", "alu_pipe_pct"), _pipes),
    (("block_threads",), _block_size),
    (("grid_blocks", "sm_count"), _grid_size),
    (("waves_per_sm", "achieved_occupancy_pct", "theoretical_occupancy_pct"), _tail),
    *(
        (
            tuple(
                f"{unit}_{what}"
                for what in ("active_cycles", "active_cycles_max", "active_cycles_all", "elapsed_cycles_all")
            ),
            partial(_imbalance, unit=unit),
        )
        for unit in _UNITS
    ),
    (("instruction_throughput_pct", "issued_pct", "issued_pct_max"), _slow_pipe),
    *(
        ((f"opcode_{precision}_fused", f"opcode_{precision}_unfused"), partial(_unfused, precision=precision))
        for precision in _PRECISIONS
    ),
    *(
        (
            (
                *(f"sector_use_{space}_{operation}_pct", f"l1_{space}_{operation}_hit_pct", f"l2_{l2}_hit_pct"),
                *("l1_throughput_elapsed_pct", "l2_throughput_pct"),
            ),
            partial(_access_pattern, space=space, operation=operation),
        )
        for (space, operation), l2 in _ACCESSES.items()
    ),
)
"""What each formula needs, and the formula."""
