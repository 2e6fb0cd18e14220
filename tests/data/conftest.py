"""Small NIfTI files for the data tests. All arrays here are crafted, unless a test says which real file it reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
import pytest

from gpustudy.data.lock import data_key, make_lock
from gpustudy.data.mni152 import Template, load_template
from gpustudy.data.prepare import prepare
from gpustudy.data.sources import template_files

Save = Callable[..., Path]


@pytest.fixture(scope="session")
def save() -> Save:
    """``save(path, xyz_array, affine=2 mm)`` writes a NIfTI file."""

    def write(path: Path, array: np.ndarray, affine: np.ndarray | None = None) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        nibabel.save(nibabel.Nifti1Image(array, np.diag([2, 2, 2, 1]) if affine is None else affine), path)
        return path

    return write


@pytest.fixture(scope="session")
def template() -> Template:
    """The real MNI152 template of the nilearn package."""
    return load_template(template_files())


@pytest.fixture(scope="session")
def build() -> Callable[..., Path]:
    """``build(definition, out, root)`` locks and prepares, as the verb does."""

    def make(definition: dict, out: Path, root: Path) -> Path:
        lock = make_lock("tried", definition, root)
        return prepare("tried", definition, lock, out, root, data_key(definition, lock))

    return make


@pytest.fixture
def head(tmp_path: Path, save: Save) -> dict:
    """A whole-head definition over two crafted 16-cubed pairs below ``tmp_path``."""
    random = np.random.default_rng(3)
    for index in range(2):
        labels = np.zeros((16, 16, 16), np.uint8)
        labels[4:12, 4:12, 4:12] = 1
        labels[6:8, 6:8, 6:8] = 2
        image = random.uniform(10, 500, labels.shape).astype(np.float32) * (labels > 0)
        save(tmp_path / f"image/sample_{index}.nii.gz", image)
        save(tmp_path / f"mask/sample_{index}.nii.gz", labels)
    return {"kind": "whole_head", "images": "image", "masks": "mask", "volume": [16, 16, 16]}
