"""Read reports with NVIDIA's ``ncu-report`` and write what they hold to files.

This file is run as a process of its own (``python -I worker.py``) and imports nothing but the standard library and
``ncu_report``: older versions of that package crash when pandas or pyarrow are loaded beside them, and a crash here
costs one part of a report, not the program. It is a script, not a module to import.

The reader sets up 120 MB of tables, and never gives memory back. So this process sets the tables up once, and reads
each report in a copy of itself (``fork``), which shares the tables and takes its memory along when it ends. Two
copies run at a time.

Standard input: a request a line, JSON: ``{"report": path, "output": path, "metrics": [names] or null for all}``.
Standard output: for each, in order, a line with the copy's exit code (negative: the signal that ended it). That of
the earliest comes when all copies are taken and one more request stands, or when standard input ends.
Output: one frame, read by ``report.py``: the length (uint64) of a JSON header, the header, then the arrays it lists,
in the machine's byte order. A row is one value: the launch's position, the metric's, the instance's (-1 for the
whole), what the value is, the number, and positions of its text and correlation in ``strings`` (-1: none).
"""

from __future__ import annotations

import json
import os
import struct
import sys
import traceback
from array import array
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

EXIT_NO_READER = 3
"""Exit code when ``ncu_report`` cannot be imported; ``report.py`` knows it."""

COPIES = 2
"""Reports read at a time, one to a core of a small machine."""

NO_VALUE, NUMBER, TEXT = 0, 1, 2
"""What a row's value is."""

_EXACT = 2**53
"""From here on float64 rounds integers."""

_LAUNCH_METRICS = {
    "context": "launch__context_id",
    "stream": "launch__stream_id",
    "device_id": "launch__device_id",
    "grid_x": "launch__grid_dim_x",
    "grid_y": "launch__grid_dim_y",
    "grid_z": "launch__grid_dim_z",
    "block_x": "launch__block_dim_x",
    "block_y": "launch__block_dim_y",
    "block_z": "launch__block_dim_z",
    "registers": "launch__registers_per_thread",
    "shared_static": "launch__shared_mem_per_block_static",
    "shared_dynamic": "launch__shared_mem_per_block_dynamic",
    "capability_major": "device__attribute_compute_capability_major",
    "capability_minor": "device__attribute_compute_capability_minor",
    "device": "device__attribute_display_name",
}
"""Facts of a launch -> the metric that carries them in every version since 2020."""


class Rows:
    """The values read so far, column by column; the reader of the frame sorts them."""

    def __init__(self) -> None:
        self.launch, self.metric, self.instance = array("I"), array("I"), array("i")
        self.kind, self.value = array("B"), array("d")
        self.text, self.correlation = array("i"), array("i")
        self._strings: dict[str, int] = {}

    def string(self, text: str | None) -> int:
        """Return the position of ``text`` among the strings; -1 for None."""
        return -1 if text is None else self._strings.setdefault(text, len(self._strings))

    def extend(
        self,
        launch: int,
        metrics: array[int],
        kinds: Sequence[int],
        values: Sequence[float],
        texts: Sequence[int] | None = None,
        labels: Sequence[int] | None = None,
    ) -> None:
        """Add rows of one launch: wholes of ``metrics``; with ``labels``, instances 0, 1, ... of one metric."""
        count = len(values)
        none = array("i", [-1]) * count
        self.launch.extend(array("I", [launch]) * count)
        self.metric.extend(metrics)
        self.instance.extend(none if labels is None else array("i", range(count)))
        self.kind.extend(kinds)
        self.value.extend(values)
        self.text.extend(none if texts is None else texts)
        self.correlation.extend(none if labels is None else labels)

    def write(self, path: str, header: dict[str, Any]) -> None:
        """Write the frame."""
        names = ("launch", "metric", "instance", "kind", "value", "text", "correlation")
        columns = {name: getattr(self, name) for name in names}
        header["strings"] = list(self._strings)
        header["columns"] = [[name, column.typecode, len(column)] for name, column in columns.items()]
        head = json.dumps(header).encode()
        with Path(path).open("wb") as out:
            out.write(struct.pack("=Q", len(head)) + head)
            for column in columns.values():
                out.write(column.tobytes())


class Reader:
    """Reads the launches of one report into ``Rows``."""

    def __init__(self, ncu_report: Any, wanted: list[str] | None) -> None:
        self._wanted = wanted
        self._metrics: dict[str, int] = {}
        self._units: list[str] = []
        self.rows = Rows()
        metric, action = ncu_report.IMetric, ncu_report.IAction
        self._metric_class = metric
        self._text_kind, self._uint64_kind = metric.ValueKind_STRING, metric.ValueKind_UINT64
        self._row_kinds = {
            metric.ValueKind_DOUBLE: NUMBER,
            metric.ValueKind_FLOAT: NUMBER,
            metric.ValueKind_UINT32: NUMBER,
            metric.ValueKind_UINT64: NUMBER,
            metric.ValueKind_STRING: TEXT,
        }
        self._mangled, self._demangled = action.NameBase_MANGLED, action.NameBase_DEMANGLED
        self._workloads = _enum(action, "WorkloadType_")
        self._messages = _enum(ncu_report, "MsgType_")
        self._speedups = _enum(ncu_report, "SpeedupType_")

    def header(self, launches: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the JSON head of the frame."""
        return {"launches": launches, "metrics": list(self._metrics), "units": self._units}

    def launch(self, position: int, action: Any) -> dict[str, Any]:
        """Read all wanted values of one launch; return its facts and rule results."""
        self._read_values(position, action)
        return {
            "kind": self._workloads.get(action.workload_type(), "other"),
            "name": action.name(self._demangled),
            "mangled_name": action.name(self._mangled),
            "nvtx": _nvtx(action.nvtx_state()),
            "facts": {fact: self._fact(action, name) for fact, name in _LAUNCH_METRICS.items()},
            "rules": [self._rule(result) for result in action.rule_results_as_dicts()],
        }

    def _choose(self, action: Any) -> tuple[list[Any], array[int]]:
        """Return the metrics to read of this launch, and the number that each has in the frame.

        Wanted ones are asked for by name: listing all that a launch has takes as long as reading a hundred.
        """
        names = action.metric_names() if self._wanted is None else self._wanted
        found = {name: metric for name in names if (metric := action.metric_by_name(name)) is not None}
        for name in found:
            if name not in self._metrics:
                self._metrics[name] = len(self._units)
                self._units.append(found[name].unit())
        return list(found.values()), array("I", [self._metrics[name] for name in found])

    def _read_values(self, position: int, action: Any) -> None:
        """Read whole by whole, one call at a time over all metrics: this is where the time goes."""
        found, numbers = self._choose(action)
        metric = self._metric_class
        kinds = list(map(metric.kind, found))
        values = list(map(metric.as_double, found))
        counts = list(map(metric.num_instances, found))
        texts = [-1] * len(found)
        for index, (kind, value) in enumerate(zip(kinds, values, strict=True)):
            if kind == self._text_kind or value >= _EXACT:
                texts[index] = self._text(found[index], kind, value)
        known = zip(kinds, map(metric.has_value, found), strict=True)
        row_kinds = [self._row_kinds.get(kind, NO_VALUE) if has_value else NO_VALUE for kind, has_value in known]
        if NO_VALUE in row_kinds:  # a metric that has nothing but instances has no row for the whole
            kept = [i for i, (kind, count) in enumerate(zip(row_kinds, counts, strict=True)) if kind or not count]
            row_kinds, values, texts = ([column[i] for i in kept] for column in (row_kinds, values, texts))
            self.rows.extend(position, array("I", [numbers[i] for i in kept]), row_kinds, values, texts)
        else:
            self.rows.extend(position, numbers, row_kinds, values, texts)
        for index, count in enumerate(counts):
            if count:
                self._read_instances(position, numbers[index : index + 1], found[index], count)

    def _read_instances(self, position: int, number: array[int], metric: Any, count: int) -> None:
        kinds = [metric.kind(instance) for instance in range(count)]
        values = [metric.as_double(instance) for instance in range(count)]
        texts = [
            self._text(metric, kind, value, at) for at, (kind, value) in enumerate(zip(kinds, values, strict=True))
        ]
        labels = [-1] * count
        if metric.has_correlation_ids():
            ids = metric.correlation_ids()
            labels = [self.rows.string(self._label(ids, instance)) for instance in range(count)]
        # Not has_value: for instances it answers at random (2026.3.1 says no to values that as_double gives right).
        row_kinds = [self._row_kinds.get(kind, NO_VALUE) for kind in kinds]
        self.rows.extend(position, number * count, row_kinds, values, texts, labels)

    def _text(self, metric: Any, kind: int, value: float, *instance: int) -> int:
        """Return the string of a text, or of an integer that float64 rounds; -1 for any other value."""
        if kind == self._text_kind:
            return self.rows.string(metric.as_string(*instance))
        if kind == self._uint64_kind and value >= _EXACT and value != (exact := metric.as_uint64(*instance)):
            return self.rows.string(str(exact))
        return -1

    def _label(self, labels: Any, instance: int) -> str:
        if labels.kind(instance) == self._text_kind:
            return str(labels.as_string(instance))
        return str(labels.as_uint64(instance))

    def _fact(self, action: Any, name: str) -> float | str | None:
        metric = action.metric_by_name(name)
        if metric is None or not metric.has_value():
            return None
        value: float | str = metric.as_string() if metric.kind() == self._text_kind else metric.as_double()
        return value

    def _rule(self, result: dict[str, Any]) -> dict[str, Any]:
        message, estimate = result["rule_message"], result.get("speedup_estimation")
        return {
            "section": result["section_identifier"],
            "rule": result["rule_identifier"],
            "type": self._messages.get(message["type"], "other"),
            "title": message["title"],
            "message": message["message"],
            "speedup": None if estimate is None else estimate["speedup"],
            "speedup_kind": None if estimate is None else self._speedups.get(estimate["type"], "unknown"),
        }


def _enum(owner: Any, prefix: str) -> dict[int, str]:
    """Return value -> lower-case name of the constants of ``owner`` that begin with ``prefix``."""
    return {int(getattr(owner, name)): name[len(prefix) :].lower() for name in dir(owner) if name.startswith(prefix)}


def _nvtx(state: Any) -> str | None:
    """Return the ranges around a launch, outermost first, joined by ``/``; another domain than NVTX's is named."""
    if state is None:
        return None
    found = []
    for number in state:
        domain = state[number]
        prefix = "" if domain.name() == "<default domain>" else f"{domain.name()}@"
        found += [prefix + name for name in (*domain.push_pop_ranges(), *domain.start_end_ranges())]
    return "/".join(found) or None


def read(ncu_report: Any, request: dict[str, Any]) -> None:
    """Read one report and write its frame."""
    reader = Reader(ncu_report, request["metrics"])
    context = ncu_report.load_report(request["report"])
    launches = [
        reader.launch(position, action)
        for position, action in enumerate(action for number in range(len(context)) for action in context[number])
    ]
    reader.rows.write(request["output"], reader.header(launches))


def start_copy(ncu_report: Any, request: dict[str, Any]) -> int:
    """Begin to read one report in a copy of this process; return the copy's process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        read(ncu_report, request)
        code = 0
    finally:
        if code:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)


def answer(copy: int) -> None:
    """Wait for the end of a copy and tell it."""
    print(os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]), flush=True)


def main() -> int:
    """Serve requests until standard input ends."""
    try:
        import ncu_report
    except ImportError as error:
        print(error, file=sys.stderr)
        return EXIT_NO_READER
    is_ready = False
    copies: deque[int] = deque()
    for line in sys.stdin:
        request = json.loads(line)
        if not is_ready:  # the first look at any launch sets the tables up
            context = ncu_report.load_report(request["report"])
            if len(context) and len(context[0]):
                context[0][0].metric_names()
            is_ready = True
        if len(copies) == COPIES:
            answer(copies.popleft())
        copies.append(start_copy(ncu_report, request))
    for copy in copies:
        answer(copy)
    return 0


if __name__ == "__main__":
    sys.exit(main())
