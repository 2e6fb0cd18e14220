"""A real Docker daemon: the same recipe, the same stage, and no container left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sites.images import APPTAINER
from tests.sites.stages import CELL, OVERLAY, WAIT_S, make_place, run_stage, training, wait_for
from tests.support.checkout import REPOSITORY, Checkout
from tests.support.places import cannot_be_had

pytestmark = pytest.mark.sites

DOCKER = "/usr/bin/docker"
"""Debian's; another client may stand before it on PATH."""
START_S = 300


@pytest.fixture(scope="module")
def daemon(tmp_path_factory) -> Iterator[dict[str, str]]:
    """A daemon of this module's own; the environment in which 'docker' means it."""
    if os.geteuid() != 0 or not Path("/usr/bin/apt-get").exists():
        pytest.skip("a Docker daemon of one's own needs root on Debian")
    folder = tmp_path_factory.mktemp("docker")
    environment = {**os.environ, "GPUSTUDY_DOCKER_STATE": str(folder / "state")}
    scripts = REPOSITORY / "tests" / "sites"
    up = subprocess.run(
        ["bash", scripts / "docker_up.sh"], env=environment, capture_output=True, text=True, timeout=START_S
    )
    if up.returncode:
        cannot_be_had("Docker daemon", up.stderr)
    (folder / "bin").mkdir()
    (folder / "bin" / "docker").symlink_to(DOCKER)
    try:
        yield {"DOCKER_HOST": up.stdout.strip(), "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    finally:
        subprocess.run(["bash", scripts / "docker_down.sh"], env=environment, check=True, timeout=START_S)
        shutil.rmtree(folder / "state", ignore_errors=True)


@pytest.fixture(scope="module")
def place(daemon, tmp_path_factory) -> Checkout:
    """A copied checkout whose image the rule has built with Docker."""
    if not Path(APPTAINER).exists():
        pytest.skip(f"the base image is made with {APPTAINER}: run 'bash tests/sites/apptainer_up.sh'")
    checkout, variables = make_place(tmp_path_factory.mktemp("place"), "docker")
    checkout.snakemake("--configfile", OVERLAY, "--", "images", **daemon, **variables)
    return checkout


def containers(daemon: dict[str, str]) -> list[str]:
    listing = subprocess.run([DOCKER, "ps", "-aq"], env=os.environ | daemon, capture_output=True, text=True, check=True)
    return listing.stdout.split()


def record_of(place: Checkout) -> Path:
    (path,) = (place.root / "results" / "images").glob("*.docker.json")
    return path


def test_a_stage_runs_in_the_image_and_says_so(place, daemon):
    record = json.loads(record_of(place).read_text())
    assert record["versions"]["torch"].startswith("2.13.0")
    place.snakemake("--configfile", OVERLAY, "--until", "run_train", "--", "baseline", **daemon)
    (provenance,) = (place.root / "results" / "cells" / CELL).glob("train-*/provenance.json")
    found = json.loads(provenance.read_text())
    assert found["image_sha256"] == record["sha256"]
    assert found["python"] == record["versions"]["python"]
    assert found["host"] == os.uname().nodename
    assert provenance.stat().st_uid == os.getuid()
    assert containers(daemon) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
def test_the_container_ends_with_its_launcher(number, place, daemon, tmp_path):
    with training(place, tmp_path / "log", **daemon) as (launcher, folder):
        assert containers(daemon)
        launcher.send_signal(number)
        launcher.wait(WAIT_S)
        assert wait_for(lambda: not containers(daemon))
    assert not folder.exists()


def test_what_a_killed_launcher_left_is_removed_by_the_next_stage(place, daemon):
    gone = f"{os.uname().nodename}:{2**22 + 1}"  # above the largest process number of Linux
    image = f"sha256:{json.loads(record_of(place).read_text())['sha256']}"
    command = [
        DOCKER,
        "run",
        "--detach",
        "--network",
        "none",
        "--label",
        f"gpustudy.owner={gone}",
        image,
        "sleep",
        "900",
    ]
    subprocess.run(command, env=os.environ | daemon, check=True, capture_output=True)
    assert run_stage(place, **daemon).returncode == 0
    assert containers(daemon) == []


def test_an_image_that_the_daemon_lost_is_told(place, daemon):
    record = record_of(place)
    before = record.read_text()
    record.write_text(before.replace(json.loads(before)["sha256"], "0" * 64))
    try:
        done = run_stage(place, **daemon)
    finally:
        record.write_text(before)
    assert done.returncode == 2
    assert "Docker has no image gpustudy-current:" in done.stdout
