"""Priority scores: time that global estimates promise; local estimates never meet time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustudy.metrics.priority import NO_ESTIMATE, RECOMPUTED, Estimate, scores


def test_the_score_is_duration_times_global_estimate() -> None:
    found = scores([Estimate("conv", 1000.0, 40.0), Estimate("conv", 500.0, 10.0), Estimate("add", 300.0, 5.0)])
    assert found["conv"].score_ns == pytest.approx(1000 * 0.4 + 500 * 0.1)
    assert found["conv"].score_mean_ns == pytest.approx(225.0)
    assert found["conv"].score_share_pct == pytest.approx(100 * 450 / 1800)
    assert list(found) == ["conv", "add"]  # the largest first


def test_local_estimates_stand_beside_and_are_not_multiplied_with_time() -> None:
    found = scores([Estimate("k", 1000.0, 0.0, local_pct=90.0), Estimate("k", 1000.0, 0.0, local_pct=20.0)])
    assert found["k"].score_ns == 0.0
    assert found["k"].largest_local_pct == 90.0


def test_weights_count_the_launches_that_one_stands_for() -> None:
    found = scores([Estimate("k", 1000.0, 50.0, weight=4.0), Estimate("k", 100.0, 0.0, weight=1.0)])
    assert found["k"].score_ns == 2000.0
    assert found["k"].duration_ns == 4100.0
    assert found["k"].score_mean_ns == 400.0  # over five launches


def test_no_estimate_is_no_score_and_not_zero() -> None:
    found = scores([Estimate("k", 1000.0, None, origin=NO_ESTIMATE)])
    assert (found["k"].score_ns, found["k"].score_share_pct, found["k"].origin) == (None, None, NO_ESTIMATE)


def test_ncus_own_property_is_a_variant() -> None:
    found = scores([Estimate("k", 1000.0, 40.0, property_pct=25.0), Estimate("k", 1000.0, 0.0)])
    assert found["k"].score_property_ns == 250.0


def test_origins_of_a_group_are_told() -> None:
    found = scores([Estimate("k", 1.0, 1.0), Estimate("k", 1.0, 1.0, origin=RECOMPUTED)])
    assert found["k"].origin == "recomputed+report"


def test_launches_without_a_duration_are_left_out() -> None:
    assert scores([Estimate("k", math.nan, 50.0)]) == {}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1e9), st.floats(0, 100)), min_size=1, max_size=20))
def test_scores_are_never_more_than_the_time(launches: list[tuple[str, float, float]]) -> None:
    for score in scores(Estimate(*launch) for launch in launches).values():
        assert 0 <= (score.score_ns or 0) <= score.duration_ns * (1 + 1e-12)
