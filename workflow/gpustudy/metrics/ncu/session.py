"""What a report tells about its session: versions, devices, command line, in block headers; clocks, in a result.

NVIDIA's reader does not give these facts. Field numbers are those of the published format's SessionDetails and
ProfileResult.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from gpustudy.base.errors import UserError
from gpustudy.metrics.ncu.container import SESSION, Container, Process, first_kernel
from gpustudy.metrics.ncu.wire import WireError, decode

_CREATED, _DEVICE, _VERSION, _COMMAND_LINE = 2, 6, 8, 11
_NAME, _VALUE = 1, 2
_CLOCK_STATUS = 25
"""Field of a kernel's result: whether a lock of the clocks was asked for (1) and whether they were locked (2)."""

_VERSION_NAMES = {
    "Nsight Compute Target": "ncu_version",
    "Display Driver Version": "driver",
    "CUDA Version": "cuda",
    "PerfWorks": "perfworks",
}

_DEFAULTS = {"clock-control": "base", "cache-control": "all", "replay-mode": "kernel"}
"""What ncu does when the option is not given (Nsight Compute CLI documentation, "Profile" options)."""


@dataclass(frozen=True)
class Session:
    """The facts of one profiling session; None where the file does not tell.

    Attributes:
        ncu_version: such as ``2024.1.1.0 (build 33998838) (public-release)``.
        driver: version of the display driver.
        cuda: CUDA version that the driver supports.
        perfworks: version of the counter library.
        created: when the session began, UTC, ISO 8601.
        command_line: ncu's command line.
        settings: ``clock_control``, ``cache_control`` and ``replay_mode``; ncu's default where the command line
            does not set them. Of a file without a command line, ``clock_control`` alone, by the lock asked for.
        clocks_locked: whether the clocks were locked for the first kernel, whatever was asked for.
        devices: name of each device by its number.
        processes: the processes that launched the results.
    """

    ncu_version: str | None = None
    driver: str | None = None
    cuda: str | None = None
    perfworks: str | None = None
    created: str | None = None
    command_line: str | None = None
    settings: dict[str, str] = field(default_factory=dict)
    clocks_locked: bool | None = None
    devices: dict[int, str] = field(default_factory=dict)
    processes: tuple[Process, ...] = ()


def read_session(container: Container) -> Session:
    """Collect the session facts from the headers of all blocks; a later block adds to an earlier one's.

    Raises:
        UserError: they are no valid messages.
    """
    try:
        return _collect(container)
    except WireError as error:
        raise UserError(
            f"{container.path} is damaged in what it says of its session ({error}): copy or profile it again."
        ) from error


def _collect(container: Container) -> Session:
    facts: dict[str, Any] = {}
    devices: dict[int, str] = {}
    for number, value in _session_fields(container):
        if number == _CREATED and isinstance(value, int):
            facts.setdefault("created", datetime.fromtimestamp(value, timezone.utc).isoformat())
        elif number == _COMMAND_LINE and isinstance(value, bytes):
            facts["command_line"] = _text(value)
        elif number == _VERSION and isinstance(value, bytes):
            parts = _message(value)
            if name := _VERSION_NAMES.get(_text(parts.get(_NAME))):
                facts[name] = _text(parts.get(_VALUE))
        elif number == _DEVICE and isinstance(value, bytes):
            parts = _message(value)
            devices[int(parts.get(_NAME, 0))] = _text(parts.get(_VALUE))
    is_asked, facts["clocks_locked"] = _clock_status(container)
    if "command_line" in facts:
        facts["settings"] = control_settings(facts["command_line"])
    elif is_asked is not None:
        facts["settings"] = {"clock_control": "base" if is_asked else "none"}
    processes = tuple(dict.fromkeys(result.process for result in container.results))
    return Session(**facts, devices=devices, processes=processes)


def control_settings(command_line: str) -> dict[str, str]:
    """Return clock control, cache control and replay mode as an ncu command line sets them or leaves them."""
    try:
        words = shlex.split(command_line)
    except ValueError:
        words = command_line.split()
    found = dict(_DEFAULTS)
    for word, following in zip(words, [*words[1:], ""], strict=True):
        option, equals, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and option in found:
            found[option] = value if equals else following
    return {option.replace("-", "_"): value for option, value in found.items()}


def _clock_status(container: Container) -> tuple[bool | None, bool | None]:
    """Return whether a lock of the clocks was asked for and whether they were locked; None where nothing tells."""
    status: dict[int, Any] = {}
    try:
        for number, _, value in decode(first_kernel(container) or b""):
            if number == _CLOCK_STATUS and isinstance(value, bytes):
                status = _message(value)
    except WireError:
        return None, None  # NVIDIA's reader will tell
    asked, locked = status.get(1), status.get(2)
    return None if asked is None else bool(asked), None if locked is None else bool(locked)


def _session_fields(container: Container) -> Iterator[tuple[int, int | bytes]]:
    for block in container.blocks:
        for number, _, value in block.header:
            if number == SESSION and isinstance(value, bytes):
                for inner, _, content in decode(value):
                    yield inner, content


def _message(data: bytes) -> dict[int, Any]:
    """Return a small message's fields by number: the first of each."""
    fields: dict[int, Any] = {}
    for number, _, value in decode(data):
        fields.setdefault(number, value)
    return fields


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""
