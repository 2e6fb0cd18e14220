"""Writing a prepared directory: the arrays case by case, the manifest last, all of it or nothing."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from gpustudy.base.atomic import atomic_directory, write_json
from gpustudy.base.digests import file_sha256
from gpustudy.base.errors import UserError
from gpustudy.base.progress import Progress
from gpustudy.data.definitions import DATA_KINDS, image_channels, resolve, without_paths
from gpustudy.data.folders import plan_folder
from gpustudy.data.lock import RECIPE, check_sources, data_key
from gpustudy.data.mni152 import plan_mni152
from gpustudy.data.volumes import Affine, Plan, voxel_mm

MANIFEST_FILE = "manifest.json"
MANIFEST_SCHEMA = 1
ARRAY_FILES = ("images.npy", "masks.npy", "labels.npy")


_PACKAGES = ("numpy", "scipy", "nibabel")
"""Packages whose version can change the last bit of an array; recorded, in no key."""


class ArrayFile:
    """A ``.npy`` file written case by case: the bytes are those of ``np.save`` on the stacked array.

    A memory map would do, but a full disk kills the process there, while a plain write raises.
    """

    def __init__(self, path: Path, count: int, like: NDArray[Any]) -> None:
        self._stream: BinaryIO = path.open("wb")
        header = np.lib.format.header_data_from_array_1_0(like) | {"shape": (count, *like.shape)}
        np.lib.format.write_array_header_1_0(self._stream, header)

    def add(self, array: NDArray[Any]) -> None:
        """Append one case."""
        self._stream.write(np.ascontiguousarray(array).tobytes())

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def prepare(
    name: str, definition: Mapping[str, Any], lock: Mapping[str, Any], out: Path, root: Path, key: str | None = None
) -> Path:
    """Prepare data set ``name`` into the directory ``out`` and return it.

    Args:
        name: name of the data set.
        definition: its definition; see ``definitions.DATA_KINDS``.
        lock: its lock; see ``lock.read_lock``.
        out: directory to make; what stood there is replaced when the new one is complete.
        root: where relative paths of the definition begin.
        key: the key that the caller expects, as in a workflow's path.

    Raises:
        UserError: the key differs, a source file differs from the lock, or a file is wrong.
    """
    resolved = resolve(name, definition)
    own_key = data_key(definition, lock)
    if key is not None and key != own_key:
        raise UserError(f"data set {name!r} has key {own_key}, not {key}: its definition or lock changed; run again.")
    check_sources(name, definition, lock, root)
    plan = plan_mni152(resolved) if resolved["kind"] == "mni152" else plan_folder(name, resolved, root)
    try:
        with atomic_directory(out) as directory:
            affines = _write_arrays(directory, plan, Progress(f"data {name}", len(plan.case_ids), "case"))
            write_json(directory / MANIFEST_FILE, _manifest(name, own_key, resolved, lock, plan, affines, directory))
    except OSError as error:
        raise UserError(f"{out} cannot be written ({error.strerror}): free space or choose another place.") from error
    return out


def check_prepared(directory: Path) -> dict[str, Any]:
    """Compare a prepared directory with its manifest and return the manifest.

    Raises:
        UserError: the manifest is absent or unreadable, or an array file differs from it.
    """
    path = directory / MANIFEST_FILE
    try:
        manifest = json.loads(path.read_text())
        files, count = manifest["files"], manifest["count"]
        for file in ARRAY_FILES:
            if file_sha256(directory / file) != files[file]["sha256"]:
                raise UserError(f"{directory / file} differs from its manifest: remove {directory} and prepare again.")
            found = np.load(directory / file, mmap_mode="r").shape[0]
            if found != count:
                raise UserError(f"{directory / file} holds {found} cases, its manifest says {count}: prepare again.")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, OverflowError, BadZipFile) as error:
        raise UserError(f"{directory} is not a prepared data set ({error}): prepare it again.") from error
    assert isinstance(manifest, dict)
    return manifest


def _write_arrays(directory: Path, plan: Plan, progress: Progress) -> dict[str, Affine]:
    """Write the three arrays and return each case's affine."""
    affines: dict[str, Affine] = {}
    with ExitStack() as stack:
        files: list[ArrayFile] = []
        for done, case in enumerate(plan.cases, start=1):
            arrays: tuple[NDArray[Any], ...] = (case.image, case.masks, case.labels)
            if not files:
                for file, array in zip(ARRAY_FILES, arrays, strict=True):
                    files.append(ArrayFile(directory / file, len(plan.case_ids), array))
                    stack.callback(files[-1].close)
            for array_file, array in zip(files, arrays, strict=True):
                array_file.add(array)
            affines[case.case_id] = case.affine
            progress.step(done)
    return affines


def _manifest(
    name: str,
    key: str,
    resolved: Mapping[str, Any],
    lock: Mapping[str, Any],
    plan: Plan,
    affines: Mapping[str, Affine],
    directory: Path,
) -> dict[str, Any]:
    """Return the manifest of the arrays in ``directory``; it holds no path of this machine and no time."""
    first = affines[plan.case_ids[0]]
    return {
        "schema": MANIFEST_SCHEMA,
        "name": name,
        "key": key,
        "count": len(plan.case_ids),
        "image_channels": list(image_channels(resolved)),
        "mask_channels": list(plan.mask_channels),
        "mask_range": list(plan.mask_range),
        "label_names": {str(label): title for label, title in plan.label_names.items()},
        "affine": first.tolist(),
        "voxel_mm": list(voxel_mm(first)),
        "cases": list(plan.case_ids),
        "case_affines": {case_id: affine.tolist() for case_id, affine in affines.items()},
        "files": {
            file: {"sha256": file_sha256(directory / file), "bytes": (directory / file).stat().st_size}
            for file in ARRAY_FILES
        },
        "source": _source(resolved, lock),
    }


def _source(resolved: Mapping[str, Any], lock: Mapping[str, Any]) -> dict[str, Any]:
    """Return where the arrays come from: definition, source sums, terms, and what they were made with."""
    return {
        "definition": without_paths(resolved),
        "recipe": RECIPE,
        "files": {relative: entry["sha256"] for relative, entry in lock["files"].items()},
        "licence": DATA_KINDS[resolved["kind"]].licence,
        "made_with": {package: importlib.metadata.version(package) for package in _PACKAGES},
    }
