"""The optimisations: one small function each that changes the run and says what it changed, one that proves it.

Names, needs and exclusions that are known without torch stand in ``optimisation_names.py``; here are the needs
that only the installed torch can answer. To add one: a line there, a ``_change``, a ``_verify``, a line in
``REGISTRY``.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name that PyTorch's own documentation uses

from gpustudy.cell.allocator import (
    can_keep_memory,
    heap_in_huge_pages_bytes,
    keep_freed_memory,
    page_faults_of_reuse,
)
from gpustudy.cell.outcomes import Outcome, unsupported
from gpustudy.cell.probe import Probe
from gpustudy.cell.switches import tf32_interface
from gpustudy.medddpm.diffusion import Network
from gpustudy.medddpm.micro_batch_threads import MicroBatchThreads
from gpustudy.medddpm.switches import set_switches
from gpustudy.medddpm.unet import UNet3D

_GRAPHS_PER_FUNCTION = 64
"""Graphs that TorchDynamo may compile of one function: where it splits the network (as older versions do at recomputed
attention), every stage of the U-Net is the same function with other shapes. The default of 8 would leave the rest
uncompiled."""

_FAULTS_OF_KEPT_MEMORY = 10
"""Page faults that are not of the block itself. A new block of 36 MiB has 9,216, or 18 under huge pages."""


@dataclass
class Setup:
    """A run that is being put together; each optimisation changes its part.

    Attributes:
        device: ``cuda`` or ``cpu``.
        model: the network, its switches as published until changed.
        options: fields of ``TrainOptions`` that differ from their defaults.
        network: what the trainer calls in place of ``model``, or None.
        optimizer: the trainer's, once there is one.
        threads: the trainer's for micro-batches, once there are any.
        called: what the trainer calls where no compiler stands before it, once there is one.
    """

    device: str
    model: UNet3D
    options: dict[str, Any] = field(default_factory=dict)
    network: Network | None = None
    optimizer: torch.optim.Optimizer | None = None
    threads: MicroBatchThreads | None = None
    called: UNet3D | None = None


@dataclass(frozen=True)
class Evidence:
    """Whether an optimisation was seen to work.

    Attributes:
        verified: the effect was there.
        how: what was looked at, in words.
        seen: what was found, as JSON values.
    """

    verified: bool
    how: str
    seen: Any


@dataclass(frozen=True)
class Applied:
    """An optimisation of the registry.

    Attributes:
        change: applies it and returns what it changed, one sentence.
        verify: looks for its effect after the warm-up.
        missing: returns why this torch cannot do it, or None.
    """

    change: Callable[[Setup], str]
    verify: Callable[[Setup, Probe], Evidence]
    missing: Callable[[Setup], str | None] = lambda setup: None


def _tf32(setup: Setup) -> str:
    interface = tf32_interface(torch)
    interface.set_tf32(True)
    return f"TF32 on for cuDNN and matrix products, through {interface.interface}"


def _verify_tf32(setup: Setup, probe: Probe) -> Evidence:
    values = tf32_interface(torch).read()
    on = all(value in (True, "tf32") for value in values.values())
    return Evidence(on, "switches read back through the interface that set them", values)


def _channels_last(setup: Setup) -> str:
    setup.options["channels_last"] = True
    return "weights of the model and inputs of every step in channels_last_3d"


def _verify_channels_last(setup: Setup, probe: Probe) -> Evidence:
    formats = {row["module"]: row["inputs"][0]["format"] for row in probe.convolutions()}
    weights = Counter(row["inputs"][1]["format"] for row in probe.convolutions())
    received = [module for module, layout in formats.items() if layout == "channels_last_3d"]
    missed = [module for module, layout in formats.items() if layout in ("contiguous", "other")]
    seen = {"received": received, "did_not_receive": missed, "weights": dict(weights)}
    return Evidence(bool(received), "format of each 3D convolution's input and weight in a forward pass", seen)


def _bf16(setup: Setup) -> str:
    setup.options["autocast_dtype"] = torch.bfloat16
    return "forward pass under autocast to bfloat16"


def _fp16(setup: Setup) -> str:
    setup.options |= {"autocast_dtype": torch.float16, "grad_scaler": True}
    return "forward pass under autocast to float16, loss scaled before backward"


def _verify_autocast(setup: Setup, probe: Probe) -> Evidence:
    wanted = str(setup.options["autocast_dtype"]).removeprefix("torch.")
    dtypes = Counter(row["inputs"][0]["dtype"] for row in probe.convolutions())
    return Evidence(set(dtypes) == {wanted}, "dtype of each 3D convolution's input in a forward pass", dict(dtypes))


def _missing_bf16(setup: Setup) -> str | None:
    if setup.device == "cuda" and not torch.cuda.is_bf16_supported():
        return "torch says that this device has no bfloat16"
    return None


def _compile(setup: Setup) -> str:
    import torch._dynamo

    config = torch._dynamo.config
    limit = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"  # renamed in torch 2.6
    setattr(config, limit, _GRAPHS_PER_FUNCTION)
    setup.network = torch.compile(setup.model, dynamic=False)
    return "network compiled by torch.compile, default mode, a graph per shape"


def _verify_compile(setup: Setup, probe: Probe) -> Evidence:
    from torch._dynamo.utils import counters

    stats, breaks = dict(counters["stats"]), sum(counters["graph_break"].values())
    seen = {"graphs": stats.get("unique_graphs", 0), "captured_calls": stats.get("calls_captured", 0), "breaks": breaks}
    return Evidence(seen["graphs"] > 0, "TorchDynamo's counters after the warm-up", seen)


def _missing_compile(setup: Setup) -> str | None:
    if not hasattr(torch, "compile"):
        return "this torch has no torch.compile"
    try:
        torch.compile(lambda x: x)
    except RuntimeError as error:  # PyTorch 2.0 on Python 3.11
        return str(error)
    if setup.device == "cuda" and importlib.util.find_spec("triton") is None:
        return "Triton, which generates the kernels, is not installed"
    compiler = os.environ.get("CXX", "g++")
    if not any(shutil.which(name) for name in (compiler, "g++", "clang++")):
        return "no C++ compiler is on PATH (set CXX)"
    return None


def _cudnn_benchmark(setup: Setup) -> str:
    torch.backends.cudnn.benchmark = True
    return "cuDNN times its algorithms for each new shape"


def _verify_cudnn_benchmark(setup: Setup, probe: Probe) -> Evidence:
    on = bool(torch.backends.cudnn.benchmark)
    return Evidence(on, "switch read back", {"cudnn.benchmark": on})


def _fused_adam(setup: Setup) -> str:
    setup.options["fused_adam"] = True
    return "Adam in fused kernels"


def _verify_fused_adam(setup: Setup, probe: Probe) -> Evidence:
    groups = [group.get("fused") for group in setup.optimizer.param_groups] if setup.optimizer else []
    return Evidence(bool(groups) and all(groups), "the optimiser's parameter groups", {"fused": groups})


def _missing_fused_adam(setup: Setup) -> str | None:
    try:
        torch.optim.Adam([torch.zeros(1, device=setup.device, requires_grad=True)], fused=True)
    except (TypeError, RuntimeError) as error:  # on the CPU from PyTorch 2.4 on
        return str(error)
    return None


def _sdpa(setup: Setup) -> str:
    set_switches(setup.model, attention_kernel="sdpa")
    return "attention by scaled_dot_product_attention"


def _verify_sdpa(setup: Setup, probe: Probe) -> Evidence:
    kernels = Counter(row["op"] for row in probe.rows if row["op"].startswith("aten._scaled_dot_product"))
    softmax = sum(row["op"] in ("aten._softmax", "aten._safe_softmax") for row in probe.rows)
    seen = {
        "scaled_dot_product_attention": probe.fused_attention_calls,
        "fused_kernels": dict(kernels),  # none where PyTorch has none for the device, as 2.0 for CPUs
        "explicit_softmax": softmax,
    }
    return Evidence(probe.fused_attention_calls > 0, "calls in a forward pass", seen)


def _missing_sdpa(setup: Setup) -> str | None:
    return None if hasattr(F, "scaled_dot_product_attention") else "this torch has no scaled_dot_product_attention"


def _keep_attention(setup: Setup) -> str:
    set_switches(setup.model, attention_recompute=False)
    return "attention's intermediates kept for backward"


def _native_norm(setup: Setup) -> str:
    set_switches(setup.model, norm_in_float32=False)
    return "group normalisation in the dtype that arrives"


def _verify_native_norm(setup: Setup, probe: Probe) -> Evidence:
    dtypes = Counter(row["inputs"][0]["dtype"] for row in probe.rows if row["op"] == "aten.native_group_norm")
    wanted = str(setup.options.get("autocast_dtype", torch.float32)).removeprefix("torch.")
    return Evidence(dtypes[wanted] > 0, "dtype of each group normalisation's input in a forward pass", dict(dtypes))


def _lean_norm(setup: Setup) -> str:
    set_switches(setup.model, lean_norm=True)
    return "only the input of normalisation, SiLU and convolution kept for backward"


def _fast_convolution(setup: Setup) -> str:
    set_switches(setup.model, fast_convolution=True)
    return "convolutions by minimal filtering, in halves or as matrix products"


def _reuse_memory(setup: Setup) -> str:
    taken = keep_freed_memory()
    return (
        "freed memory kept by the process (mallopt), huge pages asked for (madvise)"
        if taken
        else "nothing: mallopt refused its parameters"
    )


def _verify_reuse_memory(setup: Setup, probe: Probe) -> Evidence:
    faults = page_faults_of_reuse()
    how = "page faults of writing 36 MiB after more than that was freed; at most ten are no new memory"
    seen = {"page_faults": faults, "heap_in_huge_pages_bytes": heap_in_huge_pages_bytes()}
    return Evidence(faults <= _FAULTS_OF_KEPT_MEMORY, how, seen)


def _missing_reuse_memory(setup: Setup) -> str | None:
    return None if can_keep_memory() else "this C library has no mallopt (glibc has it)"


def _cast_once(setup: Setup) -> str:
    setup.options["cast_once"] = True
    return "a copy of the network with weights in the lower precision, renewed after every optimiser step"


def _verify_cast_once(setup: Setup, probe: Probe) -> Evidence:
    called = setup.called or setup.model
    dtypes = Counter(str(parameter.dtype).removeprefix("torch.") for parameter in called.parameters())
    return Evidence(len(dtypes) > 1, "dtypes of the parameters of the network that steps call", dict(dtypes))


def _concurrent_micro_batches(setup: Setup) -> str:
    setup.options["concurrent"] = True
    return "the micro-batches of a step in threads of their own"


def _verify_concurrent_micro_batches(setup: Setup, probe: Probe) -> Evidence:
    most = setup.threads.most_at_once if setup.threads else 0
    seen = {"most_at_once": most, "threads_of_each": setup.threads.share if setup.threads else None}
    return Evidence(most > 1, "micro-batches of the warm-up at work at the same time", seen)


def _checkpointing(setup: Setup) -> str:
    set_switches(setup.model, block_recompute=True)
    return "residual blocks computed again in backward"


def _verify_saved_bytes(switch: str, keeps_more: bool) -> Callable[[Setup, Probe], Evidence]:
    def verify(setup: Setup, probe: Probe) -> Evidence:
        other = probe.without.get(switch)
        more = 0 if other is None else probe.saved_bytes - other.saved_bytes
        seen = {"saved_bytes": probe.saved_bytes, "saved_bytes_without": None if other is None else other.saved_bytes}
        return Evidence(
            more > 0 if keeps_more else more < 0, "bytes that a forward pass keeps, with and without it", seen
        )

    return verify


def _verify_fast_convolution(setup: Setup, probe: Probe) -> Evidence:
    other = probe.without.get("fast_convolution")
    plain, before = probe.plain_convolutions(), None if other is None else other.plain_convolutions()
    seen = {"plain_convolutions": plain, "plain_convolutions_without": before}
    how = "convolutions of PyTorch's own form in a forward pass, with and without it"
    return Evidence(before is not None and plain < before, how, seen)


REGISTRY: dict[str, Applied] = {
    "tf32": Applied(_tf32, _verify_tf32),
    "channels_last": Applied(_channels_last, _verify_channels_last),
    "bf16": Applied(_bf16, _verify_autocast, _missing_bf16),
    "fp16": Applied(_fp16, _verify_autocast),
    "compile": Applied(_compile, _verify_compile, _missing_compile),
    "cudnn_benchmark": Applied(_cudnn_benchmark, _verify_cudnn_benchmark),
    "fused_adam": Applied(_fused_adam, _verify_fused_adam, _missing_fused_adam),
    "sdpa": Applied(_sdpa, _verify_sdpa, _missing_sdpa),
    "keep_attention": Applied(_keep_attention, _verify_saved_bytes("attention_recompute", keeps_more=True)),
    "native_norm": Applied(_native_norm, _verify_native_norm),
    "lean_norm": Applied(_lean_norm, _verify_saved_bytes("lean_norm", keeps_more=False)),
    "fast_convolution": Applied(_fast_convolution, _verify_fast_convolution),
    "reuse_memory": Applied(_reuse_memory, _verify_reuse_memory, _missing_reuse_memory),
    "cast_once": Applied(_cast_once, _verify_cast_once),
    "concurrent_micro_batches": Applied(_concurrent_micro_batches, _verify_concurrent_micro_batches),
    "checkpointing": Applied(_checkpointing, _verify_saved_bytes("block_recompute", keeps_more=False)),
}
"""Every optimisation of ``optimisation_names.OPTIMISATIONS`` by its name."""


def apply_optimisations(setup: Setup, names: tuple[str, ...], pytorch_defaults: bool) -> dict[str, str]:
    """Apply ``names`` to ``setup``; unless ``pytorch_defaults``, TF32 is first turned off everywhere.

    Returns:
        What each changed, by name.

    Raises:
        Outcome: ``unsupported``, when this torch lacks one.
    """
    for name in names:
        if reason := REGISTRY[name].missing(setup):
            raise unsupported(f"{name} cannot be applied with torch {torch.__version__}: {reason}.", "stack")
    if not pytorch_defaults:
        tf32_interface(torch).set_tf32(False)
    return {name: REGISTRY[name].change(setup) for name in names}


def verify_optimisations(setup: Setup, names: tuple[str, ...], probe: Probe) -> dict[str, Evidence]:
    """Return the evidence for each of ``names``.

    Raises:
        Outcome: ``unsupported``, when one was applied without effect: a result must not carry its name.
    """
    evidence = {name: REGISTRY[name].verify(setup, probe) for name in names}
    for name, found in evidence.items():
        if not found.verified:
            raise Outcome("unsupported", "no_effect", f"{name} was applied without effect ({found.how}: {found.seen}).")
    return evidence
