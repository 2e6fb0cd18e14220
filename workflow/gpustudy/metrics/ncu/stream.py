"""A Parquet writer for tables too large to hold: batches go out as they come, in the schema of ``schemas.py``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gpustudy.metrics.ncu.batch import NO_VALUE, NUMBER, WHOLE, Batch
from gpustudy.metrics.schemas import Identity, arrow_schema


class TableStream:
    """Writes one table of ``schemas.TABLES`` batch by batch; rows must come in the table's order.

    The file is complete only after ``close``: write it into a directory that takes its place as a whole.
    """

    def __init__(self, path: Path, table: str) -> None:
        self._schema = arrow_schema(table)
        self._writer = pq.ParquetWriter(path, self._schema, compression="zstd", store_schema=True)
        self.rows = 0

    def __enter__(self) -> TableStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def write(self, columns: Mapping[str, Any], count: int, identity: Identity) -> None:
        """Write ``count`` rows; a column is an array, a list, or one value for all rows."""
        if not count:
            return
        given = identity._asdict() | dict(columns)
        arrays = [_array(given.get(field.name), field.type, count) for field in self._schema]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self.rows += count


def _array(values: Any, kind: pa.DataType, count: int) -> pa.Array:
    if isinstance(values, pa.Array):
        return values.cast(kind)
    if values is None or isinstance(values, (str, int, float)):
        return pa.repeat(pa.scalar(values, type=kind), count)
    return pa.array(values, type=kind, from_pandas=False)


def value_columns(batch: Batch, report: str) -> dict[str, Any]:
    """Return the columns of ``counter_values`` for the rows of a batch."""
    rows = batch.columns
    positions = pa.array([launch.position for launch in batch.launches], type=pa.int64())
    strings = pa.array(batch.strings, type=pa.string())
    return {
        "report": report,
        "launch": positions.take(pa.array(rows.launch)),
        "metric": pa.array(batch.metrics, type=pa.string()).take(pa.array(rows.metric)),
        "instance": pa.array(rows.instance, mask=rows.instance == WHOLE),
        "correlation": strings.take(pa.array(rows.correlation, mask=rows.correlation < 0)),
        "value": pa.array(rows.value, mask=rows.kind != NUMBER),
        "unit": pa.array(batch.units, type=pa.string()).take(pa.array(rows.metric)),
        "text": strings.take(pa.array(rows.text, mask=(rows.text < 0) | (rows.kind == NO_VALUE))),
    }
