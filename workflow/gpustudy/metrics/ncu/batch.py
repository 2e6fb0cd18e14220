"""What both readers give: launches with their facts, metric values as columns, and rule results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

NO_VALUE, NUMBER, TEXT = 0, 1, 2
"""What a row's value is; the same numbers as in ``worker.py``, which can import nothing of ours."""

WHOLE = -1
"""Instance of a value that is the whole metric's."""

SPEEDUP_KINDS = ("global", "local")


@dataclass
class Launch:
    """One profiled launch (or range, graph, command list) and what identifies it; None where the file is silent.

    Attributes:
        position: its position in the report, from 0.
        kind: kernel, range, graph or cmdlist.
        grid: blocks (x, y, z); None for a result that is no kernel.
        block: threads (x, y, z).
        shared_memory_bytes: static and dynamic shared memory of a block.
    """

    position: int
    name: str
    kind: str = "kernel"
    mangled_name: str | None = None
    process_id: int | None = None
    process: str | None = None
    host: str | None = None
    device: str | None = None
    device_id: int | None = None
    compute_capability: str | None = None
    context: int | None = None
    stream: int | None = None
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers_per_thread: int | None = None
    shared_memory_bytes: int | None = None
    nvtx: str | None = None

    @property
    def architecture(self) -> str | None:
        """Such as ``sm_80``."""
        return None if self.compute_capability is None else f"sm_{self.compute_capability.replace('.', '')}"

    @property
    def has_failed(self) -> bool:
        """Whether ncu recorded a kernel that never ran: its grid is (0, 0, 0)."""
        return self.grid is not None and not any(self.grid)


@dataclass(frozen=True)
class Rule:
    """One result of ncu's guided analysis; ``speedup`` in percent, ``speedup_kind`` global, local or None."""

    position: int
    section: str
    rule: str
    type: str
    message: str
    title: str | None = None
    speedup: float | None = None
    speedup_kind: str | None = None


class Columns(NamedTuple):
    """Metric values, a row each: all arrays have one length; ``text`` and ``correlation`` index ``strings``.

    ``launch`` indexes the batch's launches, ``metric`` its metrics. ``kind`` is NO_VALUE, NUMBER or TEXT.
    A NUMBER may have a text too: an integer that float64 rounds, in full.
    """

    launch: NDArray[Any]
    metric: NDArray[Any]
    instance: NDArray[Any]
    kind: NDArray[Any]
    value: NDArray[Any]
    text: NDArray[Any]
    correlation: NDArray[Any]


@dataclass
class Batch:
    """Some consecutive launches of a report.

    Rows are sorted by launch, metric name and instance.
    """

    launches: list[Launch]
    metrics: list[str]
    units: list[str]
    columns: Columns
    strings: list[str]
    rules: list[Rule] = field(default_factory=list)


class Value(NamedTuple):
    """One value read from text."""

    launch: int
    metric: str
    unit: str
    number: float | None
    text: str | None = None
    instance: int = WHOLE
    correlation: str = ""


def batch_of(launches: list[Launch], values: Iterable[Value], rules: list[Rule]) -> Batch:
    """Bring values read one by one into columns, in the order of a batch."""
    ordered = sorted(values, key=lambda value: (value.launch, value.metric, value.instance))
    strings: dict[str, int] = {}
    metrics: dict[str, int] = {}
    units: list[str] = []
    for value in ordered:
        if value.metric not in metrics:
            metrics[value.metric] = len(units)
            units.append(value.unit)
        elif value.unit and not units[metrics[value.metric]]:
            units[metrics[value.metric]] = value.unit
        for text in (value.text, value.correlation):
            if text:
                strings.setdefault(text, len(strings))
    kinds = [NUMBER if value.number is not None else NO_VALUE if value.text is None else TEXT for value in ordered]
    columns = Columns(
        launch=np.array([value.launch for value in ordered], dtype=np.uint32),
        metric=np.array([metrics[value.metric] for value in ordered], dtype=np.uint32),
        instance=np.array([value.instance for value in ordered], dtype=np.int32),
        kind=np.array(kinds, dtype=np.uint8),
        value=np.array([value.number if value.number is not None else 0.0 for value in ordered], dtype=np.float64),
        text=np.array([strings.get(value.text or "", -1) for value in ordered], dtype=np.int32),
        correlation=np.array([strings.get(value.correlation, -1) for value in ordered], dtype=np.int32),
    )
    return Batch(launches, list(metrics), units, columns, list(strings), rules)
