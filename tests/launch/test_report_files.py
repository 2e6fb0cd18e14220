"""Before ``snakemake --report`` looks, exactly what is missing or not current is drawn."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpustudy.analysis.names import FIGURES, TABLES
from gpustudy.launch.report_files import draw_for_report
from gpustudy.study.load import Effective, read_yaml, validate
from gpustudy.study.workplan import Workplan


@pytest.fixture
def plan(tmp_path: Path, repository: Path) -> Workplan:
    study = validate([(repository / "config.yaml", read_yaml(repository / "config.yaml"))])
    return Workplan(Effective(study, "local", tmp_path / "results"))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The verbs that were called, with their names and folder."""
    calls: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        calls.append(command[3:])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    return calls


@pytest.mark.parametrize("words", [["--report"], ["--report=r.html"], ["--cores", "1", "--report", "r.html"]])
def test_everything_is_drawn_where_nothing_is_there(words: list[str], plan: Workplan, drawn: list[list[str]]) -> None:
    draw_for_report(plan, words)
    assert [call[0] for call in drawn] == ["figure", "table"]
    assert drawn[0][1:-2] == list(FIGURES)
    assert drawn[1] == ["table", *TABLES, "-o", str(plan.results / "tables")]


@pytest.mark.parametrize("words", [["--cores", "all"], ["-n"], ["--report-stylesheet", "my.css"], ["report"]])
def test_other_calls_draw_nothing(words: list[str], plan: Workplan, drawn: list[list[str]]) -> None:
    draw_for_report(plan, words)
    assert drawn == []


def test_what_is_current_and_there_is_left_alone(plan: Workplan, drawn: list[list[str]]) -> None:
    figures = plan.results / "figures"
    figures.mkdir(parents=True)
    for name in ("step_time", "speedup"):
        marker = Path(plan.markers[name])
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    (figures / "step_time.svg").touch()  # speedup's was removed by hand, class_time's is of an older key
    (figures / "class_time.svg").touch()
    draw_for_report(plan, ["--report"])
    assert drawn[0][1:-2] == [name for name in FIGURES if name != "step_time"]


def test_a_figure_that_cannot_be_drawn_ends_the_process(plan: Workplan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, 2))
    with pytest.raises(SystemExit) as ended:
        draw_for_report(plan, ["--report"])
    assert ended.value.code == 2
