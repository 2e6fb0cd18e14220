"""The choice of launches: strata, sample size by spread, weights that add up, quotas per operator."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpustudy.cell.ncu_census import Census, CensusLaunch, read_census
from gpustudy.cell.ncu_sampling import plan_sampling, sample_size
from tests.cell.ncu_trace import ADD, WGRAD, training_trace


def _launch(
    name: str = "k", grid: int = 1, duration: int = 100, phase: str = "forward", op: str = "aten::a"
) -> CensusLaunch:
    return CensusLaunch(name, (grid, 1, 1), (128, 1, 1), 0, duration, phase, (op,))


@pytest.mark.parametrize(
    ("durations", "most", "expected"),
    [
        ([100.0] * 50, 3, 1),  # equal times: one representative
        # mean 100, population deviation 1: (1.96 / 0.05 * 0.01)^2 = 0.154
        ([99.0, 101.0] * 10, 3, 1),
        # deviation 4: (39.2 * 0.04)^2 = 2.459
        ([96.0, 104.0] * 10, 9, 3),
        # deviation 50: (39.2 * 0.5)^2 = 384.16, cut to `most` and to what exists
        ([50.0, 150.0] * 10, 3, 3),
        ([50.0, 150.0], 9, 2),
        ([0.0, 0.0], 3, 1),
    ],
)
def test_sample_size_follows_the_spread(durations: list[float], most: int, expected: int) -> None:
    assert sample_size(durations, most) == expected


def test_strata_of_a_trace(tmp_path: Path) -> None:
    plan = plan_sampling(read_census(training_trace().write(tmp_path / "trace.json.gz")), 3)
    assert [stratum.name for stratum in plan.strata[:2]] == [WGRAD, ADD]
    adds = plan.strata[1]
    assert adds.launches_per_step == 2
    assert adds.function == "vectorized_elementwise_kernel"
    # 4 and 6 us: (39.2 * 0.2)^2 = 61.5, cut to the two of a step
    assert (adds.planned, adds.weight) == (2, 1.0)
    assert adds.spread == pytest.approx(0.2)
    assert adds.phases == {"forward": 2.0}
    assert plan.quotas is not None
    assert plan.quotas["aten::add"] == 2
    assert plan.quotas["aten::convolution_backward"] == 1
    assert plan.planned_launches == 5
    assert plan.fallback == 3


def test_same_kernel_with_another_grid_is_another_stratum() -> None:
    plan = plan_sampling(Census(1, (_launch(grid=1), _launch(grid=2), _launch(grid=2))), 3)
    assert sorted(stratum.launches_per_step for stratum in plan.strata) == [1, 2]


def test_equal_times_give_one_representative_with_the_count_as_weight() -> None:
    (stratum,) = plan_sampling(Census(2, tuple(_launch() for _ in range(20))), 3).strata
    assert (stratum.planned, stratum.weight) == (1, 10.0)


def test_no_limit_profiles_every_launch() -> None:
    plan = plan_sampling(Census(2, tuple(_launch() for _ in range(20))), None)
    assert plan.quotas is None
    assert plan.planned_launches == 10
    assert plan.strata[0].weight == 1.0


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.integers(1, 10_000)), min_size=1, max_size=60),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_weighted_counts_are_the_launches_of_a_step(kernels: list[tuple[str, int, int]], steps: int, most: int) -> None:
    launches = tuple(_launch(name, grid, duration) for name, grid, duration in kernels for _ in range(steps))
    plan = plan_sampling(Census(steps, launches), most)
    assert math.isclose(sum(s.planned * s.weight for s in plan.strata), len(kernels))
    assert all(1 <= s.planned <= min(most, math.ceil(s.launches_per_step)) for s in plan.strata)
    assert plan.quotas is not None
    assert max(s.planned for s in plan.strata) == plan.quotas["aten::a"]
