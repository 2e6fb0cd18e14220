"""Readers of the two pages that ncu exports as CSV: raw (a row a launch) and details (a row a metric or rule)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from importlib import resources
from pathlib import Path

from gpustudy.base.errors import UserError
from gpustudy.metrics.ncu.batch import SPEEDUP_KINDS, Batch, Launch, Rule, Value, batch_of
from gpustudy.metrics.ncu.csvtext import Export, Row, read_export
from gpustudy.metrics.ncu.printed import NOTHING, MixedLocaleError, clean, read_number, uses_decimal_comma
from gpustudy.metrics.ncu.units import to_base

_IDENTIFYING = frozenset(
    {
        *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream"),
        *("Block Size", "Grid Size", "Device", "CC"),
    }
)
_NVTX_COLUMN = "Push/Pop_Range"
_NVTX_COLUMN_STARTED = "Start/Stop_Range"
_NVTX_RANGE = re.compile(r'"([^":]*):([^":]*)[:"]')
_DEFAULT_DOMAIN = "<default domain>"

_INSTANCES = re.compile(r"(?P<whole>[^()]*?)\s*\((?P<instances>[^()]*)\)")
_NAME_IN_BRACKETS = re.compile(r".*\(([a-z_A-Z:]+__\w[\w.]*)\)")
_OTHER_KINDS = ("range", "graph", "cmdlist")

_RULE_TYPES = {"OPT": "optimization", "WRN": "warning", "INF": "ok", "ERR": "error"}
"""The CSV's abbreviations -> the words of reports."""

_BY_NAME = "Command line profiler metrics"
"""The section that shows what ``--metrics`` asked for, each by its own name."""

_LAUNCH_METRICS = {
    "registers_per_thread": "launch__registers_per_thread",
    "static": "launch__shared_mem_per_block_static",
    "dynamic": "launch__shared_mem_per_block_dynamic",
}


def read_csv(path: Path) -> Batch:
    """Read a CSV export of the raw or the details page.

    Values are as precise as printed: two decimals of base units, or six of scaled ones.

    Raises:
        UserError: it is no such export, is cut short, or mixes the numbers of two locales.
    """
    export = read_export(path)
    try:
        return _details(export) if export.is_details else _raw(export)
    except MixedLocaleError as error:
        raise UserError(f"{path}: {error}: export it again with LC_ALL=C in ncu's environment.") from error


@cache
def labels() -> dict[tuple[str, str], str]:
    """Return (section, label) -> metric, as the details page labels metrics from 2019 to 2026."""
    text = resources.files("gpustudy.metrics.ncu").joinpath("labels.csv").read_text(encoding="utf-8")
    return {(row["section"], row["label"]): row["metric"] for row in csv.DictReader(text.splitlines())}


def _raw(export: Export) -> Batch:
    first = export.rows[0]
    has_units = not first.fields[0]
    units = first.fields if has_units else [""] * len(export.header)
    rows = export.rows[1:] if has_units else export.rows
    columns = [
        index
        for index, name in enumerate(export.header)
        if name not in _IDENTIFYING and _NVTX_COLUMN not in name and _NVTX_COLUMN_STARTED not in name
    ]
    decimal_comma = uses_decimal_comma(
        clean(part) for row in rows for index in columns for part in _parts(row.fields[index])
    )
    launches: dict[int, Launch] = {}
    values: list[Value] = []
    for row in rows:
        launch = _launch(export, row)
        if launch.position in launches:
            raise UserError(f"{export.path} line {row.line}: ID {launch.position} comes twice: give one export a file.")
        index = len(launches)
        launches[launch.position] = launch
        for column in columns:
            if row.fields[column]:
                name = export.header[column]
                values += _values(index, name, units[column], row.fields[column], decimal_comma=decimal_comma)
    return _finish(list(launches.values()), values, [])


def _details(export: Export) -> Batch:
    at = {name: index for index, name in enumerate(export.header)}
    section, label = at["Section Name"], at["Metric Name"]
    value, unit = (at.get(f"Metric {what}", at.get(what, 0)) for what in ("Value", "Unit"))  # 2019: without "Metric"
    decimal_comma = uses_decimal_comma(clean(part) for row in export.rows for part in _parts(row.fields[value]))
    launches: dict[int, Launch] = {}
    positions: dict[int, int] = {}
    values: dict[tuple[int, str, int], Value] = {}
    rules: list[Rule] = []
    for row in export.rows:
        launch = _launch(export, row)
        if launch.position not in launches:
            positions[launch.position] = len(launches)
            launches[launch.position] = launch
        if row.fields[label]:
            name = metric_name(row.fields[section], row.fields[label])
            index = positions[launch.position]
            for found in _values(index, name, row.fields[unit], row.fields[value], decimal_comma=decimal_comma):
                values.setdefault((index, found.metric, found.instance), found)
        elif len(row.fields) > at.get("Rule Name", len(export.header)) and row.fields[at["Rule Name"]]:
            rules.append(_rule(launch.position, row, at))
    return _finish(list(launches.values()), list(values.values()), rules)


def metric_name(section: str, label: str) -> str:
    """Return the metric that a details page shows as ``label`` in ``section``.

    A label that names its metric (``--print-metric-name``) is taken at its word; one that is in no table becomes
    ``section/label``, so that nothing is lost.
    """
    if (section, label) in labels():
        return labels()[section, label]
    if match := _NAME_IN_BRACKETS.fullmatch(label):
        return match[1]
    is_name = section == _BY_NAME or ("__" in label and " " not in label)
    return label if is_name else f"{section}/{label}"


def _finish(launches: list[Launch], values: list[Value], rules: list[Rule]) -> Batch:
    """Fill in the facts that only metrics carry; order the launches by their ID."""
    found = {(value.launch, value.metric): value.number for value in values if value.number is not None}
    for index, launch in enumerate(launches):
        facts = {fact: found.get((index, metric)) for fact, metric in _LAUNCH_METRICS.items()}
        static, dynamic, registers = facts["static"], facts["dynamic"], facts["registers_per_thread"]
        launch.registers_per_thread = None if registers is None else int(registers)
        launch.shared_memory_bytes = None if static is None or dynamic is None else int(static + dynamic)
    order = sorted(range(len(launches)), key=lambda index: launches[index].position)
    place = {old: new for new, old in enumerate(order)}
    moved = [value._replace(launch=place[value.launch]) for value in values]
    return batch_of([launches[index] for index in order], moved, rules)


def _launch(export: Export, row: Row) -> Launch:
    given = dict(zip(export.header, row.fields, strict=False))

    def whole(name: str) -> int | None:
        text = given.get(name, "")
        return int(text) if text.isdigit() else None

    def triple(name: str) -> tuple[int, int, int] | None:
        sizes = [int(size) for size in re.findall(r"\d+", given.get(name, ""))]
        return (sizes[0], sizes[1], sizes[2]) if len(sizes) == len("xyz") else None

    if not given["ID"]:
        raise UserError(f"{export.path} line {row.line}: a row of units in the middle: give one export a file.")
    name = given["Kernel Name"]
    grid = triple("Grid Size")
    return Launch(
        position=int(given["ID"]),
        name=name,
        kind=name if grid is None and name in _OTHER_KINDS else "kernel",
        process_id=whole("Process ID"),
        process=given.get("Process Name") or None,
        host=given.get("Host Name") or None,
        device_id=whole("Device"),
        compute_capability=given.get("CC") or None,
        context=whole("Context"),
        stream=whole("Stream"),
        grid=grid,
        block=triple("Block Size"),
        nvtx=_nvtx(given),
    )


def _nvtx(given: dict[str, str]) -> str | None:
    found = []
    for name, text in given.items():
        if _NVTX_COLUMN in name or _NVTX_COLUMN_STARTED in name:
            for domain, range_name in _NVTX_RANGE.findall(text.replace('""', '"')):
                found.append(range_name if domain == _DEFAULT_DOMAIN else f"{domain}@{range_name}")
    return "/".join(found) or None


def _parts(text: str) -> Iterator[str]:
    """Yield the numbers in a value: the whole's and its instances'."""
    match = _INSTANCES.fullmatch(text)
    if match is None:
        yield text
        return
    yield match["whole"]
    for instance in match["instances"].split(";"):
        yield instance.rpartition(":")[2]


def _values(launch: int, metric: str, unit: str, text: str, *, decimal_comma: bool) -> Iterator[Value]:
    base, factor = to_base(unit)

    def scaled(number: Decimal) -> float:
        return float(number * Decimal(factor)) if number.is_finite() else float(number)

    text = clean(text)
    number = read_number(text, decimal_comma=decimal_comma)
    if number is not None:
        yield Value(launch, metric, base, scaled(number), _exact(number * Decimal(factor)))
        return
    if text in NOTHING:
        yield Value(launch, metric, base, None)
        return
    match = _INSTANCES.fullmatch(text)
    whole = None if match is None else read_number(match["whole"], decimal_comma=decimal_comma)
    if match is None or whole is None:
        yield Value(launch, metric, base, None, text)
        return
    yield Value(launch, metric, base, scaled(whole))
    for position, instance in enumerate(match["instances"].split(";")):
        correlation, _, printed = instance.strip().rpartition(": ")
        one = read_number(printed, decimal_comma=decimal_comma)
        yield Value(
            launch,
            metric,
            base,
            None if one is None else scaled(one),
            None if one is not None else printed,
            position,
            correlation,
        )


def _exact(number: Decimal) -> str | None:
    """Return the digits of an integer that float64 rounds."""
    if not number.is_finite() or number != number.to_integral_value() or Decimal(float(number)) == number:
        return None
    return format(number, "f")


def _rule(position: int, row: Row, at: dict[str, int]) -> Rule:
    def field(name: str) -> str:
        return row.fields[at[name]] if name in at else ""

    speedup = read_number(field("Estimated Speedup"), decimal_comma=False)
    kind = field("Estimated Speedup Type").lower()
    return Rule(
        position=position,
        section=field("Section Name"),
        rule=field("Rule Name"),
        type=_RULE_TYPES.get(field("Rule Type"), field("Rule Type").lower()),
        message=field("Rule Description"),
        speedup=None if speedup is None else float(speedup),
        speedup_kind=kind if kind in SPEEDUP_KINDS else None,
    )
