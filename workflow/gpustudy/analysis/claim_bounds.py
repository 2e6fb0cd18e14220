"""Physical bounds of ratios to baseline, by the names that ``claims.yaml`` uses.

A bound says what the ratio of two *totals of equal work* cannot undercut. It says nothing of single launches or of a
window of the first ones, which need not do equal work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gpustudy.analysis import bounds, quantities
from gpustudy.analysis.groups import baseline_of
from gpustudy.study.peaks import peaks_of

if TYPE_CHECKING:
    from gpustudy.analysis.dataset import Dataset, Group
    from gpustudy.study.peaks import Peaks

_OPERATIONS_PER_MAC = 2


def bounded(scope: str) -> bool:
    """Whether the numbers of a scope are totals of equal work, so that a bound holds."""
    return scope.startswith(quantities.TOTAL)


def least_instructions(dataset: Dataset, group: Group) -> float | None:
    """Return the least ratio of warp instructions to baseline.

    Multiply-adds counted by shape over those of the largest instruction, over baseline's measured total. None where the
    census or baseline's counters are not there.
    """
    return bounds.least_measured_ratio(dataset, group)


def ideal_instructions(dataset: Dataset, group: Group) -> float | None:
    """Return the same for a baseline of nothing but float32 multiply-adds: what is known before anything is measured.

    A real baseline executes other instructions too and can be undercut by more, so that this judges no measurement.
    """
    architecture = bounds.architecture_of(dataset, group.gpu)
    if not architecture.startswith("sm_"):
        return None
    return bounds.least_ratio(architecture, bounds.precision_of_group(dataset, group))


def least_cycles(dataset: Dataset, group: Group) -> float | None:
    """Return the least ratio of SM cycles to baseline.

    The cycles that the counted operations take at the device's peak rate, over baseline's measured cycles. None where
    the census, baseline's counters or the device's peak rates are not known.
    """
    macs = bounds.macs_of_step(dataset, group) or bounds.macs_of_step(dataset, baseline_of(dataset, group.gpu))
    base = quantities.value(dataset, baseline_of(dataset, group.gpu), quantities.CYCLES, quantities.TOTAL)
    peaks = _peaks(dataset, group)
    if macs is None or base is None or base.value <= 0 or peaks is None:
        return None
    rate = getattr(peaks, bounds.precision_of_group(dataset, group)) or peaks.fp32
    if rate is None:
        return None
    return _OPERATIONS_PER_MAC * macs / rate * peaks.boost_hz / base.value


def _peaks(dataset: Dataset, group: Group) -> Peaks | None:
    gpu = dataset.survey.study.gpus.get(group.gpu)
    if gpu is None:
        return None
    names = (
        (manifest.get("provenance") or {}).get("device_name")
        for cell, _, manifest in dataset.manifests
        if cell.gpu == group.gpu
    )
    return peaks_of(gpu.architecture, next((str(name) for name in names if name), gpu.device_name))


BOUNDS: Mapping[str, Callable[[Dataset, Group], float | None]] = {
    "least_instructions": least_instructions,
    "least_cycles": least_cycles,
}
"""Bound -> function that gives the least ratio to baseline of a cell, or None where it is not known."""

IDEALS: Mapping[str, Callable[[Dataset, Group], float | None]] = {"least_instructions": ideal_instructions}
"""Bound -> the same of ideal work, told where nothing is measured yet."""
