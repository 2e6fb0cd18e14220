"""Metrics of the stage ``train``: the steps table, and what a repeat comes down to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpustudy.base.errors import UserError
from gpustudy.metrics.cells import Row, cell_row, median_row
from gpustudy.metrics.schemas import Identity, write_table

_STAGE = "train"
_NS_PER_S = 1e9


def train_tables(raw: Path, out: Path, identity: Identity) -> list[Row]:
    """Write steps.parquet from steps.jsonl and return the rows of the cells table.

    Raises:
        UserError: a line is not readable, or no step was measured.
    """
    steps = read_lines(raw / "steps.jsonl")
    try:
        write_table(out / "steps.parquet", "steps", steps, identity)
    except (ValueError, TypeError) as error:
        raise UserError(f"{raw / 'steps.jsonl'} does not hold steps ({error}): run the stage again.") from error
    measured = [step for step in steps if step["phase"] == "measured"]
    if not measured:
        raise UserError(f"{raw / 'steps.jsonl'} holds no measured step: run the stage again.")
    memory = json.loads((raw / "memory.json").read_text())
    waits = [step["data_wait_ns"] for step in measured]
    rows = [
        median_row(_STAGE, "step_s", [step["step_ns"] / _NS_PER_S for step in measured]),
        median_row(_STAGE, "data_wait_s", [wait / _NS_PER_S for wait in waits]),
        cell_row(_STAGE, "data_wait_share", sum(waits) / sum(step["step_ns"] for step in measured), n=len(waits)),
        cell_row(_STAGE, "loss_first", measured[0]["loss"], scope="step"),
        cell_row(_STAGE, "loss_last", measured[-1]["loss"], scope="step"),
        cell_row(_STAGE, "peak_memory_bytes", memory["peak_bytes"], memory["kind"]),
    ]
    if memory.get("estimate_bytes") is not None:
        rows.append(cell_row(_STAGE, "memory_estimate_bytes", memory["estimate_bytes"], origin="modelled"))
    return rows


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines.

    Raises:
        UserError: a line is not a JSON object.
    """
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}: line {number} is not JSON ({error}): run the stage again.") from error
        rows.append(row)
    return rows
