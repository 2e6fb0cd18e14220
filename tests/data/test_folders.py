"""Whole-head pairs, BraTS2021 and free NIfTI folders: labels, masks, the published oddities, and every refusal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nibabel
import numpy as np
import pytest

from gpustudy.base.errors import UserError
from gpustudy.data.check import check_folder


def load(out):
    arrays = [np.load(out / name) for name in ("images.npy", "masks.npy", "labels.npy")]
    return (*arrays, json.loads((out / "manifest.json").read_text()))


def refused(build, definition, root, message):
    with pytest.raises(UserError, match=message) as caught:
        build(definition, root / "out", root)
    assert not (root / "out").exists()
    assert "\n" not in str(caught.value)


# whole head


def test_whole_head_gives_brain_and_tumour_masks_that_exclude_each_other(build, head, tmp_path):
    images, masks, labels, manifest = load(build(head, tmp_path / "out", tmp_path))
    assert images.shape == (2, 1, 16, 16, 16)
    assert masks.shape == (2, 2, 16, 16, 16)
    assert manifest["mask_channels"] == ["brain", "tumour"]
    assert (masks[0, 0] == 1).sum() == 8**3 - 2**3
    assert (masks[0, 1] == 1).sum() == 2**3
    assert not ((masks[:, 0] == 1) & (masks[:, 1] == 1)).any()
    assert np.array_equal(masks[:, 1] == 1, labels == 2)
    source = nibabel.load(tmp_path / "image/sample_0.nii.gz").get_fdata()
    expected = source.transpose(2, 1, 0) / source.max() * 2 - 1
    assert np.allclose(images[0, 0], expected, atol=1e-6)
    assert manifest["affine"] == np.diag([2.0, 2.0, 2.0, 1.0]).tolist()


def test_published_whole_head_scales_each_slice_and_keeps_hard_edges_without_resize(build, head, tmp_path):
    images, masks, _, manifest = load(build(head | {"compat": "published"}, tmp_path / "out", tmp_path))
    inner = images[0, 0, 4:12]
    assert np.allclose(inner.max(axis=(1, 2)), 1)  # every slice with brain reaches 1
    assert np.all(images[0, 0, 0] == -1)  # a constant slice
    assert set(np.unique(masks)) == {-1, 1}
    assert manifest["mask_range"] == [-1, 1]


def test_published_resize_makes_soft_mask_edges_and_the_sane_one_does_not(build, save, tmp_path):
    labels = np.zeros((16, 16, 8), np.uint8)
    labels[..., 4:] = 1
    save(tmp_path / "image/a.nii", np.arange(labels.size, dtype=np.float32).reshape(labels.shape))
    save(tmp_path / "mask/a.nii", labels)
    base = {"kind": "whole_head", "images": "image", "masks": "mask", "volume": [16, 16, 16]}
    _, masks, maps, manifest = load(build(base | {"compat": "published"}, tmp_path / "out", tmp_path))
    # along Z eight voxels become sixteen: the edge is read at 0.25 and 0.75 of the way, then moved to [-1, 1]
    assert masks[0, 0, :, 3, 3].tolist() == [-1] * 7 + [-0.5, 0.5] + [1] * 7
    assert maps[0, :, 3, 3].tolist() == [0] * 8 + [1] * 8
    assert manifest["voxel_mm"] == [1, 2, 2]
    _, masks, _, _ = load(build(base | {"resize": "resample"}, tmp_path / "sane", tmp_path))
    assert set(np.unique(masks)) == {-1, 1}


def test_missing_brain_label_is_named(build, head, save, tmp_path):
    labels = np.zeros((16, 16, 16), np.uint8)
    labels[3, 3, 3] = 2
    save(tmp_path / "mask/sample_1.nii.gz", labels)
    refused(build, head, tmp_path, r"mask/sample_1.nii.gz lacks the brain label 1")


def test_unknown_label_is_named(build, head, save, tmp_path):
    labels = np.ones((16, 16, 16), np.uint8)
    labels[3, 3, 3] = 7
    save(tmp_path / "mask/sample_0.nii.gz", labels)
    refused(build, head, tmp_path, r"sample_0.nii.gz has the label 7, known are 0, 1, 2")


@pytest.mark.parametrize("folder", ["image", "mask"])
def test_unpaired_file_is_named(build, head, tmp_path, folder):
    (tmp_path / folder / "sample_1.nii.gz").unlink()
    other = "mask" if folder == "image" else "image"
    refused(build, head, tmp_path, rf"{other}/sample_1.nii.gz has no partner in .*{folder}")


def test_empty_and_absent_folders(build, head, tmp_path):
    (tmp_path / "empty").mkdir()
    refused(build, head | {"images": "empty"}, tmp_path, "empty holds no .nii or .nii.gz")
    refused(build, head | {"images": "absent"}, tmp_path, "absent does not exist")


def test_mask_of_another_shape(build, head, save, tmp_path):
    save(tmp_path / "mask/sample_0.nii.gz", np.ones((16, 16, 15), np.uint8))
    refused(build, head, tmp_path, "has shape 16x16x15, but .*sample_0.nii.gz has 16x16x16")


def test_image_of_another_shape_than_the_volume_needs_a_choice(build, head, tmp_path):
    refused(build, head | {"volume": [32, 16, 16]}, tmp_path, "not the volume's 16x16x32: set resize to crop_pad or")
    images, masks, _, manifest = load(
        build(head | {"volume": [32, 16, 16], "resize": "crop_pad"}, tmp_path / "o", tmp_path)
    )
    assert images.shape == (2, 1, 32, 16, 16)
    assert (masks[0, 0] == 1).sum() == 8**3 - 2**3
    assert np.array(manifest["affine"])[:3, 3].tolist() == [0, 0, -16]  # eight slices of 2 mm were added below


def test_images_with_other_axes_are_refused(build, head, save, tmp_path):
    for folder in ("image", "mask"):
        path = tmp_path / folder / "sample_1.nii.gz"
        save(path, nibabel.load(path).get_fdata(), np.diag([-2, 2, 2, 1]))
    sentence = "sample_1.nii.gz has axes LAS, the first case has RAS"
    refused(build, head, tmp_path, sentence)
    lines, problems = check_folder(tmp_path)
    assert len(lines) == len(problems) == 1
    assert sentence in problems[0]


def test_label_maps_with_background_only_are_refused(build, head, save, tmp_path):
    own = {"kind": "nifti", "images": "image", "labels": "mask", "volume": [16, 16, 16]}
    save(tmp_path / "mask/sample_0.nii.gz", np.zeros((16, 16, 16), np.uint8))
    assert check_folder(tmp_path)[1] == []  # the other one has labels
    save(tmp_path / "mask/sample_1.nii.gz", np.zeros((16, 16, 16), np.uint8))
    sentence = "mask/sample_0.nii.gz hold background only: give at least one label"
    refused(build, own, tmp_path, sentence)
    _, problems = check_folder(tmp_path)
    assert len(problems) == 1
    assert sentence in problems[0]


MIRRORED, MOVED = np.diag([-2.0, 2, 2, 1]), np.diag([2.0, 2, 2, 1])
MOVED[2, 3] = 2.5


@pytest.mark.parametrize(("affine", "apart"), [(MIRRORED, 60), (MOVED, 2)])  # 15 voxels of 2 mm to the left, not right
def test_a_label_map_that_lies_elsewhere_than_its_image_is_refused(build, head, save, tmp_path, affine, apart):
    path = tmp_path / "mask/sample_1.nii.gz"
    labels = nibabel.load(path).get_fdata()
    save(path, labels, affine)
    sentence = rf"mask/sample_1.nii.gz and .*image/sample_1.nii.gz lie {apart} mm apart at a corner by their headers"
    refused(build, head, tmp_path, sentence)
    _, problems = check_folder(tmp_path)
    assert len(problems) == 1
    assert re.search(sentence, problems[0])
    for small_or_unknown in (np.diag([2.02, 2, 2, 1]), np.eye(4)):  # 0.3 mm at the far corner; no place at all
        save(path, labels, small_or_unknown)
        build(head, tmp_path / "out", tmp_path)


def test_cases_file_takes_the_listed_ones(build, head, tmp_path):
    (tmp_path / "ids.txt").write_text("sample_1\n\n")
    *_, manifest = load(build(head | {"cases": "ids.txt"}, tmp_path / "out", tmp_path))
    assert manifest["cases"] == ["sample_1"]
    (tmp_path / "ids.txt").write_text("sample_9\n")
    with pytest.raises(UserError, match="case 'sample_9' is in no folder"):
        build(head | {"cases": "ids.txt"}, tmp_path / "out", tmp_path)


# BraTS2021


@pytest.fixture
def brats(save, tmp_path):
    """One crafted BraTS case of 20x18x17 voxels: brain in the middle, every raw label in it."""
    random = np.random.default_rng(5)
    brain = np.zeros((20, 18, 17), bool)
    brain[6:14, 6:14, 6:12] = True
    seg = np.zeros(brain.shape, np.uint8)
    seg[8, 8, 8], seg[9, 8, 8], seg[10, 8, 8] = 1, 2, 4
    for modality in ("t1", "t1ce", "t2", "flair"):
        image = (random.uniform(100, 900, brain.shape) * brain).astype(np.int16)
        save(tmp_path / f"raw/{modality}/BraTS2021_00007_{modality}.nii.gz", image)
    save(tmp_path / "raw/seg/BraTS2021_00007_seg.nii.gz", seg)
    return {"kind": "brats", "folder": "raw", "volume": [16, 16, 16]}


def test_raw_brats_turns_label_4_into_3_and_the_rest_of_the_brain_into_4(build, brats, tmp_path):
    images, masks, labels, manifest = load(build(brats, tmp_path / "out", tmp_path))
    assert images.shape == (1, 4, 16, 16, 16)
    assert manifest["image_channels"] == ["t1", "t1ce", "t2", "flair"]
    assert manifest["mask_channels"] == ["necrotic_core", "oedema", "enhancing_tumour", "brain"]
    # cropping 20x18x17 to 16 cubed takes 2, 1 and 1 voxels from the low ends (the odd one there)
    assert [labels[0, 8 - 1, 8 - 1, x - 2] for x in (8, 9, 10)] == [1, 2, 3]
    assert (labels == 4).sum() == 8 * 8 * 6 - 3
    assert np.array_equal(labels[0] > 0, images[0, 0] > -1)
    assert set(np.unique(masks)) == {-1, 1}
    for channel in images[0]:
        assert (channel.min(), channel.max()) == (-1, 1)


def test_published_brats_masks_are_0_and_1(build, brats, tmp_path):
    sane = load(build(brats, tmp_path / "sane", tmp_path))
    published = load(build(brats | {"compat": "published"}, tmp_path / "published", tmp_path))
    assert published[3]["mask_range"] == [0, 1]
    assert np.array_equal(published[1], (sane[1] + 1) / 2)
    assert np.array_equal(published[0], sane[0])


def test_brats_files_may_lie_in_one_folder_per_case(build, brats, tmp_path):
    flat = tmp_path / "raw2/BraTS2021_00007"
    flat.mkdir(parents=True)
    for path in list((tmp_path / "raw").rglob("*.nii.gz")):
        path.rename(flat / path.name)
    out = load(build(brats | {"folder": "raw2"}, tmp_path / "out", tmp_path))
    assert out[3]["cases"] == ["BraTS2021_00007"]


def test_brats_without_a_modality_names_it(build, brats, tmp_path):
    (tmp_path / "raw/t2/BraTS2021_00007_t2.nii.gz").unlink()
    refused(build, brats, tmp_path, "case BraTS2021_00007 .* has no BraTS2021_00007_t2 file")


def test_preprocessed_brats_is_taken_as_it_is_and_checked(build, brats, save, tmp_path):
    ready = brats | {"preprocessed": True}
    refused(build, ready, tmp_path, r"t1.nii.gz ranges from 0 to .*, not within -1 to 1: it was not preprocessed")
    seg = tmp_path / "raw/seg/BraTS2021_00007_seg.nii.gz"
    labels = nibabel.load(seg).get_fdata().astype(np.uint8)
    labels[labels == 4] = 3
    save(seg, labels)
    refused(build, ready, tmp_path, r"seg.nii.gz lacks the brain label 4.*set preprocessed: false")
    refused(build, brats, tmp_path, r"has the label 3, known are 0, 1, 2, 4: .*set preprocessed: true")
    brain = labels[6:14, 6:14, 6:12]
    brain[brain == 0] = 4
    save(seg, labels)
    for modality in ("t1", "t1ce", "t2", "flair"):
        path = tmp_path / f"raw/{modality}/BraTS2021_00007_{modality}.nii.gz"
        save(path, (nibabel.load(path).get_fdata() / 1000 * 2 - 1).astype(np.float32))
    images, _, maps, _ = load(build(ready, tmp_path / "out", tmp_path))
    source = nibabel.load(tmp_path / "raw/t1/BraTS2021_00007_t1.nii.gz").get_fdata()
    assert np.allclose(images[0, 0], source[2:18, 1:17, 1:17].transpose(2, 1, 0))
    assert (maps == 4).sum() == 8 * 8 * 6 - 3


# any NIfTI folder


def test_real_scan_with_a_label_map_of_three_classes(build, save, tmp_path):
    """nibabel's real low-resolution brain; the label map is crafted from its intensities."""
    path = Path(nibabel.__file__).parent / "tests/data/anatomical.nii"
    scan = nibabel.load(path)
    data = scan.get_fdata()
    edges = np.quantile(data, [0.5, 0.8, 0.95])
    labels = np.digitize(data, edges).astype(np.uint8) * 5  # labels 0, 5, 10, 15
    save(tmp_path / "i/scan.nii.gz", data.astype(np.int16), scan.affine)
    save(tmp_path / "l/scan.nii.gz", labels, scan.affine)
    definition = {"kind": "nifti", "images": "i", "labels": "l", "volume": [16, 32, 32], "resize": "resample"}
    images, masks, maps, manifest = load(build(definition, tmp_path / "out", tmp_path))
    assert manifest["mask_channels"] == ["label_5", "label_10", "label_15"]
    assert masks.shape == (1, 3, 16, 32, 32)
    means = [images[0, 0][maps[0] == label].mean() for label in (0, 5, 10, 15)]
    assert means == sorted(means)  # image and labels still lie on each other
    assert manifest["voxel_mm"] == pytest.approx([25 * 2 / 16, 41 * 2 / 32, 33 * 2 / 32], rel=1e-3)
    centre = np.array(manifest["affine"]) @ [15.5, 15.5, 7.5, 1]
    assert np.allclose(centre, scan.affine @ [16, 20, 12, 1], atol=1e-3)


def test_classes_name_the_channels_and_one_that_no_case_has_is_refused(build, head, tmp_path):
    base = {"kind": "nifti", "images": "image", "labels": "mask", "volume": [16, 16, 16]}
    out = build(base | {"classes": {2: "lesion", 1: "brain"}}, tmp_path / "out", tmp_path)
    assert load(out)[3]["mask_channels"] == ["brain", "lesion"]
    assert load(out)[3]["label_names"] == {"0": "background", "1": "brain", "2": "lesion"}
    for classes, message in (({1: "brain", 2: "lesion", 9: "vessel"}, "label 9 .'vessel'"), ({1: "brain"}, "label 2")):
        with pytest.raises(UserError, match=message):
            build(base | {"classes": classes}, tmp_path / "other", tmp_path)
