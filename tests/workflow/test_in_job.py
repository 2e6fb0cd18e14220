"""Real cells through the Slurm plugin and its job step, on stand-ins for Slurm's programs that run jobs at once.

The jobs get nothing of the caller's environment, as at sites where ``--export`` is not passed on.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.checkout import TINY, Checkout, copy_checkout, planned
from tests.support.slurm_stand_in import write_stand_ins

SITE = {"sites": {"expanse": {"gpus": ["cpu"], "runtime": "none", "retries": 1}}}

FAILS = """
    failures = Path("census-failures")
    if failures.exists():
        failures.write_text(failures.read_text().removeprefix("x"))
        if failures.read_text():
            raise OSError(5, "crafted failure of the place")
"""
"""Lets the census stage fail as often as the file has letters beyond one: no scientific outcome."""


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = copy_checkout(tmp_path / "checkout")
    made.overlay(TINY | SITE)
    write_stand_ins(tmp_path / "slurm")
    return made


def run(checkout: Checkout, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the baseline cell as at Expanse; nothing is asked for twice a second."""
    return checkout.snakemake(
        *("--profile", "expanse", "--configfile", "overlay.yaml", "--slurm-init-seconds-before-status-checks", "1"),
        *("--latency-wait", "5", *arguments, "--", "baseline"),
        check=False,
        PATH=os.pathsep.join([str(checkout.root.parent / "slurm"), checkout.environment()["PATH"]]),
        GPUSTUDY_ACCOUNT="abc123",
        GPUSTUDY_QUERY_LIMIT_S="2",
    )


def jobs(checkout: Checkout) -> int:
    return len((checkout.root.parent / "slurm/calls").read_text().splitlines())


def statuses(checkout: Checkout) -> set[str]:
    found = checkout.root.glob("results/cells/cpu/baseline/r1/*/status.json")
    return {path.parent.name.split("-")[0] for path in found}


def test_a_cell_is_one_job_that_needs_nothing_of_the_environment_of_the_login_node(checkout):
    done = run(checkout)
    assert done.returncode == 0, done.stdout
    assert jobs(checkout) == 1
    assert statuses(checkout) == {"train", "census", "quality"}
    assert len(list(checkout.root.glob("results/metrics/cpu/baseline/r1/*/metrics.json"))) == 3
    assert "Nothing to be done" in run(checkout).stdout


def test_no_finished_stage_runs_twice_when_a_later_one_of_its_job_fails(checkout):
    """The first run fails twice and ends; the second one needs the stages alone that never finished."""
    plan = '    plan = job.cell.workload["census"]\n'
    checkout.edit("workflow/gpustudy/cell/census.py", plan, FAILS + plan)
    (checkout.root / "census-failures").write_text("xxx")
    assert run(checkout).returncode == 1
    assert jobs(checkout) == 2
    log = next(checkout.root.glob("results/logs/cells/cpu/baseline/r1/train-*.log"))
    assert "cpu/baseline/r1 train: finished before in this run, put back" in log.read_text()
    assert statuses(checkout) == {"train"}
    left = planned(run(checkout, "-n", "-q", "rules").stdout)
    assert {rule for rule in left if rule.startswith("run_")} == {"run_census", "run_quality"}
    done = run(checkout)
    assert done.returncode == 0, done.stdout
    assert jobs(checkout) == 3
    assert statuses(checkout) == {"train", "census", "quality"}
