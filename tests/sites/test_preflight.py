"""``gpustudy preflight`` at emulated sites: a real Slurm, a stand-in nvidia-smi, and no job left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.launch.slurm_texts import TACC_BANNER
from tests.launch.smi import UUIDS, V100, install
from tests.support.checkout import TINY, Checkout, copy_checkout
from tests.support.slurm import ACCOUNT, Slurm

pytestmark = pytest.mark.sites

WITHIN_S = 30
"""What a preflight without a job may take."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory, slurm) -> Checkout:
    """A copy whose sites have the cpu as well, without containers; nvidia-smi stands for a node with four V100."""
    copied = copy_checkout(tmp_path_factory.mktemp("preflight") / "study")
    own = {"runtime": "none", "cpus_per_gpu": 2, "memory_per_gpu_gib": 8}
    sites = {"expanse": {"gpus": ["v100", "cpu"], **own}, "stampede3": {"gpus": ["cpu"], **own}}
    gpus = TINY["gpus"] | {"v100": {"workload": "demo", "stack": "current_cu126"}}
    copied.overlay({**TINY, "gpus": gpus, "sites": sites})
    install(copied.root.parent / "bin", V100, V100, V100, V100)
    return copied


def environment(checkout: Checkout, slurm: Slurm, *first: Path, **extra: str) -> dict[str, str]:
    variables = {"GPUSTUDY_ACCOUNT": ACCOUNT, "GPUSTUDY_SCRATCH": str(checkout.root.parent), "USER": "root"}
    found = checkout.environment(**slurm.variables, **variables | extra)
    found["PATH"] = os.pathsep.join([*map(str, first), str(checkout.root.parent / "bin"), found["PATH"]])
    return found


def preflight(checkout: Checkout, variables: dict[str, str], *words: str) -> tuple[dict[str, Any], int, str]:
    """Run the verb and return its rows by name, its exit code and what it told."""
    command = [sys.executable, "-m", "gpustudy", "preflight", *words, "--configfile", "overlay.yaml", "--json"]
    done = subprocess.run(command, cwd=checkout.root, env=variables, capture_output=True, text=True, timeout=300)
    assert done.stdout, done.stderr
    content = json.loads(done.stdout)
    assert content["exit_code"] == done.returncode
    return {check["name"]: check for check in content["checks"]}, done.returncode, done.stderr


def jobs_so_far(slurm: Slurm) -> set[str]:
    """Every job that the controller remembers, ended ones included; accounting hears of them later."""
    return set(slurm.queue("--states=all"))


def test_expanse_with_a_job_looks_at_the_granted_gpu(checkout, slurm):
    checks, code, told = preflight(checkout, environment(checkout, slurm), "expanse", "--in-job")
    levels = {name: check["level"] for name, check in checks.items()}
    passing = ("scheduler", "account", "partition limits", "jobs at once", "request v100", "request cpu", "job")
    assert {name: levels[name] for name in (*passing, "job step", "gpu v100")} == dict.fromkeys(
        (*passing, "job step", "gpu v100"), "PASS"
    ), checks
    assert checks["gpu v100"]["sentence"].startswith(f"1 granted: {V100}"), "Slurm grants one of the four"
    assert "is submitted (-A abc123 -p gpu-shared -t 5 --nodes=1 --gpus=1" in told
    assert code == 0
    assert not slurm.queue()
    assert not list((checkout.root / "results").glob(".preflight-*"))


def test_without_a_job_nothing_is_submitted_and_it_takes_seconds(checkout, slurm):
    before, began = jobs_so_far(slurm), time.monotonic()
    checks, code, _ = preflight(checkout, environment(checkout, slurm), "expanse")
    assert time.monotonic() - began < WITHIN_S
    assert (code, checks["compute node"]["level"]) == (0, "SKIPPED")
    assert jobs_so_far(slurm) == before


def test_tacc_with_its_banner_and_its_refusals(checkout, slurm, tmp_path):
    login = tmp_path / "login"
    login.mkdir()
    (login / "sbatch").write_text(f"#!/bin/sh\ncat <<'END'\n{TACC_BANNER}END\nexec {shutil.which('sbatch')} \"$@\"\n")
    (login / "sbatch").chmod(0o755)
    checks, code, _ = preflight(checkout, environment(checkout, slurm, login), "stampede3", "--in-job")
    assert checks["request cpu"]["level"] == checks["job"]["level"] == checks["job step"]["level"] == "PASS", checks
    assert code == 0
    assert not slurm.queue()


def test_a_request_that_tacc_refuses_is_found_before_the_night_in_the_queue(checkout, slurm):
    overlay = {**TINY, "sites": {"stampede3": {"gpus": ["cpu"], "runtime": "none", "slurm": {"sends_memory": True}}}}
    checkout.overlay(overlay, "memory.yaml")
    done = subprocess.run(
        [sys.executable, "-m", "gpustudy", "preflight", "stampede3", "--configfile", "memory.yaml", "--json"],
        cwd=checkout.root,
        env=environment(checkout, slurm),
        capture_output=True,
        text=True,
        timeout=120,
    )
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert (done.returncode, checks["request cpu"]["level"]) == (1, "FAIL")
    assert "mem" in checks["request cpu"]["sentence"]


@pytest.mark.parametrize(
    ("account", "sentence"), [("nope77", "Account nope77 is not yours (yours are"), ("my_account", "is no account")]
)
def test_an_account_that_is_none_submits_nothing(checkout, slurm, account, sentence):
    before = jobs_so_far(slurm)
    variables = environment(checkout, slurm, GPUSTUDY_ACCOUNT=account)
    checks, code, told = preflight(checkout, variables, "expanse", "--in-job")
    assert (code, checks["account"]["level"]) == (1, "FAIL")
    assert sentence in checks["account"]["sentence"]
    assert "No job is submitted" in told
    assert jobs_so_far(slurm) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_preflight_that_is_stopped_leaves_no_job(checkout, slurm, number):
    slurm.set_node("drain")
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "gpustudy", "preflight", "expanse", "--in-job", "--configfile", "overlay.yaml"],
            cwd=checkout.root,
            env=environment(checkout, slurm),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        slurm.wait_for("PENDING")
        process.send_signal(number)
        assert process.wait(timeout=60) == 130
        slurm.wait_until_empty()
    finally:
        slurm.resume_node()
    assert not list((checkout.root / "results").glob(".preflight-*"))


def test_a_job_that_does_not_start_is_cancelled_in_time(checkout, slurm):
    slurm.set_node("drain")
    try:
        checks, _, _ = preflight(checkout, environment(checkout, slurm), "expanse", "--in-job", "--wait", "0.1")
    finally:
        slurm.resume_node()
    assert checks["job"]["level"] == "WARN"
    assert "did not start within 0.1 minutes" in checks["job"]["sentence"]
    assert not slurm.queue()


def test_two_jobs_of_one_node_get_a_device_each(checkout, slurm):
    """What Slurm grants by index comes out as two UUIDs."""
    program = (
        "import os, time\n"
        "from gpustudy.launch.devices import hold_device\n"
        "from gpustudy.study.models import Gpu\n"
        "gpu = Gpu(architecture='sm_70', device_name='V100', memory_gib=32.0, workload='demo', stack='current')\n"
        "with hold_device(gpu, 'v100', 'job ' + os.environ['SLURM_JOB_ID']) as chosen:\n"
        "    print(chosen['CUDA_VISIBLE_DEVICES'], flush=True)\n"
        "    time.sleep(3)\n"
    )
    script = checkout.root / "hold.py"
    script.write_text(program)
    variables = environment(checkout, slurm, GPUSTUDY_LOCKS=str(checkout.root.parent))
    options = ["-A", ACCOUNT, "-p", "gpu-shared", "-t", "2", "--gpus=1", "--ntasks=1", "--mem=200", "-W"]
    jobs = [
        subprocess.Popen(
            ["sbatch", *options, f"--output={checkout.root}/hold{index}.txt", f"--wrap={sys.executable} {script}"],
            env=variables,
            stdout=subprocess.DEVNULL,
        )
        for index in range(2)
    ]
    assert [job.wait(timeout=120) for job in jobs] == [0, 0]
    taken = [(checkout.root / f"hold{index}.txt").read_text().split()[0] for index in range(2)]
    assert len(set(taken)) == 2
    assert set(taken) <= set(UUIDS)
