"""Jobs of a run that is gone are cancelled: by its watcher, or by the next run in the folder."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpustudy.base.errors import UserError
from gpustudy.launch import slurm_jobs
from tests.conftest import REPOSITORY

LIMIT_S = 30
"""Longest wait for the watcher; all take a few seconds, unless the machine is very busy."""

RUN = """
import os, time
from gpustudy.launch.slurm_jobs import JOBS_RECORD, guard_slurm_jobs
guard_slurm_jobs()
with open(os.environ[JOBS_RECORD], "a") as record:
    record.write("11 cpu-baseline-r1 logs/11.log\\n12 - -\\n")
with open(os.environ[JOBS_RECORD] + ".notes", "a") as notes:
    notes.write("Slurm job 11 ended: TIMEOUT\\n")
print("submitted", flush=True)
time.sleep({seconds})
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to run in, with stand-ins of Slurm: 'queue' holds the ids of all jobs, scancel takes ids out of it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "queue").write_text("10\n11\n12\n")
    (programs / "squeue").write_text(f"#!/bin/sh\n[ ! -e {tmp_path}/away ] || exit 1\ncat {tmp_path}/queue\n")
    (programs / "scancel").write_text(
        f'#!/bin/sh\ncd {tmp_path}\nfor job in "$@"; do sed -i "/^$job\\$/d" queue; echo "$job" >>cancelled; done\n'
    )
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY / "workflow"))
    monkeypatch.delenv(slurm_jobs.JOBS_RECORD, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def start_run(seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN.format(seconds=seconds)]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout is not None
    assert run.stdout.readline() == "submitted\n"
    return run


def wait_for_text(path: Path) -> str:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline and not (path.exists() and path.read_text()):
        time.sleep(0.1)
    return path.read_text()


def wait_until_cancelled(folder: Path) -> list[str]:
    deadline = time.monotonic() + LIMIT_S
    while left := list(folder.glob(".snakemake/gpustudy-slurm/*.jobs")):
        assert time.monotonic() < deadline, f"{left} still there {LIMIT_S} s after the run ended"
        time.sleep(0.1)
    cancelled = folder / "cancelled"
    return cancelled.read_text().split() if cancelled.exists() else []


@pytest.mark.parametrize("seconds", [0, 3])
def test_a_run_prints_what_the_wrappers_note_once(folder, seconds):
    run = start_run(seconds)
    assert run.communicate()[1] == "Slurm job 11 ended: TIMEOUT\n"
    assert wait_until_cancelled(folder)
    assert not list(folder.glob(".snakemake/gpustudy-slurm/*.notes"))


def test_the_watcher_gives_up_where_there_is_no_slurm(folder):
    (folder / "bin/squeue").write_text("#!/bin/sh\nexit 127\n")
    record = left_record(folder, socket.gethostname())
    watcher = subprocess.run(
        [sys.executable, "-m", "gpustudy.launch.slurm_jobs", str(record)], input=b"", timeout=LIMIT_S
    )
    assert watcher.returncode == 0
    assert record.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_jobs_of_a_run_that_was_killed_are_cancelled(folder, number):
    run = start_run(60)
    run.send_signal(number)
    run.wait()
    assert wait_until_cancelled(folder) == ["11", "12"]
    assert (folder / "queue").read_text() == "10\n"
    assert "11, 12" in wait_for_text(folder / ".snakemake/gpustudy-slurm/cancelled.log")


def test_jobs_of_a_run_that_lives_are_left_alone(folder):
    run = start_run(4)
    time.sleep(3)
    assert not (folder / "cancelled").exists()
    run.wait()
    assert wait_until_cancelled(folder) == ["11", "12"]


def test_the_watcher_tries_again_while_slurm_is_away(folder, monkeypatch):
    (folder / "away").touch()
    run = start_run(0)
    run.wait()
    time.sleep(4)
    assert not (folder / "cancelled").exists()
    (folder / "away").unlink()
    assert wait_until_cancelled(folder) == ["11", "12"]


def left_record(folder: Path, host: str) -> Path:
    record = folder / f".snakemake/gpustudy-slurm/{host}-1.jobs"
    record.parent.mkdir(parents=True)
    record.write_text("11\n")
    return record


def test_a_record_that_the_watcher_removes_meanwhile_is_done(folder):
    record = left_record(folder, socket.gethostname())
    with record.open() as held, ThreadPoolExecutor(1) as pool:
        fcntl.flock(held, fcntl.LOCK_EX)
        cancelling = pool.submit(slurm_jobs.cancel_jobs, record)
        with pytest.raises(TimeoutError):  # it waits for the record
            cancelling.result(timeout=0.5)
        record.unlink()
        fcntl.flock(held, fcntl.LOCK_UN)
        assert cancelling.result(timeout=LIMIT_S) == []
    assert slurm_jobs.cancel_jobs(record) == []
    assert not (folder / "cancelled").exists()


def guard(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Call guard_slurm_jobs without a watcher that would outlive this test."""
    monkeypatch.setattr(slurm_jobs, "_start_watcher", lambda record: None)
    monkeypatch.setenv(slurm_jobs.JOBS_RECORD, "")
    return slurm_jobs.guard_slurm_jobs()


def test_the_next_run_cancels_what_a_dead_watcher_left(folder, monkeypatch):
    record = left_record(folder, socket.gethostname())
    (folder / ".snakemake/locks").mkdir()
    (folder / ".snakemake/locks/0.input.lock").touch()
    assert "Slurm job 11 of a run that was killed" in (guard(folder, monkeypatch) or "")
    assert not record.exists()
    assert (folder / "queue").read_text() == "10\n12\n"


def test_a_run_of_another_host_keeps_its_jobs_while_it_holds_the_folder(folder, monkeypatch):
    record = left_record(folder, "login2")
    (folder / ".snakemake/locks").mkdir()
    lock = folder / ".snakemake/locks/0.input.lock"
    lock.touch()
    assert guard(folder, monkeypatch) is None
    assert record.exists()
    lock.unlink()
    assert "Slurm job 11" in (guard(folder, monkeypatch) or "")


def test_a_run_does_not_start_beside_jobs_that_it_cannot_cancel(folder, monkeypatch):
    left_record(folder, socket.gethostname())
    (folder / "away").touch()
    with pytest.raises(UserError, match="Slurm does not answer"):
        guard(folder, monkeypatch)


def test_jobs_that_ended_by_themselves_are_not_told_as_cancelled(folder, monkeypatch):
    left_record(folder, socket.gethostname()).write_text("8\n9\n")
    assert guard(folder, monkeypatch) is None
    assert not (folder / "cancelled").exists()


def test_sigterm_ends_a_run_as_ctrl_c_does():
    before = signal.getsignal(signal.SIGTERM)
    try:
        slurm_jobs.end_on_sigterm()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
    finally:
        signal.signal(signal.SIGTERM, before)
