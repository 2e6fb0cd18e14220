"""The published formulas of ncu's guided analysis, for reports that were collected without its rules.

Source: the rule scripts that Nsight Compute 2024.1.1 ships as documentation of its rules. Other versions differ (the
issue-slot rule and its children changed in 2023.3.1), so results are marked as recomputed and compared with none.

A GLOBAL estimate is the share of a launch's duration that would go; a LOCAL one the gain of a part looked at alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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


def _imbalance(values: Values, weight: float | None) -> Iterator[Recomputed]:
    mean, most = values["sm_active_cycles"], values["sm_active_cycles_max"]
    gain = (1 - mean / most) * 100 * mean / values["elapsed_cycles"] if most and values["elapsed_cycles"] else 0.0
    if gain >= _IMBALANCE_PCT:
        message = f"the busiest SM is active {most / mean:.2f} times as long as the mean"
        yield Recomputed("WorkloadDistribution", "WorkloadImbalance", message, gain, "global")


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
    (("sm_active_cycles", "sm_active_cycles_max", "elapsed_cycles"), _imbalance),
)
"""What each formula needs, and the formula."""
