"""Multi-scale structural similarity (MS-SSIM) of volumes, equal to MONAI's without loading torch.

Wang, Simoncelli and Bovik (2003): contrast and structure at each scale, luminance at the coarsest, each scale half
the one before. The defaults of the paper refuse small volumes, so window and number of scales follow the side.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpustudy.base.errors import UserError

Volume = npt.NDArray[np.floating]

_WEIGHTS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)
"""Weight of each scale, finest first (Wang et al. 2003); with fewer scales they are scaled to sum to 1."""
_WINDOW_SIGMA = 1.5
_K1, _K2 = 0.01, 0.03
"""Constants of SSIM (Wang et al. 2004)."""
_SETTINGS = ((5, 11), (5, 7), (3, 11), (3, 7), (2, 7), (2, 3))
"""(scales, window side) to try in turn: a window must fit at the coarsest scale."""
_MOST_PAIRS = 1000
"""Pairs looked at, as in the literature; more are drawn at random."""


class Setting(NamedTuple):
    """Number of scales and side of the window, in voxels."""

    scales: int
    window: int


def setting_for(sides: Sequence[int]) -> Setting:
    """Return the first setting whose window fits a volume of these sides at the coarsest scale.

    Raises:
        UserError: the volume is too small for any.
    """
    for scales, window in _SETTINGS:
        if min(sides) // 2 ** (scales - 1) >= window:
            return Setting(scales, window)
    raise UserError(
        f"volumes of {' x '.join(map(str, sides))} voxels are too small for MS-SSIM: use sides of 6 or more."
    )


def ms_ssim(left: Volume, right: Volume, setting: Setting, data_range: float = 1.0) -> float:
    """Return the MS-SSIM of two volumes (C, D, H, W) with values of the given range, mean over channels.

    Negative contrast terms count as 0, as in MONAI.
    """
    weights = np.array(_WEIGHTS[: setting.scales]) / sum(_WEIGHTS[: setting.scales])
    terms = []
    left, right = left.astype(np.float64), right.astype(np.float64)
    for scale in range(setting.scales):
        luminance, contrast = _luminance_and_contrast(left, right, setting.window, data_range)
        is_last = scale == setting.scales - 1
        terms.append(max(float((luminance * contrast if is_last else contrast).mean()), 0.0))
        left, right = _halved(left), _halved(right)
    return float(np.prod(np.array(terms) ** weights))


def pairwise(volumes: Volume, data_range: float, seed: int) -> dict[tuple[int, int], float]:
    """Return the MS-SSIM of pairs of volumes (N, C, D, H, W): all, or as many drawn at random as are looked at."""
    setting = setting_for(volumes.shape[2:])
    pairs = list(combinations(range(len(volumes)), 2))
    if len(pairs) > _MOST_PAIRS:
        chosen = np.random.default_rng(seed).choice(len(pairs), _MOST_PAIRS, replace=False)
        pairs = [pairs[index] for index in sorted(chosen)]
    return {(first, second): ms_ssim(volumes[first], volumes[second], setting, data_range) for first, second in pairs}


def _luminance_and_contrast(left: Volume, right: Volume, window: int, data_range: float) -> tuple[Volume, Volume]:
    """Return both maps of SSIM over the places where the whole window lies inside (valid convolution)."""
    c1, c2 = (_K1 * data_range) ** 2, (_K2 * data_range) ** 2
    mean_left, mean_right = _blurred(left, window), _blurred(right, window)
    variance_left = _blurred(left * left, window) - mean_left**2
    variance_right = _blurred(right * right, window) - mean_right**2
    covariance = _blurred(left * right, window) - mean_left * mean_right
    luminance = (2 * mean_left * mean_right + c1) / (mean_left**2 + mean_right**2 + c1)
    contrast = (2 * covariance + c2) / (variance_left + variance_right + c2)
    return luminance, contrast


def _blurred(volume: Volume, window: int) -> Volume:
    """Return Gaussian means over the window along the last three axes, valid places only."""
    from scipy.ndimage import correlate1d

    offsets = np.arange(window) - window // 2
    gaussian = np.exp(-((offsets / _WINDOW_SIGMA) ** 2) / 2)
    half = window // 2
    for axis in (1, 2, 3):
        volume = correlate1d(volume, gaussian / gaussian.sum(), axis)
        volume = np.take(volume, range(half, volume.shape[axis] - half), axis)
    return volume


def _halved(volume: Volume) -> Volume:
    """Return means over 2 x 2 x 2 voxels; an odd last slice is left out, as average pooling does."""
    channels, *sides = volume.shape
    depth, height, width = (side // 2 for side in sides)
    cut = volume[:, : 2 * depth, : 2 * height, : 2 * width]
    halved: Volume = cut.reshape(channels, depth, 2, height, 2, width, 2).mean(axis=(2, 4, 6))
    return halved
