"""Census names beside profiled names: demangling to ncu's short form, cut names, missing backward."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from gpustudy.base.kernel_names import function_name
from gpustudy.cell.ncu_census import read_census
from gpustudy.cell.ncu_compare import compare_names, is_same_name
from tests.cell.ncu_trace import ADD, FORWARD_CONV, REDUCE, WGRAD, training_trace

ALL_NAMES = [
    "vectorized_elementwise_kernel",
    "implicit_convolveNd_sgemm",
    "wgrad_alg1_nd_float_engine",
    "reduce_kernel",
]


@pytest.mark.parametrize(
    ("demangled", "short"),
    [
        (REDUCE, "reduce_kernel"),
        (ADD, "vectorized_elementwise_kernel"),
        (WGRAD, "wgrad_alg1_nd_float_engine"),
        (FORWARD_CONV, "implicit_convolveNd_sgemm"),
        (
            "void cask_cudnn::computeOffsetsKernel<false, false>(cask_cudnn::ComputeOffsetsParams)",
            "computeOffsetsKernel",
        ),
        (
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<at::native::(anonymous "
            "namespace)::OpaqueType<4u>, unsigned int, 1, 128, 1>(at::native::(anonymous namespace)::OpaqueType<4u>*)",
            "CatArrayBatchedCopy_aligned16_contig",
        ),
        ("void at::native::f<decltype(a->b)>(int)", "f"),
        ("triton_poi_fused_add_cos_sin_0", "triton_poi_fused_add_cos_sin_0"),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        ("std::enable_if<true, void>::type cub::Kernel<int>(int)", "Kernel"),
    ],
)
def test_function_name_of_demangled_kernels(demangled: str, short: str) -> None:
    assert function_name(demangled) == short


def test_every_kernel_of_a_real_trace_has_a_plain_function_name(shared_data: Path) -> None:
    for file in sorted((shared_data / "kineto").glob("*.json.gz")):
        with gzip.open(file, "rt") as stream:
            events = json.load(stream)["traceEvents"]
        for name in {event["name"] for event in events if event.get("cat") == "kernel"}:
            assert re.fullmatch(r"\w+", function_name(name)), name


def test_cut_name_matches_what_it_begins() -> None:
    # from a public log: 29 characters and the mark
    assert is_same_name("distribution_elementwise_grid...", "distribution_elementwise_grid_stride_kernel")
    assert not is_same_name("distribution_elementwise_grid...", "distribution_nullary_kernel")
    assert is_same_name("reduce_kernel", "reduce_kernel")
    assert not is_same_name("reduce_kernel", "reduce_kernel_2")


def test_equal_names_do_not_differ(tmp_path: Path) -> None:
    census = read_census(training_trace().write(tmp_path / "trace.json.gz"))
    comparison = compare_names(census, ALL_NAMES)
    assert not comparison.differs
    assert not comparison.lacks_backward
    assert comparison.census["vectorized_elementwise_kernel"] == 2.0
    assert comparison.backward_only == ("reduce_kernel", "wgrad_alg1_nd_float_engine")
    assert comparison.backward_profiled == 2


def test_changed_algorithm_is_reported_on_both_sides(tmp_path: Path) -> None:
    census = read_census(training_trace().write(tmp_path / "trace.json.gz"))
    comparison = compare_names(census, [*ALL_NAMES[:2], "wgrad2d_grouped_direct_kernel", "reduce_kernel"])
    assert comparison.only_census == ("wgrad_alg1_nd_float_engine",)
    assert comparison.only_profiled == ("wgrad2d_grouped_direct_kernel",)
    assert comparison.differs


def test_forward_alone_lacks_backward(tmp_path: Path) -> None:
    census = read_census(training_trace().write(tmp_path / "trace.json.gz"))
    assert compare_names(census, ALL_NAMES[:2]).lacks_backward


def test_cut_name_that_fits_forward_too_is_no_evidence_of_backward(tmp_path: Path) -> None:
    trace = training_trace(steps=1)
    for event in trace.events:
        if event["name"] == WGRAD:
            event["name"] = "implicit_convolveNd_sgemm_wgrad"
    census = read_census(trace.write(tmp_path / "trace.json.gz"))
    assert compare_names(census, ["implicit_convolveNd_..."]).lacks_backward
