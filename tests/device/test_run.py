"""The device check up to the first CUDA call for real, and beyond it with stages that leave crafted files."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gpustudy.archive.check import check_archive
from gpustudy.archive.folder import open_archive
from gpustudy.base.canonical import key_of
from gpustudy.base.errors import UserError
from tests.device import documents, session
from tests.device.conftest import craft_prepared
from tests.device.documents import CONFIGS, Machine

RUN = Path(__file__).with_name("run.sh")
HOST_LIBRARIES = (
    "yaml",
    "pydantic",
    "snakemake",
    "pandas",
    "pyarrow",
    "scipy",
    "nibabel",
    "nilearn",
    "matplotlib",
    "monai",
)


def run_script(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run run.sh as a user does."""
    return subprocess.run(
        [RUN, *arguments],
        env=os.environ | {"PYTHON": sys.executable} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_machine_without_a_gpu_is_one_sentence_and_exit_2(tmp_path: Path, prepared_folder: Path) -> None:
    result = run_script("--data", str(prepared_folder), OUT=str(tmp_path / "out"))
    assert result.returncode == 2
    assert result.stderr == (
        "run.sh: torch finds no CUDA device: run this on a machine with one CUDA GPU and its driver.\n"
    )
    assert result.stdout == ""
    assert not (tmp_path / "out").exists()


def test_device_is_described_by_a_process_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    described = {"device_name": "NVIDIA H200", "architecture": "sm_90", "memory_bytes": 5, "free_bytes": 4}
    answer = subprocess.CompletedProcess([], 0, f"a warning of torch\n{json.dumps(described)}\n", "")
    monkeypatch.setattr(session.subprocess, "run", lambda *a, **k: answer)
    monkeypatch.setattr(session.shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="ncu is not on PATH"):
        session.this_machine({"torch": "2"})
    monkeypatch.setattr(session.shutil, "which", lambda name: f"/bin/{name}")
    assert session.this_machine({"torch": "2"}) == (Machine("NVIDIA H200", "sm_90", 5, {"torch": "2"}), 4)


def test_broken_torch_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = subprocess.CompletedProcess([], 1, "", "Traceback\nImportError: libcudnn.so.9")
    monkeypatch.setattr(session.subprocess, "run", lambda *a, **k: answer)
    with pytest.raises(UserError, match=r"cannot be asked about the device \(ImportError: libcudnn.so.9\)"):
        session.this_machine({})


def test_dry_run_makes_the_chain_of_every_config(tmp_path: Path, prepared_folder: Path) -> None:
    result = run_script("--data", str(prepared_folder), "--dry-run", OUT=str(tmp_path / "out"))
    assert result.returncode == 0, result.stderr
    plan = json.loads(result.stdout)
    assert plan["volume"] == [32, 48, 32]
    assert plan["base_channels"] == 64
    assert list(plan["cells"]) == list(CONFIGS)
    for config, stages in plan["cells"].items():
        assert list(stages) == ["train", "census", "counters"]
        for stage, cell in stages.items():
            assert cell["key"] == key_of(cell["document"])
            assert cell["labels"]["config"] == config
            assert cell["document"]["stage"] == stage
        assert stages["counters"]["document"]["previous"] == {"stage": "census", "key": stages["census"]["key"]}
    assert len({stages["train"]["key"] for stages in plan["cells"].values()}) == len(CONFIGS)


def test_nothing_beside_python_torch_and_numpy_is_needed(tmp_path: Path, prepared_folder: Path) -> None:
    """Here the libraries of the study's host side are hidden, as on a machine without them."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "from importlib.machinery import PathFinder\n"
        "class Hiding(PathFinder):\n"
        "    @staticmethod\n"
        "    def find_spec(name, path=None, target=None):\n"
        f"        hidden = name.split('.')[0] in {HOST_LIBRARIES!r}\n"
        "        return None if hidden else PathFinder.find_spec(name, path, target)\n"
        "sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding\n"
    )
    result = run_script("--data", str(prepared_folder), "--dry-run", PYTHONPATH=str(tmp_path), OUT=str(tmp_path))
    assert result.returncode == 0, result.stderr
    hidden = subprocess.run(
        [sys.executable, "-c", "import yaml"], env=os.environ | {"PYTHONPATH": str(tmp_path)}, capture_output=True
    )
    assert b"No module named 'yaml'" in hidden.stderr


def test_installed_package_named_tests_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").write_text("raise RuntimeError('another package')")
    result = run_script("--data", str(tmp_path / "none"), PYTHONPATH=str(tmp_path))
    assert result.returncode == 2
    assert "holds no prepared data" in result.stderr


def test_absent_interpreter_is_one_sentence(tmp_path: Path) -> None:
    result = run_script(PYTHON="no-such-python")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "run.sh: 'no-such-python' is not on PATH: set PYTHON to an interpreter that has torch.\n"


def test_old_interpreter_is_one_sentence(tmp_path: Path) -> None:
    old = tmp_path / "python3.8"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    result = run_script(PYTHON=str(old))
    assert result.returncode == 2
    assert "older than Python 3.10" in result.stderr


def test_folder_that_is_no_data_is_refused(tmp_path: Path) -> None:
    result = run_script("--data", str(tmp_path))
    assert result.returncode == 2
    assert "holds no prepared data" in result.stderr
    assert result.stderr.count("\n") == 1


Check = Callable[..., tuple[int, dict[str, Any]]]


def make_check(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Return what runs the check on a made-up machine with fake stages, in ``folder``: exit code and summary."""

    def command(stage: str, cell: Path, data: Path, out: Path, previous: Path | None) -> list[str]:
        words = [sys.executable, "-m", "tests.device.fake_stage", stage, "--cell", str(cell), "--out", str(out)]
        return words if previous is None else [*words, "--previous", str(previous)]

    root = RUN.parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{root / 'workflow'}{os.pathsep}{root}")
    monkeypatch.setattr(session, "stage_command", command)
    monkeypatch.setattr(session, "this_machine", lambda pins: (Machine("NVIDIA H200", "sm_90", 2**37, pins), 2**37))
    prepared = craft_prepared(folder / "prepared")

    def run(seconds: float = 100, **stages: str) -> tuple[int, dict[str, Any]]:
        monkeypatch.setenv("FAKE_STAGE", json.dumps({name.replace("_", " "): how for name, how in stages.items()}))
        out = folder / "out"
        code = session.main(["--data", str(prepared), "--out", str(out), "--seconds", str(seconds)])
        return code, json.loads((out / "summary.json").read_text())

    return run


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """The check of two configs."""
    monkeypatch.setattr(documents, "CONFIGS", {name: CONFIGS[name] for name in ("baseline", "opt1")})
    return make_check(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, dict[str, Any]]:
    """A check of all configs that went well: its folder, exit code and summary."""
    folder = tmp_path_factory.mktemp("good")
    with pytest.MonkeyPatch.context() as monkeypatch:
        return folder, *make_check(folder, monkeypatch)()


def _unpack(folder: Path) -> Path:
    """Do what --help says: join the parts and unpack them."""
    whole, unpacked = folder / "whole.tar.gz", folder / "unpacked"
    whole.write_bytes(b"".join(part.read_bytes() for part in sorted((folder / "out").glob("cells.tar.gz.part*"))))
    with tarfile.open(whole) as tar:
        tar.extractall(unpacked)  # our own file
    return unpacked


def test_good_check_leaves_an_archive_in_few_small_files(good: tuple[Path, int, dict[str, Any]]) -> None:
    folder, code, summary = good
    assert (code, summary["problems"], summary["left_out"]) == (0, [], [])
    assert summary["configs"]["opt1"] == {
        "train": "done",
        "census": "done",
        "counters": "done",
        "median_step_ns": 5000,
        "profiled_launches": 5,
    }
    files = sorted((folder / "out").rglob("*"))
    assert len(files) <= 8
    assert sum(path.stat().st_size for path in files) < 60 * 10**6
    unpacked = _unpack(folder)
    assert (unpacked / "manifest.json").read_bytes() == (folder / "out" / "manifest.json").read_bytes()
    with open_archive(unpacked) as archive:
        stages = check_archive(archive).stages
    assert len(stages) == 15
    assert {(stage.folder.gpu, stage.folder.config) for stage in stages} == {("h200", config) for config in CONFIGS}


def test_manifest_has_every_file_and_every_document(good: tuple[Path, int, dict[str, Any]]) -> None:
    unpacked = _unpack(good[0])
    manifest = json.loads((unpacked / "manifest.json").read_text())
    files = {path.relative_to(unpacked).as_posix(): path for path in (unpacked / "cells").rglob("*") if path.is_file()}
    assert set(manifest["members"]) == set(files)
    for name, path in files.items():
        content = path.read_bytes()
        assert manifest["members"][name] == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert len(manifest["cells"]) == 15
    assert all(folder.endswith(key_of(document)) for folder, document in manifest["cells"].items())
    # weights stay behind, and the manifest says so
    assert not [name for name in files if name.endswith("checkpoint.pt")]
    assert [removed["bytes"] for removed in manifest["trimmed"].values()] == [1000] * 5


def test_what_is_too_large_is_left_out_and_said(check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.packing.pack, "__defaults__", (150_000,))
    _, summary = check()
    assert [name.split("/")[2] for name in summary["left_out"]] == ["opt1"]
    with open_archive(_unpack(tmp_path)) as archive:
        assert len(check_archive(archive).stages) == 5


def test_outcome_of_a_stage_is_a_problem_told_in_its_own_words(check: Check) -> None:
    code, summary = check(opt1_counters="unavailable permission")
    assert code == 1
    assert summary["problems"] == ["opt1 counters: ended as unavailable(permission): crafted permission"]
    assert summary["configs"]["opt1"]["counters"] == "unavailable(permission)"
    assert summary["configs"]["opt1"]["train"] == "done"


def test_broken_stage_stops_its_config_alone(check: Check, tmp_path: Path) -> None:
    code, summary = check(baseline_census="breaks")
    assert code == 1
    assert summary["configs"]["baseline"]["census"] == summary["configs"]["baseline"]["counters"] == "missing"
    assert summary["configs"]["opt1"]["counters"] == "done"
    log = (tmp_path / "out" / "run.log").read_text()
    assert "a dead node" in log
    assert "baseline counters: not run, the stage before it left nothing" in log


def test_time_that_is_over_costs_counters_and_no_timing(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "LEAST_STAGE_S", 1)
    monkeypatch.setenv("FAKE_PID", str(tmp_path / "pid"))
    code, summary = check(seconds=10, baseline_counters="hangs")
    assert code == 1
    assert all(stages["train"] == stages["census"] == "done" for stages in summary["configs"].values())
    assert summary["configs"]["opt1"]["counters"] == "missing"
    assert summary["seconds"] < 60
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()  # nothing is left on the device
    with open_archive(_unpack(tmp_path)) as archive:
        assert len(check_archive(archive).stages) == 4
