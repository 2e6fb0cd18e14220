"""The layouts table: operator calls of the layout run, summed by place and memory format."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from gpustudy.metrics.cells import Row, cell_row
from gpustudy.metrics.schemas import Identity, write_table

_STAGE = "census"
_VOLUME_DIMENSIONS = 5
"""Dimensions of (B, C, D, H, W): the tensors that have a channels-last form here."""

_BITS_PER_BYTE = 8
_CHANNELS_LAST = "channels_last_3d"
_Key = tuple[str, str, str, str, str, str | None]


def layout_tables(raw: Path, out: Path, identity: Identity) -> list[Row]:
    """Write layouts.parquet from layouts.jsonl.gz and return the rows of the cells table."""
    calls: Counter[_Key] = Counter()
    sizes: Counter[_Key] = Counter()
    with gzip.open(raw / "layouts.jsonl.gz", "rt", encoding="utf-8") as stream:
        for line in stream:
            record = json.loads(line)
            key = _key(record)
            calls[key] += 1
            sizes[key] += tensor_bytes(record["output"]) if record["output"] else 0
    names = ("phase", "module", "operator", "input_format", "output_format", "conversion")
    rows: list[Row] = [dict(zip(names, key, strict=True)) | {"calls": calls[key], "bytes": sizes[key]} for key in calls]
    write_table(out / "layouts.parquet", "layouts", rows, identity)
    return [*_conversion_rows(rows), *_channels_last_rows(rows)]


def tensor_bytes(tensor: Mapping[str, Any]) -> int:
    """Return the size in bytes of a recorded tensor (its shape and dtype, such as bfloat16)."""
    bits = re.search(r"\d+", tensor["dtype"])
    each = int(bits[0]) // _BITS_PER_BYTE if bits else 1  # without a number: bool
    return each * prod(int(size) for size in tensor["shape"])


def _key(record: Mapping[str, Any]) -> _Key:
    return (
        record["phase"],
        record["module"],
        record["op"],
        _formats(record["inputs"]),
        record["output"]["format"] if record["output"] else "",
        record["conversion"],
    )


def _formats(tensors: Sequence[Mapping[str, Any]]) -> str:
    """Return the formats of the volumes among ``tensors`` (of all, where none is a volume), sorted, joined by +."""
    volumes = [tensor for tensor in tensors if len(tensor["shape"]) == _VOLUME_DIMENSIONS] or tensors
    return "+".join(sorted({tensor["format"] for tensor in volumes}))


def _conversion_rows(rows: Iterable[Row]) -> list[Row]:
    """Return how many layout conversions each phase has, and how many bytes they write."""
    calls: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for row in rows:
        converts = row["conversion"] is not None
        calls[row["phase"]] += row["calls"] if converts else 0
        sizes[row["phase"]] += row["bytes"] if converts else 0
    made = []
    for phase in sorted(calls):
        made.append(cell_row(_STAGE, "layout_conversions", calls[phase], scope="layout_run", phase=phase))
        made.append(cell_row(_STAGE, "layout_conversion_bytes", sizes[phase], "layout_run", phase=phase))
    return made


def _channels_last_rows(rows: Iterable[Row]) -> list[Row]:
    """Return, per phase, the share of convolutions that got a channels-last volume."""
    total: Counter[str] = Counter()
    last: Counter[str] = Counter()
    for row in rows:
        if "convolution" in row["operator"]:
            total[row["phase"]] += row["calls"]
            last[row["phase"]] += row["calls"] if _CHANNELS_LAST in row["input_format"].split("+") else 0
    return [
        cell_row(_STAGE, "channels_last_share", last[phase] / total[phase], scope="layout_run", phase=phase, n=count)
        for phase, count in sorted(total.items())
    ]
