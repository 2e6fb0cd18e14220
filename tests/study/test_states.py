"""States of cells, what would run and why, and setting results aside: on crafted results."""

from __future__ import annotations

import json

import pytest

from gpustudy.base.errors import UserError
from gpustudy.base.status import Status, write_status
from gpustudy.study.aside import set_aside
from gpustudy.study.cells import Cell, Keys
from gpustudy.study.pending import pending
from gpustudy.study.products import markers
from gpustudy.study.states import survey
from gpustudy.study.workplan import Workplan, parse_cell
from tests.support.crafted_results import craft, craft_stage


def states(effective):
    return {str(state.cell): state.state for state in survey(effective).cells}


def test_an_empty_folder_is_missing_here_and_foreign_missing_elsewhere(study_of):
    found = states(study_of())
    assert found["cpu/baseline/r1"] == "missing"
    assert found["a100/baseline/r1"] == "foreign-missing"
    assert states(study_of(site="jetstream2"))["a100/baseline/r1"] == "missing"


def test_results_under_the_present_keys_are_done_wherever_they_were_made(study_of):
    effective = study_of()
    craft(effective, ("cpu", "a100"))
    assert states(effective)["cpu/opt2/r3"] == "done"
    assert states(effective)["a100/opt2/r3"] == "done"


def test_tables_alone_make_a_foreign_cell_usable(study_of):
    effective = study_of()
    craft(effective, ("a100",), raw=False)
    assert states(effective)["a100/opt2/r3"] == "done"
    assert any("results/metrics/a100" in path for path in Workplan(effective).everything())


def test_another_value_makes_exactly_those_cells_stale_and_taking_it_back_makes_them_done(study_of):
    effective = study_of()
    craft(effective, ("cpu", "a100"))
    overlay = {"configs": {"opt2": {"optimisations": ["channels_last", "sdpa"]}}}
    found = states(study_of(overlay))
    assert {cell for cell, state in found.items() if state == "stale"} == {f"cpu/opt2/r{n}" for n in (1, 2, 3)}
    assert {cell for cell, state in found.items() if state == "foreign-stale"} == {f"a100/opt2/r{n}" for n in (1, 2, 3)}
    assert states(effective)["cpu/opt2/r1"] == "done"


def test_a_stale_foreign_cell_is_no_input_of_anything(study_of):
    craft(study_of(), ("cpu", "a100"))
    plan = Workplan(study_of({"configs": {"opt2": {"optimisations": ["channels_last", "sdpa"]}}}))
    assert not [path for path in plan.tables() if "/a100/opt2/" in path]
    assert len([path for path in plan.tables() if "/a100/baseline/" in path]) == 12


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ({("opt1", "train"): "unsupported"}, "unsupported"),
        ({("opt1", "quality"): "failed"}, "failed"),
        ({("opt1", "census"): "unavailable"}, "unavailable"),
        ({("opt1", "train"): "unsupported", ("opt1", "census"): "failed"}, "failed"),
    ],
)
def test_the_worst_stage_decides_the_state_and_gives_the_reason(study_of, broken, expected):
    effective = study_of()
    craft(effective, states=broken)
    found = next(state for state in survey(effective).cells if str(state.cell) == "cpu/opt1/r1")
    assert found.state == expected
    assert expected in found.reason
    assert not [entry for entry in pending(survey(effective), Keys(effective)) if entry.kind == "stage"]


def test_a_stage_without_status_file_is_missing(study_of):
    effective = study_of()
    craft(effective)
    keys = Keys(effective)
    raw, metrics = craft_stage(effective, keys, Cell("cpu", "opt2", 1), "census")
    (raw / "status.json").unlink()
    (metrics / "metrics.json").unlink()
    assert states(effective)["cpu/opt2/r1"] == "missing"


def test_raw_files_replaced_under_the_same_key_make_their_tables_stale(study_of):
    effective = study_of()
    craft(effective)
    keys = Keys(effective)
    before = Workplan(effective)
    raw, _ = craft_stage(effective, keys, Cell("cpu", "opt2", 1), "train")
    (raw / "crafted.txt").write_text("measured again\n")
    write_status(raw, Status("train", keys.stage_key(Cell("cpu", "opt2", 1), "train"), "done"))
    after = Workplan(effective)
    new = set(after.tables()) - set(before.tables())
    assert len(new) == 1
    assert "cpu/opt2/r1/train-" in new.pop()
    assert after.markers != before.markers


def test_what_tables_show_of_a_site_is_in_their_key_and_nothing_else_of_it(study_of):
    def keys_with(**of_expanse):
        return markers(survey(study_of({"sites": {"expanse": of_expanse}})))

    before = markers(survey(study_of()))
    assert keys_with(default_minutes=99, description="another text") == before
    assert keys_with(rate={"per_gpu_hour": 2})["cost"] != before["cost"]
    assert keys_with(gpus=["v100", "a100"])["platforms"] != before["platforms"]


def test_a_stale_stage_says_the_first_value_that_differs(study_of):
    craft(study_of())
    effective = study_of({"workloads": {"demo": {"census": {"iterations": 7}}}})
    found = {entry.what: entry.why for entry in pending(survey(effective), Keys(effective)) if entry.kind == "stage"}
    assert set(found) == {f"cpu/{config}/r{n} census" for config in effective.study.configs for n in (1, 2, 3)}
    assert found["cpu/opt2/r1 census"] == "stale: workload.census.iterations: 1 -> 7"


def test_nothing_is_pending_when_all_is_there(study_of):
    effective = study_of()
    craft(effective)
    for path in markers(survey(effective)).values():
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert list(pending(survey(effective), Keys(effective))) == []


def test_retry_sets_a_stage_and_all_made_from_it_aside(study_of):
    effective = study_of()
    craft(effective)
    for path in markers(survey(effective)).values():
        path.parent.mkdir(exist_ok=True)
        path.touch()
    keys = Keys(effective)
    moved = set_aside(survey(effective), keys, Cell("cpu", "opt2", 1), "census")
    assert {path.name.split("-")[0] for path in moved} == {"census"}
    found = {entry.what for entry in pending(survey(effective), keys)}
    assert found == {"cpu/opt2/r1 census", "cpu/opt2/r1 census tables", *markers(survey(effective))}
    assert list(effective.results.glob(".aside/*/cells/cpu/opt2/r1/census-*/status.json"))


def test_retry_of_train_takes_every_later_stage_with_it_and_may_be_repeated(study_of):
    effective = study_of()
    keys = Keys(effective)
    for _ in range(2):
        craft(effective)
        moved = set_aside(survey(effective), keys, Cell("cpu", "opt2", 1), "train")
        assert {path.name.split("-")[0] for path in moved} == {"train", "census", "quality"}
    assert len(list(effective.results.glob(".aside/*/cells/cpu/opt2/r1/train-*"))) == 2


def test_retry_refuses_what_it_cannot_do(study_of):
    effective = study_of()
    keys = Keys(effective)
    with pytest.raises(UserError, match="no present result to set aside"):
        set_aside(survey(effective), keys, Cell("cpu", "opt2", 1), None)
    craft(effective, ("a100",))
    with pytest.raises(UserError, match="cannot run at site local"):
        set_aside(survey(effective), keys, Cell("a100", "opt2", 1), None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu/opt2", "is no cell: write GPU/CONFIG/rN"),
        ("cpu/opt2/1", "is no cell"),
        ("cpuu/opt2/r1", "no gpu 'cpuu': did you mean 'cpu'"),
        ("cpu/opt3/r1", "no config 'opt3': did you mean 'opt"),
        ("cpu/opt2/r9", "no repeat '9'"),
        ("cpu/opt2/r1/trian", "no stage 'trian': did you mean 'train'"),
    ],
)
def test_a_cell_that_does_not_exist_is_told_with_the_nearest_name(study_of, text, message):
    with pytest.raises(UserError, match=message):
        parse_cell(text, Keys(study_of()))


def test_a_broken_status_or_table_file_damages_its_cell_alone(study_of):
    effective = study_of()
    keys = Keys(effective)
    craft(effective)
    cell = Cell("cpu", "opt2", 1)
    raw, metrics = craft_stage(effective, keys, cell, "train")
    whole_survey = survey(effective)
    markers_before = markers(whole_survey)
    whole = json.loads((metrics / "metrics.json").read_text())
    for broken in (
        "{",
        "null",
        "{}",
        "[" * 100_000,
        json.dumps(whole | {"state": 5}),
        json.dumps(whole | {"null_control": [3]}),
    ):
        (metrics / "metrics.json").write_text(broken)
        _, reason = only_damaged(survey(effective), cell)
        assert "metrics.json is unreadable" in reason
        assert "remove that folder" in reason
        assert "NoneType" not in reason
    (metrics / "metrics.json").unlink()
    (raw / "status.json").write_text("{")
    stage, reason = only_damaged(survey(effective), cell)
    assert stage.raw == raw
    assert f"{raw}/status.json is not a readable status file" in reason
    assert "set the stage aside with 'gpustudy retry'" in reason
    plan = Workplan(effective)
    assert plan.damaged_notes() == [f"cpu/opt2/r1/train is damaged and left out: {reason}"]
    assert plan._wanted(gpu="cpu") == []
    assert plan.markers["step_time"] != markers_before["step_time"]
    assert [entry for entry in pending(plan.survey, keys) if entry.kind != "product"] == []
    assert raw in set_aside(plan.survey, keys, cell, "train")
    assert next(state for state in survey(effective).cells if state.cell == cell).state == "missing"


def only_damaged(seen, cell):
    """Return the damaged stage of a cell and the reason that the cell gives; every other cell is as it was."""
    by_cell = {state.cell: state for state in seen.cells}
    damaged = by_cell[cell]
    assert damaged.state == "damaged"
    assert {state.state for state in seen.cells if state.gpu == "cpu"} == {"done", "damaged"}
    return damaged.stages[0], damaged.reason


def test_foreign_notes_name_every_cell_and_what_to_do(study_of):
    effective = study_of()
    craft(effective, ("a100",))
    notes = Workplan(effective).foreign_notes()
    assert [note.split()[0] for note in notes] == ["v100", "h100"]
    for config in effective.study.configs:
        assert f"{config} r1 r2 r3" in notes[0]
    assert "expanse" in notes[0]


def test_product_keys_follow_foreign_states(study_of):
    effective = study_of()
    craft(effective)
    before = markers(survey(effective))
    craft(effective, ("a100",))
    assert markers(survey(effective))["step_time"] != before["step_time"]


def test_status_and_why_speak_json(study_of, capsys, monkeypatch, repository):
    from gpustudy.cli import main

    monkeypatch.chdir(repository)
    monkeypatch.delenv("GPUSTUDY_CONFIG", raising=False)
    assert main(["status", "--json", "--gpu", "a100"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["gpu"] for row in rows} == {"a100"}
    assert len(rows) == 3 * len(study_of().study.configs)
    assert main(["why", "a100/opt1/r2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["stages"][0]["document"]["config"]["optimisations"] == ["tf32"]
    assert main(["plan", "--json"]) == 0
    assert "pending" in json.loads(capsys.readouterr().out)
