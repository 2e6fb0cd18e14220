"""The launches of the census, read as far as a figure needs: one step of them, or their work summed up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from gpustudy.base.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

STEP = 0
"""The step of the census that is drawn: the first."""

_STEP_COLUMNS = ["phase", "class", "start_ns", "duration_ns"]
_WORK_KEYS = ["phase", "class", "operator", "input_shapes", "name"]


def one_step(path: Path) -> pd.DataFrame:
    """Return phase, class, start_ns and duration_ns of the launches of one step, by start."""
    table = _read(path, _STEP_COLUMNS, [("step", "==", STEP)])
    frame: pd.DataFrame = table.to_pandas()
    return frame.sort_values("start_ns", ignore_index=True)


def work(path: Path) -> pd.DataFrame:
    """Return what one step of a census does, summed up by phase, class, operator, shapes and name.

    Returns:
        The keys as columns, with ``launches`` and ``counted`` (launches whose operator's operations are known: one
        each call), ``flops`` and ``duration_ns``; all per step.
    """
    table = _read(path, ["step", *_WORK_KEYS, "flops", "duration_ns"], [("step", ">=", 0)])
    steps = max(len(table.column("step").unique()), 1)
    sums = table.group_by(_WORK_KEYS).aggregate(
        [("duration_ns", "count"), ("flops", "count"), ("flops", "sum"), ("duration_ns", "sum")]
    )
    frame: pd.DataFrame = sums.to_pandas()
    frame = frame.rename(
        columns={
            "duration_ns_count": "launches",
            "flops_count": "counted",
            "flops_sum": "flops",
            "duration_ns_sum": "duration_ns",
        }
    )
    numbers = ["launches", "counted", "flops", "duration_ns"]
    frame[numbers] = frame[numbers].fillna(0) / steps
    return frame


def _read(path: Path, columns: list[str], filters: list[tuple[str, str, Any]]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path, columns=columns, filters=filters, partitioning=None)
    except (pa.ArrowException, OSError) as error:
        sentence = str(error).splitlines()[0]
        raise UserError(
            f"{path} is not a readable table ({sentence}): make it again with 'gpustudy metrics'."
        ) from error
