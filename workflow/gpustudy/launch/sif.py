"""Reading the head of an Apptainer image (.sif): is it whole, and which recipe was it built from.

A login node often has no container runtime, and a copy over the network may end early: both are looked at here in
a few kilobytes, without any runtime. Form of the file: Singularity Image Format, global header and descriptors.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from gpustudy.base.errors import UserError

_MAGIC = b"SIF_MAGIC"
_HEADER_BYTES = 128
_MAGIC_AT = 32
_TABLE = struct.Struct("<2q")
_TABLE_AT = 88
"""Where the header holds the number of descriptors and the offset of the first."""
_DESCRIPTOR = struct.Struct("<i?12x2q")
"""Data type, used; numbers of id, group and link; offset and size of the data. Times, owner and name follow."""
_DESCRIPTOR_BYTES = 585
_MOST_DESCRIPTORS = 1024
"""Apptainer makes 48; a larger number is damage."""
_RECIPE_TYPE = 0x4001
_MOST_RECIPE_BYTES = 1 << 20


@dataclass(frozen=True)
class SifHead:
    """What the head of an image says.

    Attributes:
        bytes_needed: size that the file must have at least.
        recipe: text of the recipe that it was built from; empty where the image carries none.
    """

    bytes_needed: int
    recipe: str

    def label(self, name: str) -> str | None:
        """Return the value of a label that the recipe sets, or None."""
        for line in self.recipe.splitlines():
            words = line.split(maxsplit=1)
            if len(words) == 2 and words[0] == name:
                return words[1].strip()
        return None


def read_sif(path: Path) -> SifHead:
    """Read the head of an image and check that the file is as long as it says.

    Raises:
        UserError: the file cannot be read, is no image, or is cut off.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            header = stream.read(_HEADER_BYTES)
            if len(header) < _HEADER_BYTES or not header[_MAGIC_AT:].startswith(_MAGIC):
                raise UserError(f"{path} is no Apptainer image (.sif): build it anew, or copy it again.")
            total, offset = _TABLE.unpack_from(header, _TABLE_AT)
            if not 0 < total <= _MOST_DESCRIPTORS or not 0 < offset < size:
                raise UserError(f"{path} is damaged (its table of contents is): build it anew, or copy it again.")
            stream.seek(offset)
            table = stream.read(total * _DESCRIPTOR_BYTES)
            needed, place = offset + total * _DESCRIPTOR_BYTES, None
            for start in range(0, len(table) - _DESCRIPTOR_BYTES + 1, _DESCRIPTOR_BYTES):
                kind, used, data, length = _DESCRIPTOR.unpack_from(table, start)
                if used:
                    needed = max(needed, data + length)
                    place = (data, length) if kind == _RECIPE_TYPE else place
            if size < needed:
                raise UserError(
                    f"{path} is cut off ({size} of at least {needed} bytes): build it anew, or copy it again."
                )
            recipe = b""
            if place is not None and 0 <= place[1] <= _MOST_RECIPE_BYTES:
                stream.seek(place[0])
                recipe = stream.read(place[1])
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): build it anew, or copy it again.") from error
    return SifHead(needed, recipe.decode(errors="replace"))
