"""The MNI152 set against what is known of the template: its size, its brain, its tissues, its symmetry."""

from __future__ import annotations

import json

import nibabel
import numpy as np
import pytest
from scipy import ndimage

from gpustudy.data import mni152
from gpustudy.data.mni152 import (
    CONTROL_MM,
    LESION,
    Grid,
    blurred,
    fit_grid,
    make_case,
    spline_field,
    tissue_labels,
)
from gpustudy.data.sources import template_files

DEMO = {"kind": "mni152", "volume": [32, 32, 32], "count": 3, "seed": 20260619}


@pytest.fixture(scope="module")
def cases(template):
    """``cases(side, count)`` makes volumes; the blurred template of each side is kept."""
    ready = {}

    def make(side, count, seed=20260619, flips=True):
        if side not in ready:
            grid = fit_grid(template, (side, side, side))
            ready[side] = blurred(template, grid), grid
        soft, grid = ready[side]
        return [make_case(soft, grid, seed, index, flips) for index in range(count)]

    return make


def test_template_has_the_known_shape_and_brain(template):
    file = nibabel.load(template_files()["t1"])
    assert file.shape == (197, 233, 189)
    assert template.maps["brain"].shape == (155, 181, 145)  # bounding box of the brain, (Z, Y, X)
    share = template.maps["brain"].sum() / np.prod(file.shape)
    assert share == pytest.approx(0.217, abs=0.001)
    assert np.array_equal(template.affine[:3, 3], [-98 + 26, -134 + 27, -72 + 0])  # the box begins at x 26, y 27, z 0


def test_tissues_have_the_known_sizes_and_t1_means(template):
    labels = tissue_labels(template.maps)
    t1 = template.maps["t1"]
    for label, voxels, mean in ((1, 171e3, 0.42), (2, 1.08e6, 0.65), (3, 632e3, 0.84)):
        assert (labels == label).sum() == pytest.approx(voxels, rel=0.03)
        assert t1[labels == label].mean() == pytest.approx(mean, abs=0.01)


def test_left_right_symmetry_lies_on_the_last_axis(template):
    t1 = template.maps["t1"]
    assert np.array_equal(t1, t1[:, :, ::-1])
    assert not np.array_equal(t1, t1[:, ::-1])


def test_grid_voxels_lie_where_the_affine_says(template):
    grid = fit_grid(template, (64, 64, 64))
    middle = (np.array(grid.shape) - 1) / 2
    world = grid.affine @ [*middle[::-1], 1]
    expected = template.affine @ [*grid.centre[::-1], 1]
    assert np.allclose(world, expected)
    assert grid.affine[0, 0] == pytest.approx(181 * 1.15 / 64)


def test_undeformed_sampling_keeps_the_mean_intensity(template):
    grid = fit_grid(template, (32, 32, 32))
    offsets = np.stack(np.meshgrid(*grid.offsets_mm(), indexing="ij"))
    places = offsets + grid.centre[:, None, None, None]
    t1 = ndimage.map_coordinates(blurred(template, grid).maps["t1"], places, order=1)
    assert t1.sum() * grid.voxel_mm**3 == pytest.approx(template.maps["t1"].sum(), rel=0.01)


def test_each_volume_is_a_brain_with_one_lesion_inside(cases):
    for case in cases(32, 4):
        brain, lesion = case.masks
        labels, t1 = case.labels, case.image[0]
        assert case.image.shape == (1, 32, 32, 32)
        assert case.image.dtype == case.masks.dtype == np.float32
        assert (t1.min(), t1.max()) == (-1, 1)
        assert set(np.unique(case.masks)) == {-1, 1}
        assert set(np.unique(labels)) == {0, 1, 2, 3, 4}
        assert np.array_equal(lesion > 0, labels == LESION)
        assert np.array_equal(brain > 0, (labels > 0) & (labels != LESION))  # exclusive channels
        faces = [labels.take(end, axis) for axis in range(3) for end in (0, -1)]
        assert not any(face.any() for face in faces)  # the brain is not cut off
        grey, white = ((t1[labels == label].mean() + 1) / 2 for label in (2, 3))
        assert 0.5 < grey < 0.75 < white < 0.95


def test_lesion_is_one_piece_of_tumour_size(cases):
    for case in cases(64, 4):
        lesion = case.labels == LESION
        pieces, count = ndimage.label(lesion)
        largest = np.bincount(pieces.ravel())[1:].max()
        assert largest / lesion.sum() > 0.8, count
        assert 0.5 < lesion.sum() * (181 * 1.15 / 64) ** 3 / 1000 < 80  # cubic centimetres


def test_flips_turn_the_head_but_never_left_to_right(cases):
    plain = cases(32, 6, flips=False)
    turned = cases(32, 6, flips=True)
    # the template's brain stem lies below: without flips there is less brain in the lowest slices than in the highest
    low = [np.count_nonzero(case.labels[:8]) < np.count_nonzero(case.labels[-8:]) for case in plain]
    assert len(set(low)) == 1
    low = [np.count_nonzero(case.labels[:8]) < np.count_nonzero(case.labels[-8:]) for case in turned]
    assert len(set(low)) == 2


def test_volume_depends_on_seed_and_index_alone(cases):
    first, second = cases(32, 2)
    again = cases(32, 3)
    assert np.array_equal(again[1].image, second.image)
    assert not np.array_equal(first.image, second.image)
    assert not np.array_equal(cases(32, 1, seed=1)[0].image, first.image)


def test_spline_of_equal_control_values_is_constant_and_a_line_stays_a_line():
    grid = Grid((5, 6, 7), np.zeros(3), 20.0, np.eye(4))
    shape = tuple(int((side - 1) * 20.0 / CONTROL_MM) + 4 for side in grid.shape)
    assert np.allclose(spline_field(np.full(shape, 2.5), grid, CONTROL_MM), 2.5)
    ramp = np.broadcast_to(np.arange(shape[0])[:, None, None], shape).astype(float)
    field = spline_field(ramp, grid, CONTROL_MM)
    assert np.allclose(field[:, 0, 0], 1 + np.arange(5) * 20.0 / CONTROL_MM)  # B-splines reproduce lines
    assert field.shape == grid.shape


def test_manifest_keeps_the_notice_and_holds_no_path(build, tmp_path):
    manifest = json.loads((build(DEMO, tmp_path / "out", tmp_path) / "manifest.json").read_text())
    assert "McConnell Brain Imaging Centre" in manifest["source"]["licence"]
    assert manifest["mask_channels"] == ["brain", "lesion"]
    assert manifest["label_names"]["4"] == "lesion"
    assert str(tmp_path) not in json.dumps(manifest)
    assert "/site-packages" not in json.dumps(manifest)


def test_lesion_never_leaves_the_brain(cases, monkeypatch):
    """A lesion without end fills exactly the brain, and no background voxel lights up."""
    plain = cases(32, 1)[0]
    monkeypatch.setattr(mni152, "_lesion_radius", lambda random, grid, labels: np.zeros(grid.shape))
    case = cases(32, 1)[0]
    assert np.array_equal(case.labels == LESION, plain.labels > 0)
    assert case.image[0][case.labels == 0].mean() < -0.9


def test_a_coarse_voxel_shows_the_mean_of_what_it_covers(template):
    """Sampled without blurring, a 6 mm voxel would show one 1 mm voxel of the template by chance."""
    grid = fit_grid(template, (32, 32, 32))
    covered = ndimage.uniform_filter(template.maps["t1"], round(grid.voxel_mm), mode="constant")
    places = np.stack(np.meshgrid(*grid.offsets_mm(), indexing="ij")) + grid.centre[:, None, None, None]
    expected = ndimage.map_coordinates(covered, places, order=1)
    found = ndimage.map_coordinates(blurred(template, grid).maps["t1"], places, order=1)
    assert np.abs(found - expected)[expected > 0.1].mean() < 0.03
