"""Writes small profiler traces of the documented form; times in microseconds, crafted."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

REDUCE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(at::native::ReduceOp<float>)"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)"
)
WGRAD = "void cudnn::detail::wgrad_alg1_nd_float_engine<float, 3, 0, 5, 7, 4>(int, int, int, float const*)"
FORWARD_CONV = "void implicit_convolveNd_sgemm<float, 3, 1024, 5, 5, 3, 3, 3, 1, false>(int, int, int, float const*)"


class TraceBuilder:
    """Collects events; every launch is 10 µs after the one before, its kernel 1000 µs later on the device."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.time = 100.0
        self._correlation = 0

    def annotation(self, name: str, start: float, end: float) -> None:
        self._complete("user_annotation", name, start, end - start, 1)

    def launch(
        self,
        name: str,
        operators: tuple[str, ...] = (),
        thread: int = 1,
        duration: float = 5.0,
        grid: tuple[int, int, int] = (8, 1, 1),
        shared: int = 0,
    ) -> None:
        self.time += 10
        self._correlation += 1
        for depth, operator in enumerate(operators):
            self._complete("cpu_op", operator, self.time - 2 + 0.1 * depth, 4 - 0.2 * depth, thread)
        correlation = {"correlation": self._correlation}
        self._complete("cuda_runtime", "cudaLaunchKernel", self.time, 1, thread, correlation)
        arguments = correlation | {"grid": list(grid), "block": [128, 1, 1], "shared memory": shared, "stream": 7}
        self._complete("kernel", name, self.time + 1000, duration, 7, arguments)

    def write(self, path: Path) -> Path:
        with gzip.open(path, "wt") as stream:
            json.dump({"schemaVersion": 1, "traceEvents": self.events}, stream)
        return path

    def _complete(
        self, category: str, name: str, start: float, duration: float, thread: int, arguments: Any = None
    ) -> None:
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, "ts": start, "dur": duration}
            | ({"args": arguments} if arguments else {})
        )


def training_trace(steps: int = 2) -> TraceBuilder:
    """Return a trace of steps with two forward adds, a forward convolution, a backward wgrad and a reduction."""
    trace = TraceBuilder()
    trace.launch(REDUCE)  # before the first step: not part of the census
    for _ in range(steps):
        start = trace.time + 5
        trace.launch(ADD, ("aten::add",), duration=4.0)
        trace.launch(ADD, ("aten::add",), duration=6.0)
        trace.launch(FORWARD_CONV, ("aten::conv3d", "aten::cudnn_convolution"), shared=1024)
        middle = trace.time + 5
        trace.annotation("gpustudy.forward", start, middle)
        trace.launch(WGRAD, ("ConvolutionBackward0", "aten::convolution_backward"), thread=2, duration=50.0)
        trace.launch(REDUCE, ("aten::sum",), thread=2)
        end = trace.time + 5
        trace.annotation("gpustudy.backward", middle, end)
        trace.annotation("gpustudy.step", start, end)
    return trace
