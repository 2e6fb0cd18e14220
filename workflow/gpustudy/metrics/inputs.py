"""What every reader of foreign files asks first: is this a file whose content stays what it is?"""

from __future__ import annotations

from pathlib import Path

from gpustudy.base.errors import UserError


def refuse_streams(path: Path) -> None:
    """Refuse a pipe or a device: files are read more than once here, and a pipe may never end.

    Raises:
        UserError: ``path`` is there and is neither a file nor a directory.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UserError(f"{path} is a pipe or a device: write what it gives into a file and give that.")
