"""Reads from the census trace what the counters stage needs: which kernels a step launches, and from where.

The trace is torch.profiler's Chrome trace. A kernel event has no caller of its own: its ``correlation`` leads to the
CUDA call that launched it, whose thread and time lie inside the operators that asked for it and inside the step's
``gpustudy.*`` ranges. Phases go by time alone, for backward runs on another thread than the range that waits for it.
"""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpustudy.base.errors import UserError

TRACE_FILE = "trace.json.gz"
STEP_RANGE = "gpustudy.step"
PHASES = ("forward", "backward", "optimiser", "data")
OTHER_PHASE = "other"

_KERNEL_CATEGORIES = ("kernel", "Kernel")
_CALL_CATEGORIES = ("cuda_runtime", "cuda_driver", "Runtime", "Driver")
_OPERATOR_CATEGORIES = ("cpu_op", "Operator")
_NANOSECONDS_PER_US = 1000
"""Trace times are in microseconds."""


@dataclass(frozen=True)
class CensusLaunch:
    """One kernel launch of the census.

    Attributes:
        name: demangled name of the kernel.
        grid: blocks in x, y, z.
        block: threads in x, y, z.
        shared_memory_bytes: per block, static and dynamic.
        duration_ns: time on the device.
        phase: one of ``PHASES``, or ``other``.
        operators: names of the operators around the launch, outermost first.
    """

    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_memory_bytes: int
    duration_ns: int
    phase: str
    operators: tuple[str, ...]


@dataclass(frozen=True)
class Census:
    """The launches of all steps of a trace, in the order in which they were issued.

    Attributes:
        steps: number of steps traced.
        launches: kernels launched inside them.
    """

    steps: int
    launches: tuple[CensusLaunch, ...]


@dataclass(frozen=True)
class _Range:
    start: float
    end: float
    name: str


def read_census(path: Path) -> Census:
    """Read the census from a trace, gzipped or not.

    Raises:
        UserError: the file is no trace, has no step ranges, or no kernel inside them.
    """
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as stream:
            events = json.load(stream)["traceEvents"]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a profiler trace ({error}): run the census stage again.") from error
    complete = [event for event in events if event.get("ph") == "X"]
    annotations = [event for event in complete if event.get("cat") == "user_annotation"]
    steps = _ranges(event for event in annotations if event["name"] == STEP_RANGE)
    if not steps:
        raise UserError(f"{path} has no '{STEP_RANGE}' range: run the census stage of this version again.")
    launches = _launches(complete, annotations, steps)
    if not launches:
        raise UserError(f"{path} has no kernel inside its steps: run the census on the device and again.")
    return Census(len(steps), launches)


def _launches(
    complete: list[dict[str, Any]], annotations: list[dict[str, Any]], steps: list[_Range]
) -> tuple[CensusLaunch, ...]:
    phases = {
        phase: _ranges(event for event in annotations if event["name"] == f"gpustudy.{phase}") for phase in PHASES
    }
    calls = {
        event["args"]["correlation"]: event
        for event in complete
        if event.get("cat") in _CALL_CATEGORIES and "correlation" in event.get("args", {})
    }
    operators = _OperatorIndex(event for event in complete if event.get("cat") in _OPERATOR_CATEGORIES)
    found = []
    for event in complete:
        if event.get("cat") not in _KERNEL_CATEGORIES:
            continue
        call = calls.get(event["args"].get("correlation"))
        if call is None or not _covers(steps, call["ts"]):
            continue
        phase = next((name for name in PHASES if _covers(phases[name], call["ts"])), OTHER_PHASE)
        found.append((call["ts"], _launch(event, phase, operators.around(call))))
    return tuple(launch for _, launch in sorted(found, key=lambda pair: pair[0]))


def _launch(event: dict[str, Any], phase: str, operators: tuple[str, ...]) -> CensusLaunch:
    arguments = event["args"]
    return CensusLaunch(
        name=event["name"],
        grid=tuple(arguments.get("grid", ())),
        block=tuple(arguments.get("block", ())),
        shared_memory_bytes=int(arguments.get("shared memory", 0)),
        duration_ns=round(event["dur"] * _NANOSECONDS_PER_US),
        phase=phase,
        operators=operators,
    )


class _OperatorIndex:
    """Finds the operators around a call: those of its thread that had begun and not ended at its time."""

    def __init__(self, events: Iterable[dict[str, Any]]) -> None:
        by_thread = defaultdict(list)
        for event in events:
            by_thread[event["tid"]].append(_as_range(event))
        self._ranges = {thread: sorted(ranges, key=lambda r: (r.start, -r.end)) for thread, ranges in by_thread.items()}
        self._starts = {thread: [r.start for r in ranges] for thread, ranges in self._ranges.items()}
        self._parents = {thread: _parents(ranges) for thread, ranges in self._ranges.items()}

    def around(self, call: dict[str, Any]) -> tuple[str, ...]:
        """Return the operators' names around ``call``, outermost first."""
        thread, time = call["tid"], call["ts"]
        ranges = self._ranges.get(thread, [])
        index = bisect_right(self._starts.get(thread, []), time) - 1
        names = []
        while index >= 0:
            if ranges[index].end >= time:
                names.append(ranges[index].name)
            index = self._parents[thread][index]
        return tuple(reversed(names))


def _parents(ranges: list[_Range]) -> list[int]:
    """Return for each of the nested, sorted ``ranges`` the index of the one around it, or -1."""
    parents: list[int] = []
    stack: list[int] = []
    for index, inner in enumerate(ranges):
        while stack and ranges[stack[-1]].end < inner.end:
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        stack.append(index)
    return parents


def _ranges(events: Iterable[dict[str, Any]]) -> list[_Range]:
    return sorted((_as_range(event) for event in events), key=lambda r: r.start)


def _as_range(event: dict[str, Any]) -> _Range:
    return _Range(event["ts"], event["ts"] + event["dur"], event["name"])


def _covers(ranges: list[_Range], time: float) -> bool:
    """Whether one of the sorted ranges, which do not overlap, holds ``time``."""
    index = bisect_right(ranges, time, key=lambda r: r.start) - 1
    return index >= 0 and ranges[index].end >= time
