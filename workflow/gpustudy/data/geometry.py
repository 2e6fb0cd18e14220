"""Bringing a volume to another shape while keeping where it lies in space."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from gpustudy.data.volumes import FWHM_PER_SIGMA, Affine, Floats, Labels

Shape = tuple[int, ...]


def crop_pad(array: NDArray[np.generic], shape: Shape, fill: float) -> NDArray[np.generic]:
    """Cut off or add voxels on both ends of each axis; of an odd number the low end takes one more.

    That is how torchio's CropOrPad, which the published BraTS preparation uses, shares them out.
    """
    result = np.full(shape, fill, dtype=array.dtype)
    source, target = [], []
    for have, want in zip(array.shape, shape, strict=True):
        cut, pad = low_voxels(have, want), low_voxels(want, have)
        length = min(have, want)
        source.append(slice(cut, cut + length))
        target.append(slice(pad, pad + length))
    result[tuple(target)] = array[tuple(source)]
    return result


def low_voxels(have: int, want: int) -> int:
    """Return how many voxels go at the low end when ``have`` are cut to ``want``: half of them, rounded up."""
    return (max(have - want, 0) + 1) // 2


def crop_pad_affine(affine: Affine, have: Shape, want: Shape) -> Affine:
    """Return the affine after ``crop_pad`` from shape ``have`` to ``want``, both (Z, Y, X)."""
    shift = [low_voxels(a, b) - low_voxels(b, a) for a, b in zip(have, want, strict=True)]
    result = affine.copy()
    result[:3, 3] += affine[:3, :3] @ shift[::-1]
    return result


def resample(volume: Floats, shape: Shape, smooth: bool) -> Floats:
    """Interpolate linearly between voxel centres, the outer faces of both volumes coinciding.

    Args:
        volume: (D, H, W).
        shape: the new (D, H, W).
        smooth: blur to the new voxel's width where it is wider, so that fine detail does not alias.
    """
    factors = [have / want for have, want in zip(volume.shape, shape, strict=True)]
    if smooth and max(factors) > 1:
        sigma = [factor / FWHM_PER_SIGMA if factor > 1 else 0.0 for factor in factors]
        volume = ndimage.gaussian_filter(volume, sigma, mode="nearest")
    return np.asarray(_zoom(volume, shape, order=1), dtype=np.float32)


def resample_labels(labels: Labels, shape: Shape) -> Labels:
    """Take the nearest voxel's label: (D, H, W) to ``shape``."""
    return np.asarray(_zoom(labels, shape, order=0), dtype=np.uint8)


def resample_affine(affine: Affine, have: Shape, want: Shape) -> Affine:
    """Return the affine after ``resample`` from shape ``have`` to ``want``, both (Z, Y, X)."""
    factors = np.array([a / b for a, b in zip(have, want, strict=True)])[::-1]  # (x, y, z)
    result = affine.copy()
    result[:3, :3] = affine[:3, :3] * factors
    result[:3, 3] += affine[:3, :3] @ ((factors - 1) / 2)  # the first voxel's centre moves by half the change
    return result


def _zoom(array: NDArray[np.generic], shape: Shape, order: int) -> NDArray[np.generic]:
    if array.shape == tuple(shape):
        return array
    factors = [want / have for have, want in zip(array.shape, shape, strict=True)]
    zoomed = ndimage.zoom(array, factors, order=order, mode="nearest", grid_mode=True)
    assert zoomed.shape == tuple(shape)
    return np.asarray(zoomed)
