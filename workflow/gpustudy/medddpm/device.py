"""The device that a person names."""

from __future__ import annotations

import torch

from gpustudy.base.errors import UserError


def choose_device(name: str) -> torch.device:
    """Return the device called ``name``; ``auto`` is the first CUDA device, or else the CPU.

    Raises:
        UserError: a name that PyTorch does not know, or a CUDA device that is not here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"{name!r} is not a device: give cpu, cuda, cuda:1 or auto.") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"device {name} is not here ({torch.cuda.device_count()} CUDA devices are): give cpu or auto.")
    return device
