"""Counters that a site does not permit: the cell keeps its times and its census, and the report says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustudy.analysis.dataset import Dataset
from gpustudy.analysis.findings import sentences
from gpustudy.analysis.report import render
from gpustudy.base.atomic import write_json
from gpustudy.base.status import Status, write_status
from gpustudy.cell.ncu_preflight import check_rights
from gpustudy.cell.outcomes import Outcome
from gpustudy.metrics.make import make_metrics
from gpustudy.study.cells import Keys
from gpustudy.study.load import Effective
from gpustudy.study.paths import CELLS, METRICS, stage_directory
from gpustudy.study.states import survey
from tests.support.crafted_study import Truth, craft_study, crafted_effective, provenance


def refusal(tmp_path: Path) -> Outcome:
    """What the counters stage ends with before any training where the driver keeps counters for administrators."""
    (tmp_path / "params").write_text("RmProfilingAdminOnly: 1\n")
    (tmp_path / "status").write_text("CapEff:\t0000000000000000\n")
    with pytest.raises(Outcome) as caught:
        check_rights(tmp_path / "params", tmp_path / "status")
    return caught.value


def craft_refused_counters(effective: Effective, outcome: Outcome, truth: Truth) -> None:
    """Write what the counters stage leaves where it ends so, for every crafted v100 cell."""
    keys = Keys(effective)
    for cell in keys.cells():
        if cell.gpu != "v100":
            continue
        key = keys.stage_key(cell, "counters")
        place = (cell.gpu, cell.config, cell.repeat, "counters")
        raw = stage_directory(effective.results, CELLS, *place, key)
        write_json(raw / "cell.json", keys.cell_file(cell, "counters"))
        write_json(raw / "provenance.json", provenance(cell, truth))
        write_status(raw, Status("counters", key, outcome.state, outcome.reason, outcome.detail))
        metrics_key = keys.metrics_key(key, "counters")
        make_metrics(raw, stage_directory(effective.results, METRICS, *place, metrics_key), metrics_key)


@pytest.fixture
def refused(tmp_path: Path) -> Dataset:
    truth = Truth(absent={"a100", "h100", "cpu"}, lacking={"counters"})
    effective = craft_study(crafted_effective(tmp_path / "results", configs=("baseline", "opt2")), truth)
    craft_refused_counters(effective, refusal(tmp_path), truth)
    return Dataset(survey(effective))


def test_times_and_census_stay_and_the_report_says_why_counters_are_absent(refused: Dataset) -> None:
    for cell in refused.survey.cells:
        if cell.gpu == "v100":
            states = {stage.stage: stage.state for stage in cell.stages}
            assert states == {"train": "done", "census": "done", "counters": "unavailable", "quality": "done"}
    assert all(refused.step_times(group) for group in refused.groups("v100"))
    (sentence,) = [text for text in sentences(refused) if "no hardware counters" in text]
    assert sentence.startswith("On v100, baseline and opt2 have times but no hardware counters: this user may not read")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in sentence
    html = render(refused)
    assert "baseline and opt2 have times but no hardware counters" in html
    assert html.count("On v100, a step of baseline takes") == 1
