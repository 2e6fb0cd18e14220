"""An image is used when it is whole, unchanged and of the stack's key, and refused before it is started otherwise."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpustudy.base.digests import file_sha256
from gpustudy.base.errors import UserError
from gpustudy.launch.images import Wanted, check_sif, read_record, usable_image, wanted_image
from gpustudy.launch.runtimes import Runtime
from gpustudy.launch.tools import Answer
from tests.launch.places import place_at
from tests.launch.sif_bytes import sif

KEY = "0123456789ab"
APPTAINER = Runtime("apptainer", "apptainer", "apptainer version 1.4.5")
DOCKER = Runtime("docker", "docker", "Docker version 20")


def recipe(key: str = KEY) -> str:
    return f"Bootstrap: docker\n%labels\n    gpustudy.stack paper\n    gpustudy.key {key}\n"


@pytest.fixture
def wanted(tmp_path) -> Wanted:
    """A .sif in its place, with its record."""
    path = tmp_path / "images" / f"paper-{KEY}.sif"
    path.parent.mkdir()
    path.write_bytes(sif(recipe()))
    found = Wanted("expanse", "paper", KEY, "apptainer", path, "base@sha256:00")
    check_sif(found)
    return found


def docker_record(folder: Path) -> Wanted:
    path = folder / f"paper-{KEY}.docker.json"
    empty = {"origin": {}, "versions": {}, "bytes": 1, "changed_ns": 0, "base": "b"}
    path.write_text(json.dumps({"schema": 1, "stack": "paper", "key": KEY, "sha256": "ef" * 32, **empty}))
    return Wanted("jetstream2", "paper", KEY, "docker", path, "b")


def test_where_an_image_lies_is_known_without_it_and_without_a_runtime(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    effective = place_at("expanse", tmp_path).effective
    found = wanted_image(effective, "paper")
    assert found.path == tmp_path / "results" / "images" / f"paper-{found.key}.sif"
    assert wanted_image(effective, "paper", kind="docker").tag == f"gpustudy-paper:{found.key}"
    assert found.record.name == f"paper-{found.key}.sif.json"


def test_a_site_without_containers_and_an_unknown_stack_are_told(tmp_path):
    with pytest.raises(UserError, match="site local runs cells without containers: name another site with --site"):
        wanted_image(place_at("local", tmp_path).effective, "paper")
    with pytest.raises(UserError, match="there is no stack 'papr': it is one of paper, current, current_cu126"):
        wanted_image(place_at("expanse", tmp_path).effective, "papr")


def test_an_unchanged_image_is_used_with_its_sum(wanted):
    image = usable_image(wanted, APPTAINER)
    assert image.reference == str(wanted.path)
    assert image.sha256 == file_sha256(wanted.path)


def test_an_image_put_there_by_hand_gets_a_record(wanted):
    wanted.record.unlink()
    record = check_sif(wanted)
    assert (record.sha256, record.origin) == (file_sha256(wanted.path), {"taken from": wanted.path.name})
    assert read_record(wanted) == record


def test_a_missing_image_is_told_with_the_ways_to_get_it(wanted):
    wanted.path.unlink()
    with pytest.raises(UserError) as told:
        usable_image(wanted, APPTAINER)
    assert str(told.value) == (
        f"{wanted.path} is missing: 'gpustudy image build paper --site expanse' builds it, "
        "'gpustudy image import paper FILE' takes one."
    )


def test_a_truncated_image_is_refused_at_once(wanted):
    os.truncate(wanted.path, 5000)
    with pytest.raises(UserError, match=r"has 5000 bytes, it was built with \d+: remove it"):
        usable_image(wanted, APPTAINER)


def test_a_truncated_image_without_a_record_is_refused_too(wanted):
    wanted.record.unlink()
    os.truncate(wanted.path, wanted.path.stat().st_size - 1)
    with pytest.raises(UserError, match=r"is cut off \(\d+ of at least \d+ bytes\)"):
        usable_image(wanted, APPTAINER)


def test_an_image_of_the_same_size_with_another_byte_is_refused(wanted):
    content = bytearray(wanted.path.read_bytes())
    content[-1] ^= 1
    wanted.path.write_bytes(content)
    with pytest.raises(UserError, match="was changed since it was built: remove it"):
        usable_image(wanted, APPTAINER)


def test_a_touched_image_is_summed_once_and_then_known_again(wanted, monkeypatch):
    os.utime(wanted.path, ns=(1, 10**18))
    assert check_sif(wanted).changed_ns == 10**18
    monkeypatch.setattr("gpustudy.launch.images.file_sha256", lambda path: pytest.fail("it was summed again"))
    check_sif(wanted)


def test_a_thorough_check_sums_whatever_the_time_says(wanted):
    state = wanted.path.stat()
    content = bytearray(wanted.path.read_bytes())
    content[-1] ^= 1
    wanted.path.write_bytes(content)
    os.utime(wanted.path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert usable_image(wanted, APPTAINER), "the shortcut takes size and time"
    with pytest.raises(UserError, match="was changed since it was built"):
        check_sif(wanted, thorough=True)


def test_an_image_of_another_key_is_refused(wanted):
    wanted.record.unlink()
    wanted.path.write_bytes(sif(recipe("ba9876543210")))
    with pytest.raises(UserError, match=f"was built for stack key ba9876543210, stack 'paper' has key {KEY} now"):
        usable_image(wanted, APPTAINER)
    wanted.path.write_bytes(sif("Bootstrap: docker\n"))
    with pytest.raises(UserError, match="was built for no stack of this study"):
        usable_image(wanted, APPTAINER)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 2}', '{"schema": 1, "key": "other"}'])
def test_a_record_that_cannot_be_read_counts_as_none(content, wanted):
    wanted.record.write_text(content)
    assert read_record(wanted) is None
    assert check_sif(wanted).sha256 == file_sha256(wanted.path)


def test_a_docker_image_is_started_by_its_id(tmp_path):
    asked = []

    def runner(command, timeout_s=1.0):
        asked.append(command)
        return Answer(0, "sha256:..")

    image = usable_image(docker_record(tmp_path), DOCKER, runner)
    assert image.reference == f"sha256:{'ef' * 32}"
    assert asked[0][-1] == image.reference


def test_a_docker_image_that_the_daemon_lost_is_told(tmp_path):
    wanted = docker_record(tmp_path)
    with pytest.raises(UserError, match=r"Docker has no image gpustudy-paper:0123456789ab .*\(No such image\): remove"):
        usable_image(wanted, DOCKER, lambda command, timeout_s=1.0: Answer(1, "", "No such image"))
    wanted.path.unlink()
    with pytest.raises(UserError, match="is missing or no record of an image"):
        usable_image(wanted, DOCKER)
