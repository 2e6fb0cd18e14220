"""Two worlds for the claims: one in which the paper is right, one in which it is wrong. Both are crafted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gpustudy.analysis.claim_models import COUNTER_SCOPES
from tests.support.crafted_kernels import Kernel, kernels_of
from tests.support.crafted_study import Truth

ALL = ("v100", "a100", "h100")

_PAPER: dict[str, tuple[float, float, float, float]] = {
    # quantity: baseline, opt1, opt2, opt12
    "sm_active_cycles": (1e12, 2e11, 1.5e10, 1e10),  # 5x and 67x fewer
    "elapsed_cycles": (1e12, 2e11, 1.5e10, 1e10),
    "warp_instructions": (1e13, 1e11, 1.5e11, 1e11),  # 100x and 67x fewer
    "thread_instructions": (3e14, 3e12, 4.5e12, 3e12),
    "thread_instructions_fp32": (1e14, 1e12, 1e12, 1e12),
    "tensor_pipe_pct": (1.45, 9.98, 1.5, 5.0),
    "tensor_pipe_fp_pct": (1.45, 9.98, 1.5, 5.0),
    "ipc": (1.0, 1.07, 0.5, 0.6),
    "ipc_elapsed": (1.0, 1.07, 0.5, 0.6),
    "fma_pipe_pct": (60, 10, 5, 5),
    "alu_pipe_pct": (20, 15, 5, 5),
    "l1_hit_pct": (60, 30, 50, 50),
    "l1_global_load_hit_pct": (60, 30, 50, 50),
    "dram_throughput_pct": (30, 45, 10, 10),
    "dram_bytes_per_s": (3e11, 4.5e11, 1e11, 1e11),
    "mma_share_pct": (0.5, 30, 1, 10),
    "tf32_operations": (1e9, 1e12, 1e9, 1e11),
    "sm_throughput_pct": (90, 60, 45, 30),
    "memory_throughput_pct": (40, 60, 80, 80),
    "l2_hit_pct": (50, 50, 85, 85),
    "l2_read_hit_pct": (50, 50, 85, 85),
    "issue_active": (0.4, 0.3, 0.2, 0.2),
    "sector_use_global_load_pct": (60, 60, 60, 60),
    "warp_latency_cycles": (20, 10, 20, 20),
    "stall_math_pipe_throttle": (2.0, 0.5, 1, 1),
    "stall_math_pipe_throttle_cycles": (1e13, 1e11, 1e11, 1e11),
}
_CONFIGS = ("baseline", "opt1", "opt2", "opt12")
_STALLS = (
    "barrier", "branch_resolving", "dispatch_stall", "drain", "imc_miss", "lg_throttle", "long_scoreboard",
    "membar", "mio_throttle", "misc", "no_instruction", "not_selected", "short_scoreboard", "sleeping",
    "tex_throttle", "wait", "gmma",
)  # fmt: skip
_COMPUTE = ("conv_forward", "conv_dgrad", "conv_wgrad", "implicit_gemm", "gemm")
_MOVING = ("elementwise", "layout", "padding", "copy")


def _tell(truth: Truth, gpus: Iterable[str], quantity: str, values: tuple[float, float, float, float]) -> None:
    for gpu in gpus:
        for config, value in zip(_CONFIGS, values, strict=True):
            for scope in COUNTER_SCOPES:
                truth.values[gpu, config, quantity, scope] = value


def _small_ones(kernel: Kernel) -> Kernel:
    """Return a kernel of a step in which what moves data is launched often and what computes once."""
    if kernel.kernel_class in _MOVING:
        return replace(kernel, launches=6 * kernel.launches)
    return replace(kernel, launches=1) if kernel.kernel_class in _COMPUTE else kernel


def _of_its_own(kernel: Kernel, gpu: str) -> Kernel:
    """Return a kernel that only this gpu has, of which no rule estimates a gain."""
    section, rule, _ = kernel.kind.rule
    return replace(kernel, name=f"{kernel.name} {gpu}", kind=replace(kernel.kind, rule=(section, rule, None)))


def as_the_paper_says() -> Truth:
    """Return a world in which what the paper says is so, as far as its sentences allow it at once."""
    truth = Truth()
    for quantity, values in _PAPER.items():
        _tell(truth, ALL, quantity, values)
    for reason in _STALLS:
        # on the A100 all stalls fall; on the H100 those of dependencies rise
        _tell(truth, ("v100", "a100"), f"stall_{reason}", (1, 0.5, 1, 1))
        _tell(truth, ("v100", "a100"), f"stall_{reason}_cycles", (1e12, 1e10, 1e11, 1e11))
        _tell(truth, ("h100",), f"stall_{reason}", (1, 2, 1, 1))
    for gpu in ALL:
        truth.provenance[gpu] = {"cuda": "12.9"}
        truth.values[gpu, "baseline", "launches", "step"] = 2000
        for config in ("opt2", "opt12"):
            truth.class_time |= {(gpu, config, name): 0.05 for name in _COMPUTE}
            truth.kernels[gpu, config] = tuple(_small_ones(kernel) for kernel in kernels_of(gpu, config))
        truth.step_s[gpu, "opt2"] = 0.16  # ten times fewer cycles, and no shorter step
    truth.class_time |= {("h100", "baseline", name): 1.5 for name in _MOVING}
    truth.class_time |= {(gpu, "baseline", "copy"): 8.0 for gpu in ALL}
    return truth


def against_the_paper() -> Truth:
    """Return a world in which the paper is wrong wherever it can be."""
    truth = Truth()
    same = {
        "tensor_pipe_pct": (60, 60, 90, 95), "tensor_pipe_fp_pct": (60, 60, 90, 95), "ipc": (1, 0.5, 0.5, 0.5),
        "ipc_elapsed": (1, 0.5, 0.5, 0.5), "fma_pipe_pct": (20, 60, 60, 60), "alu_pipe_pct": (20, 60, 60, 60),
        "l1_hit_pct": (30, 60, 60, 60), "l1_global_load_hit_pct": (30, 60, 60, 60),
        "dram_throughput_pct": (45, 30, 45, 45), "dram_bytes_per_s": (4e11, 3e11, 4e11, 4e11),
        "mma_share_pct": (30, 10, 30, 30), "tf32_operations": (1e12, 1e9, 1e12, 1e12),
        "sm_throughput_pct": (50, 60, 90, 90), "memory_throughput_pct": (40, 40, 40, 40),
        "l2_hit_pct": (85, 50, 50, 50), "l2_read_hit_pct": (85, 50, 50, 50), "issue_active": (0.9, 0.9, 0.9, 0.9),
        "sector_use_global_load_pct": (95, 95, 95, 95), "warp_latency_cycles": (10, 20, 20, 20),
        "sm_active_cycles": (1e12, 1e12, 1e12, 1e12), "elapsed_cycles": (1e12, 1e12, 1e12, 1e12),
        "warp_instructions": (1e13, 1e13, 1e13, 1e13), "thread_instructions": (3e14, 3e14, 3e14, 3e14),
        "thread_instructions_fp32": (1e14, 1e14, 1e14, 1e14),
    }  # fmt: skip
    for quantity, values in same.items():
        _tell(truth, ALL, quantity, values)
    for reason in (*_STALLS, "math_pipe_throttle"):
        falls = reason in ("long_scoreboard", "gmma", "short_scoreboard", "wait")
        _tell(truth, ("v100", "a100"), f"stall_{reason}", (1, 2, 1, 1))
        _tell(truth, ("h100",), f"stall_{reason}", (2, 1, 1, 1) if falls else (1, 2, 1, 1))
        _tell(truth, ALL, f"stall_{reason}_cycles", (1e12, 2e12, 1e12, 1e12))
    for number, gpu in enumerate(ALL):
        truth.provenance[gpu] = {"torch": "2.13.0+cu129", "image_sha256": str(number) * 64}
        truth.values[gpu, "baseline", "loss_first", "step"] = 0.8 + number / 1000
        truth.class_time |= {(gpu, "baseline", name): 0.05 for name in _COMPUTE}
        truth.class_time |= {(gpu, "baseline", name): 0.01 for name in ("copy", "layout", "padding")}
        truth.kernels[gpu, "baseline"] = tuple(_of_its_own(kernel, gpu) for kernel in kernels_of(gpu, "baseline"))
        for config in ("opt2", "opt12"):
            kept = [kernel for kernel in kernels_of(gpu, config) if kernel.kernel_class not in _MOVING]
            truth.kernels[gpu, config] = tuple(kept)
        truth.step_s[gpu, "opt1"] = 0.3  # slower than baseline
        for config in ("opt1", "opt2"):
            truth.values[gpu, config, "ms_ssim_generated", "pairs"] = 0.9
            truth.values[gpu, config, "mask_fidelity", "foreground"] = 0.2
            truth.values[gpu, config, "mmd2_rbf", "total"] = 0.3
    truth.class_time |= {("v100", "baseline", name): 3.0 for name in ("elementwise", "copy")}
    _tell(truth, ("v100",), "sm_throughput_pct", (10, 60, 90, 90))
    return truth
