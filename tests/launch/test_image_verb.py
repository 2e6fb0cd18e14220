"""``gpustudy image``, with a stand-in for Apptainer: built whole or not at all, imported, verified, locked."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import yaml

from gpustudy.base.errors import UserError
from gpustudy.cli import main
from gpustudy.launch import images_lock
from gpustudy.launch.building import require_buildable
from gpustudy.study.load import load_effective
from gpustudy.study.stacks import read_pins
from tests.launch.sif_bytes import sif

REPOSITORY = Path(__file__).resolve().parents[2]
PINS = read_pins(REPOSITORY / "envs" / "paper.txt")
SITE = ["--site", "expanse"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the config, where 'apptainer' is the stand-in, and a scratch of its own."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "apptainer").symlink_to(REPOSITORY / "tests" / "launch" / "fake_apptainer.sh")
    (tmp_path / "config.yaml").write_text((REPOSITORY / "config.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUSTUDY_CONFIG", raising=False)
    for name, value in {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'workflow'}",
        "TORCH_INDEX": "https://index.example/cu118",
        "GPUSTUDY_SCRATCH": str(tmp_path),
        "FAKE_LOG": str(tmp_path / "log"),
        "FAKE_FAILS": "",
        "FAKE_VERSIONS": json.dumps({**PINS, "torch": f"{PINS['torch']}+cu118"}),
    }.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def path_of(capsys) -> Path:
    assert main(["image", "path", "paper", *SITE]) == 0
    return Path(capsys.readouterr().out.strip())


def test_an_image_is_built_with_its_record_and_not_twice(place, capfd):
    path = path_of(capfd)
    assert main(["image", "build", "paper", *SITE]) == 0
    told = capfd.readouterr()
    assert "INFO:    building" in told.out + told.err, "what a build says is passed on"
    record = json.loads(path.with_name(f"{path.name}.json").read_text())
    assert record["versions"]["torch"] == "2.0.1+cu118"
    assert record["origin"]["runtime"] == "apptainer version 9.9.9"
    assert "-Xcompression-level 1" in (place / "log").read_text()
    definition = (place / "log.def").read_text()
    assert f"    gpustudy.key {record['key']}\n" in definition
    assert 'export TORCH_INDEX="https://index.example/cu118"' in definition
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name, f"{path.name}.json"]
    calls = (place / "log").read_text()
    assert main(["image", "build", "paper", *SITE]) == 0
    assert "is there already" in capfd.readouterr().out
    assert "build" not in (place / "log").read_text()[len(calls) :]


def test_a_build_that_fails_leaves_nothing(place, capfd, monkeypatch):
    monkeypatch.setenv("FAKE_FAILS", "1")
    path = path_of(capfd)
    assert main(["image", "build", "paper", *SITE]) == 2
    told = capfd.readouterr()
    assert "the image of stack 'paper' could not be built (exit code 255): its messages stand above" in told.err
    assert "no space left" in told.out + told.err
    assert list(path.parent.iterdir()) == []


def test_an_image_with_other_packages_than_pinned_is_not_kept(place, capfd, monkeypatch):
    monkeypatch.setenv("FAKE_VERSIONS", json.dumps({**PINS, "torch": "2.0.0+cu117"}))
    path = path_of(capfd)
    assert main(["image", "build", "paper", *SITE]) == 2
    assert "holds torch 2.0.0+cu117, stack 'paper' pins 2.0.1" in capfd.readouterr().err
    assert not path.exists()


def test_a_key_of_an_older_plan_is_refused(place, capfd):
    assert main(["image", "build", "paper", "--key", "0" * 12, *SITE]) == 2
    assert re.search(r"stack 'paper' has key \w{12} now, but was planned with 000000000000", capfd.readouterr().err)


def test_a_base_image_as_a_file_is_taken_and_recorded(place, capfd, monkeypatch):
    base = (REPOSITORY / "containers" / "paper.Dockerfile").read_text()
    digest = re.search(r"@sha256:([0-9a-f]{64})", base)[1]
    file = place / "bases" / f"sha256-{digest}.sif"
    file.parent.mkdir()
    file.write_text("base")
    monkeypatch.setenv("GPUSTUDY_BASE_IMAGES", "bases")
    path = path_of(capfd)
    assert main(["image", "build", "paper", *SITE]) == 0
    assert f"Bootstrap: localimage\nFrom: {file}\n" in (place / "log.def").read_text()
    assert json.loads(path.with_name(f"{path.name}.json").read_text())["origin"]["base file"] == file.name


def build_elsewhere(place: Path, capfd) -> Path:
    path = path_of(capfd)
    assert main(["image", "build", "paper", *SITE]) == 0
    capfd.readouterr()
    path.with_name(f"{path.name}.json").unlink()
    return path.rename(place / "elsewhere.sif")


def test_an_image_from_elsewhere_is_imported_without_a_runtime(place, capfd, monkeypatch):
    elsewhere, path = build_elsewhere(place, capfd), path_of(capfd)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert main(["image", "import", "paper", str(elsewhere), *SITE]) == 0
    assert path.read_bytes() == elsewhere.read_bytes()
    assert main(["image", "import", "paper", str(elsewhere), "--sha256", "0" * 64, *SITE]) == 2
    assert f"--sha256 names {'0' * 64}: copy it again" in capfd.readouterr().err


def test_an_image_of_another_key_is_not_imported(place, capfd):
    other = place / "other.sif"
    other.write_bytes(sif("%labels\n    gpustudy.key ba9876543210\n"))
    assert main(["image", "import", "paper", str(other), *SITE]) == 2
    assert "was built for stack key ba9876543210" in capfd.readouterr().err


def test_verify_sums_the_file_and_looks_inside(place, capfd, monkeypatch):
    path = path_of(capfd)
    assert main(["image", "build", "paper", *SITE]) == 0
    assert main(["image", "verify", "paper", *SITE]) == 0
    assert "is whole (sha256" in capfd.readouterr().out
    monkeypatch.setenv("FAKE_VERSIONS", json.dumps(PINS | {"numpy": "9"}))
    assert main(["image", "verify", "paper", *SITE]) == 2
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert main(["image", "verify", "paper", *SITE]) == 2
    assert "was changed since it was built" in capfd.readouterr().err


def test_list_shows_what_is_here_and_what_runs_where(place, capfd):
    assert main(["image", "build", "paper", *SITE]) == 0
    capfd.readouterr()
    assert main(["image", "list", *SITE]) == 0
    rows = {line.split()[0]: line for line in capfd.readouterr().out.splitlines() if line.startswith(("paper", "cur"))}
    assert "sha256" in rows["paper"]
    assert "v100" in rows["paper"]
    assert "not here" in rows["current"]
    assert "not for v100: CUDA 13 has left Volta out" in rows["current"]


def test_without_a_runtime_a_build_says_what_to_load(place, capfd, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin" if not Path("/usr/bin/apptainer").exists() else "")
    assert main(["image", "build", "paper", *SITE]) == 2
    assert "'module load singularitypro' and run again" in capfd.readouterr().err


def test_a_run_whose_images_could_not_be_built_is_refused_at_once(place, capfd):
    effective = load_effective(site="expanse")
    with pytest.raises(UserError, match=r"paper\.Dockerfile needs TORCH_INDEX"):
        require_buildable(effective, ["v100"], {})
    require_buildable(effective, ["v100"], {"TORCH_INDEX": "x"})
    require_buildable(effective, [], {})
    require_buildable(load_effective(site="local"), ["cpu"], {})
    assert main(["image", "build", "paper", *SITE]) == 0
    require_buildable(effective, ["v100"], {})


def test_the_lock_takes_a_sum_and_an_import_must_have_it(tmp_path, monkeypatch):
    (tmp_path / "containers").mkdir()
    lock = tmp_path / images_lock.LOCK_FILE
    lock.write_text((REPOSITORY / images_lock.LOCK_FILE).read_text())
    base = images_lock.read_lock(tmp_path)["paper"]["base"]
    images_lock.write_built_sum("paper", base, "012345678901", "ab" * 32, tmp_path)
    assert images_lock.built_sum("paper", "012345678901", tmp_path) == "ab" * 32
    assert images_lock.built_sum("paper", "other", tmp_path) is None
    assert images_lock.built_sum("current", "012345678901", tmp_path) is None
    content = yaml.safe_load(lock.read_text())
    assert content["paper"]["built"] == {"key": "012345678901", "sha256": "ab" * 32}
    assert {name: entry["base"] for name, entry in content.items()} == {
        name: entry["base"] for name, entry in images_lock.read_lock(REPOSITORY).items()
    }


def test_stacks_of_the_config_and_the_lock_are_the_same(place):
    assert set(images_lock.read_lock(REPOSITORY)) == set(load_effective().study.stacks)
