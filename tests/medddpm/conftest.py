"""Small crafted volumes and a small network, so that every test here takes a second or two."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gpustudy.medddpm.unet import UNet3D

SIDE = 8
GARBAGE = (b"", b"hello\n", b".", b"G12", b"(", b"\x80", b"\x80\x02X\xff\xff\xff\x7f", b"PK\x03\x04")
"""Bytes that stop an unpickler in as many ways: KeyError, IndexError, struct.error, EOFError, ..."""
SMALL_MODEL = {
    "image_channels": 1,
    "mask_channels": 2,
    "base_channels": 32,
    "channel_mult": [1, 2],
    "res_blocks": 1,
    "attention_downsamples": [2],
    "volume": [SIDE, SIDE, SIDE],
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads wait for each other where other work shares the cores; these networks are too small to need two."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def small_model() -> UNet3D:
    torch.manual_seed(0)
    return UNet3D.from_document(SMALL_MODEL)


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """Three crafted cases with one image and two mask channels, 8 x 8 x 8."""
    return write_prepared(tmp_path / "prepared", cases=3, side=SIDE)


def write_prepared(folder: Path, cases: int, side: int) -> Path:
    folder.mkdir()
    generator = np.random.default_rng(0)
    for name, channels in (("images", 1), ("masks", 2)):
        values = generator.uniform(-1, 1, (cases, channels, side, side, side)).astype(np.float32)
        np.save(folder / f"{name}.npy", values)
    np.save(folder / "labels.npy", generator.integers(0, 3, (cases, side, side, side), dtype=np.uint8))
    manifest = {
        "schema": 1,
        "key": "0123456789ab",
        "cases": [f"case-{index}" for index in range(cases)],
        "affine": np.diag([2.0, 2.0, 2.0, 1.0]).tolist(),
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def fill_by_name(module: nn.Module) -> nn.Module:
    """Give every tensor the weights that the reference numbers were computed with, told by its name."""
    for name, parameter in module.named_parameters():
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        values = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim > 1:
            values = values / parameter[0].numel() ** 0.5
        else:
            values = 1 + 0.1 * values if name.endswith("weight") else 0.05 * values
        parameter.data.copy_(values)
    return module


@pytest.fixture
def reference(shared_data: Path) -> Any:
    return np.load(shared_data / "medddpm" / "reference_blocks.npz")


@pytest.fixture
def tensor_rows(shared_data: Path) -> Callable[[str], list[tuple[str, tuple[int, ...]]]]:
    """Read a list of published tensors: name and shape, in order."""

    def read(name: str) -> list[tuple[str, tuple[int, ...]]]:
        lines = (shared_data / "medddpm" / name).read_text().splitlines()[1:]
        rows = (line.split("\t") for line in lines)
        return [(row[0], tuple(int(side) for side in row[1].split(","))) for row in rows]

    return read
