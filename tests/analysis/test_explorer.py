"""The kernel explorer: times per step, counters put together from launches, and fair room for every config."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from gpustudy.analysis import explorer
from gpustudy.analysis.dataset import Dataset
from gpustudy.analysis.explorer import COLUMNS, as_json
from gpustudy.metrics.schemas import Column, Identity, write_table
from gpustudy.study.states import CellState, StageState
from tests.analysis.crafted import CLASS_NS, Crafted, manifest


def launch(position: int, name: str, **columns: object) -> dict[str, object]:
    return {"report": "report.ncu-rep", "launch": position, "kind": "kernel", "name": name, "class": "gemm",
            "phase": "forward", **columns}  # fmt: skip


def counters_of(folder: Path, identity: Identity) -> None:
    """Two launches of one kernel: 1 and 3 cycles with IPC 2 and 1, 10 hits of 20 and 80 hits of 80."""
    names = ("duration_ns", "sm_active_cycles", "ipc", "l1_sector_hits", "l1_sector_misses", "l1_hit_pct")
    rows = [
        launch(0, "gemm_kernel", duration_ns=10.0, sm_active_cycles=1.0, ipc=2.0, l1_sector_hits=10.0,
               l1_sector_misses=10.0, l1_hit_pct=50.0),
        launch(1, "gemm_kernel", duration_ns=30.0, sm_active_cycles=3.0, ipc=1.0, l1_sector_hits=80.0,
               l1_sector_misses=0.0, l1_hit_pct=100.0),
        launch(0, "gemm_kernel", duration_ns=1.0, sm_active_cycles=1.0, ipc=9.0) | {"report": "report-none.ncu-rep"},
    ]  # fmt: skip
    extra = [Column(name, "float64", "", name, nullable=True) for name in names]
    write_table(folder / "counters.parquet", "counters", rows, identity, extra)
    scored = {"report": "report.ncu-rep", "name": "gemm_kernel", "class": "gemm", "launches": 2, "duration_ns": 40.0,
              "score_ns": 10.0, "origin": "report"}  # fmt: skip
    write_table(folder / "priority.parquet", "priority", [scored], identity)


def census_of(folder: Path, identity: Identity) -> None:
    """Two steps with two launches each of 100 and 300 ns, one in backward, and a launch outside every step."""
    common = {"name": "gemm_kernel", "class": "gemm", "start_ns": 0, "operator": "aten::mm"}
    rows = [
        {**common, "step": step, "phase": phase, "duration_ns": ns, "flops": 1000}
        for step in (0, 1)
        for phase, ns in (("forward", 100), ("forward", 300), ("backward", 600))
    ]
    rows.append({**common, "step": -1, "phase": "other", "duration_ns": 10**9})
    write_table(folder / "launches.parquet", "launches", rows, identity)


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    root = tmp_path_factory.mktemp("by_hand")
    stages = []
    for stage, write in (("census", census_of), ("counters", counters_of)):
        folder, identity = root / stage, Identity("a100", "opt1", 1, f"{stage}-key")
        write(folder, identity)
        (folder / "metrics.json").write_text(json.dumps(manifest(stage, identity)))
        stages.append(StageState(stage, identity.key, "done", "", None, folder, ""))
    crafted = Crafted(root)
    crafted.cells.append(CellState("a100", "opt1", 1, "done", "", (), False, tuple(stages)))
    return explorer.explorer(Dataset(crafted.survey())).set_index("phase")


def test_times_are_those_of_one_step(by_hand: pd.DataFrame) -> None:
    assert dict(by_hand["step_ns"]) == {"backward": 600, "forward": 400}
    assert dict(by_hand["launches"]) == {"backward": 1, "forward": 2}
    assert by_hand.loc["forward", "launch_ns"] == 200
    assert by_hand.loc["forward", "share"] == pytest.approx(0.4)
    assert by_hand.loc["forward", "flops"] == 2000


def test_ratios_of_launches_are_never_averaged(by_hand: pd.DataFrame) -> None:
    forward = by_hand.loc["forward"]
    assert forward["ipc"] == pytest.approx((2 * 1 + 1 * 3) / 4)  # instructions over cycles, not (2 + 1) / 2
    assert forward["l1_hit_pct"] == pytest.approx(90)  # 90 of 100 sectors, not (50 + 100) / 2
    assert pd.isna(forward["dram_throughput_pct"])


def test_counters_of_another_phase_are_not_shown(by_hand: pd.DataFrame) -> None:
    assert by_hand["ipc"].isna().to_dict() == {"backward": True, "forward": False}


def test_the_score_is_the_same_part_of_a_step_as_of_the_report(by_hand: pd.DataFrame) -> None:
    assert by_hand.loc["forward", "score_ns"] == pytest.approx(400 * 10 / 40)
    assert next(column for column in COLUMNS if column.name == "score_ns").is_modelled


def test_repeats_are_averaged(full: Dataset) -> None:
    rows = explorer.explorer(full)
    slower = rows.query("gpu == 'a100' and config == 'opt2' and name == 'convolution_kernel' and phase == 'backward'")
    assert slower["step_ns"].item() == pytest.approx(CLASS_NS["backward", "convolution"] * 1.25)
    assert "outside_kernel" not in set(rows["name"])


def test_every_config_keeps_its_most_expensive_kernels(full: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorer, "MOST_ROWS", 18)
    rows = explorer.explorer(full)
    assert len(rows) == 18
    assert set(rows.groupby(["gpu", "config"]).size()) == {2}  # nine groups with a census
    assert set(rows["name"]) == {"convolution_kernel"}


def test_the_report_keeps_each_text_once_and_leaves_empty_columns_out(full: Dataset) -> None:
    content = as_json(explorer.explorer(full))
    columns = {column["name"]: column for column in content["columns"]}
    assert {"ipc", "operator", "flops", "score_ns"}.isdisjoint(columns)
    assert len(columns["name"]["words"]) == len(set(columns["name"]["words"])) == 5
    assert len(columns["name"]["values"]) == content["rows"]
    assert max(columns["step_ns"]["values"]) == pytest.approx(625)  # ms: opt2's backward convolutions


def test_without_a_census_there_are_no_rows(tmp_path: Path) -> None:
    rows = explorer.explorer(Dataset(Crafted(tmp_path).survey()))
    assert list(rows.columns) == [column.name for column in COLUMNS]
    assert as_json(rows)["rows"] == 0
