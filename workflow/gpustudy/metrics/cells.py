"""Rows of the cells table: one quantity each, with what is known about its spread."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from statistics import median
from typing import Any, NamedTuple

from gpustudy.base.status import Status

Row = dict[str, Any]

MEASURED = "measured"
CRAFTED = "crafted"
"""Origin of everything made from raw files whose provenance calls them so: tests and examples, never a measurement."""
LEVEL = 0.95
"""Confidence level of every interval."""

ORDER_STATISTICS = "95% order statistics over steps of one repeat"


class Quantity(NamedTuple):
    """Unit and meaning of a quantity of the cells table."""

    unit: str
    meaning: str


QUANTITIES = {
    "outcome": Quantity("", "the stage is not done: state says why; no value"),
    "stage_s": Quantity("s", "wall time of the whole stage: start, warm-up, measuring, profiling"),
    # train
    "step_s": Quantity("s", "time of an optimiser step, no profiler attached"),
    "data_wait_s": Quantity("s", "part of a step spent waiting for the loader"),
    "data_wait_share": Quantity("", "waiting for the loader over all of the measured time"),
    "loss_first": Quantity("", "training loss of the first measured step"),
    "loss_last": Quantity("", "training loss of the last measured step"),
    "peak_memory_bytes": Quantity("B", "highest memory in use; scope: device_allocated or process_rss"),
    "memory_estimate_bytes": Quantity("B", "memory as estimated before the start"),
    # census
    "census_step_s": Quantity("s", "time of a step on the host with the profiler attached: longer than step_s"),
    "launches": Quantity("", "launches (on the CPU: operators and annotations) of a step"),
    "busy_share": Quantity("", "time of all launches on the device over the time of the step on the host"),
    "self_time_share": Quantity("", "self times of a CPU step over its duration: 1 when none is lost"),
    "unclassified_share": Quantity("", "share of the time in kernels of no known class"),
    "class_time_ns": Quantity("ns", "time of the launches of a class in a phase of a step"),
    "class_launches": Quantity("", "launches of a class in a phase of a step"),
    "flops": Quantity("FLOP", "operations of a step by the shapes of its operators"),
    "phase_flops": Quantity("FLOP", "the same, of one phase"),
    "flops_per_s": Quantity("FLOP/s", "operations over the time of the steps of the census (profiler attached)"),
    "flops_torch_counter": Quantity("FLOP", "operations of a step as torch's FlopCounterMode counts them"),
    "flops_relative_difference": Quantity("", "flops / flops_torch_counter - 1"),
    "layout_conversions": Quantity("", "operator calls that convert a volume's memory layout"),
    "layout_conversion_bytes": Quantity("B", "bytes that they write"),
    "channels_last_share": Quantity("", "share of the convolutions that got a channels-last volume"),
    # counters
    "profiled_launches": Quantity("", "launches that ncu profiled to the end"),
    "failed_launches": Quantity("", "launches that ncu recorded without running them: in no other quantity"),
    "coverage_pct": Quantity("%", "share of a step's kernel time whose strata were profiled"),
    "priority_score_ns": Quantity("ns", "sum of duration x largest global estimated speed-up of a launch's rules"),
    "priority_score_mean_ns": Quantity("ns", "the same, mean over launches"),
    "priority_score_share_pct": Quantity("%", "the same, of the duration of all launches"),
    # quality
    "ms_ssim_real": Quantity("", "multi-scale structural similarity of pairs of real volumes, mean"),
    "ms_ssim_generated": Quantity("", "the same of generated volumes: well above the real pairs' is mode collapse"),
    "mmd2_rbf": Quantity("", "squared maximum mean discrepancy of real and generated volumes, unbiased: can be < 0"),
    "mmd_p_value": Quantity("", "permutation p-value of mmd2_rbf: small when the sets differ"),
    "histogram_distance": Quantity("", "Wasserstein distance of the intensities in a tissue, range [-1, 1]"),
    "mask_fidelity": Quantity("", "Dice of the thresholded generated volume with its condition's foreground, mean"),
    "mask_fidelity_real": Quantity("", "the same of the real volumes: the most that the threshold allows"),
}
"""Every quantity that this room writes into the cells table, beside the catalogue's."""


class Interval(NamedTuple):
    """Ends of an interval and the name of its method; all None when the data allow none."""

    low: float | None = None
    high: float | None = None
    method: str | None = None


def cell_row(stage: str, quantity: str, value: float | None, scope: str = "total", **more: Any) -> Row:
    """Return one row of the cells table, of one of ``QUANTITIES``; ``more`` holds any other of its columns."""
    return {
        "stage": stage,
        "quantity": quantity,
        "scope": scope,
        "value": value,
        "unit": QUANTITIES[quantity].unit,
        "state": "done",
        "origin": MEASURED,
    } | more


def outcome_row(status: Status) -> Row:
    """Return the row of a stage that is not done: no value, its state with the reason."""
    state = f"{status.state}({status.reason})" if status.reason else status.state
    return cell_row(status.stage, "outcome", None, state=state)


def seconds_row(status: Status) -> Row:
    """Return the row of the wall time that a stage took, as its status file tells it."""
    return cell_row(status.stage, "stage_s", status.seconds)


def median_row(stage: str, quantity: str, values: Sequence[float], **more: Any) -> Row:
    """Return the row of the median of ``values`` with its interval."""
    interval = median_interval(values)
    spread = {"low": interval.low, "high": interval.high, "interval": interval.method, "n": len(values)}
    return cell_row(stage, quantity, median(values), "median", **spread, **more)


def median_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Return the narrowest symmetric pair of order statistics that holds the median with ``level`` at least.

    The number of values below the median is binomial(n, 1/2), whatever their distribution, so the interval from
    the k-th smallest to the k-th largest value holds it with probability 1 - 2 P(binomial <= k - 1). Under six
    values there is none at 95 %. (Conover, Practical Nonparametric Statistics, section 3.2.)
    """
    count, tail, kept = len(values), 0, 0
    for below in range(count // 2):
        tail += comb(count, below)
        if 1 - 2 * tail / 2**count < level:
            break
        kept = below + 1
    if not kept:
        return Interval()
    ordered = sorted(values)
    return Interval(ordered[kept - 1], ordered[-kept], ORDER_STATISTICS)
