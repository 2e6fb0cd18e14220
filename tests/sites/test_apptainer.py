"""A real Apptainer: an image built by the project's own rule through spython, and stages that run and end in it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from gpustudy.launch.containers import ContainerJob, Mount, container_command
from gpustudy.launch.guard import run_guarded
from gpustudy.launch.runtimes import Runtime, host_environment
from tests.sites.images import APPTAINER, RECIPE
from tests.sites.stages import CELL, OVERLAY, WAIT_S, make_place, processes_with, run_stage, training, wait_for
from tests.support.checkout import Checkout

pytestmark = pytest.mark.sites

RUNTIME = Runtime("apptainer", APPTAINER, "apptainer version")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Checkout:
    """A copied checkout, in a folder whose name is no word, whose image the rule has built."""
    if not Path(APPTAINER).exists():
        pytest.skip(f"no {APPTAINER}: run 'bash tests/sites/apptainer_up.sh'")
    checkout, variables = make_place(tmp_path_factory.mktemp("apptainer"), "apptainer")
    built = checkout.snakemake("--configfile", OVERLAY, "--", "images", **variables)
    assert "INFO:    Creating SIF file..." in built.stdout, "what the build says is passed on while it runs"
    return checkout


@pytest.fixture
def image(place) -> Path:
    (path,) = (place.root / "results" / "images").glob("*.sif")
    return path


def inside(image: Path, tmp_path: Path, *words: str, **environment: str) -> int:
    """Run a command as stages are run; ``tmp_path``/cell is the folder that it may write."""
    for name in ("workflow", "cell", "home"):
        (tmp_path / name).mkdir(exist_ok=True)
    mounts = (Mount(tmp_path / "workflow", "/study/workflow"), Mount(tmp_path / "cell", "/study/cell", writable=True))
    started = container_command(RUNTIME, ContainerJob(str(image), words, mounts, tmp_path / "home", environment))
    return run_guarded(started.command, host_environment(RUNTIME, None, os.environ) | started.environment)


def test_the_image_has_its_record_and_holds_the_pins(place, image):
    record = json.loads(image.with_name(f"{image.name}.json").read_text())
    assert record["versions"]["torch"].startswith("2.13.0")
    assert record["origin"]["spython"] == "0.3.14"
    told = place.gpustudy("image", "verify", "current", "--configfile", OVERLAY).stdout
    assert f"is whole (sha256 {record['sha256']}), runs, and holds the pinned packages" in told
    assert sorted(path.name for path in image.parent.iterdir()) == [image.name, f"{image.name}.json"]


def test_a_stage_runs_in_the_image_and_says_so(place, image):
    done = place.snakemake("--configfile", OVERLAY, "--until", "run_train", "--", "baseline")
    assert "iteration" in done.stdout
    (provenance,) = (place.root / "results" / "cells" / CELL).glob("train-*/provenance.json")
    found = json.loads(provenance.read_text())
    record = json.loads(image.with_name(f"{image.name}.json").read_text())
    assert found["image_sha256"] == record["sha256"]
    assert found["python"] == record["versions"]["python"]
    assert found["argv"][0] == "/study/workflow/gpustudy/cell/__main__.py"
    assert str(place.root) not in provenance.read_text()


def test_nothing_of_the_host_leaks_in(image, tmp_path, monkeypatch):
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH", "APPTAINERENV_LEAK", "SINGULARITYENV_LEAK"):
        monkeypatch.setenv(name, "/leak")
    monkeypatch.setenv("APPTAINER_BIND", f"{tmp_path}:/leak")
    assert inside(image, tmp_path, "sh", "-c", "env >/study/cell/env; ls / >/study/cell/root", GIVEN='a,b "c"') == 0
    lines = (tmp_path / "cell" / "env").read_text().splitlines()
    assert [line for line in lines if "leak" in line.lower()] == []
    assert 'GIVEN=a,b "c"' in lines
    assert "HOME=/study/home" in lines
    assert "leak" not in (tmp_path / "cell" / "root").read_text()


def test_a_container_writes_its_cell_alone_and_its_exit_code_passes(image, tmp_path):
    assert inside(image, tmp_path, "touch", "/study/cell/x") == 0
    assert (tmp_path / "cell" / "x").exists()
    assert inside(image, tmp_path, "touch", "/study/workflow/x") != 0
    assert inside(image, tmp_path, "touch", "/opt/stack/x") != 0
    assert inside(image, tmp_path, "sh", "-c", "exit 7") == 7


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
def test_a_stage_ends_with_its_launcher_and_leaves_no_result(number, place, tmp_path):
    with training(place, tmp_path / "log") as (launcher, folder):
        assert processes_with(folder.name)
        launcher.send_signal(number)
        launcher.wait(WAIT_S)
        assert wait_for(lambda: not processes_with(folder.name)), processes_with(folder.name)
    assert not folder.exists()


def test_a_truncated_image_is_refused_before_it_is_started(place, image):
    kept = image.with_suffix(".kept")
    image.rename(kept)
    shutil.copyfile(kept, image)
    os.truncate(image, image.stat().st_size // 2)
    try:
        done = run_stage(place)
    finally:
        kept.replace(image)
    assert done.returncode == 2
    assert "bytes, it was built with" in done.stdout
    assert "'gpustudy image build current --site local' builds it" in done.stdout


def test_without_apptainer_everything_is_planned_and_a_stage_says_what_is_missing(place, tmp_path):
    for name in ("sh", "bash", "git", "which"):
        (tmp_path / name).symlink_to(shutil.which(name))
    path = {"PATH": f"{Path(sys.executable).parent}:{tmp_path}"}
    planned = place.snakemake("--configfile", OVERLAY, "-n", "-q", "rules", "--", "opt2", **path)
    assert "run_train" in planned.stdout
    done = run_stage(place, **path)
    assert done.returncode == 2
    assert "there is no apptainer nor singularity on PATH here: install apptainer and run again" in done.stdout


def test_a_changed_recipe_means_another_image_and_the_old_one_stays(place, image):
    recipe = place.root / RECIPE
    before = recipe.read_text()
    recipe.write_text(f"{before}# another recipe\n")
    try:
        planned = place.snakemake("--configfile", OVERLAY, "-n", "--", "images").stdout
    finally:
        recipe.write_text(before)
    assert "build_image" in planned
    assert str(image.relative_to(place.root)) not in planned
