"""Staleness does not depend on where the study lies, who looks at it, or what Snakemake remembers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.support.checkout import Checkout
from tests.workflow.staleness import STAGES, cells, copy_of, craft_results, jobs_of, make_checkout, read_jobs

NOBODY = 65534


@pytest.fixture(scope="module")
def remembered(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A study in which everything is current, one table of it really made, so that Snakemake remembers it."""
    checkout = make_checkout(tmp_path_factory.mktemp("remembered") / "checkout")
    craft_results(checkout, ("cpu",))
    for path in checkout.root.glob("results/.keys/states-*"):
        path.unlink()
    done = checkout.snakemake("--", "states")
    assert "rule make_states:" in done.stdout
    return checkout


def change(checkout: Checkout) -> None:
    checkout.edit("config.yaml", "optimisations: [channels_last]", "optimisations: [channels_last, sdpa]")


def test_a_current_study_has_nothing_to_do_with_and_without_snakemakes_memory(remembered, tmp_path):
    assert jobs_of(remembered) == (set(), set())
    checkout = copy_of(remembered, tmp_path / "copy")
    shutil.rmtree(checkout.root / ".snakemake")
    assert jobs_of(checkout) == (set(), set())


@pytest.mark.parametrize("when", ["never", "before", "after"])
def test_a_change_is_seen_whether_or_not_snakemake_remembers_the_results(remembered, tmp_path, when):
    checkout = copy_of(remembered, tmp_path / "copy")
    if when == "before":
        shutil.rmtree(checkout.root / ".snakemake")
        assert jobs_of(checkout) == (set(), set())
    change(checkout)
    if when == "after":
        shutil.rmtree(checkout.root / ".snakemake")
    jobs, others = jobs_of(checkout)
    assert jobs == cells(configs=["opt2"])
    assert "make_states" in others


def test_one_figure_asked_for_by_name_brings_its_stale_cells_and_no_other_figure(remembered, tmp_path):
    checkout = copy_of(remembered, tmp_path / "copy")
    change(checkout)
    assert jobs_of(checkout, "--", "step_time") == (cells(configs=["opt2"]), {"draw_step_time", "step_time"})


def test_forgotten_or_blessed_memory_hides_no_change(remembered, tmp_path):
    checkout = copy_of(remembered, tmp_path / "copy")
    change(checkout)
    table = "results/tables/states.html"
    checkout.snakemake("--cleanup-metadata", table)
    assert jobs_of(checkout)[0] == cells(configs=["opt2"])
    checkout.snakemake("--touch", "--", "results/report.html")
    assert jobs_of(checkout)[0] == cells(configs=["opt2"])


def test_forcing_all_jobs_plans_every_cell_of_this_machine_in_order(remembered, tmp_path):
    checkout = copy_of(remembered, tmp_path / "copy")
    jobs, others = jobs_of(checkout, "--forceall")
    assert jobs == cells()
    assert others >= {"prepare_data", "write_report", "draw_step_time"}
    assert "gather_tables" in checkout.snakemake("-n", "-q", "rules", "--forceall").stdout


def test_a_study_moved_to_another_path_has_nothing_to_do(remembered, tmp_path):
    moved = copy_of(remembered, tmp_path / "deep" / "er" / "place with blanks")
    assert jobs_of(moved) == (set(), set())


def without_privileges(checkout: Checkout, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python without root's right to write everywhere: files of other users are read-only then, as for anyone."""
    powerless = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
    return subprocess.run(
        [*powerless, sys.executable, "-m", *command],
        cwd=checkout.root, env=checkout.environment(),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_results_of_another_user_are_read_and_a_run_that_cannot_write_them_says_so(remembered, tmp_path):
    checkout = copy_of(remembered, tmp_path / "copy")
    subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", checkout.root / "results"], check=True)
    done = without_privileges(checkout, "snakemake", "-n", "--cores", "1")
    assert done.returncode == 0, done.stdout
    assert read_jobs(done.stdout) == (set(), set())
    change(checkout)
    told = without_privileges(checkout, "gpustudy", "plan")
    assert told.stdout.count("cpu/opt2/r1") == 2 * len(STAGES)
    ran = without_privileges(checkout, "snakemake", "--cores", "1")
    assert ran.returncode == 2
    assert "results/ cannot be written (Permission denied)" in ran.stdout


def in_read_only_results(checkout: Checkout, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command with results/ mounted read-only; skips where this process may not mount."""
    script = f"mount --bind results results && mount -o remount,bind,ro results && {command}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        cwd=checkout.root, env=checkout.environment(),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    if "unshare failed" in done.stdout or "permission denied" in done.stdout:
        pytest.skip("this process may not mount")
    return done


def test_a_read_only_results_folder_can_be_looked_at_and_a_run_says_so(remembered, tmp_path):
    checkout = copy_of(remembered, tmp_path / "copy")
    change(checkout)
    python = f"{sys.executable} -m"
    seen = in_read_only_results(remembered, f"{python} snakemake -n --cores 1")
    assert read_jobs(seen.stdout) == (set(), set())
    looked = in_read_only_results(checkout, f"{python} gpustudy status && {python} gpustudy plan")
    assert looked.returncode == 0, looked.stdout
    assert looked.stdout.count("cpu/opt2/r1") == 2 * len(STAGES)
    ran = in_read_only_results(checkout, f"{python} snakemake --cores 1")
    assert ran.returncode == 2
    assert "results/ cannot be written (Read-only file system)" in ran.stdout


@pytest.mark.parametrize("is_remembered", [True, False])
def test_missing_data_are_prepared_for_what_is_missing_and_nothing_current_runs(remembered, tmp_path, is_remembered):
    checkout = copy_of(remembered, tmp_path / "copy")
    results = checkout.root / "results"
    shutil.rmtree(results / "data")
    for room in ("cells", "metrics"):
        for folder in (results / room / "cpu" / "opt2" / "r1").glob("census-*"):
            shutil.rmtree(folder)
    for folder in (results / "metrics" / "cpu" / "opt2" / "r1").glob("train-*"):
        shutil.rmtree(folder)
    if not is_remembered:
        shutil.rmtree(checkout.root / ".snakemake")
    jobs, others = jobs_of(checkout)
    assert jobs == cells(["census"], ["opt2"], [1]) | cells(["train"], ["opt2"], [1], runs=False)
    assert "prepare_data" in others
