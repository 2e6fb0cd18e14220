"""Reads what Nsight Compute says while it profiles: its log file, and what it prints beside it.

A launch is one line ``==PROF== Profiling "NAME" - ID[ (I/N)]: 0%....50%....100% - P passes`` (before 2021 without its
ID); a launch that failed stops before ``100%``, and other messages may break into the line. Names are function names
without namespace, template arguments and parameters, cut to 29 characters and ``...`` when longer than 32.
Observed in logs of versions 2019 to 2025.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

CUT_MARK = "..."
"""Ends a kernel name that the log gives only the beginning of."""

_LAUNCH = re.compile(r'^==PROF== Profiling "(?P<name>[^"]*)"(?: - \d+)?(?: \(\d+/\d+\))?: ?(?P<rest>.*)$', re.MULTILINE)
_PASSES = re.compile(r"100% - (\d+) pass(?:es)?\b")
_CONNECTED = re.compile(r"^==PROF== Connected to process (\d+) \((.+)\)\s*$", re.MULTILINE)
_MESSAGE = re.compile(r"^==(ERROR|WARNING)== ?(.*\S)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class ProfiledLaunch:
    """One launch that the log names.

    Attributes:
        name: function name of the kernel, perhaps cut (see ``CUT_MARK``).
        passes: how often the kernel was replayed; 0 when profiling it did not come to its end.
    """

    name: str
    passes: int

    @property
    def is_complete(self) -> bool:
        """Whether ncu reported the launch as profiled to the end."""
        return self.passes > 0


@dataclass(frozen=True)
class NcuLog:
    """What a log holds.

    Attributes:
        launches: every launch that ncu began to profile, in order.
        processes: (process id, path of the executable) of every process that ncu connected to.
        errors: texts of the ``==ERROR==`` lines, in order.
        warnings: texts of the ``==WARNING==`` lines, in order.
    """

    launches: tuple[ProfiledLaunch, ...]
    processes: tuple[tuple[int, str], ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def complete(self) -> tuple[ProfiledLaunch, ...]:
        """The launches that were profiled to the end."""
        return tuple(launch for launch in self.launches if launch.is_complete)


def parse_log(text: str) -> NcuLog:
    """Return what the text of a log holds; an unfinished last line is read as far as it goes."""
    launches = tuple(ProfiledLaunch(match["name"], _passes(match["rest"])) for match in _LAUNCH.finditer(text))
    messages = [(match[1], match[2]) for match in _MESSAGE.finditer(text)]
    return NcuLog(
        launches=launches,
        processes=tuple((int(match[1]), match[2]) for match in _CONNECTED.finditer(text)),
        errors=tuple(message for kind, message in messages if kind == "ERROR"),
        warnings=tuple(message for kind, message in messages if kind == "WARNING"),
    )


def _passes(rest: str) -> int:
    match = _PASSES.search(rest)
    return int(match[1]) if match else 0
