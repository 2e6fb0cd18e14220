"""The launches of a crafted step: kernels with known times and counters, for each gpu and config.

Nothing here was measured. Times and counters were chosen so that every figure and table has something to show and so
that a person can work out every sum: each kernel of a kind has the counters of that kind, and the configs differ
in which kernels a step has and how long they take.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gpustudy.metrics.classes import classify


@dataclass(frozen=True)
class Device:
    """A crafted GPU: how its launches are scaled, and what it is called."""

    name: str
    capability: str
    sms: int
    clock_hz: float
    slowness: float
    """Time of a launch over that on the crafted A100."""


DEVICES = {
    "v100": Device("Tesla V100-SXM2-32GB", "7.0", 80, 1.53e9, 2.0),
    "a100": Device("NVIDIA A100-SXM4-40GB", "8.0", 108, 1.41e9, 1.0),
    "h100": Device("NVIDIA H100 80GB HBM3", "9.0", 132, 1.98e9, 0.5),
}

STALLS = (
    "barrier", "branch_resolving", "dispatch_stall", "drain", "imc_miss", "lg_throttle", "long_scoreboard",
    "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "not_selected", "selected",
    "short_scoreboard", "sleeping", "tex_throttle", "wait",
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """Counters that all launches of a kind share; percentages of peak unless said otherwise.

    Attributes:
        ipc: executed warp instructions per active cycle of an SM.
        tensor: tensor pipe.
        fma: FMA pipe.
        alu: ALU pipe.
        sm: compute throughput.
        memory: memory throughput.
        dram: DRAM throughput.
        l1: L1 hit rate.
        l2: L2 hit rate.
        occupancy: achieved occupancy.
        mma: tensor instructions among the warp instructions.
        mix: thread-level instructions by class, as shares.
        stalls: warps stalled per issue, the reasons that stand out; all others 0.05.
        rule: section and rule that fires, and its global estimated speed-up in percent; None for a rule without one.
    """

    ipc: float
    tensor: float
    fma: float
    alu: float
    sm: float
    memory: float
    dram: float
    l1: float
    l2: float
    occupancy: float
    mma: float
    mix: tuple[tuple[str, float], ...]
    stalls: tuple[tuple[str, float], ...]
    rule: tuple[str, str, float | None]


_FP32_MIX = (("fp32", 0.70), ("integer", 0.15), ("memory", 0.10), ("control", 0.03), ("misc", 0.02))
_TENSOR_MIX = (("fp32", 0.08), ("integer", 0.30), ("memory", 0.40), ("control", 0.12), ("misc", 0.10))
_MOVE_MIX = (("fp32", 0.20), ("integer", 0.35), ("memory", 0.30), ("control", 0.10), ("misc", 0.05))

FP32 = Kind(
    ipc=2.4, tensor=1.5, fma=60, alu=20, sm=75, memory=45, dram=20, l1=60, l2=70, occupancy=25, mma=0.0,
    mix=_FP32_MIX, stalls=(("math_pipe_throttle", 1.2), ("long_scoreboard", 0.8), ("selected", 1.0)),
    rule=("SpeedOfLight", "SOLFPRoofline", 12.0),
)  # fmt: skip
TENSOR = Kind(
    ipc=1.2, tensor=40, fma=8, alu=15, sm=50, memory=60, dram=45, l1=20, l2=65, occupancy=15, mma=20.0,
    mix=_TENSOR_MIX, stalls=(("math_pipe_throttle", 0.3), ("long_scoreboard", 2.5), ("selected", 1.0)),
    rule=("WarpStateStats", "CPIStall", 30.0),
)  # fmt: skip
MOVING = Kind(
    ipc=0.5, tensor=0.0, fma=4, alu=10, sm=20, memory=80, dram=78, l1=30, l2=40, occupancy=75, mma=0.0,
    mix=_MOVE_MIX, stalls=(("long_scoreboard", 6.0), ("lg_throttle", 1.0), ("selected", 1.0)),
    rule=("MemoryWorkloadAnalysis", "MemoryCacheAccessPattern", 25.0),
)  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """A kernel of a step.

    Attributes:
        name: demangled, as the profiler prints it.
        phase: forward, backward, optimiser or data.
        launches: how many a step makes.
        us: time of each on the crafted A100, in microseconds.
        kind: its counters.
        flops: operations of each by the shapes; 0 for none.
        operator: CPU operator that launches it.
    """

    name: str
    phase: str
    launches: int
    us: float
    kind: Kind
    flops: int = 0
    operator: str = "aten::copy_"

    @property
    def kernel_class(self) -> str:
        """The class that the study gives to this name."""
        return classify(self.name)


_CONV_FLOPS = 40_000_000_000
_SILU = "void at::native::vectorized_elementwise_kernel<4, at::native::silu_kernel, at::detail::Array<char*, 2>>(int)"
_ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"

_CONVOLUTIONS = (
    Kernel("volta_scudnn_128x64_3dconv_fprop_small_nn_v1", "forward", 6, 6000, FP32, _CONV_FLOPS, "aten::convolution"),
    Kernel("void implicit_convolveNd_sgemm<float, 3, 128, 5, 5, 3, 3, 3, 1>(int)", "forward", 2, 3000, FP32,
           _CONV_FLOPS // 2, "aten::convolution"),
    Kernel("cudnn_infer_volta_scudnn_128x64_stridedB_interior_nn_v1", "backward", 6, 7000, FP32, _CONV_FLOPS,
           "aten::convolution_backward"),
    Kernel("cudnn_train_volta_scudnn_128x64_stridedB_splitK_xregs_large_nn_v1", "backward", 6, 8000, FP32, _CONV_FLOPS,
           "aten::convolution_backward"),
)  # fmt: skip
_REST = (
    Kernel("volta_sgemm_128x32_nt", "forward", 2, 500, FP32, 2_000_000_000, "aten::bmm"),
    Kernel("void softmax_warp_forward<float, float, float, 10, false>(float*)", "forward", 1, 300, MOVING, 0,
           "aten::_softmax"),
    Kernel("void at::native::RowwiseMomentsCUDAKernel<float>(long)", "forward", 6, 700, MOVING, 0,
           "aten::native_group_norm"),
    Kernel(_SILU, "forward", 6, 400, MOVING, 0, "aten::silu"),
    Kernel("void at::native::upsample_trilinear3d_out_frame<float, float>(int)", "forward", 2, 500, MOVING, 0,
           "aten::upsample_trilinear3d"),
    Kernel("void at::native::CatArrayBatchedCopy<float>(float*)", "forward", 2, 600, MOVING, 0, "aten::cat"),
    Kernel(_ADD, "backward", 8, 400, MOVING, 0, "aten::add"),
    Kernel("void at::native::reduce_kernel<512, 1>(int)", "backward", 2, 500, MOVING, 0, "aten::sum"),
    Kernel("void at::native::multi_tensor_apply_kernel<AdamFunctor>(int)", "optimiser", 2, 1000, MOVING, 0,
           "aten::_foreach_addcdiv_"),
    Kernel("Memcpy HtoD (Pinned -> Device)", "data", 1, 200, MOVING, 0, "aten::copy_"),
)  # fmt: skip
_TENSOR_NAMES = {
    "fprop": "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_execute_kernel_cudnn",
    "implicit": "void implicit_convolve_tf32_gemm<float, 3, 128>(int)",
    "stridedB_int": "sm80_xmma_dgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_execute_kernel_cudnn",
    "stridedB_split": "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_execute_kernel_cudnn",
}
TENSOR_SPEED_UP = 5.0
"""Time of a float32 convolution over that of the crafted TF32 one."""
LAYOUT_SLOWDOWN = 1.1
"""Time of a convolution with channels last over that without."""

_LAYOUT_KERNELS = (
    Kernel("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>()", "forward", 12, 900, MOVING, 0,
           "aten::contiguous"),
    Kernel("void cudnn::ops::nhwcToNchwKernel<float, float, float, true, false>()", "backward", 12, 900, MOVING, 0,
           "aten::contiguous"),
    Kernel("void cudnn::ops::nhwcAddPaddingKernel<float, float, float, true>(int)", "forward", 6, 500, MOVING, 0,
           "aten::convolution"),
)  # fmt: skip

CPU_KERNELS = (
    Kernel("aten::mkldnn_convolution", "forward", 6, 900, FP32, 20_000_000, "aten::mkldnn_convolution"),
    Kernel("aten::convolution_backward", "backward", 6, 1500, FP32, 40_000_000, "aten::convolution_backward"),
    Kernel("aten::native_group_norm", "forward", 6, 150, MOVING, 0, "aten::native_group_norm"),
    Kernel("aten::silu", "forward", 6, 60, MOVING, 0, "aten::silu"),
    Kernel("aten::add_", "backward", 8, 50, MOVING, 0, "aten::add_"),
    Kernel("aten::_foreach_addcdiv_", "optimiser", 2, 200, MOVING, 0, "aten::_foreach_addcdiv_"),
    Kernel("aten::copy_", "data", 1, 80, MOVING, 0, "aten::copy_"),
)


def kernels_of(gpu: str, config: str) -> tuple[Kernel, ...]:
    """Return the kernels of a crafted step, in launch order."""
    if gpu == "cpu":
        return CPU_KERNELS
    convolutions: Iterable[Kernel] = _CONVOLUTIONS
    has_tf32 = gpu != "v100" and config in ("default", "opt1", "opt12")
    if has_tf32:
        convolutions = [_on_tensor_cores(kernel) for kernel in convolutions]
    found = (*convolutions, *_REST)
    if config in ("opt2", "opt12"):
        slower = (replace(kernel, us=kernel.us * LAYOUT_SLOWDOWN) for kernel in convolutions)
        found = (*slower, *_LAYOUT_KERNELS, *_REST)
    order = {"data": 0, "forward": 1, "backward": 2, "optimiser": 3}
    return tuple(sorted(found, key=lambda kernel: order[kernel.phase]))


def launches_of(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return every launch of a step in its order: within a phase the kernels take turns, as layer follows layer."""
    phases = dict.fromkeys(kernel.phase for kernel in kernels)
    return [
        kernel
        for phase in phases
        for turn in range(max(kernel.launches for kernel in kernels if kernel.phase == phase))
        for kernel in kernels
        if kernel.phase == phase and turn < kernel.launches
    ]


def _on_tensor_cores(kernel: Kernel) -> Kernel:
    name = next(name for part, name in _TENSOR_NAMES.items() if part in kernel.name)
    return replace(kernel, name=name, us=kernel.us / TENSOR_SPEED_UP, kind=TENSOR)


def step_s(gpu: str, config: str) -> float:
    """Return the time of a crafted step on the device in seconds: the sum of its launches."""
    slowness = DEVICES[gpu].slowness if gpu in DEVICES else 1.0
    return slowness * sum(kernel.launches * kernel.us for kernel in kernels_of(gpu, config)) / 1e6
