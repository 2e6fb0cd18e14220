"""The metric catalogue: every name exists on the architecture that it is written for."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from gpustudy.metrics.catalogue import Quantity, load_catalogue
from gpustudy.metrics.expressions import Expression

CHIPS = {"sm_70": "gv100", "sm_80": "ga100", "sm_90": "gh100"}
NOT_LISTED = re.compile(r"(launch|sass|device|property|profiler)__|sm__maximum_warps_")
"""Launch, instruction and report metrics, which ``ncu --query-metrics`` never lists."""


@pytest.fixture(scope="module")
def available(shared_facts: Path) -> dict[str, dict[str, bool]]:
    with (shared_facts / "ncu_metric_availability.csv").open() as stream:
        return {row["metric"]: {chip: row[chip] == "1" for chip in CHIPS.values()} for row in csv.DictReader(stream)}


def missing(expression: Expression, available: dict[str, dict[str, bool]], chip: str) -> list[str]:
    return [
        term.metric
        for term in expression.terms
        if not NOT_LISTED.match(term.metric) and not available.get(term.metric.split(".")[0], {}).get(chip)
    ]


def quantity(name: str) -> Quantity:
    return next(one for one in load_catalogue().quantities if one.name == name)


def test_every_name_exists_where_the_catalogue_uses_it(available: dict[str, dict[str, bool]]) -> None:
    wrong = []
    for one in load_catalogue().quantities:
        for architecture, chip in CHIPS.items():
            if architecture in one.absent:
                continue
            for expression in (*one.alternatives(architecture), *one.numerators, *one.denominators):
                wrong += [(one.name, architecture, name) for name in missing(expression, available, chip)]
    assert wrong == []


def test_what_the_catalogue_calls_absent_is_absent(available: dict[str, dict[str, bool]]) -> None:
    for one in load_catalogue().quantities:
        for architecture in set(one.absent) & set(CHIPS):
            assert all(
                missing(expression, available, CHIPS[architecture]) for expression in one.alternatives(architecture)
            ), (
                one.name,
                architecture,
            )


def test_every_stall_reason_of_the_hardware_is_a_quantity(available: dict[str, dict[str, bool]]) -> None:
    pattern = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active")
    reasons = {match[1] for name in available if (match := pattern.fullmatch(name))}
    assert len(reasons) == 19
    names = {one.name for one in load_catalogue().quantities}
    assert {f"stall_{reason}" for reason in reasons} | {f"stall_{reason}_cycles" for reason in reasons} <= names


@pytest.mark.parametrize(
    "name",
    [
        "duration_ns", "sm_active_cycles", "elapsed_cycles", "warp_instructions", "thread_instructions",
        "thread_instructions_fp32", "thread_instructions_integer", "thread_instructions_memory",
        "thread_instructions_control", "warp_instructions_global_ld", "warp_instructions_shared_st", "opcode_mma",
        "opcode_ffma", "tensor_pipe_pct", "tensor_pipe_fp_pct", "tensor_pipe_mma_only_pct", "tf32_operations",
        "fma_pipe_pct", "alu_pipe_pct", "ipc", "achieved_occupancy_pct", "theoretical_occupancy_pct", "l1_hit_pct",
        "l1_sector_hits", "l1_sector_misses", "l2_hit_pct", "l2_sector_hits", "l2_sector_misses", "dram_bytes",
        "dram_bytes_per_s", "dram_throughput_pct", "sm_throughput_pct", "memory_throughput_pct", "stall_gmma",
        "issue_active", "eligible_warps", "active_warps", "waves_per_sm",
    ],
)  # fmt: skip
def test_every_quantity_of_the_paper_is_there(name: str) -> None:
    assert quantity(name).meaning


def test_the_checked_architectures_are_those_of_the_list() -> None:
    catalogue = load_catalogue()
    assert catalogue.checked == tuple(CHIPS)
    assert set(catalogue.unchecked) == {"sm_75", "sm_86", "sm_89", "sm_100", "sm_120"}


def test_every_entry_is_complete() -> None:
    for one in load_catalogue().quantities:
        assert one.meaning, one.name
        assert one.unit, one.name
        assert one.better in ("higher", "lower", ""), one.name
        assert set(one.expressions) - {"default"} <= {*CHIPS, "sm_86", "sm_100", "sm_120"}, one.name
        assert re.fullmatch(r"[a-z][a-z0-9_]*", one.name)


@pytest.mark.parametrize(
    ("suffix", "unit"),
    [("_ns", "ns"), ("_pct", "%"), ("_bytes", "B"), ("_cycles", "cycle"), ("_hz", "Hz"), ("_per_s", "B/s")],
)
def test_names_end_with_their_units(suffix: str, unit: str) -> None:
    units = {one.unit for one in load_catalogue().quantities if one.name.endswith(suffix)} - {"cycle/inst"}
    assert units == {unit}


def test_hopper_asks_for_its_own_counters_and_volta_does_not() -> None:
    catalogue = load_catalogue()
    clean = "sm__pipe_tensor_op_hmma_type_hmma_hgmma_qgmma_cycles_active.avg.pct_of_peak_sustained_active"
    gmma = "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio"
    tf32 = "sm__ops_path_tensor_src_tf32_dst_fp32.sum"
    hopper, ampere, volta = (set(catalogue.requested(name)) for name in ("sm_90", "sm_80", "sm_70"))
    assert {clean, gmma, tf32} <= hopper
    assert {clean, gmma, tf32} & ampere == {tf32}
    assert {clean, gmma, tf32} & volta == set()


def test_requested_metrics_are_a_part_of_all_metrics() -> None:
    catalogue = load_catalogue()
    assert set(catalogue.requested("sm_80")) < set(catalogue.metrics())
