"""Intervals against scipy and by hand; verdicts at their edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from scipy import stats

from gpustudy.analysis import statistics, style
from gpustudy.analysis.statistics import (
    Estimate,
    change,
    mean_over_repeats,
    ratio_over_repeats,
    speedup,
    summarise_steps,
    verdict,
)

TIMES = st.floats(1e-3, 1e3)


def test_interval_of_three_repeats_by_hand() -> None:
    found = mean_over_repeats([1.0, 2.0, 3.0])
    half = 4.302652729911275 / math.sqrt(3)  # t(0.975, 2) from a printed table, standard deviation 1
    assert (found.value, found.n, found.interval) == (2.0, 3, "95% t over repeats")
    assert (found.low, found.high) == (pytest.approx(2 - half), pytest.approx(2 + half))


@given(st.lists(TIMES, min_size=2, max_size=8))
def test_interval_is_that_of_scipy(values: list[float]) -> None:
    found = mean_over_repeats(values)
    if np.ptp(values) > 1e-9:
        expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
        assert (found.low, found.high) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_one_repeat_has_no_interval_over_repeats() -> None:
    assert mean_over_repeats([2.0]) == Estimate(2.0, None, None, 1, None)
    assert not mean_over_repeats([2.0]).over_repeats


def test_repeats_are_the_unit_not_steps() -> None:
    """More steps in a run must not narrow the interval of the config."""
    few = summarise_steps({1: [1.0] * 3, 2: [1.2] * 3, 3: [1.1] * 3})
    many = summarise_steps({1: [1.0] * 300, 2: [1.2] * 300, 3: [1.1] * 300})
    assert (few.n, few.low, few.high) == (many.n, many.low, many.high)


def test_a_slow_step_does_not_move_a_run() -> None:
    assert summarise_steps({1: [1.0, 1.0, 1.0, 50.0, 1.0], 2: [1.0] * 5}).value == 1.0


def test_single_run_gets_the_bootstrap_of_scipy() -> None:
    steps = list(np.random.default_rng(5).gamma(9.0, 0.1, size=40))
    found = summarise_steps({4: steps})
    expected = stats.bootstrap(
        (steps,), np.median, method="percentile", n_resamples=9999, rng=np.random.default_rng(1)
    ).confidence_interval
    assert found.interval == "95% bootstrap over steps of one repeat"
    assert found.value == pytest.approx(float(np.median(steps)))
    assert found.low == pytest.approx(expected.low, abs=0.02)
    assert found.high == pytest.approx(expected.high, abs=0.02)
    assert not found.over_repeats


@given(st.dictionaries(st.integers(1, 5), st.tuples(TIMES, TIMES), min_size=2))
def test_speedup_is_the_paired_t_test_of_logs_and_its_reverse_the_reciprocal(
    pairs: dict[int, tuple[float, float]],
) -> None:
    baseline, config = ({repeat: pair[side] for repeat, pair in pairs.items()} for side in (0, 1))
    found, reverse = speedup(baseline, config), speedup(config, baseline)
    assert found is not None
    assert reverse is not None
    assert found.value * reverse.value == pytest.approx(1)
    logs = np.log([a for a, _ in pairs.values()]), np.log([b for _, b in pairs.values()])
    if np.ptp(logs[0] - logs[1]) > 1e-9:
        expected = stats.ttest_rel(*logs).confidence_interval(0.95)
        assert math.log(found.low or 0) == pytest.approx(expected.low, abs=1e-9)
        assert math.log(found.high or 0) == pytest.approx(expected.high, abs=1e-9)


def test_speedup_pairs_equal_repeats_only() -> None:
    found = speedup({1: 2.0, 2: 9.0}, {1: 1.0, 3: 1.0})
    assert found == Estimate(2.0, None, None, 1, None)
    assert speedup({1: 1.0}, {2: 1.0}) is None


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.021, 1.5, "FASTER"),
        (1.019, 1.5, "AMBIGUOUS"),
        (0.5, 0.979, "SLOWER"),  # 1 / 1.02 = 0.9804
        (0.5, 0.981, "AMBIGUOUS"),
        (0.981, 1.019, "SAME"),
        (0.979, 1.019, "AMBIGUOUS"),
        (0.9, 1.1, "AMBIGUOUS"),
        (None, None, "AMBIGUOUS"),
    ],
)
def test_verdict_at_its_edges(low: float | None, high: float | None, expected: str) -> None:
    assert verdict(Estimate(1.0, low, high, 3, "t"), noise_floor=0.02) == expected


def test_changes_are_named_for_quantities_that_are_no_times() -> None:
    assert change(Estimate(2.0, 1.9, 2.1, 3, "t")) == "MORE"
    assert change(Estimate(0.5, 0.4, 0.6, 3, "t")) == "LESS"
    assert change(Estimate(1.0, 0.99, 1.01, 3, "t")) == "SAME"
    assert change(Estimate(2.0, None, None, 1, None)) == "AMBIGUOUS"


@given(st.dictionaries(st.integers(1, 5), TIMES, min_size=1), st.dictionaries(st.integers(1, 5), TIMES, min_size=1))
def test_ratios_of_swapped_sides_are_reciprocal(one: dict[int, float], other: dict[int, float]) -> None:
    forth, back = ratio_over_repeats(one, other), ratio_over_repeats(other, one)
    assert (forth is None) == (back is None) == (not set(one) & set(other))
    if forth is not None and back is not None:
        assert forth.value * back.value == pytest.approx(1)
        if forth.low is not None and back.high is not None:
            assert forth.low * back.high == pytest.approx(1)


def test_a_value_that_is_not_positive_has_no_ratio() -> None:
    assert ratio_over_repeats({1: 0.0, 2: 1.0}, {1: 1.0, 2: 1.0}) is None


def test_an_estimate_in_another_unit_keeps_all_but_the_numbers() -> None:
    assert Estimate(2.0, 1.0, 3.0, 3, "t").scaled(1e3) == Estimate(2000.0, 1000.0, 3000.0, 3, "t")
    assert Estimate(2.0, None, None, 1, None).scaled(2) == Estimate(4.0, None, None, 1, None)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.8, 1.25, [0.8, 0.9, 1.0, 1.1, 1.2]),
        (0.7, 3.8, [0.7, 1.0, 1.5, 2.0, 3.0]),
        (0.04, 1.5, [0.05, 0.1, 0.2, 0.5, 1.0]),
        (0.0005, 2.0, [0.001, 0.01, 0.1, 1.0]),
    ],
)
def test_logarithmic_axes_have_plain_ticks_that_fit_their_span(low: float, high: float, ticks: list[float]) -> None:
    axes = Figure().add_subplot()
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    style.plain_log(axes.xaxis)
    assert [float(tick) for tick in axes.get_xticks()] == pytest.approx(ticks)


def test_no_repeat_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one repeat"):
        statistics.mean_over_repeats([])
