"""Reader of report files: NVIDIA's ``ncu-report``, part by part, in a process of its own and copies of it.

NVIDIA's reader keeps some 16 bytes of memory for each byte of a report and gives none back, so a report is read in
parts of a few megabytes: small reports made of the blocks of the whole. That bounds the memory whatever the size,
uses two cores, and confines a crash. What each part must hold is known from the walk over the chain of blocks, and
the reader's answer is held against it. Our own decoder stops at the frame: for values it would have to repeat the
reader's knowledge of units and kinds, and the reader is fast enough in parts.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpustudy.base.errors import UserError
from gpustudy.metrics.ncu.batch import SPEEDUP_KINDS, Batch, Columns, Launch, Rule
from gpustudy.metrics.ncu.container import Container, Part, Result, parts, write_part
from gpustudy.metrics.ncu.process import PartReader
from gpustudy.metrics.ncu.units import to_base, unit_by_name

_PART_BYTES = 3 << 20
"""Payload of a part: beside its 120 MB of tables, the reader then needs about 50 MB."""

_AHEAD = 6
"""Parts that the reader has at a time: enough that it goes on while a batch is worked on, or pandas is imported."""

_LENGTH = struct.Struct("=Q")
_ERROR = "error"
"""Type of a rule's message that the reader calls ``err`` (its constant ``MsgType_ERR``); others keep its words."""


def read_report(container: Container, metrics: Sequence[str] | None = None) -> Iterator[Batch]:
    """Read the launches of a walked report, in order, part by part.

    Args:
        container: the walked report; of a damaged one, the complete results are read.
        metrics: names of the metrics to read; None for all.

    Raises:
        UserError: ``ncu-report`` is not installed, crashed, or gave other launches than the file holds.
    """
    todo = iter(parts(container, _PART_BYTES))
    wanted = None if metrics is None else list(metrics)
    results = container.results
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpustudy-ncu-")))
        reader = stack.enter_context(PartReader(container.path, folder, wanted))

        def give(count: int) -> list[Part]:
            given = list(islice(todo, count))
            for part in given:
                path = folder / f"part-{part.first}.ncu-rep"
                write_part(container, part, path)
                reader.give(path, f"launches {part.first} to {part.last - 1}")
            if len(given) < count:
                reader.finish()
            return given

        given = deque(give(_AHEAD))
        while given:
            part = given.popleft()
            frame = reader.take()
            given.extend(give(1))
            yield _batch(container.path, part, results[part.first : part.last], frame)


def _batch(path: Path, part: Part, results: Sequence[Result], frame: bytes) -> Batch:
    """Turn a worker's frame into a batch, after holding its launches against the file's."""
    (length,) = _LENGTH.unpack_from(frame)
    offset = _LENGTH.size + length
    header = json.loads(frame[_LENGTH.size : offset])
    found = [(launch["kind"] == "kernel", launch["mangled_name"]) for launch in header["launches"]]
    named = [(is_kernel, name) for (is_kernel, name), result in zip(found, results, strict=False) if is_kernel]
    expected = [result.mangled_name for result in results if result.mangled_name is not None]
    if len(found) != len(results) or [name for _, name in named] != expected:
        raise UserError(
            f"{path} holds {len(results)} results as launches {part.first} to {part.last - 1}, but NVIDIA's reader "
            f"gave {len(found)} or others: the file is damaged, or ncu-report is too old for it; copy the report "
            "again or update ncu-report."
        )
    arrays: dict[str, NDArray[Any]] = {}
    for name, typecode, count in header["columns"]:
        arrays[name] = np.frombuffer(frame, dtype=np.dtype(typecode), count=count, offset=offset)
        offset += arrays[name].nbytes
    columns = Columns(**arrays)
    order = np.lexsort((columns.instance, _ranks(header["metrics"])[columns.metric], columns.launch))
    return Batch(
        launches=[
            _launch(part.first + position, given, results[position])
            for position, given in enumerate(header["launches"])
        ],
        metrics=header["metrics"],
        # Values are in base units, whatever a reader names them: 2024.1 says "second" of nanoseconds.
        units=[
            to_base(unit)[0] or unit_by_name(name)
            for name, unit in zip(header["metrics"], header["units"], strict=True)
        ],
        columns=Columns(*(column[order] for column in columns)),
        strings=header["strings"],
        rules=[
            _rule(part.first + position, rule)
            for position, given in enumerate(header["launches"])
            for rule in given["rules"]
        ],
    )


def _ranks(names: list[str]) -> NDArray[Any]:
    """Return the rank of each name in alphabetical order."""
    ranks = np.empty(len(names), dtype=np.uint32)
    ranks[np.argsort(np.array(names, dtype=object))] = np.arange(len(names), dtype=np.uint32)
    return ranks


def _launch(position: int, given: dict[str, Any], result: Result) -> Launch:
    facts = given["facts"]

    def whole(name: str) -> int | None:
        return None if facts[name] is None else int(facts[name])

    def triple(name: str) -> tuple[int, int, int] | None:
        sizes = [whole(f"{name}_{axis}") for axis in "xyz"]
        return None if None in sizes else (sizes[0] or 0, sizes[1] or 0, sizes[2] or 0)

    static, dynamic = whole("shared_static"), whole("shared_dynamic")
    major, minor = whole("capability_major"), whole("capability_minor")
    is_kernel = given["kind"] == "kernel"
    return Launch(
        position=position,
        kind=given["kind"],
        name=given["name"],
        mangled_name=(given["mangled_name"] or None) if is_kernel else None,
        process_id=result.process.process_id,
        process=result.process.name or None,
        host=result.process.host or None,
        device=facts["device"],
        device_id=whole("device_id"),
        compute_capability=None if major is None or minor is None else f"{major}.{minor}",
        context=whole("context"),
        stream=whole("stream"),
        grid=triple("grid") if is_kernel else None,
        block=triple("block") if is_kernel else None,
        registers_per_thread=whole("registers"),
        shared_memory_bytes=None if static is None or dynamic is None else static + dynamic,
        nvtx=given["nvtx"],
    )


def _rule(position: int, given: dict[str, Any]) -> Rule:
    kind = given["speedup_kind"]
    return Rule(
        position=position,
        section=given["section"],
        rule=given["rule"],
        type=_ERROR if given["type"] == "err" else given["type"],
        message=given["message"],
        title=given["title"] or None,
        speedup=given["speedup"],
        speedup_kind=kind if kind in SPEEDUP_KINDS else None,
    )
