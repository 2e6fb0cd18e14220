"""Raw files of one stage of one cell -> its metrics directory: Parquet tables, and last of all metrics.json."""

from __future__ import annotations

import importlib
import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpustudy.base.atomic import atomic_directory, write_json
from gpustudy.base.digests import file_sha256
from gpustudy.base.errors import UserError
from gpustudy.base.status import STATUS_FILE, Status, read_status
from gpustudy.metrics.cells import CRAFTED, Row, outcome_row, seconds_row
from gpustudy.metrics.schemas import Identity, write_table

METRICS_FILE = "metrics.json"
METRICS_SCHEMA = 1
_CELLS = "cells.parquet"

_STAGES = {
    "train": "gpustudy.metrics.train:train_tables",
    "census": "gpustudy.metrics.census:census_tables",
    "counters": "gpustudy.metrics.ncu.tables:counters_tables",
    "quality": "gpustudy.metrics.quality:quality_tables",
}
"""Stage -> function (raw, out, identity) that writes its tables and returns rows of the cells table; imported only
when called, because some import much."""


def make_metrics(raw: Path, out: Path, metrics_key: str) -> None:
    """Make the metrics directory ``out`` from the raw stage directory ``raw``, whole or not at all.

    A stage that is not done still gives its outcome as a row of the cells table.

    Args:
        raw: directory with status.json, cell.json and the raw files.
        out: directory to write; one that is there already is replaced.
        metrics_key: key of the metrics, kept in metrics.json.

    Raises:
        UserError: a raw file is missing, is not what status.json says, or cannot be read.
    """
    status = read_status(raw)
    check_sums(raw, status)
    identity = read_identity(raw, status)
    with atomic_directory(out) as directory:
        rows = _stage_tables(status.stage)(raw, directory, identity) if status.state == "done" else []
        rows.append(seconds_row(status) if status.state == "done" else outcome_row(status))
        if _provenance(raw).get("origin") == CRAFTED:  # whatever made them, they cannot become measured here
            rows = [row | {"origin": CRAFTED} for row in rows]
        write_table(directory / _CELLS, "cells", rows, identity)
        write_json(directory / METRICS_FILE, _manifest(raw, directory, status, metrics_key))


def check_sums(raw: Path, status: Status) -> None:
    """Compare every raw file with its sum in status.json.

    Raises:
        UserError: naming the first file that is missing or differs.
    """
    again = "copy the directory again, or set the stage aside with 'gpustudy retry' and run it again"
    for name, recorded in sorted(status.files.items()):
        path = raw / name
        if not path.is_file():
            raise UserError(f"{path} is missing, though {raw / STATUS_FILE} lists it: {again}.")
        if path.stat().st_size != recorded["bytes"] or file_sha256(path) != recorded["sha256"]:
            raise UserError(
                f"{path} is not the file that {raw / STATUS_FILE} describes (its SHA-256 differs): {again}."
            )


def read_identity(raw: Path, status: Status) -> Identity:
    """Return gpu, config, repeat and key of the stage, from cell.json.

    Raises:
        UserError: cell.json is not readable, or is of another stage or key than status.json.
    """
    path = raw / "cell.json"
    try:
        cell = json.loads(path.read_text())
        document = cell["document"]
        identity = Identity(document["gpu"]["name"], cell["labels"]["config"], document["repeat"], cell["key"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is not a readable cell ({type(error).__name__}: {error}): run it again.") from error
    if (document.get("stage"), identity.key) != (status.stage, status.key):
        raise UserError(
            f"{path} is of stage {document.get('stage')} {identity.key}, but {raw / STATUS_FILE} of "
            f"{status.stage} {status.key}: the directory is mixed up, run the stage again."
        )
    return identity


def _stage_tables(stage: str) -> Callable[[Path, Path, Identity], list[Row]]:
    module, _, function = _STAGES[stage].partition(":")
    found: Callable[[Path, Path, Identity], list[Row]] = getattr(importlib.import_module(module), function)
    return found


def _manifest(raw: Path, directory: Path, status: Status, metrics_key: str) -> dict[str, Any]:
    import pyarrow as pa

    files = sorted(path for path in directory.rglob("*") if path.is_file())
    described = {path.relative_to(directory).as_posix(): _describe(path) for path in files}
    return {
        "schema": METRICS_SCHEMA,
        "stage": status.stage,
        "key": status.key,
        "metrics_key": metrics_key,
        "state": status.state,
        "reason": status.reason,
        "detail": status.detail,
        "null_control": list(status.null_control),
        "provenance": _provenance(raw),
        "raw": {
            "status_sha256": file_sha256(raw / STATUS_FILE),
            "files": {name: recorded["sha256"] for name, recorded in status.files.items()},
        },
        "tables": {name: about for name, about in described.items() if name.endswith(".parquet")},
        "files": {name: about for name, about in described.items() if not name.endswith(".parquet")},
        "made_with": {"python": platform.python_version(), "pyarrow": pa.__version__},
    }


def _provenance(raw: Path) -> dict[str, Any]:
    """Return where and with what the raw files were made; empty for a stage that ended before it knew."""
    path = raw / "provenance.json"
    if not path.is_file():
        return {}
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise UserError(f"{path} is no JSON ({error}): run the stage again.") from error
    return content


def _describe(path: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    about: dict[str, Any] = {"sha256": file_sha256(path), "bytes": path.stat().st_size}
    if path.suffix == ".parquet":
        about["rows"] = pq.read_metadata(path).num_rows
    return about
