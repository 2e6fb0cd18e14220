"""The launches table: phases by time, operators by correlation, self times that sum to the step."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode

from gpustudy.metrics.classes import UNCLASSIFIED
from gpustudy.metrics.launches import launches_of
from gpustudy.metrics.schemas import Identity, read_table, write_table
from gpustudy.metrics.trace import read_trace
from tests.metrics.traces import Event, annotation, call, host, kernel, write_trace

MAIN, AUTOGRAD = 1, 2


def _rows(path: Path, events: list[Event]) -> list[dict[str, Any]]:
    launches = launches_of(read_trace(write_trace(path / "t.json", events)))
    columns = launches.columns
    return [{name: values[index] for name, values in columns.items()} for index in range(len(launches))]


GPU_STEP = [
    annotation("gpustudy.step", 0, 1000),
    annotation("gpustudy.data", 0, 50),
    annotation("gpustudy.forward", 50, 250),
    host("aten::conv3d", 100, 60),
    host("aten::cudnn_convolution", 110, 40, **{"Input Dims": [[1, 3, 8, 8, 8], [32, 3, 3, 3, 3]]}),
    call(1, 115),
    call(2, 120),
    annotation("gpustudy.backward", 300, 400),
    host("autograd::engine::evaluate_function: ConvolutionBackward0", 400, 100, AUTOGRAD),
    host("aten::convolution_backward", 410, 80, AUTOGRAD),
    call(3, 420, AUTOGRAD),
    annotation("gpustudy.optimiser", 700, 250),
    call(4, 800, name="cudaMemsetAsync"),
    call(5, 20, name="cudaMemcpyAsync"),
    # the device runs far behind: nothing may be told from the time of the kernel
    kernel("void cudnn::ops::nchwToNhwcKernel<float>()", 1, 900, 10, grid=[8, 1, 1], block=[256, 1, 1]),
    kernel("sm80_xmma_fprop_implicit_gemm", 2, 910, 30, **{"registers per thread": 128, "shared memory": 49152}),
    kernel("sm80_xmma_wgrad_implicit_gemm", 3, 1200, 40.5),
    kernel("Memset (Device)", 4, 1300, 1, category="gpu_memset"),
    kernel("Memcpy HtoD (Pinned -> Device)", 5, 850, 2, category="gpu_memcpy"),
]


def test_phase_and_operator_come_from_the_launching_call(tmp_path: Path) -> None:
    rows = {row["name"].split("(")[0].strip(): row for row in _rows(tmp_path, GPU_STEP)}
    assert {name: row["phase"] for name, row in rows.items()} == {
        "Memcpy HtoD": "data",
        "void cudnn::ops::nchwToNhwcKernel<float>": "forward",
        "sm80_xmma_fprop_implicit_gemm": "forward",
        "sm80_xmma_wgrad_implicit_gemm": "backward",
        "Memset": "optimiser",
    }
    assert {row["step"] for row in rows.values()} == {0}
    assert rows["sm80_xmma_fprop_implicit_gemm"]["operator"] == "aten::cudnn_convolution"
    assert rows["sm80_xmma_wgrad_implicit_gemm"]["operator"] == "aten::convolution_backward"
    assert rows["Memset"]["operator"] is None
    assert rows["sm80_xmma_fprop_implicit_gemm"]["input_shapes"] == "[[1, 3, 8, 8, 8], [32, 3, 3, 3, 3]]"


def test_launch_facts_are_kept_and_absent_ones_are_null(tmp_path: Path) -> None:
    rows = {row["name"]: row for row in _rows(tmp_path, GPU_STEP)}
    layout = rows["void cudnn::ops::nchwToNhwcKernel<float>()"]
    assert (layout["grid"], layout["block"], layout["registers_per_thread"]) == ([8, 1, 1], [256, 1, 1], None)
    forward = rows["sm80_xmma_fprop_implicit_gemm"]
    assert (forward["registers_per_thread"], forward["shared_memory_bytes"], forward["grid"]) == (128, 49152, None)
    assert (forward["stream"], forward["start_ns"], forward["duration_ns"]) == (7, 910_000, 30_000)
    assert rows["sm80_xmma_wgrad_implicit_gemm"]["duration_ns"] == 40_500


@pytest.mark.parametrize("category", ["cuda_runtime", "hip_runtime"])
def test_a_rocm_trace_gives_the_same_table(tmp_path: Path, category: str) -> None:
    """In the form that Kineto writes on ROCm: calls named hip..., which carry the sizes of what they launch."""
    sizes = {"grid": [64, 1, 1], "block": [256, 1, 1], "shared memory": 25600}
    events = [
        annotation("gpustudy.step", 0, 100),
        annotation("gpustudy.forward", 0, 60),
        host("aten::addmm", 10, 30, **{"Input Dims": [[8], [4, 16], [16, 8]], "External id": 7}),
        host("hipExtModuleLaunchKernel", 20, 2, category=category, correlation=1, cid=0, **sizes),
        host("hipMemcpyWithStream", 70, 2, category=category, correlation=2, cid=1),
        kernel("Cijk_Ailk_Bljk_SB_MT128x128x8", 1, 90, 12, hsa_queue=0, kind="Dispatch Kernel"),
        kernel("Memcpy HtoD (Host -> Device)", 2, 95, 3, category="gpu_memcpy", hsa_queue=0, kind="HtoD"),
    ]
    product, copy = _rows(tmp_path, events)
    assert (product["class"], product["phase"], product["operator"]) == ("gemm", "forward", "aten::addmm")
    assert (product["grid"], product["block"], product["shared_memory_bytes"]) == ([64, 1, 1], [256, 1, 1], 25600)
    assert (product["duration_ns"], product["flops"]) == (12_000, 2 * 4 * 16 * 8)
    assert (copy["class"], copy["phase"], copy["grid"]) == ("copy", "other", None)


@pytest.mark.parametrize("grid", [["a", 1, 1], [[1], 1, 1], [-(10**30), 1, 1]])
def test_facts_that_are_no_numbers_are_null(tmp_path: Path, grid: list[Any]) -> None:
    facts = {"grid": grid, "stream": "0x7f", "registers per thread": 10**12, "shared memory": 10**30}
    (row,) = _rows(tmp_path, [kernel("k", 1, 0, 5, **facts)])
    assert {row[name] for name in ("stream", "registers_per_thread", "shared_memory_bytes")} == {None}
    assert row["grid"] is None


@pytest.mark.parametrize("shapes", ["x", [["a", "b"], [1]], [[10**10] * 2] * 2, []])
def test_shapes_that_are_none_give_no_flops(tmp_path: Path, shapes: Any) -> None:
    (row,) = _rows(tmp_path, [host("aten::mm", 0, 5, **{"Input Dims": shapes})])
    assert row["flops"] is None


def test_external_ids_that_equal_correlation_ids_mislead_nobody(tmp_path: Path) -> None:
    events = [
        host("aten::wrong", 0, 5, **{"External id": 7}),
        host("aten::right", 10, 20, **{"External id": 99}),
        call(7, 15),
        kernel("k", 7, 40, 1, **{"External id": 7}),
    ]
    assert _rows(tmp_path, events)[0]["operator"] == "aten::right"


def test_without_the_launching_call_the_external_id_serves(tmp_path: Path) -> None:
    events = [host("aten::mm", 10, 20, **{"External id": 9}), kernel("Cijk_Ailk", 3, 40, 1, **{"External id": 9})]
    assert _rows(tmp_path, events)[0]["operator"] == "aten::mm"


def test_self_times_of_a_hand_made_step(tmp_path: Path) -> None:
    events = [
        annotation("gpustudy.step", 0, 100),
        annotation("gpustudy.forward", 5, 45),
        host("aten::conv3d", 10, 30),
        host("aten::convolution", 12, 26.5),
        annotation("gpustudy.optimiser", 60, 30),
        host("aten::add_", 70, 5),
    ]
    rows = _rows(tmp_path, events)
    assert {row["name"]: row["duration_ns"] for row in rows} == {
        "gpustudy.step": 100_000 - 45_000 - 30_000,
        "gpustudy.forward": 15_000,
        "aten::conv3d": 3_500,
        "aten::convolution": 26_500,
        "gpustudy.optimiser": 25_000,
        "aten::add_": 5_000,
    }
    assert sum(row["duration_ns"] for row in rows) == 100_000
    assert {row["name"]: row["class"] for row in rows}["gpustudy.forward"] == "framework"
    assert all(row["grid"] is None for row in rows if "grid" in row)


def test_waiting_for_another_thread_is_not_counted_twice(tmp_path: Path) -> None:
    events = [
        annotation("gpustudy.step", 0, 100),
        annotation("gpustudy.backward", 10, 80),
        host("aten::convolution_backward", 20, 50, AUTOGRAD),
    ]
    rows = {row["name"]: row for row in _rows(tmp_path, events)}
    assert rows["gpustudy.backward"]["duration_ns"] == 30_000
    assert rows["aten::convolution_backward"]["phase"] == "backward"
    assert sum(row["duration_ns"] for row in rows.values()) == 100_000


@st.composite
def _step(draw: st.DrawFn) -> list[Event]:
    """A step with operators nested at random, in whole microseconds."""
    events = [annotation("gpustudy.step", 0, 1000), host("aten::empty", 0, 0)]

    def fill(start: int, end: int, depth: int) -> None:
        cursor = start
        while depth and cursor < end and draw(st.booleans()):
            begin = draw(st.integers(cursor, end))
            length = draw(st.integers(0, end - begin))
            events.append(host("aten::add", begin, length))
            fill(begin, begin + length, depth - 1)
            cursor = begin + length

    fill(0, 1000, 4)
    return draw(st.permutations(events))


@given(_step())
@settings(max_examples=60, deadline=None)
def test_self_times_sum_to_the_step_exactly(tmp_path_factory: pytest.TempPathFactory, events: list[Event]) -> None:
    rows = _rows(tmp_path_factory.mktemp("step"), events)
    assert sum(row["duration_ns"] for row in rows) == 1_000_000
    assert all(row["duration_ns"] >= 0 for row in rows)


def test_steps_are_ours_else_the_profilers_else_all_is_one(tmp_path: Path) -> None:
    operators = [host("a", 5, 1), host("b", 15, 1), host("c", 25, 1)]
    profilers = [annotation("ProfilerStep#7", 0, 10), annotation("ProfilerStep#8", 10, 10)]
    ours = [annotation("gpustudy.step", 0, 20)]

    def steps(events: list[Event]) -> dict[str, int]:
        return {row["name"]: row["step"] for row in _rows(tmp_path, events) if row["name"] in "abc"}

    assert steps(operators) == {"a": 0, "b": 0, "c": 0}
    assert steps(operators + profilers) == {"a": 0, "b": 1, "c": -1}
    assert steps(operators + profilers + ours) == {"a": 0, "b": 0, "c": -1}


def test_phases_of_other_peoples_annotations_and_of_autograd(tmp_path: Path) -> None:
    events = [
        annotation("## forward ##", 0, 10),
        host("aten::relu", 1, 1),
        annotation("Optimizer.step#SGD.step", 40, 10),
        host("aten::add_", 41, 1),
        host("autograd::engine::evaluate_function: ReluBackward0", 20, 10, AUTOGRAD),
        host("aten::threshold_backward", 21, 1, AUTOGRAD),
        annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 60, 10),
        host("aten::stack", 61, 1),
        host("aten::item", 80, 1),
    ]
    phases = {row["name"]: row["phase"] for row in _rows(tmp_path, events)}
    assert phases["aten::relu"] == "forward"
    assert phases["aten::add_"] == "optimiser"
    assert phases["aten::threshold_backward"] == "backward"
    assert phases["aten::stack"] == "data"
    assert phases["aten::item"] == "other"


def test_flops_stand_on_the_first_launch_of_an_operator(tmp_path: Path) -> None:
    shapes = {"Input Dims": [[4, 8], [8, 16]]}
    events = [
        host("aten::matmul", 0, 50),
        host("aten::mm", 5, 40, **shapes),
        call(1, 10),
        call(2, 20),
        kernel("ampere_sgemm_128x64_nn", 1, 100, 5),
        kernel("void splitKreduce_kernel<32>()", 2, 110, 1),
    ]
    assert [row["flops"] for row in _rows(tmp_path, events)] == [2 * 4 * 8 * 16, None]


def test_a_formula_inside_a_formula_counts_once_on_the_cpu(tmp_path: Path) -> None:
    convolution = {
        "Input Dims": [[1, 3, 8, 8, 8], [32, 3, 3, 3, 3], [32], [], [], [], [], [], []],
        "Concrete Inputs": ["", "", "", "[1, 1, 1]", "[1, 1, 1]", "[1, 1, 1]", "False", "[0, 0, 0]", "1"],
    }
    events = [
        host("aten::convolution", 0, 50, **convolution),
        host("aten::mm", 5, 40, **{"Input Dims": [[32, 81], [81, 512]]}),
    ]
    assert [row["flops"] for row in _rows(tmp_path, events)] == [2 * 512 * 32 * 81, None]


def test_convolution_of_an_old_trace_takes_its_output_from_backward(tmp_path: Path) -> None:
    shapes = {"Input Dims": [[1, 32, 8, 8, 8], [32, 32, 3, 3, 3], [32]], "Sequence number": 5}
    forward = [host("aten::convolution", 0, 50, **shapes)]
    node = host("ConvolutionBackward0", 80, 9, **{"Input Dims": [[1, 32, 4, 4, 4]], "Sequence number": 5})
    assert _rows(tmp_path, forward)[0]["flops"] is None
    assert _rows(tmp_path, [*forward, node])[0]["flops"] == 2 * 64 * 32 * 32 * 27


@pytest.mark.parametrize("name", ["hta_alexnet", "hta_ns_resolution", "hta_triton_example"])
def test_real_gpu_traces_keep_every_launch_and_its_time(shared_data: Path, tmp_path: Path, name: str) -> None:
    path = shared_data / "kineto" / f"{name}.json.gz"
    raw = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    device = [event for event in raw if event.get("cat") in {"kernel", "gpu_memcpy", "gpu_memset"}]
    launches = launches_of(read_trace(path))
    write_table(tmp_path / "l.parquet", "launches", launches.columns, Identity("gpu", name, 0, "0" * 12))
    table = read_table(tmp_path / "l.parquet", "launches")
    assert Counter(table["name"].to_pylist()) == Counter(event["name"] for event in device)
    assert sum(table["duration_ns"].to_pylist()) == pytest.approx(sum(1000 * event["dur"] for event in device), abs=1)
    grids = [event["args"]["grid"] for event in device if "grid" in event["args"]]
    assert Counter(map(str, table["grid"].drop_null().to_pylist())) == Counter(map(str, grids))


def test_phases_of_a_real_trace_follow_its_ranges(shared_data: Path) -> None:
    """In the V100 trace the five steps repeat: each phase must have the same number of launches in each."""
    columns = launches_of(read_trace(shared_data / "kineto" / "hta_ns_resolution.json.gz")).columns
    counts = Counter(zip(columns["step"], columns["phase"], strict=True))
    assert counts == {
        (step, phase): count
        for step in range(5)
        for phase, count in (("forward", 460), ("backward", 750), ("optimiser", 9))
    }
    by_operator = {
        phase
        for phase, name in zip(columns["phase"], columns["operator"], strict=True)
        if name == "aten::convolution_backward"
    }
    assert by_operator == {"backward"}


def test_a_profile_taken_here_sums_to_its_steps_and_to_torchs_flops(tmp_path: Path) -> None:
    """Stated tolerance: self times account for each step within 0.1 % (exactly, when nothing else is traced)."""
    network = torch.nn.Sequential(
        torch.nn.Conv3d(3, 8, 3, padding=1),
        torch.nn.GroupNorm(4, 8),
        torch.nn.SiLU(),
        torch.nn.Conv3d(8, 2, 3, stride=2),
        torch.nn.Flatten(),
        torch.nn.Linear(54, 4),
    )
    optimiser = torch.optim.Adam(network.parameters())

    def step() -> None:
        with record_function("gpustudy.step"):
            with record_function("gpustudy.forward"):
                loss = network(torch.randn(1, 3, 8, 8, 8)).abs().mean()
            with record_function("gpustudy.backward"):
                loss.backward()
            with record_function("gpustudy.optimiser"):
                optimiser.step()

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        step()
        step()
    profiler.export_chrome_trace(str(tmp_path / "trace.json.gz"))
    with FlopCounterMode(display=False) as counter:
        step()
    launches = launches_of(read_trace(tmp_path / "trace.json.gz"))
    columns = launches.columns
    assert len(launches.step_ns) == 2
    for number, duration in enumerate(launches.step_ns):
        own = [time for time, at in zip(columns["duration_ns"], columns["step"], strict=True) if at == number]
        assert sum(own) == pytest.approx(duration, rel=1e-3)
    assert sum(count or 0 for count in columns["flops"]) == 2 * counter.get_total_flops() > 0
    phases = {phase for phase, name in zip(columns["phase"], columns["name"], strict=True) if "Adam" in name}
    assert phases == {"optimiser"}
    assert UNCLASSIFIED not in columns["class"]
