"""The gradient of a convolution's weight with fewer multiplications: minimal filtering along the depth.

Tiles of four planes, F(3,4), need six products instead of twelve; tiles of two, F(3,2), four instead of six (Lavin and
Gray 2016, sections 4.2 and 4.3: the transposes of F(4,3) and F(2,3)). The larger tiles round more: their sums weigh
planes by up to 3. What is rounded here enters a step of the optimiser and no other layer, so that it does not build up
from layer to layer as that of the other two directions does (``minimal``), which keep to tiles of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gpustudy.medddpm.matrix import memory_format
from gpustudy.medddpm.minimal import FILTERS, filtered, filtered_gradient, minus_next, previous_minus, slabs

_UNIT = (1, 1, 1)
_PADDING = (0, 1, 1)

_INNER, _OUTER = 0.75, 1.5
"""Tiles of four planes are evaluated at 0, infinity, these and their negatives. The usual 1 and 2 give 1.4 times the
error in bfloat16, of random values; good points are found by trial (Barabasz et al. 2020)."""

_INNER_2, _OUTER_2 = _INNER**2, _OUTER**2


def minimal_weight_gradient(gradient: Tensor, x: Tensor, least_elements: int) -> Tensor:
    """Return the gradient of the weight, (K, C, 3, 3, 3) in the dtype of ``x``.

    Args:
        gradient: of the result, (1, K, D, H, W), in the memory format of ``x``.
        x: the sample, (1, C, D, H, W), D even.
        least_elements: a product has more than so many elements of C x planes x H, if tiles of two planes allow it.
    """
    tiles = _tiles(x, least_elements)
    weight = torch.empty((gradient.shape[1], x.shape[1], 1, 3, 3), dtype=x.dtype)  # only its shape is read
    totals = torch.zeros((len(tiles.sums[0]), *weight.shape), dtype=torch.float32)
    for first, last in slabs(x, tiles.size, least_elements):
        own = gradient[:, :, tiles.size * first : tiles.size * last]
        for total, met, planes in zip(totals, tiles.gradients(own), tiles.inputs(x, first, last), strict=True):
            _, product, _ = torch.ops.aten.convolution_backward(
                *(met, planes, weight, None), *(_UNIT, _PADDING, _UNIT, False, [0, 0, 0], 1, [False, True, False])
            )
            total.add_(product)
    planes = torch.tensor(tiles.sums) @ totals.flatten(1)
    return planes.view(3, *weight.shape[:2], 3, 3).movedim(0, 2).to(x.dtype)


def _four_inputs(x: Tensor, first: int, last: int) -> Iterator[Tensor]:  # (1, C, D, H, W) -> 6 x (1, C, J, H, W)
    """Give the inputs of the products for the tiles b, c, d, e; a is the plane before a tile, f the one after it."""
    b, c, d, e = (x[:, :, 4 * first + plane : 4 * last : 4] for plane in range(4))
    even, odd = torch.sub(e, c, alpha=_INNER_2), torch.sub(d, b, alpha=_INNER_2)
    before = previous_minus(x, first, last, 4, c, 1 / _INNER_2)
    yield torch.add(even, before, alpha=_INNER_2 * _OUTER_2, out=before)
    yield minus_next(x, first, last, 4, d, 1 / _INNER_2).add_(odd, alpha=_OUTER_2 / _INNER_2)
    yield torch.add(even, odd, alpha=_OUTER)
    yield even.sub_(odd, alpha=_OUTER)
    even, odd = torch.sub(e, c, alpha=_OUTER_2), torch.sub(d, b, alpha=_OUTER_2)
    yield torch.add(even, odd, alpha=_INNER)
    yield even.sub_(odd, alpha=_INNER)


def _four_gradients(gradient: Tensor) -> Iterator[Tensor]:  # (1, K, 4 J, H, W) -> 6 x (1, K, J, H, W)
    """Give the gradients that the inputs meet: a tile's planes times the powers 0 to 3 of each point."""
    one, two, three, four = (gradient[:, :, plane::4] for plane in range(4))
    yield one.contiguous(memory_format=memory_format(gradient))
    yield four.contiguous(memory_format=memory_format(gradient))
    for point in (_OUTER, _INNER):
        even, odd = torch.add(one, three, alpha=point**2), torch.add(two, four, alpha=point**2)
        yield torch.add(even, odd, alpha=point)
        yield even.sub_(odd, alpha=point)


@dataclass(frozen=True)
class _Tiles:
    """One form of minimal filtering.

    Attributes:
        size: planes of a tile.
        inputs: gives the input of each product.
        gradients: gives the gradient that it meets.
        sums: how the three planes of the weight's gradient are made of the products.
    """

    size: int
    inputs: Callable[[Tensor, int, int], Iterator[Tensor]]
    gradients: Callable[[Tensor], Iterator[Tensor]]
    sums: tuple[tuple[float, ...], ...]


_INNER_SHARE = 1 / (2 * _INNER_2 * (_INNER_2 - _OUTER_2))
"""One over the product of the point's distances from 0 and the other three (Lagrange's interpolation)."""
_OUTER_SHARE = 1 / (2 * _OUTER_2 * (_OUTER_2 - _INNER_2))

_OF_TWO = _Tiles(2, filtered, filtered_gradient, tuple(zip(*FILTERS, strict=True)))
_OF_FOUR = _Tiles(
    4,
    _four_inputs,
    _four_gradients,
    (  # powers 0, 1 and 2 of the points 0, infinity, and the four others
        (1 / (_INNER_2 * _OUTER_2), 0.0, *[_OUTER_SHARE] * 2, *[_INNER_SHARE] * 2),
        (0.0, 0.0, _OUTER * _OUTER_SHARE, -_OUTER * _OUTER_SHARE, _INNER * _INNER_SHARE, -_INNER * _INNER_SHARE),
        (0.0, -_INNER_2, *[_OUTER_2 * _OUTER_SHARE] * 2, *[_INNER_2 * _INNER_SHARE] * 2),
    ),
)


def _tiles(x: Tensor, least_elements: int) -> _Tiles:
    _, channels, depth, height, _ = x.shape
    is_large = channels * (depth // 4) * height > least_elements
    return _OF_FOUR if depth % 4 == 0 and is_large else _OF_TWO
