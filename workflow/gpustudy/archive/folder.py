"""Reading a plain folder as an archive: an unpacked one, or what a machine without this workflow left."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from gpustudy.archive.names import MANIFEST, MAX_DEPTH, MAX_MEMBERS
from gpustudy.archive.zipped import BLOCK_BYTES, ZipArchive
from gpustudy.base.errors import UserError


class FolderArchive:
    """The files of a folder, hidden ones left out. Use it as a context manager.

    Raises:
        UserError: a link, a device or another thing that is no plain file, or too many files.
    """

    is_exact = False

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._root = path
        self.sizes = dict(self._files("", str(path)))

    def __enter__(self) -> FolderArchive:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def blocks(self, member: str) -> Iterator[bytes]:
        """Yield the bytes of a member, a block at a time; a file that has grown since is cut at its size."""
        left = self.sizes[member]
        descriptor = os.open(self._root / member, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(descriptor, "rb") as stream:
            while left:
                block = stream.read(min(BLOCK_BYTES, left))
                if not block:
                    raise UserError(
                        f"{self._root / member} became shorter while it was read: nothing was taken from it."
                    )
                left -= len(block)
                yield block

    def _files(self, prefix: str, folder: str) -> Iterator[tuple[str, int]]:
        if prefix.count("/") > MAX_DEPTH:
            raise UserError(f"{folder} is nested too deep for an archive: nothing was taken from it.")
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    yield from self._files(f"{prefix}{entry.name}/", entry.path)
                    continue
                about = entry.stat(follow_symlinks=False)
                if not stat.S_ISREG(about.st_mode):
                    raise UserError(f"{entry.path} is a link or a device and no plain file: nothing was taken from it.")
                yield f"{prefix}{entry.name}", about.st_size


Archive = ZipArchive | FolderArchive
"""An archive of either form: ``name``, ``sizes`` and ``blocks``."""


def open_archive(path: Path) -> Archive:
    """Open an archive file, or a folder with a manifest.

    Raises:
        UserError: it is neither.
    """
    if not path.is_dir():
        return ZipArchive(path)
    if not (path / MANIFEST).is_file():
        raise UserError(f"{path} holds no {MANIFEST}: name an archive, or a folder with the manifest of its files.")
    found = FolderArchive(path)
    if len(found.sizes) > MAX_MEMBERS:
        raise UserError(f"{path} holds more than {MAX_MEMBERS} files: import it in parts.")
    return found
