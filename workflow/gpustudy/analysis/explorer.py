"""The kernel explorer's rows: what each kernel of each gpu and config takes of a step, and its counters.

A kernel is one name in one class and phase (on the CPU, an operator). Times come from the census, a mean over its
steps and repeats; counters from the profiled launches; the score is ncu's or our estimate and so a modelled value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from gpustudy.analysis.quantities import HIT_RATES, RATIO_OVER
from gpustudy.base.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from gpustudy.analysis.dataset import Dataset
    from gpustudy.study.states import CellState

MOST_ROWS = 2000
"""Rows of the explorer at most: what a browser filters and sorts without a pause, and a few hundred kilobytes."""

_REPORT = "report.ncu-rep"
_PLACE = ["gpu", "config", "phase", "class", "name"]
_CENSUS = ["step", "phase", "class", "name", "duration_ns", "operator", "flops"]


@dataclass(frozen=True)
class Column:
    """One column of the explorer.

    Attributes:
        name: for programs; a unit of its own where it is a number.
        title: for people, short.
        meaning: a phrase for those who ask.
        is_number: whether its entries are numbers.
        scale: what a value in base units is multiplied with to be shown.
        is_modelled: whether its values are estimates and no measurements.
    """

    name: str
    title: str
    meaning: str
    is_number: bool = True
    scale: float = 1.0
    is_modelled: bool = False


COLUMNS = (
    Column("gpu", "GPU", "gpu of the cells", is_number=False),
    Column("config", "config", "config of the cells", is_number=False),
    Column("phase", "phase", "forward, backward, optimiser, data or other", is_number=False),
    Column("class", "class", "kernel class; on the CPU, class of operator", is_number=False),
    Column("name", "kernel", "name of the kernel; on the CPU, the operator", is_number=False),
    Column("step_ns", "ms / step", "time in a step of the census, mean of steps and repeats", scale=1e-6),
    Column("share", "% of step", "its part of all launches of the step", scale=100.0),
    Column("launches", "launches / step", "launches in a step"),
    Column("launch_ns", "µs / launch", "mean time of a launch", scale=1e-3),
    Column("score_ns", "score, ms / step",
           "priority score: the time of a step that the largest global speed-up estimated for each launch would save",
           scale=1e-6, is_modelled=True),
    Column("flops", "GFLOP / step",
           "operations by the operator's shapes, at its first launch; on the CPU in the row of the operator that was "
           "called (aten::convolution), while its time is in the rows of those that it calls", scale=1e-9),
    Column("ipc", "IPC", "warp instructions executed per active cycle of an SM"),
    Column("achieved_occupancy_pct", "occupancy %", "active warps of the most that an SM holds"),
    Column("tensor_pipe_pct", "tensor pipe %", "active cycles in which the tensor pipe was busy"),
    Column("fma_pipe_pct", "FMA pipe %", "active cycles in which the FMA pipe was busy"),
    Column("l1_hit_pct", "L1 hit %", "sectors found in L1 of those looked up"),
    Column("l2_hit_pct", "L2 hit %", "sectors found in L2 of those looked up"),
    Column("dram_throughput_pct", "DRAM %", "DRAM throughput of its peak"),
    Column("operator", "operator", "PyTorch operator that launched it", is_number=False),
)  # fmt: skip
"""Columns, left to right; one that no row fills is left out of the report."""

METRICS = tuple(column.name for column in COLUMNS if column.name in RATIO_OVER or column.name in HIT_RATES)
"""Counters of the explorer, each put together from the profiled launches of a kernel, never averaged."""


def explorer(dataset: Dataset) -> pd.DataFrame:
    """Return the explorer's rows, the most expensive kernels of each gpu and config first.

    Where there are more than ``MOST_ROWS``, each gpu and config keeps as many of its most expensive kernels as the
    others.

    Returns:
        A frame with the columns of ``COLUMNS`` in base units; null where a kernel has no such value.

    Raises:
        UserError: a table is unreadable.
    """
    kernels = _kernels(dataset)
    if kernels.empty:
        return pd.DataFrame(columns=[column.name for column in COLUMNS])
    kernels = kernels.sort_values(["step_ns", "name", "phase"], ascending=[False, True, True], kind="stable")
    rank = kernels.groupby(["gpu", "config"], sort=False).cumcount()
    kept = kernels.assign(rank=rank).sort_values("rank", kind="stable").head(MOST_ROWS)
    kept = kept.drop(columns="rank").sort_values("step_ns", ascending=False, kind="stable").reset_index(drop=True)
    kept = _with_counters(kept, _counters(dataset))
    kept = kept.merge(_scores(dataset), on=["gpu", "config", "name"], how="left")
    kept["score_ns"] = kept["score_share"] * kept["step_ns"]
    return kept.reindex(columns=[column.name for column in COLUMNS])


def as_json(rows: pd.DataFrame) -> dict[str, Any]:
    """Return the rows as the report holds them: by column, each text once, numbers in the unit that is shown.

    Returns:
        ``rows`` (their number) and ``columns``: name, title, meaning, ``modelled``, and for a number ``values``
        (null where there is none), for a text ``words`` and ``values`` as places among them.
    """
    return {"rows": len(rows), "columns": [_column_json(rows[column.name], column) for column in _used(rows)]}


def _used(rows: pd.DataFrame) -> Iterator[Column]:
    """Yield the columns that any row fills; on the CPU, a kernel's operator is its name."""
    for column in COLUMNS:
        own = rows[column.name]
        is_said_already = column.name == "operator" and bool((own.isna() | (own == rows["name"])).all())
        if own.notna().any() and not is_said_already:
            yield column


_DIGITS = 5
"""Significant digits that the report keeps of a number: more than it shows."""


def _column_json(values: pd.Series[Any], column: Column) -> dict[str, Any]:
    about = {"name": column.name, "title": column.title, "meaning": column.meaning, "modelled": column.is_modelled}
    if column.is_number:
        scaled = [None if pd.isna(value) else float(f"{value * column.scale:.{_DIGITS}g}") for value in values]
        return about | {"values": scaled}
    codes, words = pd.factorize(values.fillna(""))
    return about | {"words": [str(word) for word in words], "values": codes.tolist()}


def _kernels(dataset: Dataset) -> pd.DataFrame:
    """Return time, launches and operations of each kernel in a step, means over the repeats that have a census."""
    together = kernels_by_repeat(dataset)
    if together.empty:
        return pd.DataFrame(columns=[*_PLACE, "step_ns"])
    together["repeats"] = together.groupby(["gpu", "config"])["repeat"].transform("nunique")
    found = together.groupby(_PLACE, as_index=False, sort=True).agg(
        step_ns=("step_ns", "sum"),
        launches=("launches", "sum"),
        flops=("flops", lambda flops: flops.sum(min_count=1)),
        operator=("operator", "first"),
        repeats=("repeats", "first"),
    )
    for name in ("step_ns", "launches", "flops"):
        found[name] = found[name] / found["repeats"]
    total = found.groupby(["gpu", "config"])["step_ns"].transform("sum")
    return found.assign(share=found["step_ns"] / total, launch_ns=found["step_ns"] / found["launches"])


def kernels_by_repeat(dataset: Dataset) -> pd.DataFrame:
    """Return each kernel of each census, per step: gpu, config, repeat, phase, class, name, step_ns, launches, flops.

    Raises:
        UserError: a table is unreadable.
    """
    frames = [_kernels_of(path, cell) for cell, path in dataset.files("census", "launches")]
    if not frames:
        return pd.DataFrame(columns=[*_PLACE, "repeat", "step_ns", "launches", "flops", "operator"])
    return pd.concat(frames, ignore_index=True)


def _kernels_of(path: Path, cell: CellState) -> pd.DataFrame:
    """Return the kernels of one census file, per step; launches outside every step do not count."""
    import pyarrow.compute as pc

    launches = _read(path, _CENSUS)
    launches = launches.filter(pc.greater_equal(launches["step"], 0))
    steps = max(len(launches["step"].unique()), 1)
    sums = launches.group_by(["phase", "class", "name"]).aggregate(
        [("duration_ns", "sum"), ("duration_ns", "count"), ("flops", "sum"), ("operator", "min")]
    )
    frame = sums.to_pandas()
    return pd.DataFrame(
        {
            "gpu": cell.gpu,
            "config": cell.config,
            "repeat": cell.repeat,
            **{name: frame[name] for name in ("phase", "class", "name")},
            "step_ns": frame["duration_ns_sum"] / steps,
            "launches": frame["duration_ns_count"] / steps,
            "flops": frame["flops_sum"] / steps,
            "operator": frame["operator_min"],
        }
    )


_SEVERAL = "other"
"""Phase of a profiled launch that stands for launches of several phases, or of an unknown one."""


def _with_counters(kernels: pd.DataFrame, counters: pd.DataFrame) -> pd.DataFrame:
    """Join counters by phase; where a kernel has none of its own phase, those that stand for several phases."""
    own = kernels.merge(counters, on=_PLACE, how="left")
    several = counters[counters["phase"] == _SEVERAL].drop(columns="phase")
    shared = kernels.merge(several, on=[name for name in _PLACE if name != "phase"], how="left")
    return own.assign(**{name: own[name].fillna(shared[name]) for name in METRICS})


def _counters(dataset: Dataset) -> pd.DataFrame:
    """Return ``METRICS`` of each kernel: over its profiled launches, numerators over denominators."""
    parts = [_sums_of(path, cell) for cell, path in dataset.files("counters", "counters")]
    if not parts:
        return pd.DataFrame(columns=[*_PLACE, *METRICS])
    sums = pd.concat(parts, ignore_index=True).groupby(_PLACE, as_index=False).sum(min_count=1)
    ratios = {name: _quotient(sums, name) for name in METRICS}
    return pd.DataFrame({**{name: sums[name] for name in _PLACE}, **ratios})


def _quotient(sums: pd.DataFrame, name: str) -> pd.Series[Any]:
    below = sums[f"{name}_below"]
    scale = 100.0 if name in HIT_RATES else 1.0
    return scale * sums[f"{name}_above"] / below.where(below > 0)


def _sums_of(path: Path, cell: CellState) -> pd.DataFrame:
    """Return numerators and denominators of ``METRICS`` by kernel, of one cell's launches with flushed caches."""
    needed = {*METRICS, *(RATIO_OVER[name] for name in METRICS if name in RATIO_OVER)}
    needed |= {part for name in METRICS if name in HIT_RATES for part in HIT_RATES[name]}
    launches = _read(path, ["report", "phase", "class", "name"], sorted(needed)).to_pandas()
    launches = launches[launches["report"] == _REPORT]
    return pd.DataFrame(
        {"gpu": cell.gpu, "config": cell.config, **{name: launches[name] for name in ("phase", "class", "name")}}
        | {key: column for name in METRICS for key, column in _parts(launches, name).items()}
    )


def _parts(launches: pd.DataFrame, name: str) -> Mapping[str, pd.Series[Any]]:
    """Return the numerator and the denominator of a ratio for each launch; null where either is unknown."""
    if name in HIT_RATES:
        hits, misses = (launches[part] for part in HIT_RATES[name])
        above, below = hits, hits + misses
    else:
        below = launches[RATIO_OVER[name]]
        above = launches[name] * below
    is_known = above.notna() & below.notna()
    return {f"{name}_above": above.where(is_known), f"{name}_below": below.where(is_known)}


def _scores(dataset: Dataset) -> pd.DataFrame:
    """Return what part of a kernel's time its score is: ``score_share``, by gpu, config and name."""
    frames = [
        _read(path, ["report", "name", "duration_ns", "score_ns"])
        .to_pandas()
        .assign(gpu=cell.gpu, config=cell.config)
        .query("report == @_REPORT")
        for cell, path in dataset.files("counters", "priority")
    ]
    if not frames:
        return pd.DataFrame(columns=["gpu", "config", "name", "score_share"])
    scored = pd.concat(frames, ignore_index=True).dropna(subset=["score_ns"])
    sums = scored.groupby(["gpu", "config", "name"], as_index=False)[["duration_ns", "score_ns"]].sum()
    time = sums["duration_ns"].where(sums["duration_ns"] > 0)
    return pd.DataFrame(
        {**{name: sums[name] for name in ("gpu", "config", "name")}, "score_share": sums["score_ns"] / time}
    )


def _read(path: Path, columns: list[str], optional: list[str] | None = None) -> pa.Table:
    """Read some columns of a Parquet file; an optional one that it lacks is null.

    Raises:
        UserError: the file is unreadable, or lacks one of ``columns``.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        known = set(pq.read_schema(path).names)
        content = pq.read_table(path, columns=[*columns, *(name for name in optional or () if name in known)],
                                partitioning=None)  # fmt: skip
    except (pa.ArrowException, OSError, KeyError) as error:
        sentence = str(error).splitlines()[0]
        raise UserError(
            f"{path} is not a readable table ({sentence}): make it again with 'gpustudy metrics'."
        ) from error
    for name in optional or ():
        if name not in known:
            content = content.append_column(name, pa.nulls(len(content), pa.float64()))
    return content
