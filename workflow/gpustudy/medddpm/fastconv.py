"""Faster forms of a 3 x 3 x 3 convolution with padding 1 on the CPU; elsewhere PyTorch's own.

They are for one contiguous sample in float32 and for one channels-last sample in bfloat16. The mathematics is the
same; only the order of rounding differs. Two forms, chosen by size:

- *halved* (float32): PyTorch gives one small sample to a slow kernel, but a batch of two to oneDNN; so the two
  halves of the sample go as a batch, each with one plane of the other.
- *minimal filtering*: Winograd's F(2,3) along depth makes two output planes from four input planes with four
  multiplications per weight instead of six (Lavin and Gray 2016, section 4.1). It goes slab by slab, so that
  its temporary planes stay in the cache.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name that PyTorch's own documentation uses
from torch import Tensor
from torch.autograd.function import once_differentiable

SLOW_ELEMENTS = 20_480
"""PyTorch's CPU convolution takes oneDNN for one float32 sample only above this many elements of C x D x H
(``use_mkldnn`` in aten/src/ATen/native/Convolution.cpp); its other form takes up to three times as long."""

SLAB_ELEMENTS = 1 << 20
"""Elements of one temporary of minimal filtering (4 MiB), so that a few of them stay in a last-level cache."""

MINIMAL_CHANNELS = 32
"""Channels in and out from which minimal filtering pays: below, its additions outweigh what it saves."""

MINIMAL_BF16_SIDE = 16
"""Depth from which minimal filtering pays in bfloat16: below, its many small calls outweigh what it saves."""

Padding = tuple[int, int, int]
Gradients = tuple[Tensor, Tensor, Tensor]

_UNIT = (1, 1, 1)
_TAPS = 27
"""Voxels under a 3 x 3 x 3 filter."""


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


def forward_form(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Convolve by the form that suits; not differentiable."""
    if is_slow(x):
        return torch.cat(F.conv3d(_halves(x), weight, bias, padding=(0, 1, 1)).chunk(2), dim=2)
    if is_minimal(x, weight.shape[0]):
        return _minimal_forward(x, weight, bias)
    return F.conv3d(x, weight, bias, padding=1)


def backward_form(gradient: Tensor, x: Tensor, weight: Tensor) -> Gradients:
    """Return the gradients of input, weight and bias, by the same form."""
    if is_slow(x):
        halves = torch.cat(gradient.chunk(2, dim=2))
        grad_halves, grad_weight, grad_bias = plain_backward(halves, _halves(x), weight, (0, 1, 1))
        return _fold(grad_halves), grad_weight, grad_bias
    if is_minimal(x, weight.shape[0]):
        return _minimal_backward(gradient, x, weight)
    return plain_backward(gradient, x, weight)


def is_miscomputed(x: Tensor, dtype: torch.dtype) -> bool:
    """Tell whether the CPU's kernel would give a wrong weight gradient for ``x`` in ``dtype``.

    For 2 x 2 x 2 voxels in bfloat16 it reads memory that was never written (seen in PyTorch 2.13, not in 2.0).
    """
    return x.device.type == "cpu" and dtype == torch.bfloat16 and tuple(x.shape[2:]) == (2, 2, 2)


def plain_backward(gradient: Tensor, x: Tensor, weight: Tensor, padding: Padding = _UNIT) -> Gradients:
    """Return the gradients of input, weight and bias by PyTorch's kernels, but for a weight gradient that is wrong."""
    is_wrong = is_miscomputed(x, x.dtype)
    grad_x, grad_weight, grad_bias = torch.ops.aten.convolution_backward(
        gradient, x, weight, [weight.shape[0]], _UNIT, padding, _UNIT, False, [0, 0, 0], 1, [True, not is_wrong, True]
    )
    return grad_x, _weight_gradient(gradient, x, padding) if is_wrong else grad_weight, grad_bias


def _weight_gradient(gradient: Tensor, x: Tensor, padding: Padding) -> Tensor:  # -> (C_out, C_in, 3, 3, 3)
    """Return the weight gradient as one matrix product over all windows, channels-last; for few voxels."""
    channels_out, channels = gradient.shape[1], x.shape[1]
    depth, height, width = padding
    windows = F.pad(x, (width, width, height, height, depth, depth))
    for dimension in (2, 3, 4):
        windows = windows.unfold(dimension, 3, 1)  # (B, C_in, D, H, W, 3, 3, 3) in the end
    flat = windows.permute(0, 2, 3, 4, 5, 6, 7, 1).reshape(-1, _TAPS * channels)  # (B D H W, taps C_in)
    product = gradient.permute(1, 0, 2, 3, 4).reshape(channels_out, -1) @ flat
    return product.reshape(channels_out, 3, 3, 3, channels).permute(0, 4, 1, 2, 3)


class _FastConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return forward_form(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Gradients:
        return backward_form(gradient, *ctx.saved_tensors)


def _is_float32_sample(x: Tensor) -> bool:
    """Tell whether ``x`` is one float32 sample of even depth on the CPU, in the ordinary memory format."""
    return _is_sample(x) and x.dtype == torch.float32 and x.is_contiguous()


def _is_bfloat16_sample(x: Tensor) -> bool:
    """Tell whether ``x`` is one bfloat16 sample of even depth on the CPU, in the channels-last memory format."""
    return _is_sample(x) and x.dtype == torch.bfloat16 and x.is_contiguous(memory_format=torch.channels_last_3d)


def _is_sample(x: Tensor) -> bool:
    return x.shape[0] == 1 and x.device.type == "cpu" and x.shape[2] % 2 == 0


def _format(x: Tensor) -> torch.memory_format:
    """Return the memory format of the samples above, by their dtype."""
    return torch.channels_last_3d if x.dtype == torch.bfloat16 else torch.contiguous_format


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


def _filters(weight: Tensor) -> list[Tensor]:  # (K, C, 3, 3, 3) -> 4 x (K, C, 1, 3, 3)
    """Return the four filters of F(2,3) along depth, rounded once."""
    first, middle, last = (weight[:, :, plane : plane + 1].float() for plane in range(3))
    ends = (first + last) / 2
    return [one.to(weight.dtype).contiguous() for one in (first, ends + middle / 2, ends - middle / 2, last)]


def _combined(planes: Tensor, index: int) -> Tensor:  # (1, C, 2 J + 2, H, W) -> (1, C, J, H, W)
    """Return the input of filter ``index``: a sum of two of the planes 2j, 2j+1, 2j+2, 2j+3."""
    a, b, c, d = planes[:, :, :-2:2], planes[:, :, 1:-1:2], planes[:, :, 2::2], planes[:, :, 3::2]
    if index == 0:
        return a - c
    if index == 1:
        return b + c
    return c - b if index == 2 else b - d


def _slabs(x: Tensor) -> list[tuple[int, int]]:
    """Return ranges of output pairs whose temporaries fit ``SLAB_ELEMENTS``, but not the slow kernel."""
    _, channels, depth, height, width = x.shape
    pairs = depth // 2
    least = SLOW_ELEMENTS // (channels * height) + 1
    size = max(SLAB_ELEMENTS // (channels * height * width), least)
    count = max(pairs // size, 1)
    edges = [pairs * part // count for part in range(count + 1)]
    return list(pairwise(edges))


def _padded(x: Tensor) -> Tensor:  # (1, C, D, H, W) -> (1, C, D + 2, H, W)
    """Put a plane of zeros before and after; ``F.pad`` would fill the whole result first."""
    _, channels, depth, height, width = x.shape
    padded = torch.empty((1, channels, depth + 2, height, width), dtype=x.dtype, memory_format=_format(x))
    padded[:, :, 0].zero_()
    padded[:, :, -1].zero_()
    padded[:, :, 1:-1].copy_(x)
    return padded


def _minimal_forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    filters, padded = _filters(weight), _padded(x)
    result = torch.empty((1, weight.shape[0], *x.shape[2:]), dtype=x.dtype, memory_format=_format(x))
    for first, last in _slabs(x):
        planes = padded[:, :, 2 * first : 2 * last + 2]
        products = [F.conv3d(_combined(planes, index), filters[index], padding=(0, 1, 1)) for index in range(4)]
        both = bias[:, None, None, None]
        even, odd = result[:, :, 2 * first : 2 * last : 2], result[:, :, 2 * first + 1 : 2 * last : 2]
        torch.add(products[0].add_(both).add_(products[1]), products[2], out=even)
        torch.sub(products[1].add_(both).sub_(products[2]), products[3], out=odd)
    return result


def _minimal_backward(gradient: Tensor, x: Tensor, weight: Tensor) -> Gradients:
    filters, padded, layout = _filters(weight), _padded(x), _format(x)
    gradient = gradient.contiguous(memory_format=layout)
    grad_filters = [torch.zeros_like(one, dtype=torch.float32) for one in filters]
    grad_padded = torch.zeros_like(padded)
    for first, last in _slabs(x):
        planes, grad_planes = (tensor[:, :, 2 * first : 2 * last + 2] for tensor in (padded, grad_padded))
        even, odd = gradient[:, :, 2 * first : 2 * last : 2], gradient[:, :, 2 * first + 1 : 2 * last : 2]
        a, b = grad_planes[:, :, :-2:2], grad_planes[:, :, 1:-1:2]
        c, d = grad_planes[:, :, 2::2], grad_planes[:, :, 3::2]
        for index, (grad_product, terms) in enumerate(
            ((even, (a, c)), (even + odd, (b, c)), (even - odd, (c, b)), (-odd, (b, d)))
        ):
            grad_input, grad_filter, _ = torch.ops.aten.convolution_backward(
                *(grad_product.contiguous(memory_format=layout), _combined(planes, index), filters[index], None),
                *(_UNIT, (0, 1, 1), _UNIT, False, [0, 0, 0], 1, [True, True, False]),
            )
            grad_filters[index] += grad_filter
            terms[0].add_(grad_input)
            terms[1].add_(grad_input, alpha=1 if index == 1 else -1)
    ends = (grad_filters[1] + grad_filters[2]) / 2
    middle = (grad_filters[1] - grad_filters[2]) / 2
    grad_weight = torch.cat([grad_filters[0] + ends, middle, grad_filters[3] + ends], dim=2).to(weight.dtype)
    grad_x = grad_padded[:, :, 1:-1].contiguous(memory_format=layout)
    return grad_x, grad_weight, gradient.sum(dim=(0, 2, 3, 4))
