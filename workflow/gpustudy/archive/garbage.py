"""Results that nothing needs: of old keys, of cells that left the study, set aside, or left by a killed run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gpustudy.archive.history import remembered_archives
from gpustudy.base.errors import UserError
from gpustudy.study.cells import Keys
from gpustudy.study.load import Effective
from gpustudy.study.paths import ASIDE, CELLS, DATA, IMAGES, METRICS
from gpustudy.study.states import Survey, cell_state

OLD_KEY = "of an old key"
NOT_IN_STUDY = "of a cell that the config no longer has"
SET_ASIDE = "set aside"
UNFINISHED = "left unfinished by a killed run"


@dataclass(frozen=True)
class Garbage:
    """A file or folder that nothing needs.

    Attributes:
        path: where it lies.
        why: one of the reasons above.
        size: bytes that deleting it frees.
    """

    path: Path
    why: str
    size: int


def old_results(effective: Effective, seen: Survey, keep: Iterable[str] = ()) -> list[Garbage]:
    """Return the results that neither the present config, seen from any of its sites, nor an archive needs.

    Args:
        effective: the study, one of its sites, and the results.
        seen: the survey from that site.
        keep: stage folders to keep besides (``cells/...`` and ``metrics/...``).

    Raises:
        UserError: a record of an archive is unreadable.
    """
    candidates = [
        *((path, OLD_KEY) for path in _old_here(effective, seen)),
        *((path, NOT_IN_STUDY) for path in _outside_study(effective)),
    ]
    kept: set[str] = set(keep)
    if candidates:
        kept |= {stage for archive in remembered_archives(effective.results) for stage in archive["stages"]}
    results = effective.results
    return [
        Garbage(path, why, _size(path)) for path, why in candidates if path.relative_to(results).as_posix() not in kept
    ]


def all_garbage(effective: Effective, seen: Survey, keep: Iterable[str] = ()) -> list[Garbage]:
    """Return the old results, what was set aside, what a killed run left, and prepared data and images of old keys."""
    found = old_results(effective, seen, keep)
    found += [Garbage(path, SET_ASIDE, _size(path)) for path in _entries(effective.results / ASIDE)]
    found += [Garbage(path, UNFINISHED, _size(path)) for path in _unfinished(effective.results)]
    found += [Garbage(path, OLD_KEY, _size(path)) for path in (*_old_data(effective), *_old_images(effective))]
    return sorted(found, key=lambda garbage: garbage.path)


def delete(garbage: Iterable[Garbage], results: Path) -> None:
    """Delete what was found, and the folders that become empty by it.

    Raises:
        UserError: something cannot be deleted.
    """
    for found in garbage:
        try:
            shutil.rmtree(found.path) if found.path.is_dir() else found.path.unlink()
        except OSError as error:
            raise UserError(f"{found.path} cannot be deleted ({error.strerror}): check its permissions.") from error
        for parent in found.path.parents:
            if parent == results or any(parent.iterdir()):
                break
            parent.rmdir()


def _old_here(effective: Effective, seen: Survey) -> Iterator[Path]:
    """Yield folders of old keys that are not current at another site either: there the stack may be another."""
    sites = [name for name in effective.study.sites if name != effective.site]
    elsewhere = [Keys(replace(effective, site=name)) for name in sites]
    for state in seen.cells:
        old = [path for stage in state.stages for path in stage.old]
        if not old:
            continue
        needed = {
            path
            for keys in elsewhere
            for stage in cell_state(effective.results, keys, state.cell).stages
            for path in (stage.raw, stage.metrics)
        }
        yield from (path for path in old if path not in needed)


def _outside_study(effective: Effective) -> Iterator[Path]:
    """Yield the stage folders of cells that the study does not have."""
    study = effective.study
    numbers = {f"r{repeat}" for repeat in range(1, study.repeats + 1)}
    for room in (CELLS, METRICS):
        for gpu in _entries(effective.results / room):
            for config in _entries(gpu):
                for repeat in _entries(config):
                    if gpu.name not in study.gpus or config.name not in study.configs or repeat.name not in numbers:
                        yield from _entries(repeat)


def _unfinished(results: Path) -> Iterator[Path]:
    """Yield the hidden folders and images that an atomic writer was filling when it was killed."""
    for room in (CELLS, METRICS, DATA):
        for folder, names, _ in os.walk(results / room):
            parts = [name for name in names if name.startswith(".") and ".part" in name]
            yield from (Path(folder, name) for name in parts)
            names[:] = [name for name in names if name not in parts]
    yield from (results / IMAGES).glob(".*.part.*")


def _old_data(effective: Effective) -> Iterator[Path]:
    keys = Keys(effective)
    current = {f"{name}-{keys.data_key(name)}" for name in effective.study.data}
    yield from (path for path in _entries(effective.results / DATA) if path.name not in current)


def _old_images(effective: Effective) -> Iterator[Path]:
    keys = Keys(effective)
    current = {f"{stack}-{keys.image_key(stack)}" for stack in effective.study.stacks}
    for path in _entries(effective.results / IMAGES):
        if path.name.split(".")[0] not in current:
            yield path


def _entries(folder: Path) -> list[Path]:
    """Return what stands in a folder, hidden entries left out; nothing where there is no folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if not entry.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder."""
    if not path.is_dir():
        return path.lstat().st_size
    return sum(Path(folder, name).lstat().st_size for folder, _, names in os.walk(path) for name in names)
