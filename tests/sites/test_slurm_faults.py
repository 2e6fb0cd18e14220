"""Faults of a real Slurm under 'snakemake --profile expanse': no hang, no orphan, no lost result, the next run goes on.

Each test has a cell (a repeat) of its own and asks for its train stage, without a container: what is tested here is how
it gets to a node and back. Polling times, account and gpus are overlaid; the rest is the profile as it is shipped.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from tests.support.checkout import TINY, Checkout, copy_checkout
from tests.support.slurm import FAST_POLLING, Run, Slurm

pytestmark = pytest.mark.sites

EXPANSE = {"gpus": ["v100", "cpu"], "runtime": "none", "retries": 1}
OVERLAY = {**TINY, "repeats": 24, "sites": {"expanse": EXPANSE}}
END_S = 90
"""Seconds in which a run whose job was refused or ended ends, the time between two looks included."""
OUTAGE_S = 240
"""The same after an outage: Slurm's own daemons take their time to agree again."""
OVERTIME_S = 240
"""The same when Slurm ends a job: a minute is its shortest limit, and it looks every half a minute."""

KEYS = """
from pathlib import Path
from gpustudy.study.cells import Cell, Keys
from gpustudy.study.load import CONFIG_FILE, effective, read_yaml
files = [CONFIG_FILE, Path("overlay.yaml")]
keys = Keys(effective([(file, read_yaml(file)) for file in files]))
for repeat in range(1, 25):
    print(keys.stage_key(Cell("cpu", "baseline", repeat), "train"))
"""


@dataclass(frozen=True)
class Stage:
    """The train stage of one cell."""

    checkout: Checkout
    slurm: Slurm
    path: str

    def run(self, *arguments: str, **extra: str) -> Run:
        """Start Snakemake for this stage alone."""
        overlays = ["overlay.yaml", *(word for word in arguments if word.endswith(".yaml"))]
        options = [word for word in arguments if not word.endswith(".yaml")]
        command = ["--profile", "expanse", *FAST_POLLING, *options, "--configfile", *overlays, "--", self.path]
        return Run(self.checkout, self.slurm, *command, **extra)

    def require_whole(self) -> None:
        """Check that the result is there, with every file that it names, and that nothing half-written is."""
        status = self.checkout.root / self.path
        files = json.loads(status.read_text())["files"]
        assert files
        assert all((status.parent / name).stat().st_size == entry["bytes"] for name, entry in files.items())
        self.require_nothing_half_written()

    def require_nothing_half_written(self) -> None:
        """Check that the cell's folder holds a whole result or none."""
        folder = (self.checkout.root / self.path).parent
        left = {path.name for path in folder.parent.iterdir()} if folder.parent.exists() else set()
        assert left <= {folder.name}
        if folder.exists() and not (self.checkout.root / self.path).exists():
            assert not any(folder.iterdir())

    def require_next_run_continues(self) -> None:
        """Check that nothing is queued any more and that a plain next run makes the result."""
        self.slurm.wait_until_empty()
        self.require_nothing_half_written()
        following = self.run()
        assert following.finish() == 0, following.printed
        self.require_whole()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Checkout:
    copied = copy_checkout(tmp_path_factory.mktemp("faults") / "study")
    copied.overlay(OVERLAY)
    return copied


@pytest.fixture(scope="module")
def paths(checkout) -> Iterator[str]:
    """The train stages of the repeats, one for each test."""
    command = [sys.executable, "-c", KEYS]
    keys = subprocess.run(
        command, cwd=checkout.root, env=checkout.environment(), capture_output=True, text=True, check=True
    )
    return (
        f"results/cells/cpu/baseline/r{repeat}/train-{key}/status.json"
        for repeat, key in zip(count(1), keys.stdout.split())
    )


@pytest.fixture
def stage(checkout, slurm, paths) -> Iterator[Stage]:
    """A stage of a cell of its own; after the fault the queue is empty and a plain next run goes on."""
    faulty = Stage(checkout, slurm, next(paths))
    yield faulty
    slurm.mend()
    faulty.require_next_run_continues()


def stand_in(folder: Path, text: str) -> str:
    """Return a PATH on which another sbatch comes before Slurm's own, ``$real`` in its text."""
    folder.mkdir()
    program = folder / "sbatch"
    program.write_text(f"#!/bin/sh\nreal={shutil.which('sbatch')}\n{text}\n")
    program.chmod(0o755)
    return f"{Path(sys.executable).parent}{os.pathsep}{folder}{os.pathsep}{os.environ['PATH']}"


def test_a_job_cancelled_by_hand_is_tried_again(stage):
    run = stage.run()
    job = stage.slurm.wait_for("RUNNING")
    stage.slurm.ask("scancel", job)
    assert run.finish() == 0, run.printed
    assert f"Slurm job {job} (cpu-baseline-r1) ended: CANCELLED" in run.printed
    stage.require_whole()


def test_a_cancelled_job_is_seen_by_accounting_too(stage):
    run = stage.run("--slurm-status-command", "sacct")
    stage.slurm.ask("scancel", stage.slurm.wait_for("RUNNING"))
    assert run.finish() == 0, run.printed
    stage.require_whole()


@pytest.mark.parametrize(("daemon", "command"), [("slurmdbd", "sacct"), ("slurmctld", "squeue")])
def test_an_outage_of_what_tells_states_is_ridden_out(stage, daemon, command):
    run = stage.run("--slurm-status-command", command)
    stage_process(stage)
    stage.slurm.down(daemon)
    time.sleep(15)  # the stage ends meanwhile, and nobody can say so
    assert run.process.poll() is None
    stage.slurm.up()
    assert run.finish(OUTAGE_S) == 0, run.printed
    stage.require_whole()
    assert len(run.printed.split("has been submitted")) == 2, run.printed


def test_a_failed_node_does_not_run_a_job_twice(stage):
    run = stage.run()
    job = stage.slurm.wait_for("RUNNING")
    stage.slurm.set_node("down")
    stage.slurm.wait_until_empty()  # JobRequeue=1 would have queued it again
    stage.slurm.resume_node()
    assert run.finish() == 0, run.printed
    # Slurm keeps a FAILED record of the submission that excluded the only node
    ends = [state for number, state in stage.slurm.last_jobs(3) if int(number) >= int(job)]
    assert ends == ["NODE_FAIL", "FAILED", "COMPLETED"]
    stage.require_whole()


def test_a_preempted_job_is_tried_again(stage):
    overlay = stage.checkout.overlay(
        {"sites": {"expanse": {"slurm": {"partition": "gpu-preempt"}}}}, name="preempt.yaml"
    )
    run = stage.run(overlay)
    job = stage.slurm.wait_for("RUNNING")
    before = ("sbatch", "--parsable", "-A", "abc123", "-p", "gpu-shared", "--exclusive", "-t", "5", "-o", "/dev/null")
    stage.slurm.ask(*before, "--wrap", "sleep 3")
    assert run.finish() == 0, run.printed
    assert f"Slurm job {job} " in run.printed
    assert "ended: PREEMPTED" in run.printed
    stage.require_whole()


def test_a_job_over_its_time_is_tried_again(stage):
    run = stage.run()
    job = stage.slurm.wait_for("RUNNING")
    stage.slurm.ask("scontrol", "update", f"jobid={job}", "timelimit=0:01")
    os.kill(stage_process(stage), signal.SIGSTOP)  # a stage that takes too long
    assert run.finish(OVERTIME_S) == 0, run.printed
    assert "ended: TIMEOUT" in run.printed
    stage.require_whole()


def stage_process(stage: Stage) -> int:
    """Wait for the process that runs the stage inside its job and return its id."""
    key = Path(stage.path).parent.name.removeprefix("train-")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for folder in Path("/proc").iterdir():
            try:
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if "gpustudy.cell" in words and any(key in word for word in words):
                return int(folder.name)
        time.sleep(0.2)
    raise AssertionError("no process of the stage")


def test_a_drained_node_keeps_a_run_waiting_and_no_longer(stage):
    stage.slurm.set_node("drain")
    run = stage.run()
    stage.slurm.wait_for("PENDING")
    time.sleep(5)
    assert run.process.poll() is None
    stage.slurm.resume_node()
    assert run.finish() == 0, run.printed
    stage.require_whole()


def test_an_account_that_is_not_yours_is_refused(stage):
    run = stage.run(GPUSTUDY_ACCOUNT="nobody")
    assert run.finish(END_S) == 1
    assert "was not submitted: " in run.printed
    assert "Invalid account" in run.printed


def test_a_partition_that_does_not_exist_is_refused(stage):
    overlay = stage.checkout.overlay({"sites": {"expanse": {"slurm": {"partition": "gpu-none"}}}}, name="none.yaml")
    run = stage.run(overlay)
    assert run.finish(END_S) == 1
    assert "invalid partition specified: gpu-none" in run.printed


def test_a_policy_against_memory_and_gpus_refuses_in_its_own_words(stage):
    overlay = stage.checkout.overlay({"sites": {"expanse": {"slurm": {"partition": "h100"}}}}, name="tacc.yaml")
    run = stage.run(overlay)
    assert run.finish(END_S) == 1
    assert "Verifying no --mem option...FAILED" in run.printed


def test_a_request_that_could_never_start_is_refused(stage):
    overlay = stage.checkout.overlay({"sites": {"expanse": {"slurm": {"partition": "gpu-debug"}}}}, name="debug.yaml")
    run = stage.run(overlay, "--set-resources", "run_train:runtime=60")
    assert run.finish(END_S) == 1
    assert "would wait for ever (Partition" in run.printed


def test_a_banner_before_the_job_id_leaves_no_orphan(stage, tmp_path):
    banner = "cat <<TEXT\n-- Welcome to the Stampede3 Supercomputer --\n--> Project 12345, 67 SU left...OK\nTEXT\n"
    run = stage.run(PATH=stand_in(tmp_path / "bin", banner + 'exec "$real" "$@"'))
    assert run.finish() == 0, run.printed
    stage.require_whole()


def test_a_submission_that_times_out_is_not_made_twice(stage, tmp_path):
    timeout = '"$real" "$@" >/dev/null\necho "sbatch: error: Batch job submission failed: Socket timed out" >&2\nexit 1'
    run = stage.run(PATH=stand_in(tmp_path / "bin", timeout))
    assert run.finish() == 0, run.printed
    assert len(run.printed.split("has been submitted")) == 2, run.printed
    stage.require_whole()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_leaves_no_job_behind(stage, number):
    run = stage.run()
    stage.slurm.wait_for("RUNNING")
    run.signal(number)
    stage.slurm.wait_until_empty()
    assert run.finish(END_S) != 0
