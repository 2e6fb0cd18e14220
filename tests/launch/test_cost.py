"""GPU-minutes and units of a site: hand-worked charges, estimates for what would run, times of what ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustudy.base.errors import UserError
from gpustudy.base.status import read_status, write_status
from gpustudy.launch.cost import SiteCost, site_cost, table
from gpustudy.launch.dispatch import site_of_profile
from gpustudy.launch.requests import Requests
from gpustudy.study.cells import Cell, Keys
from gpustudy.study.charges import units
from gpustudy.study.states import survey
from tests.support.crafted_results import craft_stage
from tests.support.studies import seen_from

SITES = seen_from("local").study.sites
STAGES = ("train", "census", "counters", "quality")


@pytest.mark.parametrize(
    ("site", "gpu_minutes", "charged"),
    [
        ("expanse", 90, 1.5),  # 1 SU per V100-hour
        ("expanse", 20, 1.0),  # at least 1 SU per job
        ("stampede3", 30, 2.0),  # a whole node: 4 SU per hour
        ("stampede3", 5, 1.0),  # at least 15 minutes
        ("stampede3-node", 60, 1.0),  # four cells share a node-hour of 4 SU
        ("jetstream2", 30, 64.0),  # g3.xl: 128 SU per hour
        ("expanse", 0, 0.0),
    ],
)
def test_a_job_is_charged_what_the_site_publishes(site, gpu_minutes, charged):
    assert units(SITES[site], gpu_minutes) == pytest.approx(charged)


def test_a_site_without_a_rate_charges_nothing_known():
    assert units(SITES["local"], 60) is None


def cost_of(site: str, results: Path, ran: dict[str, float]) -> SiteCost:
    """Cost of one repeat of one config at ``site``, after the stages of ``ran`` took so many seconds."""
    one = {"repeats": 1}
    seen = seen_from(site, one, results=results)
    keys = Keys(seen)
    gpu = seen.study.sites[site].gpus[0]
    for stage, seconds in ran.items():
        raw, _ = craft_stage(seen, keys, Cell(gpu, "opt12", 1), stage)
        status = read_status(raw)
        write_status(raw, type(status)(**{**vars(status), "seconds": seconds}))
    return site_cost(survey(seen, keys), Requests(seen))


def test_before_a_run_every_stale_cell_has_its_estimate_and_the_total_is_their_sum(tmp_path):
    found = cost_of("expanse", tmp_path, {})
    requests = Requests(seen_from("expanse"))
    minutes = sum(requests.estimate("v100", stage).seconds for stage in STAGES) / 60
    assert len(found.cells) == 7  # configs, one repeat of each
    assert {cell.stages for cell in found.cells} == {STAGES}
    assert found.cells[0].estimated_minutes == pytest.approx(minutes)
    assert found.total.estimated_minutes == pytest.approx(7 * minutes)
    assert found.total.estimated_units == pytest.approx(7 * max(1, minutes / 60))
    assert found.total.measured_stages == ()


def test_after_a_run_the_measured_minutes_stand_beside_the_estimate(tmp_path):
    found = cost_of("expanse", tmp_path, {"train": 600.0, "census": 300.0, "counters": 3600.0, "quality": 900.0})
    ran = next(cell for cell in found.cells if cell.cell == "v100/opt12/r1")
    assert ran.stages == ()
    assert ran.measured_minutes == 90.0
    assert ran.measured_units == pytest.approx(1.5)
    estimates = [Requests(seen_from("expanse")).estimate("v100", stage).seconds for stage in STAGES]
    assert ran.measured_estimate_minutes == pytest.approx(sum(estimates) / 60)
    assert found.total.measured_minutes == 90.0


def test_a_cell_half_done_shows_both(tmp_path):
    found = cost_of("expanse", tmp_path, {"train": 600.0})
    half = next(cell for cell in found.cells if cell.cell == "v100/opt12/r1")
    assert (half.stages, half.measured_stages) == (STAGES[1:], ("train",))


def test_one_long_job_is_charged_its_least_once(tmp_path):
    found = cost_of("stampede3-node", tmp_path, {"train": 60.0})
    assert found.total.measured_units == pytest.approx(1.0)  # 15 minutes of a node at 4 SU per hour


def test_the_table_says_what_is_modelled_and_where_the_rate_is_from(tmp_path):
    lines = "\n".join(table(cost_of("expanse", tmp_path, {"train": 600.0})))
    assert "GPU-min*" in lines
    assert "* modelled: " in lines
    assert "Rate: 1 SU per GPU-hour, at least 1 SU per job (SDSC" in lines
    assert "read 2026-06" in lines


def test_the_hours_of_the_whole_take_the_cells_that_run_at_once_into_account(tmp_path):
    found = cost_of("stampede3-node", tmp_path, {})
    assert found.at_once == 4
    hours = found.total.estimated_minutes / 60 / 4
    assert f"4 at a time: about {hours:.1f} hours in all (modelled)" in "\n".join(table(found))


def test_a_profile_leads_to_its_site(repository, monkeypatch):
    monkeypatch.chdir(repository)
    assert site_of_profile("expanse") == "expanse"
    assert site_of_profile("workflow/profiles/stampede3-node", "stampede3-node") == "stampede3-node"
    with pytest.raises(UserError, match="did you mean 'expanse'"):
        site_of_profile("expanze")
    with pytest.raises(UserError, match="is for site 'expanse', not 'local'"):
        site_of_profile("expanse", "local")
