"""Prepared volumes: arrays on disk that are read with numpy alone, through memory maps."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpustudy.base.digests import file_sha256
from gpustudy.base.errors import UserError

MANIFEST_FILE = "manifest.json"
MANIFEST_SCHEMA = 1
_VOLUME_AXES = 5
"""Axes of an array of volumes: case, channel, D, H, W."""
_DAMAGED = (ValueError, EOFError, OverflowError, MemoryError, zipfile.BadZipFile)
"""What numpy raises on a file that is no whole array: empty or cut, or with an impossible shape in its header."""


class PreparedVolumes:
    """Images and condition masks of a prepared data directory.

    Args:
        directory: holds images.npy (N, C_image, D, H, W) and masks.npy (N, C_mask, D, H, W), both float32, and
            manifest.json.

    Attributes:
        images: memory map of the images, in [-1, 1].
        masks: memory map of the condition masks.
        manifest: content of manifest.json.

    Raises:
        UserError: a missing or unreadable file, or arrays that do not fit each other.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.manifest = _read_manifest(directory)
        self.images = _open_array(directory / "images.npy")
        self.masks = _open_array(directory / "masks.npy")
        same = (self.images.shape[0], *self.images.shape[2:])
        if (self.masks.shape[0], *self.masks.shape[2:]) != same or not len(self.images):
            raise UserError(
                f"{directory}: images.npy has shape {self.images.shape}, masks.npy {self.masks.shape}; both need the "
                "same cases (at least one) and sides: prepare the data again."
            )

    @property
    def count(self) -> int:
        """Number of cases."""
        return int(self.images.shape[0])

    @property
    def volume(self) -> tuple[int, int, int]:
        """Sides (D, H, W) of every volume, in voxels."""
        depth, height, width = self.images.shape[2:]
        return int(depth), int(height), int(width)

    @property
    def image_channels(self) -> int:
        """Channels of every image."""
        return int(self.images.shape[1])

    @property
    def mask_channels(self) -> int:
        """Channels of every condition mask."""
        return int(self.masks.shape[1])

    def check_sums(self) -> None:
        """Refuse files that are not the ones that the manifest describes.

        Raises:
            UserError: naming the first file whose SHA-256 differs.
        """
        for name, recorded in sorted(self.manifest.get("files", {}).items()):
            path = self.directory / name
            if not path.is_file() or file_sha256(path) != recorded["sha256"]:
                raise UserError(
                    f"{path} is not the file that {MANIFEST_FILE} beside it describes: "
                    f"remove {self.directory} and prepare the data again."
                )

    def check_fits(self, image_channels: int, mask_channels: int) -> None:
        """Refuse a model that takes other channels than these volumes have.

        Raises:
            UserError: with both numbers.
        """
        if (image_channels, mask_channels) != (self.image_channels, self.mask_channels):
            raise UserError(
                f"{self.directory} holds {self.image_channels} image and {self.mask_channels} mask channels, the model "
                f"takes {image_channels} and {mask_channels}: set the model's channels to those of the data."
            )


def _read_manifest(directory: Path) -> dict[str, Any]:
    path = directory / MANIFEST_FILE
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
        if manifest["schema"] != MANIFEST_SCHEMA:
            raise ValueError(f"unknown schema {manifest['schema']}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is not a readable manifest of prepared data ({error}): "
            "give a directory that was prepared, or prepare it again."
        ) from error
    return manifest


def _open_array(path: Path) -> npt.NDArray[np.float32]:
    """Map an array of volumes; one without elements (no mask channels) cannot be mapped and is read."""
    try:
        array = np.load(path, mmap_mode="r")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error}): prepare the data again.") from error
    except _DAMAGED:
        array = _read_empty(path)
    if not isinstance(array, np.ndarray):  # np.load opens an archive of arrays whatever its name
        raise UserError(f"{path} is an archive, not a single array: prepare the data again.")
    if array.ndim != _VOLUME_AXES or array.dtype != np.float32:
        raise UserError(
            f"{path} has dtype {array.dtype} and shape {array.shape}; float32 (cases, channels, D, H, W) is needed: "
            "prepare the data again."
        )
    return array


def _read_empty(path: Path) -> npt.NDArray[np.float32]:
    try:
        array: npt.NDArray[np.float32] = np.load(path)
    except _DAMAGED as error:
        raise UserError(f"{path} is not a whole array file ({error}): prepare the data again.") from error
    return array
