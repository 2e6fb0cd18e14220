"""Chooses which launches of a step to profile: a few of each stratum, weighted by how many there are.

A training step repeats its launches exactly, so launches of the same kernel with the same grid, block and shared
memory do the same work: the strata of Sieve's first tier (Naderan-Tahan et al., ISPASS 2023), whose representative is
the first launch. How many to take follows the spread of their times in the census, by the sample size of STEM
(MICRO 2025): ``m = ceil((z / e * sigma / mu)^2)`` keeps the relative error of a stratum's mean below ``e``.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from gpustudy.base.kernel_names import function_name
from gpustudy.cell.ncu_census import Census, CensusLaunch

Z_95 = 1.96
"""Two-sided 95 % quantile of the normal distribution."""
TARGET_RELATIVE_ERROR = 0.05
"""Relative error of a stratum's mean time to stay below: STEM's epsilon."""


@dataclass(frozen=True)
class Stratum:
    """Launches that do the same work.

    Attributes:
        name: demangled name of the kernel, as the census trace has it.
        function: its function name alone, as ncu has it too (demanglers spell template arguments differently).
        grid: blocks in x, y, z.
        block: threads in x, y, z.
        shared_memory_bytes: per block, static and dynamic.
        launches_per_step: how many a step makes: the count that weights stand for.
        phases: launches per step in each phase.
        mean_ns: mean duration in the census.
        spread: standard deviation of the durations over their mean.
        planned: how many to profile per step.
        weight: launches of a step that each profiled one stands for, when exactly ``planned`` are profiled.
    """

    name: str
    function: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_memory_bytes: int
    launches_per_step: float
    phases: dict[str, float]
    mean_ns: float
    spread: float
    planned: int
    weight: float


@dataclass(frozen=True)
class SamplingPlan:
    """What to profile in each step.

    Attributes:
        strata: every stratum of the census, by falling total time.
        quotas: operator name to the number of calls of each signature whose launches are profiled; None to
            profile every launch.
        fallback: the quota of an operator that the census does not know.
    """

    strata: tuple[Stratum, ...]
    quotas: dict[str, int] | None
    fallback: int

    @property
    def planned_launches(self) -> float:
        """Launches to profile per step; the operators' quotas may lead to a few more."""
        if self.quotas is None:
            return sum(stratum.launches_per_step for stratum in self.strata)
        return sum(stratum.planned for stratum in self.strata)

    def as_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return asdict(self) | {"planned_launches": self.planned_launches}


def sample_size(durations_ns: Iterable[float], most: int) -> int:
    """Return how many of a stratum's launches to profile: 1 for equal times, up to ``most`` and to how many exist.

    Formula: STEM's for a single group, with ``z`` of ``Z_95`` and error ``TARGET_RELATIVE_ERROR``.
    """
    values = list(durations_ns)
    needed = math.ceil((Z_95 / TARGET_RELATIVE_ERROR * spread(values)) ** 2)
    return max(1, min(needed, most, len(values)))


def spread(values: list[float]) -> float:
    """Return the population standard deviation over the mean; 0 for a mean of 0."""
    mean = statistics.fmean(values)
    return statistics.pstdev(values) / mean if mean else 0.0


def plan_sampling(census: Census, launches_per_stratum: int | None) -> SamplingPlan:
    """Choose the launches to profile.

    Args:
        census: the launches of some steps.
        launches_per_stratum: most launches of one stratum per step, or None for every launch.

    Returns:
        The plan. A stratum's ``planned`` and its operators' quotas are the smallest numbers that give each stratum
        its sample size.
    """
    groups: dict[tuple[Any, ...], list[CensusLaunch]] = defaultdict(list)
    for launch in census.launches:
        groups[launch.name, launch.grid, launch.block, launch.shared_memory_bytes].append(launch)
    strata = []
    quotas: dict[str, int] = {}
    for launches in groups.values():
        stratum = _stratum(launches, census.steps, launches_per_stratum)
        strata.append(stratum)
        for operator in {name for launch in launches for name in launch.operators}:
            quotas[operator] = max(quotas.get(operator, 1), stratum.planned)
    strata.sort(key=lambda s: (-s.mean_ns * s.launches_per_step, s.name, s.grid, s.block))
    if launches_per_stratum is None:
        return SamplingPlan(tuple(strata), None, 0)
    return SamplingPlan(tuple(strata), dict(sorted(quotas.items())), launches_per_stratum)


def _stratum(launches: list[CensusLaunch], steps: int, most: int | None) -> Stratum:
    first = launches[0]
    durations = [float(launch.duration_ns) for launch in launches]
    per_step = len(launches) / steps
    within_step = max(1, round(per_step))
    planned = within_step if most is None else min(sample_size(durations, most), within_step)
    phases: dict[str, float] = defaultdict(float)
    for launch in launches:
        phases[launch.phase] += 1 / steps
    return Stratum(
        name=first.name,
        function=function_name(first.name),
        grid=first.grid,
        block=first.block,
        shared_memory_bytes=first.shared_memory_bytes,
        launches_per_step=per_step,
        phases={phase: round(count, 6) for phase, count in sorted(phases.items())},
        mean_ns=statistics.fmean(durations),
        spread=spread(durations),
        planned=planned,
        weight=per_step / planned,
    )
