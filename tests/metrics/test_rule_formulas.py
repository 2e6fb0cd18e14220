"""The published rule formulas, with values computed by hand from their text."""

from __future__ import annotations

import pytest

from gpustudy.metrics.rule_formulas import recompute

BUSY = {"issue_active": 0.9, "theoretical_occupancy_pct": 100.0, "achieved_occupancy_pct": 95.0}
"""A launch that no rule fires for."""


def estimates(**values: float) -> list[tuple[str, float, str]]:
    return [(one.rule, pytest.approx(one.speedup), one.kind) for one in recompute(BUSY | values) or []]


def test_a_launch_without_counters_has_no_estimate() -> None:
    assert recompute({"block_threads": 100.0, "grid_blocks": 4.0, "sm_count": 108.0}) is None


def test_a_busy_launch_has_none_to_make() -> None:
    assert estimates() == []


def test_idle_issue_slots_are_local_and_limited_by_throughput() -> None:
    # 1 - 0.4 = 0.6 of the slots; the busiest unit leaves 1 - 0.7 = 0.3
    assert estimates(issue_active=0.4, sm_throughput_pct=30.0, memory_throughput_pct=70.0) == [
        ("IssueSlotUtilization", 30.0, "local")
    ]


def test_a_stall_is_global_under_idle_issue_slots() -> None:
    found = estimates(issue_active=0.4, sm_throughput_pct=10.0, warp_latency_cycles=20.0, stall_long_scoreboard=9.0)
    assert found == [("IssueSlotUtilization", 60.0, "local"), ("CPIStall", 45.0, "global")]  # min(0.6, 9 / 20)


def test_a_child_estimates_no_more_than_its_parent() -> None:
    found = estimates(issue_active=0.55, sm_throughput_pct=10.0, warp_latency_cycles=10.0, stall_wait=6.0)
    assert found == [("IssueSlotUtilization", 45.0, "local"), ("CPIStall", 45.0, "global")]  # min(0.45, 6 / 10)


def test_a_stall_is_local_where_the_issue_rule_does_not_fire() -> None:
    found = estimates(issue_active=0.7, warp_latency_cycles=20.0, stall_wait=8.0, stall_drain=5.0)
    assert found == [("CPIStall", 40.0, "local")]  # 5 / 20 is below the 0.3 of the rule


def test_occupancy_gaps() -> None:
    assert estimates(achieved_occupancy_pct=60.0) == [("AchievedOccupancy", 40.0, "local")]
    assert estimates(theoretical_occupancy_pct=50.0, achieved_occupancy_pct=45.0) == [
        ("TheoreticalOccupancy", 50.0, "local")
    ]


def test_low_pipes() -> None:
    assert estimates(fma_pipe_pct=12.0, alu_pipe_pct=8.0) == [("HighPipeUtilization", 88.0, "local")]
    assert estimates(fma_pipe_pct=12.0, alu_pipe_pct=8.0, tensor_pipe_pct=55.0) == []


def test_launch_configuration() -> None:
    assert estimates(block_threads=48.0) == [("LaunchConfiguration", 25.0, "global")]  # 1/2 x (1 - 16/32)
    assert estimates(grid_blocks=27.0, sm_count=108.0) == [("LaunchConfiguration", 75.0, "global")]
    assert estimates(waves_per_sm=1.5, achieved_occupancy_pct=70.0)[-1] == ("LaunchConfiguration", 50.0, "global")
    assert not any(
        rule == "LaunchConfiguration" for rule, _, _ in estimates(waves_per_sm=7.5, achieved_occupancy_pct=70.0)
    )


def test_imbalance_between_sms() -> None:
    found = estimates(sm_active_cycles=600.0, sm_active_cycles_max=1000.0, elapsed_cycles=1200.0)
    assert found == [("WorkloadImbalance", 20.0, "global")]  # (1 - 0.6) x 100 x 600 / 1200
