r"""A table as LaTeX for a two-column paper: ``table*`` floats with booktabs rules, no larger than a page.

Needs ``\usepackage{booktabs}`` and, for tables wider than the page, ``\usepackage{graphicx}``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpustudy.analysis.tables import Column, Table, Value

_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''", "\N{EN DASH}": "--", "\N{SUPERSCRIPT TWO}": r"\textsuperscript{2}",
    "\N{HORIZONTAL ELLIPSIS}": r"\ldots{}", "\N{MULTIPLICATION SIGN}": r"$\times$", "\N{MICRO SIGN}": r"$\mu$",
}  # fmt: skip
"""Characters that LaTeX takes for commands, or prints as other signs in its default encoding."""

_CHARACTERS = 125
"""Characters of footnote size in a line of 7 inches, about."""
_LINES = 66
"""Lines of footnote size on a page of 9 inches that are left beside a caption, about."""
_GAP = 2
"""Characters that the space between two columns takes, about."""


def escape(text: str) -> str:
    """Return ``text`` as LaTeX prints it as it is."""
    return "".join(_ESCAPES.get(character, character) for character in text)


def to_latex(table: Table) -> str:
    r"""Return ``table`` as LaTeX floats: one, or as many as it takes for none to be longer than a page."""
    places = [place for place, column in enumerate(table.columns) if column.is_printed]
    columns = [table.columns[place] for place in places]
    rows = [[row[place] for place in places] for row in table.rows]
    widths = _widths(columns, rows)
    parts = list(_pages(columns, rows, widths)) or [[]]
    return "".join(_float(table, columns, part, widths, number) for number, part in enumerate(parts))


def _float(
    table: Table, columns: Sequence[Column], rows: Sequence[Sequence[Value]], widths: Sequence[float], number: int
) -> str:
    note = rf"\textbf{{{escape(table.note)}.}} " if table.note else ""
    said = f"{escape(table.title)}. {escape(table.caption)}" if number == 0 else f"{escape(table.title)} (continued)."
    is_wide = _natural(columns, rows) > _CHARACTERS
    return "\n".join(
        [
            r"\begin{table*}",
            *([r"\addtocounter{table}{-1}"] if number else []),
            rf"\caption{{{note}{said}}}",
            *([rf"\label{{tab:{table.name}}}"] if number == 0 else []),
            r"\centering\footnotesize",
            *([r"\resizebox{\linewidth}{!}{%"] if is_wide else []),
            rf"\begin{{tabular}}{{{_alignment(columns, widths)}}}",
            r"\toprule",
            " & ".join(escape(column.title) for column in columns) + r" \\",
            r"\midrule",
            *(" & ".join(map(_entry, columns, row)) + r" \\" for row in rows),
            r"\bottomrule",
            r"\end{tabular}" + ("}" if is_wide else ""),
            r"\end{table*}",
            "",
        ]
    )


def _entry(column: Column, value: Value) -> str:
    """Return an entry; a sentence may break within names of kernels, files and quantities too."""
    text = escape(value.text)
    if column.is_long:
        for mark in (r"\_", "/", "::", ","):
            text = text.replace(mark, rf"{mark}\allowbreak{{}}")
    return text


def _alignment(columns: Sequence[Column], widths: Sequence[float]) -> str:
    return "".join(
        rf"p{{{width:.2f}\linewidth}}" if column.is_long else "r" if column.is_number else "l"
        for column, width in zip(columns, widths, strict=True)
    )


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Value]]) -> list[float]:
    """Return the part of the line that each column takes: columns of sentences share what the others leave."""
    longest = [
        max((len(column.title), *(len(row[place].text) for row in rows))) for place, column in enumerate(columns)
    ]
    fixed = sum(length + _GAP for length, column in zip(longest, columns, strict=True) if not column.is_long)
    total = sum(math.sqrt(length) for length, column in zip(longest, columns, strict=True) if column.is_long)
    left = max(1 - fixed / _CHARACTERS, _LEAST_PART)
    gaps = _GAP / _CHARACTERS
    return [
        left * math.sqrt(length) / total - gaps if column.is_long else (length + _GAP) / _CHARACTERS
        for length, column in zip(longest, columns, strict=True)
    ]


_LEAST_PART = 0.4
"""Part of the line that columns of sentences have together at least, even if the table grows wider than the page."""


def _natural(columns: Sequence[Column], rows: Sequence[Sequence[Value]]) -> float:
    """Return the width of a table in characters, about."""
    widths = _widths(columns, rows)
    return sum(widths) * _CHARACTERS


def _pages(
    columns: Sequence[Column], rows: Sequence[Sequence[Value]], widths: Sequence[float]
) -> Iterator[list[Sequence[Value]]]:
    """Yield the rows that fit on one page each."""
    page: list[Sequence[Value]] = []
    used = 0
    for row in rows:
        lines = max(
            math.ceil(len(value.text) / (width * _CHARACTERS)) if column.is_long else 1
            for column, value, width in zip(columns, row, widths, strict=True)
        )
        if page and used + lines > _LINES:
            yield page
            page, used = [], 0
        page.append(row)
        used += lines
    if page:
        yield page
