"""The lock of a data set: the SHA-256 of each source file, kept in git, and the key made from it.

Neither numpy nor nibabel is imported here: the study asks for keys while the workflow is parsed.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpustudy.base.atomic import write_json
from gpustudy.base.canonical import key_of
from gpustudy.base.digests import file_sha256
from gpustudy.base.errors import UserError
from gpustudy.base.progress import Progress
from gpustudy.data.definitions import resolve, without_paths
from gpustudy.data.sources import source_files

LOCK_SCHEMA = 1
RECIPE = 1
"""Version of the preparation itself: raise it with every change that alters a prepared array."""

LOCKS = Path(__file__).resolve().parents[2] / "locks"
"""``workflow/locks`` of this checkout: one file per data set, tracked in git."""


def lock_path(name: str, locks: Path = LOCKS) -> Path:
    """Return where the lock of data set ``name`` lies."""
    return locks / f"{name}.json"


def make_lock(name: str, definition: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Return the lock of a data set as its source files are now; relative paths begin at ``root``.

    Raises:
        UserError: a wrong definition, or source files that are missing or unpaired.
    """
    resolved = resolve(name, definition)
    paths = source_files(name, resolved, root)
    progress = Progress(f"data {name}", len(paths), "source file")
    files: dict[str, dict[str, Any]] = {}
    for done, (relative, path) in enumerate(paths.items(), start=1):
        files[relative] = {"sha256": _sha256(path), "bytes": path.stat().st_size}
        if resolved["kind"] != "mni152":  # three small files need no progress line
            progress.step(done)
    lock: dict[str, Any] = {"schema": LOCK_SCHEMA, "name": name, "kind": resolved["kind"], "files": files}
    if resolved["kind"] == "mni152":
        lock["provenance"] = {"nilearn": importlib.metadata.version("nilearn")}
    return lock


def _sha256(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): check the file and its permissions.") from error


def write_lock(lock: Mapping[str, Any], locks: Path = LOCKS) -> Path:
    """Write ``lock`` and return its path."""
    path = lock_path(lock["name"], locks)
    write_json(path, dict(lock))
    return path


def read_lock(name: str, locks: Path = LOCKS) -> dict[str, Any]:
    """Read the lock of data set ``name``.

    Raises:
        UserError: it is absent or not a lock.
    """
    path = lock_path(name, locks)
    try:
        lock = json.loads(path.read_text())
        sums = [entry["sha256"] for entry in lock["files"].values()]
        if lock["schema"] != LOCK_SCHEMA or not sums:
            raise ValueError("unknown schema or no files")
    except FileNotFoundError:
        raise UserError(
            f"data set {name!r} has no lock ({path} does not exist): run 'gpustudy data lock {name}'."
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is not a readable lock ({error}): run 'gpustudy data lock {name}' anew.") from error
    assert isinstance(lock, dict)
    return lock


def data_key(definition: Mapping[str, Any], lock: Mapping[str, Any]) -> str:
    """Return the key of a data set: what it is defined as, and the sums of the files it is made from.

    No path and no package version enters; a default left out and the same value written down give one key.

    Raises:
        UserError: a wrong definition.
    """
    sums = {relative: entry["sha256"] for relative, entry in lock["files"].items()}
    resolved = resolve(lock["name"], definition)
    return key_of({"schema": 1, "recipe": RECIPE, "definition": without_paths(resolved), "sources": sums})


def check_sources(name: str, definition: Mapping[str, Any], lock: Mapping[str, Any], root: Path) -> None:
    """Compare the source files with the lock.

    Raises:
        UserError: one was changed, removed or added; the first is named.
    """
    now = make_lock(name, definition, root)["files"]
    for relative in sorted(now.keys() | lock["files"].keys()):
        if relative not in now:
            fault = "is in the lock but not on disk"
        elif relative not in lock["files"]:
            fault = "is not in the lock"
        elif now[relative]["sha256"] != lock["files"][relative]["sha256"]:
            fault = "differs from the lock"
        else:
            continue
        raise UserError(
            f"source file {relative} of data set {name!r} {fault}: restore it, or take the files as they are now "
            f"with 'gpustudy data lock {name}'."
        )
