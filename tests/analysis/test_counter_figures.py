"""Figures of counters, timelines and costs: the marks lie where hand computation puts them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import gpustudy
from gpustudy.analysis import families, style
from gpustudy.analysis.dataset import Dataset, Group
from gpustudy.analysis.draw import figure_of
from gpustudy.analysis.figures import class_share, instruction_mix, priority, profiling_cost, roofline, stalls
from gpustudy.analysis.figures.step_timeline import BINS, runs, stretches
from gpustudy.analysis.floor import device_peaks, dram_ceiling, floor_of
from gpustudy.study.states import survey
from tests.analysis.test_figures import panel, texts_of
from tests.support.crafted_study import Truth, craft_study, crafted_effective

CONVOLUTION_US = 6 * 6000 + 2 * 3000 + 6 * 7000 + 6 * 8000
"""Time of the crafted baseline's convolutions in a step on the a100."""

OTHER_US = 1000 + 300 + 4200 + 2400 + 1000 + 1200 + 3200 + 1000 + 2000
"""Time of all its other kernels: products, softmax, norm, SiLU, upsampling, concatenation, add, reduction, Adam."""

COPY_US = 200
"""Time of its copy to the device, which the counters do not see."""


def group(dataset: Dataset, gpu: str, config: str) -> Group:
    return next(one for one in dataset.groups(gpu) if one.config == config)


def test_every_kernel_class_is_of_one_family() -> None:
    path = Path(gpustudy.__file__).parent / "metrics" / "kernel_classes.csv"
    with path.open(newline="") as stream:
        known = {row["class"] for row in csv.DictReader(stream)}
    named = [name for names in families.FAMILIES.values() for name in names]
    assert len(named) == len(set(named))
    assert known | {"unclassified"} == set(named)
    assert len(families.FAMILIES) == len(style.COLOURS)


def test_class_shares_are_those_of_the_times(counted: Dataset) -> None:
    shares = class_share.family_shares(counted, group(counted, "a100", "baseline"))
    whole = CONVOLUTION_US + OTHER_US + COPY_US
    assert shares["convolution"] == pytest.approx(CONVOLUTION_US / whole, rel=1e-4)
    assert shares["copy, memset"] == pytest.approx((1200 + COPY_US) / whole, rel=1e-4)
    assert sum(shares.values()) == pytest.approx(1)


def test_cycles_show_the_scopes_apart(counted: Dataset) -> None:
    """TF32 makes the crafted convolutions five times faster: cycles of a step and of the average launch follow."""
    with style.look():
        marks = panel(figure_of("cycles_and_instructions", counted), "a100")
    row = 2  # opt1
    after = (CONVOLUTION_US / 5 + OTHER_US) / (CONVOLUTION_US + OTHER_US)
    of_step = [x for x, y in marks["D"] if abs(y - row) < 0.5]
    of_launch = [x for x, y in marks["o"] if abs(y - row) < 0.5]
    of_median = [x for x, y in marks["^"] if abs(y - row) < 0.5]
    assert of_step == pytest.approx([after], rel=1e-3)
    assert of_launch == pytest.approx([after], rel=1e-3)  # the same kernels, as many launches
    assert of_median == pytest.approx([1.0], rel=2e-3)  # the middle launch is none of the convolutions
    assert not [x for x, y in marks["D"] if abs(y - 1) < 0.5]  # baseline is the reference


def test_instruction_mix_adds_up_and_shows_tensor_instructions(counted: Dataset) -> None:
    base = instruction_mix.mix_of(
        counted, group(counted, "a100", "baseline"), instruction_mix.OPCODE, "warp_instructions"
    )
    tensor = instruction_mix.mix_of(
        counted, group(counted, "a100", "opt1"), instruction_mix.OPCODE, "warp_instructions"
    )
    assert sum(base.values()) == pytest.approx(100)
    assert base["MMA (tensor)"] == 0.0
    assert tensor["MMA (tensor)"] > 10
    assert base["load, store"] == pytest.approx(15.0)  # every crafted kernel has 15 %
    assert instruction_mix.mix_of(counted, group(counted, "cpu", "baseline"), {}, "warp_instructions") == {}


def test_stalls_are_ordered_and_keep_a_column_for_what_is_missing(counted: Dataset) -> None:
    per_issue, cycles = stalls.stall_tables(counted, "h100")
    assert per_issue.index[0] == "long scoreboard"
    assert per_issue.loc["selected", "baseline"] == pytest.approx(1.0)
    assert per_issue.index[-1] == cycles.index[-1] == stalls.OTHERS
    assert per_issue["opt2\nmissing\n(foreign)"].isna().all()
    ratio = cycles.loc["long scoreboard", "baseline"] / cycles.loc["selected", "baseline"]
    assert ratio == pytest.approx(per_issue.loc["long scoreboard", "baseline"])


def test_scores_are_time_times_estimate(counted: Dataset) -> None:
    top = priority.top_kernels(priority.kernel_scores(counted), "a100")
    name = next(name for name in top.index if "fprop_small" in name)
    assert top.loc[name, "baseline"] == pytest.approx(6 * 6.0 * 0.12, rel=1e-3)  # six launches of 6 ms, 12 %
    assert len(top) == priority.TOP
    assert top.max(axis=1).is_monotonic_decreasing


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("volta_sgemm_128x32_nt", "volta_sgemm_128x32_nt"),
        ("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(int)", "ops::nchwToNhwcKernel"),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
            "vectorized_elementwise_kernel<CUDAFunctor_add>",
        ),
        ("void (anonymous namespace)::softmax_warp_forward<float, 10, false>(float*)", "softmax_warp_forward"),
    ],
)
def test_kernel_names_are_cut_to_what_tells_them_apart(name: str, short: str) -> None:
    assert priority.short_name(name) == short


def test_cost_is_the_time_of_the_stages(counted: Dataset) -> None:
    found = profiling_cost.mean_seconds(counted, group(counted, "a100", "baseline"))
    assert found == {"train": 30.0, "census": 12.0, "counters": 600.0, "quality": 45.0}
    with style.look():
        texts = texts_of(figure_of("profiling_cost", counted))
    assert "51 of 52 launches" in texts  # all launches of a step but the copy


def test_runs_fill_the_parts_that_launches_touch() -> None:
    found = runs(np.array([0.0, 0.001, 0.5]), np.array([0.001, 0.002, 0.5]), longest=1.0)
    assert found == [(0.0, pytest.approx(2 / BINS)), (pytest.approx(0.5), pytest.approx(1 / BINS))]
    assert runs(np.array([0.999]), np.array([1.0]), longest=1.0) == [
        (pytest.approx(1 - 1 / BINS), pytest.approx(1 / BINS))
    ]


def test_stretches_keep_micro_batches_apart() -> None:
    phases = np.array(["forward", "forward", "backward", "forward", "backward"], dtype=object)
    start = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    assert stretches(phases, start, start + 0.5) == [
        ("forward", 0.0, 1.5), ("backward", 2.0, 2.5), ("forward", 3.0, 3.5), ("backward", 4.0, 4.5),
    ]  # fmt: skip


def test_operations_count_fused_instructions_twice_and_tensor_ones_as_counted() -> None:
    totals = dict.fromkeys(roofline.OPERATIONS, 0.0) | {
        "thread_instructions_fp32": 320.0, "opcode_fp32_fused": 7.5, "opcode_fp32_unfused": 2.5,
        "tf32_operations": 1000.0,
    }  # fmt: skip
    assert roofline.float_operations(totals) == pytest.approx(320 * 1.75 + 1000)


def test_roofline_points_share_their_rate_and_halve_their_intensity(counted: Dataset) -> None:
    """Crafted L2 traffic is twice that of DRAM, L1's twice that of L2."""
    point = roofline.points_of(counted, group(counted, "a100", "baseline"))[0]
    assert point.family == "convolution"
    assert point.intensity["DRAM"] == pytest.approx(2 * point.intensity["L2"])
    assert point.intensity["L2"] == pytest.approx(2 * point.intensity["L1"])
    ceilings = roofline.ceilings_of(counted, "a100")
    assert ceilings.flops == {"FP32": 19.5e12, "TF32": 156e12, "FP16": 312e12}
    assert ceilings.is_dram_cited


def test_memory_bandwidth_that_nobody_cites_comes_from_the_counters(tmp_path: Path) -> None:
    """The H100 with 96 GB: the crafted counters take 1000 bytes/ns as 100 %."""
    truth = Truth(provenance={"h100": {"device_name": "NVIDIA H100"}}, absent={"v100", "a100", "cpu"}, repeats=1)
    effective = crafted_effective(tmp_path / "results", configs=("baseline",))
    dataset = Dataset(survey(craft_study(effective, truth)))
    peaks = device_peaks(dataset, "h100")
    assert peaks is not None
    assert peaks.product == "H100-SXM5-96GB"
    memory = dram_ceiling(dataset, "h100", peaks)
    assert memory is not None
    assert memory.rate == pytest.approx(1e12, rel=0.05)
    assert not memory.is_cited


def test_a_device_that_is_not_known_has_no_ceilings_whatever_the_study_says(tmp_path: Path) -> None:
    truth = Truth(provenance={"h100": {"device_name": "NVIDIA H100 PCIe"}}, absent={"v100", "a100", "cpu"}, repeats=1)
    effective = crafted_effective(tmp_path / "results", configs=("baseline",))
    dataset = Dataset(survey(craft_study(effective, truth)))
    assert device_peaks(dataset, "h100") is None
    assert floor_of(dataset, group(dataset, "h100", "baseline")) is None
    assert roofline.ceilings_of(dataset, "h100").flops == {}
    with style.look():
        assert "h100 baseline" in texts_of(figure_of("roofline", dataset))
