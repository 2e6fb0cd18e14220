"""A 3 x 3 x 3 convolution with padding 1 as matrix products, where PyTorch's CPU kernels do badly.

*Few* voxels: the kernels bring a large weight into an order of their own, which takes longer than the products.
*Thin* results: the kernels pad very few channels out to sixteen.

V is the number of voxels of the whole batch, a tap one of the 27 places of a kernel.
"""

from __future__ import annotations

from itertools import product

import torch
import torch.nn.functional as F  # noqa: N812 - the name that PyTorch's own documentation uses
from torch import Tensor

_SIDE = 3
_TAPS = (_SIDE, _SIDE, _SIDE)
_SPATIAL = (2, 3, 4)

Gradients = tuple[Tensor, Tensor, Tensor]
"""Of input, weight and bias."""


def memory_format(x: Tensor) -> torch.memory_format:
    """Return the memory format of ``x`` or of what it is a part of: channels-last or contiguous."""
    return torch.channels_last_3d if x.stride(1) == 1 else torch.contiguous_format


def few_forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Convolve (B, C, D, H, W) with (K, C, 3, 3, 3) to (B, K, D, H, W): all windows times the weight."""
    products = torch.addmm(bias, _windows(x, weight), _rows(weight).T)  # (V, K)
    volumes = products.view(x.shape[0], *x.shape[2:], len(weight)).permute(0, 4, 1, 2, 3)
    return volumes.contiguous(memory_format=memory_format(x))


def few_backward(gradient: Tensor, x: Tensor, weight: Tensor) -> Gradients:
    """Return the gradients of input, weight and bias."""
    batch, channels, *sides = x.shape
    voxels = gradient.permute(0, 2, 3, 4, 1).reshape(-1, len(weight))  # (V, K)
    grad_rows, grad_windows = voxels.T @ _windows(x, weight), voxels @ _rows(weight)
    if _is_channels_last(weight):
        grad_weight = grad_rows.view(-1, *_TAPS, channels).permute(0, 4, 1, 2, 3)
        of_taps = grad_windows.view(batch, *sides, *_TAPS, channels).permute(4, 5, 6, 0, 7, 1, 2, 3)
    else:
        grad_weight = grad_rows.view(weight.shape)
        of_taps = grad_windows.view(batch, *sides, channels, *_TAPS).permute(5, 6, 7, 0, 4, 1, 2, 3)
    grad_x = _sum_of_taps(of_taps.flip(0, 1, 2)).to(x.dtype)
    return grad_x.contiguous(memory_format=memory_format(x)), grad_weight, gradient.sum(dim=(0, *_SPATIAL))


def thin_forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Convolve (1, C, D, H, W) with (K, C, 3, 3, 3) to (1, K, D, H, W): all taps of all voxels, then their sums."""
    of_taps = (_taps(weight) @ _columns(x)).view(*_TAPS, 1, len(weight), *x.shape[2:])
    result = _sum_of_taps(of_taps).add_(bias.view(-1, 1, 1, 1)).to(x.dtype)
    return result.contiguous(memory_format=memory_format(x))


def thin_backward(gradient: Tensor, x: Tensor, weight: Tensor) -> Gradients:
    """Return the gradients of input, weight and bias."""
    channels_out, channels = weight.shape[:2]
    depth, height, width = x.shape[2:]
    padded = F.pad(gradient[0], (1,) * 6)
    offsets = product(reversed(range(_SIDE)), repeat=3)  # the first tap of a kernel met what lies behind
    met = [padded[:, z : z + depth, y : y + height, left : left + width] for z, y, left in offsets]
    shifted = torch.stack(met).view(-1, depth * height * width)  # (27 K, V)
    grad_weight = (shifted @ _columns(x).T).view(*_TAPS, channels_out, channels).permute(3, 4, 0, 1, 2)
    if _is_channels_last(x):
        grad_x = (shifted.T @ _taps(weight)).view(1, depth, height, width, channels).permute(0, 4, 1, 2, 3)
    else:
        grad_x = (_taps(weight).T @ shifted).view(x.shape)
    return grad_x, grad_weight, gradient.sum(dim=(0, *_SPATIAL))


def _sum_of_taps(of_taps: Tensor) -> Tensor:  # (3, 3, 3, B, K, D, H, W) -> (B, K, D, H, W)
    """Add what each tap gives to the voxel around which it lies, in float32 at least; outside there is nothing."""
    of_taps = of_taps.to(torch.promote_types(of_taps.dtype, torch.float32))
    for axis in (-3, -2, -1):
        inner = of_taps.shape[axis] - 1
        summed = of_taps[1].clone()
        summed.narrow(axis, 1, inner).add_(of_taps[0].narrow(axis, 0, inner))
        summed.narrow(axis, 0, inner).add_(of_taps[2].narrow(axis, 1, inner))
        of_taps = summed
    return of_taps


def _is_channels_last(x: Tensor) -> bool:
    return memory_format(x) == torch.channels_last_3d


def _windows(x: Tensor, weight: Tensor) -> Tensor:  # -> (V, 27 C)
    """Return what lies under the kernel for every voxel, in the order in which ``weight`` lies in memory."""
    windows = F.pad(x, (1,) * 6)
    for dimension in _SPATIAL:
        windows = windows.unfold(dimension, _SIDE, 1)  # (B, C, D, H, W, 3, 3, 3) in the end
    order = (0, 2, 3, 4, 5, 6, 7, 1) if _is_channels_last(weight) else (0, 2, 3, 4, 1, 5, 6, 7)
    return windows.permute(order).reshape(-1, weight[0].numel())


def _rows(weight: Tensor) -> Tensor:  # (K, C, 3, 3, 3) -> (K, 27 C), without a copy
    return (weight.permute(0, 2, 3, 4, 1) if _is_channels_last(weight) else weight).reshape(len(weight), -1)


def _taps(weight: Tensor) -> Tensor:  # (K, C, 3, 3, 3) -> (27 K, C)
    return weight.permute(2, 3, 4, 0, 1).reshape(-1, weight.shape[1])


def _columns(x: Tensor) -> Tensor:  # (1, C, D, H, W) -> (C, V), without a copy
    channels = x.shape[1]
    return x.permute(0, 2, 3, 4, 1).reshape(-1, channels).T if _is_channels_last(x) else x.reshape(channels, -1)
