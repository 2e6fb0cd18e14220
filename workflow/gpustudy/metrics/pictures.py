"""Generated volumes for people: NIfTI files in scanner space, and one mosaic of slices."""

from __future__ import annotations

import gzip
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

Volumes = npt.NDArray[np.float32]

_MOST_ROWS = 8
"""Volumes shown in a mosaic, so that it stays small in the report."""
_TILE_PIXELS = 96
"""Side of a tile: smaller slices are enlarged by whole numbers."""
_GAP_PIXELS = 2
_GZIP_LEVEL = 6


def write_nifti(directory: Path, volumes: Volumes, case_ids: Sequence[str], affine: npt.NDArray[np.float64]) -> None:
    """Write each volume (C, Z, Y, X) as NIfTI with axes (X, Y, Z) or, with several channels, (X, Y, Z, C).

    Prepared arrays have the spatial axes of the NIfTI file reversed; here they are turned back, so that the affine of
    the data set holds again. The bytes are the same for the same volume: the gzip header has no time.
    """
    import nibabel as nib

    directory.mkdir(parents=True, exist_ok=True)
    for index, (volume, case) in enumerate(zip(volumes, case_ids, strict=True)):
        turned = volume.transpose(3, 2, 1, 0)  # (X, Y, Z, C)
        turned = turned[..., 0] if len(volume) == 1 else turned
        image = nib.Nifti1Image(np.ascontiguousarray(turned, dtype=np.float32), affine)
        image.header.set_xyzt_units("mm")
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", case)
        packed = gzip.compress(image.to_bytes(), _GZIP_LEVEL, mtime=0)
        (directory / f"{index:03d}-{name}.nii.gz").write_bytes(packed)


def write_mosaic(path: Path, generated: Volumes, real: Volumes) -> None:
    """Write a PNG: a row per generated volume, its middle axial, coronal and sagittal slice, then those of real ones.

    Grey levels span [-1, 1]; superior and anterior are up (for a data set in RAS). Only the first channel is shown.
    """
    from PIL import Image

    rows = []
    for index in range(min(len(generated), _MOST_ROWS)):
        tiles = [_tile(plane) for plane in _planes(generated[index, 0])]
        if index < len(real):
            tiles += [_tile(plane) for plane in _planes(real[index, 0])]
        rows.append(_joined(tiles, axis=1))
    width = max(row.shape[1] for row in rows)
    padded = [np.pad(row, ((0, 0), (0, width - row.shape[1]))) for row in rows]
    Image.fromarray(_joined(padded, axis=0)).save(path, optimize=True)


def _planes(volume: Volumes) -> list[Volumes]:
    """Return the middle slices of (Z, Y, X): axial (Y, X), coronal (Z, X), sagittal (Z, Y), first axis upwards."""
    depth, height, width = (side // 2 for side in volume.shape)
    return [volume[depth][::-1], volume[:, height][::-1], volume[:, :, width][::-1]]


def _tile(plane: Volumes) -> npt.NDArray[np.uint8]:
    grey = np.clip((plane + 1) / 2, 0, 1) * np.iinfo(np.uint8).max
    factor = max(_TILE_PIXELS // max(plane.shape), 1)
    return np.rint(grey).astype(np.uint8).repeat(factor, axis=0).repeat(factor, axis=1)


def _joined(tiles: Sequence[npt.NDArray[np.uint8]], axis: int) -> npt.NDArray[np.uint8]:
    """Join tiles along ``axis`` with a black gap; across it, smaller ones are padded."""
    across = 1 - axis
    size = max(tile.shape[across] for tile in tiles)
    parts: list[npt.NDArray[np.uint8]] = []
    for tile in tiles:
        pad = [(0, 0), (0, 0)]
        pad[across] = (0, size - tile.shape[across])
        pad[axis] = (_GAP_PIXELS if parts else 0, 0)
        parts.append(np.pad(tile, pad))
    return np.concatenate(parts, axis=axis)
