"""``gpustudy claims`` from the command line: what it prints, and which exit code scripts get."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from gpustudy.cli import main
from gpustudy.study.load import Effective


@pytest.fixture
def checkout(tmp_path: Path, repository: Path, crafted_study: Effective, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the study's config and crafted results."""
    shutil.copy(repository / "config.yaml", tmp_path)
    (tmp_path / "results").symlink_to(crafted_study.results)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUSTUDY_CONFIG", raising=False)
    return tmp_path


def test_it_prints_verdicts_under_the_banner(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "G3", "O2-2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("CRAFTED DATA")
    assert any(line.split()[:2] == ["O2-2", "IMPLAUSIBLE"] for line in lines)
    assert lines[-1] == "2 claims: 1 IMPLAUSIBLE, 1 SUPPORTED"


def test_explained_it_names_readings_numbers_and_cells(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "G3", "--explain"]) == 0
    text = capsys.readouterr().out
    assert "step_s of a100/opt1 over a100/baseline: 0.2889 x" in text
    assert "a100/baseline/r1,2,3" in text
    assert "ambiguity" in text


def test_json_is_whole(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claims", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["claims"]) == 39


def test_output_goes_to_a_file(checkout: Path) -> None:
    assert main(["claims", "K01", "-o", "out.json"]) == 0
    assert [claim["id"] for claim in json.loads((checkout / "out.json").read_text())["claims"]] == ["K01"]


@pytest.mark.parametrize(
    ("verdicts", "code"), [("contradicted", 0), ("implausible", 1), ("not-measured,IMPLAUSIBLE", 1)]
)
def test_scripts_can_fail_on_a_verdict(checkout: Path, verdicts: str, code: int) -> None:
    assert main(["claims", "O2-2", "--fail-on", verdicts]) == code


def test_scripts_can_compare_with_expected_verdicts(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = checkout / "expected.json"
    expected.write_text('{"G3": "SUPPORTED", "O2-2": "IMPLAUSIBLE"}')
    assert main(["claims", "--expect", "expected.json"]) == 0
    expected.write_text('{"G3": "CONTRADICTED"}')
    assert main(["claims", "--expect", "expected.json"]) == 1
    assert "not as asked: G3 is SUPPORTED, expected CONTRADICTED" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["O9"], "unknown claim 'O9'"),
        (["--fail-on", "contradict"], "unknown verdict 'contradict': did you mean 'CONTRADICTED'?"),
        (["--expect", "absent.json"], "absent.json does not exist: name a JSON file of verdicts by claim"),
        (["--expect", "."], ". is a folder, not a file: name a JSON file"),
        (["--expect", "broken.json"], "broken.json is no JSON (Expecting value: line 1 column 6 (char 5))"),
        (["--expect", "list.json"], "list.json holds no verdicts by claim"),
        (["--expect", "typo.json"], "unknown verdict 'SUPORTED': did you mean 'SUPPORTED'?"),
    ],
)
def test_mistakes_are_one_sentence(
    checkout: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    (checkout / "list.json").write_text("[]")
    (checkout / "broken.json").write_text('{"a":')
    (checkout / "typo.json").write_text('{"G3": "SUPORTED"}')
    assert main(["claims", *arguments]) == 2
    assert said in capsys.readouterr().err
