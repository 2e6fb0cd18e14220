"""Writing an archive: every current stage that was asked for, stored as it is, each file read once."""

from __future__ import annotations

import hashlib
import json
import stat
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gpustudy import __version__
from gpustudy.archive.check import CELL_FILE
from gpustudy.archive.crate import crate_json
from gpustudy.archive.history import add_events, event, history_text, read_history, remember_archive
from gpustudy.archive.manifest import Manifest, Member, total_bytes
from gpustudy.archive.names import (
    ACCEPTED,
    CONFIG,
    CRATE,
    HISTORY,
    LICENCE,
    MANIFEST,
    check_names,
    stage_folders,
)
from gpustudy.archive.zipped import BLOCK_BYTES
from gpustudy.base.atomic import atomic_path
from gpustudy.base.errors import UserError
from gpustudy.base.progress import Progress
from gpustudy.base.status import STATUS_FILE, read_status
from gpustudy.study.cells import Cell, Keys
from gpustudy.study.load import ROOT
from gpustudy.study.paths import METRICS_FILE
from gpustudy.study.render import render
from gpustudy.study.states import DAMAGED, CellState, StageState, Survey

LICENCE_NAME = "Apache-2.0"
"""Licence of an export where none is named: that of the project."""
_FILE_MODE = (stat.S_IFREG | 0o644) << 16
"""Unix mode of every member, in the upper half of a ZIP entry's attributes."""
_PROVENANCE = "provenance.json"
_CRAFTED = "crafted"
"""Origin that provenance gives to results that nobody measured: an archive of them says so."""


_MEND_RAW = "set the stage aside with 'gpustudy retry', or restore the file"
_MEND_TABLES = "remove its folder and run again, or import its archive again"


@dataclass(frozen=True)
class Source:
    """A file to export: where it lies, the SHA-256 that its stage gave it (None: unknown), what to do if it differs."""

    path: Path
    sha256: str | None = None
    mend: str = _MEND_RAW


@dataclass(frozen=True)
class Exported:
    """What an export wrote.

    Attributes:
        archive: identity of the archive.
        cells: how many cells it holds something of.
        stages: how many stage folders it holds.
        size: bytes of its files.
        crafted: the cells that nobody measured.
        unnoted: why no record of the archive was kept here; empty where one was.
        left_out: ``GPU/CONFIG/rN/STAGE`` of every damaged stage that stayed behind -> why.
    """

    archive: str
    cells: int
    stages: int
    size: int
    crafted: tuple[str, ...] = ()
    unnoted: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)


def export_archive(
    seen: Survey, keys: Keys, file: Path, cells: list[CellState], *, with_raw: bool, licence: str = LICENCE_NAME
) -> Exported:
    """Write the current results of ``cells`` to a new archive.

    Args:
        seen: the survey of the present state.
        keys: the keys behind it.
        file: the archive to write; it appears whole or not at all.
        cells: the cells to export; results of old keys stay behind.
        with_raw: raw files and tables; else tables alone, each with its cell file and provenance.
        licence: SPDX name of the licence that the results are given under.

    Raises:
        UserError: the file exists, nothing is there to export, a file is not what its stage wrote, or the history
            here cannot be read.
    """
    if file.exists():
        raise UserError(f"{file} exists: name another file, or remove it first.")
    history = read_history(seen.results)
    sources = dict(_sources(seen, keys, cells, with_raw))
    generated = {
        name: content
        for state in cells
        for stage in state.stages
        for name, content in _generated(seen, keys, state.cell, stage, sources)
    }
    left_out = _damaged(cells)
    if not sources:
        why = "".join(f" {stage} is damaged: {reason}" for stage, reason in list(left_out.items())[:1])
        raise UserError(f"nothing to export to {file}: none of these cells has a current result here.{why}")
    check_names([*sources, *generated], str(file))
    folders = stage_folders([*sources, *generated], str(file))
    progress = Progress(f"export {file}", len(sources), "file")
    with atomic_path(file) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as stored:
        writer = _Writer(stored)
        for done, (name, source) in enumerate(sorted(sources.items()), start=1):
            writer.add_file(name, source)
            progress.step(done)
        for name, content in generated.items():
            writer.add_bytes(name, content)
        manifest = Manifest(writer.members, _about(seen.site, licence, with_raw) | _origin(cells))
        own = event("export", manifest.identity, file, seen.site, len(folders), [])
        for name, content in _top_members(seen, cells, [*history, own]).items():
            writer.add_bytes(name, content)
        writer.add_bytes(CRATE, crate_json(manifest.about, folders, writer.members))
        text = json.dumps(manifest.as_json(), indent=1, sort_keys=True, ensure_ascii=False)
        writer.add_bytes(MANIFEST, text.encode())
    unnoted = ""
    try:
        add_events(seen.results, [own])
        remember_archive(seen.results, manifest.identity, file, (folder.path for folder in folders))
    except OSError as error:  # the archive is written and whole: results that may only be read are no hindrance
        unnoted = f"{error.filename or seen.results}: {error.strerror or error}"
    places = {(folder.gpu, folder.config, folder.repeat) for folder in folders}
    size = total_bytes(manifest.members.values())
    return Exported(manifest.identity, len(places), len(folders), size, manifest.crafted, unnoted, left_out)


def _damaged(cells: list[CellState]) -> dict[str, str]:
    """Return ``GPU/CONFIG/rN/STAGE`` of every stage that cannot be read -> why."""
    stages = ((state.cell, stage) for state in cells for stage in state.stages)
    return {f"{cell}/{stage.stage}": stage.reason for cell, stage in stages if stage.state == DAMAGED}


def _top_members(seen: Survey, cells: list[CellState], history: list[dict[str, Any]]) -> dict[str, bytes]:
    """Return what an archive holds beside results: the config, the licence, accepted results and the history."""
    records = [stage.acceptance for state in cells for stage in state.stages if stage.acceptance]
    licence = ROOT / LICENCE
    return {
        CONFIG: render(seen.study).encode(),
        **({LICENCE: licence.read_bytes()} if licence.is_file() else {}),
        ACCEPTED: "".join(f"{json.dumps(record.as_json(), sort_keys=True)}\n" for record in records).encode(),
        HISTORY: history_text(history).encode(),
    }


def _about(site: str, licence: str, with_raw: bool) -> dict[str, Any]:
    return {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "gpustudy": __version__,
        "site": site,
        "with": "raw" if with_raw else "metrics",
        "licence": licence,
        "licence_url": f"https://spdx.org/licenses/{licence}",
    }


def _origin(cells: list[CellState]) -> dict[str, Any]:
    """Return the mark of an archive that holds crafted results, which its importer is told; empty for measured ones."""
    stages = ((state.cell, stage) for state in cells for stage in state.stages if stage.state != DAMAGED)
    made_up = sorted({str(cell) for cell, stage in stages if _is_crafted(stage)})
    return {"origin": _CRAFTED, "crafted_cells": made_up} if made_up else {}


def _is_crafted(stage: StageState) -> bool:
    if stage.metrics is not None:
        content = json.loads((stage.metrics / METRICS_FILE).read_bytes())
        if (content.get("provenance") or {}).get("origin") == _CRAFTED:
            return True
    path = stage.raw / _PROVENANCE if stage.raw else None
    return path is not None and path.is_file() and json.loads(path.read_bytes()).get("origin") == _CRAFTED


def _sources(seen: Survey, keys: Keys, cells: list[CellState], with_raw: bool) -> Iterator[tuple[str, Source]]:
    """Yield member -> file of every current stage of ``cells``."""
    for state in cells:
        for stage in state.stages:
            if stage.state == DAMAGED:
                continue
            if with_raw and stage.raw:
                yield from _raw_sources(stage.raw, _member_folder(seen, stage.raw))
            if stage.metrics:
                yield from _table_sources(stage, _member_folder(seen, stage.metrics))


def _member_folder(seen: Survey, folder: Path) -> str:
    return folder.relative_to(seen.results).as_posix()


def _raw_sources(raw: Path, member: str) -> Iterator[tuple[str, Source]]:
    """Yield what the status file lists, and that file itself."""
    for name, about in read_status(raw).files.items():
        yield f"{member}/{name}", Source(raw / name, about["sha256"])
    yield f"{member}/{STATUS_FILE}", Source(raw / STATUS_FILE)


def _table_sources(stage: StageState, member: str) -> Iterator[tuple[str, Source]]:
    """Yield the files of a folder of tables, and beside them what the raw files say of cell and provenance."""
    assert stage.metrics is not None
    content = json.loads((stage.metrics / METRICS_FILE).read_bytes())
    listed = content.get("tables", {}) | content.get("files", {})
    found = (path for path in stage.metrics.rglob("*") if path.is_file() and not path.name.startswith("."))
    for name in sorted({*listed, *(path.relative_to(stage.metrics).as_posix() for path in found)}):
        yield f"{member}/{name}", Source(stage.metrics / name, listed.get(name, {}).get("sha256"), _MEND_TABLES)
    for name in (CELL_FILE, _PROVENANCE):
        if stage.raw and (stage.raw / name).is_file() and not (stage.metrics / name).exists():
            yield f"{member}/{name}", Source(stage.raw / name)


def _generated(
    seen: Survey, keys: Keys, cell: Cell, stage: StageState, sources: Mapping[str, Source]
) -> Iterator[tuple[str, bytes]]:
    """Yield a cell file for tables that have none: made here, and their raw files were removed since."""
    if stage.metrics is None or f"{_member_folder(seen, stage.metrics)}/{CELL_FILE}" in sources:
        return
    if keys.document_key(cell, stage.stage) == stage.key:
        text = json.dumps(keys.cell_file(cell, stage.stage), indent=1, sort_keys=True, ensure_ascii=False)
        yield f"{_member_folder(seen, stage.metrics)}/{CELL_FILE}", f"{text}\n".encode()
    else:
        raise UserError(f"{stage.metrics} holds accepted tables without their {CELL_FILE}: leave {cell} out.")


class _Writer:
    """Stores members in an archive and keeps their sizes and sums."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self.members: dict[str, Member] = {}

    def add_bytes(self, name: str, content: bytes) -> None:
        """Store ``content``."""
        self._archive.writestr(_entry(name, 0), content)
        self.members[name] = Member(len(content), hashlib.sha256(content).hexdigest())

    def add_file(self, name: str, source: Source) -> None:
        """Store a file, compared on the way with the sum that its stage gave it."""
        if not source.path.is_file():
            raise UserError(f"{source.path} is missing: {source.mend}.")
        digest, size = hashlib.sha256(), 0
        entry = _entry(name, source.path.stat().st_size)
        with source.path.open("rb") as stream, self._archive.open(entry, "w") as target:
            while block := stream.read(BLOCK_BYTES):
                digest.update(block)
                target.write(block)
                size += len(block)
        if source.sha256 not in (None, digest.hexdigest()):
            raise UserError(f"{source.path} is not the file that its stage wrote (its SHA-256 differs): {source.mend}.")
        self.members[name] = Member(size, digest.hexdigest())


def _entry(name: str, size: int) -> zipfile.ZipInfo:
    """Return the header of a plain file; its size is given first, so that one above 4 GiB gets a ZIP64 field."""
    entry = zipfile.ZipInfo(name, date_time=time.gmtime()[:6])
    entry.external_attr = _FILE_MODE
    entry.file_size = size
    return entry
