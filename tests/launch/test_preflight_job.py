"""The preflight's job: submitted as a cell is, waited for with a bound, read back, and never left behind."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gpustudy.launch.preflight import job
from gpustudy.launch.preflight.asked import what_is_asked
from gpustudy.launch.preflight.checks import FAIL, PASS, WARN, Check, as_json
from gpustudy.launch.tools import ASK_TIMEOUT_S, Answer
from tests.launch.places import place_at
from tests.launch.slurm_texts import TACC_BANNER

NODE = [Check("gpu v100", PASS, "1 granted: Tesla V100-SXM2-32GB, driver 550.54.15.")]


class Slurm:
    """A Slurm that queues one job: what it does at each question is given, and what it was told is kept."""

    def __init__(self, states: Sequence[str] = ("PENDING|Resources", "RUNNING|None"), banner: str = "") -> None:
        self.states, self.banner = list(states), banner
        self.submitted: list[str] = []
        self.cancelled: list[str] = []
        self.on_run: Callable[[Path], object] = lambda folder: None
        self.is_queued = False

    def __call__(self, command: Sequence[str], timeout_s: float = ASK_TIMEOUT_S) -> Answer:
        if command[0] == "sbatch":
            self.submitted, self.is_queued = list(command), True
            return Answer(0, f"{self.banner}4711\n")
        if command[0] == "scancel":
            self.cancelled.append(command[1])
            self.is_queued = False
            return Answer(0)
        assert command[0] == "squeue"
        if not self.is_queued:
            return Answer(1, err="slurm_load_jobs error: Invalid job id specified")
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if state.startswith("RUNNING"):
            self.on_run(self.folder)
        if not state or state.split("|")[0] in ("COMPLETED", "FAILED"):
            self.is_queued = False
        return Answer(0, f"{state}\n" if command[-1] == "--format=%T|%r" else f"{state.split('|')[0]}\n")

    @property
    def folder(self) -> Path:
        return Path(
            next(word for word in self.submitted if word.startswith("--output=")).removeprefix("--output=")
        ).parent


def answer(slurm: Slurm) -> Callable[[Path], object]:
    """What a job does that goes well: it writes its checks and leaves the queue."""

    def write(folder: Path) -> None:
        (folder / job.ANSWER_FILE).write_text(json.dumps(as_json(NODE)))
        slurm.is_queued = False

    return write


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUSTUDY_ACCOUNT", "abc123")
    for name, seconds in (("_LOOK_S", 0.01), ("_FIRST_PAUSE_S", 0.02), ("_LATENCY_S", 0.1), ("_GONE_S", 1.0)):
        monkeypatch.setattr(job, name, seconds)


def run(slurm: Slurm, tmp_path: Path, site: str = "expanse", wait_s: float = 5.0) -> tuple[list[Check], list[str]]:
    place = place_at(site, tmp_path, slurm)
    told: list[str] = []
    (asked,) = what_is_asked(place.effective)
    checks = job.checks_in_job(place, asked, [Path("mine.yaml")], wait_s, told.append)
    assert not list((tmp_path / "results").glob(".preflight-*"))
    return checks, told


def test_the_nodes_checks_come_back_with_a_row_about_the_job(tmp_path: Path) -> None:
    slurm = Slurm()
    slurm.on_run = answer(slurm)
    checks, told = run(slurm, tmp_path)
    assert checks[1:] == NODE
    assert (checks[0].name, checks[0].level) == ("job", PASS)
    assert "Job 4711 ran, saw the checkout and answered" in checks[0].sentence
    assert not slurm.cancelled
    assert "Job 4711 waits in the queue: Resources." in told


def test_the_job_is_as_large_as_a_cell_and_only_shorter(tmp_path: Path) -> None:
    slurm = Slurm()
    slurm.on_run = answer(slurm)
    run(slurm, tmp_path)
    line = shlex.join(slurm.submitted)
    assert "-A abc123 -p gpu-shared -t 5 --nodes=1 --gpus=1 --cpus-per-task=10 --mem=" in line
    assert "--no-requeue" in line
    wrapped = shlex.split(slurm.submitted[slurm.submitted.index("--wrap") + 1])
    assert wrapped[-2:] == ["--configfile", str(tmp_path / "mine.yaml")]
    assert wrapped[wrapped.index("preflight") + 1 : -2] == ["expanse", "--on-node", str(slurm.folder / "checks.json")]


def test_the_id_is_found_below_a_banner(tmp_path: Path) -> None:
    slurm = Slurm(banner=TACC_BANNER + "--> 2 jobs of 4 allowed\n")
    slurm.on_run = answer(slurm)
    checks, _ = run(slurm, tmp_path, site="stampede3")
    assert checks[1:] == NODE
    assert "--mem" not in shlex.join(slurm.submitted)


def test_a_job_that_does_not_start_in_time_is_cancelled(tmp_path: Path) -> None:
    slurm = Slurm(states=["PENDING|Priority"])
    checks, _ = run(slurm, tmp_path, wait_s=0.2)
    assert slurm.cancelled == ["4711"]
    assert [check.level for check in checks] == [WARN]
    assert "try again with more --wait" in checks[0].sentence


def test_ctrl_c_leaves_no_job(tmp_path: Path) -> None:
    slurm = Slurm(states=["PENDING|Priority"])

    def interrupt(line: str) -> None:
        if "waits in the queue" in line:
            raise KeyboardInterrupt

    place = place_at("expanse", tmp_path, slurm)
    with pytest.raises(KeyboardInterrupt):
        job.checks_in_job(place, what_is_asked(place.effective)[0], [], 5.0, interrupt)
    assert slurm.cancelled == ["4711"]
    assert not list((tmp_path / "results").glob(".preflight-*"))


def test_a_job_that_dies_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    slurm = Slurm(states=["RUNNING|None", "FAILED|NonZeroExitCode"])
    slurm.on_run = lambda folder: (folder / "job.log").write_text("slurmstepd: error: cannot fork\n\n")
    checks, _ = run(slurm, tmp_path)
    assert [check.level for check in checks] == [FAIL]
    assert "its log ends with 'slurmstepd: error: cannot fork'" in checks[0].sentence


def test_a_node_that_does_not_see_the_checkout_is_told(tmp_path: Path) -> None:
    """Nothing appears although the job completed: its folder is another one there."""
    checks, _ = run(Slurm(states=["RUNNING|None", "COMPLETED|None"]), tmp_path)
    assert [check.level for check in checks] == [FAIL]
    assert "compute nodes do not see this folder" in checks[0].sentence


def test_an_answer_that_was_cut_off_is_no_traceback(tmp_path: Path) -> None:
    slurm = Slurm(states=["RUNNING|None", "COMPLETED|None"])
    slurm.on_run = lambda folder: (folder / job.ANSWER_FILE).write_text('[{"name": "gp')
    checks, _ = run(slurm, tmp_path)
    assert [check.level for check in checks] == [FAIL]
    assert "an answer that is none" in checks[0].sentence


def test_slurms_refusal_is_handed_on(tmp_path: Path) -> None:
    class Refusing(Slurm):
        def __call__(self, command: Sequence[str], timeout_s: float = ASK_TIMEOUT_S) -> Answer:
            if command[0] == "scancel":
                return Answer(0)
            return Answer(1, err="sbatch: error: Batch job submission failed: Invalid account\n")

    checks, _ = run(Refusing(), tmp_path)
    assert [check.level for check in checks] == [FAIL]
    assert "Batch job submission failed: Invalid account" in checks[0].sentence


def test_a_submission_that_hung_is_taken_back_by_its_name(tmp_path: Path) -> None:
    class Hanging(Slurm):
        def __call__(self, command: Sequence[str], timeout_s: float = ASK_TIMEOUT_S) -> Answer:
            if command[0] == "sbatch":
                super().__call__(command, timeout_s)
                return Answer(124, err="sbatch did not answer within 60 s")
            self.cancelled.append(command[-1])
            return Answer(0)

    slurm = Hanging()
    checks, _ = run(slurm, tmp_path)
    (name,) = [word.removeprefix("--job-name=") for word in slurm.submitted if word.startswith("--job-name=")]
    assert slurm.cancelled == [f"--name={name}"]
    assert name.startswith("gpustudy-preflight-")
    assert "sbatch did not answer within 60 s" in checks[0].sentence
