"""The folder of a training run outside the study: what the run is, its log, its claim by one process."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpustudy.base.atomic import write_json, write_text
from gpustudy.base.errors import UserError

RUN_FILE = "run.json"
STEPS_FILE = "steps.jsonl"
MODEL_FILE = "model.pt"
_LOCK_FILE = ".lock"
_PART_GLOBS = (".checkpoint-*.part.pt", ".model.*.part.pt", ".run.*.part.json", ".steps.*.part.jsonl")
"""What a killed writer of a run leaves behind (see ``base.atomic``)."""

RUN_SCHEMA = 1
_RECORD: dict[str, type] = {
    "data": str,
    "model.image_channels": int,
    "model.mask_channels": int,
    "model.base_channels": int,
    "model.channel_mult": list,
    "model.res_blocks": int,
    "model.attention_downsamples": list,
    "model.volume": list,
    "settings.train.timesteps": int,
}
"""What is read of a run's record, beside ``data_key``, which data of one's own may lack."""
_NOUNS = {str: "a text", int: "a whole number", list: "a list"}


@contextmanager
def claimed(out: Path, record: Mapping[str, Any], resume: bool) -> Iterator[None]:
    """Hold the folder of a run for this process; ``write_run`` is for when nothing about it is refused any more.

    Raises:
        UserError: the folder holds a run and ``resume`` is false, or holds none or another one and it is true,
            or another process trains in it.
    """
    if resume:
        _check_resumable(out, record)
    elif not _is_vacant(out):
        raise UserError(f"{out} is not empty: add --resume to go on with the run in it, or give a new folder.")
    out.mkdir(parents=True, exist_ok=True)
    with (out / _LOCK_FILE).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"another process trains in {out}: wait for it, or give another folder.") from error
        for part in _parts(out):
            part.unlink(missing_ok=True)
        yield


def write_run(out: Path, record: Mapping[str, Any]) -> None:
    """Write what the run in ``out`` is, in place of what was written before."""
    write_json(out / RUN_FILE, {"schema": RUN_SCHEMA, **record})


def read_run(out: Path) -> dict[str, Any]:
    """Return what the run in ``out`` is.

    Raises:
        UserError: there is no run, or its file cannot be read.
    """
    path = out / RUN_FILE
    try:
        record: dict[str, Any] = json.loads(path.read_text())
        if record["schema"] != RUN_SCHEMA:
            raise ValueError(f"unknown schema {record['schema']}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path} is not a readable run ({error}): give the folder of a run.") from error
    for name, kind in _RECORD.items():
        if not isinstance(_value_at(record, name), kind):
            raise UserError(f"{path} has no {name} that is {_NOUNS[kind]}: give the folder of a run.")
    return record


def forget_steps_after(out: Path, iteration: int) -> None:
    """Drop the lines of the log that come after the checkpoint a run goes on from."""
    path = out / STEPS_FILE
    if path.exists():
        lines = path.read_text().splitlines(keepends=True)
        write_text(path, "".join(lines[:iteration]))


def _value_at(record: Any, name: str) -> Any:
    """Return what stands under a dotted name, None where there is no such key."""
    for key in name.split("."):
        record = record.get(key) if isinstance(record, dict) else None
    return record


def _is_vacant(out: Path) -> bool:
    """Tell whether the folder holds nothing but what a run leaves that was killed before it wrote what it is."""
    return not out.exists() or set(out.iterdir()) <= {out / _LOCK_FILE, *_parts(out)}


def _parts(out: Path) -> list[Path]:
    return [path for pattern in _PART_GLOBS for path in out.glob(pattern)]


def _check_resumable(out: Path, record: Mapping[str, Any]) -> None:
    if _is_vacant(out):
        raise UserError(f"{out} holds no {RUN_FILE}, as no run got that far in it: start one without --resume.")
    before = read_run(out)
    for name in ("data_key", "model"):
        now = json.loads(json.dumps(record[name]))
        if before.get(name) != now:
            raise UserError(
                f"{out} was started with {name} {before.get(name)}, not {now}: give the same, or a new folder."
            )
