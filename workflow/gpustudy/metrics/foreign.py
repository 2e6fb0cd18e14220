"""Traces that do not belong to a cell: one launches table for any number of them, and a summary to read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gpustudy.base.canonical import KEY_HEX_DIGITS
from gpustudy.base.digests import file_sha256
from gpustudy.metrics.classes import CLASSES, UNCLASSIFIED, check_share, unclassified_share
from gpustudy.metrics.launches import Columns, launches_of
from gpustudy.metrics.schemas import TABLES, Identity
from gpustudy.metrics.trace import read_trace

_NS_PER_MS = 1e6


def census(paths: Sequence[Path]) -> Columns:
    """Return the launches of all ``paths`` as columns, identity included.

    The identity of a foreign trace is its device's name (cpu without one), its file name, 0, and the first 12 hex
    digits of its SHA-256.

    Raises:
        UserError: a file is absent, damaged or no trace.
    """
    names = (*Identity._fields, *(column.name for column in TABLES["launches"].columns))
    joined: Columns = {name: [] for name in names}
    for path in paths:
        trace = read_trace(path)
        launches = launches_of(trace)
        identity = Identity(trace.device_name or "cpu", path.name, 0, file_sha256(path)[:KEY_HEX_DIGITS])
        columns = {name: [value] * len(launches) for name, value in identity._asdict().items()} | launches.columns
        for name in names:
            joined[name] += columns.get(name, [None] * len(launches))
    return joined


def print_summary(columns: Columns, limit: float) -> None:
    """Print count, time and share of each class.

    Raises:
        UserError: after printing, when a larger share than ``limit`` of the time is unclassified.
    """
    counts: Counter[str] = Counter(columns["class"])
    times: Counter[str] = Counter()
    for kernel_class, duration in zip(columns["class"], columns["duration_ns"], strict=True):
        times[kernel_class] += duration
    total = sum(times.values()) or 1
    print(f"{'class':<15} {'launches':>9} {'time (ms)':>12} {'share':>7}  what it is")
    for kernel_class in sorted(counts, key=lambda name: -times[name]):
        time = times[kernel_class]
        line = f"{kernel_class:<15} {counts[kernel_class]:>9} {time / _NS_PER_MS:>12.3f} {time / total:>7.1%}"
        print(f"{line}  {CLASSES[kernel_class]}")
    print(f"{'all':<15} {counts.total():>9} {sum(times.values()) / _NS_PER_MS:>12.3f} {1:>7.1%}")
    files = ", ".join(dict.fromkeys(columns["config"]))
    check_share(unclassified_share(columns["class"], columns["duration_ns"]), files, limit)


def print_unclassified(columns: Columns) -> None:
    """Print the names that no class fits, by time."""
    times: Counter[str] = Counter()
    for name, kernel_class, duration in zip(columns["name"], columns["class"], columns["duration_ns"], strict=True):
        if kernel_class == UNCLASSIFIED:
            times[name] += duration
    for name, time in times.most_common():
        print(f"{time / _NS_PER_MS:>12.3f} ms  {name}")
    if not times:
        print(f"all {len(set(columns['name']))} names have a class.")
