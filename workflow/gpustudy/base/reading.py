"""Reading what a user named: a path that is missing, of the wrong kind or no text is told in one sentence."""

from __future__ import annotations

from pathlib import Path

from gpustudy.base.errors import UserError


def read_text(path: Path, instead: str) -> str:
    """Return the text of a file.

    Args:
        path: the file, as a person or a config named it.
        instead: what to do where it cannot be had, such as ``name another file``.

    Raises:
        UserError: there is no such file, it is a folder, it may not be read, or it is no UTF-8 text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist: {instead}.") from error
    except IsADirectoryError as error:
        raise UserError(f"{path} is a folder, not a file: {instead}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text: {instead}.") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): {instead}.") from error


def require_folder(path: Path, instead: str, holding: str = "") -> None:
    """Refuse a path that is no folder, or a folder that lacks a file.

    Args:
        path: the folder, as a person or a config named it.
        instead: what to do where it is none, such as ``name the folder of a run``.
        holding: name of a file by which such a folder is known; empty for any folder.

    Raises:
        UserError: there is no such folder, it is a file, or it lacks ``holding``.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist: {instead}.")
    if not path.is_dir():
        raise UserError(f"{path} is a file, not a folder: {instead}.")
    if holding and not (path / holding).is_file():
        raise UserError(f"{path} holds no {holding}: {instead}.")
