"""docs/data.md is what the schemas say, and its examples run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpustudy.cli import main
from gpustudy.metrics import dictionary
from gpustudy.metrics.cells import QUANTITIES
from gpustudy.metrics.classes import CLASSES
from gpustudy.metrics.make import make_metrics
from gpustudy.metrics.schemas import TABLES
from tests.metrics import raw_stages


def test_the_document_in_the_repository_is_current(repository: Path) -> None:
    assert main(["dictionary", "--check", "-o", str(repository / "docs" / "data.md")]) == 0


def test_drift_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "data.md"
    assert main(["dictionary", "-o", str(path), "--check"]) == 2
    assert main(["dictionary", "-o", str(path)]) == 0
    assert main(["dictionary", "-o", str(path), "--check"]) == 0
    path.write_text(path.read_text().replace("ns", "us", 1))
    assert main(["dictionary", "-o", str(path), "--check"]) == 2
    assert "not current" in capsys.readouterr().err


def test_every_table_column_class_and_quantity_is_described() -> None:
    text = dictionary.dictionary()
    for name, table in TABLES.items():
        section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
        for column in table.columns:
            assert f"| `{column.name}` | {column.type} | {column.unit} |" in section
    for name in (*CLASSES, *QUANTITIES):
        assert f"| `{name}` |" in text


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (dictionary.READ_WITH_PANDAS, "115000000.0"),
        (dictionary.READ_WITH_PYARROW, "('ns', 'time of the step: accumulated micro-batches, optimiser, EMA')"),
        (dictionary.READ_WITH_DUCKDB, "0.115"),
    ],
)
def test_reading_back_works_as_the_document_shows(tmp_path: Path, code: str, expected: str) -> None:
    make_metrics(raw_stages.train(tmp_path / "raw"), tmp_path / "out", "k")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "out", capture_output=True, text=True, check=True
    )
    assert expected in done.stdout
