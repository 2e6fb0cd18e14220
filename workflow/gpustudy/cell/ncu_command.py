"""The Nsight Compute command of a cell, made from its document alone.

Only options that ncu has had since 2021.2 are used. Output goes into a report and a log file, never as CSV: live
CSV mixes with the program's output and loses digits.
"""

from __future__ import annotations

import os
import re
import site
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from gpustudy.base.errors import UserError

PLAN_FILE, HEARTBEAT_FILE, RECORD_FILE = "plan.json", "heartbeat", "profiled.json"
"""In the scratch folder: what the stage tells the profiled program, its sign of life, what it tells back."""

REPORT_SUFFIX = ".ncu-rep"
"""ncu adds it to the name given by -o."""

CACHE_CONTROLS = ("all", "none")
"""What ncu does to the caches before each pass: flush them, or leave them as the kernel before left them."""

_CHOICES = {
    "replay": ("kernel", "application"),
    "cache_control": (*CACHE_CONTROLS, "both"),
    "clock_control": ("base", "none"),
}
_METRIC_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.]*__[A-Za-z0-9_.]+")
"""Metric names as ncu writes them, such as ``sm__cycles_active.avg``: unit, two underscores, quantity."""

_PACKAGE_PARENT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class CounterSettings:
    """The section ``counters`` of a cell's workload.

    Attributes:
        sections: ncu section identifiers, for its rules (``ncu --list-sections``).
        metrics: ncu metric names, as the catalogue has them for the cell's architecture.
        replay: ``kernel`` (each launch is repeated, memory saved and restored) or ``application`` (the program is).
        cache_control: ``all`` (flush before each pass), ``none``, or ``both``: a run with each.
        clock_control: ``base`` (lock to base clocks) or ``none``.
        launches_per_stratum: most launches of one stratum to profile per step; None profiles every launch.
        iterations: optimiser steps to profile.
        warmup_iterations: optimiser steps before them, outside the profiled window.
        stall_timeout_s: seconds without any progress after which the program is ended.
        ncu_version: beginning of the version to insist on, such as ``2024.1``, or None for any.
    """

    sections: tuple[str, ...]
    metrics: tuple[str, ...]
    replay: str = "kernel"
    cache_control: str = "all"
    clock_control: str = "base"
    launches_per_stratum: int | None = 3
    iterations: int = 1
    warmup_iterations: int = 2
    stall_timeout_s: float = 300
    ncu_version: str | None = None

    @property
    def cache_controls(self) -> tuple[str, ...]:
        """The cache control of each run of ncu, in order."""
        return CACHE_CONTROLS if self.cache_control == "both" else (self.cache_control,)


def read_settings(section: Mapping[str, Any], where: str) -> CounterSettings:
    """Return the settings that ``section`` of a cell's document holds; ``where`` names it in messages.

    Raises:
        UserError: an unknown field, neither metrics nor sections, a name that is no metric's, or a value out of range.
    """
    known = {field.name for field in fields(CounterSettings)}
    if unknown := sorted(set(section) - known):
        raise UserError(f"{where} has the unknown field '{unknown[0]}': known are {', '.join(sorted(known))}.")
    settings = CounterSettings(
        **{**section, "sections": tuple(section.get("sections", ())), "metrics": tuple(section.get("metrics", ()))}
    )
    if not settings.metrics and not settings.sections:
        raise UserError(f"{where} names neither metrics nor sections: name at least one metric.")
    if wrong := next((name for name in settings.metrics if not _METRIC_NAME.fullmatch(name)), None):
        raise UserError(f"{where}.metrics holds '{wrong}', which is no metric's name: write it as ncu does.")
    for name, choices in _CHOICES.items():
        if getattr(settings, name) not in choices:
            raise UserError(f"{where}.{name} is {getattr(settings, name)!r}: take one of {', '.join(choices)}.")
    least = {"iterations": 1, "warmup_iterations": 1, "launches_per_stratum": 1, "stall_timeout_s": 1}
    for name, minimum in least.items():
        value = getattr(settings, name)
        if value is not None and value < minimum:
            raise UserError(f"{where}.{name} is {value}: it must be at least {minimum}.")
    return settings


def file_suffix(settings: CounterSettings, cache_control: str) -> str:
    """Return what stands before the suffix of a run's files: nothing for the first run, ``-none`` for a second."""
    return "" if cache_control == settings.cache_controls[0] else f"-{cache_control}"


def report_file(settings: CounterSettings, cache_control: str) -> str:
    """Return the name of a run's report: ``report.ncu-rep``, of a second run ``report-none.ncu-rep``."""
    return f"report{file_suffix(settings, cache_control)}{REPORT_SUFFIX}"


def log_file(settings: CounterSettings, cache_control: str) -> str:
    """Return the name of the log beside that report."""
    return f"ncu{file_suffix(settings, cache_control)}.log"


def build_command(settings: CounterSettings, cache_control: str, program: list[str], ncu: str = "ncu") -> list[str]:
    """Return the ncu command that profiles ``program`` and writes report and log into its working folder.

    Launches are selected by the program itself, through cudaProfilerStart and cudaProfilerStop, so that warm-up
    and autotuning stay outside whatever filters this ncu has (see docs/counters.md). NVTX push/pop ranges are never
    used: backward runs on a thread that does not see them.
    """
    options = [
        *("--target-processes", "all"),
        *("--target-processes-filter", "regex:python"),
        *("--profile-from-start", "off"),
        *("--replay-mode", settings.replay),
        *("--clock-control", settings.clock_control),
        *("--cache-control", cache_control),
    ]
    if settings.replay == "application":
        options += ["--app-replay-match", "grid", "--app-replay-mode", "relaxed"]
    for section in settings.sections:
        options += ["--section", section]
    if settings.metrics:
        options += ["--metrics", ",".join(settings.metrics)]
    options += ["-f", "-o", report_file(settings, cache_control).removesuffix(REPORT_SUFFIX)]
    options += ["--log-file", log_file(settings, cache_control)]
    return [ncu, *options, *program]


def build_environment(scratch: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of ncu and of the program below it.

    ``LC_ALL=C`` keeps numbers in one form; HOME is a folder that ncu can write its sections into; TMPDIR is one
    of its own, so that a lock file left by another user does not matter. Packages installed below the user's HOME
    stay importable, and this package is importable wherever it lies.
    """
    paths = [str(_PACKAGE_PARENT), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **environment,
        "LC_ALL": "C",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "PYTHONUSERBASE": environment.get("PYTHONUSERBASE") or site.getuserbase(),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "PYTHONUNBUFFERED": "1",
    }


def profiled_program(cell: Path, data: Path, scratch: Path) -> list[str]:
    """Return the command of the program to profile (see ``profiled.py``)."""
    arguments = {"--cell": cell, "--data": data, "--scratch": scratch}
    flat = [text for name, value in arguments.items() for text in (name, str(value.absolute()))]
    return [sys.executable, "-m", "gpustudy.cell.profiled", *flat]
