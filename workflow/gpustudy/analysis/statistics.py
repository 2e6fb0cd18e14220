"""Estimates with intervals, ratios to a baseline, and verdicts.

The unit of replication is the repeat: a process of its own, with a seed of its own. Steps within a run share its
start (memory layout, algorithm choice, clocks) and follow each other, so their number narrows what is known about
that run, never about the config. A run is therefore summed up by the median of its steps, which one slow step cannot
move, and configs are compared over repeats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
"""Confidence level of every interval."""

NOISE_FLOOR = 0.02
"""Relative difference of step times that is taken as none; a choice, stated in every figure that uses it.
Clocks and neighbours move step times of equal runs by about a per cent on machines that are not locked."""

T_INTERVAL = "95% t over repeats"
LOG_T_INTERVAL = "95% t of logarithms over repeats"
PAIRED_T_INTERVAL = "95% t of log ratios, paired by repeat"
BOOTSTRAP_INTERVAL = "95% bootstrap over steps of one repeat"

BOOTSTRAP_DRAWS = 2000
"""Resamples of a bootstrap: its interval's ends then move by a few per cent of its width from seed to seed."""

_BOOTSTRAP_SEED = 20260101
"""Fixed, so that equal data give equal bytes."""

FASTER, SLOWER, SAME, AMBIGUOUS = "FASTER", "SLOWER", "SAME", "AMBIGUOUS"
MORE, LESS = "MORE", "LESS"
"""Verdicts on ratios of quantities that are no times."""


@dataclass(frozen=True)
class Estimate:
    """A value with its interval.

    Attributes:
        value: the estimate, in the unit of the data.
        low: lower end of the interval; None when there is none.
        high: upper end of the interval; None when there is none.
        n: number of repeats (or of pairs of repeats) behind the value.
        interval: name of the interval's method; None when there is none.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    interval: str | None

    @property
    def over_repeats(self) -> bool:
        """Whether the interval speaks of other repeats, and not of one run alone."""
        return self.n > 1 and self.low is not None

    def scaled(self, factor: float) -> Estimate:
        """Return the same in another unit: value and interval times a positive ``factor``."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return Estimate(self.value * factor, low, high, self.n, self.interval)


def mean_over_repeats(values: Sequence[float]) -> Estimate:
    """Return the mean of one value per repeat, with the t interval of the mean.

    Student's t with n - 1 degrees of freedom: for three repeats the factor is 4.30 and not 1.96. One repeat has
    no interval.

    Raises:
        ValueError: no values.
    """
    count = len(values)
    if not count:
        raise ValueError("an estimate needs at least one repeat")
    mean = math.fsum(values) / count
    if count == 1:
        return Estimate(mean, None, None, 1, None)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = _t_quantile(count - 1) * math.sqrt(variance / count)
    return Estimate(mean, mean - half, mean + half, count, T_INTERVAL)


def positive_mean_over_repeats(values: Sequence[float]) -> Estimate:
    """Return the geometric mean of one positive value per repeat, with the t interval of the logarithms.

    Raises:
        ValueError: no values, or one that is not positive.
    """
    return _exponentiated(mean_over_repeats([math.log(value) for value in values]), LOG_T_INTERVAL)


def summarise_steps(steps_by_repeat: Mapping[int, Sequence[float]]) -> Estimate:
    """Return the geometric mean over repeats of the median over steps.

    Times are positive and their noise multiplies, so the t interval is that of the logarithms (``LOG_T_INTERVAL``):
    it cannot reach below zero. With one repeat the interval is ``BOOTSTRAP_INTERVAL``, which says nothing about
    other runs.
    """
    medians = [median(steps) for steps in steps_by_repeat.values()]
    if len(medians) != 1:
        return positive_mean_over_repeats(medians)
    (steps,) = steps_by_repeat.values()
    if len(steps) == 1:
        return mean_over_repeats(medians)
    low, high = bootstrap_median(steps)
    return Estimate(medians[0], low, high, 1, BOOTSTRAP_INTERVAL)


def median(values: Sequence[float]) -> float:
    """Return the median of ``values``."""
    return float(np.median(np.asarray(values, dtype=np.float64)))


def bootstrap_median(values: Sequence[float]) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the median (Efron & Tibshirani 1993, chapter 13), seed fixed."""
    data: NDArray[np.float64] = np.asarray(values, dtype=np.float64)  # (n,)
    generator = np.random.default_rng(_BOOTSTRAP_SEED)
    draws = data[generator.integers(0, len(data), size=(BOOTSTRAP_DRAWS, len(data)))]  # (draws, n)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(np.median(draws, axis=1), [tail, 1 - tail])
    return float(low), float(high)


def speedup(baseline: Mapping[int, float], config: Mapping[int, float]) -> Estimate | None:
    """Return baseline / config of one time per repeat: the geometric mean of the pairs with equal repeat.

    Returns:
        The estimate, above 1 where ``config`` takes less time; None when no repeat has both.
    """
    return ratio_over_repeats(baseline, config)


def ratio_over_repeats(numerator: Mapping[int, float], denominator: Mapping[int, float]) -> Estimate | None:
    """Return numerator / denominator of one positive value per repeat: the geometric mean of the pairs.

    Pairing takes out what a repeat's seed does to both. The interval is that of the mean log ratio, exponentiated,
    so that a / b and b / a give reciprocal answers.

    Returns:
        None when no repeat has both, or where a value is not positive: it has no logarithm.
    """
    pairs = sorted(set(numerator) & set(denominator))
    if not pairs or min(min(numerator[repeat], denominator[repeat]) for repeat in pairs) <= 0:
        return None
    logs = mean_over_repeats([math.log(numerator[repeat] / denominator[repeat]) for repeat in pairs])
    return _exponentiated(logs, PAIRED_T_INTERVAL)


def _exponentiated(logs: Estimate, interval: str) -> Estimate:
    """Return an estimate of logarithms as one of the values themselves."""
    value = math.exp(logs.value)
    if logs.low is None or logs.high is None:
        return Estimate(value, None, None, logs.n, None)
    return Estimate(value, math.exp(logs.low), math.exp(logs.high), logs.n, interval)


def verdict(ratio: Estimate, noise_floor: float = NOISE_FLOOR) -> str:
    """Say what a speed-up shows: FASTER, SLOWER or SAME, or AMBIGUOUS where its interval leaves it open.

    FASTER: the whole interval lies above 1 + floor. SLOWER: below 1 / (1 + floor). SAME: inside the two.
    One pair of repeats is always AMBIGUOUS.
    """
    if ratio.low is None or ratio.high is None:
        return AMBIGUOUS
    upper = 1 + noise_floor
    if ratio.low > upper:
        return FASTER
    if ratio.high < 1 / upper:
        return SLOWER
    return SAME if ratio.low >= 1 / upper and ratio.high <= upper else AMBIGUOUS


def change(ratio: Estimate, noise_floor: float = NOISE_FLOOR) -> str:
    """Say what a ratio to baseline shows: MORE, LESS, SAME or AMBIGUOUS, by the rule of ``verdict``."""
    return {FASTER: MORE, SLOWER: LESS}.get(found := verdict(ratio, noise_floor), found)


def _t_quantile(freedom: int) -> float:
    """Return the two-sided ``LEVEL`` quantile of Student's t."""
    from scipy.special import stdtrit  # scipy.stats has it too, but takes a second to load

    return float(stdtrit(freedom, (1 + LEVEL) / 2))
