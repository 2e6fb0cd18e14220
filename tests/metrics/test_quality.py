"""Quality of generated volumes: each metric against another library or a formula written out."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.metrics import DiceMetric
from monai.metrics.regression import compute_ms_ssim
from PIL import Image
from scipy.spatial.distance import pdist
from scipy.stats import wasserstein_distance

from gpustudy.base.errors import UserError
from gpustudy.metrics.make import make_metrics
from gpustudy.metrics.quality import best_threshold, dice, histogram_distance
from gpustudy.metrics.schemas import read_table
from gpustudy.metrics.similarity import ms_ssim, pairwise, setting_for
from gpustudy.metrics.two_sample import embed, gaussian_kernel, mmd2_unbiased, two_sample
from tests.metrics import raw_stages
from tests.metrics.raw_stages import volumes

WEIGHTS = np.array([0.0448, 0.2856, 0.3001, 0.2363, 0.1333])


# --- MS-SSIM


@pytest.mark.parametrize(
    ("side", "expected"),
    [(192, (5, 11)), (128, (5, 7)), (64, (3, 11)), (32, (3, 7)), (16, (2, 7)), (8, (2, 3))],
)
def test_window_and_scales_follow_the_side(side: int, expected: tuple[int, int]) -> None:
    assert setting_for((side, side, side)) == expected
    assert setting_for((side, 512, 512)) == expected


def test_too_small_volumes_are_refused() -> None:
    with pytest.raises(UserError, match="4 x 4 x 4 voxels are too small"):
        setting_for((4, 4, 4))


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("side", [32, 45])
def test_ms_ssim_is_monais(side: int, channels: int) -> None:
    left, right = volumes(2, side, seed=3, channels=channels)
    setting = setting_for(left.shape[1:])
    weights = WEIGHTS[: setting.scales] / WEIGHTS[: setting.scales].sum()
    theirs = compute_ms_ssim(
        torch.from_numpy(left)[None],
        torch.from_numpy(right)[None],
        spatial_dims=3,
        data_range=2.0,
        kernel_size=setting.window,
        weights=tuple(weights),
    )
    assert ms_ssim(left, right, setting, 2.0) == pytest.approx(float(theirs), abs=2e-5)
    assert 0.05 < float(theirs) < 0.95


def test_a_volume_is_like_itself_and_unlike_its_negative() -> None:
    (volume,) = volumes(1, 32, seed=4)
    setting = setting_for(volume.shape[1:])
    assert ms_ssim(volume, volume, setting, 2.0) == pytest.approx(1)
    assert ms_ssim(volume, -volume, setting, 2.0) == 0


def test_pairs_are_all_or_a_fixed_draw() -> None:
    few = pairwise(volumes(4, 16, seed=5), 2.0, seed=0)
    assert sorted(few) == list(combinations(range(4), 2))
    many = np.zeros((46, 1, 8, 8, 8), dtype=np.float32)  # 1,035 pairs
    assert len(pairwise(many, 2.0, seed=0)) == 1000
    assert pairwise(many, 2.0, seed=0).keys() == pairwise(many, 2.0, seed=0).keys()


# --- two samples


def _brute_mmd2(left: np.ndarray, right: np.ndarray, width: float) -> float:
    """The unbiased estimate written out as in the paper, sum by sum."""

    def kernel(x: np.ndarray, y: np.ndarray) -> float:
        return float(np.exp(-((x - y) ** 2).sum() / (2 * width**2)))

    m, n = len(left), len(right)
    within_left = sum(kernel(left[i], left[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    within_right = sum(kernel(right[i], right[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    return within_left + within_right - 2 * sum(kernel(x, y) for x in left for y in right) / (m * n)


def test_mmd_is_the_formula_with_the_median_distance() -> None:
    generator = np.random.default_rng(0)
    left, right = generator.standard_normal((5, 3)), generator.standard_normal((4, 3)) + 0.7
    pooled = np.concatenate([left, right])
    found = mmd2_unbiased(gaussian_kernel(pooled), np.arange(5))
    assert found == pytest.approx(_brute_mmd2(left, right, float(np.median(pdist(pooled)))), rel=1e-9)
    assert two_sample(left, right, seed=0).mmd2 == found


def test_exact_p_value_is_a_count_of_splits() -> None:
    left, right = np.array([[0.0], [0.1], [0.2]]), np.array([[5.0], [5.1], [5.2]])
    result = two_sample(left, right, seed=0)
    # 20 splits of six into three and three: the one found and its mirror image are the most extreme
    assert (result.splits, result.p_value) == (20, pytest.approx(2 / 20))


def test_p_values_of_equal_distributions_are_uniform_enough_and_of_others_small() -> None:
    generator = np.random.default_rng(1)
    equal = [
        two_sample(generator.standard_normal((5, 4)), generator.standard_normal((5, 4)), seed=0).p_value
        for _ in range(100)
    ]
    assert 0.35 < np.mean(equal) < 0.65
    assert np.mean(np.array(equal) <= 0.05) <= 0.12  # 5 expected, P(13 or more) < 0.2 %
    shifted = two_sample(generator.standard_normal((8, 4)), generator.standard_normal((8, 4)) + 3, seed=0)
    assert shifted.splits == 2000  # 12,870 are too many to look at each
    assert shifted.p_value == pytest.approx(1 / 2001)


def test_unbiased_estimate_is_around_zero_for_equal_distributions() -> None:
    generator = np.random.default_rng(2)
    found = [
        two_sample(generator.standard_normal((4, 2)), generator.standard_normal((4, 2)), seed=0).mmd2
        for _ in range(200)
    ]
    assert abs(np.mean(found)) < 3 * np.std(found) / np.sqrt(200)
    assert min(found) < 0


def test_embedding_is_the_mean_over_cells() -> None:
    volume = np.arange(16**3, dtype=np.float32).reshape(1, 1, 16, 16, 16)
    features = embed(volume)
    assert features.shape == (1, 512)
    assert features[0, 0] == volume[0, 0, :2, :2, :2].mean()
    assert embed(np.ones((2, 3, 9, 8, 4))).shape == (2, 3 * 8 * 8 * 4)


# --- intensities and masks


def test_histogram_distance_is_scipys_up_to_a_bin() -> None:
    generator = np.random.default_rng(3)
    left, right = generator.uniform(-0.8, 0.6, 3000), generator.normal(0.3, 0.2, 2000).clip(-1, 1)
    assert histogram_distance(left, right) == pytest.approx(wasserstein_distance(left, right), abs=2 / 256)
    assert histogram_distance(left, left) == 0
    assert histogram_distance(np.array([-1.0]), np.array([1.0])) == pytest.approx(2, abs=2 / 256)


def test_dice_is_monais() -> None:
    generator = np.random.default_rng(4)
    found, expected = generator.random((2, 6, 6, 6)) > 0.4
    theirs = DiceMetric(include_background=True)(
        torch.from_numpy(found)[None, None].float(), torch.from_numpy(expected)[None, None].float()
    )
    assert dice(found, expected) == pytest.approx(float(theirs))
    assert dice(found & False, expected & False) == 1


def test_threshold_separates_the_real_foreground() -> None:
    foreground = np.zeros((1, 4, 4, 4), dtype=bool)
    foreground[0, 1:3] = True
    real = np.where(foreground, 0.4, -0.2).astype(np.float32)[:, None]
    assert -0.2 <= best_threshold(real, foreground) < 0.4


# --- the stage


def _cells(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    rows = read_table(path / "cells.parquet", "cells").to_pylist()
    return {(row["quantity"], row["scope"]): row for row in rows}


def test_the_stage_writes_every_quantity_and_the_pictures(tmp_path: Path) -> None:
    raw, out = raw_stages.samples(tmp_path / "raw"), tmp_path / "out"
    make_metrics(raw, out, "k")
    cells = _cells(out)
    assert set(cells) == {
        ("ms_ssim_real", "pairs"),
        ("ms_ssim_generated", "pairs"),
        ("mmd2_rbf", "total"),
        ("mmd_p_value", "total"),
        ("histogram_distance", "label_1"),
        ("histogram_distance", "label_2"),
        ("mask_fidelity", "foreground"),
        ("mask_fidelity_real", "foreground"),
        ("stage_s", "total"),
    }
    assert all(np.isfinite(row["value"]) for row in cells.values())
    assert cells["ms_ssim_generated", "pairs"]["n"] == 6
    assert cells["mmd_p_value", "total"]["n"] == 70
    assert cells["mask_fidelity_real", "foreground"]["value"] == 1
    assert 0.7 < cells["mask_fidelity", "foreground"]["value"] < 1
    similarity = cells["ms_ssim_generated", "pairs"]
    assert similarity["low"] < similarity["value"] < similarity["high"]
    assert len(list((out / "samples").iterdir())) == 4
    with Image.open(out / "mosaic.png") as mosaic:
        assert mosaic.size == (6 * 96 + 5 * 2, 4 * 96 + 3 * 2)


def test_nifti_files_lie_where_the_data_set_lies(tmp_path: Path) -> None:
    marked = np.full((2, 1, 10, 12, 14), -1, dtype=np.float32)  # (N, C, Z, Y, X)
    marked[0, 0, 3, 5, 7] = 1
    labels = np.ones((2, 10, 12, 14), dtype=np.uint8)
    ids = np.array(["a/b", "c"])
    raw = raw_stages.samples(
        tmp_path / "raw", count=2, samples=marked, real=marked, labels=labels, masks=marked, case_ids=ids
    )
    make_metrics(raw, tmp_path / "out", "k")
    image = nib.load(tmp_path / "out" / "samples" / "000-a_b.nii.gz")
    assert image.shape == (14, 12, 10)
    voxel = np.argwhere(image.get_fdata() == 1)
    assert voxel.tolist() == [[7, 5, 3]]
    assert nib.affines.apply_affine(image.affine, voxel).tolist() == [[2 * 7 - 10, 2 * 5 - 20, 3 * 3 - 30]]
    assert nib.aff2axcodes(image.affine) == ("R", "A", "S")


def test_several_channels_become_the_last_axis(tmp_path: Path) -> None:
    made = volumes(2, 8, seed=6, channels=3)
    ids = np.array(["a", "b"])
    labels = np.ones((2, 8, 8, 8), dtype=np.uint8)
    raw = raw_stages.samples(tmp_path / "raw", count=2, side=8, samples=made, real=made, labels=labels, case_ids=ids)
    make_metrics(raw, tmp_path / "out", "k")
    image = nib.load(tmp_path / "out" / "samples" / "001-b.nii.gz")
    assert np.array_equal(image.get_fdata()[1, 2, 3], made[1, :, 3, 2, 1])


def test_a_case_that_conditions_two_samples_is_one_real_volume(tmp_path: Path) -> None:
    real = volumes(2, 16, seed=1)[[0, 1, 0]]
    labels = (real[:, 0] > -0.9).astype(np.uint8)
    raw = raw_stages.samples(tmp_path / "raw", count=3, real=real, labels=labels, case_ids=np.array(["a", "b", "a"]))
    make_metrics(raw, tmp_path / "out", "k")
    cells = _cells(tmp_path / "out")
    assert cells["ms_ssim_real", "pairs"]["n"] == 1
    assert cells["ms_ssim_real", "pairs"]["value"] < 0.99
    assert cells["ms_ssim_generated", "pairs"]["n"] == 3


def test_one_sample_has_null_where_two_are_needed(tmp_path: Path) -> None:
    make_metrics(raw_stages.samples(tmp_path / "raw", count=1), tmp_path / "out", "k")
    cells = _cells(tmp_path / "out")
    assert cells["ms_ssim_generated", "pairs"]["value"] is None
    assert cells["mmd2_rbf", "total"]["value"] is None
    assert cells["mask_fidelity", "foreground"]["value"] is not None


def test_copies_of_one_volume_show_as_mode_collapse(tmp_path: Path) -> None:
    same = volumes(1, 16, seed=2).repeat(4, axis=0)
    make_metrics(raw_stages.samples(tmp_path / "raw", samples=same), tmp_path / "out", "k")
    cells = _cells(tmp_path / "out")
    assert cells["ms_ssim_generated", "pairs"]["value"] == pytest.approx(1)
    assert cells["ms_ssim_real", "pairs"]["value"] < 0.9


def test_the_same_samples_give_the_same_bytes(tmp_path: Path) -> None:
    raw = raw_stages.samples(tmp_path / "raw")
    for name in ("a", "b"):
        make_metrics(raw, tmp_path / name, "k")
    files = [path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file()]
    assert len(files) == 7
    for file in files:
        content = (tmp_path / "a" / file).read_bytes()
        assert content == (tmp_path / "b" / file).read_bytes()
        assert file.suffix != ".gz" or content[4:8] == bytes(4)  # no time in the gzip header


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"real": None}, "real is not a file in the archive"),
        ({"labels": np.zeros((4, 8, 8, 8), np.uint8)}, "do not fit each other"),
        ({"samples": np.full((4, 1, 16, 16, 16), np.nan, np.float32)}, "not finite"),
        ({"case_ids": np.array([{"a": 1}] * 4, dtype=object)}, "not readable as samples"),
    ],
)
def test_samples_that_cannot_be_used_are_told(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    raw = raw_stages.samples(tmp_path / "raw", **changes)
    with pytest.raises(UserError, match=message):
        make_metrics(raw, tmp_path / "out", "k")
