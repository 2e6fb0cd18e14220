"""How much memory training will take, told before it starts.

Method: the network is built on PyTorch's meta device (shapes without data) and run forward once at full size,
while a hook adds up the storages that autograd keeps for backward. Parameters, gradients, Adam's moments and
the moving average are counted exactly. What backward needs for a moment on top is taken as a fixed number of
the largest kept tensors. The interpreter, its libraries and a GPU's context are not counted.

Error, measured against the growth of the resident set over two steps of the whole-head model on a CPU (PyTorch
2.13, float32): at 64 x 64 x 64 voxels 2 % too much (3.29 GiB grown), at 32 x 32 x 32 20 % too little (1.35 GiB,
where the libraries' own buffers weigh most). On GPUs it is not yet measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name that PyTorch's own documentation uses
from torch import Tensor
from torch.overrides import TorchFunctionMode

from gpustudy.base.errors import UserError
from gpustudy.medddpm.settings import TrainSettings
from gpustudy.medddpm.unet import UNet3D

TRANSIENT_TENSORS = 4
"""Largest kept tensors that exist again while backward is at its peak: gradients of an operator's input and
output, and the copies that a convolution makes into its own layout (fitted to peaks measured on the CPU)."""

WEIGHT_COPIES = 5
"""Sets of float32 values as large as the parameters: weights, gradients, two moments of Adam, moving average."""

_GIB = 2**30


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that training holds at its peak, by what they are for.

    Attributes:
        weights_bytes: weights, gradients, Adam's moments, moving average; under autocast also the cast weights.
        activations_bytes: what the forward passes of the micro-batches that exist at once keep for backward.
        transient_bytes: what backward needs on top at its peak.
    """

    weights_bytes: int
    activations_bytes: int
    transient_bytes: int

    @property
    def total_bytes(self) -> int:
        """Sum of all parts."""
        return self.weights_bytes + self.activations_bytes + self.transient_bytes


def estimate_training(
    model: Mapping[str, Any],
    settings: TrainSettings,
    autocast_dtype: torch.dtype | None = None,
    prepare: Callable[[UNet3D], object] | None = None,
    concurrent: bool = False,
) -> MemoryEstimate:
    """Estimate the peak memory of training.

    Args:
        model: the workload's ``model`` section, with its ``volume`` (D, H, W).
        settings: of the training; the batch size matters.
        autocast_dtype: lower precision of the forward pass, or None.
        prepare: called with the network, to set its switches as the run will.
        concurrent: all micro-batches of a step are computed at the same time, each with gradients of its own.
    """
    with torch.device("meta"):
        network = UNet3D.from_document(model)
    if prepare is not None:
        prepare(network)
    parameters = sum(parameter.numel() * parameter.element_size() for parameter in network.parameters())
    cast = 0
    if autocast_dtype is not None:
        cast = parameters // 2
        network.to(autocast_dtype)
    shape = (settings.batch_size, network.architecture.in_channels, *model["volume"])
    kept = _kept_bytes(network, torch.empty(shape, dtype=autocast_dtype or torch.float32, device="meta"))
    at_once = settings.accumulation if concurrent else 1
    return MemoryEstimate(
        weights_bytes=(WEIGHT_COPIES + at_once - 1) * parameters + cast,
        activations_bytes=at_once * sum(kept),
        transient_bytes=at_once * TRANSIENT_TENSORS * max(kept),
    )


def estimate_training_bytes(
    model: Mapping[str, Any],
    train: Mapping[str, Any],
    autocast_dtype: torch.dtype | None = None,
    prepare: Callable[[UNet3D], object] | None = None,
) -> int:
    """Return ``estimate_training(...).total_bytes`` for a workload's ``model`` and ``train`` sections."""
    return estimate_training(model, TrainSettings.from_document(train), autocast_dtype, prepare).total_bytes


def available_bytes(device: torch.device) -> int | None:
    """Return the memory that is free on ``device``, or None where that cannot be told."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    known = [free for free in (_free_of_machine(), _free_of_group()) if free is not None]
    return min(known) if known else None


def check_memory(estimate: MemoryEstimate, free_bytes: int | None, place: str) -> None:
    """Refuse a training that cannot fit into ``free_bytes`` of ``place``; None passes.

    Raises:
        UserError: with both amounts and what to make smaller.
    """
    if free_bytes is None or estimate.total_bytes <= free_bytes:
        return
    raise UserError(
        f"training needs about {estimate.total_bytes / _GIB:.1f} GiB ({estimate.weights_bytes / _GIB:.1f} for weights, "
        f"{estimate.activations_bytes / _GIB:.1f} for activations), {place} has {free_bytes / _GIB:.1f} GiB free: "
        "take a smaller volume, batch or base_channels, or recompute residual blocks in backward."
    )


def _kept_bytes(network: UNet3D, x: Tensor) -> list[int]:
    """Return the size of every storage that a forward pass keeps for backward, the parameters' left out."""
    known = {_storage_id(parameter) for parameter in network.parameters()}
    kept: dict[int, int] = {}
    alive: list[Tensor] = []  # so that no storage's place is given to another

    def keep(tensor: Tensor) -> Tensor:
        alive.append(tensor)
        if _storage_id(tensor) not in known:
            kept[_storage_id(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), _FusedWhereReal():
        network(x, torch.zeros(x.shape[0], dtype=torch.long, device="meta"))
    return list(kept.values())


class _FusedAttention(torch.autograd.Function):
    """Keeps what PyTorch's fused attention kernels keep: their inputs, the result, a number per query.

    The meta device has none of them: there the N x N weights would be counted.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # (B, 1, N, C) each -> (B, 1, N, C)
        result = torch.empty_like(q)
        ctx.save_for_backward(q, k, v, result, torch.empty(q.shape[:-1], device=q.device))
        return result


class _FusedWhereReal(TorchFunctionMode):
    """Has fused attention on the meta device where this PyTorch has it on the real one (from 2.2 on for CPUs)."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        is_attention = func is getattr(F, "scaled_dot_product_attention", None)
        for_cpu = hasattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu")
        if is_attention and (for_cpu or torch.cuda.is_available()):
            return _FusedAttention.apply(*args)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return func(*args, **(kwargs or {}))


def _storage_id(tensor: Tensor) -> int:
    """Return what tells one storage from another; meta tensors have no address."""
    return int(tensor.untyped_storage()._cdata)


def _free_of_machine() -> int | None:
    """Return Linux's estimate of what can be allocated without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kib = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return None if kib is None else int(kib) * 1024  # the file counts in KiB


def _free_of_group(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return what is left of the control group's limit (a batch job's memory), where there is one."""
    try:
        limit, used = (root / "memory.max").read_text().strip(), (root / "memory.current").read_text()
    except OSError:
        return None
    return None if limit == "max" else max(int(limit) - int(used), 0)
