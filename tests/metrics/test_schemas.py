"""The Parquet tables: what is written is read back, the same content is the same bytes, other files are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpustudy.base.errors import UserError
from gpustudy.metrics.schemas import TABLES, Column, Identity, arrow_schema, columns_of, read_table, write_table

WHO = Identity("cpu", "baseline", 1, "0123456789ab")
STEP = {
    "iteration": 1,
    "phase": "measured",
    "step_ns": 5,
    "loss": 0.5,
    "data_wait_ns": 0,
    "peak_memory_bytes": 9,
}
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(max_size=8),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "list<int32>": st.lists(st.integers(0, 2**31 - 1), min_size=3, max_size=3),
}


def _rows(table: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    columns = {
        column.name: st.none() | _VALUES[column.type] if column.nullable else _VALUES[column.type]
        for column in TABLES[table].columns
    }
    return st.lists(st.fixed_dictionaries(columns), max_size=5)


@pytest.mark.parametrize("table", sorted(TABLES))
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_every_table_gives_back_what_was_written(
    table: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = data.draw(_rows(table))
    path = tmp_path_factory.mktemp("t") / f"{table}.parquet"
    assert write_table(path, table, rows, WHO) == len(rows)
    back = read_table(path, table).to_pylist()
    expected = [WHO._asdict() | row for row in rows]
    assert sorted(repr(sorted(row.items())) for row in back) == sorted(repr(sorted(row.items())) for row in expected)


def test_same_rows_in_any_order_are_the_same_bytes(tmp_path: Path) -> None:
    rows = [STEP | {"iteration": number} for number in (3, 1, 2)]
    write_table(tmp_path / "a.parquet", "steps", rows, WHO)
    write_table(tmp_path / "b.parquet", "steps", rows[::-1], WHO)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert read_table(tmp_path / "a.parquet", "steps")["iteration"].to_pylist() == [1, 2, 3]


def test_units_and_meanings_travel_in_the_file(tmp_path: Path) -> None:
    write_table(tmp_path / "steps.parquet", "steps", [STEP], WHO)
    field = pq.read_schema(tmp_path / "steps.parquet").field("step_ns")
    assert field.metadata[b"unit"] == b"ns"
    assert field.metadata[b"meaning"].startswith(b"time of the step")


def test_columns_may_be_given_instead_of_rows(tmp_path: Path) -> None:
    columns = {name: [value, value] for name, value in STEP.items()}
    assert write_table(tmp_path / "s.parquet", "steps", columns, WHO) == 2
    assert read_table(tmp_path / "s.parquet", "steps").num_rows == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"speed": 1}, "no column 'speed'"),
        ({"loss": None}, "'loss' holds a null"),
        ({"step_ns": "long"}, "long"),
        ({"iteration": 2**31}, "2147483648"),
    ],
)
def test_rows_that_break_the_schema_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, pa.ArrowTypeError), match=message):
        write_table(tmp_path / "s.parquet", "steps", [STEP | change], WHO)
    assert not list(tmp_path.iterdir())


def test_a_missing_column_is_refused_by_name(tmp_path: Path) -> None:
    row = {name: value for name, value in STEP.items() if name != "loss"}
    with pytest.raises(ValueError, match="'loss' is missing"):
        write_table(tmp_path / "s.parquet", "steps", [row], WHO)


def test_open_table_takes_further_columns_and_closed_one_does_not(tmp_path: Path) -> None:
    extra = (Column("dram_bytes", "float64", "B", "bytes moved", nullable=True),)
    row = {"report": "r.ncu-rep", "launch": 0, "kind": "kernel", "name": "k", "class": "gemm", "phase": "other"}
    path = tmp_path / "counters.parquet"
    write_table(path, "counters", [row | {"dram_bytes": 2.5}], WHO, extra)
    assert read_table(path, "counters")["dram_bytes"].to_pylist() == [2.5]
    with pytest.raises(ValueError, match="no further columns"):
        arrow_schema("steps", extra)


def test_files_of_another_kind_are_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    with pytest.raises(UserError, match="does not exist"):
        read_table(path, "steps")
    path.write_text("no parquet")
    with pytest.raises(UserError, match="not a readable Parquet file"):
        read_table(path, "steps")
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(UserError, match="not written by gpustudy"):
        read_table(path, "steps")
    write_table(path, "steps", [STEP], WHO)
    with pytest.raises(UserError, match="holds the table 'steps'"):
        read_table(path, "cells")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop_columns(["loss"]), "column 8 is not loss double"),
        (lambda table: table.append_column("extra", [[1]]), "unknown column extra"),
        (lambda table: table.set_column(7, "loss", [["a"]]), "column 8 is not loss double"),
        (
            lambda table: table.replace_schema_metadata({"gpustudy.table": "steps", "gpustudy.schema": "0"}),
            "schema version 0, here 1",
        ),
    ],
)
def test_a_table_with_another_schema_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    path = tmp_path / "steps.parquet"
    write_table(path, "steps", [STEP], WHO)
    pq.write_table(change(pq.read_table(path)), path)
    with pytest.raises(UserError, match=message):
        read_table(path, "steps")


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_column_says_what_it_means_and_names_its_unit(table: str) -> None:
    suffixes = {"_ns": "ns", "_bytes": "B"}
    columns = columns_of(table)
    assert len({column.name for column in columns}) == len(columns)
    assert {*TABLES[table].order} <= {column.name for column in columns}
    for column in columns:
        assert column.meaning
        for suffix, unit in suffixes.items():
            assert not column.name.endswith(suffix) or column.unit == unit
