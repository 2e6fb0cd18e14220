"""Metrics of the stage ``census``: the launches and layouts tables, and what a step comes down to."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from gpustudy.base.errors import UserError
from gpustudy.metrics.cells import Row, cell_row, median_row
from gpustudy.metrics.classes import check_share, unclassified_share
from gpustudy.metrics.launches import Launches, launches_of
from gpustudy.metrics.layouts import layout_tables
from gpustudy.metrics.schemas import Identity, write_table
from gpustudy.metrics.trace import read_trace

_STAGE = "census"
_TRACE, _FLOPS, _LAYOUTS = "trace.json.gz", "flops.json", "layouts.jsonl.gz"
_NS_PER_S = 1e9
_STEP = "step"
"""Scope of a mean over the steps of the census."""


def census_tables(raw: Path, out: Path, identity: Identity) -> list[Row]:
    """Write launches.parquet (and layouts.parquet where they were recorded); return the rows of the cells table.

    Raises:
        UserError: the trace is not readable, has no step, or too much of its time is unclassified.
    """
    launches = launches_of(read_trace(raw / _TRACE))
    if not launches.step_ns:
        raise UserError(f"{raw / _TRACE} holds no range 'gpustudy.step': run the stage again.")
    check_share(unclassified_share(launches.columns["class"], launches.columns["duration_ns"]), str(raw / _TRACE))
    write_table(out / "launches.parquet", "launches", launches.columns, identity)
    rows = census_rows(launches)
    if (raw / _FLOPS).exists():
        rows += _counter_rows(json.loads((raw / _FLOPS).read_text())["total"], _value(rows, "flops"))
    if (raw / _LAYOUTS).exists():
        rows += layout_tables(raw, out, identity)
    return rows


def census_rows(launches: Launches) -> list[Row]:
    """Return the rows of the cells table that the launches alone give."""
    columns, steps = launches.columns, len(launches.step_ns)
    inside = [index for index, step in enumerate(columns["step"]) if step >= 0]
    times: Counter[tuple[str, str]] = Counter()
    counts: Counter[tuple[str, str]] = Counter()
    flops: Counter[str] = Counter()
    for index in inside:
        key = columns["class"][index], columns["phase"][index]
        times[key] += columns["duration_ns"][index]
        counts[key] += 1
        flops[columns["phase"][index]] += columns["flops"][index] or 0
    busy, whole = sum(times.values()), sum(launches.step_ns)
    rows = [
        median_row(_STAGE, "census_step_s", [duration / _NS_PER_S for duration in launches.step_ns]),
        cell_row(_STAGE, "launches", len(inside) / steps, scope=_STEP, n=steps),
        # on a device: kernel time over host time; on the CPU: the part of the step that self times account for
        cell_row(_STAGE, "busy_share" if launches.is_device else "self_time_share", busy / whole, scope=_STEP, n=steps),
        cell_row(_STAGE, "unclassified_share", unclassified_share(columns["class"], columns["duration_ns"])),
        cell_row(_STAGE, "flops", sum(flops.values()) / steps, _STEP, n=steps, origin="modelled"),
        cell_row(_STAGE, "flops_per_s", sum(flops.values()) / (whole / _NS_PER_S), _STEP, n=steps),
    ]
    for phase in sorted(phase for phase, count in flops.items() if count):
        value = flops[phase] / steps
        rows.append(cell_row(_STAGE, "phase_flops", value, _STEP, phase=phase, n=steps, origin="modelled"))
    for (kernel_class, phase), time in sorted(times.items()):
        where = {"kernel_class": kernel_class, "phase": phase, "n": steps}
        rows.append(cell_row(_STAGE, "class_time_ns", time / steps, _STEP, **where))
        rows.append(cell_row(_STAGE, "class_launches", counts[kernel_class, phase] / steps, _STEP, **where))
    return rows


def _counter_rows(counted: float, ours: float) -> list[Row]:
    """Return what torch's counter found for a step, and how far our sum is from it."""
    rows = [cell_row(_STAGE, "flops_torch_counter", counted, _STEP, origin="modelled")]
    if counted:
        rows.append(cell_row(_STAGE, "flops_relative_difference", ours / counted - 1, scope=_STEP, origin="modelled"))
    return rows


def _value(rows: list[Row], quantity: str) -> float:
    return float(next(row["value"] for row in rows if row["quantity"] == quantity))
