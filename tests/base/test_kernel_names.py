"""Kernel names in the spelling of PyTorch's traces and in that of Nsight Compute."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from gpustudy.base.kernel_names import function_name, kernel_identity

PAIRS = [
    # each kernel's second spelling is from public ncu and nsys output
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<"
        "char*, 3> >(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)",
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>, "
        "at::detail::Array<char *, (int)3>>(int, T2, T3)",
    ),
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> "
        ">(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>, std::array<char *, "
        "(unsigned long)3>>(int, T2, T3)",
    ),
    (
        "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous "
        "namespace)::GeluCUDAKernelImpl(at::TensorIteratorBase&)::{lambda()#1}::operator()() "
        "const::{lambda()#4}::operator()() const::{lambda(float)#1}, at::detail::Array<char*, 2> >(int, at::native::"
        "(anonymous namespace)::GeluCUDAKernelImpl(at::TensorIteratorBase&)::{lambda()#1}::operator()() "
        "const::{lambda()#4}::operator()() const::{lambda(float)#1}, at::detail::Array<char*, 2>)",
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::<unnamed>::GeluCUDAKernelImpl("
        "at::TensorIteratorBase &)::[lambda() (instance 1)]::operator ()() const::[lambda() (instance 4)]::operator "
        "()() const::[lambda(float) (instance 1)], at::detail::Array<char *, (int)2>>(int, T2, T3)",
    ),
    (
        "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 9, true, "
        "false>(c10::BFloat16*, c10::BFloat16 const*, int, int, int, bool const*, int, bool)",
        "void <unnamed>::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, (int)9, (bool)1, (bool)0>(T2 *, "
        "const T1 *, int, int, int, const bool *, int, bool)",
    ),
    ("ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1",) * 2,
]


@pytest.mark.parametrize(("trace", "ncu"), PAIRS)
def test_both_spellings_are_one_kernel(trace: str, ncu: str) -> None:
    assert kernel_identity(trace) == kernel_identity(ncu)
    assert function_name(trace) == function_name(ncu)


def test_identity_in_full() -> None:
    assert kernel_identity(PAIRS[0][0]) == (
        "at::native::vectorized_elementwise_kernel<4,at::native::CUDAFunctor_add<float>,at::detail::Array<char*,3>>"
    )


def test_kernels_that_differ_stay_apart() -> None:
    kernels = {
        "void f<4, A>(int)",
        "void f<2, A>(int)",
        "void f<4, B>(int)",
        "void g<4, A>(int)",
        "void f<4, A()::{lambda()#1}>(int)",
        "void f<4, A()::{lambda()#2}>(int)",
    }
    assert len({kernel_identity(name) for name in kernels}) == len(kernels)


def test_kernels_of_a_real_trace_stay_apart_and_plain(shared_data: Path) -> None:
    for file in sorted((shared_data / "kineto").glob("*.json.gz")):
        with gzip.open(file, "rt") as stream:
            events = json.load(stream)["traceEvents"]
        names = {event["name"] for event in events if event.get("cat") == "kernel"}
        assert len({kernel_identity(name) for name in names}) == len(names)
        assert all(re.fullmatch(r"\w+", function_name(name)) for name in names)
        assert not any(" " in kernel_identity(name) or "(" in kernel_identity(name) for name in names)
