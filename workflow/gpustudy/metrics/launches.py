"""A trace -> the launches table: every kernel, copy and memset of a GPU, or every operator of a CPU by self time.

Phase and step of a launch are those of the moment when it was called on the host (found by correlation id), whatever
thread called it: PyTorch runs backward on another thread, so nesting on a thread tells nothing.

On a CPU, self times (a caller's time without its callees) of operators and annotations sum to the step: each moment
of the step's thread belongs to exactly one of them. Where the step's thread only waits inside an annotation while
another thread works, that time belongs to the working thread's operators and is taken off the annotation.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpustudy.metrics.classes import UNCLASSIFIED, classify
from gpustudy.metrics.flops import has_formula, operator_flops
from gpustudy.metrics.nesting import Nesting, nest
from gpustudy.metrics.trace import Event, Trace

OUTSIDE = -1
"""Step of what lies outside every step."""

_OTHER = "other"
_OWN_STEP = "gpustudy.step"
_FOREIGN_STEP = re.compile(r"^ProfilerStep#\d+$")
_OWN_PHASE = re.compile(r"^gpustudy\.(forward|backward|optimiser|data)$")
_FOREIGN_PHASES = (
    ("optimiser", re.compile(r"optimi[sz]er", re.IGNORECASE)),
    ("backward", re.compile(r"(^|\W)backward(\W|$)", re.IGNORECASE)),
    ("forward", re.compile(r"(^|\W)forward(\W|$)", re.IGNORECASE)),
    ("data", re.compile(r"dataloader|(^|\W)data(\W|$)", re.IGNORECASE)),
)
"""Phases of other people's annotations ("## forward ##", "Optimizer.step#Adam.step"); used without our own."""

_BACKWARD_NODE = "autograd::engine::evaluate_function"
_CONVOLUTION_NODE = "ConvolutionBackward0"
_MOST_INT32, _MOST_INT64 = 2**31 - 1, 2**63 - 1

Columns = dict[str, list[Any]]


@dataclass
class Launches:
    """The launches of one trace.

    Attributes:
        columns: the columns of the launches table, identity left out.
        step_ns: duration of each step's range on the host; empty for a trace without steps.
        is_device: whether these are launches on a device; False for self times of CPU operators.
    """

    columns: Columns
    step_ns: list[int]
    is_device: bool

    def __len__(self) -> int:
        return len(self.columns["name"])


def launches_of(trace: Trace) -> Launches:
    """Return all launches of ``trace``, in order of start."""
    steps = step_ranges(trace)
    columns = _device_columns(trace) if trace.device else _host_columns(trace, steps)
    moments = columns.pop("called_ns")
    columns["phase"] = _phases(trace, moments)
    columns["step"] = _steps(steps, moments)
    origin = min((event.start_ns for event in _all_events(trace)), default=0)
    columns["start_ns"] = [start - origin for start in columns["start_ns"]]
    return Launches(columns, [step.end_ns - step.start_ns for step in steps], bool(trace.device))


def step_ranges(trace: Trace) -> list[Event]:
    """Return the ranges of the steps in order: ours, else the profiler's own; empty for a trace without."""
    own = [event for event in trace.ranges if event.name == _OWN_STEP]
    return own or [event for event in trace.ranges if _FOREIGN_STEP.match(event.name)]


def _steps(steps: Sequence[Event], moments: Sequence[int]) -> list[int]:
    if not steps:
        return [0] * len(moments)  # without steps, the whole trace is one
    found = nest([step.start_ns for step in steps], [step.end_ns for step in steps], moments)
    return found.innermost


def _phases(trace: Trace, moments: Sequence[int]) -> list[str]:
    """Return the phase at each moment: that of the innermost phase range around it, on any thread."""
    ranges = [(match[1], event) for event in trace.ranges if (match := _OWN_PHASE.match(event.name))]
    if not ranges:
        ranges = [(phase, event) for event in trace.ranges if (phase := _foreign_phase(event.name))]
        if not any(phase == "backward" for phase, _ in ranges):
            nodes = (event for event in trace.operators if event.name.startswith(_BACKWARD_NODE))
            ranges += [("backward", event) for event in nodes]
    found = nest([event.start_ns for _, event in ranges], [event.end_ns for _, event in ranges], moments)
    return [ranges[index][0] if index >= 0 else _OTHER for index in found.innermost]


def _foreign_phase(name: str) -> str:
    return next((phase for phase, pattern in _FOREIGN_PHASES if pattern.search(name)), "")


@dataclass
class _Thread:
    """Operators (and, for self times, annotations) of one host thread."""

    events: list[Event] = field(default_factory=list)

    def nest(self, moments: Sequence[int] = ()) -> Nesting:
        return nest([event.start_ns for event in self.events], [event.end_ns for event in self.events], moments)


def _threads(events: Iterable[Event]) -> dict[tuple[str, str], _Thread]:
    threads: dict[tuple[str, str], _Thread] = defaultdict(_Thread)
    for event in events:
        threads[event.thread].events.append(event)
    return threads


def _device_columns(trace: Trace) -> Columns:
    """Return a row per launch on the device, with the operator that was running where it was called."""
    calls = {event.arguments["correlation"]: event for event in trace.calls if "correlation" in event.arguments}
    threads = _threads(trace.operators)
    by_external_id = {event.arguments.get("External id"): event for event in trace.operators}
    called = [calls.get(launch.arguments.get("correlation")) for launch in trace.device]
    asked: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    operators: list[list[Event]] = [[] for _ in trace.device]  # innermost first, then those around it
    for index, call in enumerate(called):
        external = trace.device[index].arguments.get("External id")
        if call is not None:
            asked[call.thread].append((index, call.start_ns))
        elif external in by_external_id:
            operators[index].append(by_external_id[external])
    for thread, launches in asked.items():
        events = threads[thread].events
        found = threads[thread].nest([moment for _, moment in launches])
        for (index, _), operator in zip(launches, found.innermost, strict=True):
            operators[index] = [events[other] for other in found.around(operator)]
    columns: Columns = defaultdict(list)
    counter = _FlopCounter(trace)
    for launch, call, around in zip(trace.device, called, operators, strict=True):
        counted = next((operator for operator in reversed(around) if has_formula(operator.name)), None)
        _append_launch(columns, launch, call, around[0] if around else None)
        columns["called_ns"].append(launch.start_ns if call is None else call.start_ns)
        columns["flops"].append(None if counted is None else counter.once(counted))
    return dict(columns)


def _append_launch(columns: Columns, launch: Event, call: Event | None, operator: Event | None) -> None:
    # Traces of ROCm have the sizes of a launch in the call, some of them nowhere else.
    arguments = (call.arguments if call is not None else {}) | launch.arguments
    columns["name"].append(launch.name)
    columns["class"].append(classify(launch.name))
    columns["stream"].append(_integer(arguments.get("stream")))
    columns["grid"].append(_triple(arguments.get("grid")))
    columns["block"].append(_triple(arguments.get("block")))
    columns["registers_per_thread"].append(_integer(arguments.get("registers per thread")))
    columns["shared_memory_bytes"].append(_integer(arguments.get("shared memory"), _MOST_INT64))
    columns["start_ns"].append(launch.start_ns)
    columns["duration_ns"].append(launch.end_ns - launch.start_ns)
    columns["operator"].append(None if operator is None else operator.name)
    columns["input_shapes"].append(None if operator is None else operator.arguments.get("Input Dims"))


def _host_columns(trace: Trace, steps: Sequence[Event]) -> Columns:
    """Return a row per operator and per annotation with its self time."""
    columns: Columns = defaultdict(list)
    counter = _FlopCounter(trace)
    threads = _threads(sorted(trace.operators + trace.ranges, key=lambda event: (event.start_ns, -event.end_ns)))
    step_threads = {step.thread for step in steps}
    for thread, held in threads.items():
        found = held.nest()
        waits = _waits(thread, threads) if thread in step_threads and len(threads) > 1 else {}
        for index, (event, self_ns) in enumerate(zip(held.events, found.self_ns, strict=True)):
            is_range = event.kind == "range"
            kernel_class = classify(event.name)
            columns["name"].append(event.name)
            columns["class"].append("framework" if is_range and kernel_class == UNCLASSIFIED else kernel_class)
            columns["start_ns"].append(event.start_ns)
            columns["called_ns"].append(event.start_ns)
            columns["duration_ns"].append(self_ns - waits.get(index, 0))
            columns["operator"].append(event.name)
            columns["input_shapes"].append(event.arguments.get("Input Dims"))
            is_counted = has_formula(event.name) and any(
                has_formula(held.events[other].name) for other in found.around(found.parent[index])
            )
            columns["flops"].append(None if is_counted else counter.once(event))
    return dict(columns)


def _waits(thread: tuple[str, str], threads: dict[tuple[str, str], _Thread]) -> dict[int, int]:
    """Return, per annotation of ``thread``, how long it was innermost there while another thread ran operators."""
    own = threads[thread]
    others = _Thread(
        [event for key, held in threads.items() if key != thread for event in held.events if event.kind == "operator"]
    )
    events = own.events + others.events
    bounds = sorted({edge for event in events for edge in (event.start_ns, event.end_ns)})
    waits: dict[int, int] = defaultdict(int)
    owners, workers = own.nest(bounds).innermost, others.nest(bounds).innermost
    for start, end, owner, worker in zip(bounds, bounds[1:], owners, workers, strict=False):
        if owner >= 0 and worker >= 0 and own.events[owner].kind == "range":
            waits[owner] += end - start
    return waits


class _FlopCounter:
    """Counts the operations of an operator by its shapes, each operator once."""

    def __init__(self, trace: Trace) -> None:
        self._counted: set[int] = set()
        self._gradients: dict[Any, list[int]] = {}
        for event in trace.operators:
            if event.name == _CONVOLUTION_NODE and "Input Dims" in event.arguments:
                shapes = json.loads(event.arguments["Input Dims"])
                self._gradients[event.arguments.get("Sequence number")] = shapes[0] if shapes else []

    def once(self, operator: Event) -> int | None:
        """Return the operations of ``operator``, None when it was asked before or has no known number.

        A convolution of a trace without plain inputs (PyTorch before 2.1) tells no stride; the gradient of its
        output, found in backward by the sequence number, has the shape of the output.
        """
        if id(operator) in self._counted or not has_formula(operator.name) or "Input Dims" not in operator.arguments:
            return None
        self._counted.add(id(operator))
        values = json.loads(operator.arguments.get("Concrete Inputs", "[]"))
        output = None if values else self._gradients.get(operator.arguments.get("Sequence number"))
        shapes = json.loads(operator.arguments["Input Dims"])
        try:
            flops = operator_flops(operator.name, shapes, values, output or None)
        except (TypeError, ValueError, IndexError, ZeroDivisionError):  # shapes that are none
            return None
        return _integer(flops, _MOST_INT64)


def _all_events(trace: Trace) -> Iterable[Event]:
    for events in (trace.operators, trace.ranges, trace.calls, trace.device):
        yield from events


def _integer(value: Any, most: int = _MOST_INT32) -> int | None:
    """Return a whole number of the trace; None where it has none, or one that is none."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) <= most else None


def _triple(value: Any) -> list[int] | None:
    """Return a grid or block size; None where the trace has none (copies, memsets, some ROCm traces)."""
    if not isinstance(value, list) or not value:
        return None
    sizes = [_integer(size, _MOST_INT64) for size in value]
    return None if None in sizes else [min(size or 0, _MOST_INT32) for size in sizes]
