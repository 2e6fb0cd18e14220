"""The transforms of Winograd's minimal filtering with three taps along one axis, for tiles of two and of four planes.

A tile of outputs is made of the products of a few sums of its input planes with as many sums of the taps: F(2,3) takes
four products instead of six, F(4,3) six instead of twelve (Lavin and Gray 2016, sections 4.1 and 4.3). Each product is
what two polynomials give at one point; the sums are powers of the points and Lagrange's interpolation (Blahut 2010,
chapter 5). In any precision below float64 the larger tile rounds more, as it weighs planes by up to 3.4.

C are channels, J tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gpustudy.medddpm.matrix import memory_format


@dataclass(frozen=True)
class Tiles:
    """One form of minimal filtering.

    Attributes:
        size: planes of a tile.
        inputs: of a sample (1, C, D, H, W), the first tile and the one after the last: gives what enters each product,
            (1, C, J, H, W).
        write: adds the products up to the tiles of the result, (1, C, size J, H, W).
        gradients: of the result's gradient (1, C, size J, H, W): gives that of each product.
        filters: what meets each input, as a sum of the three taps.
        bias: how much of the bias each product carries, so that every output has it once.
    """

    size: int
    inputs: Callable[[Tensor, int, int], Iterator[Tensor]]
    write: Callable[[list[Tensor], Tensor], None]
    gradients: Callable[[Tensor], Iterator[Tensor]]
    filters: tuple[tuple[float, ...], ...]
    bias: tuple[float, ...]


def _two_inputs(x: Tensor, first: int, last: int) -> Iterator[Tensor]:
    """Give the inputs for the tiles b, c; a is the plane before a tile, d the one after it."""
    b, c = (x[:, :, 2 * first + plane : 2 * last : 2] for plane in range(2))
    yield _previous_minus(x, first, last, 2, c)  # a - c
    yield b + c
    yield c - b
    yield _minus_next(x, first, last, 2, b)  # b - d


def _two_write(products: list[Tensor], out: Tensor) -> None:
    one, two, three, four = products
    torch.add(one.add_(two), three, out=out[:, :, ::2])
    torch.sub(two.sub_(three), four, out=out[:, :, 1::2])


def _two_gradients(gradient: Tensor) -> Iterator[Tensor]:
    even, odd = gradient[:, :, ::2], gradient[:, :, 1::2]
    yield even.contiguous(memory_format=memory_format(gradient))
    yield even + odd
    yield even - odd
    yield -odd


TWO = Tiles(
    2,
    _two_inputs,
    _two_write,
    _two_gradients,
    filters=((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0)),
    bias=(0.0, 1.0, 0.0, 0.0),
)
"""F(2,3), at the points 0, 1, -1 and infinity."""

_INNER, _OUTER = 0.75, 1.5
"""Tiles of four planes are evaluated at 0, infinity, these and their negatives. The usual 1 and 2 give 1.4 times the
error in bfloat16, of random values; good points are found by trial (Barabasz et al. 2020)."""

_INNER_2, _OUTER_2 = _INNER**2, _OUTER**2

_INNER_SHARE = 1 / (2 * _INNER_2 * (_INNER_2 - _OUTER_2))
"""One over the product of the point's distances from 0 and the other three."""
_OUTER_SHARE = 1 / (2 * _OUTER_2 * (_OUTER_2 - _INNER_2))


def _four_inputs(x: Tensor, first: int, last: int) -> Iterator[Tensor]:
    """Give the inputs for the tiles b, c, d, e; a is the plane before a tile, f the one after it."""
    b, c, d, e = (x[:, :, 4 * first + plane : 4 * last : 4] for plane in range(4))
    even, odd = torch.sub(e, c, alpha=_INNER_2), torch.sub(d, b, alpha=_INNER_2)
    before = _previous_minus(x, first, last, 4, c, 1 / _INNER_2)
    yield torch.add(even, before, alpha=_INNER_2 * _OUTER_2, out=before)
    yield _minus_next(x, first, last, 4, d, 1 / _INNER_2).add_(odd, alpha=_OUTER_2 / _INNER_2)
    yield torch.add(even, odd, alpha=_OUTER)
    yield even.sub_(odd, alpha=_OUTER)
    even, odd = torch.sub(e, c, alpha=_OUTER_2), torch.sub(d, b, alpha=_OUTER_2)
    yield torch.add(even, odd, alpha=_INNER)
    yield even.sub_(odd, alpha=_INNER)


def _four_write(products: list[Tensor], out: Tensor) -> None:
    """Give each point its powers 0 to 3."""
    zero, infinity, outer, minus_outer, inner, minus_inner = products
    outer_sum, inner_sum = outer + minus_outer, inner + minus_inner
    outer.sub_(minus_outer)
    inner.sub_(minus_inner)
    torch.add(zero.add_(outer_sum), inner_sum, out=out[:, :, ::4])
    torch.add(outer_sum.mul_(_OUTER_2), inner_sum, alpha=_INNER_2, out=out[:, :, 2::4])
    infinity.add_(outer, alpha=_OUTER**3)
    torch.add(infinity, inner, alpha=_INNER**3, out=out[:, :, 3::4])
    torch.add(outer.mul_(_OUTER), inner, alpha=_INNER, out=out[:, :, 1::4])


def _four_gradients(gradient: Tensor) -> Iterator[Tensor]:
    """Give a tile's planes times the powers 0 to 3 of each point."""
    one, two, three, four = (gradient[:, :, plane::4] for plane in range(4))
    yield one.contiguous(memory_format=memory_format(gradient))
    yield four.contiguous(memory_format=memory_format(gradient))
    for point in (_OUTER, _INNER):
        even, odd = torch.add(one, three, alpha=point**2), torch.add(two, four, alpha=point**2)
        yield torch.add(even, odd, alpha=point)
        yield even.sub_(odd, alpha=point)


FOUR = Tiles(
    4,
    _four_inputs,
    _four_write,
    _four_gradients,
    filters=(
        (1 / (_INNER_2 * _OUTER_2), 0.0, 0.0),
        (0.0, 0.0, -_INNER_2),
        *(tuple(_OUTER_SHARE * point**power for power in range(3)) for point in (_OUTER, -_OUTER)),
        *(tuple(_INNER_SHARE * point**power for power in range(3)) for point in (_INNER, -_INNER)),
    ),
    bias=(1 - 1 / _OUTER_2, 1 - _OUTER_2, (1 / _OUTER_2 + 1 / _OUTER) / 2, (1 / _OUTER_2 - 1 / _OUTER) / 2, 0.0, 0.0),
)
"""F(4,3)."""


def _previous_minus(x: Tensor, first: int, last: int, size: int, own: Tensor, times: float = 1) -> Tensor:
    """Return the plane before each tile less ``times`` ``own``, a plane of each; before the first there is nothing."""
    if first > 0:
        return torch.sub(x[:, :, size * first - 1 : size * last - 1 : size], own, alpha=times)
    part = torch.empty_like(own, memory_format=memory_format(x))
    torch.mul(own[:, :, :1], -times, out=part[:, :, :1])
    torch.sub(x[:, :, size - 1 : size * last - 1 : size], own[:, :, 1:], alpha=times, out=part[:, :, 1:])
    return part


def _minus_next(x: Tensor, first: int, last: int, size: int, own: Tensor, times: float = 1) -> Tensor:
    """Return ``own``, a plane of each tile, less ``times`` the one after the tile; after the last there is nothing."""
    if size * last < x.shape[2]:
        return torch.sub(own, x[:, :, size * (first + 1) : size * last + 1 : size], alpha=times)
    part = torch.empty_like(own, memory_format=memory_format(x))
    torch.sub(own[:, :, :-1], x[:, :, size * (first + 1) : size * last : size], alpha=times, out=part[:, :, :-1])
    part[:, :, -1:].copy_(own[:, :, -1:])
    return part
