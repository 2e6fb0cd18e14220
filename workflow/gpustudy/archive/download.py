"""Fetching an archive from a web address, whole, before it is looked at."""

from __future__ import annotations

import http.client
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpustudy.archive.zipped import BLOCK_BYTES
from gpustudy.base.errors import UserError

SCHEMES = ("https://", "http://")
_TIMEOUT_S = 60.0


@contextmanager
def local_archive(place: str) -> Iterator[Path]:
    """Yield the path of an archive: ``place`` itself, or a temporary file with what its address serves.

    Raises:
        UserError: the address cannot be read whole.
    """
    if not place.startswith(SCHEMES):
        yield Path(place)
        return
    with tempfile.TemporaryDirectory(prefix="gpustudy-") as folder:
        file = Path(folder) / (place.rstrip("/").rpartition("/")[2].partition("?")[0] or "archive.zip")
        _fetch(place, file)
        yield file


def _fetch(address: str, file: Path) -> None:
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as source, file.open("xb") as target:  # noqa: S310 (SCHEMES)
            said = source.headers.get("Content-Length")
            free = shutil.disk_usage(file.parent).free
            if said is not None and int(said) > free:
                raise UserError(f"{address} has {said} bytes, and {free} are free in {file.parent}: make room.")
            shutil.copyfileobj(source, target, BLOCK_BYTES)
            if said is not None and target.tell() != int(said):
                raise UserError(f"{address} ended after {target.tell()} of {said} bytes: try again.")
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        raise UserError(
            f"{address} cannot be fetched ({_why(error)}): download it yourself and name the file."
        ) from error


def _why(error: Exception) -> str:
    """Return what went wrong in the words of the system; the answer of a server carries its own."""
    reason = getattr(error, "reason", error)
    return reason.strerror if isinstance(reason, OSError) and reason.strerror else str(error)
