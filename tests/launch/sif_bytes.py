"""A file in Apptainer's image format (SIF), written from its description: header, descriptors, recipe, file system.

As a program: ``python -m tests.launch.sif_bytes RECIPE IMAGE``.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

DESCRIPTORS = 48
DESCRIPTOR_BYTES = 585
RECIPE, FILE_SYSTEM = 0x4001, 0x4004


def sif(recipe: str, content: bytes = b"hsqs" + bytes(5000)) -> bytes:
    """Return an image that carries ``recipe`` and a file system of ``content``."""
    start = 128 + DESCRIPTORS * DESCRIPTOR_BYTES
    text = recipe.encode()
    at = -(-(start + len(text)) // 4096) * 4096
    header = struct.pack(
        "<32s10s3s3s16s8q",
        b"#!/usr/bin/env run-singularity\n",
        b"SIF_MAGIC\0",
        b"01\0",
        b"02\0",
        bytes(16),
        *(0, 0, DESCRIPTORS - 2, DESCRIPTORS, 128, DESCRIPTORS * DESCRIPTOR_BYTES, start, at + len(content) - start),
    )
    table = _descriptor(RECIPE, start, len(text)) + _descriptor(FILE_SYSTEM, at, len(content))
    table += bytes((DESCRIPTORS - 2) * DESCRIPTOR_BYTES)
    return (header + table + text).ljust(at, b"\0") + content


def _descriptor(kind: int, offset: int, size: int) -> bytes:
    packed = struct.pack("<i?3I7q128s384s", kind, True, 1, 1, 0, offset, size, size, 0, 0, 0, 0, b"name", b"")
    assert len(packed) == DESCRIPTOR_BYTES
    return packed


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(sif(Path(sys.argv[1]).read_text()))
