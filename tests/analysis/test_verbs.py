"""The verbs figure, table and report, from the command line to the files."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import html5lib
import pytest

from gpustudy.archive.exporting import export_archive
from gpustudy.cli import main
from gpustudy.study.cells import Keys
from gpustudy.study.load import load_study
from gpustudy.study.states import survey
from tests.support.crafted_study import Truth, craft_study, crafted_effective


@pytest.fixture
def checkout(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the study's config: no cell was ever run here."""
    shutil.copy(repository / "config.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUSTUDY_CONFIG", raising=False)
    return tmp_path


def test_figure_of_nothing_yet(checkout: Path) -> None:
    assert main(["figure", "step_time"]) == 0
    assert sorted(path.name for path in (checkout / "results/figures").iterdir()) == [
        "step_time.json",
        "step_time.pdf",
        "step_time.svg",
    ]


def test_table_of_nothing_yet(checkout: Path) -> None:
    assert main(["table", "states", "-o", "elsewhere"]) == 0
    lines = (checkout / "elsewhere/states.csv").read_text().splitlines()
    cells = len(load_study().configs) * load_study().repeats
    assert sum("foreign-missing" in line for line in lines) == 3 * cells  # v100, a100, h100
    assert sum(",missing," in line for line in lines) == cells  # cpu


def test_report_of_nothing_yet(checkout: Path) -> None:
    assert main(["report"]) == 0
    text = (checkout / "results/report.html").read_text()
    cells = len(load_study().configs) * load_study().repeats
    assert f"0 of {4 * cells} cells are done; the others: {3 * cells} foreign-missing, {cells} missing." in text


def test_report_of_an_imported_archive(checkout: Path, tmp_path: Path) -> None:
    elsewhere = crafted_effective(tmp_path / "elsewhere", site="jetstream2", configs=("baseline", "opt1"))
    craft_study(elsewhere, Truth(absent={"v100", "h100", "cpu"}, repeats=2))
    seen = survey(elsewhere)
    cells = [cell for cell in seen.cells if cell.gpu == "a100"]
    export_archive(seen, Keys(elsewhere), tmp_path / "a100.zip", cells, with_raw=False)
    assert main(["archive", "import", str(tmp_path / "a100.zip")]) == 0
    assert main(["report"]) == 0
    text = (checkout / "results/report.html").read_text()
    html5lib.HTMLParser(strict=True).parse(text)
    glance = text[text.index('id="glance"') : text.index('id="findings"')]
    assert re.findall(r'scope="rowgroup" colspan="6">(\w+)', glance) == ["a100"]
    assert '<th scope="row">a100' in text[text.index('class="matrix"') :][:4000]  # measured first
    assert "crafted: nobody measured this" in text
    assert "Made from a100: baseline r1 r2, opt1 r1 r2." in text


@pytest.mark.parametrize(("verb", "near"), [("figure", "step_time"), ("table", "summary")])
def test_unknown_name_is_one_sentence(verb: str, near: str, checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, near[:-1]]) == 2
    assert f"did you mean '{near}'?" in capsys.readouterr().err
