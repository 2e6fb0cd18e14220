"""Edits, imports and kills while something is running: nothing is mixed up, nothing half-written."""

from __future__ import annotations

import csv
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.checkout import TINY, Checkout, copy_checkout
from tests.workflow.staleness import cells, copy_of, craft_results, foreign_states, jobs_of, make_checkout

ONE = TINY | {"configs": {}}
DEADLINE_S = 120


@pytest.fixture
def sites(tmp_path: Path) -> tuple[Checkout, Path]:
    """An archive of a100 and cpu cells, and a clean checkout to import it into."""
    there = make_checkout(tmp_path / "there")
    craft_results(there, ("cpu", "a100"), products=False)
    for gpu in ("cpu", "a100"):
        there.gpustudy("archive", "export", f"{gpu}.zip", "--gpu", gpu)
    return make_checkout(tmp_path / "here"), there.root


@contextmanager
def a_run_under_way(checkout: Checkout) -> Iterator[None]:
    """Hold the lock that a running Snakemake holds."""
    lock = checkout.root / ".snakemake/gpustudy-run.lock"
    lock.parent.mkdir(exist_ok=True)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


def test_foreign_cells_are_imported_during_a_run_and_own_cells_are_not(sites):
    here, there = sites
    with a_run_under_way(here):
        taken = here.gpustudy("archive", "import", str(there / "a100.zip"))
        assert "A run is under way here" in taken.stdout
        refused = here.gpustudy("archive", "import", str(there / "cpu.zip"), check=False)
        assert refused.returncode == 2
        assert "another snakemake" in refused.stdout
        assert "gpustudy archive:" in refused.stdout
        assert here.gpustudy("gc", "--delete", check=False).returncode == 2
        status = next(here.root.glob("results/cells/a100/*/r1/train-*/status.json"))
        before = status.read_text()
        status.write_text(f"{before}\n")
        replacing = here.gpustudy("archive", "import", str(there / "a100.zip"), "--replace", check=False)
        assert (replacing.returncode, "another snakemake" in replacing.stdout) == (2, True)
        status.write_text(before)
    assert set.union(*foreign_states(here).values()) == {"done"}
    assert not (here.root / "results/cells/cpu").exists()
    assert jobs_of(here)[0] == cells()


def test_results_are_neither_set_aside_nor_accepted_under_a_run(tmp_path):
    checkout = make_checkout(tmp_path / "checkout")
    craft_results(checkout, ("cpu",), products=False)
    words = (["retry", "cpu/baseline/r1"], ["accept", "cpu", "--reason", "a comment"], ["accept", "cpu", "--withdraw"])
    with a_run_under_way(checkout):
        for verb in words:
            refused = checkout.gpustudy(*verb, check=False)
            assert refused.returncode == 2, refused.stdout
            assert "is running in this folder: wait until it ends" in refused.stdout
    assert not (checkout.root / "results/.aside").exists()
    assert checkout.gpustudy("retry", "cpu/baseline/r1").returncode == 0


def test_a_killed_import_leaves_whole_folders_and_a_second_one_brings_the_rest(sites):
    here, there = sites
    command = [sys.executable, "-m", "gpustudy", "archive", "import", str(there / "a100.zip")]
    importing = subprocess.Popen(command, cwd=here.root, env=here.environment(), stderr=subprocess.DEVNULL)
    folders = here.root / "results/cells/a100"
    deadline = time.monotonic() + DEADLINE_S
    while not list(folders.glob("*/r*/train-*")):
        assert time.monotonic() < deadline
        assert importing.poll() is None, "the import ended before it could be killed"
        time.sleep(0.001)
    importing.send_signal(signal.SIGKILL)
    importing.wait()
    for folder in [path for path in folders.glob("*/r*/*") if not path.name.startswith(".")]:
        assert (folder / "status.json").exists()
    here.gpustudy("archive", "verify")
    here.gpustudy("archive", "import", str(there / "a100.zip"))
    assert set.union(*foreign_states(here).values()) == {"done"}
    here.gpustudy("gc", "--delete")
    assert not [path for path in folders.rglob("*") if path.name.startswith(".")]


def test_a_stage_planned_with_another_key_is_refused(tmp_path):
    checkout = make_checkout(tmp_path / "checkout")
    done = checkout.gpustudy("stage", "train", "cpu/opt2/r1", "--key", "0123456789ab", check=False)
    assert done.returncode == 2
    assert "but was planned with 0123456789ab: config or sources changed since" in done.stdout


def test_an_edit_while_a_run_is_under_way_is_refused_by_the_next_stage(tmp_path):
    """Real jobs: training starts, the network's source is edited, and the census after it does not start."""
    checkout = copy_checkout(tmp_path / "checkout")
    overlay = checkout.overlay(ONE)
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "--configfile", overlay, "--", "opt2"]
    run = subprocess.Popen(
        command, cwd=checkout.root, env=checkout.environment(),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert run.stdout is not None
    lines = []
    for line in run.stdout:
        lines.append(line)
        if "cpu/opt2/r1 train: iteration 1/" in line:
            checkout.edit("workflow/gpustudy/medddpm/unet.py", '"""', '"""Edited. ')
    assert run.wait(DEADLINE_S) != 0
    output = "".join(lines)
    assert "config or sources changed since; run snakemake again" in output
    assert list(checkout.root.glob("results/cells/cpu/opt2/r1/train-*/status.json"))
    assert not list(checkout.root.glob("results/cells/cpu/opt2/r1/census-*"))
    again = jobs_of(checkout, "--configfile", overlay, "--", "opt2")[0]
    assert {rule for rule, *_ in again} >= {"run_train", "run_census", "run_quality"}


def test_the_commit_and_a_dirty_tree_are_recorded_with_a_stage(tmp_path):
    checkout = copy_checkout(tmp_path / "checkout")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "as it is"]):
        subprocess.run([*git, *words], cwd=checkout.root, check=True)
    program = "import gpustudy.launch.process as p; e = p.provenance_environment(); print(*map(e.get, sys.argv[1:]))"
    program, names = f"import sys; {program}", ("GPUSTUDY_GIT_COMMIT", "GPUSTUDY_GIT_DIRTY")
    found = []
    for edited in (False, True):
        if edited:
            checkout.edit("config.yaml", "repeats: 3", "repeats: 4")
        done = subprocess.run(
            [sys.executable, "-c", program, *names],
            cwd=checkout.root,
            env=checkout.environment(),
            capture_output=True,
            text=True,
        )
        found.append(done.stdout.split())
    head = subprocess.run([*git, "rev-parse", "HEAD"], cwd=checkout.root, capture_output=True, text=True).stdout.strip()
    assert found == [[head, "false"], [head, "true"]]


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare to cut off the network")
def test_a_reader_without_network_draws_from_an_archive(sites):
    """Reviewer mode, for real: one figure and the table of states, drawn from imported tables alone."""
    here, there = sites
    source = Checkout(there)
    source.gpustudy("archive", "export", "tables.zip", "--with", "metrics")
    reader = copy_of(here, there.parent / "reader")
    reader.gpustudy("archive", "import", str(there / "tables.zip"))
    script = f"{sys.executable} -m snakemake --cores 2 -- states step_time"
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", script], cwd=reader.root, env=reader.environment(),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    if "unshare failed" in done.stdout:
        pytest.skip("this process may not cut off the network")
    assert done.returncode == 0, done.stdout
    assert "rule run_" not in done.stdout
    with (reader.root / "results/tables/states.csv").open() as stream:
        states = {row["cell"]: row["state"] for row in csv.DictReader(stream)}
    assert {state for cell, state in states.items() if cell.startswith("a100/")} == {"done"}
    assert (reader.root / "results/figures/step_time.svg").stat().st_size > 1000
