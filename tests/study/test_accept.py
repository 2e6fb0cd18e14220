"""Accepting stale results: what counts as current then, what is refused, and that it is never hidden."""

from __future__ import annotations

import json

import pytest

import gpustudy.study.cells as cells_module
from gpustudy.base.errors import UserError
from gpustudy.study.accept import accept, parse_cells, withdraw
from gpustudy.study.acceptances import ACCEPTED_FILE
from gpustudy.study.aside import set_aside
from gpustudy.study.cells import Cell, Keys
from gpustudy.study.pending import pending, stale_differences
from gpustudy.study.products import markers
from gpustudy.study.states import cell_state, survey
from gpustudy.study.workplan import Workplan
from tests.support.crafted_results import craft, craft_stage

CELL = Cell("cpu", "opt2", 1)


@pytest.fixture
def edit_sources(monkeypatch):
    """Return a function after whose call all sources in a table of stages read as edited."""
    real = cells_module.digest_of

    def edit(patterns_by_stage):
        edited = set(patterns_by_stage.values())
        monkeypatch.setattr(
            cells_module, "digest_of", lambda patterns: "e" * 64 if patterns in edited else real(patterns)
        )

    return edit


def state_of(effective, cell=CELL):
    return cell_state(effective.results, Keys(effective), cell)


def test_accepted_results_are_current_and_marked(study_of, edit_sources):
    effective = study_of()
    craft(effective)
    before = {stage.stage: stage.key for stage in state_of(effective).stages}
    edit_sources(cells_module.STAGE_SOURCES)
    assert state_of(effective).state == "stale"
    made = accept(effective, [CELL], "a comment")
    assert [record.stage for record in made] == ["train", "census", "quality"]
    found = state_of(effective)
    assert (found.state, found.accepted) == ("done", True)
    assert {stage.stage: stage.key for stage in found.stages} == before
    assert all(stage.raw and stage.metrics for stage in found.stages)
    assert state_of(effective, Cell("cpu", "opt2", 2)).state == "stale"


def test_a_record_says_who_why_when_and_what_differs(study_of, edit_sources):
    effective = study_of()
    craft(effective)
    edit_sources(cells_module.STAGE_SOURCES)
    accept(effective, [CELL], "  a comment\nin a file ")
    lines = [json.loads(line) for line in (effective.results / ACCEPTED_FILE).read_text().splitlines()]
    assert {line["reason"] for line in lines} == {"a comment in a file"}
    assert all(line["who"] and line["when"].startswith("20") and line["old"] != line["new"] for line in lines)
    assert all("sources.digest" in line["differing"][0] for line in lines)


def test_nothing_of_an_accepted_cell_is_pending_but_the_figures_are(study_of, edit_sources):
    effective = study_of()
    craft(effective)
    edit_sources(cells_module.STAGE_SOURCES)
    before = markers(survey(effective))
    accept(effective, parse_cells(["cpu"], effective, Keys(effective)), "a comment")
    found = list(pending(survey(effective), Keys(effective)))
    assert {entry.kind for entry in found} == {"product"}
    assert markers(survey(effective)) != before
    assert all(cell.accepted for cell in survey(effective).cells if cell.gpu == "cpu")


def test_a_stage_after_an_accepted_one_continues_it(study_of, edit_sources):
    effective = study_of()
    keys = Keys(effective)
    craft_stage(effective, keys, CELL, "train")
    old = keys.stage_key(CELL, "train")
    edit_sources(cells_module.STAGE_SOURCES)
    accept(effective, [CELL], "a comment")
    now = Keys(effective)
    assert now.document(CELL, "census")["previous"]["key"] == old
    raw = Workplan(effective).raw_of_metrics(
        type("W", (), {"gpu": "cpu", "config": "opt2", "repeat": "1", "stage": "train"})
    )
    assert f"train-{old}" in raw


def test_a_further_change_makes_an_accepted_cell_stale_again(study_of, edit_sources):
    effective = study_of()
    craft(effective)
    edit_sources(cells_module.STAGE_SOURCES)
    accept(effective, [CELL], "a comment")
    changed = study_of({"workloads": {"demo": {"train": {"iterations": 7}}}})
    assert state_of(changed).state == "stale"
    assert not state_of(changed).accepted


def test_a_result_made_anew_takes_the_place_of_an_accepted_one(study_of, edit_sources):
    effective = study_of()
    craft(effective)
    edit_sources(cells_module.STAGE_SOURCES)
    accept(effective, [CELL], "a comment")
    fresh = FreshKeys(effective)
    for stage in fresh.stages("cpu"):
        craft_stage(effective, fresh, CELL, stage)
    found = state_of(effective)
    assert [stage.key for stage in found.stages] == [fresh.document_key(CELL, stage.stage) for stage in found.stages]
    assert (found.state, found.accepted) == ("done", False)


class FreshKeys(Keys):
    """Keys that know of no acceptance, as a stage that runs."""

    def acceptance(self, cell, stage):
        return None


@pytest.mark.parametrize(
    ("overlay", "field"),
    [
        ({"workloads": {"demo": {"train": {"iterations": 7}}}}, "workload.train.iterations: 3 -> 7"),
        ({"configs": {"opt2": {"pytorch_defaults": True}}}, "config.pytorch_defaults: false -> true"),
        ({"seed": 1}, "seed: 2027 -> 2"),
        ({"gpus": {"cpu": {"threads": 1}}}, "gpu.threads: 2 -> 1"),
    ],
)
def test_a_result_that_measured_something_else_is_refused(study_of, overlay, field):
    craft(study_of())
    effective = study_of(overlay)
    with pytest.raises(UserError, match="measured something else") as caught:
        accept(effective, [CELL], "never mind")
    assert field in str(caught.value)
    assert not (effective.results / ACCEPTED_FILE).exists()


def test_an_empty_reason_and_a_result_without_cell_file_are_refused(study_of, edit_sources):
    effective = study_of()
    craft(effective)
    edit_sources(cells_module.STAGE_SOURCES)
    with pytest.raises(UserError, match="--reason is empty"):
        accept(effective, [CELL], " ")
    for path in effective.results.glob("cells/cpu/opt2/r1/train-*/cell.json"):
        path.unlink()
    with pytest.raises(UserError, match="no old result with a readable cell file"):
        accept(effective, [CELL], "a comment")


def test_an_accepted_result_set_aside_is_measured_anew(study_of, edit_sources):
    effective = study_of()
    craft(effective)
    edit_sources(cells_module.STAGE_SOURCES)
    accept(effective, [CELL], "a comment")
    set_aside(survey(effective), Keys(effective), CELL, None)
    keys = Keys(effective)
    assert keys.stage_key(CELL, "train") == keys.document_key(CELL, "train")
    assert state_of(effective).state == "missing"


def test_withdrawing_makes_the_cell_stale_again(study_of, edit_sources):
    effective = study_of()
    craft(effective)
    edit_sources(cells_module.STAGE_SOURCES)
    accept(effective, parse_cells(["cpu/opt2"], effective, Keys(effective)), "a comment")
    assert len(withdraw(effective, [CELL])) == 3
    assert state_of(effective).state == "stale"
    assert state_of(effective, Cell("cpu", "opt2", 2)).accepted


def test_tables_without_raw_files_are_accepted_when_the_code_that_makes_tables_was_edited(study_of, edit_sources):
    effective = study_of()
    cell = Cell("a100", "opt1", 2)
    craft(effective, ("a100",), raw=False)
    edit_sources(cells_module.METRICS_SOURCES)
    assert state_of(effective, cell).state == "foreign-stale"
    stage = state_of(effective, cell).stages[0]
    assert [str(found) for found in stale_differences(cell, stage, Keys(effective))] == [
        "sources of the tables: as they were -> edited"
    ]
    accept(effective, [cell], "a comment")
    assert (state_of(effective, cell).state, state_of(effective, cell).accepted) == ("done", True)
    assert len([path for path in Workplan(effective).tables() if "/a100/opt1/r2/" in path]) == 4


def test_cells_are_named_by_gpu_config_and_repeat(study_of):
    effective = study_of()
    keys = Keys(effective)
    assert parse_cells(["cpu/opt2/r1", "cpu/opt2/r1"], effective, keys) == [CELL]
    assert len(parse_cells(["cpu/opt2"], effective, keys)) == effective.study.repeats
    assert len(parse_cells(["cpu"], effective, keys)) == effective.study.repeats * len(effective.study.configs)
    for text in ("cpu/opt2/1", "cpu/opt2/r1/train", "cpu/opt9", "gpu"):
        with pytest.raises(UserError):
            parse_cells([text], effective, keys)
