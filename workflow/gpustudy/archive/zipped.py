"""Reading an archive file: a ZIP whose members are stored as they are, so that nothing can unpack to more.

Python's ``zipfile`` builds an object per entry before anything can be checked, and takes compressed, encrypted and
overlapping entries. This reader walks the central directory with limits (APPNOTE.TXT 6.3.10, sections 4.3.7,
4.3.12, 4.3.14 to 4.3.16, 4.5.3) and takes only what ``export`` writes: stored, plain files, none over another.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gpustudy.archive.names import MAX_MEMBERS, MAX_NAME_CHARACTERS
from gpustudy.base.errors import UserError

BLOCK_BYTES = 1 << 20

_END = struct.Struct("<4s4H2LH")
_END_SIGNATURE = b"PK\x05\x06"
_END_64_LOCATOR = struct.Struct("<4sLQL")
_END_64_LOCATOR_SIGNATURE = b"PK\x06\x07"
_END_64 = struct.Struct("<4sQ2H2L4Q")
_END_64_SIGNATURE = b"PK\x06\x06"
_CENTRAL = struct.Struct("<4s4B4HL2L5H2L")
_CENTRAL_SIGNATURE = b"PK\x01\x02"
_LOCAL = struct.Struct("<4s5H3L2H")
_LOCAL_SIGNATURE = b"PK\x03\x04"
_EXTRA_FIELD = struct.Struct("<2H")
_ZIP64_FIELD = 1
_MAX_COMMENT_BYTES = 0xFFFF
_IN_ZIP64_32 = 0xFFFFFFFF
"""Value of a 32-bit field whose real value stands in the ZIP64 field."""
_IN_ZIP64_16 = 0xFFFF
_ENCRYPTED = 0x1
_UNIX = 3
"""Number of the system whose file modes an entry may carry."""
_EXTRA_BYTES = 64
"""Room for the ZIP64 field of an entry, beside its header and name."""


@dataclass(frozen=True)
class _Entry:
    """A member: where its local header begins, and its size."""

    name: bytes
    offset: int
    size: int


class ZipArchive:
    """The members of an archive file. Use it as a context manager.

    ``is_exact``: a member that the manifest does not name is refused.

    Raises:
        UserError: the file is no ZIP, is truncated, or holds what an archive never does.
    """

    is_exact = True

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        try:
            self._stream: BinaryIO = path.open("rb")
        except OSError as error:
            raise UserError(f"{path} cannot be read ({error.strerror}): name an archive or a folder.") from error
        try:
            self._size = os.fstat(self._stream.fileno()).st_size
            self._entries = {entry.name.decode("ascii"): entry for entry in self._directory()}
        except BaseException:
            self._stream.close()
            raise

    def __enter__(self) -> ZipArchive:
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()

    @property
    def sizes(self) -> dict[str, int]:
        """Member -> size in bytes."""
        return {name: entry.size for name, entry in self._entries.items()}

    def blocks(self, member: str) -> Iterator[bytes]:
        """Yield the bytes of a member, a block at a time."""
        entry = self._entries[member]
        self._stream.seek(self._start(entry))
        left = entry.size
        while left:
            block = self._stream.read(min(BLOCK_BYTES, left))
            if not block:
                raise self._broken("is truncated")
            left -= len(block)
            yield block

    def _start(self, entry: _Entry) -> int:
        """Return where the bytes of a member begin, after its local header, which must name the same member."""
        self._stream.seek(entry.offset)
        header = self._stream.read(_LOCAL.size)
        if len(header) < _LOCAL.size or header[:4] != _LOCAL_SIGNATURE:
            raise self._broken("has a damaged member")
        *_, name_bytes, extra_bytes = _LOCAL.unpack(header)
        if self._stream.read(name_bytes) != entry.name or extra_bytes > _EXTRA_BYTES:
            raise self._broken("has a member under two names")
        start: int = entry.offset + _LOCAL.size + name_bytes + extra_bytes
        return start

    def _directory(self) -> Iterator[_Entry]:
        """Walk the central directory; yield every entry once all are known to be plain, apart and inside the file."""
        start, length, count = self._end_of_directory()
        self._stream.seek(start)
        central = self._stream.read(length)
        if len(central) != length:
            raise self._broken("is truncated")
        entries = list(self._walk(central, count))
        if len({entry.name for entry in entries}) < len(entries):
            raise self._broken("has a member twice")
        end = 0
        for entry in sorted(entries, key=lambda entry: entry.offset):
            if entry.offset < end:
                raise self._broken("has members that overlap")
            end = entry.offset + _LOCAL.size + len(entry.name) + entry.size
        if end > start:
            raise self._broken("has members beyond its end")
        yield from entries

    def _walk(self, central: bytes, count: int) -> Iterator[_Entry]:
        position = 0
        for _ in range(count):
            if central[position : position + 4] != _CENTRAL_SIGNATURE or len(central) - position < _CENTRAL.size:
                raise self._broken("has a damaged directory")
            fields = _CENTRAL.unpack_from(central, position)
            position += _CENTRAL.size
            name_bytes, extra_bytes, comment_bytes = fields[12:15]
            name = central[position : position + name_bytes]
            extra = central[position + name_bytes : position + name_bytes + extra_bytes]
            position += name_bytes + extra_bytes + comment_bytes
            yield self._entry(fields, name, extra)
        if position != len(central):
            raise self._broken("has a directory of another length than it says")

    def _entry(self, fields: tuple[int, ...], name: bytes, extra: bytes) -> _Entry:
        _, _, system, _, _, flags, method, _, _, _, stored, size, _, _, _, _, _, attributes, offset = fields
        if not name.isascii() or len(name) > MAX_NAME_CHARACTERS:
            raise self._broken("has a member whose name is not allowed")
        shown = ascii(name.decode("ascii"))
        if flags & _ENCRYPTED or method != 0:
            raise self._broken(f"has member {shown} compressed or encrypted: archives only store")
        mode = attributes >> 16 if system == _UNIX else 0
        if name.endswith(b"/") or (stat.S_IFMT(mode) not in (0, stat.S_IFREG)):
            raise self._broken(f"has member {shown}, which is a folder, link or device and no plain file")
        stored, size, offset = self._wide((stored, size, offset), extra)
        if stored != size:
            raise self._broken(f"has member {shown} with two sizes")
        return _Entry(name, offset, size)

    def _wide(self, narrow: tuple[int, int, int], extra: bytes) -> tuple[int, int, int]:
        """Take from the ZIP64 field, in order size, stored size, offset, what the 32-bit fields leave out."""
        stored, size, offset = narrow
        if _IN_ZIP64_32 not in narrow:
            return narrow
        position = 0
        while len(extra) - position >= _EXTRA_FIELD.size:
            kind, length = _EXTRA_FIELD.unpack_from(extra, position)
            position += _EXTRA_FIELD.size
            if kind == _ZIP64_FIELD:
                values = iter(struct.unpack(f"<{length // 8}Q", extra[position : position + length // 8 * 8]))
                try:
                    size = next(values) if size == _IN_ZIP64_32 else size
                    stored = next(values) if stored == _IN_ZIP64_32 else stored
                    offset = next(values) if offset == _IN_ZIP64_32 else offset
                except StopIteration:
                    break
                return stored, size, offset
            position += length
        raise self._broken("has a member without its size")

    def _end_of_directory(self) -> tuple[int, int, int]:
        """Return start and length in bytes of the central directory, and its number of entries."""
        tail_bytes = min(self._size, _END.size + _MAX_COMMENT_BYTES)
        self._stream.seek(self._size - tail_bytes)
        tail = self._stream.read(tail_bytes)
        found = tail.rfind(_END_SIGNATURE)
        if found < 0 or len(tail) - found < _END.size:
            raise self._broken("is no archive, or is truncated")
        _, disk, start_disk, _, count, length, start, _ = _END.unpack_from(tail, found)
        position = self._size - tail_bytes + found
        if _IN_ZIP64_32 in (length, start) or count == _IN_ZIP64_16:
            start, length, count, position = self._end_of_directory_64(position)
        ends_the_file = found + _END.size == len(tail)
        if (disk, start_disk) != (0, 0) or start + length != position or not ends_the_file:
            raise self._broken("is truncated, or has bytes before or after it")
        if count > MAX_MEMBERS:
            raise self._broken(f"has {count} members, more than the {MAX_MEMBERS} that are allowed")
        if length > count * (_CENTRAL.size + MAX_NAME_CHARACTERS + _EXTRA_BYTES):
            raise self._broken("has a directory of another length than it says")
        return start, length, count

    def _end_of_directory_64(self, end: int) -> tuple[int, int, int, int]:
        self._stream.seek(max(0, end - _END_64_LOCATOR.size))
        locator = self._stream.read(_END_64_LOCATOR.size)
        if len(locator) < _END_64_LOCATOR.size or locator[:4] != _END_64_LOCATOR_SIGNATURE:
            raise self._broken("has a damaged end")
        position = _END_64_LOCATOR.unpack(locator)[2]
        self._stream.seek(min(position, self._size))
        record = self._stream.read(_END_64.size)
        if len(record) < _END_64.size or record[:4] != _END_64_SIGNATURE:
            raise self._broken("has a damaged end")
        count, length, start = _END_64.unpack(record)[7:10]
        return start, length, count, position

    def _broken(self, what: str) -> UserError:
        return UserError(f"{self.name} {what}: nothing was taken from it; get the file again.")
