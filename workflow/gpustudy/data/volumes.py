"""One case as arrays, and the small operations on volumes that every kind shares: axes, intensity, masks.

Two axis orders meet here. A NIfTI array is (X, Y, Z); the network's is (Z, Y, X). An affine always belongs to the
(X, Y, Z) array, so that ``to_nifti(volume, affine)`` writes a volume back in its original orientation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import nibabel
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Labels = NDArray[np.uint8]
Affine = NDArray[np.float64]
Scalar = TypeVar("Scalar", bound=np.generic)

MASK_RANGE = (-1.0, 1.0)
"""Values of a mask channel outside and inside: the range of the image, as the published whole-head model has it."""
PUBLISHED_BRATS_MASK_RANGE = (0.0, 1.0)
"""The published BraTS model's masks are not rescaled."""


FWHM_PER_SIGMA = 2.3548
"""Full width at half maximum of a Gaussian, 2 sqrt(2 ln 2): before coarser sampling an image is blurred to the new
voxel's width."""


@dataclass(frozen=True)
class Case:
    """One prepared case.

    Attributes:
        case_id: name of the case.
        image: (C_image, D, H, W) in [-1, 1].
        masks: (C_mask, D, H, W).
        labels: (D, H, W), label of each voxel, for evaluation.
        affine: 4x4, from (x, y, z) voxel indices to millimetres.
    """

    case_id: str
    image: Floats
    masks: Floats
    labels: Labels
    affine: Affine


@dataclass(frozen=True)
class Plan:
    """What a data set will become: known before the first case is read.

    Attributes:
        case_ids: names of the cases, in order.
        mask_channels: names of the mask channels.
        mask_range: value of a mask channel outside and inside.
        label_names: label in ``labels.npy`` -> name.
        cases: the cases, made one at a time.
    """

    case_ids: tuple[str, ...]
    mask_channels: tuple[str, ...]
    mask_range: tuple[float, float]
    label_names: Mapping[int, str]
    cases: Iterator[Case]


def reverse_axes(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Turn the spatial axes (X, Y, Z) into (Z, Y, X), or back."""
    return np.ascontiguousarray(array.transpose(2, 1, 0))


def to_nifti(volume: NDArray[np.generic], affine: Affine) -> nibabel.Nifti1Image:
    """Return a (Z, Y, X) volume as a NIfTI image in its original orientation."""
    return nibabel.Nifti1Image(reverse_axes(volume), affine)


def voxel_mm(affine: Affine) -> tuple[float, float, float]:
    """Return the voxel size in the network's axis order (Z, Y, X), in millimetres."""
    x, y, z = np.linalg.norm(affine[:3, :3], axis=0)
    return float(z), float(y), float(x)


def scale_volume(volume: Floats) -> Floats:
    """Scale a volume from its own least and greatest value to [-1, 1]; slices keep their relation."""
    volume = _with_finite_span(volume)
    low, high = volume.min(), volume.max()
    return np.asarray(np.clip((volume - low) / (high - low) * 2 - 1, -1, 1), dtype=np.float32)


def scale_slices_published(volume: Floats) -> Floats:
    """Scale each Z slice (first axis) to [0, 1] on its own; a constant slice becomes 0. Not yet [-1, 1].

    This is what the published loader does to whole-head images. It removes the intensity relation between slices.
    """
    volume = _with_finite_span(volume)
    low = volume.min(axis=(1, 2), keepdims=True)
    span = volume.max(axis=(1, 2), keepdims=True) - low
    return np.asarray((volume - low) / np.where(span == 0, 1, span), dtype=np.float32)


def _with_finite_span(volume: Floats) -> NDArray[np.floating]:
    """Return ``volume``, in float64 where its greatest less its least value is beyond float32.

    All others stay in float32, so that the bits of what was prepared from them stay too.
    """
    span = float(volume.max()) - float(volume.min())
    return volume.astype(np.float64) if span > float(np.finfo(np.float32).max) else volume


def one_hot(labels: Labels, values: Sequence[int]) -> Floats:
    """Return (len(values), D, H, W): a channel of 0 and 1 per label value, so no two channels overlap."""
    return np.stack([labels == value for value in values]).astype(np.float32)


def to_range(masks: Floats, bounds: tuple[float, float]) -> Floats:
    """Move mask channels from [0, 1] to ``bounds``."""
    low, high = bounds
    return (masks * np.float32(high - low) + np.float32(low)).astype(np.float32)
