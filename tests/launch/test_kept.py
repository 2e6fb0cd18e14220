"""A stage that a run has finished is put back when Snakemake removes it, and nothing else is."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from gpustudy.base.status import STATUS_FILE, Status, write_status
from gpustudy.launch.kept import KEPT, begin_run, note_finished, put_all_back, put_back

STAGE = Path("results/cells/v100/opt1/r1/train-0123456789ab")


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stage's folder that run 7 has finished, whose status file Snakemake then removed."""
    monkeypatch.chdir(tmp_path)
    run(7)
    STAGE.mkdir(parents=True)
    (STAGE / "steps.jsonl").write_text("crafted\n")
    write_status(STAGE, Status("train", "0123456789ab", "done"))
    note_finished(Path("results"), STAGE)
    (STAGE / STATUS_FILE).unlink()
    return STAGE / STATUS_FILE


def run(process: int) -> None:
    lock = Path(".snakemake/gpustudy-run.lock")
    lock.parent.mkdir(exist_ok=True)
    lock.write_text(f"process {process} on here")


def test_the_same_run_puts_a_finished_stage_back_instead_of_running_it_again(finished):
    assert put_back(Path("results"), STAGE)
    assert '"done"' in finished.read_text()


def test_a_status_file_that_is_there_is_no_reason_to_skip_a_stage(finished):
    assert put_back(Path("results"), STAGE)
    assert not put_back(Path("results"), STAGE)


def test_another_run_makes_the_stage_anew(finished):
    run(8)
    assert not put_back(Path("results"), STAGE)
    assert not finished.exists()


@pytest.mark.parametrize("damage", ["edit", "remove", "record"])
def test_nothing_is_put_back_over_raw_files_that_are_not_the_finished_ones(finished, damage):
    if damage == "edit":
        (STAGE / "steps.jsonl").write_text("other\n")
    elif damage == "remove":
        (STAGE / "steps.jsonl").unlink()
    else:
        next((Path("results") / KEPT).iterdir()).write_text("{")
    assert not put_back(Path("results"), STAGE)
    put_all_back(Path("results"))
    assert not finished.exists()


def test_a_failed_run_leaves_the_stages_that_it_finished(finished):
    put_all_back(Path("results"))
    assert finished.exists()


def test_the_next_run_puts_back_what_a_killed_one_had_finished_and_then_forgets_it(finished):
    run(8)
    begin_run(Path("results"))
    assert finished.exists()
    assert not (Path("results") / KEPT).exists()


def test_snakemakes_mark_is_taken_off_what_is_complete_alone(finished):
    put_all_back(Path("results"))
    half = STAGE.with_name("census-0123456789ab") / STATUS_FILE
    marks = [mark_incomplete(str(path)) for path in (finished, half, Path("results/figures/step_time.svg"))]
    begin_run(Path("results"))
    assert [mark.exists() for mark in marks] == [False, True, True]


def mark_incomplete(output: str) -> Path:
    mark = Path(".snakemake/incomplete") / urlsafe_b64encode(output.encode()).decode()
    mark.parent.mkdir(exist_ok=True)
    mark.write_text("{}")
    return mark


def test_a_stage_started_by_hand_is_noted_nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    STAGE.mkdir(parents=True)
    write_status(STAGE, Status("train", "0123456789ab", "done"))
    note_finished(Path("results"), STAGE)
    assert not (Path("results") / KEPT).exists()
