"""Writers that leave the whole file or none: written beside its name, flushed, renamed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of writing that come without the name of the file."""


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success flush it and rename it to ``path``.

    The temporary file keeps the suffix of ``path`` (some writers choose the format by it). On an error it is
    removed and ``path`` stays as it was.

    Raises:
        OSError: with ``path`` as its file where there is no room for it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}.", suffix=f".part{path.suffix}")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _flush(temporary)
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        if error.filename is None and error.errno in _NO_ROOM:
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write ``content`` to ``path`` atomically, as UTF-8."""
    write_bytes(path, content.encode())


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` to ``path`` atomically, as indented JSON with sorted keys."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Yield a new directory beside ``path``; on success it takes the place of ``path`` in one rename.

    What stood at ``path`` before is removed only after the new directory is complete. On an error the new
    directory is removed and ``path`` stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _flush(file)
        temporary.chmod(0o777 & ~_umask())
        _take_place(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _take_place(new: Path, path: Path) -> None:
    """Rename ``new`` to ``path``; what stood there steps aside first and is then removed."""
    aside = new.with_name(new.name + ".old")
    if path.exists():
        path.rename(aside)
    try:
        new.rename(path)
    except OSError:
        if aside.exists():
            aside.rename(path)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _flush(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
