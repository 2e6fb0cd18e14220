"""Reads a PyTorch profiler trace (Chrome trace format, gzip or not): ours or anyone's, CUDA, ROCm or CPU only.

Times in a trace are microseconds, whatever its ``displayTimeUnit`` says: integers in old traces, decimals
with nanoseconds since PyTorch 2.2, relative to ``baseTimeNanoseconds`` since 2.4. They are read as decimals:
an absolute time of 1.7e15 us has no nanoseconds left in a float.
"""

from __future__ import annotations

import gc
import gzip
import json
import sys
import zlib
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from gpustudy.base.errors import UserError
from gpustudy.metrics.inputs import refuse_streams

_GZIP_MAGIC = b"\x1f\x8b"
_NS_PER_US = 1000
_MESSAGE_CHARACTERS = 120
_MOST_NS = 2**62
"""146 years; the difference of two times then fits into 64 bits."""
_NS_DIGITS = 19
"""Decimal digits of ``_MOST_NS``."""
_TEXT_OF = json.JSONEncoder(default=str).encode

_OPERATOR, _RANGE, _CALL, _DEVICE = "operator", "range", "call", "device"
_KIND_OF_CATEGORY = {
    "cpu_op": _OPERATOR,
    "operator": _OPERATOR,  # PyTorch before 1.12
    "user_annotation": _RANGE,
    "cuda_runtime": _CALL,  # HIP calls carry this category too
    "cuda_driver": _CALL,
    "hip_runtime": _CALL,
    "hip_driver": _CALL,
    "xpu_runtime": _CALL,
    "runtime": _CALL,  # PyTorch before 1.12
    "kernel": _DEVICE,
    "gpu_memcpy": _DEVICE,
    "gpu_memset": _DEVICE,
    "memcpy": _DEVICE,  # PyTorch before 1.12
    "memset": _DEVICE,
}
"""Category in lower case -> what the event is. Categories that are not here (flows, Python frames, GPU copies
of annotations, synchronisation) are no operator and no launch."""


_SHAPES, _CONCRETE = "Input Dims", "Concrete Inputs"
_NUMBERS = (
    "External id",
    "external id",  # PyTorch before 1.12
    "Sequence number",
    "correlation",
)
"""Arguments that tie events together."""
_KEPT_ARGUMENTS = (
    *_NUMBERS,
    "stream",
    "grid",
    "block",
    "registers per thread",
    "shared memory",
)


class Event(NamedTuple):
    """One complete event of a trace.

    ``thread`` is (process, thread) on the host, and on a device (device, stream); times are in ns. ``arguments``
    holds the few that are used, the shapes of the inputs and the values of plain inputs as JSON texts.
    """

    kind: str
    name: str
    thread: tuple[str, str]
    start_ns: int
    end_ns: int
    arguments: dict[str, Any]


@dataclass
class Trace:
    """The events of one trace that matter here, each list in order of start.

    Attributes:
        operators: operators on the host (autograd's nodes included).
        ranges: user annotations, such as ``gpustudy.forward`` or ``ProfilerStep#3``.
        calls: calls into the device's runtime or driver, such as ``cudaLaunchKernel``.
        device: kernels, copies and memsets.
        device_name: name of the first device in the trace; empty without one.
    """

    operators: list[Event] = field(default_factory=list)
    ranges: list[Event] = field(default_factory=list)
    calls: list[Event] = field(default_factory=list)
    device: list[Event] = field(default_factory=list)
    device_name: str = ""


def read_trace(path: Path) -> Trace:
    """Read the trace file ``path``.

    Raises:
        UserError: the file is absent, truncated, no trace, or holds neither an operator nor a launch.
    """
    document = _document(path)
    listed = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(listed, list):
        raise UserError(
            f"{path} is JSON but no trace (it has no list 'traceEvents'): "
            "give a file written by torch.profiler's export_chrome_trace."
        )
    trace = Trace()
    by_kind = {_OPERATOR: trace.operators, _RANGE: trace.ranges, _CALL: trace.calls, _DEVICE: trace.device}
    for event in listed:
        if isinstance(event, Event):
            by_kind[event.kind].append(event)
    if not trace.operators and not trace.device:
        raise UserError(
            f"{path} is a trace without any operator or kernel ({len(listed)} events): "
            "profile with ProfilerActivity.CPU or CUDA around the step."
        )
    for events in by_kind.values():
        events.sort(key=lambda event: (event.start_ns, -event.end_ns))
    properties = document.get("deviceProperties") if isinstance(document, dict) else None
    if isinstance(properties, list) and properties and isinstance(properties[0], dict):
        trace.device_name = str(properties[0].get("name", ""))
    return trace


def _slim(value: dict[str, Any]) -> Any:
    """Turn an object into an ``Event`` as soon as it is parsed (None when it is of no use), to save memory."""
    if "ph" in value:
        kind = _KIND_OF_CATEGORY.get(str(value.get("cat")).lower()) if value["ph"] == "X" else None
        return None if kind is None else _event(kind, value)
    if "traceEvents" in value or "numSms" in value or "totalGlobalMem" in value:
        return value
    kept = {name: value[name] for name in _KEPT_ARGUMENTS if name in value}
    for name in (_SHAPES, _CONCRETE):
        if name in value:
            kept[name] = sys.intern(_TEXT_OF(value[name]))
    return kept


def _event(kind: str, raw: dict[str, Any]) -> Event:
    start, name, arguments = _ns(raw["ts"]), raw["name"], raw.get("args") or {}
    name.encode()  # a lone surrogate, which JSON may hold, is no text
    if not isinstance(arguments, dict) or any(isinstance(arguments.get(one), (list, dict)) for one in _NUMBERS):
        raise TypeError(f"the arguments of {name[:_MESSAGE_CHARACTERS]!r} are none")
    return Event(
        kind=kind,
        name=sys.intern(name),
        thread=(sys.intern(str(raw.get("pid"))), sys.intern(str(raw.get("tid")))),
        start_ns=start,
        end_ns=start + max(_ns(raw.get("dur", 0)), 0),
        arguments=arguments,
    )


def _ns(microseconds: int | Decimal | str) -> int:
    """Return a time of the trace, exactly, in whole ns.

    Raises:
        ValueError, ArithmeticError, TypeError: it is no time.
    """
    if isinstance(microseconds, int):
        time = microseconds * _NS_PER_US
    else:
        exact = Decimal(microseconds) * _NS_PER_US
        time = int(exact.to_integral_value()) if exact.adjusted() < _NS_DIGITS else _MOST_NS + 1
    if abs(time) > _MOST_NS:
        raise ValueError("a time is too large")
    return time


def _document(path: Path) -> Any:
    """Return the JSON document in ``path``, unpacked when it is gzip, its events as ``Event``."""
    try:
        refuse_streams(path)
        content = path.read_bytes()
        if content.startswith(_GZIP_MAGIC):
            content = gzip.decompress(content)
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist: give the path of a trace.") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is a damaged or truncated gzip file ({error}): copy or export it again.") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): check the path and its permissions.") from error
    collects = gc.isenabled()
    gc.disable()  # parsing makes millions of objects and no garbage: collecting would take most of the time
    try:
        return json.loads(content, parse_float=Decimal, object_hook=_slim)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(
            f"{path} is not complete JSON ({str(error)[:_MESSAGE_CHARACTERS]}): "
            "it is truncated or no trace; export it again."
        ) from error
    except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise UserError(
            f"{path} holds an event without a readable name, time or arguments ({type(error).__name__}: {error}): "
            "export the trace again."
        ) from error
    finally:
        if collects:
            gc.enable()
