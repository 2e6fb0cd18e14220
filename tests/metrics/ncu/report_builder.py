"""Writes small reports in the container format, independent of the package's own decoder.

The field numbers are those that NVIDIA's reader understands: every report built here is read back through it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

Number = int | float
Instances = dict[str, Number]


def varint(value: int) -> bytes:
    """Encode an integer, seven bits a byte."""
    out = b""
    while value >= 128:
        out, value = out + bytes([value % 128 + 128]), value // 128
    return out + bytes([value])


def whole(number: int, value: int) -> bytes:
    """Field ``number`` with an integer."""
    return varint(number * 8) + varint(value)


def double(number: int, value: float) -> bytes:
    """Field ``number`` with a double."""
    return varint(number * 8 + 1) + struct.pack("<d", value)


def message(number: int, content: bytes | str) -> bytes:
    """Field ``number`` with bytes, a text or another message."""
    data = content.encode() if isinstance(content, str) else content
    return varint(number * 8 + 2) + varint(len(data)) + data


def prefixed(data: bytes) -> bytes:
    """``data`` with its length before it."""
    return struct.pack("<I", len(data)) + data


@dataclass(frozen=True)
class Estimate:
    """A rule result: an estimate of 0 is written as none."""

    rule: str = "CPIStall"
    section: str = "WarpStateStats"
    text: str = "warps wait"
    title: str = "Long Scoreboard Stalls"
    kind: int = 4
    speedup: float = 0.0
    speedup_kind: int = 2


@dataclass(frozen=True)
class Kernel:
    """One profiled launch."""

    name: str = "saxpy"
    demangled: str = "saxpy(int, float, float *)"
    mangled: str = "_Z5saxpyifPf"
    grid: tuple[int, int, int] = (4, 2, 1)
    block: tuple[int, int, int] = (128, 1, 1)
    metrics: dict[str, Number | str | tuple[Number, Instances]] = field(default_factory=dict)
    rules: tuple[Estimate, ...] = ()
    ranges: tuple[str, ...] = ()
    process: tuple[int, str, str] = (4242, "10.0.0.7", "/usr/bin/python3.11")
    context: int = 1
    stream: int = 7
    clocks: tuple[int, int] | None = (1, 1)


LAUNCH = {
    "launch__grid_dim_x": 4.0,
    "launch__grid_dim_y": 2.0,
    "launch__grid_dim_z": 1.0,
    "launch__block_dim_x": 128.0,
    "launch__block_dim_y": 1.0,
    "launch__block_dim_z": 1.0,
    "launch__registers_per_thread": 32.0,
    "launch__shared_mem_per_block_static": 1024.0,
    "launch__shared_mem_per_block_dynamic": 2048.0,
    "launch__thread_count": 1024.0,
    "launch__context_id": 1.0,
    "launch__stream_id": 7.0,
}
"""What ncu stores of every launch as metrics."""

OTHERS = {"range": 7, "cmdlist": 8, "graph": 9}
"""Results that are no kernels -> field of a block header that counts them."""

ATTRIBUTES = {
    "device__attribute_compute_capability_major": 8,
    "device__attribute_compute_capability_minor": 0,
    "device__attribute_display_name": "Crafted A100",
    "device__attribute_multiprocessor_count": 108,
}


def block(
    sources: list[bytes] | None = None,
    results: list[bytes] | None = None,
    session: bytes = b"",
    strings: list[str] | None = None,
    process: tuple[int, str, str] = Kernel.process,
) -> bytes:
    """One block of a report."""
    payload = b"".join(prefixed(entry) for entry in [*(sources or []), *(results or [])])
    process_id, host, name = process
    header = whole(1, len(sources or [])) + whole(2, len(results or []))
    header += message(3, session) if session else b""
    header += message(4, b"".join(message(1, text) for text in strings or []))
    header += whole(5, len(payload))
    header += message(6, whole(1, process_id) + message(2, host) + message(3, name))
    return prefixed(header) + payload


def report(kernels: list[Kernel], command_line: str = "ncu --set full -o report python train.py") -> bytes:
    """A whole report: session blocks, a source, and a block for each launch."""
    names: list[str] = []
    blocks = [block(session=whole(2, 1_700_000_000)), block(sources=[message(2, "cubin" * 100)])]
    for kernel in kernels:
        added = [name for name in {**LAUNCH, **ATTRIBUTES, **kernel.metrics} if name not in names]
        names += added
        blocks.append(block(results=[result(kernel, names)], strings=added, process=kernel.process))
    versions = {"CUDA Version": "12.4", "Display Driver Version": "550.54", "Nsight Compute Target": "2024.1.1.0"}
    for name, version in versions.items():
        blocks.append(block(session=message(8, message(1, name) + message(2, version))))
    blocks.append(block(session=message(6, whole(1, 0) + message(2, "Crafted A100"))))
    if command_line:
        blocks.append(block(session=message(11, command_line)))
    return b"NVR\0" + prefixed(whole(1, 7)) + b"".join(blocks)


def result(kernel: Kernel, names: list[str]) -> bytes:
    """One launch as a message; metrics are named by their place in ``names``."""
    out = whole(1, kernel.process[0]) + whole(2, 1) + whole(3, 1) + whole(4, 1)
    out += message(5, kernel.mangled) + message(6, kernel.name) + message(7, kernel.demangled) + whole(8, 3)
    out += message(9, whole(1, 0) + whole(2, 0) + whole(3, 0))
    for number, sizes in ((10, kernel.grid), (11, kernel.block)):
        out += message(number, b"".join(whole(axis, size) for axis, size in enumerate(sizes, start=1)))
    sizes = {
        f"launch__{what}_dim_{axis}": float(size)
        for what, triple in (("grid", kernel.grid), ("block", kernel.block))
        for axis, size in zip("xyz", triple, strict=True)
    }
    for name, value in {**LAUNCH, **sizes, **ATTRIBUTES, **kernel.metrics}.items():
        out += message(13, metric(names.index(name), value))
    out += message(15, whole(1, 1)) + whole(16, 0)
    for rule in kernel.rules:
        out += message(19, _rule(rule))
    if kernel.ranges:
        out += message(21, _nvtx(kernel))
    out += whole(22, kernel.context) + whole(23, kernel.stream)
    return out if kernel.clocks is None else out + message(25, whole(1, kernel.clocks[0]) + whole(2, kernel.clocks[1]))


def other_result(name: str, metrics: dict[str, float], names: list[str]) -> bytes:
    """A block with a result that is no kernel: ``range``, ``cmdlist`` or ``graph``, with metrics and nothing else."""
    entry = whole(1, 1) + whole(2, 7)
    for metric_name, value in metrics.items():
        entry += message(4, metric(names.index(metric_name), value))
    payload = prefixed(entry)
    process_id, host, process = Kernel.process
    header = whole(1, 0) + whole(2, 0) + whole(5, len(payload))
    header += message(6, whole(1, process_id) + message(2, host) + message(3, process)) + whole(OTHERS[name], 1)
    return prefixed(header) + payload


def metric(name: int, value: Number | str | tuple[Number, Instances]) -> bytes:
    """One metric result: name, whole, instances."""
    total, instances = value if isinstance(value, tuple) else (value, {})
    out = whole(1, name) + message(2, _value(total))
    for label, one in instances.items():
        out += message(3, message(1, _value(label)) + message(2, _value(one)))
    return out


def _value(value: Number | str) -> bytes:
    if isinstance(value, str):
        return message(1, value)
    return whole(5, value) if isinstance(value, int) else double(3, value)


def _rule(rule: Estimate) -> bytes:
    item = message(1, message(1, rule.text) + whole(2, rule.kind) + whole(3, 1) + message(4, rule.title))
    if rule.speedup:
        item += message(10, whole(1, rule.speedup_kind) + double(2, rule.speedup))
    return message(1, rule.rule) + message(2, rule.rule) + message(3, message(1, item)) + message(4, rule.section)


def _nvtx(kernel: Kernel) -> bytes:
    stack = b"".join(message(3, message(1, name) + whole(3, 0)) for name in kernel.ranges)
    thread = whole(1, kernel.process[0]) + message(2, whole(1, 0) + stack)
    return message(1, whole(1, 0) + message(2, "<default domain>")) + message(2, thread) + whole(4, 0)


def write(path: Path, kernels: list[Kernel]) -> Path:
    """Write a report and return its path."""
    path.write_bytes(report(kernels))
    return path
