"""The optimisations a config may name, as data: what each is, what it needs, which pairs exclude each other.

Read by the study (to validate configs) and by a stage before it imports torch (to say at once that a device
cannot do it). Standard library only. The functions that apply them are in ``optimisations.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TENSOR_FLOAT_32_SM = 80
"""Compute capability times ten from which tensor cores take TF32 and bfloat16: Ampere (CUDA C++ Programming
Guide, arithmetic instructions by compute capability)."""

TRITON_SM = 70
"""Compute capability times ten from which Inductor compiles for a device (PyTorch, GPUTooOldForTriton)."""


@dataclass(frozen=True)
class Optimisation:
    """One optimisation, as a config names it.

    Attributes:
        description: what it changes, in one sentence.
        devices: kinds of device that have it: ``cuda``, ``cpu``.
        least_sm: smallest compute capability times ten of a CUDA device that has it; 0 for any.
        why_least: why an older CUDA device, or a device of another kind, lacks it.
    """

    description: str
    devices: tuple[str, ...] = ("cuda", "cpu")
    least_sm: int = 0
    why_least: str = ""


OPTIMISATIONS: dict[str, Optimisation] = {
    "tf32": Optimisation(
        "let cuDNN convolutions and matrix products round float32 inputs to TF32 on tensor cores",
        devices=("cuda",),
        least_sm=TENSOR_FLOAT_32_SM,
        why_least="TF32 exists only in tensor cores from sm_80 on",
    ),
    "channels_last": Optimisation("keep the model's weights and its inputs in channels_last_3d memory format (NDHWC)"),
    "bf16": Optimisation(
        "run the forward pass under autocast to bfloat16, weights staying float32",
        least_sm=TENSOR_FLOAT_32_SM,
        why_least="bfloat16 arithmetic exists only from sm_80 on",
    ),
    "fp16": Optimisation(
        "run the forward pass under autocast to float16 and scale the loss against underflow, weights staying float32",
        devices=("cuda",),
        why_least="float16 convolutions with loss scaling are for CUDA devices",
    ),
    "compile": Optimisation(
        "fuse kernels with torch.compile (TorchDynamo and Inductor)",
        least_sm=TRITON_SM,
        why_least="Triton, which generates the kernels, knows devices from sm_70 on",
    ),
    "cudnn_benchmark": Optimisation(
        "let cuDNN time its algorithms for each convolution shape and keep the fastest",
        devices=("cuda",),
        why_least="cuDNN runs on CUDA devices only",
    ),
    "fused_adam": Optimisation(
        "update all parameters in PyTorch's fused Adam kernels instead of one pass per operation"
    ),
    "sdpa": Optimisation("use scaled_dot_product_attention in place of explicit products and softmax"),
    "keep_attention": Optimisation("keep attention's intermediates for backward instead of computing them again"),
    "native_norm": Optimisation("normalise in the dtype that arrives instead of converting to float32 and back"),
    "lean_norm": Optimisation(
        "keep only the input of each normalisation, SiLU and convolution for backward, and compute the rest again there"
    ),
    "fast_convolution": Optimisation(
        "convolve by Winograd's minimal filtering along the depth, in halves or as matrix products, on the CPU",
        devices=("cpu",),
        why_least="its forms are written for the CPU",
    ),
    "reuse_memory": Optimisation(
        "keep freed host memory for the next tensor, in huge pages, instead of giving it back to the system",
        devices=("cpu",),
        why_least="tensors of other devices have PyTorch's own allocator, which keeps memory by itself",
    ),
    "cast_once": Optimisation("cast the weights to the lower precision once per step instead of in every micro-batch"),
    "concurrent_micro_batches": Optimisation(
        "compute the micro-batches of a step at the same time, each on its share of the CPU's threads",
        devices=("cpu",),
        why_least="a CUDA device already runs each operator on all of its multiprocessors",
    ),
    "checkpointing": Optimisation("recompute residual blocks in backward too: less memory, more time"),
}
"""Every optimisation by its name in config.yaml."""

NAMES: dict[str, str] = {name: optimisation.description for name, optimisation in OPTIMISATIONS.items()}
"""Name to one-line description."""

INCOMPATIBLE: tuple[tuple[str, str, str], ...] = (
    ("bf16", "fp16", "the forward pass has one reduced precision"),
    ("keep_attention", "checkpointing", "one keeps what the other computes again"),
    ("lean_norm", "checkpointing", "both compute residual blocks again in backward, one of them in part"),
    ("fast_convolution", "fp16", "its forms are for the CPU, float16 is for CUDA devices"),
    ("compile", "cast_once", "compiled kernels cast by themselves, and are of the network that holds float32 weights"),
    ("compile", "concurrent_micro_batches", "TorchDynamo compiles for one thread at a time"),
    ("fp16", "concurrent_micro_batches", "the one is for CUDA devices, the other for the CPU"),
)
"""Pairs that a config cannot hold together, each with the reason."""


def incompatible_pair(names: tuple[str, ...] | list[str]) -> str | None:
    """Return why ``names`` cannot be applied together (``'a' and 'b' exclude each other: ...``), or None."""
    for first, second, reason in INCOMPATIBLE:
        if first in names and second in names:
            return f"'{first}' and '{second}' exclude each other: {reason}"
    return None


def lacking(name: str, device: str, architecture: str) -> str | None:
    """Return why a device cannot apply an optimisation, or None when nothing known speaks against it.

    Args:
        name: a key of ``OPTIMISATIONS``.
        device: ``cuda`` or ``cpu``.
        architecture: such as ``sm_80``; of a form other than ``sm_NN`` it decides nothing.
    """
    optimisation = OPTIMISATIONS[name]
    if device not in optimisation.devices:
        return f"{name} does not exist on {device}: {optimisation.why_least}"
    match = re.fullmatch(r"sm_(\d+)[a-z]?", architecture)
    if device == "cuda" and match and int(match[1]) < optimisation.least_sm:
        return f"{name} does not exist on {architecture}: {optimisation.why_least}"
    return None
