"""What a member of an archive may be called, and how large an archive may be: everything else is refused."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpustudy.base.canonical import KEY_HEX_DIGITS
from gpustudy.base.errors import UserError
from gpustudy.study.cells import PREVIOUS
from gpustudy.study.paths import CELLS, METRICS

MANIFEST = "manifest.json"
CRATE = "ro-crate-metadata.json"
CONFIG = "config.yaml"
LICENCE = "LICENSE"
ACCEPTED = "accepted.jsonl"
HISTORY = "history.jsonl"
TOP_MEMBERS = (MANIFEST, CRATE, CONFIG, LICENCE, ACCEPTED, HISTORY)
"""Members that are no results; every other member belongs to a stage of a cell."""

MAX_MEMBERS = 600_000
"""Members of an archive: 10,000 cells of four stages with fifteen files each."""
MAX_MANIFEST_BYTES = 160 * 2**20
"""Size of manifest.json: 600,000 members of about 200 bytes each, with room to spare."""
MAX_DOCUMENT_BYTES = 16 * 2**20
"""Size of every other member that is read into memory: JSON files, the config, the history."""
MAX_NAME_CHARACTERS = 240
MAX_DEPTH = 10
"""Folders and file of a member's name."""

_PART = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
_STAGE = re.compile(
    rf"(?P<room>{CELLS}|{METRICS})/(?P<gpu>[a-z][a-z0-9_]*)/(?P<config>[a-z][a-z0-9_]*)/r(?P<repeat>[1-9]\d{{0,5}})/"
    rf"(?P<stage>{'|'.join(PREVIOUS)})-(?P<key>[0-9a-f]{{{KEY_HEX_DIGITS}}})/(?P<file>.+)"
)


@dataclass(frozen=True, order=True)
class StageFolder:
    """A stage's folder in an archive: ``{room}/{gpu}/{config}/r{repeat}/{stage}-{key}``."""

    gpu: str
    config: str
    repeat: int
    room: str
    stage: str
    key: str

    @property
    def path(self) -> str:
        """The folder's name, in an archive and in results."""
        return f"{self.room}/{self.gpu}/{self.config}/r{self.repeat}/{self.stage}-{self.key}"

    def __str__(self) -> str:
        """Return ``GPU/CONFIG/rN STAGE``, with ``tables`` where the folder holds tables."""
        return f"{self.gpu}/{self.config}/r{self.repeat} {self.stage}{' tables' if self.room == METRICS else ''}"


def check_names(names: Iterable[str], archive: str) -> None:
    """Refuse names that could leave the results folder, or that another system reads as one name.

    A name is ASCII letters, digits and ``_.+-`` between single slashes, and no part begins with a dot or a dash: so
    there is no absolute path, no ``..``, no hidden file, no other form of the same text. Names that differ only in
    case are refused, since they are one file on some disks; so is a name that is another one's folder.

    Raises:
        UserError: the first name that is not allowed.
    """
    seen: dict[str, str] = {}
    for name in names:
        if not _NAME.fullmatch(name) or len(name) > MAX_NAME_CHARACTERS or name.count("/") >= MAX_DEPTH:
            raise UserError(
                f"{archive}: member {_shown(name)} has a name that is not allowed: nothing was taken from it."
            )
        if (folded := name.casefold()) in seen:
            raise UserError(f"{archive}: member {_shown(name)} is there twice: nothing was taken from it.")
        seen[folded] = name
    for folder in _folders(seen):
        if folder in seen:
            raise UserError(f"{archive}: {_shown(seen[folder])} is a file and a folder: nothing was taken from it.")
    if len(seen) > MAX_MEMBERS:
        raise UserError(f"{archive} has more than {MAX_MEMBERS} members: export it in parts.")


def _folders(names: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for name in names:
        folder = name.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return found


def stage_folders(names: Iterable[str], archive: str) -> dict[StageFolder, dict[str, str]]:
    """Group members by stage: folder -> name inside the folder -> member.

    Raises:
        UserError: a member that is neither a stage's nor one of ``TOP_MEMBERS``.
    """
    found: dict[StageFolder, dict[str, str]] = {}
    for name in names:
        if name in TOP_MEMBERS:
            continue
        match = _STAGE.fullmatch(name)
        if not match:
            raise UserError(f"{archive}: member {_shown(name)} is no file of a cell: nothing was taken from it.")
        place = StageFolder(
            match["gpu"], match["config"], int(match["repeat"]), match["room"], match["stage"], match["key"]
        )
        found.setdefault(place, {})[match["file"]] = name
    return found


def _shown(name: str) -> str:
    """Return a hostile name as harmless, short text."""
    text = ascii(name)
    return text if len(text) <= MAX_NAME_CHARACTERS else f"{text[:MAX_NAME_CHARACTERS]}..."
