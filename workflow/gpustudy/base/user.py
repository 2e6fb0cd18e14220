"""The name of whoever calls, for records and messages."""

from __future__ import annotations

import getpass
import os


def user_name() -> str:
    """Return the user's name, or the number where no name is known, as in a container without a passwd entry."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError from Python 3.13 on
        return str(os.getuid())
