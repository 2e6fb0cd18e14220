"""The interval of a median: exact coverage, and none where the data allow none."""

from __future__ import annotations

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustudy.metrics.cells import median_interval


@pytest.mark.parametrize(
    ("count", "rank"),  # rank of the lower end, from Conover's table of the quantile test, 95 %
    [(6, 1), (7, 1), (8, 1), (9, 2), (12, 3), (15, 4), (20, 6), (25, 8)],
)
def test_ranks_are_the_tables(count: int, rank: int) -> None:
    interval = median_interval([float(value) for value in range(1, count + 1)])
    assert (interval.low, interval.high) == (rank, count + 1 - rank)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_under_six_values_there_is_no_interval(count: int) -> None:
    assert median_interval([1.0] * count) == (None, None, None)


@given(st.lists(st.floats(-1e6, 1e6), min_size=6, max_size=60))
def test_coverage_is_enough_and_one_rank_less_would_not_be(values: list[float]) -> None:
    interval, count = median_interval(values), len(values)
    assert interval.low is not None
    assert interval.high is not None
    ordered = sorted(values)
    rank = max(position for position in range(count // 2 + 1) if ordered[position] == interval.low)

    def coverage(lowest: int) -> float:
        return 1 - 2 * sum(comb(count, below) for below in range(lowest + 1)) / 2**count

    assert coverage(ordered.index(interval.low)) >= 0.95
    assert coverage(rank + 1) < 0.95 or ordered[rank] == ordered[-1] or interval.low == interval.high
    assert interval.low <= ordered[(count - 1) // 2] <= ordered[count // 2] <= interval.high
