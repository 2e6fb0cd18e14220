"""Crafted prepared data, and a machine that runs fake stages."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def prepared_folder(tmp_path: Path) -> Path:
    """A folder of crafted prepared data, to change at will."""
    return craft_prepared(tmp_path / "prepared")


def craft_prepared(folder: Path) -> Path:
    """Write two crafted cases of 32 x 48 x 32 voxels whose values name their place."""
    folder.mkdir()
    shape = (32, 48, 32)
    ramp = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    np.save(folder / "images.npy", np.stack([ramp[None], ramp[None] + 1]))
    np.save(folder / "masks.npy", np.ones((2, 2, *shape), np.float32))
    np.save(folder / "labels.npy", np.ones((2, *shape), np.uint8))
    manifest = {
        "schema": 1,
        "name": "crafted",
        "key": "0123456789ab",
        "count": 2,
        "cases": ["one", "two"],
        "affine": np.diag([2.0, 3.0, 4.0, 1.0]).tolist(),
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder
