"""Writes CSV exports the way ncu prints them: its quoting, its ragged rows, and the numbers of a locale."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal

IDENTITY = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream"]
SIZES = ["Block Size", "Grid Size", "Device", "CC"]
RULES = ["Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type", "Estimated Speedup"]

LOCALES = {"C": ("", "."), "en": (",", "."), "de": (".", ","), "fr": (" ", ","), "ch": ("'", ".")}
"""Locale -> (group separator, decimal separator)."""


@dataclass(frozen=True)
class Row:
    """One launch: (metric, unit, printed value); (section, rule, type, text, speed-up kind, speed-up)."""

    number: int
    name: str = "saxpy(int, float, float *)"
    process: str = "python3.11"
    metrics: tuple[tuple[str, str, str], ...] = ()
    rules: tuple[tuple[str, str, str, str, str, str], ...] = ()
    grid: str = "(4, 2, 1)"
    block: str = "(128, 1, 1)"

    def identity(self) -> list[str]:
        return [
            str(self.number),
            "4242",
            self.process,
            "10.0.0.7",
            self.name,
            "1",
            "7",
            self.block,
            self.grid,
            "0",
            "8.0",
        ]


@dataclass(frozen=True)
class File:
    """A file around a table."""

    before: str = ""
    after: str = ""
    bom: bool = False
    newline: str = "\n"
    nvtx: tuple[str, ...] = field(default=())


def printed(value: Decimal, locale: str) -> str:
    """A number as ncu prints it unscaled: grouped by three, two decimals unless whole."""
    group, point = LOCALES[locale]
    whole, _, fraction = f"{value:.2f}".partition(".")
    grouped = re.sub(r"(?<=\d)(?=(\d{3})+$)", lambda _: group, whole)
    return grouped if value == value.to_integral_value() else f"{grouped}{point}{fraction}"


def raw_page(rows: list[Row], around: File = File()) -> str:
    """The raw page: a row of units, then a row a launch."""
    names = sorted({name for row in rows for name, _, _ in row.metrics})
    units = {name: unit for row in rows for name, unit, _ in row.metrics}
    lines = [
        _line([*IDENTITY, *SIZES, *names]),
        _line([""] * len([*IDENTITY, *SIZES]) + [units[name] for name in names]),
    ]
    for row in rows:
        values = {name: value for name, _, value in row.metrics}
        lines.append(_line([*row.identity(), *(values.get(name, "") for name in names)]))
    return _surrounded(lines, around)


def details_page(rows: list[Row], around: File = File(), section: str = "Command line profiler metrics") -> str:
    """The details page: a row a metric (short, with a comma at its end), and a row a rule."""
    lines = [_line([*IDENTITY, *SIZES, "Section Name", "Metric Name", "Metric Unit", "Metric Value", *RULES])]
    for row in rows:
        lines += [_line([*row.identity(), section, name, unit, value]) + "," for name, unit, value in row.metrics]
        for where, rule, kind, text, speedup_kind, speedup in row.rules:
            lines.append(_line([*row.identity(), where, "", "", "", rule, kind, text, speedup_kind, speedup]))
    return _surrounded(lines, around)


def _line(fields: list[str]) -> str:
    return ",".join(f'"{one}"' for one in fields)


def _surrounded(lines: list[str], around: File) -> str:
    text = around.before + around.newline.join(lines) + around.newline + around.after
    return ("\ufeff" if around.bom else "") + text
