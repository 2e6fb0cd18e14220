"""Every Parquet table of the study as data: columns with type, unit and meaning; one writer, one reader.

A table begins with the identity of what was measured (gpu, config, repeat, key). Units stand in the column
names (``duration_ns``) and, with the meaning, in each field's metadata, so that a file explains itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpustudy.base.atomic import atomic_path
from gpustudy.base.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION = 1
"""Raised when a column changes its name, type, unit or meaning: files of another version are refused."""

_TABLE_KEY, _VERSION_KEY = b"gpustudy.table", b"gpustudy.schema"
_UNIT_KEY, _MEANING_KEY = b"unit", b"meaning"


@dataclass(frozen=True)
class Column:
    """One column: its name, its Arrow type by name, the unit of its values and what they mean."""

    name: str
    type: str
    unit: str
    meaning: str
    nullable: bool = False


@dataclass(frozen=True)
class Table:
    """One Parquet table.

    Attributes:
        row: what one row is.
        columns: the columns after the identity, in file order.
        order: columns that rows are sorted by when written, so that equal content is equal bytes.
        is_open: whether further columns may follow the fixed ones (the catalogue's metrics in ``counters``).
    """

    row: str
    columns: tuple[Column, ...]
    order: tuple[str, ...]
    is_open: bool = False


class Identity(NamedTuple):
    """Which cell's stage the rows belong to."""

    gpu: str
    config: str
    repeat: int
    key: str


IDENTITY = (
    Column("gpu", "string", "", "GPU of the cell, as named in config.yaml; for a foreign file, its device's name"),
    Column("config", "string", "", "configuration of the cell; for a foreign file, its file name"),
    Column("repeat", "int32", "", "repeat of the cell, from 1; 0 for a foreign file"),
    Column("key", "string", "", "key of the measuring stage; for a foreign file, its SHA-256's first 12 hex digits"),
)

_PHASE = Column("phase", "string", "", "forward, backward, optimiser, data or other")
_CLASS = Column("class", "string", "", "kernel class, from metrics/kernel_classes.csv")
_GRID = Column("grid", "list<int32>", "blocks", "grid size (x, y, z); null for an operator or a copy", nullable=True)
_BLOCK = Column(
    "block", "list<int32>", "threads", "block size (x, y, z); null for an operator or a copy", nullable=True
)
_REGISTERS = Column("registers_per_thread", "int32", "registers/thread", "registers of a thread", nullable=True)
_SHARED = Column("shared_memory_bytes", "int64", "B", "shared memory of a block, static and dynamic", nullable=True)

_LAUNCH_KEY = (
    Column("report", "string", "", "file name of the report"),
    Column("launch", "int64", "", "position of the launch in the report, from 0"),
)

TABLES: dict[str, Table] = {
    "steps": Table(
        row="one optimiser step, timed without a profiler",
        columns=(
            Column("iteration", "int32", "", "optimiser step, from 1, warm-up included"),
            Column("phase", "string", "", "warmup or measured"),
            Column("step_ns", "int64", "ns", "time of the step: accumulated micro-batches, optimiser, EMA"),
            Column("loss", "float64", "", "training loss of the step; NaN when training diverged"),
            Column("data_wait_ns", "int64", "ns", "part of the step spent waiting for the loader"),
            Column("peak_memory_bytes", "int64", "B", "highest memory in use so far (device; on cpu, the process)"),
        ),
        order=("iteration",),
    ),
    "launches": Table(
        row="one launch of the census on a GPU (kernel, copy or memset); on the CPU, one operator with its self time",
        columns=(
            Column("step", "int32", "", "steady step of the census, from 0; -1 outside every step"),
            _PHASE,
            Column("stream", "int32", "", "stream of the launch; null on the CPU", nullable=True),
            Column("name", "string", "", "name of the kernel (demangled), copy, memset or operator"),
            _CLASS,
            _GRID,
            _BLOCK,
            _REGISTERS,
            _SHARED,
            Column("start_ns", "int64", "ns", "start, from the first event of the trace"),
            Column("duration_ns", "int64", "ns", "duration on the device; on the CPU, self time (children taken off)"),
            Column("operator", "string", "", "CPU operator that launched it; null when unknown", nullable=True),
            Column("input_shapes", "string", "", "shapes of the operator's inputs, as JSON", nullable=True),
            Column("flops", "int64", "FLOP", "operations of the operator by shape, on its first launch", nullable=True),
        ),
        order=("step", "start_ns", "stream", "name", "duration_ns"),
    ),
    "layouts": Table(
        row="one operator at one place of the model with one pair of memory formats",
        columns=(
            _PHASE,
            Column("module", "string", "", "module that called the operator; empty outside every module"),
            Column("operator", "string", "", "operator, with its overload"),
            Column("input_format", "string", "", "memory formats of the inputs, as a sorted list joined by +"),
            Column("output_format", "string", "", "memory format of the output: contiguous, channels_last_3d, ..."),
            Column("conversion", "string", "", "contiguous, copy_, to or clone when the layout changes", nullable=True),
            Column("calls", "int64", "", "number of calls"),
            Column("bytes", "int64", "B", "size of the outputs of all these calls"),
        ),
        order=("phase", "module", "operator", "input_format", "output_format", "conversion"),
    ),
    "cells": Table(
        row="one quantity of one stage of one cell",
        columns=(
            Column("stage", "string", "", "train, census, counters or quality"),
            Column("quantity", "string", "", "name of the quantity, with its unit where it has one"),
            Column("scope", "string", "", "what the value is over: total, step, launch_median, first_n, label_N, ..."),
            Column("kernel_class", "string", "", "kernel class, where the value is of one", nullable=True),
            Column("phase", "string", "", "phase of the step, where the value is of one", nullable=True),
            Column("value", "float64", "", "the value, in the row's unit; null when the stage has none", nullable=True),
            Column("low", "float64", "", "lower end of the interval", nullable=True),
            Column("high", "float64", "", "upper end of the interval", nullable=True),
            Column("n", "int32", "", "number of observations behind the value", nullable=True),
            Column("interval", "string", "", "method and level of the interval", nullable=True),
            Column("unit", "string", "", "unit of value, low and high; empty for a pure number"),
            Column("state", "string", "", "state of the stage: done, unsupported(...), failed(...), unavailable(...)"),
            Column("origin", "string", "", "measured, modelled or crafted"),
        ),
        order=("stage", "quantity", "scope", "kernel_class", "phase"),
    ),
    "counters": Table(
        row="one profiled launch, with the catalogue's metrics as further columns",
        columns=(
            *_LAUNCH_KEY,
            Column("kind", "string", "", "kernel, range, graph or cmdlist"),
            Column("process_id", "int64", "", "process that launched it", nullable=True),
            Column("process", "string", "", "name of that process", nullable=True),
            Column("host", "string", "", "host of that process", nullable=True),
            Column("device", "string", "", "name of the device", nullable=True),
            Column("device_id", "int32", "", "number of the device", nullable=True),
            Column("compute_capability", "string", "", "such as 8.0", nullable=True),
            Column("context", "int64", "", "CUDA context", nullable=True),
            Column("stream", "int64", "", "CUDA stream", nullable=True),
            Column("name", "string", "", "name of the kernel, demangled"),
            Column("mangled_name", "string", "", "name of the kernel as linked", nullable=True),
            _CLASS,
            _PHASE,
            _GRID,
            _BLOCK,
            _REGISTERS,
            _SHARED,
            Column("nvtx", "string", "", "NVTX ranges around the launch, outermost first, joined by /", nullable=True),
            Column("lacking", "string", "", "quantities that are null, by reason, as JSON", nullable=True),
            Column("doubtful", "string", "", "quantities below 0 or above 100 %, kept, as JSON", nullable=True),
        ),
        order=("report", "launch"),
        is_open=True,
    ),
    "counter_values": Table(
        row="one value of one metric of one profiled launch",
        columns=(
            *_LAUNCH_KEY,
            Column("metric", "string", "", "name of the metric in the report"),
            Column("instance", "int32", "", "position of the instance; null for the whole", nullable=True),
            Column("correlation", "string", "", "what the instance stands for (an opcode, an address)", nullable=True),
            Column("value", "float64", "", "the value in base units; null for a text", nullable=True),
            Column("unit", "string", "", "base unit of the value", nullable=True),
            Column("text", "string", "", "the value of a text metric, or a number that float64 rounds", nullable=True),
        ),
        order=("report", "launch", "metric", "instance"),
    ),
    "rules": Table(
        row="one guided-analysis result of one profiled launch",
        columns=(
            *_LAUNCH_KEY,
            Column("section", "string", "", "identifier of the section"),
            Column("rule", "string", "", "identifier of the rule"),
            Column("type", "string", "", "kind of the message: ok (information), optimization, warning, error, none"),
            Column("title", "string", "", "title of the message", nullable=True),
            Column("message", "string", "", "text of the message"),
            Column("speedup", "float64", "%", "estimated speed-up; null when the rule gives none", nullable=True),
            Column("speedup_kind", "string", "", "global (of the launch) or local (of a part of it)", nullable=True),
            Column("origin", "string", "", "report, or recomputed from metrics by the published formula"),
        ),
        order=("report", "launch", "section", "rule", "type", "message"),
    ),
    "priority": Table(
        row="one kernel of one report, with the time that its global estimated speed-ups promise",
        columns=(
            Column("report", "string", "", "file name of the report"),
            Column("name", "string", "", "name of the kernel, demangled"),
            _CLASS,
            Column("launches", "int32", "", "launches with a duration"),
            Column("duration_ns", "float64", "ns", "their duration in total"),
            Column("score_ns", "float64", "ns", "sum of duration x largest global speed-up", nullable=True),
            Column("score_mean_ns", "float64", "ns", "the same, mean over launches", nullable=True),
            Column("score_share_pct", "float64", "%", "score of the report's total duration", nullable=True),
            Column("score_property_ns", "float64", "ns", "the same with property__estimated_speedup", nullable=True),
            Column("largest_local_pct", "float64", "%", "largest local speed-up: no share of time", nullable=True),
            Column("origin", "string", "", "of the speed-ups: report, recomputed, or none"),
            Column("ncu_version", "string", "", "version whose rules these are: formulas change", nullable=True),
        ),
        order=("report", "name"),
    ),
}


def columns_of(table: str, extra: Sequence[Column] = ()) -> tuple[Column, ...]:
    """Return all columns of ``table`` in file order: identity, fixed ones, then ``extra`` (an open table's)."""
    definition = TABLES[table]
    if extra and not definition.is_open:
        raise ValueError(f"table {table} takes no further columns")
    return IDENTITY + definition.columns + tuple(extra)


def arrow_schema(table: str, extra: Sequence[Column] = ()) -> pa.Schema:
    """Return the Arrow schema of ``table``, with unit and meaning in each field's metadata."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float64": pa.float64(),
        "bool": pa.bool_(),
        "list<int32>": pa.list_(pa.field("element", pa.int32())),
    }
    fields = [
        pa.field(
            column.name,
            types[column.type],
            nullable=column.nullable,
            metadata={_UNIT_KEY: column.unit.encode(), _MEANING_KEY: column.meaning.encode()},
        )
        for column in columns_of(table, extra)
    ]
    return pa.schema(fields, metadata={_TABLE_KEY: table.encode(), _VERSION_KEY: str(SCHEMA_VERSION).encode()})


def write_table(
    path: Path,
    table: str,
    rows: Iterable[Mapping[str, Any]] | Mapping[str, Sequence[Any]],
    identity: Identity | None = None,
    extra: Sequence[Column] = (),
) -> int:
    """Write ``rows`` as the Parquet file ``path``, atomically and with the same bytes for the same content.

    Args:
        path: the file.
        table: name of the table, a key of ``TABLES``.
        rows: mappings (one a row), or one mapping of column name to values. A nullable column may be left out.
        identity: what all rows belong to; None when the rows carry the identity columns themselves.
        extra: further columns of an open table.

    Returns:
        The number of rows.

    Raises:
        ValueError: an unknown or missing column, a null where none may be, a value of another type.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(table, extra)
    columns = dict(rows) if isinstance(rows, Mapping) else _by_column(rows, schema.names)
    count = max((len(values) for values in columns.values()), default=0)
    if identity is not None:
        columns |= {name: [value] * count for name, value in identity._asdict().items()}
    if unknown := sorted(set(columns) - set(schema.names)):
        raise ValueError(f"table {table} has no column {unknown[0]!r}")
    arrays = []
    for field in schema:
        if field.name not in columns and not field.nullable and count:
            raise ValueError(f"table {table}: column {field.name!r} is missing")
        array = pa.array(columns.get(field.name, [None] * count), type=field.type, from_pandas=False)
        if array.null_count and not field.nullable:
            raise ValueError(f"table {table}: column {field.name!r} holds a null")
        arrays.append(array)
    content = pa.Table.from_arrays(arrays, schema=schema)
    if count:
        order = (*Identity._fields, *TABLES[table].order)
        content = content.sort_by([(name, "ascending") for name in order])
    with atomic_path(path) as temporary:
        pq.write_table(content, temporary, compression="zstd", store_schema=True)
    return count


def read_table(path: Path, table: str) -> pa.Table:
    """Read the Parquet file ``path``, which must be ``table`` in this version's schema.

    Raises:
        UserError: the file is absent, no Parquet, or of another table or schema.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    remake = "make it again with 'gpustudy metrics'"
    try:
        content = pq.read_table(path, partitioning=None)
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist: {remake}.") from error
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} is not a readable Parquet file ({str(error).splitlines()[0]}): {remake}.") from error
    if difference := _difference(content.schema, table):
        raise UserError(f"{path} is not the table '{table}' of this version ({difference}): {remake}.")
    return content


def _difference(found: pa.Schema, table: str) -> str:
    """Say in a few words how the schema ``found`` in a file differs from that of ``table``; empty if it fits."""
    metadata = found.metadata or {}
    name = metadata.get(_TABLE_KEY, b"").decode()
    version = metadata.get(_VERSION_KEY, b"").decode()
    if name != table:
        return f"it holds the table '{name}'" if name else "it was not written by gpustudy"
    if version != str(SCHEMA_VERSION):
        return f"schema version {version}, here {SCHEMA_VERSION}"
    expected = arrow_schema(table)
    for position, field in enumerate(expected):
        if position >= len(found) or not found.field(position).equals(field, check_metadata=True):
            return f"column {position + 1} is not {field.name} {field.type}"
    if len(found) > len(expected) and not TABLES[table].is_open:
        return f"unknown column {found.field(len(expected)).name}"
    return ""


def _by_column(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    """Turn rows into columns; a column that no row names is left out."""
    listed = list(rows)
    used = dict.fromkeys(name for row in listed for name in row)
    known = {name: [row.get(name) for row in listed] for name in names if name in used}
    return known | {name: [] for name in used if name not in known}
