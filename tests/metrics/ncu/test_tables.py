"""From files to tables: quantities with their reasons, totals of totals, scores, and what a directory then holds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from gpustudy.base.errors import UserError
from gpustudy.cli import main
from gpustudy.metrics.catalogue import load_catalogue
from gpustudy.metrics.make import make_metrics
from gpustudy.metrics.ncu import report as report_module
from gpustudy.metrics.ncu.extract import extract
from gpustudy.metrics.ncu.strata import Strata, Stratum, read_strata
from gpustudy.metrics.ncu.tables import counters_tables, phase_of
from gpustudy.metrics.ncu.totals import weighted_quantiles
from gpustudy.metrics.schemas import Identity, read_table
from tests.metrics import raw_stages
from tests.metrics.ncu import report_builder as build
from tests.metrics.ncu.report_builder import ATTRIBUTES, Estimate, Kernel

IDENTITY = Identity("a100", "baseline", 1, "0123456789ab")
GEMM = "ampere_sgemm_128x64_nn"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"

FAST = Kernel(
    mangled="gemm",
    demangled=GEMM,
    metrics={
        "gpu__time_duration.sum": 1000.0,
        "sm__cycles_active.avg": 100.0,
        "sm__inst_executed.avg.per_cycle_active": 2.0,
        "smsp__inst_executed.sum": 400.0,
        "smsp__issue_active.sum": 400.0,
        "lts__t_sectors_lookup_hit.sum": 90.0,
        "lts__t_sectors_lookup_miss.sum": 10.0,
        "lts__t_sector_hit_rate.pct": 90.0,
        "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": 1.5,
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 80.0,
        "sass__inst_executed_per_opcode": (400, {"FFMA.FTZ": 100, "HMMA.16816.F32": 200, "LDG": 100}),
    },
    rules=(Estimate(speedup=40.0), Estimate(rule="Local", speedup=99.0, speedup_kind=1)),
    ranges=("gpustudy.step", "gpustudy.forward"),
)
SLOW = Kernel(
    mangled="add",
    demangled=ADD,
    metrics={
        "gpu__time_duration.sum": 3000.0,
        "sm__cycles_active.avg": 300.0,
        "sm__inst_executed.avg.per_cycle_active": 1.0,
        "smsp__inst_executed.sum": 600.0,
        "smsp__issue_active.sum": 600.0,
        "lts__t_sectors_lookup_hit.sum": 100.0,
        "lts__t_sectors_lookup_miss.sum": 900.0,
        "lts__t_sector_hit_rate.pct": 10.0,
        "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": 3.0,
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 20.0,
        "sass__inst_executed_per_opcode": (600, {"LDG": 600}),
    },
    rules=(Estimate(speedup=10.0),),
)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return build.write(tmp_path / "report.ncu-rep", [FAST, SLOW])


def counters(directory: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_table(directory / "counters.parquet", "counters").to_pylist()
    return rows


@pytest.fixture
def cells(report: Path, tmp_path: Path) -> dict[tuple[str, str, str | None], dict[str, Any]]:
    (tmp_path / "out").mkdir()
    rows = counters_tables(report.parent, tmp_path / "out", IDENTITY)
    return {(row["quantity"], row["scope"], row.get("kernel_class")): row for row in rows}


def test_extract_writes_every_table_with_the_reports_name(report: Path, tmp_path: Path) -> None:
    rows = extract([report], tmp_path / "tables")
    assert rows["counters"] == 2
    for table in ("counters", "counter_values", "rules", "priority"):
        content = read_table(tmp_path / "tables" / f"{table}.parquet", table)
        assert content.num_rows == rows[table]
        assert set(content.column("report").to_pylist()) == {"report.ncu-rep"}
    session = json.loads((tmp_path / "tables/session.json").read_text())
    assert session["reports"][0]["launches"] == 2
    assert session["reports"][0]["settings"]["clock_control"] == "base"


def test_counters_carry_facts_quantities_and_units(report: Path, tmp_path: Path) -> None:
    extract([report], tmp_path / "tables")
    first, second = counters(tmp_path / "tables")
    assert (first["gpu"], first["config"], first["repeat"]) == ("Crafted A100", "report.ncu-rep", 0)
    assert (first["name"], first["class"], first["phase"]) == (GEMM, "gemm", "forward")
    assert (first["duration_ns"], first["ipc"], first["l2_hit_pct"]) == (1000.0, 2.0, 90.0)
    assert (first["grid"], first["shared_memory_bytes"], first["threads"]) == ([4, 2, 1], 3072, 1024.0)
    assert (second["class"], second["phase"]) == ("elementwise", "other")
    schema = pq.read_schema(tmp_path / "tables/counters.parquet")
    assert schema.field("duration_ns").metadata[b"unit"] == b"ns"


def test_opcode_counts_are_true_zeros_where_the_mix_is_known(report: Path, tmp_path: Path) -> None:
    extract([report], tmp_path / "tables")
    first, second = counters(tmp_path / "tables")
    assert (first["opcode_mma"], first["opcode_ffma"], first["mma_share_pct"]) == (200.0, 100.0, 50.0)
    assert (second["opcode_mma"], second["opcode_load_store"]) == (0.0, 600.0)


def test_what_is_null_has_its_reason(tmp_path: Path) -> None:
    volta = ATTRIBUTES | {"device__attribute_compute_capability_major": 7}
    no_lookups = {"lts__t_sectors_lookup_hit.sum": 0.0, "lts__t_sectors_lookup_miss.sum": 0.0}
    kernel = Kernel(metrics={**volta, **no_lookups, "sm__ops_path_tensor_src_tf32_dst_fp32.sum": 0.0})
    extract([build.write(tmp_path / "v.ncu-rep", [kernel])], tmp_path / "tables")
    (row,) = counters(tmp_path / "tables")
    lacking = json.loads(row["lacking"])
    assert row["tf32_operations"] is None  # the file says 0, but Volta has no TF32
    assert "tf32_operations" in lacking["Volta has no TF32"]
    assert row["l2_hit_pct"] is None
    assert "l2_hit_pct" in next(names for reason, names in lacking.items() if reason.startswith("undefined"))
    assert "ipc" in lacking["not collected"]


def test_values_that_cannot_be_are_kept_and_named(tmp_path: Path) -> None:
    metrics = {"sm__throughput.avg.pct_of_peak_sustained_elapsed": 103.5, "dram__bytes_read.sum": -64.0}
    fine = {"sm__throughput.avg.pct_of_peak_sustained_elapsed": 100.0, "dram__bytes_read.sum": 0.0}
    path = build.write(tmp_path / "v.ncu-rep", [Kernel(metrics=dict(metrics)), Kernel(metrics=dict(fine))])
    extract([path], tmp_path / "tables")
    first, second = counters(tmp_path / "tables")
    assert first["sm_throughput_pct"] == 103.5
    assert sorted(json.loads(first["doubtful"])) == ["dram_read_bytes", "sm_throughput_pct"]
    assert second["doubtful"] is None


def test_values_of_all_metrics_or_of_the_catalogues(report: Path, tmp_path: Path) -> None:
    extract([report], tmp_path / "all")
    extract([report], tmp_path / "catalogue", all_metrics=False)
    everything, chosen = (
        read_table(tmp_path / name / "counter_values.parquet", "counter_values").to_pylist()
        for name in ("all", "catalogue")
    )
    names = {row["metric"] for row in everything}
    assert "launch__context_id" in names
    assert {row["metric"] for row in chosen} == names & set(load_catalogue().metrics())
    opcode = [row for row in everything if row["metric"] == "sass__inst_executed_per_opcode" and row["launch"] == 0]
    assert [(row["instance"], row["correlation"], row["value"]) for row in opcode] == [
        (None, None, 400.0), (0, "FFMA.FTZ", 100.0), (1, "HMMA.16816.F32", 200.0), (2, "LDG", 100.0),
    ]  # fmt: skip
    assert counters(tmp_path / "all") == counters(tmp_path / "catalogue")


def test_parts_do_not_change_the_tables(report: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extract([report], tmp_path / "whole")
    monkeypatch.setattr(report_module, "_PART_BYTES", 1)
    extract([report], tmp_path / "parts")
    for table in ("counters", "counter_values", "rules", "priority"):
        whole, parts = (read_table(tmp_path / name / f"{table}.parquet", table) for name in ("whole", "parts"))
        assert whole.equals(parts)


def test_totals_add_up_and_ratios_are_made_from_them(cells: dict[Any, dict[str, Any]]) -> None:
    def total(quantity: str) -> float:
        value: float = cells[quantity, "total", None]["value"]
        return value

    assert total("duration_ns") == 4000.0
    assert total("ipc") == pytest.approx((2.0 * 100 + 1.0 * 300) / 400)  # instructions over cycles, not (2 + 1) / 2
    assert total("l2_hit_pct") == pytest.approx(100 * 190 / 1100)
    assert total("stall_wait_cycles") == 1.5 * 400 + 3.0 * 600
    assert total("stall_wait") == pytest.approx(2400 / 1000)
    assert total("dram_throughput_pct") == pytest.approx((80 * 1000 + 20 * 3000) / 4000)  # weighted with time
    assert total("mma_share_pct") == pytest.approx(100 * 200 / 1000)


def test_classes_have_totals_of_their_own(cells: dict[Any, dict[str, Any]]) -> None:
    assert cells["duration_ns", "total", "gemm"]["value"] == 1000.0
    assert cells["l2_hit_pct", "total", "elementwise"]["value"] == pytest.approx(10.0)
    assert cells["duration_ns", "launch_median", None]["value"] == 2000.0
    assert cells["duration_ns", "launch_median", None]["interval"] == "quartiles"
    assert cells["duration_ns", "launch_mean", None]["value"] == 2000.0
    assert cells["duration_ns", "first_n", None]["n"] == 2


def test_launches_count_as_often_as_those_they_stand_for() -> None:
    """A launch of 10 that stands for 8, one of 40 that stands for 2: the middles of their weights are 0.4 and 0.9."""
    values, weights = np.array([40.0, 10.0]), np.array([2.0, 8.0])
    low, middle, high = weighted_quantiles(values, weights, (0.25, 0.5, 0.75))
    assert (low, middle) == (10.0, pytest.approx(10.0 + 30.0 * (0.5 - 0.4) / 0.5))
    assert high == pytest.approx(10.0 + 30.0 * (0.75 - 0.4) / 0.5)
    assert weighted_quantiles(np.arange(9.0), np.ones(9), (0.5,))[0] == 4.0


def test_a_quantity_without_a_total_says_why(cells: dict[Any, dict[str, Any]]) -> None:
    assert cells["tensor_pipe_mma_only_pct", "total", None]["state"] == "unavailable(architecture)"
    assert cells["l1_hit_pct", "total", None]["state"] == "unavailable(not_collected)"
    assert cells["waves_per_sm", "total", None]["state"] == "unavailable(no_total)"
    assert cells["l1_hit_pct", "total", None]["value"] is None


def test_priority_scores_of_classes_use_global_estimates_alone(cells: dict[Any, dict[str, Any]]) -> None:
    assert cells["priority_score_ns", "total", "gemm"]["value"] == pytest.approx(400.0)  # 1000 ns x 40 %, not 99 %
    assert cells["priority_score_ns", "total", "elementwise"]["value"] == pytest.approx(300.0)
    assert cells["priority_score_share_pct", "total", "gemm"]["value"] == pytest.approx(10.0)
    assert cells["priority_score_ns", "total", "gemm"]["origin"] == "modelled"


def test_scores_of_kernels_keep_the_version_of_the_rules(report: Path, tmp_path: Path) -> None:
    extract([report], tmp_path / "tables")
    rows = {row["name"]: row for row in read_table(tmp_path / "tables/priority.parquet", "priority").to_pylist()}
    assert rows[GEMM]["score_ns"] == pytest.approx(400.0)
    assert (rows[GEMM]["largest_local_pct"], rows[GEMM]["origin"]) == (99.0, "report")
    assert rows[GEMM]["ncu_version"] == "2024.1.1.0"


def test_a_report_without_rules_gets_recomputed_ones_that_say_so(tmp_path: Path) -> None:
    metrics = {"gpu__time_duration.sum": 1000.0, "smsp__issue_active.avg.per_cycle_active": 0.9}
    metrics |= {
        "sm__maximum_warps_per_active_cycle_pct": 100.0,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 95.0,
    }
    path = build.write(tmp_path / "a.ncu-rep", [Kernel(metrics=metrics, grid=(27, 1, 1))])  # 27 blocks for 108 SMs
    extract([path], tmp_path / "tables")
    rules = read_table(tmp_path / "tables/rules.parquet", "rules").to_pylist()
    assert [(row["rule"], row["speedup"], row["speedup_kind"], row["origin"]) for row in rules] == [
        ("LaunchConfiguration", 75.0, "global", "recomputed")
    ]
    (row,) = read_table(tmp_path / "tables/priority.parquet", "priority").to_pylist()
    assert (row["score_ns"], row["origin"]) == (750.0, "recomputed")


def test_failed_launches_are_kept_and_counted_in_no_total(tmp_path: Path) -> None:
    failed = Kernel(grid=(0, 0, 0), block=(0, 0, 0), metrics={"gpu__time_duration.sum": float("nan")})
    build.write(tmp_path / "report.ncu-rep", [FAST, failed])
    (tmp_path / "out").mkdir()
    rows = counters_tables(tmp_path, tmp_path / "out", IDENTITY)
    values = {(row["quantity"], row.get("kernel_class")): row["value"] for row in rows if row["scope"] == "total"}
    assert values["failed_launches", None] == 1
    assert values["duration_ns", None] == 1000.0
    assert len(counters(tmp_path / "out")) == 2


def _plan(path: Path, **strata: float) -> None:
    names = {"gemm": GEMM, "add": ADD.replace("float>>", "float> >")}  # as PyTorch's trace spells it
    planned = [
        {"name": names[name], "grid": [4, 2, 1], "block": [128, 1, 1], "shared_memory_bytes": 3072,
         "launches_per_step": count, "phases": {"backward": count}, "mean_ns": 10.0}
        for name, count in strata.items()
    ]  # fmt: skip
    (path / "command.json").write_text(json.dumps({"plan": {"strata": planned}, "settings": {"iterations": 1}}))


def test_a_profiled_launch_stands_for_its_stratum(report: Path, tmp_path: Path) -> None:
    _plan(tmp_path, gemm=5, add=1)
    (tmp_path / "out").mkdir()
    rows = counters_tables(tmp_path, tmp_path / "out", IDENTITY)
    values = {(row["quantity"], row.get("kernel_class")): row["value"] for row in rows if row["scope"] == "total"}
    assert values["duration_ns", None] == 5 * 1000.0 + 3000.0
    assert values["ipc", None] == pytest.approx((5 * 200 + 300) / (5 * 100 + 300))
    assert values["priority_score_ns", "gemm"] == pytest.approx(5 * 400.0)
    assert values["coverage_pct", None] == 100.0
    assert {row["phase"] for row in counters(tmp_path / "out")} == {"backward"}


def test_strata_share_their_count_and_the_unknown_stand_for_themselves() -> None:
    from gpustudy.metrics.ncu.batch import Launch

    sizes: dict[str, Any] = {"grid": (1, 1, 1), "block": (32, 1, 1), "shared_memory_bytes": 0}
    known = {
        ("k", (1, 1, 1), (32, 1, 1), 0): Stratum(10.0, "forward", 100.0),
        ("j", None, None, None): Stratum(1.0, "data", 300.0),
    }
    launches = [Launch(0, "k", **sizes), Launch(1, "k", **sizes), Launch(2, "new", **sizes)]
    strata = Strata(known, steps=2)
    assert strata.weights(launches) == [5.0, 5.0, 0.5]
    assert strata.phases(launches) == ["forward", "forward", "other"]
    assert strata.coverage_pct(launches) == 25.0
    assert Strata({}).weights(launches) == [1.0, 1.0, 1.0]


def test_a_record_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "command.json").write_text('{"plan": 1}')
    with pytest.raises(UserError, match="not a readable record"):
        read_strata(tmp_path / "command.json")


def test_a_second_report_with_kept_caches_has_scopes_of_its_own(report: Path, tmp_path: Path) -> None:
    build.write(tmp_path / "report-none.ncu-rep", [FAST])
    (tmp_path / "out").mkdir()
    rows = counters_tables(tmp_path, tmp_path / "out", IDENTITY)
    found = {row["scope"]: row["value"] for row in rows if row["quantity"] == "duration_ns" and not row["kernel_class"]}
    assert (found["total"], found["total_cache_none"]) == (4000.0, 1000.0)


def test_several_files_share_the_tables(report: Path, tmp_path: Path) -> None:
    from tests.metrics.ncu.csv_builder import Row, raw_page

    export = tmp_path / "old.csv"
    export.write_text(raw_page([Row(0, metrics=(("gpu__time_duration.sum", "us", "2.500000"),))]))
    extract([report, export], tmp_path / "tables")
    rows = counters(tmp_path / "tables")
    assert [(row["report"], row["duration_ns"]) for row in rows] == [
        ("report.ncu-rep", 1000.0), ("report.ncu-rep", 3000.0), ("old.csv", 2500.0),
    ]  # fmt: skip


def test_the_verb_salvages_only_when_asked(report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = report.read_bytes()
    report.write_bytes(content[: len(content) * 9 // 10])
    out = tmp_path / "tables"
    assert main(["extract", str(report), "-o", str(out)]) == 2
    assert "complete results: add --salvage" in capsys.readouterr().err
    assert not out.exists()
    assert main(["extract", str(report), "-o", str(out), "--salvage"]) == 0
    assert "counters.parquet: 2 rows" in capsys.readouterr().out
    assert json.loads((out / "session.json").read_text())["reports"][0]["damage"]


def test_reports_of_2019_have_another_suffix(report: Path, tmp_path: Path) -> None:
    old = report.rename(tmp_path / "old.nsight-cuprof-report")
    assert extract([old], tmp_path / "tables")["counters"] == 2
    old.write_bytes(b"")
    with pytest.raises(UserError, match="is empty and holds 0 complete results"):
        extract([old], tmp_path / "again")


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["extract", str(tmp_path / "absent.ncu-rep"), "-o", str(tmp_path / "tables")]) == 2
    assert "absent.ncu-rep cannot be read (No such file or directory)" in capsys.readouterr().err


def test_a_directory_with_other_things_is_not_replaced(report: Path, tmp_path: Path) -> None:
    out = tmp_path / "precious"
    out.mkdir()
    (out / "thesis.txt").write_text("x")
    with pytest.raises(UserError, match="is not the output of"):
        extract([report], out)
    assert (out / "thesis.txt").exists()


def test_a_report_inside_the_output_is_not_lost(report: Path, tmp_path: Path) -> None:
    out = tmp_path / "tables"
    extract([report], out)
    inside = report.rename(out / "report.ncu-rep")
    with pytest.raises(UserError, match=r"it holds report\.ncu-rep"):
        extract([inside], out)
    assert inside.exists()


@pytest.mark.parametrize("name", ["pipe.ncu-rep", "pipe.csv"])
def test_a_pipe_is_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(UserError, match="is a pipe or a device"):
        extract([tmp_path / name], tmp_path / "tables")


@pytest.mark.parametrize("out", ["file/tables", "dangling"])
def test_an_output_that_cannot_be_written_is_one_sentence(
    report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], out: str
) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "tables")
    assert main(["extract", str(report), "-o", str(tmp_path / out)]) == 2
    (sentence,) = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("report.ncu-rep: ")]
    assert sentence.startswith("gpustudy extract: ")
    assert not list(tmp_path.glob(".*.part"))


def test_two_reports_of_one_name_are_refused(report: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"two reports are called report\.ncu-rep"):
        extract([report, report], tmp_path / "tables")


@pytest.mark.parametrize(
    ("nvtx", "phase"),
    [(None, "other"), ("gpustudy.step/gpustudy.backward", "backward"), ("mine/gpustudy.step", "other")],
)
def test_phases_come_from_the_innermost_range(nvtx: str | None, phase: str) -> None:
    assert phase_of(nvtx) == phase


def test_real_reports_become_tables(shared_data: Path, tmp_path: Path) -> None:
    files = sorted((shared_data / "ncu").glob("*.ncu-rep")) + sorted((shared_data / "ncu").glob("*.csv"))
    rows = extract(files, tmp_path / "tables")
    assert rows["counters"] == 16
    found = {(row["report"], row["launch"]): row for row in counters(tmp_path / "tables")}
    gemm = found["cutlass__report-s8.ncu-rep", 0]
    assert (gemm["duration_ns"], gemm["opcode_mma"], gemm["tensor_pipe_fp_pct"]) == (8512.0, 13824.0, 0.0)
    assert gemm["tensor_pipe_int_pct"] > 0  # an int8 GEMM
    assert np.isclose(found["llm-perf-opt__k1.details.csv", 0]["dram_throughput_pct"], 19.66)


def test_a_counters_stage_becomes_a_metrics_directory(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    build.write(raw / "report.ncu-rep", [FAST, SLOW])
    _plan(raw, gemm=5, add=1)
    raw_stages.finish(raw, "counters", gpu="a100")
    make_metrics(raw, tmp_path / "metrics", "feedfeedfeed")
    cells = read_table(tmp_path / "metrics/cells.parquet", "cells").to_pylist()
    total = [
        row for row in cells if (row["quantity"], row["scope"], row["kernel_class"]) == ("duration_ns", "total", None)
    ]
    assert [(row["gpu"], row["config"], row["repeat"], row["stage"], row["value"], row["unit"]) for row in total] == [
        ("a100", "baseline", 2, "counters", 8000.0, "ns")
    ]
    tables = json.loads((tmp_path / "metrics/metrics.json").read_text())["tables"]
    assert {name: about["rows"] for name, about in tables.items() if name != "cells.parquet"} == {
        "counters.parquet": 2,
        "counter_values.parquet": read_table(tmp_path / "metrics/counter_values.parquet", "counter_values").num_rows,
        "rules.parquet": 3,
        "priority.parquet": 2,
    }
