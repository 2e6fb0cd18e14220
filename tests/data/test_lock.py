"""Keys and locks: what a data set's key depends on, and that changed source files are refused."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gpustudy.base.errors import UserError
from gpustudy.data.lock import LOCKS, check_sources, data_key, lock_path, make_lock, read_lock, write_lock
from gpustudy.data.prepare import prepare

DEMO = {"kind": "mni152", "volume": [32, 32, 32], "count": 8, "seed": 20260619}


def lock_of(**sums):
    return {
        "schema": 1,
        "name": "mine",
        "kind": "nifti",
        "files": {k: {"sha256": v, "bytes": 1} for k, v in sums.items()},
    }


def test_key_follows_definition_and_sums_but_neither_paths_nor_written_defaults():
    lock = lock_of(a="00", b="11")
    mine = {"kind": "nifti", "images": "scans", "labels": "masks", "volume": [16, 16, 16]}
    key = data_key(mine, lock)
    assert len(key) == 12
    assert data_key(mine | {"images": "/elsewhere", "cases": "list.txt"}, lock) == key
    assert data_key(mine | {"resize": None, "compat": None, "classes": None}, lock) == key
    assert data_key(mine, lock | {"provenance": {"nilearn": "9"}}) == key
    assert data_key(mine | {"volume": [32, 16, 16]}, lock) != key
    assert data_key(mine | {"classes": {1: "brain"}}, lock) != key
    assert data_key(mine | {"classes": {1: "brain"}}, lock) == data_key(mine | {"classes": {"1": "brain"}}, lock)
    assert data_key(mine, lock_of(a="00", b="12")) != key
    assert data_key(mine, lock_of(a="00", c="11")) != key


def test_committed_locks_fit_the_installed_template():
    """The SHA-256 sums in git are those of nilearn's files, whichever version carries them."""
    for name in ("mni152-demo", "mni152-paper"):
        lock = read_lock(name)
        assert lock["files"] == make_lock(name, DEMO, LOCKS)["files"]
        assert [entry["bytes"] for entry in lock["files"].values()] == [1965510, 1617531, 1553010]  # gm, t1, wm


def test_lock_needs_no_heavy_package():
    """Keys are computed while the workflow is parsed: neither numpy nor nilearn may be loaded for them."""
    code = (
        "import sys; from pathlib import Path; from gpustudy.data.lock import make_lock, data_key\n"
        f"definition = {DEMO!r}\n"
        "data_key(definition, make_lock('x', definition, Path()))\n"
        "print(sorted({'numpy', 'scipy', 'nibabel', 'nilearn', 'torch', 'pandas'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_environment())
    assert done.stdout.strip() == "[]"


def _environment():
    return {"PYTHONPATH": str(LOCKS.parent)}


def test_lock_is_written_and_read_back(head, tmp_path):
    lock = make_lock("mine", head, tmp_path)
    assert sorted(lock["files"]) == [
        "images/t1/sample_0.nii.gz",
        "images/t1/sample_1.nii.gz",
        "labels/sample_0.nii.gz",
        "labels/sample_1.nii.gz",
    ]
    write_lock(lock, tmp_path / "locks")
    assert read_lock("mine", tmp_path / "locks") == lock
    assert str(tmp_path) not in lock_path("mine", tmp_path / "locks").read_text()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 1, "files": {}}', '{"schema": 9, "files": {"a": {}}}'])
def test_absent_or_damaged_lock_says_what_to_run(tmp_path, content):
    with pytest.raises(UserError, match="run 'gpustudy data lock mine'"):
        read_lock("mine", tmp_path)
    lock_path("mine", tmp_path).write_text(content)
    with pytest.raises(UserError, match="not a readable lock"):
        read_lock("mine", tmp_path)


def test_changed_added_and_removed_sources_are_named(head, save, tmp_path):
    lock = make_lock("mine", head, tmp_path)
    check_sources("mine", head, lock, tmp_path)
    image = tmp_path / "image/sample_1.nii.gz"
    good = image.read_bytes()
    image.write_bytes(good + b"\0")
    with pytest.raises(UserError, match=r"images/t1/sample_1.nii.gz .* differs from the lock.*gpustudy data lock mine"):
        prepare("mine", head, lock, tmp_path / "out", tmp_path)
    assert not (tmp_path / "out").exists()
    image.unlink()
    mask = (tmp_path / "mask/sample_1.nii.gz").rename(tmp_path / "kept")
    with pytest.raises(UserError, match=r"sample_1.nii.gz .* is in the lock but not on disk"):
        check_sources("mine", head, lock, tmp_path)
    image.write_bytes(good)
    mask.rename(tmp_path / "mask/sample_1.nii.gz")
    for folder in ("image", "mask"):
        (tmp_path / folder / "sample_2.nii.gz").write_bytes(good)
    with pytest.raises(UserError, match=r"images/t1/sample_2.nii.gz .* is not in the lock"):
        check_sources("mine", head, lock, tmp_path)


def test_another_key_is_refused(head, tmp_path):
    lock = json.loads(json.dumps(make_lock("mine", head, tmp_path)))
    with pytest.raises(UserError, match="not 000000000000"):
        prepare("mine", head, lock, tmp_path / "out", tmp_path, "0" * 12)
