"""Preflight's checks of a scheduler, against recorded answers of a real Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpustudy.launch.preflight.asked import what_is_asked
from gpustudy.launch.preflight.checks import FAIL, PASS, SKIPPED, WARN, Check
from gpustudy.launch.preflight.survey import head_checks
from gpustudy.launch.tools import Answer
from tests.launch.places import found, place_at
from tests.launch.slurm_texts import (
    NO_CONFIGURATION,
    NO_NODE,
    NO_PARTITION,
    PARTITION,
    SITE,
    TACC_REFUSES,
)
from tests.launch.smi import Recorded


@pytest.fixture(autouse=True)
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUSTUDY_ACCOUNT", "abc123")


def look(tmp_path: Path, changed: dict[str, str | Answer], site: str = "expanse", **more: Any) -> dict[str, Check]:
    place = place_at(site, tmp_path, Recorded(SITE | changed), **more)
    return found(place, head_checks(place, what_is_asked(place.effective), has_job=False))


def test_a_site_where_all_is_well_fails_nowhere(tmp_path: Path) -> None:
    checks = look(tmp_path, {})
    slurm = ("scheduler", "slurm configuration", "account", "partition limits", "jobs at once", "request v100")
    assert {name: checks[name].level for name in slurm} == dict.fromkeys(slurm, PASS)
    assert checks["scheduler"].sentence == "slurm-wlm 22.05.8 answers."
    assert "It would start at 2026-11-29T21:55:00." in checks["request v100"].sentence


def test_the_request_is_that_of_a_cell(tmp_path: Path) -> None:
    """One V100 with its share of the node, as SDSC's examples ask for it: 10 cores, no --gres."""
    place = place_at("expanse", tmp_path, Recorded(SITE))
    (asked,) = what_is_asked(place.effective)
    assert asked.options()[:4] == ["-A", "abc123", "-p", "gpu-shared"]
    assert asked.options()[6:9] == ["--nodes=1", "--gpus=1", "--cpus-per-task=10"]
    assert asked.options(minutes=5)[4:6] == ["-t", "5"]


def test_a_sites_own_names_and_options_are_asked_with(tmp_path: Path) -> None:
    overlay = {"sites": {"expanse": {"slurm": {"gpu_models": {"v100": "V100-SXM2"}, "extra": "--reservation=class"}}}}
    (asked,) = what_is_asked(place_at("expanse", tmp_path, overlay=overlay).effective)
    assert asked.options()[7:10] == ["--gpus=V100-SXM2:1", "--cpus-per-task=10", "--reservation=class"]


def test_at_tacc_neither_gpus_nor_memory_are_asked_for(tmp_path: Path) -> None:
    (asked,) = what_is_asked(place_at("stampede3", tmp_path).effective)
    assert asked.partition == "h100"
    assert asked.options()[6:] == ["--nodes=1", "--ntasks=1", "--cpus-per-task=24"]
    assert not [word for word in asked.options() if word.startswith(("--gpus", "--gres", "--mem"))]


def test_without_a_scheduler_the_rest_is_not_guessed(tmp_path: Path) -> None:
    checks = look(tmp_path, {"scontrol ping": NO_CONFIGURATION})
    assert checks["scheduler"].level == FAIL
    assert "fatal: Could not establish a configuration source" in checks["scheduler"].sentence
    assert checks["account"].level == checks["partition limits"].level == checks["request v100"].level == SKIPPED


def test_no_slurm_on_path_names_the_login_node(tmp_path: Path) -> None:
    checks = look(tmp_path, {"scontrol ping": Answer(127)})
    assert checks["scheduler"].level == FAIL
    assert "run on a login node" in checks["scheduler"].sentence


def test_a_configuration_that_steps_lose_is_told_with_the_admins_sentence(tmp_path: Path) -> None:
    changed: dict[str, str | Answer] = {"env -u SLURM_CONF scontrol ping": NO_CONFIGURATION}
    check = look(tmp_path, changed, SLURM_CONF="/cm/shared/slurm.conf")["slurm configuration"]
    assert check.level == WARN
    assert "SLURM_CONF=/cm/shared/slurm.conf alone" in check.sentence
    assert "configless" in check.to_admins


def test_without_an_account_the_sentence_lists_yours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUSTUDY_ACCOUNT")
    check = look(tmp_path, {})["account"]
    assert check.level == FAIL
    assert "export GPUSTUDY_ACCOUNT=NAME" in check.sentence
    assert "Yours are abc123, root." in check.sentence


def test_somebody_elses_account_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSTUDY_ACCOUNT", "nope77")
    check = look(tmp_path, {})["account"]
    assert check.level == FAIL
    assert "nope77 is not yours (yours are abc123, root)" in check.sentence
    assert check.to_admins.startswith("Please add user jane to account nope77")


def test_sshare_tells_the_accounts_where_sacctmgr_may_not(tmp_path: Path) -> None:
    changed: dict[str, str | Answer] = {
        "sacctmgr": Answer(1, err="Access/permission denied"),
        "sacctmgr -n -P show assoc": Answer(1, err="Access/permission denied"),
        "sshare -U": "root\nabc123\n",
    }
    check = look(tmp_path, changed)["account"]
    assert (check.level, check.sentence) == (PASS, "Account abc123 is yours (sshare).")


def test_an_overlong_cell_fails_before_it_waits_for_ever(tmp_path: Path) -> None:
    """gpu-debug grants 30 minutes and, without EnforcePartLimits, sbatch would take the job all the same."""
    changed: dict[str, str | Answer] = {"scontrol show partition": PARTITION.replace("2-00:00:00", "00:30:00")}
    changed["scontrol show partition gpu-shared"] = changed["scontrol show partition"]
    check = look(tmp_path, changed)["partition limits"]
    assert check.level == FAIL
    assert "gpu-shared grants 30: such a job may wait for ever" in check.sentence


def test_the_partitions_qos_may_grant_less_than_the_partition(tmp_path: Path) -> None:
    changed: dict[str, str | Answer] = {
        "scontrol show partition gpu-shared": PARTITION.replace("QoS=N/A", "QoS=short"),
        "sacctmgr -n -P show qos short": "short||01:00:00\n",
    }
    check = look(tmp_path, changed)["partition limits"]
    assert check.level == FAIL
    assert "gpu-shared grants 60" in check.sentence


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("State=UP", "State=DRAIN", "Partition gpu-shared is DRAIN"),
        ("AllowAccounts=ALL", "AllowAccounts=tra22,use300", "not open to account abc123 (it takes tra22,use300)"),
        ("AllowAccounts=ALL", "DenyAccounts=abc123", "(it refuses abc123)"),
    ],
)
def test_a_partition_that_would_not_take_the_job(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    check = look(tmp_path, {"scontrol show partition gpu-shared": PARTITION.replace(old, new)})["partition limits"]
    assert check.level == FAIL
    assert sentence in check.sentence
    assert check.to_admins


def test_an_unknown_partition_lists_the_known(tmp_path: Path) -> None:
    changed = {"scontrol show partition gpu-shared": NO_PARTITION, "sinfo -h": "gpu\ngpu-debug\n"}
    check = look(tmp_path, changed)["partition limits"]
    assert check.level == FAIL
    assert "it has: gpu, gpu-debug" in check.sentence


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"sacctmgr -n -P show assoc": "abc123||8\nabc123|gpu-debug|2\n"}, "account abc123 takes 8"),
        (
            {
                "scontrol show partition gpu-shared": PARTITION.replace("QoS=N/A", "QoS=gpu-shared-normal"),
                "sacctmgr -n -P show qos gpu-shared-normal": "gpu-shared-normal|4|2-00:00:00\n",
            },
            "QOS gpu-shared-normal of partition gpu-shared takes 4",
        ),
    ],
)
def test_more_jobs_than_the_user_may_queue(tmp_path: Path, changed: dict[str, str | Answer], where: str) -> None:
    check = look(tmp_path, changed)["jobs at once"]
    assert check.level == FAIL
    assert f"queues 24 jobs at once, {where}" in check.sentence


def test_accounting_that_is_down_is_not_taken_for_no_limit(tmp_path: Path) -> None:
    changed: dict[str, str | Answer] = {
        "sacctmgr -n -P show assoc": Answer(1, err="Unable to contact slurm accounting")
    }
    checks = look(tmp_path, changed)
    assert checks["jobs at once"].level == checks["account"].level == SKIPPED


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (NO_NODE, "allocation failure: Requested node configuration is not available"),
        (TACC_REFUSES, "Verifying no --gres/--gpus option (gres:gpu:1)...FAILED"),
    ],
)
def test_a_refused_request_gives_slurms_reason(tmp_path: Path, answer: Answer, reason: str) -> None:
    check = look(tmp_path, {"sbatch --test-only": answer})["request v100"]
    assert check.level == FAIL
    assert reason in check.sentence
    assert reason in check.to_admins


def test_times_of_slurm_are_read_as_its_manual_says() -> None:
    from gpustudy.launch.preflight.scheduler import _minutes

    assert [_minutes(text) for text in ("2-00:00:00", "30:00", "90", "1-12", "01:30:00", "UNLIMITED")] == [
        2880,
        30,
        90,
        2160,
        90,
        None,
    ]
