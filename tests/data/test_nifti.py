"""Every kind of wrong NIfTI file is refused with a sentence that names it."""

from __future__ import annotations

import gzip
from pathlib import Path

import nibabel
import numpy as np
import pytest

from gpustudy.base.errors import UserError
from gpustudy.data.nifti import read_labels, read_volume
from gpustudy.data.volumes import to_nifti

PIXDIM, DIM, DATATYPE, VOX_OFFSET, SFORM = 76, 40, 70, 108, 280
"""Byte offsets in a NIfTI-1 header (nifti1.h)."""
DIM_2 = 16
"""Byte offset of the sides in a NIfTI-2 header (nifti2.h)."""


def ramp(shape=(4, 5, 6), dtype=np.int16):
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def patched(save, path, offset, values, dtype, size=None):
    """Write a good file, then change bytes of its header."""
    save(path, ramp())
    content = bytearray(path.read_bytes())
    patch = np.array(values, dtype).tobytes()
    content[offset : offset + len(patch)] = patch
    path.write_bytes(bytes(content[:size]))
    return path


def test_reads_a_real_scan_with_reversed_axes():
    path = Path(nibabel.__file__).parent / "tests/data/anatomical.nii"  # a real brain, big-endian int16
    volume = read_volume(path)
    reference = nibabel.load(path)
    assert volume.array.shape == (25, 41, 33)
    assert np.array_equal(volume.array, reference.get_fdata().transpose(2, 1, 0).astype(np.float32))
    back = to_nifti(volume.array, volume.affine)
    assert np.array_equal(back.get_fdata(), reference.get_fdata())
    assert nibabel.aff2axcodes(back.affine) == nibabel.aff2axcodes(reference.affine) == ("L", "A", "S")


def test_reads_scaled_integers_nifti2_and_a_trailing_axis_of_one(tmp_path):
    image = nibabel.Nifti1Image(ramp((4, 5, 6, 1)), np.eye(4))
    image.header.set_slope_inter(2, -7)
    nibabel.save(image, tmp_path / "scaled.nii.gz")
    assert read_volume(tmp_path / "scaled.nii.gz").array[5, 4, 3] == 119 * 2 - 7
    nibabel.save(nibabel.Nifti2Image(ramp(), np.eye(4)), tmp_path / "two.nii")
    assert read_volume(tmp_path / "two.nii").array.shape == (6, 5, 4)


@pytest.mark.parametrize(
    ("offset", "values", "dtype", "size", "message"),
    [
        (PIXDIM + 4, [0], "<f4", None, "voxels measure 0x2x2 mm"),
        (PIXDIM + 8, [-2], "<f4", None, "voxels measure 2x-2x2 mm"),
        (PIXDIM + 4, [np.nan], "<f4", None, "voxels measure nanx2x2 mm"),
        (SFORM, [0] * 12, "<f4", None, "singular"),
        (DIM + 2, [40], "<i2", None, "does not fit its data"),
        (DIM + 2, [3], "<i2", None, "does not fit its data"),
        (DIM, [4, 2, 5, 6, 2], "<i2", None, "a 3D image is needed"),
        (DIM, [2, 4, 30], "<i2", None, "a 3D image is needed"),
        (DATATYPE, [9999], "<i2", None, "header that cannot be read"),
        (VOX_OFFSET, [1e9], "<f4", None, "does not fit its data"),
        (VOX_OFFSET, [np.inf], "<f4", None, "header that cannot be read"),
        (0, [0], "<i4", None, "not a NIfTI file"),
        (0, [348], "<i4", 100, "not a NIfTI file"),
        (0, [348], "<i4", 400, "does not fit its data"),
    ],
)
def test_refuses_a_header_that_lies(tmp_path, save, offset, values, dtype, size, message):
    path = patched(save, tmp_path / "bad.nii", offset, values, dtype, size)
    with pytest.raises(UserError, match=message) as caught:
        read_volume(path)
    assert str(path) in str(caught.value)


def test_refuses_sides_whose_product_wraps_in_64_bits(tmp_path):
    path = tmp_path / "bad.nii"
    nibabel.save(nibabel.Nifti2Image(ramp((16, 16, 16)), np.eye(4)), path)
    content = bytearray(path.read_bytes())
    content[DIM_2 : DIM_2 + 32] = np.array([3, 16, 16, 0x7F00000000000010], "<i8").tobytes()
    path.write_bytes(bytes(content))
    with pytest.raises(UserError, match="does not fit its data") as caught:
        read_volume(path)
    assert str(path) in str(caught.value)


def test_refuses_more_dimensions_only_when_they_have_length(tmp_path, save):
    path = save(tmp_path / "four.nii.gz", ramp((4, 5, 6, 2)))
    with pytest.raises(UserError, match="shape 4x5x6x2: a 3D image"):
        read_volume(path)


@pytest.mark.parametrize("keep", [0.5, 0.99])
def test_refuses_a_truncated_gzip_file(tmp_path, save, keep):
    path = save(tmp_path / "cut.nii.gz", np.random.default_rng(0).normal(size=(9, 9, 9)).astype(np.float32))
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(UserError, match="truncated gzip"):
        read_volume(path)


def test_refuses_a_gzip_file_with_a_flipped_bit_and_one_that_is_none(tmp_path, save):
    path = save(tmp_path / "flip.nii.gz", ramp())
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(bytes(content))
    with pytest.raises(UserError, match="damaged"):
        read_volume(path)
    plain = tmp_path / "plain.nii.gz"
    plain.write_bytes(gzip.decompress(save(tmp_path / "good.nii.gz", ramp()).read_bytes()))
    with pytest.raises(UserError, match="damaged"):
        read_volume(plain)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_counts_voxels_that_are_not_finite(tmp_path, save, value):
    array = ramp(dtype=np.float32)
    array[1, 2, 3] = array[0, 0, 0] = value
    with pytest.raises(UserError, match="2 voxels that are NaN or infinite"):
        read_volume(save(tmp_path / "nan.nii", array))


def test_refuses_a_constant_image_but_not_a_constant_label_map(tmp_path, save):
    path = save(tmp_path / "flat.nii", np.full((4, 4, 4), 3, np.uint8))
    with pytest.raises(UserError, match="the value 3 in every voxel"):
        read_volume(path)
    assert read_labels(path)[0].max() == 3


@pytest.mark.parametrize("value", [0.5, -1, 256])
def test_refuses_values_that_are_no_labels(tmp_path, save, value):
    array = np.zeros((4, 4, 4), np.float32)
    array[1, 1, 1] = value
    with pytest.raises(UserError, match=f"no label map: it has the value {value:g}"):
        read_labels(save(tmp_path / "labels.nii", array))


def test_refuses_colours_and_a_missing_file(tmp_path):
    colours = np.zeros((4, 4, 4), dtype=[("R", "u1"), ("G", "u1"), ("B", "u1")])
    nibabel.save(nibabel.Nifti1Image(colours, np.eye(4)), tmp_path / "rgb.nii")
    with pytest.raises(UserError, match="one real number per voxel"):
        read_volume(tmp_path / "rgb.nii")
    with pytest.raises(UserError, match="cannot be read"):
        read_volume(tmp_path / "absent.nii")


def test_any_damaged_header_is_read_or_refused_in_a_sentence(tmp_path, save):
    good = save(tmp_path / "good.nii", ramp()).read_bytes()
    random = np.random.default_rng(1)
    path, refused = tmp_path / "damaged.nii", 0
    for _ in range(300):
        content = bytearray(good)
        for place in random.integers(0, 352, random.integers(1, 4)):
            content[place] = random.choice([0, 1, 127, 128, 255])
        path.write_bytes(bytes(content))
        try:
            read_volume(path)
        except UserError:  # any other error fails the test
            refused += 1
    assert 10 < refused < 290
