"""Replacing one's own files and no others: a mistyped ``-o`` must not cost a user a file."""

from __future__ import annotations

from pathlib import Path

from gpustudy.base.errors import UserError

_LOOKED_AT_BYTES = 4096
"""How far into a file the sign is looked for; it stands in the first lines."""


def require_own(path: Path, kind: str, sign: str, suffixes: tuple[str, ...]) -> None:
    """Refuse to write ``path`` where it is no file of this kind, by its name or by what stands there.

    Args:
        path: the file to be written.
        kind: what it is, such as ``report``.
        sign: text that stands within the first lines of every file of this kind.
        suffixes: endings that such a file may have, the usual one first.

    Raises:
        UserError: another ending, a folder, or a file that is there and lacks the sign.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a file in it, such as {path / f'{kind}{suffixes[0]}'}.")
    if path.suffix.lower() not in suffixes:
        raise UserError(f"{path} does not end in {suffixes[0]}: write {path.with_suffix(suffixes[0])}.")
    if path.is_file() and path.stat().st_size:
        with path.open("rb") as stream:
            if sign.encode() not in stream.read(_LOOKED_AT_BYTES):
                raise UserError(f"{path} is there already and is no {kind}: name another file, or remove it first.")


def require_own_folder(path: Path, kind: str, names: tuple[str, ...]) -> None:
    """Refuse to replace the folder ``path`` where it holds something, but nothing of this kind.

    Args:
        path: the folder to be written; what stands there would be replaced as a whole.
        kind: what it is, such as ``folder of tables``.
        names: files of which every such folder holds at least one.

    Raises:
        UserError: a file, or a folder that holds none of ``names``.
    """
    if path.is_dir():
        held = {entry.name for entry in path.iterdir()}
        if not held or not held.isdisjoint(names):
            return
        raise UserError(f"{path} is there already and is no {kind}: name another folder, or remove it first.")
    if path.exists():
        raise UserError(f"{path} is a file: name a folder.")
