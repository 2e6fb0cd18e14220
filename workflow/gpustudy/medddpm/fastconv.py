"""Faster forms of a 3 x 3 x 3 convolution with padding 1 on the CPU; elsewhere PyTorch's own.

The mathematics is the same; only the order of rounding differs. The forms, chosen by size:

- *halved* (float32): PyTorch gives one small sample to a slow kernel, but a batch of two to oneDNN; so the two
  halves of the sample go as a batch, each with one plane of the other.
- *minimal filtering* (``minimal``): two thirds or half of the multiplications.
- *few* voxels, and *thin* results of very few channels (``matrix``): matrix products.

All but *few* are for one sample: *thin* in either memory format, the others contiguous in float32 or channels-last in
bfloat16.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name that PyTorch's own documentation uses
from torch import Tensor
from torch.autograd.function import once_differentiable

from gpustudy.medddpm.matrix import few_backward, few_forward, memory_format, thin_backward, thin_forward
from gpustudy.medddpm.minimal import minimal_forward, minimal_input_gradient, minimal_weight_gradient

SLOW_ELEMENTS = 20_480
"""PyTorch's CPU convolution takes oneDNN for one float32 sample only above this many elements of C x D x H
(``use_mkldnn`` in aten/src/ATen/native/Convolution.cpp); its other form takes up to three times as long."""

MINIMAL_CHANNELS = 32
"""Channels in and out from which minimal filtering pays: below, its additions outweigh what it saves."""

MINIMAL_BF16_SIDE = 16
"""Depth from which minimal filtering pays in bfloat16: below, its many small calls outweigh what it saves."""

FEW_VOXELS = 8
"""Voxels of a sample up to which matrix products pay: above, PyTorch's kernels make up for their reordering."""

THIN_CHANNELS = 2
"""Channels out up to which matrix products pay; the published networks give one."""

Padding = tuple[int, int, int]
Gradients = tuple[Tensor | None, Tensor, Tensor]
"""Of input (None where it is not needed), weight and bias."""

_UNIT = (1, 1, 1)

_PLANES_MISCOMPUTED = 2
"""See ``is_miscomputed``."""


def fast_convolution(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Convolve (B, C_in, D, H, W) with (C_out, C_in, 3, 3, 3), padding 1, by the form that suits; differentiable."""
    apply: Any = _FastConvolution.apply  # PyTorch leaves it untyped
    result: Tensor = apply(x, weight, bias)
    return result


def is_slow(x: Tensor) -> bool:
    """Tell whether PyTorch would convolve ``x`` by its slow kernel, and halving avoids it."""
    return _is_float32_sample(x) and x.shape[1] * x.shape[2] * x.shape[3] <= SLOW_ELEMENTS


def is_minimal(x: Tensor, channels_out: int) -> bool:
    """Tell whether minimal filtering pays for ``x``, and its halves are not given to the slow kernel."""
    _, channels, depth, height, _ = x.shape
    if min(channels, channels_out) < MINIMAL_CHANNELS:
        return False
    if _is_bfloat16_sample(x):
        return depth >= MINIMAL_BF16_SIDE
    return _is_float32_sample(x) and channels * (depth // 2) * height > SLOW_ELEMENTS


def is_few(x: Tensor) -> bool:
    """Tell whether ``x`` has so few voxels that matrix products are faster."""
    return x.device.type == "cpu" and math.prod(x.shape[2:]) <= FEW_VOXELS


def is_thin(x: Tensor, channels_out: int) -> bool:
    """Tell whether ``x`` is convolved to so few channels that matrix products are faster."""
    is_dense = x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last_3d)
    return channels_out <= THIN_CHANNELS and _is_sample(x) and is_dense and x.dtype in (torch.float32, torch.bfloat16)


def forward_form(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Convolve by the form that suits; not differentiable."""
    if is_few(x) and x.dtype == torch.bfloat16:  # in float32 the backward alone gains by it
        return few_forward(x, weight, bias)
    if is_thin(x, weight.shape[0]):
        return thin_forward(x, weight, bias)
    if is_slow(x):
        return torch.cat(F.conv3d(_halves(x), weight, bias, padding=(0, 1, 1)).chunk(2), dim=2)
    if is_minimal(x, weight.shape[0]):
        return minimal_forward(x, weight, bias, _least_elements(x))
    return F.conv3d(x, weight, bias, padding=1)


def backward_form(gradient: Tensor, x: Tensor, weight: Tensor, needs_input: bool = True) -> Gradients:
    """Return the gradients by the same form; that of the input may come although it is not needed."""
    if is_few(x):
        return few_backward(gradient, x, weight)
    if is_thin(x, weight.shape[0]):
        return thin_backward(gradient, x, weight)
    if is_slow(x):
        halves = torch.cat(gradient.chunk(2, dim=2))
        grad_halves, grad_weight, grad_bias = plain_backward(halves, _halves(x), weight, (0, 1, 1), needs_input)
        return None if grad_halves is None else _fold(grad_halves), grad_weight, grad_bias
    if is_minimal(x, weight.shape[0]):
        return _minimal_backward(gradient.contiguous(memory_format=memory_format(x)), x, weight, needs_input)
    return plain_backward(gradient, x, weight, needs_input=needs_input)


def _minimal_backward(gradient: Tensor, x: Tensor, weight: Tensor, needs_input: bool) -> Gradients:
    grad_x = None
    if needs_input and is_minimal(gradient, weight.shape[1]):
        grad_x = minimal_input_gradient(gradient, weight, _least_elements(x))
    elif needs_input:  # so few channels would be given to the slow kernel
        grad_x, _, _ = torch.ops.aten.convolution_backward(
            *(gradient, x, weight, None, _UNIT, _UNIT, _UNIT, False, [0, 0, 0], 1, [True, False, False])
        )
    return grad_x, minimal_weight_gradient(gradient, x, _least_elements(x)), gradient.sum(dim=(0, 2, 3, 4))


def _least_elements(x: Tensor) -> int:
    return SLOW_ELEMENTS if x.dtype == torch.float32 else 0


def is_miscomputed(x: Tensor, dtype: torch.dtype) -> bool:
    """Tell whether the CPU's kernel would give a wrong weight gradient for ``x`` in ``dtype``.

    It does so for two planes in bfloat16, from memory that it never wrote (seen in PyTorch 2.13, not in 2.0).
    """
    return x.device.type == "cpu" and dtype == torch.bfloat16 and x.shape[2] == _PLANES_MISCOMPUTED


def plain_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, padding: Padding = _UNIT, needs_input: bool = True
) -> Gradients:
    """Return the gradients by PyTorch's kernels, where they are right; else by the same of more planes, of zeros."""
    if is_miscomputed(x, x.dtype):
        gradient, x = (F.pad(tensor, (0, 0, 0, 0, 0, _PLANES_MISCOMPUTED)) for tensor in (gradient, x))
        grad_x, grad_weight, grad_bias = plain_backward(gradient, x, weight, padding, needs_input)
        return None if grad_x is None else grad_x[:, :, :_PLANES_MISCOMPUTED], grad_weight, grad_bias
    gradients: Gradients = torch.ops.aten.convolution_backward(
        *(gradient, x, weight, [weight.shape[0]], _UNIT, padding, _UNIT, False, [0, 0, 0], 1),
        [needs_input, True, True],
    )
    return gradients


class _FastConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return forward_form(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Gradients:
        x, weight = ctx.saved_tensors
        return backward_form(gradient, x, weight, ctx.needs_input_grad[0])


def _is_float32_sample(x: Tensor) -> bool:
    """Tell whether ``x`` is one float32 sample of even depth on the CPU, in the ordinary memory format."""
    return _is_sample(x) and x.dtype == torch.float32 and x.is_contiguous()


def _is_bfloat16_sample(x: Tensor) -> bool:
    """Tell whether ``x`` is one bfloat16 sample of even depth on the CPU, in the channels-last memory format."""
    return _is_sample(x) and x.dtype == torch.bfloat16 and x.is_contiguous(memory_format=torch.channels_last_3d)


def _is_sample(x: Tensor) -> bool:
    return x.shape[0] == 1 and x.device.type == "cpu" and x.shape[2] % 2 == 0


def _halves(x: Tensor) -> Tensor:  # (1, C, D, H, W) -> (2, C, D/2 + 2, H, W)
    """Return both halves of the planes, each with the plane before and after it (zero outside)."""
    half = x.shape[2] // 2
    padded = F.pad(x, (0, 0, 0, 0, 1, 1))
    return torch.cat([padded[:, :, : half + 2], padded[:, :, half:]])


def _fold(halves: Tensor) -> Tensor:  # (2, C, D/2 + 2, H, W) -> (1, C, D, H, W)
    """Add up what both halves say of each plane: the transpose of ``_halves``."""
    half = halves.shape[2] - 2
    folded = torch.cat([halves[:1, :, 1:-1], halves[1:, :, 1:-1]], dim=2)
    folded[:, :, half] += halves[:1, :, -1]
    folded[:, :, half - 1] += halves[1:, :, 0]
    return folded
