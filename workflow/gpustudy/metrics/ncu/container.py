r"""The frame of a report file: its chain of blocks walked to the end, and the session facts in the blocks' headers.

NVIDIA's reader is silent on damage: a truncated file gives a shorter report, a foreign one an empty report. So the
chain is walked first: ``NVR\0``, a length and the file header; then blocks to the end of the file, each a length, a
block header, and a payload of entries, each with its length. (Nsight Compute documentation, Customization Guide,
"Report File Format".) Only the frame is decoded here. Launches, metrics and rules are read by NVIDIA's reader alone.

The format has no checksum: a byte changed inside a value, or a file cut exactly between two blocks, cannot be seen.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, NamedTuple

from gpustudy.base.errors import UserError
from gpustudy.metrics.ncu.wire import BYTES, VARINT, Field, WireError, decode, encode

MAGIC = b"NVR\0"
FORMAT_VERSION = 7
"""The only version of the format seen from ncu 2019 to 2025; NVIDIA reserves the right to change it."""

NUM_SOURCES, NUM_RESULTS, SESSION, STRINGS, PAYLOAD_BYTES, PROCESS = 1, 2, 3, 4, 5, 6
"""Fields of a block header that every version writes."""

_OTHER_RESULTS = (7, 8, 9)
"""Fields of a block header that count range, command list and graph results."""

_NUMBERS = (NUM_SOURCES, NUM_RESULTS, PAYLOAD_BYTES, *_OTHER_RESULTS)
_MESSAGES = (SESSION, STRINGS, PROCESS)

_MAX_HEADER_BYTES = 1 << 28
"""Larger block headers are taken for damage: the largest real ones hold a string table of some 100 KB."""

_FIRST_METRIC = 13
"""Field of a result from which on its metrics follow; what identifies it stands before."""

_MANGLED_NAME = 5
_LENGTH = struct.Struct("<I")


class Process(NamedTuple):
    """The process that launched a block's results."""

    process_id: int | None
    host: str
    name: str


class Result(NamedTuple):
    """One result (a profiled launch, range, graph) as the frame shows it.

    ``mangled_name`` is the kernel's; None for a result of another kind.
    """

    process: Process
    mangled_name: str | None


@dataclass(frozen=True)
class Block:
    """One block: where it lies in the file, its decoded header and the results in its payload."""

    offset: int
    end: int
    header: list[Field]
    sources: int
    results: tuple[Result, ...]


@dataclass(frozen=True)
class Container:
    """A report file whose chain of blocks was walked.

    Attributes:
        path: the file.
        blocks: the complete blocks, in file order.
        damage: what is wrong after the last of them, in a few words; empty when the chain is whole.
    """

    path: Path
    blocks: tuple[Block, ...]
    damage: str = ""

    @property
    def results(self) -> tuple[Result, ...]:
        """All results, in file order, which is launch order."""
        return tuple(result for block in self.blocks for result in block.results)

    @cached_property
    def shared_blocks(self) -> tuple[int, ...]:
        """The blocks whose header, or all, every part needs: with session facts or strings, or without entries."""
        return tuple(
            index
            for index, block in enumerate(self.blocks)
            if not (block.results or block.sources)
            or any(number in (SESSION, STRINGS) and value for number, _, value in block.header)
        )


def walk(path: Path) -> Container:
    """Walk the blocks of a report to the end of the file.

    Raises:
        UserError: the file is empty or is no report at all. Damage further on is told in the result.
    """
    size = path.stat().st_size
    with path.open("rb") as stream:
        _read_file_header(stream, path, size)
        blocks: list[Block] = []
        processes: dict[bytes, Process] = {}
        while stream.tell() < size:
            start = stream.tell()
            try:
                blocks.append(_read_block(stream, size, processes))
            except WireError as error:
                return Container(path, tuple(blocks), f"the block at byte {start} is broken: {error}")
    return Container(path, tuple(blocks))


def walk_whole(path: Path, *, salvage: bool = False) -> Container:
    """Walk a report that must be whole, or whose complete results are to be kept.

    Args:
        path: the file.
        salvage: keep the complete results of a damaged report.

    Raises:
        UserError: the report is damaged and ``salvage`` is not set, or it holds no complete result.
    """
    container = walk(path)
    count = len(container.results)
    if container.damage and not (salvage and count):
        keep = (
            "add --salvage to keep what is complete, or copy the report again" if count else "copy or profile it again"
        )
        results = "result" if count == 1 else "results"
        raise UserError(
            f"{path} is damaged or cut short: {container.damage}; it holds {count} complete {results}: {keep}."
        )
    if not count:
        raise UserError(f"{path} is a whole report, but ncu profiled nothing into it: check ncu's log and its filters.")
    return container


def _read_file_header(stream: BinaryIO, path: Path, size: int) -> None:
    if not size:
        raise UserError(f"{path} is empty and holds 0 complete results: copy or profile it again.")
    magic = stream.read(len(MAGIC))
    if magic != MAGIC:
        raise UserError(
            f"{path} is not an Nsight Compute report (a report begins with the letters NVR) and "
            "holds 0 complete results: give a .ncu-rep or .nsight-cuprof-report file, or a CSV export."
        )
    try:
        header = decode(_take(stream, size))
    except WireError as error:
        raise UserError(
            f"{path} is damaged or cut short: its file header is broken ({error}); it holds 0 complete results: "
            "copy or profile it again."
        ) from error
    if header != [(1, VARINT, FORMAT_VERSION)]:
        raise UserError(
            f"{path} is not in version {FORMAT_VERSION} of the report format, or its file header is damaged: "
            "export it with 'ncu --import FILE --page raw --csv' and give the CSV instead."
        )


def _take(stream: BinaryIO, limit: int) -> bytes:
    """Read one length-prefixed message that must end at ``limit`` or before."""
    prefix = stream.read(_LENGTH.size)
    if len(prefix) < _LENGTH.size:
        raise WireError("the file ends inside a length")
    (length,) = _LENGTH.unpack(prefix)
    if length > _MAX_HEADER_BYTES or stream.tell() + length > limit:
        raise WireError(f"a length of {length} bytes goes beyond the end")
    return stream.read(length)


def _read_block(stream: BinaryIO, size: int, processes: dict[bytes, Process]) -> Block:
    """Read the header of the block at the stream's position and walk its payload.

    Raises:
        WireError: the header is no message, or the payload's entries do not fill it exactly.
    """
    offset = stream.tell()
    header = decode(_take(stream, size))
    numbers = _header_numbers(header)
    end = stream.tell() + numbers.get(PAYLOAD_BYTES, 0)
    if end > size:
        raise WireError(f"its payload ends {end - size} bytes beyond the end of the file")
    process = _process_of(header, processes)
    sources, kernels = numbers.get(NUM_SOURCES, 0), numbers.get(NUM_RESULTS, 0)
    others = sum(numbers.get(field, 0) for field in _OTHER_RESULTS)
    results: list[Result] = []
    for entry in range(sources + kernels + others):
        if entry < sources or entry >= sources + kernels:
            _skip(stream, end)
        if sources <= entry < sources + kernels:
            results.append(Result(process, _mangled_name(_take(stream, end))))
        elif entry >= sources + kernels:
            results.append(Result(process, None))
    if stream.tell() != end:
        raise WireError(f"its {sources + kernels + others} entries leave {end - stream.tell()} bytes of its payload")
    return Block(offset, end, header, sources, tuple(results))


def _skip(stream: BinaryIO, limit: int) -> None:
    prefix = stream.read(_LENGTH.size)
    if len(prefix) < _LENGTH.size:
        raise WireError("the file ends inside a length")
    (length,) = _LENGTH.unpack(prefix)
    if stream.tell() + length > limit:
        raise WireError(f"an entry of {length} bytes goes beyond its payload")
    stream.seek(length, 1)


def _header_numbers(header: list[Field]) -> dict[int, int]:
    """Return the counts and the payload size of a block header; its messages must be decodable."""
    numbers: dict[int, int] = {}
    for number, kind, value in header:
        if number in _MESSAGES and kind == BYTES and isinstance(value, bytes):
            decode(value)
        elif number in _NUMBERS and kind == VARINT and isinstance(value, int):
            numbers[number] = value
        elif number in _MESSAGES or number in _NUMBERS:
            raise WireError(f"field {number} of its header has wire type {kind}")
    return numbers


def _mangled_name(entry: bytes) -> str:
    fields = {number: value for number, _, value in decode(entry, stop=_FIRST_METRIC)}
    name = fields.get(_MANGLED_NAME)
    if not isinstance(name, bytes):
        raise WireError("a result has no kernel name")
    return name.decode("utf-8", "replace")


def _process_of(header: list[Field], known: dict[bytes, Process]) -> Process:
    message = next((value for number, _, value in header if number == PROCESS and isinstance(value, bytes)), b"")
    if message not in known:
        fields = {number: value for number, _, value in decode(message)}
        process_id = fields.get(1)
        host, name = fields.get(2, b""), fields.get(3, b"")
        known[message] = Process(
            process_id if isinstance(process_id, int) else None,
            host.decode("utf-8", "replace") if isinstance(host, bytes) else "",
            name.decode("utf-8", "replace") if isinstance(name, bytes) else "",
        )
    return known[message]


def first_kernel(container: Container) -> bytes | None:
    """Return the first kernel's result, a message; None where the report holds results of other kinds alone."""
    for block in container.blocks:
        if block.results and block.results[0].mangled_name is not None:
            with container.path.open("rb") as stream:
                stream.seek(block.offset)
                _take(stream, block.end)
                for _ in range(block.sources):
                    _skip(stream, block.end)
                return _take(stream, block.end)
    return None


@dataclass(frozen=True)
class Part:
    """A report of its own made of some results of another: positions ``first`` to ``last`` (exclusive)."""

    first: int
    last: int
    blocks: tuple[int, ...]


def parts(container: Container, limit_bytes: int) -> list[Part]:
    """Split the results, in order and block by block, into parts of about ``limit_bytes`` of payload."""
    found: list[Part] = []
    chosen: list[int] = []
    first = count = size = 0
    for index, block in enumerate(container.blocks):
        if not block.results:
            continue
        if chosen and size + block.end - block.offset > limit_bytes:
            found.append(Part(first, first + count, tuple(chosen)))
            first, chosen, count, size = first + count, [], 0, 0
        chosen.append(index)
        count += len(block.results)
        size += block.end - block.offset
    if chosen:
        found.append(Part(first, first + count, tuple(chosen)))
    return found


def write_part(container: Container, part: Part, path: Path) -> None:
    """Write ``part`` as a report: session blocks and string tables of the whole, and its own results.

    Blocks that hold nothing but sources (cubins, most of the bytes) are left out: no metric depends on them.
    """
    chosen = set(part.blocks)
    with container.path.open("rb") as source, path.open("wb") as target:
        header = encode([(1, VARINT, FORMAT_VERSION)])
        target.write(MAGIC + _LENGTH.pack(len(header)) + header)
        for index in sorted(chosen.union(container.shared_blocks)):
            block = container.blocks[index]
            if index in chosen or not (block.results or block.sources):
                source.seek(block.offset)
                target.write(source.read(block.end - block.offset))
            else:
                counts: list[Field] = [(number, VARINT, 0) for number in (NUM_SOURCES, NUM_RESULTS, PAYLOAD_BYTES)]
                kept = [field for field in block.header if field[0] in _MESSAGES]
                header = encode(sorted(counts + kept, key=lambda field: field[0]))
                target.write(_LENGTH.pack(len(header)) + header)
