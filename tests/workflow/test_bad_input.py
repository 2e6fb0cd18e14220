"""What goes wrong while Snakemake runs: one clear sentence or a clean continuation, nothing half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.checkout import TINY, Checkout, copy_checkout, planned

SLOW = TINY | {
    "workloads": {"demo": TINY["workloads"]["demo"] | {"train": {"iterations": 400, "warmup_iterations": 1}}}
}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return copy_checkout(tmp_path / "checkout")


def test_a_typo_in_the_config_is_a_sentence_and_exit_code_2(checkout):
    checkout.edit("config.yaml", "repeats: 3", "repaets: 3")
    done = checkout.snakemake("-n", check=False)
    assert done.returncode == 2
    assert "error: config.yaml: unknown key 'repaets': did you mean 'repeats'?" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_typo_in_an_overlay_names_the_overlay(checkout):
    name = checkout.overlay({"gpus": {"cpu": {"threads": 1, "thread": 2}}}, "mine.yaml")
    done = checkout.snakemake("-n", "--configfile", name, check=False)
    assert (done.returncode, "error: mine.yaml: unknown key 'gpus.cpu.thread'" in done.stdout) == (2, True)


def test_a_number_inside_a_mapping_on_the_command_line_says_that_a_file_is_needed(checkout):
    done = checkout.snakemake("-n", "--config", "gpus={cpu: {threads: 1}}", check=False)
    assert done.returncode == 2
    assert "--config: 'gpus.cpu.threads' is '1'" in done.stdout
    assert "use --configfile" in done.stdout


def test_an_unknown_site_names_the_known_ones(checkout):
    done = checkout.snakemake("-n", "--config", "site=expanze", check=False)
    assert done.returncode == 2
    assert "unknown site 'expanze': did you mean 'expanse'?" in done.stdout


def test_results_that_cannot_be_written_are_told_before_anything_runs(checkout):
    (checkout.root / "results").write_text("a file, not a folder")
    done = checkout.snakemake(check=False)
    assert done.returncode == 2
    assert "results/ cannot be written" in done.stdout
    assert (checkout.root / "results").read_text() == "a file, not a folder"


def test_a_missing_pin_file_is_a_sentence(checkout):
    pins = checkout.root / "envs/current.txt"
    for damage in (pins.unlink, pins.mkdir):
        damage()
        done = checkout.snakemake("-n", check=False)
        assert done.returncode == 2
        assert "envs/current.txt cannot be read" in done.stdout


def start(checkout: Checkout) -> subprocess.Popen[str]:
    """Start a run whose training lasts, and wait until it trains."""
    checkout.overlay(SLOW)
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "--configfile", "overlay.yaml", "--", "baseline"]
    log = (checkout.root / "run.log").open("w")
    process = subprocess.Popen(
        command,
        cwd=checkout.root,
        env=checkout.environment(),
        stdout=log,
        stderr=log,
        text=True,
        start_new_session=True,
    )
    for _ in range(600):
        if "train: iteration" in (checkout.root / "run.log").read_text():
            return process
        assert process.poll() is None, (checkout.root / "run.log").read_text()
        time.sleep(0.1)
    raise AssertionError((checkout.root / "run.log").read_text())


def results_of(checkout: Checkout) -> list[str]:
    """Every file below results/cells that is not hidden work in progress."""
    root = checkout.root / "results/cells"
    return [
        str(path) for path in root.rglob("*") if path.is_file() and not any(part.startswith(".") for part in path.parts)
    ]


def stages_alive(checkout: Checkout) -> bool:
    """Whether a stage of this checkout is still running."""
    for process in psutil.process_iter(["cmdline", "cwd"]):
        if "gpustudy.cell" in (process.info["cmdline"] or []) and process.info["cwd"] == str(checkout.root):
            return True
    return False


def continues(checkout: Checkout) -> None:
    """The next run does what is missing, with no word from the user."""
    checkout.overlay(TINY)
    assert (
        planned(checkout.snakemake("-n", "-q", "rules", "--configfile", "overlay.yaml", "--", "baseline").stdout)[
            "run_train"
        ]
        == 1
    )
    checkout.snakemake("--configfile", "overlay.yaml", "--until", "run_train", "--", "baseline")
    assert [name for name in results_of(checkout) if name.endswith("status.json")]


def test_a_second_snakemake_in_the_folder_is_told_so_and_the_first_goes_on(checkout):
    process = start(checkout)
    try:
        second = checkout.snakemake("--configfile", "overlay.yaml", "--", "baseline", check=False)
        assert second.returncode == 2
        assert "is running in this folder: wait until it ends, or stop it" in second.stdout
        assert process.poll() is None
        assert "run_train" in planned(checkout.snakemake("-n", "-q", "rules").stdout), "a dry run may look"
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=60)


def test_ctrl_c_in_the_middle_of_training_leaves_nothing_half_written(checkout):
    process = start(checkout)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=60) != 0
    said = (checkout.root / "run.log").read_text()
    assert "The run was interrupted: " in said
    assert "A job failed" not in said
    assert results_of(checkout) == []
    continues(checkout)


def test_kill_9_of_snakemake_ends_the_training_too_and_the_next_run_continues(checkout):
    process = start(checkout)
    process.kill()
    process.wait()
    for _ in range(100):
        if not stages_alive(checkout):
            break
        time.sleep(0.1)
    assert not stages_alive(checkout), "an orphan goes on measuring"
    assert results_of(checkout) == []
    continues(checkout)


def test_kill_9_of_everything_in_the_middle_of_training_is_continued(checkout):
    process = start(checkout)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert results_of(checkout) == []
    continues(checkout)
