"""The prepared directory: its files are those of ``np.save``, equal for equal input, whole or absent."""

from __future__ import annotations

import hashlib
import io
import json

import numpy as np
import pytest

from gpustudy.base.digests import file_sha256
from gpustudy.base.errors import UserError
from gpustudy.data.check import check_folder
from gpustudy.data.lock import data_key, make_lock
from gpustudy.data.prepare import check_prepared

TINY = {"kind": "mni152", "volume": [16, 32, 16], "count": 2, "seed": 5}


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_equal_input_gives_equal_bytes_and_another_seed_does_not(build, tmp_path):
    first = digests(build(TINY, tmp_path / "a", tmp_path))
    assert sorted(first) == ["images.npy", "labels.npy", "manifest.json", "masks.npy"]
    assert digests(build(TINY, tmp_path / "b", tmp_path)) == first
    other = digests(build(TINY | {"seed": 6}, tmp_path / "c", tmp_path))
    assert not set(other.values()) & set(first.values())


def test_directory_is_as_the_cell_side_reads_it(build, tmp_path):
    out = build(TINY, tmp_path / "a", tmp_path)
    manifest = json.loads((out / "manifest.json").read_text())
    images, masks, labels = (np.load(out / name) for name in ("images.npy", "masks.npy", "labels.npy"))
    assert (images.dtype, masks.dtype, labels.dtype) == (np.float32, np.float32, np.uint8)
    assert images.shape == (2, 1, 16, 32, 16)
    assert masks.shape == (2, 2, 16, 32, 16)
    assert labels.shape == (2, 16, 32, 16)
    np.save(tmp_path / "again.npy", images)
    assert (tmp_path / "again.npy").read_bytes() == (out / "images.npy").read_bytes()
    assert manifest["schema"] == 1
    assert manifest["count"] == len(manifest["cases"]) == 2
    assert manifest["image_channels"] == ["t1"]
    assert manifest["key"] == data_key(TINY, make_lock("tried", TINY, tmp_path))
    assert manifest["files"]["images.npy"] == {
        "sha256": hashlib.sha256((out / "images.npy").read_bytes()).hexdigest(),
        "bytes": (out / "images.npy").stat().st_size,
    }


def test_a_fault_in_the_last_case_leaves_nothing_and_keeps_what_stood_there(build, head, save, tmp_path):
    build(head, tmp_path / "out", tmp_path)
    before = digests(tmp_path / "out")
    save(tmp_path / "image/sample_1.nii.gz", np.full((16, 16, 16), np.nan, np.float32))
    with pytest.raises(UserError, match=r"sample_1.nii.gz has 4096 voxels that are NaN"):
        build(head, tmp_path / "out", tmp_path)
    assert digests(tmp_path / "out") == before
    assert not list(tmp_path.glob(".out*"))


def test_a_place_that_cannot_be_written_is_named(build, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"file/out cannot be written"):
        build(TINY, tmp_path / "file" / "out", tmp_path)


def test_check_finds_a_changed_array_and_a_folder_that_is_none(build, tmp_path):
    out = build(TINY, tmp_path / "a", tmp_path)
    assert check_prepared(out)["name"] == "tried"
    content = bytearray((out / "masks.npy").read_bytes())
    content[-1] ^= 1
    (out / "masks.npy").write_bytes(bytes(content))
    with pytest.raises(UserError, match=r"masks.npy differs from its manifest"):
        check_prepared(out)
    with pytest.raises(UserError, match="is not a prepared data set"):
        check_prepared(tmp_path)


def test_check_refuses_files_that_are_no_arrays_though_the_manifest_has_their_sums(build, tmp_path):
    out = build(TINY, tmp_path / "a", tmp_path)
    manifest = json.loads((out / "manifest.json").read_text())
    negative = io.BytesIO()
    np.lib.format.write_array_header_1_0(negative, {"descr": "<f4", "fortran_order": False, "shape": (8, 1, -4, 4, 4)})
    archive = io.BytesIO()
    np.savez(archive, images=np.zeros(8))
    for content in (b"", negative.getvalue(), archive.getvalue(), archive.getvalue()[:50]):
        (out / "images.npy").write_bytes(content)
        manifest["files"]["images.npy"]["sha256"] = file_sha256(out / "images.npy")
        (out / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(UserError, match="is not a prepared data set"):
            check_prepared(out)


def test_check_folder_reports_every_fault(head, save, tmp_path):
    lines, problems = check_folder(tmp_path)
    assert problems == []
    assert lines[0] == "sample_0: 16x16x16, 2x2x2 mm, RAS, labels 0 1 2"
    save(tmp_path / "mask/sample_0.nii.gz", np.ones((16, 16, 8), np.uint8))
    save(tmp_path / "image/sample_1.nii.gz", np.zeros((16, 16, 16), np.uint8))
    lines, problems = check_folder(tmp_path)
    assert len(problems) == 2
    assert "different shapes (sample_0.nii.gz 16x16x16, sample_0.nii.gz 16x16x8)" in problems[0]
    assert "the value 0 in every voxel" in problems[1]


def test_check_folder_reports_files_without_a_partner_beside_all_other_faults(head, save, tmp_path):
    save(tmp_path / "mask/sample_0.nii.gz", np.ones((16, 16, 8), np.uint8))
    (tmp_path / "mask/sample_1.nii.gz").rename(tmp_path / "mask/other_1.nii.gz")
    lines, problems = check_folder(tmp_path)
    assert lines == []
    assert [problem.split(":")[0] for problem in problems[:2]] == [
        f"{tmp_path}/image/sample_1.nii.gz has no partner in {tmp_path}/mask",
        f"{tmp_path}/mask/other_1.nii.gz has no partner in {tmp_path}/image",
    ]
    assert "different shapes" in problems[2]
    assert len(problems) == 3


def test_check_folder_reports_every_file_that_brats_cases_lack(save, tmp_path):
    for case_id, roles in {
        "A": ("t1", "t1ce", "t2", "flair", "seg"),
        "B": ("t1", "t1ce", "flair"),
        "C": ("t2",),
    }.items():
        for role in roles:
            save(tmp_path / f"{case_id}_{role}.nii.gz", np.arange(4096, dtype=np.uint8).reshape(16, 16, 16) % 5)
    lines, problems = check_folder(tmp_path)
    assert [line.split(":")[0] for line in lines] == ["A"]
    told = [
        f"{case_id}_{role}"
        for case_id, roles in (("B", ("t2", "seg")), ("C", ("t1", "t1ce", "flair", "seg")))
        for role in roles
    ]
    assert [problem.split(" has no ")[1].split()[0] for problem in problems] == told
