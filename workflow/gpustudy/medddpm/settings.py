"""What decides a training run's numbers, and what decides only how they are computed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from gpustudy.base.errors import UserError
from gpustudy.medddpm.diffusion import Loss


@dataclass(frozen=True)
class TrainSettings:
    """The ``train`` section of a workload; the defaults are the published ones.

    Attributes:
        iterations: optimiser steps after the warm-up.
        warmup_iterations: optimiser steps before them; they train like any other.
        accumulation: micro-batches whose gradients are averaged in one optimiser step.
        batch_size: samples in a micro-batch.
        learning_rate: of Adam (betas 0.9 and 0.999, eps 1e-8, no weight decay).
        loss: ``l1`` or ``l2``, a mean over everything. (The published trainer divides this mean by the batch
            size once more; with its batch of 1 that is the same.)
        timesteps: T of the diffusion.
        ema_decay: share of the old average that an update keeps.
        ema_every: optimiser steps from one update of the average to the next.
        ema_start: until this optimiser step an update copies the weights instead.
        first_half_learning_rate: learning rate of the first half of all steps; None for ``learning_rate``
            throughout, as in the published code. (Its author trained with 1e-4, then 1e-5.)
    """

    iterations: int = 50_000
    warmup_iterations: int = 0
    accumulation: int = 2
    batch_size: int = 1
    learning_rate: float = 1e-5
    loss: Loss = "l1"
    timesteps: int = 250
    ema_decay: float = 0.995
    ema_every: int = 10
    ema_start: int = 2000
    first_half_learning_rate: float | None = None

    def __post_init__(self) -> None:
        for name in ("iterations", "accumulation", "batch_size", "timesteps", "ema_every"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}: training needs at least one.")
        if self.warmup_iterations < 0:
            raise UserError(f"warmup_iterations is {self.warmup_iterations}: give 0 or more.")
        if self.loss not in ("l1", "l2"):
            raise UserError(f"loss is {self.loss!r}: choose l1 or l2.")
        for name in ("learning_rate", "first_half_learning_rate"):
            rate = getattr(self, name)
            if rate is not None and not 0 < rate < math.inf:
                raise UserError(f"{name} is {rate:g}: give a number above 0, such as 1e-5.")
        if not 0 <= self.ema_decay <= 1:
            raise UserError(f"ema_decay is {self.ema_decay:g}: give a share from 0 to 1.")

    @classmethod
    def from_document(cls, train: Mapping[str, Any]) -> TrainSettings:
        """Read the ``train`` section of a workload.

        Raises:
            UserError: an unknown key or a value out of range.
        """
        known = {entry.name for entry in fields(cls)}
        unknown = sorted(set(train) - known)
        if unknown:
            raise UserError(
                f"the train section has an unknown key {unknown[0]!r}: known are {', '.join(sorted(known))}."
            )
        return cls(**train)

    @property
    def total_iterations(self) -> int:
        """Optimiser steps in all, warm-up included."""
        return self.warmup_iterations + self.iterations

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of optimiser step ``step``, counted from 0."""
        if self.first_half_learning_rate is not None and 2 * step < self.total_iterations:
            return self.first_half_learning_rate
        return self.learning_rate


@dataclass(frozen=True)
class TrainOptions:
    """How a training step is computed; none of it changes what is computed but for rounding.

    Attributes:
        device: where the model is trained.
        autocast_dtype: lower precision of the forward pass, or None for float32 throughout.
        grad_scaler: scale the loss so that float16 gradients do not vanish.
        fused_adam: one kernel for Adam over all parameters.
        channels_last: keep model and input in the channels-last memory format.
        cast_once: cast the weights to ``autocast_dtype`` once per step instead of in every micro-batch.
        concurrent: compute the micro-batches of a step at the same time, each on its share of the CPU's threads.
    """

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    autocast_dtype: torch.dtype | None = None
    grad_scaler: bool = False
    fused_adam: bool = False
    channels_last: bool = False
    cast_once: bool = False
    concurrent: bool = False


def options_for(device: torch.device, precision: str, channels_last: bool = False) -> TrainOptions:
    """Return options for a precision by name: ``float32``, ``bf16``, or ``fp16`` with a gradient scaler.

    Raises:
        UserError: ``fp16`` on a device other than CUDA, as for the optimisation of that name.
    """
    if precision == "fp16" and device.type != "cuda":
        raise UserError(f"precision fp16 is for CUDA devices, not for {device}: take bf16 or float32.")
    dtype = {"float32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    return TrainOptions(device, dtype, grad_scaler=precision == "fp16", channels_last=channels_last)
