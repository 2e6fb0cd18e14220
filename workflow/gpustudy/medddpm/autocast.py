"""What autocast does now, on any version of PyTorch and on the meta device, which autocast does not know."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def autocast_dtype(device_type: str) -> torch.dtype | None:
    """Return the dtype that autocast gives a convolution now, or None when it is off."""
    if device_type == "meta":
        return None
    if hasattr(torch, "get_autocast_dtype"):
        return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else None
    if device_type == "cpu":  # PyTorch before 2.4 has one function per device
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None


def without_autocast(device_type: str) -> AbstractContextManager[Any]:
    """Return a context in which autocast is off."""
    return nullcontext() if device_type == "meta" else torch.autocast(device_type, enabled=False)
