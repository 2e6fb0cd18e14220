"""The protobuf wire format, as far as the frame of a report needs it: varints, fixed words, length-prefixed bytes."""

from __future__ import annotations

from collections.abc import Iterable

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types (Protocol Buffers documentation, "Encoding"); 3 and 4, groups, do not occur in reports."""

_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_LOW_BITS, _MORE_FOLLOWS, _BITS = 0x7F, 0x80, 7
_MAX_BITS = 64

Field = tuple[int, int, "int | bytes"]
"""One field of a message: number, wire type, and its integer (varints) or its bytes (all others)."""


class WireError(ValueError):
    """The bytes are no message in the wire format."""


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the varint at ``position`` and the position after it.

    Raises:
        WireError: ``data`` ends inside it, or it is longer than 64 bits.
    """
    value = shift = 0
    while position < len(data):
        byte = data[position]
        position += 1
        value |= (byte & _LOW_BITS) << shift
        if byte < _MORE_FOLLOWS:
            return value, position
        shift += _BITS
        if shift >= _MAX_BITS:
            raise WireError("a varint is longer than 64 bits")
    raise WireError("it ends inside a varint")


def decode(data: bytes, stop: int | None = None) -> list[Field]:
    """Return the fields of a message in file order; with ``stop``, only those before the first field ``stop``.

    Raises:
        WireError: ``data`` is no message.
    """
    fields: list[Field] = []
    position = 0
    while position < len(data):
        tag, position = read_varint(data, position)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise WireError("field number 0")
        if number == stop:
            break
        if kind == VARINT:
            value, position = read_varint(data, position)
            fields.append((number, kind, value))
            continue
        if kind == BYTES:
            length, position = read_varint(data, position)
        elif kind in _FIXED_BYTES:
            length = _FIXED_BYTES[kind]
        else:
            raise WireError(f"wire type {kind}")
        if position + length > len(data):
            raise WireError("it ends inside a field")
        fields.append((number, kind, data[position : position + length]))
        position += length
    return fields


def encode(fields: Iterable[Field]) -> bytes:
    """Return the message that holds ``fields`` in the order given; the inverse of ``decode``."""
    out = bytearray()
    for number, kind, value in fields:
        out += _varint(number << 3 | kind)
        if isinstance(value, int):
            out += _varint(value)
        elif kind == BYTES:
            out += _varint(len(value)) + value
        else:
            out += value
    return bytes(out)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > _LOW_BITS:
        out.append(value & _LOW_BITS | _MORE_FOLLOWS)
        value >>= _BITS
    out.append(value)
    return bytes(out)
