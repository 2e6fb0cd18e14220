"""Reading NIfTI files that may be wrong: every fault is one sentence that names the file and what to do."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np

from gpustudy.base.errors import UserError
from gpustudy.data.definitions import LARGEST_LABEL
from gpustudy.data.volumes import Affine, Floats, Labels, reverse_axes

_HEADER_CLASSES = {348: nibabel.Nifti1Image, 540: nibabel.Nifti2Image}
"""Size of the header in bytes, its first field -> version of the format (NIfTI-1.1, NIfTI-2)."""
_BLOCK_BYTES = 16
"""Some writers pad a file to a multiple of this; more bytes after the data mean a wrong header."""
_LEAST_DETERMINANT_MM3 = 1e-9
"""Voxel volume below which an affine counts as singular: a cubic micrometre."""


@dataclass(frozen=True)
class Volume:
    """A volume as read: ``array`` (Z, Y, X) float32, ``affine`` of the (X, Y, Z) array, ``path`` for messages."""

    array: Floats
    affine: Affine
    path: Path


def read_volume(path: Path, may_be_constant: bool = False) -> Volume:
    """Read one 3D image.

    Args:
        path: a ``.nii`` or ``.nii.gz`` file.
        may_be_constant: accept an image with one value only (a label map may have one).

    Raises:
        UserError: the file is no NIfTI file, is truncated, its header does not fit its data, it is not 3D, its
            geometry is impossible, or its values are not finite or all the same.
    """
    image = _open(path)
    array = np.asarray(image.dataobj)
    if array.dtype.kind not in "iuf":
        raise UserError(f"{path} holds {array.dtype} voxels: convert it to one real number per voxel.")
    array = array.astype(np.float32)
    bad = int(array.size - np.isfinite(array).sum())
    if bad:
        raise UserError(f"{path} has {bad} voxels that are NaN or infinite: replace them or leave the case out.")
    if not may_be_constant and array.min() == array.max():
        raise UserError(f"{path} has the value {array.flat[0]:g} in every voxel: give a real image.")
    return Volume(reverse_axes(array.reshape(array.shape[:3])), np.array(image.affine, dtype=np.float64), path)


def read_labels(path: Path) -> tuple[Labels, Affine]:
    """Read a label map as uint8 (Z, Y, X) with its affine.

    Raises:
        UserError: as ``read_volume``, or a value that is not a whole number from 0 to 255.
    """
    volume = read_volume(path, may_be_constant=True)
    labels = volume.array.astype(np.uint8)
    wrong = volume.array[labels != volume.array]
    if wrong.size:
        raise UserError(
            f"{path} is no label map: it has the value {wrong[0]:g}; "
            f"labels are whole numbers from 0 to {LARGEST_LABEL} (was it resampled as an image?)."
        )
    return np.asarray(labels, dtype=np.uint8), volume.affine


def check_one_place(first: Volume, path: Path, affine: Affine) -> None:
    """Compare where the headers of two files of one case and one shape put them.

    An identity affine says nothing of a place (tools that do not know it write one) and passes.

    Raises:
        UserError: a corner of the volume differs by more than a voxel, as where one file is mirrored.
    """
    if np.array_equal(affine, np.eye(len(affine))) or np.array_equal(first.affine, np.eye(len(affine))):
        return
    corners = np.array([(*corner, 1) for corner in np.ndindex(2, 2, 2)], dtype=np.float64)  # (8, 4), of x, y, z
    corners[:, :3] *= np.array(first.array.shape[::-1]) - 1
    apart_mm = float(np.linalg.norm(corners @ (affine - first.affine).T, axis=1).max())
    if apart_mm > np.linalg.norm(first.affine[:3, :3], axis=0).max():
        raise UserError(
            f"{path} and {first.path} lie {apart_mm:.0f} mm apart at a corner by their headers: bring them onto one "
            "grid, or correct the affine that is wrong."
        )


def axes_of(affine: Affine) -> str:
    """Return where the axes of the (X, Y, Z) array point, such as ``RAS``."""
    return "".join(nibabel.aff2axcodes(affine))


def check_axes(path: Path, affine: Affine, first: str) -> None:
    """Compare where the axes of a case point with the first case's.

    Raises:
        UserError: they point elsewhere.
    """
    axes = axes_of(affine)
    if axes != first:
        raise UserError(f"{path} has axes {axes}, the first case has {first}: reorient all images alike.")


def _open(path: Path) -> nibabel.Nifti1Image:
    """Return the image with its header checked against the bytes of the file."""
    content = _content(path)
    sizes = {int.from_bytes(content[:4], order) for order in ("little", "big")} & _HEADER_CLASSES.keys()
    image_class = _HEADER_CLASSES[sizes.pop()] if sizes else None
    if image_class is None or len(content) < image_class.header_class.sizeof_hdr:
        raise UserError(f"{path} is not a NIfTI file: convert it to .nii.gz first.")
    try:
        header = image_class.header_class(content[: image_class.header_class.sizeof_hdr], check=False)
        _check_header(path, header, len(content))
        image = image_class.from_bytes(content)
    except (
        nibabel.spatialimages.HeaderDataError,
        nibabel.filebasedimages.ImageFileError,
        ValueError,
        KeyError,
        OverflowError,
    ) as error:
        raise UserError(f"{path} has a header that cannot be read ({error}): write it anew.") from error
    affine = image.affine
    if not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < _LEAST_DETERMINANT_MM3:
        raise UserError(f"{path} has a singular or non-finite affine: correct its sform or qform.")
    return image


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.name.endswith(".gz") else content
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is a damaged or truncated gzip file ({error}): copy it again.") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): check the path and its permissions.") from error


def _check_header(path: Path, header: nibabel.Nifti1Header, found_bytes: int) -> None:
    """Compare what the header says with the file's length, and refuse impossible geometry."""
    shape = header.get_data_shape()
    if len(shape) < 3 or any(side < 1 for side in shape) or any(side > 1 for side in shape[3:]):
        raise UserError(f"{path} has shape {_text(shape)}: a 3D image is needed; split it into volumes first.")
    sizes = [float(size) for size in header["pixdim"][1:4]]
    if not all(np.isfinite(size) and size > 0 for size in sizes):
        raise UserError(f"{path} says its voxels measure {_text(sizes)} mm: correct pixdim in its header.")
    need = math.prod(map(int, shape)) * header.get_data_dtype().itemsize
    begin = max(header.get_data_offset(), header.sizeof_hdr)
    if not need <= found_bytes - begin < need + _BLOCK_BYTES:
        raise UserError(
            f"{path} has a header that does not fit its data: shape {_text(shape)} of {header.get_data_dtype()} needs "
            f"{need} bytes, the file holds {max(found_bytes - begin, 0)}; copy or convert it again."
        )


def _text(numbers: Iterable[float]) -> str:
    return "x".join(f"{number:g}" for number in numbers)
