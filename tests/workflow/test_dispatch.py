"""Real Snakemake with the profiles of the sites: which calls are refused, and the exact sbatch line of a cell.

The Slurm plugin is the real one; a stand-in for ``sbatch`` notes what it was called with and refuses.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from gpustudy.launch.requests import Requests
from gpustudy.study.cells import Keys
from gpustudy.study.paths import data_directory, image_path
from tests.support.checkout import Checkout, copy_checkout, planned
from tests.support.studies import seen_from

PROFILES = ("local", "expanse", "stampede3", "stampede3-node", "jetstream2")
STAND_INS = ("squeue", "sacct", "scontrol", "sinfo", "sshare", "scancel")


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return copy_checkout(tmp_path / "checkout")


def refused(checkout: Checkout, *arguments: str, **environment: str) -> str:
    """The one sentence with which Snakemake ends with exit code 2."""
    done = checkout.snakemake(*arguments, check=False, **environment)
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stdout
    assert "sbatch call" not in done.stdout
    return next(line for line in done.stdout.splitlines() if line.startswith("error: "))


@pytest.mark.parametrize("site", ["expanse", "stampede3"])
@pytest.mark.parametrize("dry", [["-n"], []])
def test_a_site_of_slurm_is_refused_on_the_local_executor(checkout, site, dry):
    found = refused(checkout, *dry, "--config", f"site={site}")
    assert f"site '{site}' runs with executor 'slurm', this call has executor 'local'" in found
    assert f"snakemake --profile {site}" in found


def test_the_site_of_this_machine_is_refused_on_slurm(checkout):
    found = refused(checkout, "-n", "--executor", "slurm", "--jobs", "2")
    assert "executor 'slurm'" in found
    assert "site 'local'" in found


def test_a_local_site_is_refused_on_slurm(checkout):
    found = refused(checkout, "-n", "--executor", "slurm", "--jobs", "2", "--config", "site=jetstream2")
    assert "site 'jetstream2' runs with executor 'local', this call has executor 'slurm'" in found


def test_a_profile_for_another_site_is_refused(checkout):
    found = refused(checkout, "-n", "--profile", "expanse", "--config", "site=stampede3")
    assert "profile 'expanse' is for site 'expanse', this call chose site 'stampede3'" in found


def test_values_on_the_command_line_replace_the_profiles_and_the_sentence_says_so(checkout):
    found = refused(checkout, "-n", "--profile", "expanse", "--config", "repeats=1")
    assert "add site=expanse to it" in found


def test_a_profile_with_an_unknown_site_is_refused(checkout):
    checkout.edit("workflow/profiles/expanse/config.yaml", "site=expanse", "site=expanze")
    assert "unknown site 'expanze': did you mean 'expanse'?" in refused(checkout, "-n", "--profile", "expanse")


def test_other_sites_can_be_looked_at_without_their_executor(checkout):
    assert "v100/opt12/r1 train: missing" in checkout.gpustudy("plan", "--site", "expanse").stdout
    assert "Cost at site expanse:" in checkout.gpustudy("plan", "--profile", "expanse").stdout
    assert "run_counters" in checkout.snakemake("--list-rules", "--config", "site=expanse").stdout


def test_a_run_without_an_account_is_refused_and_a_plan_needs_none(checkout):
    assert planned(checkout.snakemake("-n", "-q", "rules", "--profile", "expanse").stdout)["run_train"] == 21
    assert "none is set: export GPUSTUDY_ACCOUNT=NAME" in refused(checkout, "--profile", "expanse")
    assert "is no account of anybody" in refused(checkout, "--profile", "expanse", GPUSTUDY_ACCOUNT="CHANGEME")


def test_a_run_where_there_is_no_slurm_is_refused(checkout, tmp_path):
    (tmp_path / "bin").mkdir()
    for program in ("bash", "env", "which"):
        (tmp_path / "bin" / program).symlink_to(f"/usr/bin/{program}")
    found = refused(checkout, "--profile", "expanse", GPUSTUDY_ACCOUNT="abc123", PATH=str(tmp_path / "bin"))
    assert "there is none on PATH: run on a login node of the site" in found


def test_a_limit_below_what_a_cell_needs_is_refused_and_not_cut(checkout):
    found = refused(checkout, "-n", "--profile", "jetstream2", "--resources", "gpu=0", "--", "a100")
    assert "a100/default/r1 needs gpu=1, this run is limited to gpu=0" in found


def test_a_cell_longer_than_the_partition_grants_is_refused_before_submission(checkout):
    short = checkout.overlay({"sites": {"expanse": {"slurm": {"partition": "gpu-debug", "max_minutes": 30}}}})
    found = refused(checkout, "--profile", "expanse", "--configfile", short, GPUSTUDY_ACCOUNT="abc123")
    assert "partition gpu-debug of site expanse grants 30" in found


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_plans_the_cells_of_its_site_and_every_figure(checkout, profile):
    jobs = planned(checkout.snakemake("-n", "-q", "rules", "--profile", profile).stdout)
    assert jobs["run_train"] == 21
    assert jobs["write_report"] == 1
    assert ("run_counters" in jobs) == (profile != "local")


@pytest.mark.parametrize("profile", PROFILES)
def test_every_entry_of_a_profile_has_its_reason_and_agrees_with_its_site(repository, profile):
    text = (repository / "workflow/profiles" / profile / "config.yaml").read_text()
    content = yaml.safe_load(text)
    site = seen_from(profile).study.sites[profile]
    for name in content:
        before = text[: re.search(rf"^{name}:", text, re.MULTILINE).start()].rstrip("\n").splitlines()
        assert before[-1].startswith("#"), name
    assert content["executor"] == site.executor
    assert content["config"] == [f"site={profile}"]
    assert content["rerun-triggers"] == ["params", "input"]
    assert content["rerun-incomplete"] is True
    if site.slurm:
        assert content["jobs"] == site.slurm.max_queued
        assert not {"default-resources", "set-resources", "slurm-array-jobs", "slurm-requeue"} & set(content)
    elif profile != "local":
        limits = dict(entry.split("=") for entry in content["resources"])
        share = int(site.memory_per_gpu_gib * 1024)
        assert limits == {"gpu": str(site.gpus_per_node), "mem_mb": str(share * site.gpus_per_node)}


def test_the_verbatim_command_takes_this_repositorys_profile_whatever_the_home_holds(checkout, tmp_path):
    home = tmp_path / "home/.config/snakemake/expanse"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text("executor: local\ncores: 1\nconfig:\n  - site=local\n")
    done = checkout.snakemake("-n", "-q", "rules", "--profile", "expanse", HOME=str(tmp_path / "home"))
    assert "run_counters" in planned(done.stdout)


def test_the_homes_profile_of_a_sites_name_is_refused_where_this_repositorys_is_not_found(checkout, tmp_path):
    home = tmp_path / "home/.config/snakemake/expanse"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text("executor: local\ncores: 1\n")
    (checkout.root / "expanse").unlink()
    found = refused(checkout, "-n", "--profile", "expanse", HOME=str(tmp_path / "home"))
    assert "profile 'expanse' was read from elsewhere, not from this checkout: run from" in found


def test_the_homes_profile_is_refused_when_snakemake_is_called_in_a_folder_below(checkout, tmp_path):
    home = tmp_path / "home/.config/snakemake/expanse"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text("executor: slurm\njobs: 99\nconfig:\n  - site=expanse\n")
    below = replace(checkout, root=checkout.root / "envs")
    arguments = ("-s", "../Snakefile", "-d", "..", "--profile", "expanse")
    environment = {
        "HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(checkout.root / "workflow"),
        "PWD": str(below.root),
    }
    assert "was read from elsewhere" in refused(below, "-n", *arguments, **environment)
    named = below.snakemake("-n", "-q", "rules", *arguments[:-1], str(home), **environment)
    assert planned(named.stdout)["run_train"] == 21


def submissions(checkout: Checkout, site: str, *arguments: str, retries: int = 0) -> list[list[str]]:
    """The words of each call of sbatch that a run at ``site`` makes, with names of this run replaced."""
    overlay = {"repeats": 1, "sites": {site: {"retries": retries}}}
    name = checkout.overlay(overlay)
    seen = seen_from(site, overlay, results=checkout.root / "results")
    keys, data = Keys(seen), seen.study.workloads["paper"].data
    image = image_path(seen.results, "paper", keys.image_key("paper"), seen.study.sites[site].runtime)
    for file in (data_directory(seen.results, data, keys.data_key(data)) / "manifest.json", image):
        file.parent.mkdir(parents=True)
        file.write_text("{}")  # crafted: nothing reads it before a job runs
    folder = checkout.root.parent / "bin"
    folder.mkdir()
    for program in STAND_INS:
        stand_in(folder / program, "exit 0")
    stand_in(folder / "sacctmgr", "echo abc123")
    stand_in(
        folder / "sbatch",
        f'for word in "$@"; do printf "%q " "$word"; done >> {folder}/calls; echo >> {folder}/calls; exit 1',
    )
    done = checkout.snakemake(
        *("--profile", site, "--configfile", name, "--slurm-init-seconds-before-status-checks", "1"),
        *("--", *arguments),
        check=False,
        PATH=os.pathsep.join([str(folder), checkout.environment()["PATH"]]),
        GPUSTUDY_ACCOUNT="abc123",
        GPUSTUDY_QUERY_LIMIT_S="1",
    )
    assert done.returncode == 1, done.stdout
    assert (folder / "calls").exists(), done.stdout
    return [shlex.split(line) for line in (folder / "calls").read_text().splitlines()]


def stand_in(path: Path, command: str) -> None:
    path.write_text(f"#!/usr/bin/env bash\n{command}\n")
    path.chmod(0o755)


def golden(words: list[str], checkout: Checkout) -> str:
    """A call without the name of the run, the folder and the command that the job runs."""
    assert words[-1].startswith("--wrap=")
    line = " ".join(words[:-1]).replace(str(checkout.root), "ROOT")
    return re.sub(r"gpustudy_[0-9a-f-]{36}", "RUN", line)


GOLDEN = {
    ("expanse", "v100"): (
        "--no-requeue --parsable --job-name RUN "
        "--output ROOT/.snakemake/slurm_logs/group_v100-opt12-r1_run_census_run_counters_run_quality_run_train/%j.log "
        "--export=ALL --comment rule_v100-opt12-r1_run_census_run_counters_run_quality_run_train "
        "-A abc123 -p gpu-shared -t 135 --mem 41984 --nodes=1 --no-requeue --cpus-per-task=10 -D ROOT --gpus=1"
    ),
    ("stampede3", "h100"): (
        "--no-requeue --parsable --job-name RUN "
        "--output ROOT/.snakemake/slurm_logs/group_h100-opt12-r1_run_census_run_counters_run_quality_run_train/%j.log "
        "--export=ALL --comment rule_h100-opt12-r1_run_census_run_counters_run_quality_run_train "
        "-A abc123 -p h100 -t 65 --nodes=1 --no-requeue --ntasks=1 --cpus-per-task=24 -D ROOT"
    ),
}
"""The whole line of a cell's group: one GPU, minutes added up, memory of the stage that needs most."""


@pytest.mark.parametrize(("site", "gpu"), GOLDEN)
def test_the_sbatch_line_of_a_cell_is_exactly_this(checkout, site, gpu):
    calls = submissions(checkout, site, "opt12")
    assert [golden(words, checkout) for words in calls] == [GOLDEN[site, gpu]]
    for stage in ("train", "census", "counters", "quality"):
        assert f"'run_{stage}:gpu={gpu},config=opt12,repeat=1,key=" in calls[0][-1]


def test_each_cell_is_one_job_and_a_failed_submission_is_tried_again_with_more(checkout):
    calls = submissions(checkout, "expanse", "opt1", "opt2", retries=1)
    minutes = [(words[words.index("--comment") + 1].split("_run_")[0], words[words.index("-t") + 1]) for words in calls]
    first, second = GOLDEN["expanse", "v100"].split("-t ")[1].split()[0], 270
    assert sorted(minutes) == sorted(
        (f"rule_v100-{config}-r1", str(number)) for config in ("opt1", "opt2") for number in (first, second)
    )


def test_the_lines_ask_for_what_the_stages_of_the_cell_need_together():
    requests = Requests(seen_from("expanse"))
    stages = ("train", "census", "counters", "quality")
    assert sum(requests.minutes("v100", stage) for stage in stages) == 135
    assert max(requests.memory_mb("v100", stage) for stage in stages) == 41984
