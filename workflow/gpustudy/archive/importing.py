"""Importing an archive: what each stage means to this study, and landing it whole or not at all."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpustudy.archive.check import ArchivedStage, Contents, wrong
from gpustudy.archive.folder import Archive
from gpustudy.archive.history import add_events, event, remember_archive
from gpustudy.archive.manifest import total_bytes
from gpustudy.archive.names import StageFolder
from gpustudy.base.atomic import atomic_directory
from gpustudy.base.errors import UserError
from gpustudy.base.progress import Progress
from gpustudy.base.status import STATUS_FILE
from gpustudy.study.acceptances import Acceptances, write_acceptances
from gpustudy.study.aside import move_aside
from gpustudy.study.cells import Cell, Keys
from gpustudy.study.differences import TABLES_EDITED, differences
from gpustudy.study.load import Effective
from gpustudy.study.paths import ASIDE, CELLS, MARKERS, METRICS_FILE

NEW, SAME, DIFFERENT = "new", "already here", "differs from what is here"


@dataclass(frozen=True)
class Arrival:
    """One stage of an archive, as this study sees it.

    Attributes:
        stage: the stage.
        meaning: ``current``, ``accepted``, ``stale`` or ``unknown``.
        why: for a stale stage the first field that differs; for an unknown one what the study lacks.
        target: the folder that it goes to.
        presence: ``NEW``, ``SAME`` or ``DIFFERENT``: what stands at the target now.
    """

    stage: ArchivedStage
    meaning: str
    why: str
    target: Path
    presence: str

    def __str__(self) -> str:
        """Return a line for a person."""
        why = f" ({self.why})" if self.why else ""
        return f"{self.stage.folder}: {self.meaning}{why}, {self.presence}"


def arrivals(effective: Effective, contents: Contents) -> list[Arrival]:
    """Say for every stage of a checked archive what it means to this study and what importing it would do."""
    accepted = contents.acceptances
    present = Keys(effective).acceptances
    # A record holds only beside its old result, which is not here yet: take its word for what would be here.
    promised = {(record.gpu, record.config, record.repeat, record.stage, record.old) for record in accepted}
    keys = _ArrivingKeys(effective, promised, present.with_more(accepted))
    return [_arrival(effective, keys, contents, stage) for stage in contents.stages]


class _ArrivingKeys(Keys):
    """Keys as they will be once an archive's accepted results are here."""

    def __init__(self, effective: Effective, promised: set[tuple[Any, ...]], acceptances: Acceptances) -> None:
        super().__init__(effective, acceptances=acceptances)
        self._promised = promised

    def _is_here(self, cell: Cell, stage: str, key: str) -> bool:
        return (cell.gpu, cell.config, cell.repeat, stage, key) in self._promised or super()._is_here(cell, stage, key)


def _arrival(effective: Effective, keys: Keys, contents: Contents, stage: ArchivedStage) -> Arrival:
    folder = stage.folder
    meaning, why = _meaning(keys, stage)
    results = effective.results
    if meaning == "unknown":
        results = results / ASIDE / f"import-{contents.manifest.identity}"
    target = results / folder.path
    return Arrival(stage, meaning, why, target, _presence(contents, stage, target))


def _meaning(keys: Keys, stage: ArchivedStage) -> tuple[str, str]:
    folder = stage.folder
    cell = Cell(folder.gpu, folder.config, folder.repeat)
    try:
        keys.require(cell, folder.stage)
    except UserError as error:
        return "unknown", str(error)
    key = keys.stage_key(cell, folder.stage)
    if stage.cell_file["key"] != key:
        found = differences(stage.cell_file, keys.cell_file(cell, folder.stage))
        return "stale", str(found[0]) if found else "its key differs"
    if folder.room != CELLS:
        made_from = stage.last["raw"]["status_sha256"]
        current = {keys.metrics_key(key, folder.stage), keys.metrics_key(key, folder.stage, made_from)}
        plain = keys.metrics_key(key, folder.stage)
        records = keys.acceptances.of(folder.gpu, folder.config, folder.repeat, folder.stage, plain, tables=True)
        if folder.key in {record.old for record in records}:
            return "accepted", ""
        if folder.key not in current:
            return "stale", str(TABLES_EDITED)
    return ("accepted" if keys.acceptance(cell, folder.stage) else "current"), ""


def _presence(contents: Contents, stage: ArchivedStage, target: Path) -> str:
    """Compare a stage with what stands at its target: raw files by their status file, tables by what they are of."""
    last = STATUS_FILE if stage.folder.room == CELLS else METRICS_FILE
    try:
        here = (target / last).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return DIFFERENT if target.exists() else NEW
    if hashlib.sha256(here).hexdigest() == contents.manifest.members[stage.files[last]].sha256:
        return SAME
    if last == METRICS_FILE and _made_from(here) == stage.last["raw"]["status_sha256"]:
        return SAME
    return DIFFERENT


def _made_from(metrics: bytes) -> str | None:
    try:
        return str(json.loads(metrics)["raw"]["status_sha256"])
    except (ValueError, KeyError, TypeError):
        return None


def land(
    effective: Effective, archive: Archive, contents: Contents, found: Iterable[Arrival], *, replace: bool
) -> list[Arrival]:
    """Write every stage that is not here yet, one whole folder at a time, raw files of a cell before its tables.

    What differs is replaced only with ``replace``, and is set aside, not deleted. Records of accepted results and
    both sides' histories are merged.

    Returns:
        What was written.

    Raises:
        UserError: a stage differs and ``replace`` is not given, or the disk has too little room: nothing is written.
    """
    planned = [arrival for arrival in found if arrival.presence != SAME]
    different = [arrival for arrival in planned if arrival.presence == DIFFERENT]
    if different and not replace:
        raise UserError(
            f"{archive.name}: {len(different)} of its stages are here with another content, the first is "
            f"{different[0].target}: nothing was imported; --replace sets those aside and takes the archive's."
        )
    _require_room(effective.results, archive, contents, planned)
    stamp = time.strftime("%Y%m%dT%H%M%S")
    progress = Progress(f"import {archive.name}", len(planned), "folder")
    for done, arrival in enumerate(planned, start=1):
        _land_one(effective.results, archive, contents, arrival, stamp)
        progress.step(done, str(arrival.stage.folder))
    _merge_records(effective, archive.name, contents, planned, different)
    return planned


def _land_one(results: Path, archive: Archive, contents: Contents, arrival: Arrival, stamp: str) -> None:
    with atomic_directory(arrival.target) as directory:
        for name, member in arrival.stage.files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            digest = hashlib.sha256()
            with path.open("xb") as stream:
                for block in archive.blocks(member):
                    digest.update(block)
                    stream.write(block)
            if digest.hexdigest() != contents.manifest.members[member].sha256:
                raise wrong(archive, member, "changed while it was imported")
        if arrival.presence == DIFFERENT:
            move_aside(results, arrival.target, stamp)


def _require_room(results: Path, archive: Archive, contents: Contents, planned: Iterable[Arrival]) -> None:
    members = contents.manifest.members
    needed = total_bytes(members[name] for arrival in planned for name in arrival.stage.files.values())
    place = next(path for path in (results, *results.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise UserError(
            f"{archive.name} needs {needed} bytes in {results}/, and {free} are free: "
            "make room ('gpustudy gc' lists old results) and import again."
        )


def _merge_records(
    effective: Effective, name: str, contents: Contents, landed: list[Arrival], different: list[Arrival]
) -> None:
    results, identity = effective.results, contents.manifest.identity
    present = Keys(effective).acceptances
    merged = present.with_more(contents.acceptances)
    if merged != present:
        write_acceptances(results, merged)
    replaced = [arrival.stage.folder.path for arrival in different]
    own = event("import", identity, name, effective.site, len(landed), replaced)
    add_events(results, [*contents.history, own])
    remember_archive(results, identity, name, (stage.folder.path for stage in contents.stages))
    if different:
        # Their keys say nothing of a content that was replaced: let every figure be drawn anew.
        shutil.rmtree(results / MARKERS, ignore_errors=True)


def foreign_only(keys: Keys, planned: Iterable[StageFolder]) -> bool:
    """Tell whether no stage is one that this site itself can run, and so may be writing now."""
    return all(folder.gpu not in keys.runnable for folder in planned)
