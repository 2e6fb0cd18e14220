"""Convolution with fewer multiplications: Winograd's minimal filtering F(2,3) along the depth.

Two output planes are made from four input planes a, b, c, d with four multiplications per weight instead of six
(Lavin and Gray 2016, section 4.1): the filters *first*, *half the sum of all three*, *the same with the middle
negative* and *last* meet a - c, b + c, c - b and b - d.

For one sample (1, C, D, H, W) of even depth D. It goes slab by slab, so that the temporary planes stay in the cache.
The gradient of the weight has its own form (``minimal_weight``).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812 - the name that PyTorch's own documentation uses
from torch import Tensor

from gpustudy.medddpm.matrix import memory_format

SLAB_ELEMENTS = 1 << 20
"""Elements of one temporary (4 MiB in float32), so that a few of them stay in a last-level cache."""

FILTERS = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))
"""The four filters as sums of the three planes of a kernel."""

_UNIT = (1, 1, 1)
_PADDING = (0, 1, 1)


def minimal_forward(x: Tensor, weight: Tensor, bias: Tensor, least_elements: int) -> Tensor:
    """Convolve (1, C, D, H, W) with (K, C, 3, 3, 3), padding 1, to (1, K, D, H, W).

    Args:
        x: the sample; the result has its memory format.
        weight: the kernels.
        bias: (K,).
        least_elements: a slab has more than so many elements of C x D/2 x H, if there are more.
    """
    filters = _filters(weight)
    result = torch.empty((1, len(weight), *x.shape[2:]), dtype=x.dtype, memory_format=memory_format(x))
    for first, last in slabs(x, 2, least_elements):
        own = result[:, :, 2 * first : 2 * last]
        # the second product counts once, positively, in every output: it carries the bias
        one, two, three, four = (
            F.conv3d(planes, filters[index], bias if index == 1 else None, padding=_PADDING)
            for index, planes in enumerate(filtered(x, first, last))
        )
        torch.add(one.add_(two), three, out=own[:, :, ::2])
        torch.sub(two.sub_(three), four, out=own[:, :, 1::2])
    return result


def minimal_input_gradient(gradient: Tensor, x: Tensor, weight: Tensor, least_elements: int) -> Tensor:
    """Return the gradient of the input ``x``; ``gradient`` has its memory format."""
    filters = _filters(weight)
    grad_x = torch.empty_like(x)
    after: Tensor | None = None
    for first, last in slabs(x, 2, least_elements):
        own = slice(2 * first, 2 * last)
        shape = torch.empty((1, x.shape[1], last - first, *x.shape[3:]), dtype=x.dtype, memory_format=memory_format(x))
        parts = [
            torch.ops.aten.convolution_backward(
                *(product, shape, filters[index], None),
                *(_UNIT, _PADDING, _UNIT, False, [0, 0, 0], 1, [True, False, False]),
            )[0]
            for index, product in enumerate(filtered_gradient(gradient[:, :, own]))
        ]
        _unfilter(parts, grad_x[:, :, own])
        if after is not None:  # a slab also reaches the last plane of the one before, which reaches its first
            grad_x[:, :, 2 * first - 1].add_(parts[0][:, :, 0])
            grad_x[:, :, 2 * first].sub_(after)
        after = parts[3][:, :, -1]
    return grad_x


def slabs(x: Tensor, size: int, least_elements: int) -> list[tuple[int, int]]:
    """Return ranges of tiles, of ``size`` planes each, whose temporaries fit ``SLAB_ELEMENTS``."""
    _, channels, depth, height, width = x.shape
    tiles = depth // size
    most = max(SLAB_ELEMENTS // (channels * height * width), least_elements // (channels * height) + 1)
    count = max(tiles // most, 1)
    return list(pairwise(tiles * part // count for part in range(count + 1)))


def previous_minus(x: Tensor, first: int, last: int, size: int, own: Tensor, times: float = 1) -> Tensor:
    """Return the plane before each tile of ``size`` planes less ``times`` ``own``; before the first there is nothing.

    Args:
        x: the sample (1, C, D, H, W).
        first: the first tile.
        last: the tile after the last one.
        size: planes of a tile.
        own: a plane of each of these tiles, (1, C, last - first, H, W).
        times: its weight.
    """
    if first > 0:
        return torch.sub(x[:, :, size * first - 1 : size * last - 1 : size], own, alpha=times)
    part = torch.empty_like(own, memory_format=memory_format(x))
    torch.mul(own[:, :, :1], -times, out=part[:, :, :1])
    torch.sub(x[:, :, size - 1 : size * last - 1 : size], own[:, :, 1:], alpha=times, out=part[:, :, 1:])
    return part


def minus_next(x: Tensor, first: int, last: int, size: int, own: Tensor, times: float = 1) -> Tensor:
    """Return ``own`` less ``times`` the plane after each tile; after the last there is nothing. See above."""
    if size * last < x.shape[2]:
        return torch.sub(own, x[:, :, size * (first + 1) : size * last + 1 : size], alpha=times)
    part = torch.empty_like(own, memory_format=memory_format(x))
    torch.sub(own[:, :, :-1], x[:, :, size * (first + 1) : size * last : size], alpha=times, out=part[:, :, :-1])
    part[:, :, -1:].copy_(own[:, :, -1:])
    return part


def _filters(weight: Tensor) -> Tensor:  # (K, C, 3, 3, 3) -> (4, K, C, 1, 3, 3)
    """Return the filters, rounded once to the dtype of ``weight``."""
    planes = weight.movedim(2, 0).float().reshape(3, -1)
    filters = (torch.tensor(FILTERS) @ planes).to(weight.dtype)
    return filters.view(4, *weight.shape[:2], 1, 3, 3)


def filtered(x: Tensor, first: int, last: int) -> Iterator[Tensor]:  # (1, C, D, H, W) -> 4 x (1, C, J, H, W)
    """Give the inputs of the four filters for the pairs of output planes from ``first`` to ``last``."""
    b, c = x[:, :, 2 * first : 2 * last : 2], x[:, :, 2 * first + 1 : 2 * last : 2]
    yield previous_minus(x, first, last, 2, c)
    yield b + c
    yield c - b
    yield minus_next(x, first, last, 2, b)


def filtered_gradient(gradient: Tensor) -> Iterator[Tensor]:  # (1, K, 2 J, H, W) -> 4 x (1, K, J, H, W)
    """Give the gradients of the products of the four filters."""
    even, odd = gradient[:, :, ::2], gradient[:, :, 1::2]
    yield even.contiguous(memory_format=memory_format(gradient))
    yield even + odd
    yield even - odd
    yield -odd


def _unfilter(parts: list[Tensor], out: Tensor) -> None:  # 4 x (1, C, J, H, W) -> (1, C, 2 J, H, W)
    """Write the gradient of the planes b and c of all pairs to ``out``, with what the next pairs' a and d add."""
    one, two, three, four = parts
    torch.add(two - three, four, out=out[:, :, ::2])
    out[:, :, 2::2].sub_(four[:, :, :-1])
    torch.sub(two.add_(three), one, out=out[:, :, 1::2])
    out[:, :, 1:-1:2].add_(one[:, :, 1:])
