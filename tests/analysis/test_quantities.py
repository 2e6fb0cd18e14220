"""Quantities of groups: every scope by its own rows, several classes from their totals, ratios paired by repeat."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gpustudy.analysis import bounds, quantities
from gpustudy.analysis.dataset import Dataset, Group
from gpustudy.metrics.catalogue import load_catalogue
from gpustudy.metrics.schemas import Identity, write_table
from gpustudy.study.states import CellState, StageState, Survey
from tests.analysis.crafted import load_study_of_checkout

T_OF_2 = 4.302652729911275
"""Two-sided 95 % quantile of Student's t with two degrees of freedom."""


def row(
    quantity: str, value: float, scope: str = "total", kernel_class: str | None = None, **more: Any
) -> dict[str, Any]:
    return {"stage": "counters", "quantity": quantity, "scope": scope, "kernel_class": kernel_class, "value": value,
            "unit": "", "state": "done", "origin": "crafted"} | more  # fmt: skip


def cell(root: Path, config: str, repeat: int, rows: Iterable[dict[str, Any]], gpu: str = "a100") -> CellState:
    folder = root / gpu / config / f"r{repeat}" / "counters"
    write_table(folder / "cells.parquet", "cells", list(rows), Identity("other-name", config, repeat, "0" * 12))
    (folder / "metrics.json").write_text("{}")
    stage = StageState("counters", "0" * 12, "done", "", None, folder, "")
    return CellState(gpu, config, repeat, "done", "", (), False, (stage,))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Three repeats of baseline, two of opt1: conv and elementwise with known totals."""
    root = tmp_path_factory.mktemp("quantities")
    cells = []
    for repeat, factor in ((1, 1.0), (2, 2.0), (3, 4.0)):
        rows = [
            row("sm_active_cycles", 1000.0 * factor),
            row("sm_active_cycles", 800.0 * factor, kernel_class="conv"),
            row("sm_active_cycles", 100.0 * factor, kernel_class="gemm"),
            row("sm_active_cycles", 100.0 * factor, kernel_class="elementwise"),
            row("sm_active_cycles", 10.0, scope="launch_median"),
            row("sm_active_cycles", 7.0, scope="first_n"),
            row("tensor_pipe_pct", 40.0, kernel_class="conv"),
            row("tensor_pipe_pct", 4.0, kernel_class="gemm"),
            row("l2_hit_pct", 50.0, kernel_class="conv"),
            row("l2_sector_hits", 50.0, kernel_class="conv"),
            row("l2_sector_misses", 50.0, kernel_class="conv"),
            row("l2_sector_hits", 270.0, kernel_class="gemm"),
            row("l2_sector_misses", 30.0, kernel_class="gemm"),
            row("stall_wait_cycles", 300.0, kernel_class="conv"),
            row("stall_selected_cycles", 100.0, kernel_class="conv"),
            row("stall_wait_cycles", 100.0, kernel_class="gemm"),
            row("stall_selected_cycles", 300.0, kernel_class="gemm"),
            row("class_time_ns", 5.0, scope="step", kernel_class="conv", phase="forward"),
            row("class_time_ns", 7.0, scope="step", kernel_class="conv", phase="backward"),
            row("class_time_ns", 2.0, scope="step", kernel_class="gemm", phase="forward"),
            row("flops", 2.0 * 32 * 1e6, scope="step", origin="modelled"),
            row("warp_instructions", 2e6),
            row("ipc", 1.0 + repeat),
        ]  # fmt: skip
        cells.append(cell(root, "baseline", repeat, rows))
    for repeat, factor in ((1, 0.5), (2, 1.0)):
        rows = [row("sm_active_cycles", 1000.0 * factor), row("ipc", 0.0)]
        rows.append(row("sm_active_cycles", 1.0, scope="launch_median", low=0.5, high=2.0, interval="quartiles", n=9))
        cells.append(cell(root, "opt1", repeat, rows))
    return Dataset(Survey(load_study_of_checkout(), "local", root, tuple(cells)))


def group(dataset: Dataset, config: str) -> Group:
    return next(one for one in dataset.groups("a100") if one.config == config)


def known(estimate: Any) -> float:
    assert estimate is not None
    return float(estimate.value)


def test_positive_sums_have_a_geometric_mean_and_ratios_an_arithmetic_one(dataset: Dataset) -> None:
    cycles = quantities.value(dataset, group(dataset, "baseline"), "sm_active_cycles")
    assert cycles is not None
    assert (cycles.value, cycles.n) == (pytest.approx(2000.0), 3)
    assert cycles.high == pytest.approx(2000 * math.exp(T_OF_2 * math.log(2) / math.sqrt(3)))
    ipc = quantities.value(dataset, group(dataset, "baseline"), "ipc")
    assert ipc is not None
    assert (ipc.value, ipc.high) == (pytest.approx(3.0), pytest.approx(3 + T_OF_2 / math.sqrt(3)))


def test_scopes_are_kept_apart(dataset: Dataset) -> None:
    base = group(dataset, "baseline")
    assert known(quantities.value(dataset, base, "sm_active_cycles", quantities.LAUNCH_MEDIAN)) == pytest.approx(10)
    assert known(quantities.value(dataset, base, "sm_active_cycles", quantities.FIRST_N)) == pytest.approx(7)
    assert quantities.value(dataset, base, "sm_active_cycles", quantities.LAUNCH_MEAN) is None


def test_percentages_of_several_classes_come_from_their_totals(dataset: Dataset) -> None:
    base = group(dataset, "baseline")
    both = ("conv", "gemm")
    assert known(quantities.value(dataset, base, "tensor_pipe_pct", kernel_class=both)) == pytest.approx(
        (40 * 800 + 4 * 100) / 900
    )
    assert known(quantities.value(dataset, base, "l2_hit_pct", kernel_class=both)) == pytest.approx(100 * 320 / 400)
    assert known(quantities.value(dataset, base, "stall_wait", kernel_class=both)) == pytest.approx(400 / 400)
    assert known(quantities.value(dataset, base, "sm_active_cycles", kernel_class=both)) == pytest.approx(1800.0)
    assert quantities.value(dataset, base, "sm_active_cycles", quantities.LAUNCH_MEDIAN, both) is None


def test_census_times_add_up_over_what_is_not_asked_for(dataset: Dataset) -> None:
    base = group(dataset, "baseline")
    assert known(quantities.value(dataset, base, "class_time_ns", "step", "conv")) == pytest.approx(12.0)
    assert known(quantities.value(dataset, base, "class_time_ns", "step", phase="forward")) == pytest.approx(7.0)
    assert known(quantities.value(dataset, base, "class_time_ns", "step", "conv", "backward")) == pytest.approx(7.0)
    assert known(quantities.share(dataset, base, "class_time_ns", "conv", "step")) == pytest.approx(12 / 14)
    assert known(quantities.share(dataset, base, "class_time_ns", "padding", "step")) == 0.0


def test_ratios_to_baseline_are_paired_by_repeat(dataset: Dataset) -> None:
    ratio = quantities.ratio_to_baseline(dataset, group(dataset, "opt1"), "sm_active_cycles")
    assert ratio is not None
    assert (ratio.value, ratio.n) == (pytest.approx(0.5), 2)
    assert ratio.low == pytest.approx(0.5)  # both pairs agree
    assert quantities.ratio_to_baseline(dataset, group(dataset, "opt1"), "ipc") is None  # 0 has no ratio
    assert quantities.ratio_to_baseline(dataset, group(dataset, "opt1"), "dram_bytes") is None


def test_a_cell_keeps_the_interval_of_its_own_row(dataset: Dataset) -> None:
    rows = quantities.by_repeat(dataset, group(dataset, "opt1"), "sm_active_cycles", "launch_median", None, None)
    assert rows[1] == (1.0, 0.5, 2.0, "quartiles", 9)


def test_origins_tell_modelled_from_measured(dataset: Dataset) -> None:
    base = group(dataset, "baseline")
    assert quantities.origins(dataset, base, "flops", "step") == {"modelled"}
    assert quantities.origins(dataset, base, "ipc") == {"crafted"}


def test_ratios_know_the_denominators_of_the_catalogue() -> None:
    """Each ratio's first denominator in the catalogue is the first expression of the sum named here."""
    catalogue = {quantity.name: quantity for quantity in load_catalogue().quantities}
    for name, total in quantities.RATIO_OVER.items():
        assert catalogue[name].aggregate in ("ratio", "time_weighted"), name
        assert catalogue[total].aggregate == "sum", total
    sums = {quantity.name for quantity in catalogue.values() if quantity.aggregate == "sum"}
    assert not [name for name in sums if quantities.is_ratio(name)]
    ratios = {quantity.name for quantity in catalogue.values() if quantity.aggregate in ("ratio", "time_weighted")}
    assert not [name for name in ratios if not quantities.is_ratio(name)]
    for per_issue, cycles in quantities.STALLS.items():
        assert catalogue[per_issue].aggregate == "ratio"
        assert catalogue[cycles].aggregate == "sum"


def test_instruction_bounds_are_those_of_the_matrix_shapes() -> None:
    assert bounds.least_ratio("sm_80", "tf32") == pytest.approx(1 / 32)  # m16n8k8: 1024 multiply-adds to FFMA's 32
    assert bounds.HMMA_M16N8K4_MACS == 16 * bounds.FFMA_MACS
    assert bounds.least_ratio("sm_90", "tf32") == pytest.approx(1 / 1024)  # 131072 per warpgroup, 32768 per warp
    assert bounds.least_ratio("sm_70", "tf32") == 1.0  # no TF32 on Volta
    assert bounds.least_instructions(32e6, "sm_70", "fp32") == 1e6
    assert bounds.precision_of(["tf32", "channels_last"]) == "tf32"
    assert bounds.precision_of([], pytorch_defaults=True) == "tf32"
    assert bounds.precision_of(["tf32", "bf16"]) == "fp16"


def test_measured_baselines_give_the_bound_of_a_step(dataset: Dataset) -> None:
    """32e6 multiply-adds by FFMA are 1e6 instructions, half of the 2e6 measured; by TF32, 1/32 of that."""
    assert bounds.least_measured_ratio(dataset, group(dataset, "baseline")) == pytest.approx(0.5)
    assert bounds.least_measured_ratio(dataset, group(dataset, "opt1")) == pytest.approx(0.5 / 32)
