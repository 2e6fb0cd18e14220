"""Crafted traces: events with known times, in the form that torch.profiler writes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def host(
    name: str, start: float, duration: float, thread: int = 1, category: str = "cpu_op", **arguments: Any
) -> Event:
    """An operator on the host, times in microseconds."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 10,
        "tid": thread,
        "ts": start,
        "dur": duration,
        "args": arguments,
    }


def annotation(name: str, start: float, duration: float, thread: int = 1) -> Event:
    """A record_function range."""
    return host(name, start, duration, thread, "user_annotation")


def call(correlation: int, start: float, thread: int = 1, name: str = "cudaLaunchKernel") -> Event:
    """A call into the CUDA runtime."""
    return host(name, start, 1, thread, "cuda_runtime", correlation=correlation)


def kernel(
    name: str, correlation: int, start: float, duration: float, category: str = "kernel", **arguments: Any
) -> Event:
    """A launch on stream 7 of device 0."""
    known = {"device": 0, "stream": 7, "correlation": correlation}
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 0,
        "tid": 7,
        "ts": start,
        "dur": duration,
        "args": known | arguments,
    }


def write_trace(path: Path, events: list[Event], **more: Any) -> Path:
    """Write the events as a trace, packed when the name ends in .gz."""
    content = json.dumps({"schemaVersion": 1, "traceEvents": events} | more).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path
