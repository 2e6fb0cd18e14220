"""Digests of files and of sets of source files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

_BLOCK_BYTES = 1 << 20


def file_sha256(path: Path) -> str:
    """Return the SHA-256 (64 hex digits) of the bytes of ``path``."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def source_digest(root: Path, files: Iterable[str]) -> str:
    """Return the SHA-256 of the source files named relative to ``root``, in any order.

    Line ends are normalised, so that a checkout with CRLF has the same digest. The bytes are hashed as they
    are: ``ast`` and ``tokenize`` give other results on other Python versions.

    Raises:
        FileNotFoundError: a named file does not exist below ``root``.
    """
    digest = hashlib.sha256()
    for name in sorted(set(files)):
        content = (root / name).read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{name}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()
