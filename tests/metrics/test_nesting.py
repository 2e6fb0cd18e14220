"""Self times: each moment belongs to exactly one interval, the innermost."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpustudy.metrics.nesting import nest

_INTERVALS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 15)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=12
)


def _owner(intervals: list[tuple[int, int]], moment: int) -> int:
    """The interval that began last (the shortest, then the last named, of those) among those around ``moment``."""
    around = [(start, -end, index) for index, (start, end) in enumerate(intervals) if start <= moment < end]
    return max(around)[2] if around else -1


def test_hand_made_tree() -> None:
    #        a 0..100 { b 10..40 { c 10..20 }, d 50..90 }
    result = nest([0, 10, 10, 50], [100, 40, 20, 90], [0, 15, 25, 45, 50, 99, 100])
    assert result.self_ns == [100 - 30 - 40, 20, 10, 40]
    assert result.parent == [-1, 0, 1, 0]
    assert result.innermost == [0, 2, 1, 0, 3, 0, -1]


def test_child_that_outlasts_its_parent_takes_no_time_twice() -> None:
    result = nest([0, 8], [10, 12])
    assert result.self_ns == [8, 4]
    assert result.parent == [-1, 0]


def test_gap_between_outermost_intervals_belongs_to_none() -> None:
    assert nest([0, 20], [5, 25], [10]).self_ns == [5, 5]
    assert nest([0, 20], [5, 25], [10]).innermost == [-1]


@given(_INTERVALS, st.lists(st.integers(0, 60), max_size=8))
@settings(max_examples=200, deadline=None)
def test_every_moment_has_the_owner_that_brute_force_finds(
    intervals: list[tuple[int, int]], moments: list[int]
) -> None:
    result = nest([start for start, _ in intervals], [end for _, end in intervals], moments)
    owners = [_owner(intervals, moment) for moment in range(60)]
    assert result.self_ns == [owners.count(index) for index in range(len(intervals))]
    assert sum(result.self_ns) == sum(owner >= 0 for owner in owners)
    assert result.innermost == [_owner(intervals, moment) for moment in moments]
