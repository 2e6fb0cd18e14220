"""Crop, pad and resample, computed by hand, and the affines that go with them."""

from __future__ import annotations

import numpy as np
import pytest

from gpustudy.data import geometry
from gpustudy.data.volumes import reverse_axes, scale_slices_published, scale_volume, to_nifti, voxel_mm

AFFINE = np.array([[0, -1.5, 0, 10], [2.0, 0, 0, -20], [0, 0, 3.0, 5], [0, 0, 0, 1]])


def test_crop_takes_the_odd_voxel_from_the_low_end():
    row = np.arange(5.0).reshape(1, 1, 5)
    assert geometry.crop_pad(row, (1, 1, 2), fill=-9).ravel().tolist() == [2, 3]  # 2 cut below, 1 above
    assert geometry.low_voxels(155, 144) == 6  # BraTS depth: torchio cuts 6 below and 5 above


def test_pad_adds_the_odd_voxel_at_the_low_end():
    row = np.arange(1.0, 3.0).reshape(1, 1, 2)
    assert geometry.crop_pad(row, (1, 1, 5), fill=-9).ravel().tolist() == [-9, -9, 1, 2, -9]


def test_linear_resize_by_hand():
    row = np.array([0.0, 1.0], np.float32).reshape(1, 1, 2)
    wide = geometry.resample(row, (1, 1, 4), smooth=True)  # centres at -0.25, 0.25, 0.75, 1.25 of the old voxels
    assert wide.ravel().tolist() == pytest.approx([0, 0.25, 0.75, 1])


def test_smoothing_removes_what_a_coarse_grid_cannot_show():
    stripes = np.zeros((1, 1, 64), np.float32)
    stripes[..., ::4] = 1
    rough = geometry.resample(stripes, (1, 1, 16), smooth=False)
    fine = geometry.resample(stripes, (1, 1, 16), smooth=True)
    assert rough.mean() == pytest.approx(0)  # aliased away
    assert fine.mean() == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("want", [(4, 4, 4), (9, 5, 8), (2, 11, 6)])
def test_affines_keep_a_point_where_it_was(want):
    have = (6, 7, 8)
    spot = np.zeros(have)
    spot[3, 4, 5] = 1
    cropped = geometry.crop_pad(spot, want, fill=0)
    if cropped.any():
        z, y, x = np.argwhere(cropped)[0]
        moved = geometry.crop_pad_affine(AFFINE, have, want)
        assert np.allclose(moved @ [x, y, z, 1], AFFINE @ [5, 4, 3, 1])
    resampled = geometry.resample_affine(AFFINE, have, want)
    for new, old in ((-0.5, -0.5), (None, None)):  # both outer corners stay
        low = np.array([-0.5] * 3) if new is not None else np.array(want[::-1]) - 0.5
        was = np.array([-0.5] * 3) if old is not None else np.array(have[::-1]) - 0.5
        assert np.allclose(resampled @ [*low, 1], AFFINE @ [*was, 1])


def test_axes_and_affine_survive_the_round_trip_to_nifti():
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)  # (X, Y, Z)
    volume = reverse_axes(array)
    assert volume.shape == (4, 3, 2)
    assert volume[3, 2, 1] == array[1, 2, 3]
    image = to_nifti(volume, AFFINE)
    assert np.array_equal(np.asarray(image.dataobj), array)
    assert np.array_equal(image.affine, AFFINE)
    assert voxel_mm(AFFINE) == pytest.approx((3.0, 1.5, 2.0))  # (Z, Y, X)


def test_published_scaling_works_slice_by_slice_and_the_sane_one_on_the_whole():
    volume = np.array([[[0, 1], [2, 4]], [[100, 100], [100, 100]], [[10, 20], [20, 30]]], np.float32)
    by_slice = scale_slices_published(volume)
    assert by_slice[0].tolist() == [[0, 0.25], [0.5, 1]]
    assert by_slice[1].tolist() == [[0, 0], [0, 0]]  # a constant slice becomes 0
    assert by_slice[2].tolist() == [[0, 0.5], [0.5, 1]]
    whole = scale_volume(volume)
    assert whole[1].min() == 1
    assert whole[0].ravel() == pytest.approx(np.array([0, 1, 2, 4]) / 50 - 1)


@pytest.mark.filterwarnings("error")
def test_scaling_spans_more_than_float32_holds():
    volume = np.array([[[-3e38, 0], [1.5e38, 3e38]]], np.float32)
    whole = scale_volume(volume)
    assert whole.dtype == np.float32
    assert whole.ravel() == pytest.approx([-1, 0, 0.5, 1])
    assert scale_slices_published(volume).ravel() == pytest.approx([0, 0.5, 0.75, 1])
