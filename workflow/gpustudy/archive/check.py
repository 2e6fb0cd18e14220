"""Checking an archive before anything of it is used: every byte, and that each folder is what its name says."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpustudy.archive.folder import Archive
from gpustudy.archive.history import parse_history
from gpustudy.archive.manifest import Manifest, Member, read_bytes, read_json, read_manifest
from gpustudy.archive.names import ACCEPTED, HISTORY, StageFolder, stage_folders
from gpustudy.base.canonical import key_of
from gpustudy.base.errors import UserError
from gpustudy.base.progress import Progress
from gpustudy.base.status import STATUS_FILE
from gpustudy.study.acceptances import Acceptance, parse_acceptances
from gpustudy.study.paths import CELLS, METRICS_FILE

CELL_FILE = "cell.json"


@dataclass(frozen=True)
class ArchivedStage:
    """A stage's folder in an archive, checked.

    Attributes:
        folder: its place.
        files: name inside the folder -> member.
        cell_file: key, labels and the canonical document behind the key of the raw files.
        last: the file that is written last: status.json, or metrics.json of tables.
    """

    folder: StageFolder
    files: Mapping[str, str]
    cell_file: Mapping[str, Any]
    last: Mapping[str, Any]


@dataclass(frozen=True)
class Contents:
    """An archive whose every byte was checked.

    Attributes:
        manifest: its manifest.
        stages: its stages, raw files of each cell before its tables.
        acceptances: its records of accepted results; only those whose old result it also brings.
        history: where it says that its results came from.
    """

    manifest: Manifest
    stages: tuple[ArchivedStage, ...]
    acceptances: tuple[Acceptance, ...]
    history: tuple[dict[str, Any], ...]


def check_archive(archive: Archive) -> Contents:
    """Check a whole archive and return what it holds.

    Raises:
        UserError: naming the first member that is wrong.
    """
    manifest = read_manifest(archive)
    folders = stage_folders(manifest.members, archive.name)
    progress = Progress(f"check {archive.name}", len(manifest.members), "file")
    for done, (name, member) in enumerate(manifest.members.items(), start=1):
        check_member(archive, name, member)
        progress.step(done)
    stages = tuple(_stage(archive, manifest, folder, folders[folder]) for folder in sorted(folders))
    acceptances = parse_acceptances(_text(archive, manifest, ACCEPTED), f"{archive.name}: {ACCEPTED}")
    history = parse_history(_text(archive, manifest, HISTORY), f"{archive.name}: {HISTORY}")
    brought = {(*place(stage.folder), key) for stage in stages for key in (stage.folder.key, stage.cell_file["key"])}
    kept = tuple(
        record
        for record in acceptances
        if (record.gpu, record.config, record.repeat, record.stage, record.old) in brought
    )
    return Contents(manifest, stages, kept, tuple(history))


def place(folder: StageFolder) -> tuple[str, str, int, str]:
    """Return gpu, config, repeat and stage of a folder."""
    return folder.gpu, folder.config, folder.repeat, folder.stage


def _text(archive: Archive, manifest: Manifest, member: str) -> str:
    """Return a member that is text; none where the archive has no such member."""
    return read_bytes(archive, member).decode("utf-8", errors="replace") if member in manifest.members else ""


def check_member(archive: Archive, name: str, member: Member) -> None:
    """Compare a member's bytes with the manifest.

    Raises:
        UserError: they differ.
    """
    digest = hashlib.sha256()
    for block in archive.blocks(name):
        digest.update(block)
    if digest.hexdigest() != member.sha256:
        raise wrong(archive, name, "is not the file that the manifest describes (its SHA-256 differs)")


def _stage(archive: Archive, manifest: Manifest, folder: StageFolder, files: Mapping[str, str]) -> ArchivedStage:
    """Check that a folder holds the stage, the key and the document that its name says."""
    is_raw = folder.room == CELLS
    last_name = STATUS_FILE if is_raw else METRICS_FILE
    for needed in (CELL_FILE, last_name):
        if needed not in files:
            raise wrong(archive, folder.path, f"has no {needed}, so it is no complete stage")
    cell_file, last = (read_json(archive, files[name]) for name in (CELL_FILE, last_name))
    try:
        document, key = cell_file["document"], cell_file["key"]
        said = (document["gpu"]["name"], document["repeat"], document["stage"], key, last["stage"], last["key"])
        own_key = folder.key if is_raw else last["metrics_key"]
        if key_of(document) != key:
            raise wrong(archive, files[CELL_FILE], f"has key {key!r}, which is not the key of its document")
        if said != (folder.gpu, folder.repeat, folder.stage, key, folder.stage, key) or own_key != folder.key:
            raise wrong(archive, folder.path, "is named like another stage, cell or key than it holds")
        cell_file["labels"]["config"], last["state"], last["reason"]
        if is_raw:
            if key != folder.key:
                raise wrong(archive, folder.path, f"holds key {key!r}")
            _check_listed(archive, manifest, files, last["files"])
        else:
            last["raw"]["status_sha256"]
            _check_listed(archive, manifest, files, last["tables"] | last.get("files", {}))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise wrong(archive, folder.path, f"holds no readable cell ({type(error).__name__}: {error})") from error
    return ArchivedStage(folder, files, cell_file, last)


def _check_listed(
    archive: Archive, manifest: Manifest, files: Mapping[str, str], listed: Mapping[str, Mapping[str, Any]]
) -> None:
    """Check that every file which the stage itself lists is there with the sum that the stage gave it."""
    for name, about in listed.items():
        if name not in files or manifest.members[files[name]].sha256 != about["sha256"]:
            raise wrong(archive, files.get(name, name), "is missing, or is not the file that its stage wrote")


def wrong(archive: Archive, what: str, said: str) -> UserError:
    """Return the error for one wrong member or folder."""
    return UserError(f"{archive.name}: {what} {said}: nothing was taken from it; get the archive again.")
