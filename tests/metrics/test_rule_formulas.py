"""The published rule formulas, with values computed by hand from their text."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gpustudy.metrics.ncu.extract import extract
from gpustudy.metrics.rule_formulas import recompute
from gpustudy.metrics.schemas import read_table

BUSY = {"issue_active": 0.9, "theoretical_occupancy_pct": 100.0, "achieved_occupancy_pct": 95.0}
"""A launch that no rule fires for."""


def estimates(**values: float) -> list[tuple[str, object, str]]:
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


@pytest.mark.parametrize("unit", ["sm", "smsp", "l1", "l2", "dram"])
def test_imbalance_between_units(unit: str) -> None:
    def found(active: float) -> list[tuple[str, object, str]]:
        names = ("active_cycles", "active_cycles_max", "active_cycles_all", "elapsed_cycles_all")
        cycles = zip(names, (600.0, 1000.0, active, 4800.0), strict=True)
        return estimates(**{f"{unit}_{name}": value for name, value in cycles})

    assert found(2400.0) == [("WorkloadImbalance", 20.0, "global")]  # (1 - 0.6) x 100 x 2400 / 4800
    assert found(600.0) == [("WorkloadImbalance", 5.0, "global")]  # the rule reports from 5 % on
    assert found(588.0) == []  # 4.9 %


def test_a_unit_that_was_never_active_is_in_balance() -> None:
    idle = {"dram_active_cycles": 0.0, "dram_active_cycles_max": 0.0, "dram_active_cycles_all": 0.0}
    assert estimates(**idle, dram_elapsed_cycles_all=4800.0) == []


def test_a_slow_pipe() -> None:
    slow = {"instruction_throughput_pct": 85.0, "issued_pct": 10.0, "issued_pct_max": 50.0}
    # (50 - 10) / 50 of a compute throughput of 60 %
    assert estimates(**slow, sm_throughput_pct=60.0) == [("SlowPipeLimiter", 48.0, "global")]
    assert estimates(**slow) == [("SlowPipeLimiter", 80.0, "local")]
    for calm in ({"instruction_throughput_pct": 79.0}, {"issued_pct": 20.0}, {"issued_pct_max": 35.0}):
        assert estimates(**(slow | calm), sm_throughput_pct=60.0) == []


def test_instructions_that_could_be_fused() -> None:
    # half of 30 / 40, while the FMA pipe is in use for 40 % of the cycles
    single = {"opcode_fp32_fused": 10.0, "opcode_fp32_unfused": 30.0}
    assert estimates(**single, fma_pipe_pct=40.0) == [("FPInstructions", 15.0, "global")]
    assert estimates(**single) == [("FPInstructions", 37.5, "local")]
    double = {"opcode_fp64_fused": 50.0, "opcode_fp64_unfused": 50.0}
    assert estimates(**double, fma_pipe_pct=40.0, fp64_pipe_pct=20.0) == [("FPInstructions", 5.0, "global")]
    assert estimates(opcode_fp32_fused=80.0, opcode_fp32_unfused=20.0, fma_pipe_pct=40.0) == []  # 0.1 is not above 0.1
    assert estimates(opcode_fp32_fused=0.0, opcode_fp32_unfused=0.0, fma_pipe_pct=40.0) == []


SPARSE = {
    "sector_use_global_load_pct": 25.0, "l1_global_load_hit_pct": 20.0, "l2_read_hit_pct": 50.0,
    "l1_throughput_elapsed_pct": 10.0, "l2_throughput_pct": 20.0, "dram_throughput_pct": 80.0,
}  # fmt: skip
"""Global loads that use 8 of the 32 bytes of a sector."""


def test_sparse_accesses_count_at_the_level_that_gains_most() -> None:
    # L1: 0.75 x 10 %; L2: 0.75 x 0.8 x 20 %; DRAM: 0.75 x 0.8 x 0.5 x 80 %
    assert estimates(**SPARSE) == [("MemoryCacheAccessPattern", 24.0, "global")]
    assert estimates(**(SPARSE | {"dram_throughput_pct": 30.0})) == [("MemoryCacheAccessPattern", 12.0, "global")]
    in_l1 = SPARSE | {"l1_global_load_hit_pct": 100.0}
    assert estimates(**in_l1) == [("MemoryCacheAccessPattern", 7.5, "global")]


def test_sparse_accesses_are_local_where_the_throughput_of_dram_is_not_known() -> None:
    unknown = {name: value for name, value in SPARSE.items() if name != "dram_throughput_pct"}
    assert estimates(**unknown) == [("MemoryCacheAccessPattern", 30.0, "local")]  # 0.75 x 0.8 x 0.5


def test_full_sectors_and_absent_accesses_have_no_pattern_to_mend() -> None:
    assert estimates(**(SPARSE | {"sector_use_global_load_pct": 100.0})) == []
    assert estimates(**(SPARSE | {"sector_use_global_load_pct": 0.0})) == []


def test_stores_take_the_hit_rate_of_writes() -> None:
    local = {"sector_use_local_store_pct": 50.0, "l1_local_store_hit_pct": 0.0, "l2_write_hit_pct": 75.0}
    rates = {"l1_throughput_elapsed_pct": 0.0, "l2_throughput_pct": 0.0, "dram_throughput_pct": 80.0}
    assert estimates(**local, **rates, l2_read_hit_pct=0.0) == [("MemoryCacheAccessPattern", 10.0, "global")]


def test_real_printed_values_give_the_estimates_printed_beside_them(shared_data: Path) -> None:
    """The values are those of the details page; its rules are of a later ncu with the same two formulas."""
    page = (shared_data / "ncu/nsightful__copy_blocked.csv").read_text()
    printed = re.findall(r'"MemoryCacheAccessPattern".*"(global)","([\d.]+)"', page)
    assert printed == [("global", "45.14"), ("global", "42.96")]
    # 8.0 of 32 bytes a sector; 97.7 % of the loads and 93.0 % of the stores miss L2; L1 hits are printed for all
    # accesses together, which leaves 0.05 of the estimate open
    shared = {"l1_throughput_elapsed_pct": 18.29, "l2_throughput_pct": 8.38, "dram_throughput_pct": 61.84}
    for operation, l2, missed, (kind, estimate) in zip(
        ("load", "store"), ("read", "write"), (97.7, 93.0), printed, strict=True
    ):
        accesses = {f"sector_use_global_{operation}_pct": 25.0, f"l1_global_{operation}_hit_pct": 0.46}
        values = BUSY | shared | accesses | {f"l2_{l2}_hit_pct": 100 - missed}
        ((rule, found, found_kind),) = [(one.rule, one.speedup, one.kind) for one in recompute(values) or []]
        assert (rule, found_kind) == ("MemoryCacheAccessPattern", kind)
        assert found == pytest.approx(float(estimate), abs=0.05)


def test_real_instructions_that_could_be_fused_are_those_the_report_tells_of(shared_data: Path, tmp_path: Path) -> None:
    """That ncu gave the share alone (``up to 25 %``); later ones weigh it with the use of the pipe."""
    extract([shared_data / "ncu/self-join-MiSTIC__profileMSDKT23.out.ncu-rep"], tmp_path / "tables")
    rules = read_table(tmp_path / "tables/rules.parquet", "rules").to_pylist()
    pipes = pq.read_table(tmp_path / "tables/counters.parquet")["fp64_pipe_pct"].to_pylist()
    told = [row for row in rules if row["rule"] == "FPInstructions" and row["origin"] == "report"]
    found = [row for row in rules if row["rule"] == "FPInstructions" and row["origin"] == "recomputed"]
    assert len(told) == len(found) == len(pipes) == 4
    for before, after, pipe in zip(told, found, pipes, strict=True):
        counted = re.search(r"executes (\d+) fused and (\d+) non-fused FP64 .* by up to (\d+)%", before["message"])
        assert counted is not None
        fused, unfused, share = map(int, counted.groups())
        assert after["message"].startswith(f"{unfused} of {fused + unfused} fp64")
        assert after["speedup"] == pytest.approx(share * pipe / 100)
    assert not any(row["rule"] == "SlowPipeLimiter" for row in rules)  # nor did ncu's own find any
