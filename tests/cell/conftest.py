"""A tiny prepared data set and cells for it, at a size where every mechanism runs in a second."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpustudy
from gpustudy.base.canonical import key_of
from gpustudy.base.digests import source_digest
from gpustudy.base.status import Status, write_status

SIDE = 16
DATA_KEY = "0123456789ab"
SOURCES = ["base/atomic.py", "cell/stages.py"]

MODEL: dict[str, Any] = {
    "image_channels": 1,
    "mask_channels": 2,
    "base_channels": 32,
    "channel_mult": [1, 2],
    "res_blocks": 1,
    "attention_downsamples": [2],
    "volume": [SIDE, SIDE, SIDE],
}
TRAIN: dict[str, Any] = {
    "iterations": 2,
    "warmup_iterations": 1,
    "accumulation": 2,
    "batch_size": 1,
    "learning_rate": 1e-4,
    "loss": "l1",
    "timesteps": 250,
    "ema_decay": 0.995,
    "ema_every": 10,
    "ema_start": 2000,
}
WORKLOADS: dict[str, dict[str, Any]] = {
    "train": {"model": MODEL, "train": TRAIN},
    "census": {
        "model": MODEL,
        "train": TRAIN,
        "census": {"warmup_iterations": 1, "iterations": 2, "layouts": True},
    },
    "quality": {"model": MODEL, "diffusion": {"timesteps": 250}, "quality": {"samples": 2, "ddim_steps": 3, "seed": 7}},
}
PREVIOUS = {
    "train": None,
    "census": {"stage": "train", "key": "a" * 12},
    "quality": {"stage": "train", "key": "a" * 12},
}


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of prepared data: three cases of crafted smooth volumes."""
    folder = tmp_path_factory.mktemp("prepared")
    rng = np.random.default_rng(3)
    axis = np.linspace(-1, 1, SIDE, dtype=np.float32)
    ramp = axis[:, None, None] * axis[:, None] * axis
    images = np.stack([np.clip(ramp * scale, -1, 1)[None] for scale in rng.uniform(0.5, 2, 3)]).astype(np.float32)
    np.save(folder / "images.npy", images)
    np.save(folder / "masks.npy", np.repeat((images > 0) * 2.0 - 1.0, 2, axis=1).astype(np.float32))
    np.save(folder / "labels.npy", (images[:, 0] > 0).astype(np.uint8))
    manifest = {
        "schema": 1,
        "name": "tiny",
        "key": DATA_KEY,
        "count": 3,
        "affine": np.diag([2.0, 2.0, 2.0, 1.0]).tolist(),
        "cases": ["one", "two", "three"],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def make_document(stage: str = "train", optimisations: tuple[str, ...] = (), **changes: Any) -> dict[str, Any]:
    """A cell's document; ``changes`` replace top-level fields, ``gpu=`` updates the device's."""
    root = Path(gpustudy.__file__).parent
    gpu = {
        "name": "cpu",
        "device": "cpu",
        "architecture": "cpu",
        "device_name": "",
        "threads": 1,
        "null_control": [],
        "memory_bytes": None,
    }
    document = {
        "schema": 1,
        "stage": stage,
        "gpu": gpu | changes.pop("gpu", {}),
        "config": {"optimisations": list(optimisations), "pytorch_defaults": False},
        "repeat": 1,
        "seed": 2027,
        "workload": WORKLOADS[stage],
        "data": {"name": "tiny", "key": DATA_KEY},
        "stack": {
            "name": "here",
            "key": "b" * 12,
            "pins": {package: metadata.version(package).split("+")[0] for package in ("torch", "numpy")},
        },
        "sources": {"digest": source_digest(root, SOURCES), "files": SOURCES},
        "previous": PREVIOUS[stage],
    }
    return document | changes


WriteCell = Callable[..., Path]


@pytest.fixture
def write_cell(tmp_path: Path) -> WriteCell:
    """Writes a cell file and returns its path; arguments as of ``make_document``."""

    def write(*arguments: Any, name: str = "cell.json", key: str | None = None, **changes: Any) -> Path:
        document = make_document(*arguments, **changes)
        content = {"key": key or key_of(document), "labels": {"config": "some"}, "document": document}
        path = tmp_path / name
        path.write_text(json.dumps(content))
        return path

    return write


@pytest.fixture
def done_train(tmp_path: Path) -> Path:
    """A folder that says that stage train is done, without raw files."""
    folder = tmp_path / "train-done"
    folder.mkdir()
    write_status(folder, Status("train", "a" * 12, "done"))
    return folder
