"""What no run can undercut: the least number of warp instructions for counted multiply-adds.

A warp has 32 threads, so one FFMA does 32 multiply-adds; tensor instructions do more, as the PTX ISA's tables of matrix
shapes say (sections on ``mma`` and ``wgmma``). A claim of fewer instructions than that cannot be about whole steps,
whatever the memory layout: it can only hold for single kernels or for a part of the launches. (Convolutions by FFT or
Winograd do fewer multiply-adds than counted by shape; cuDNN's are direct or implicit GEMM for the sizes of this
workload, and none comes near the factors of 32 and more that are at stake.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustudy.analysis import quantities
from gpustudy.analysis.groups import baseline_of

if TYPE_CHECKING:
    from gpustudy.analysis.dataset import Dataset, Group

WARP = 32
"""Threads of a warp."""

FFMA_MACS = WARP
"""Multiply-adds of one FFMA of a warp."""

HMMA_M16N8K4_MACS = 16 * 8 * 4
"""Multiply-adds of one ``mma.m16n8k4`` of TF32 (HMMA.1684 on sm_80)."""

HMMA_M16N8K8_MACS = 16 * 8 * 8
"""Multiply-adds of one ``mma.m16n8k8`` of TF32 (HMMA.1688 on sm_80)."""

HMMA_M16N8K16_MACS = 16 * 8 * 16
"""Multiply-adds of one ``mma.m16n8k16`` of half precision or bfloat16 (HMMA.16816)."""

HMMA_M8N8K4_MACS = 8 * 8 * 4
"""Multiply-adds of one of the four quads' ``mma.m8n8k4`` of half precision on sm_70; a warp does four (1024 in all)."""

_WARPS_OF_A_WARPGROUP = 4

WGMMA_TF32_MACS = 64 * 256 * 8 // _WARPS_OF_A_WARPGROUP
"""Multiply-adds of ``wgmma.m64n256k8`` of TF32, for each of the four warps that execute it (sm_90)."""

WGMMA_HALF_MACS = 64 * 256 * 16 // _WARPS_OF_A_WARPGROUP
"""The same of ``wgmma.m64n256k16`` of half precision."""

_MOST_MACS = {  # (architecture, precision) -> multiply-adds of its largest instruction, per warp
    ("sm_70", "fp16"): 4 * HMMA_M8N8K4_MACS,
    ("sm_75", "fp16"): HMMA_M16N8K8_MACS,
    ("sm_80", "tf32"): HMMA_M16N8K8_MACS,
    ("sm_80", "fp16"): HMMA_M16N8K16_MACS,
    ("sm_86", "tf32"): HMMA_M16N8K8_MACS,
    ("sm_86", "fp16"): HMMA_M16N8K16_MACS,
    ("sm_89", "tf32"): HMMA_M16N8K8_MACS,
    ("sm_89", "fp16"): HMMA_M16N8K16_MACS,
    ("sm_90", "tf32"): WGMMA_TF32_MACS,
    ("sm_90", "fp16"): WGMMA_HALF_MACS,
}

PRECISION_OF = {"tf32": "tf32", "bf16": "fp16", "fp16": "fp16"}
"""Optimisation -> precision of the matrix instructions that it allows."""


def precision_of(optimisations: tuple[str, ...] | list[str], pytorch_defaults: bool = False) -> str:
    """Return the precision of a config's matrix work: ``fp32``, ``tf32`` or ``fp16`` (bfloat16 has the same shapes).

    PyTorch's own defaults allow TF32 in convolutions (``torch.backends.cudnn.allow_tf32`` is True).
    """
    found = {PRECISION_OF[name] for name in optimisations if name in PRECISION_OF}
    if "fp16" in found:
        return "fp16"
    return "tf32" if "tf32" in found or pytorch_defaults else "fp32"


def most_macs(architecture: str, precision: str) -> int:
    """Return the multiply-adds of the largest warp instruction: FFMA where the device has no such tensor operation."""
    return _MOST_MACS.get((architecture, precision), FFMA_MACS)


def least_instructions(macs: float, architecture: str, precision: str) -> float:
    """Return the least warp instructions for ``macs`` multiply-adds, none spent on anything else."""
    return macs / most_macs(architecture, precision)


def least_ratio(architecture: str, precision: str) -> float:
    """Return the least ratio of instructions to a baseline that is nothing but FFMA: 1/32 for TF32 on sm_80.

    A baseline with other instructions beside its FFMAs can be undercut by more; ``least_measured_ratio`` knows it.
    """
    return FFMA_MACS / most_macs(architecture, precision)


def macs_of_step(dataset: Dataset, group: Group) -> float | None:
    """Return the multiply-adds of a step by the shapes of its operators (modelled); None without a census."""
    flops = quantities.value(dataset, group, "flops", quantities.STEP)
    return None if flops is None or flops.value <= 0 else flops.value / 2


def precision_of_group(dataset: Dataset, group: Group) -> str:
    """Return the precision of a group's matrix work by its config; of an unknown one, ``fp32``."""
    config = dataset.survey.study.configs.get(group.config)
    return "fp32" if config is None else precision_of(config.optimisations, config.pytorch_defaults)


def architecture_of(dataset: Dataset, gpu: str) -> str:
    """Return the architecture of a gpu, such as ``sm_80``; empty where the study does not know it."""
    known = dataset.survey.study.gpus.get(gpu)
    return "" if known is None else known.architecture


def least_measured_ratio(dataset: Dataset, group: Group) -> float | None:
    """Return the least ratio of a step's warp instructions to those measured for baseline on the same gpu.

    Counted multiply-adds over the largest instruction, over baseline's measured total. None where either is unknown.
    """
    macs = macs_of_step(dataset, group) or macs_of_step(dataset, baseline_of(dataset, group.gpu))
    base = quantities.value(dataset, baseline_of(dataset, group.gpu), "warp_instructions", quantities.TOTAL)
    if macs is None or base is None or base.value <= 0:
        return None
    architecture = architecture_of(dataset, group.gpu)
    return least_instructions(macs, architecture, precision_of_group(dataset, group)) / base.value
