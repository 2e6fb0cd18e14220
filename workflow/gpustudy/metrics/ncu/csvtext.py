"""The frame of a CSV export: where the table begins in a file, and its rows, which no csv module can read.

ncu quotes every field but doubles quotes only in the NVTX columns: kernel, process and device names keep their quotes
and line breaks as they are. The program's output and ncu's messages may stand before, between and after the rows. So a
row begins at a line that begins with two quoted numbers, and ends where its fields fit the header.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpustudy.base.errors import UserError

_BOMS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_HEADER = re.compile(r'"ID","Process ID",')
_SUMMARY = re.compile(r'"Process ID","Process Name",.*"Invocations"')
_ROW = re.compile(r'"\d+","\d+",|"","",')
_CONSOLE = re.compile(r"^[ \t]+(Section: |\S.*Context \d+, Stream \d+)", re.MULTILINE)
_MESSAGE = re.compile(r"==(PROF|WARNING|ERROR)==")
_EXPORT = "run 'ncu --import REPORT --page raw --csv' on the report and give its output"

_INT32, _INT64 = 2**31 - 1, 2**63 - 1
_NUMBER, _WHOLE, _SIZES = (
    re.compile(one) for one in (r"[0-9]+", r"[0-9]{1,19}|n/a|", r"\([0-9]{1,10}, ?[0-9]{1,10}, ?[0-9]{1,10}\)|")
)
_CHECKED = {
    "ID": (re.compile(r"[0-9]{1,19}"), _INT64),
    "Process ID": (_WHOLE, _INT64),
    "Context": (_WHOLE, _INT64),
    "Stream": (_WHOLE, _INT64),
    "Block Size": (_SIZES, _INT32),
    "Grid Size": (_SIZES, _INT32),
    "Device": (_WHOLE, _INT32),
    "CC": (re.compile(r"[0-9]{1,3}\.[0-9]{1,3}|"), _INT32),
}
"""What these columns hold in every row, and the largest number in it: a row that was split wrongly does not fit."""

_MOST_LINES = 1000
"""Lines that one row may take: names and rule texts have a few; a file of many more is no export."""

_MAY_OVERFLOW = ("Kernel Name", "Process Name", "Rule Description")
"""Columns whose text may hold ``","`` itself, so that a row seems to have too many fields."""


@dataclass(frozen=True)
class Row:
    """One row: the number of its first line in the file, and its fields (fewer than the header's where ragged)."""

    line: int
    fields: list[str]


@dataclass(frozen=True)
class Export:
    """A CSV export: its header and its rows."""

    path: Path
    header: list[str]
    rows: list[Row]

    @property
    def is_details(self) -> bool:
        """Whether it is the details page (a row is one metric or rule of a launch)."""
        return "Metric Name" in self.header


def read_export(path: Path) -> Export:
    """Find the table in a file and split it into rows.

    Raises:
        UserError: the file holds no CSV (what it holds instead is said), or a row does not fit the header.
    """
    lines = _decode(path).splitlines()
    at = next((number for number, line in enumerate(lines) if _HEADER.match(line)), None)
    if at is None:
        raise _refusal(path, lines)
    header = lines[at].strip().rstrip(",").strip('"').split('","')
    lengths = [len(header)]
    if "Rule Name" in header:
        lengths.append(header.index("Rule Name"))
    if "Kernel Name" not in header:
        raise UserError(f"{path} line {at + 1}: the header has no column 'Kernel Name': {_EXPORT}.")
    if len(set(header)) < len(header):
        doubled = next(name for name in header if header.count(name) > 1)
        raise UserError(f"{path} line {at + 1}: the header has the column '{doubled}' twice: {_EXPORT}.")
    rows = [
        Row(line, _fields(path, line, text, header, lengths))
        for line, text in _records(path, lines, at + 1, header, lengths)
    ]
    if not any(row.fields[0] for row in rows):
        raise UserError(f"{path} has a CSV header but no row below it: ncu profiled nothing; check its log.")
    return Export(path, header, rows)


def _decode(path: Path) -> str:
    content = path.read_bytes()
    encoding = next((name for mark, name in _BOMS if content.startswith(mark)), "utf-8")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _refusal(path: Path, lines: Sequence[str]) -> UserError:
    """Say what a file without a CSV header holds instead."""
    text = "\n".join(lines)
    messages = [line.strip() for line in lines if _MESSAGE.match(line)]
    errors = [line for line in messages if line.startswith("==ERROR==")]
    if not text.strip():
        return UserError(f"{path} is empty: {_EXPORT}.")
    if any(_SUMMARY.match(line) for line in lines):
        return UserError(
            f"{path} is a summary over launches (--print-summary), which has no launch's values: {_EXPORT}."
        )
    if _CONSOLE.search(text):
        return UserError(f"{path} is ncu's console text, which rounds every value: {_EXPORT}.")
    if errors:
        return UserError(f"{path} holds no CSV but ncu's error {errors[0]!r}: mend that and profile again.")
    if messages:
        return UserError(
            f"{path} holds no CSV, only messages of ncu ({len(messages)}, the last: {messages[-1]!r}): "
            "nothing was profiled, or the table went to another file."
        )
    return UserError(f'{path} holds no Nsight Compute CSV (no line begins with "ID","Process ID"): {_EXPORT}.')


def _records(
    path: Path, lines: Sequence[str], start: int, header: list[str], lengths: list[int]
) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of each row; a row goes on over line breaks until its fields fit the header."""
    number = start
    while number < len(lines):
        if not _ROW.match(lines[number]):
            number += 1
            continue
        first, text = number, lines[number]
        while not _is_complete(text, header, lengths):
            number += 1
            if number == len(lines) or _ROW.match(lines[number]) or number - first > _MOST_LINES:
                raise _misfit(path, first + 1, text, header)
            text += "\n" + lines[number]
        yield first + 1, text
        number += 1


def _is_complete(text: str, header: list[str], lengths: list[int]) -> bool:
    ends = text.rstrip().endswith(('"', '",'))
    return ends and _fit(_split(text), header, lengths) is not None


def _fields(path: Path, line: int, text: str, header: list[str], lengths: list[int]) -> list[str]:
    fitted = _fit(_split(text), header, lengths)
    if fitted is None:
        raise _misfit(path, line, text, header)
    return fitted


def _misfit(path: Path, line: int, text: str, header: list[str]) -> UserError:
    return UserError(
        f"{path} line {line}: the row has {len(_split(text))} fields that do not fit the {len(header)} columns of the "
        "header: the file was cut short or edited; export it again."
    )


def _split(text: str) -> list[str]:
    text = text.rstrip()
    body = text[1:-2] if text.endswith('",') else text[1:-1]
    return body.split('","')


def _fit(fields: list[str], header: list[str], lengths: list[int]) -> list[str] | None:
    """Bring fields to a length that a row may have, joining what one text field was split into; None if none fits."""
    for length in lengths:
        extra = len(fields) - length
        if extra < 0:
            continue
        for column in _MAY_OVERFLOW if extra else _MAY_OVERFLOW[:1]:
            if column not in header[:length]:
                continue
            at = header.index(column)
            joined = [*fields[:at], '","'.join(fields[at : at + extra + 1]), *fields[at + extra + 1 :]]
            if _is_plausible(joined, header):
                return joined
    return None


def _is_plausible(fields: list[str], header: list[str]) -> bool:
    if not fields[0]:  # the row of units
        return True
    return all(
        _is_checked(field, *_CHECKED[name]) for name, field in zip(header, fields, strict=False) if name in _CHECKED
    )


def _is_checked(field: str, pattern: re.Pattern[str], most: int) -> bool:
    """Whether a field has its column's form, and no number in it is too large for its type."""
    return pattern.fullmatch(field) is not None and all(int(number) <= most for number in _NUMBER.findall(field))
