"""The artifact description: every claim with its artefacts, times from records alone, both forms well made."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from gpustudy.analysis.appendix import recorded_jobs, sections, to_latex, to_markdown
from gpustudy.analysis.claim_models import load_claims
from gpustudy.analysis.dataset import Dataset
from gpustudy.analysis.names import FIGURES, TABLES
from gpustudy.cli import main
from gpustudy.study.load import Effective
from gpustudy.study.states import survey
from tests.support.crafted_study import crafted_effective


@pytest.fixture(scope="module")
def dataset(crafted_study: Effective) -> Dataset:
    return Dataset(survey(crafted_study))


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """Records as Snakemake 9 keeps them: one an output, here two of one job."""
    folder = tmp_path / "metadata"
    folder.mkdir()
    for name, rule, start, end in (
        ("a", "prepare_data", 100.0, 130.0),
        ("b", "prepare_data", 100.0, 130.0),
        ("c", "draw_step_time", 200.0, 203.0),
        ("d", "draw_step_time", 210.0, 214.0),
    ):
        record = {"rule": rule, "starttime": start, "endtime": end, "record_format_version": 6}
        (folder / name).write_text(json.dumps(record))
    (folder / "broken").write_text("{")
    (folder / "other").write_text('{"rule": "x", "starttime": null}')
    return folder


def test_jobs_are_counted_once_and_broken_records_left_out(records: Path) -> None:
    assert recorded_jobs(records) == {"prepare_data": (30.0, 1), "draw_step_time": (7.0, 2)}
    assert recorded_jobs(records / "absent") == {}


def test_times_come_from_records_or_are_not_recorded(dataset: Dataset, records: Path) -> None:
    text = to_markdown(sections(dataset, records))
    assert "| set-up | prepare_data (1 job) | 30.0 s |" in text
    assert "| analysis | draw_step_time (2 jobs) | 7.00 s |" in text
    assert "| execution | counters on a100, 15 cells | 2.5 h | status files of the stages (crafted) |" in text
    assert "| set-up | installing the environment | not recorded | no record is kept |" in text


def test_nothing_recorded_says_so(tmp_path: Path) -> None:
    text = to_markdown(sections(Dataset(survey(crafted_effective(tmp_path))), tmp_path / "absent"))
    assert text.count("not recorded") == 4  # set-up twice, execution, analysis
    assert "39 NOT MEASURED" in text


def test_every_claim_stands_with_verdict_and_figures(dataset: Dataset, records: Path) -> None:
    text = to_markdown(sections(dataset, records))
    for claim in load_claims():
        assert re.search(rf"^- \*\*{re.escape(claim.id)}, [A-Z ]+( \(crafted\))?\.\*\* ", text, re.MULTILINE), claim.id
    assert "CRAFTED DATA" in text
    for folder, names in (("figures", FIGURES), ("tables", TABLES)):
        assert all(f"{folder}/{name}." in text for name in names)


def test_latex_balances_its_environments_and_escapes(dataset: Dataset, records: Path) -> None:
    text = to_latex(sections(dataset, records))
    assert re.findall(r"\\begin{(\w+)}", text) == re.findall(r"\\end{(\w+)}", text)
    outside = re.sub(r"\\begin{verbatim}.*?\\end{verbatim}", "", text, flags=re.DOTALL)
    assert not re.search(r"(?<!\\)[%#_]", outside)
    for table in re.findall(r"\\toprule(.*?)\\bottomrule", text, re.DOTALL):
        rows = [line for line in table.splitlines() if line.endswith(r"\\")]
        assert len({len(re.split(r"(?<!\\)&", row)) for row in rows}) == 1


def test_the_verb_writes_both_forms_and_replaces_only_its_own(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(repository / "config.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUSTUDY_CONFIG", raising=False)
    assert main(["appendix"]) == 0
    assert main(["appendix"]) == 0
    assert {path.name for path in (tmp_path / "results").iterdir()} == {"appendix.md", "appendix.tex"}
    (tmp_path / "README.md").write_text("mine\n")
    assert main(["appendix", "-o", "README.md"]) == 2
    assert "is there already and is no artifact description" in capsys.readouterr().err
    assert main(["appendix", "-o", "out.pdf"]) == 2
    assert (tmp_path / "README.md").read_text() == "mine\n"
