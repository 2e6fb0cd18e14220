"""Tables: one model, three forms. What a table shows is decided once; CSV, LaTeX and HTML only write it."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpustudy.analysis.compare import conversions_of, largest_class, speedup_of
from gpustudy.analysis.dataset import BASELINE, stage_word
from gpustudy.analysis.names import TABLES
from gpustudy.analysis.statistics import Estimate, mean_over_repeats, summarise_steps, verdict
from gpustudy.analysis.style import CRAFTED_BANNER, amount_of_bytes, count, duration

if TYPE_CHECKING:
    from gpustudy.analysis.dataset import Dataset, Group

_LATEX_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\N{EN DASH}": "--",
}  # fmt: skip

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
    """

    title: str
    names: tuple[str, ...]
    is_number: bool = False


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


def build(name: str, dataset: Dataset) -> Table:
    """Return the table ``name`` of what ``dataset`` holds."""
    columns, rows = _BUILDERS[name](dataset)
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


def to_latex(table: Table) -> str:
    r"""Return ``table`` as a LaTeX ``table*`` with booktabs rules (``\usepackage{booktabs}``)."""
    align = "".join("r" if column.is_number else "l" for column in table.columns)
    note = rf"\textbf{{{_latex(table.note)}.}} " if table.note else ""
    lines = [
        r"\begin{table*}",
        rf"\caption{{{note}{_latex(table.title)}. {_latex(table.caption)}}}",
        rf"\label{{tab:{table.name}}}",
        r"\centering\small",
        rf"\begin{{tabular}}{{{align}}}",
        r"\toprule",
        " & ".join(_latex(column.title) for column in table.columns) + r" \\",
        r"\midrule",
        *(" & ".join(_latex(value.text) for value in row) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


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


def _latex(text: str) -> str:
    return "".join(_LATEX_ESCAPES.get(character, character) for character in text)


def _number_class(column: Column) -> str:
    return ' class="number"' if column.is_number else ""


def _html_row(table: Table, row: tuple[Value, ...]) -> str:
    cells = []
    for column, value in zip(table.columns, row, strict=True):
        sort_by = f' data-value="{value.raw[0]!r}"' if value.raw else ""
        cells.append(f"<td{_number_class(column)}{sort_by}>{html.escape(value.text)}</td>")
    return "".join(cells)


_Content = tuple[tuple[Column, ...], tuple[tuple[Value, ...], ...]]

_SUMMARY_COLUMNS = (
    Column("GPU", ("gpu",)),
    Column("config", ("config",)),
    Column("state", ("state",)),
    Column("n", ("repeats",), is_number=True),
    Column("step time", ("step_s",), is_number=True),
    Column("95% interval", ("step_low_s", "step_high_s"), is_number=True),
    Column("speed-up", ("speedup",), is_number=True),
    Column("95% interval", ("speedup_low", "speedup_high"), is_number=True),
    Column("verdict", ("verdict",)),
    Column("peak memory", ("peak_memory_bytes",), is_number=True),
    Column("largest class", ("largest_class",)),
    Column("layout conversions", ("layout_conversions_per_iteration",), is_number=True),
)


def _summary(dataset: Dataset) -> _Content:
    groups = [group for gpu in dataset.gpus for group in dataset.groups(gpu)]
    return _SUMMARY_COLUMNS, tuple(_summary_row(dataset, group) for group in groups)


def _summary_row(dataset: Dataset, group: Group) -> tuple[Value, ...]:
    steps = dataset.step_times(group)
    time = summarise_steps(steps) if steps else None
    ratio = speedup_of(dataset, group) if steps and group.config != BASELINE else None
    conversions = conversions_of(dataset, group)
    calls = None if conversions is None else float(conversions["calls"].sum())
    return (
        Value(group.gpu),
        Value(group.label),
        Value(" / ".join(dict.fromkeys(cell.state for cell in group.cells))),
        Value(str(len(steps)), (len(steps),)),
        _seconds(time),
        _range(time, lambda end: duration(end, time.value)) if time else Value(NOT_KNOWN),
        Value(f"{ratio.value:.2f}x", (ratio.value,)) if ratio else Value(NOT_KNOWN),
        _range(ratio, "{:.2f}".format) if ratio else Value(NOT_KNOWN),
        Value(verdict(ratio) if ratio else "reference" if group.config == BASELINE and steps else NOT_KNOWN),
        _peak(dataset, group),
        Value(_largest_class(dataset, group)),
        Value(NOT_KNOWN) if calls is None else Value(count(calls), (calls,)),
    )


def _seconds(time: Estimate | None) -> Value:
    return Value(duration(time.value), (time.value,)) if time else Value(NOT_KNOWN)


def _range(estimate: Estimate, text: Callable[[float], str]) -> Value:
    """Return the interval; that of a single run says so."""
    if estimate.low is None or estimate.high is None:
        return Value("none (one repeat)")
    within = "" if estimate.over_repeats else " (within one run)"
    return Value(f"{text(estimate.low)} to {text(estimate.high)}{within}", (estimate.low, estimate.high))


def _peak(dataset: Dataset, group: Group) -> Value:
    peaks = dataset.peak_memory(group)
    if not peaks:
        return Value(NOT_KNOWN)
    mean = mean_over_repeats(list(peaks.values())).value
    return Value(amount_of_bytes(mean), (mean,))


def _largest_class(dataset: Dataset, group: Group) -> str:
    found = largest_class(dataset, group)
    return f"{found[0]} ({found[1]:.0%})" if found else NOT_KNOWN


def _states(dataset: Dataset) -> _Content:
    columns = tuple(
        Column(title, (name,))
        for title, name in (
            ("cell", "cell"), ("state", "state"), ("marks", "marks"), ("stages", "stages"), ("keys", "keys"),
            ("reason", "reason"),
        )
    )  # fmt: skip
    rows = tuple(
        (
            Value(f"{cell.gpu}/{cell.config}/r{cell.repeat}"),
            Value(cell.state),
            Value(
                ", ".join([*(["null control"] if cell.null_control else []), *(["accepted"] if cell.accepted else [])])
            ),
            Value(", ".join(f"{stage.stage}: {stage_word(cell, stage.stage) or 'done'}" for stage in cell.stages)),
            Value(" ".join(stage.key for stage in cell.stages)),
            Value(cell.reason),
        )
        for cell in dataset.survey.cells
    )
    return columns, rows


_STACK_FIELDS = (
    "device_name", "cpu_model", "driver", "cuda", "cudnn", "torch", "numpy", "python", "ncu", "threads", "mig",
    "git_commit", "git_dirty", "image_sha256",
)  # fmt: skip
"""Fields of a stage's provenance that tell one stack from another; host, job and clocks are left out."""


_SUMS = ("git_commit", "image_sha256")

SHORT_SUM = 12
"""Hex digits of a commit or a checksum that are shown."""


def _stacks(dataset: Dataset) -> _Content:
    found: dict[tuple[str, ...], dict[str, set[int]]] = {}
    for cell, _, manifest in dataset.manifests:
        provenance = manifest.get("provenance") or {}
        if provenance:
            key = tuple(_text(name, provenance.get(name)) for name in _STACK_FIELDS)
            found.setdefault(key, {}).setdefault(f"{cell.gpu}/{cell.config}", set()).add(cell.repeat)
    used = [place for place in range(len(_STACK_FIELDS)) if any(key[place] != NOT_KNOWN for key in found)]
    columns = (*(Column(_STACK_FIELDS[place].replace("_", " "), (_STACK_FIELDS[place],)) for place in used),
               Column("cells", ("cells",)))  # fmt: skip
    rows = tuple((*(Value(key[place]) for place in used), Value(_cells(cells))) for key, cells in found.items())
    return columns, rows


def _cells(repeats: dict[str, set[int]]) -> str:
    """Name cells in short, such as ``cpu/baseline/r1,2,3``."""
    return ", ".join(f"{name}/r{','.join(map(str, sorted(own)))}" for name, own in repeats.items())


def _text(name: str, value: object) -> str:
    if value is None:
        return NOT_KNOWN
    return str(value)[:SHORT_SUM] if name in _SUMS else str(value)


_BUILDERS: dict[str, Callable[[Dataset], _Content]] = {"summary": _summary, "states": _states, "stacks": _stacks}
