"""What cells ask of a site: estimated, growing with each attempt, refused above what is granted."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpustudy.base.errors import UserError
from gpustudy.launch import estimate
from gpustudy.launch.estimate import estimate_stage
from gpustudy.launch.requests import Requests
from gpustudy.launch.workload import step_flops
from gpustudy.study.cells import Cell
from tests.launch.places import place_at
from tests.support.studies import seen_from

STAGES = ["train", "census", "counters", "quality"]
CELL = Cell("v100", "opt12", 1)


def asked(site: str, gpu: str, stage: str, attempt: int = 1, **overlay: object) -> dict[str, object]:
    """The resources of one stage's rule, evaluated."""
    requests = Requests(seen_from(site, overlay))
    wildcards = SimpleNamespace(gpu=gpu)
    return {
        name: value(wildcards, attempt) if callable(value) else value
        for name, value in requests.resources(stage).items()
    }


def test_time_is_operations_over_the_share_of_the_peak_that_is_taken_to_be_reached():
    seen = seen_from("expanse")
    workload = seen.study.workloads["paper"]
    flops = step_flops(workload.model, 2) * (25 + 2)
    start_s = estimate.START_S + estimate.CONTAINER_START_S
    found = estimate_stage(seen.study, seen.study.sites["expanse"], "v100", "train")
    assert found.seconds == pytest.approx(start_s + flops / (15.7e12 * estimate.REACHED_SHARE))
    assert found.basis == "15% of the float32 peak of V100-SXM2-32GB"


def test_a_gpu_without_a_known_peak_takes_the_sites_own_minutes():
    gpus = {"b300": {"architecture": "sm_103", "device_name": "B300", "workload": "paper", "stack": "current"}}
    sites = {"expanse": {"gpus": ["b300"], "default_minutes": 90}}
    assert asked("expanse", "b300", "train", gpus=gpus, sites=sites)["runtime"] == 90


def test_longer_training_asks_for_more_minutes():
    longer = {"paper": {"train": {"iterations": 250}}}
    assert (
        asked("expanse", "v100", "train", workloads=longer)["runtime"]
        > 5 * asked("expanse", "v100", "train")["runtime"]
    )


def test_all_stages_of_a_cell_ask_for_the_same_place():
    places = [
        {name: value for name, value in asked("expanse", "v100", stage).items() if isinstance(value, str)}
        for stage in STAGES
    ]
    nothing_more = {"gpu_model": "", "slurm_extra": ""}
    assert places == [{"slurm_partition": "gpu-shared", "slurm_account": ""} | nothing_more] * 4


def test_a_gpu_that_a_site_knows_by_a_name_is_asked_for_by_it_and_a_cpu_is_not():
    named = {"expanse": {"gpus": ["v100", "cpu"], "slurm": {"gpu_models": {"v100": "tesla_v100"}}}}
    assert asked("expanse", "v100", "train", sites=named)["gpu_model"] == "tesla_v100"
    assert asked("expanse", "cpu", "train", sites=named)["gpu_model"] == ""


def test_each_attempt_asks_for_more_until_the_cell_fills_the_longest_job():
    minutes = [asked("expanse", "v100", "train", attempt)["runtime"] for attempt in (1, 2, 3)]
    assert minutes == [minutes[0], 2 * minutes[0], 3 * minutes[0]]
    whole = sum(asked("expanse", "v100", stage)["runtime"] for stage in STAGES)
    tight = {"expanse": {"slurm": {"max_minutes": whole + 10}}}
    assert sum(asked("expanse", "v100", stage, 3, sites=tight)["runtime"] for stage in STAGES) <= whole + 10


def test_memory_grows_up_to_the_share_of_a_gpu():
    memory = [asked("expanse", "v100", "counters", attempt)["mem_mb"] for attempt in (1, 2, 3)]
    assert memory[0] < memory[1] <= memory[2] == 87 * 1024


def test_a_site_with_whole_nodes_names_no_gpu_and_one_that_rejects_memory_gets_none():
    found = asked("stampede3", "h100", "train")
    assert (found["gpu"], found["mem_mb"], found["nodes"]) == (0, 0, 1)


def test_cells_of_a_cpu_ask_for_no_gpu_and_for_their_threads():
    found = asked("expanse", "cpu", "train", sites={"expanse": {"gpus": ["v100", "cpu"]}})
    assert (found["gpu"], found["cpus_per_task"]) == (0, 2)


def test_a_local_site_asks_for_what_counts_against_the_limits_of_the_run():
    assert set(asked("jetstream2", "a100", "train")) == {"gpu", "mem_mb", "runtime"}


def test_a_measuring_stage_of_a_cpu_has_all_cores_to_itself_here_and_its_threads_in_a_job():
    wildcards = SimpleNamespace(gpu="cpu")
    here = Requests(seen_from("local"))
    there = Requests(seen_from("expanse", {"sites": {"expanse": {"gpus": ["cpu"]}}}))
    assert here.threads("train")(wildcards) > 1000
    assert here.threads("quality")(wildcards) == 1
    assert there.threads("train")(wildcards) == 2


def refusal(site: str, *overlays: dict[str, object], limits: dict[str, int] | None = None) -> str:
    """The sentence with which a cell is refused; empty when it is not."""
    gpu = seen_from(site, *overlays).study.sites[site].gpus[0]
    try:
        Requests(seen_from(site, *overlays)).check([(Cell(gpu, "opt12", 1), STAGES)], limits or {})
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("site", ["expanse", "stampede3", "stampede3-node", "jetstream2"])
def test_the_study_of_the_paper_fits_every_site(site):
    assert refusal(site) == ""


def test_a_cell_longer_than_the_partition_grants_is_refused_and_not_cut():
    found = refusal("expanse", {"sites": {"expanse": {"slurm": {"partition": "gpu-debug", "max_minutes": 30}}}})
    assert found.startswith("v100/opt12/r1 needs about ")
    assert "partition gpu-debug of site expanse grants 30" in found


def test_a_cell_that_needs_more_memory_than_goes_with_a_gpu_is_refused():
    found = refusal("expanse", {"sites": {"expanse": {"memory_per_gpu_gib": 16}}})
    assert "GiB of host memory (modelled), site expanse grants 16 GiB with one GPU" in found


@pytest.mark.parametrize(("limit", "granted"), [("gpu", 0), ("mem_mb", 2000)])
def test_a_request_above_the_limit_of_the_run_is_refused_as_snakemake_would_cut_it(limit, granted):
    found = refusal("jetstream2", limits={limit: granted})
    assert f"this run is limited to {limit}={granted}" in found


def test_an_image_is_built_in_a_job_like_that_of_a_cell(tmp_path):
    expanse = Requests(place_at("expanse", tmp_path).effective).image_resources()
    account = expanse.pop("slurm_account")
    assert expanse == {
        "gpu": 1,
        "mem_mb": 8192,
        "runtime": 120,
        "cpus_per_task": 10,
        "slurm_partition": "gpu-shared",
        "slurm_extra": "",
        "nodes": 1,
    }
    assert callable(account), "the account is asked for when the job is submitted"
    stampede3 = Requests(place_at("stampede3", tmp_path).effective).image_resources()
    assert (stampede3["gpu"], stampede3["mem_mb"]) == (0, 0), "TACC refuses both"
    assert Requests(place_at("jetstream2", tmp_path).effective).image_resources() == {"runtime": 120}
