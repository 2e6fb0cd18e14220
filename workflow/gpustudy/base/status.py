"""Status files: the last file a stage writes, saying how it ended and what it left.

States: ``done``; ``unsupported`` (the device or the stack lacks an optimisation); ``failed`` (a fact about
the science, such as out of memory); ``unavailable`` (a fact about the place, such as counters not permitted).
Anything else (a dead node, a full disk) writes no status at all and exits non-zero.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpustudy.base.atomic import write_json
from gpustudy.base.digests import file_sha256
from gpustudy.base.errors import UserError

STATUS_FILE = "status.json"
STATUS_SCHEMA = 1
STATES = ("done", "unsupported", "failed", "unavailable")


@dataclass(frozen=True)
class Status:
    """How one stage of one cell ended.

    Attributes:
        stage: name of the stage.
        key: key of the stage, as in its path.
        state: one of ``STATES``.
        reason: short code of the outcome, such as ``oom`` or ``permission``; empty when done.
        detail: one sentence for a person: what happened and what to do next; empty when done.
        null_control: optimisations that this device cannot apply and that were left out on purpose.
        seconds: wall time of the stage.
        files: SHA-256 and size in bytes of every raw file beside the status file.
    """

    stage: str
    key: str
    state: str
    reason: str = ""
    detail: str = ""
    null_control: tuple[str, ...] = ()
    seconds: float = 0.0
    files: dict[str, dict[str, Any]] = field(default_factory=dict)


def write_status(directory: Path, status: Status) -> None:
    """Write ``status`` into ``directory`` as its last file, with the sums of the files found there."""
    if status.state not in STATES:
        raise ValueError(f"unknown state {status.state!r}")
    sums = {
        file.relative_to(directory).as_posix(): {"sha256": file_sha256(file), "bytes": file.stat().st_size}
        for file in sorted(directory.rglob("*"))
        if file.is_file() and file.name != STATUS_FILE
    }
    content = asdict(status) | {"schema": STATUS_SCHEMA, "files": sums}
    write_json(directory / STATUS_FILE, content)


def read_status(directory: Path) -> Status:
    """Read the status file of a stage's directory.

    Raises:
        UserError: the file is absent, is not JSON, or is of another schema.
    """
    path = directory / STATUS_FILE
    try:
        text = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from error
    return parse_status(text, path)


def parse_status(text: bytes, path: Path | str) -> Status:
    """Return what the content of a status file says.

    Raises:
        UserError: it is not JSON, or is of another schema; ``path`` says where it stands.
    """
    try:
        content = json.loads(text)
        if not isinstance(content, dict):
            raise ValueError("it is no mapping")
        if content.pop("schema") != STATUS_SCHEMA:
            raise ValueError("its schema is unknown")
        status = Status(**(content | {"null_control": tuple(content["null_control"])}))
        if status.state not in STATES:
            raise ValueError(f"its state {status.state!r} is unknown")
        texts = (status.stage, status.key, status.reason, status.detail, *status.null_control)
        sums = status.files.values()
        if not all(isinstance(text, str) for text in texts) or not all(isinstance(one["sha256"], str) for one in sums):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unreadable(path, error) from error
    return status


def _unreadable(path: Path | str, error: Exception) -> UserError:
    return UserError(
        f"{path} is not a readable status file ({what_is_wrong(error)}): set the stage aside with 'gpustudy retry' and "
        "run again."
    )


def what_is_wrong(error: Exception) -> str:
    """Return in words why a record of JSON could not be read, from what reading its fields raised."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)):
        return f"it is no JSON: {error}"
    if isinstance(error, KeyError):
        return f"it has no field {error}"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, (TypeError, AttributeError)):
        return "its fields are not those that are written, or of another type"
    return str(error)
