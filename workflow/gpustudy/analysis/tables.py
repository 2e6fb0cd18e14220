"""Tables: one model, three forms. What a table shows is decided once; CSV, LaTeX and HTML only write it."""

from __future__ import annotations

import csv
import html
import importlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpustudy.analysis.latex import to_latex as to_latex
from gpustudy.analysis.names import TABLES
from gpustudy.analysis.statistics import Estimate
from gpustudy.analysis.style import CRAFTED_BANNER

if TYPE_CHECKING:
    from gpustudy.analysis.dataset import Dataset

NOT_KNOWN = "\N{EN DASH}"
"""Stands where a table has no value; an empty cell could be a mistake."""


@dataclass(frozen=True)
class Value:
    """One entry: what people read, and what programs and sorting use.

    Attributes:
        text: for people, rounded, with its unit where the column's title has none.
        raw: the numbers unrounded, in base units, one for each of the column's names; empty where there are none.
    """

    text: str
    raw: tuple[float, ...] = ()


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        title: for people.
        names: for programs, with a base unit; several where an entry holds several numbers, as an interval does.
        is_number: whether its entries are numbers.
        is_long: whether its entries are sentences, which LaTeX must break into lines.
        is_printed: whether it stands in the LaTeX form, which has a page's width; the other forms have every column.
    """

    title: str
    names: tuple[str, ...]
    is_number: bool = False
    is_long: bool = False
    is_printed: bool = True


@dataclass(frozen=True)
class Table:
    """A table as it is shown everywhere.

    Attributes:
        name: its name in ``analysis.names.TABLES``.
        title: a few words.
        caption: whole sentences.
        columns: left to right.
        rows: top down; each as long as ``columns``.
        note: said with every form of it, such as that its values are crafted; empty for none.
    """

    name: str
    title: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    note: str = ""


Content = tuple[tuple[Column, ...], tuple[tuple[Value, ...], ...]]
"""Columns and rows of a table, as ``tabulate.NAME.content(dataset)`` returns them."""

NOTHING = Value(NOT_KNOWN)

SHORT_SUM = 12
"""Hex digits of a commit or a checksum that are shown."""


def build(name: str, dataset: Dataset) -> Table:
    """Return the table ``name`` of what ``dataset`` holds."""
    content: Content = importlib.import_module(f"gpustudy.analysis.tabulate.{name}").content(dataset)
    columns, rows = content
    product = TABLES[name]
    note = CRAFTED_BANNER if dataset.crafted else ""
    return Table(name, product.title, product.caption, columns, rows, note)


def to_csv(table: Table) -> str:
    """Return ``table`` as CSV: names with base units, numbers unrounded, an empty field where there is none."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([name for column in table.columns for name in column.names] + (["note"] if table.note else []))
    for row in table.rows:
        pairs = zip(table.columns, row, strict=True)
        fields = [field for column, value in pairs for field in _csv_fields(column, value)]
        writer.writerow(fields + ([table.note] if table.note else []))
    return out.getvalue()


def to_html(table: Table) -> str:
    """Return ``table`` as an HTML ``table`` element; ``data-value`` holds what its columns sort by."""
    head = "".join(
        f'<th scope="col"{_number_class(column)}>{html.escape(column.title)}</th>' for column in table.columns
    )
    body = "\n".join(f"<tr>{_html_row(table, row)}</tr>" for row in table.rows)
    note = f"<strong>{html.escape(table.note)}.</strong> " if table.note else ""
    caption = f"{note}<b>{html.escape(table.title)}.</b> {html.escape(table.caption)}"
    return (
        f'<table class="sortable" id="table-{table.name}">\n<caption>{caption}</caption>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n"
    )


def _csv_fields(column: Column, value: Value) -> list[str]:
    if not column.is_number:
        return [value.text]
    return [repr(number) for number in value.raw] or [""] * len(column.names)


def _number_class(column: Column) -> str:
    return ' class="number"' if column.is_number else ""


def _html_row(table: Table, row: tuple[Value, ...]) -> str:
    cells = []
    for column, value in zip(table.columns, row, strict=True):
        sort_by = f' data-value="{value.raw[0]!r}"' if value.raw else ""
        cells.append(f"<td{_number_class(column)}{sort_by}>{html.escape(value.text)}</td>")
    return "".join(cells)


def number(value: float | None, text: Callable[[float], str]) -> Value:
    """Return an entry for a number that may not be there."""
    return NOTHING if value is None else Value(text(value), (value,))


def interval(estimate: Estimate | None, text: Callable[[float], str]) -> Value:
    """Return an entry for the interval of an estimate; that of a single run says so."""
    if estimate is None:
        return NOTHING
    if estimate.low is None or estimate.high is None:
        return Value("none (one repeat)")
    within = "" if estimate.over_repeats else " (within one run)"
    return Value(f"{text(estimate.low)} to {text(estimate.high)}{within}", (estimate.low, estimate.high))
