"""Metrics of the stage ``quality``: are generated volumes like real ones, different from each other, true to the mask?

No FID: at the sample sizes of the study its bias is far larger than any difference between configs.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpustudy.base.errors import UserError
from gpustudy.metrics.cells import LEVEL, Row, cell_row
from gpustudy.metrics.pictures import write_mosaic, write_nifti
from gpustudy.metrics.schemas import Identity
from gpustudy.metrics.similarity import pairwise
from gpustudy.metrics.two_sample import embed, two_sample

_STAGE = "quality"
_SAMPLES = "samples.npz"
_DATA_RANGE = 2.0
"""Volumes lie in [-1, 1]."""
_SEED = 20260101
"""Of random pairs and random splits: fixed, so that equal samples give equal numbers."""
_BINS = 256
_THRESHOLDS = 63
"""Candidate thresholds between -1 and 1: steps of 1/32."""

JACKKNIFE = "95% t of the jackknife over volumes"
T_INTERVAL = "95% t over volumes"


class Samples(NamedTuple):
    """What samples.npz holds: N generated volumes with their conditions, and the real volumes of the same cases."""

    samples: npt.NDArray[np.float32]  # (N, C, D, H, W) in [-1, 1]
    real: npt.NDArray[np.float32]  # (N, C, D, H, W) in [-1, 1]
    masks: npt.NDArray[np.float32]  # (N, C_mask, D, H, W)
    labels: npt.NDArray[np.uint8]  # (N, D, H, W)
    case_ids: npt.NDArray[Any]  # (N,)
    seeds: npt.NDArray[np.int64]  # (N,)
    affine: npt.NDArray[np.float64]  # (4, 4), voxel (x, y, z) -> mm


def quality_tables(raw: Path, out: Path, identity: Identity) -> list[Row]:
    """Write samples/*.nii.gz and mosaic.png, and return the rows of the cells table.

    Raises:
        UserError: samples.npz is not readable, lacks an array, or holds values that are not finite.
    """
    given = read_samples(raw / _SAMPLES)
    write_nifti(out / "samples", given.samples, [str(case) for case in given.case_ids], given.affine)
    write_mosaic(out / "mosaic.png", given.samples, given.real)
    _, first = np.unique(given.case_ids, return_index=True)
    once = np.sort(first)  # a case that conditions several samples is one real volume
    real, real_labels = given.real[once], given.labels[once]
    rows = [
        _similarity_row("ms_ssim_real", real),
        _similarity_row("ms_ssim_generated", given.samples),
        *_two_sample_rows(given.samples, real),
        *_histogram_rows(given.samples, given.labels, real, real_labels),
    ]
    threshold = best_threshold(real, real_labels > 0)
    for quantity, volumes, labels in (
        ("mask_fidelity", given.samples, given.labels),
        ("mask_fidelity_real", real, real_labels),
    ):
        scores = [
            dice(_brightness(volume) > threshold, label > 0) for volume, label in zip(volumes, labels, strict=True)
        ]
        rows.append(_mean_row(quantity, scores, "foreground"))
    return rows


def read_samples(path: Path) -> Samples:
    """Read samples.npz.

    Raises:
        UserError: the file is not readable, lacks an array, or its arrays do not fit each other.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            given = Samples(**{name: arrays[name] for name in Samples._fields})
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is not readable as samples ({error}): run the stage 'quality' again.") from error
    count, sides = len(given.samples), given.samples.shape[2:]
    fits = (
        given.samples.ndim == len(("N", "C", "D", "H", "W"))
        and given.real.shape == given.samples.shape
        and given.labels.shape == (count, *sides)
        and len(given.case_ids) == count
    )
    if not fits:
        shapes = ", ".join(f"{name} {getattr(given, name).shape}" for name in ("samples", "real", "labels", "case_ids"))
        raise UserError(f"{path}: arrays do not fit each other ({shapes}): run the stage 'quality' again.")
    if not (np.isfinite(given.samples).all() and np.isfinite(given.real).all()):
        raise UserError(f"{path} holds values that are not finite: the trained weights are broken, run 'train' again.")
    return given


def _similarity_row(quantity: str, volumes: npt.NDArray[np.float32]) -> Row:
    """Return the mean MS-SSIM over pairs; its interval leaves out one volume in turn, for pairs share volumes."""
    scores = pairwise(volumes, _DATA_RANGE, _SEED)
    if not scores:
        return cell_row(_STAGE, quantity, None, "pairs", n=0)
    whole = float(np.mean(list(scores.values())))
    without = [
        np.mean([score for pair, score in scores.items() if volume not in pair])
        for volume in range(len(volumes))
        if any(volume not in pair for pair in scores)
    ]
    count = len(without)
    if count <= 2:
        return cell_row(_STAGE, quantity, whole, "pairs", n=len(scores))
    error = float(np.sqrt((count - 1) / count * np.sum((np.array(without) - np.mean(without)) ** 2)))
    half = _t_quantile(count - 1) * error
    return cell_row(
        _STAGE, quantity, whole, "pairs", n=len(scores), low=whole - half, high=whole + half, interval=JACKKNIFE
    )


def _two_sample_rows(samples: npt.NDArray[np.float32], real: npt.NDArray[np.float32]) -> list[Row]:
    if min(len(samples), len(real)) < 2:  # the unbiased estimate needs two of each
        return [cell_row(_STAGE, quantity, None, n=0) for quantity in ("mmd2_rbf", "mmd_p_value")]
    found = two_sample(embed(samples), embed(real), _SEED)
    count = len(samples) + len(real)
    return [
        cell_row(_STAGE, "mmd2_rbf", found.mmd2, n=count),
        cell_row(_STAGE, "mmd_p_value", found.p_value, n=found.splits),
    ]


def _histogram_rows(
    samples: npt.NDArray[np.float32],
    labels: npt.NDArray[np.uint8],
    real: npt.NDArray[np.float32],
    real_labels: npt.NDArray[np.uint8],
) -> list[Row]:
    """Return the distance of the intensity histograms of each tissue label, mean over channels."""
    rows = []
    for label in np.unique(real_labels[real_labels > 0]):
        here, there = labels == label, real_labels == label  # (N, D, H, W)
        if not here.any():
            continue
        distances = [
            histogram_distance(samples[:, channel][here], real[:, channel][there])
            for channel in range(samples.shape[1])
        ]
        rows.append(
            cell_row(_STAGE, "histogram_distance", float(np.mean(distances)), f"label_{label}", n=int(here.sum()))
        )
    return rows


def histogram_distance(left: npt.NDArray[np.floating], right: npt.NDArray[np.floating]) -> float:
    """Return the Wasserstein distance of two sets of intensities in [-1, 1], by histograms of 256 bins.

    In one dimension it is the area between the cumulative distributions.
    """
    edges = np.linspace(-1, 1, _BINS + 1)
    shares = [np.histogram(np.clip(values, -1, 1), edges)[0] / values.size for values in (left, right)]
    return float(np.abs(np.cumsum(shares[0]) - np.cumsum(shares[1])).sum() * (edges[1] - edges[0]))


def dice(found: npt.NDArray[np.bool_], expected: npt.NDArray[np.bool_]) -> float:
    """Return 2 |A n B| / (|A| + |B|); 1 for two empty sets."""
    size = int(found.sum()) + int(expected.sum())
    return 2 * int((found & expected).sum()) / size if size else 1.0


def best_threshold(volumes: npt.NDArray[np.float32], foreground: npt.NDArray[np.bool_]) -> float:
    """Return the intensity above which the real volumes' voxels fit their foreground best, by Dice over all."""
    brightness = np.stack([_brightness(volume) for volume in volumes])
    candidates = np.linspace(-1, 1, _THRESHOLDS + 2)[1:-1]
    return float(max(candidates, key=lambda threshold: dice(brightness > threshold, foreground)))


def _brightness(volume: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the mean over channels: (C, D, H, W) -> (D, H, W)."""
    mean: npt.NDArray[np.float32] = volume.mean(axis=0)
    return mean


def _mean_row(quantity: str, values: Sequence[float], scope: str) -> Row:
    mean, count = float(np.mean(values)), len(values)
    if count == 1:
        return cell_row(_STAGE, quantity, mean, scope, n=1)
    half = _t_quantile(count - 1) * float(np.std(values, ddof=1)) / count**0.5
    return cell_row(_STAGE, quantity, mean, scope, n=count, low=mean - half, high=mean + half, interval=T_INTERVAL)


def _t_quantile(freedom: int) -> float:
    """Return the two-sided quantile of Student's t at ``LEVEL``."""
    from scipy.special import stdtrit  # scipy.stats has it too, but takes a second to load

    return float(stdtrit(freedom, (1 + LEVEL) / 2))
