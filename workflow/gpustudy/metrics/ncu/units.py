"""Units of metrics: every spelling ncu has used, and the base unit that values are stored in.

Nsight Compute scales by 1000 and renamed its units between 2024.1 and 2025.1 (``nsecond`` -> ``ns``,
``cycle/nsecond`` -> ``Ghz``).
"""

from __future__ import annotations

import re

_PER_SECOND = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0}
_TIMES = {
    "ns": "ns",
    "nsecond": "ns",
    "us": "us",
    "usecond": "us",
    "ms": "ms",
    "msecond": "ms",
    "s": "s",
    "second": "s",
}
_NS_PER = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_PREFIXES = {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_SCALED = ("byte", "hz", "bit", "sector", "inst", "cycle")
"""What ncu prints with a decimal prefix."""

_SYNONYMS = {"sectors": "sector", "": "1"}


_COUNTED = (
    (re.compile(r"\w+__time_duration"), "ns"),
    (re.compile(r"(dram|l1tex|lts|pcie|nvlrx|nvltx)__\w*bytes(_\w+)?"), "byte"),
    (re.compile(r"(l1tex__t|lts__t|dram)_+sectors(_\w+)?"), "sector"),
    (re.compile(r"\w+__cycles_(active|elapsed)"), "cycle"),
    (re.compile(r"(sm|smsp)__(thread_)?inst_(executed|issued)(_\w+)?"), "inst"),
)
"""Counters whose unit is certain by their name."""

_PLAIN_ROLLUP = re.compile(r"\.(sum|avg|min|max)")
_RATE_ROLLUP = re.compile(r"\.(sum|avg|min|max)\.per_second")


def unit_by_name(metric: str) -> str:
    """Return the base unit that a metric's name tells; empty where it does not.

    NVIDIA's reader knows units from a table by chip, and gives none for a chip that the file does not name.

    >>> unit_by_name("dram__bytes_read.sum"), unit_by_name("sm__throughput.avg.pct_of_peak_sustained_elapsed")
    ('byte', '%')
    """
    counter, _, _ = metric.partition(".")
    rollup = metric[len(counter) :]
    if rollup == ".pct" or ".pct_of_peak_sustained" in rollup:
        return "%"
    unit = next((unit for pattern, unit in _COUNTED if pattern.fullmatch(counter)), "")
    if not unit or _PLAIN_ROLLUP.fullmatch(rollup):
        return unit
    if _RATE_ROLLUP.fullmatch(rollup):
        return "hz" if unit == "cycle" else f"{unit}/s"
    return ""


def to_base(unit: str) -> tuple[str, float]:
    """Return the base unit of ``unit`` and the factor that brings a value into it.

    Times become ``ns``, rates per second, sizes ``byte``, frequencies ``hz``; what is not known stays as it is.

    >>> to_base("usecond")
    ('ns', 1000.0)
    >>> to_base("cycle/nsecond")
    ('hz', 1000000000.0)
    """
    spelled = unit.strip().replace("_per_", "/")
    if not spelled:
        return "", 1.0
    numerator, slash, denominator = spelled.partition("/")
    base, factor = _plain(numerator)
    if not slash:
        return ("" if base == "1" else base), factor
    if denominator in _TIMES:
        return ("hz" if base == "cycle" else f"{base}/s"), factor * _PER_SECOND[_TIMES[denominator]]
    below, divisor = _plain(denominator)
    return f"{base}/{below}", factor / divisor


def _plain(unit: str) -> tuple[str, float]:
    if unit in _TIMES:
        return "ns", _NS_PER[_TIMES[unit]]
    for name in _SCALED:
        prefix = unit[: -len(name)].strip()
        if unit.lower().endswith(name) and prefix in _PREFIXES:
            return name, _PREFIXES[prefix]
    return _SYNONYMS.get(unit, unit), 1.0
