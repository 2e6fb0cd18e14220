"""Finds prepared volumes, and makes the workload small enough: a crop of the volumes, a narrower model."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpustudy.base.atomic import atomic_directory, write_json
from gpustudy.base.canonical import key_of
from gpustudy.base.digests import file_sha256
from gpustudy.base.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
LARGEST_SIDE = 64
"""Voxels: at 64 cubed the paper's model takes 4 TFLOP per optimiser step, well under a second on a V100."""
SIDE_STEP = 16
"""Sides are multiples of this: five levels halve them four times."""
MEMORY_SHARE = 0.7
"""Share of the free device memory that training may be estimated to take: ncu needs room for its copies."""
CASES = 4
"""Cases that a crop keeps."""
MODEL = {
    "image_channels": 1,
    "mask_channels": 2,
    "base_channels": 64,
    "channel_mult": [1, 1, 2, 3, 4],
    "res_blocks": 1,
    "attention_downsamples": [8],
    "volume": [LARGEST_SIDE] * 3,
}
"""The paper's model (Med-DDPM, whole head)."""
NARROW_BASE_CHANNELS = 32
DATA_SET = "mni152-demo"
"""Data set of config.yaml that is prepared here, where nothing was prepared before."""

Estimate = Callable[[Mapping[str, Any]], int]


@dataclass(frozen=True)
class Prepared:
    """A folder of prepared data.

    Attributes:
        folder: where it lies.
        name: of the data set.
        key: of the prepared data.
        volume: sides (D, H, W) in voxels.
        channels: of the image and of the condition mask.
    """

    folder: Path
    name: str
    key: str
    volume: tuple[int, int, int]
    channels: tuple[int, int]


def read_prepared(folder: Path) -> Prepared:
    """Return what a folder of prepared data holds.

    Raises:
        UserError: it is none.
    """
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        images, masks = (np.load(folder / name, mmap_mode="r") for name in ("images.npy", "masks.npy"))
        depth, height, width = images.shape[2:]
        return Prepared(
            folder, manifest["name"], manifest["key"], (depth, height, width), (images.shape[1], masks.shape[1])
        )
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{folder} holds no prepared data ({error}): make some with 'gpustudy data prepare {DATA_SET}' and name "
            "the folder by --data."
        ) from error


def find_prepared(named: Path | None, results: Path, scratch: Path) -> Prepared:
    """Return the prepared data to use: the named folder, else one of ``results``/data, else one made here.

    Raises:
        UserError: there is none, and what would make it is not installed.
    """
    if named is not None:
        return read_prepared(named)
    for manifest in sorted((results / "data").glob("*/manifest.json")):
        return read_prepared(manifest.parent)
    missing = [
        name for name in ("nilearn", "nibabel", "scipy", "pydantic", "yaml") if not importlib.util.find_spec(name)
    ]
    if missing:
        raise UserError(
            f"there is no prepared data, and {missing[0]}, which would make it, is not installed here: prepare it "
            f"elsewhere with 'gpustudy data prepare {DATA_SET}', carry the folder along and name it by --data."
        )
    folder = scratch / DATA_SET
    command = [sys.executable, "-m", "gpustudy", "data", "prepare", DATA_SET, "--out", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)
    return read_prepared(folder)


def fitting_model(prepared: Prepared, free_bytes: int, estimate: Estimate) -> dict[str, Any]:
    """Return the largest model section whose training is estimated to fit.

    Args:
        prepared: its volumes bound the model's volume.
        free_bytes: free memory of the device.
        estimate: model section -> bytes of its training.

    Raises:
        UserError: not even the smallest fits.
    """
    smallest = 0
    for model in _models(prepared):
        smallest = estimate(model)
        if smallest <= MEMORY_SHARE * free_bytes:
            return model
    raise UserError(
        f"the device has {free_bytes / 2**30:.1f} GiB free, the smallest workload takes {smallest / 2**30:.1f} GiB: "
        "free the device of other programs."
    )


def _models(prepared: Prepared) -> Iterator[dict[str, Any]]:
    """Yield model sections from large to small."""
    image, mask = prepared.channels
    for base in (MODEL["base_channels"], NARROW_BASE_CHANNELS):
        for side in range(LARGEST_SIDE, 0, -SIDE_STEP):
            volume = [min(side, have - have % SIDE_STEP) for have in prepared.volume]
            yield MODEL | {"image_channels": image, "mask_channels": mask, "base_channels": base, "volume": volume}


def crop(prepared: Prepared, volume: tuple[int, ...], scratch: Path) -> Prepared:
    """Return ``prepared`` with its volumes cut to their middle; itself where they have that size already."""
    if prepared.volume == volume:
        return prepared
    key = key_of({"crop_of": prepared.key, "volume": list(volume), "cases": CASES})
    low = [(have - want) // 2 for have, want in zip(prepared.volume, volume, strict=True)]
    middle = tuple(slice(start, start + want) for start, want in zip(low, volume, strict=True))
    manifest = json.loads((prepared.folder / "manifest.json").read_text())
    target = scratch / f"{prepared.name}-{key}"
    with atomic_directory(target) as folder:
        files = {}
        for path in sorted(prepared.folder.glob("*.npy")):
            array = np.load(path, mmap_mode="r")[:CASES]
            np.save(folder / path.name, np.ascontiguousarray(array[(..., *middle)]))
            made = folder / path.name
            files[path.name] = {"sha256": file_sha256(made), "bytes": made.stat().st_size}
        changes = {"key": key, "files": files, "crop_of": prepared.key} | _cut_fields(manifest, low)
        write_json(folder / "manifest.json", manifest | changes)
    return read_prepared(target)


def _cut_fields(manifest: Mapping[str, Any], low: list[int]) -> dict[str, Any]:
    """Return the manifest's fields that a crop changes: the cases kept, and the affine of the new corner."""
    fields: dict[str, Any] = {"cases": manifest.get("cases", [])[:CASES]}
    fields["count"] = len(fields["cases"]) or manifest.get("count")
    if "affine" in manifest:
        affine = np.array(manifest["affine"], dtype=float)
        affine[:3, 3] += affine[:3, :3] @ np.array(low[::-1])  # arrays are (Z, Y, X), the affine is of (X, Y, Z)
        fields["affine"] = affine.tolist()
    return fields
