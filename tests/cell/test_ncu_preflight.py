"""What is found out before training: ncu absent, of another version, no driver, no rights."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpustudy.base.errors import UserError
from gpustudy.cell.ncu_preflight import check_driver, check_rights, find_ncu
from gpustudy.cell.outcomes import Outcome

VERSION_TEXT = """\
NVIDIA (R) Nsight Compute Command Line Profiler
Copyright (c) 2018-2024 NVIDIA Corporation
Version 2024.1.1.0 (build 33998838) (public-release)
"""


@pytest.fixture
def ncu_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def install(output: str, code: int = 0) -> Path:
        ncu = tmp_path / "bin" / "ncu"
        ncu.parent.mkdir()
        (tmp_path / "output").write_text(output)
        ncu.write_text(f'#!/bin/sh\ncat "{tmp_path / "output"}"\nexit {code}\n')
        ncu.chmod(0o755)
        monkeypatch.setenv("PATH", f"{ncu.parent}:/usr/bin:/bin")
        return ncu

    return install


def test_version_of_the_ncu_on_path(ncu_on_path: Any) -> None:
    path = ncu_on_path(VERSION_TEXT)
    found = find_ncu(None)
    assert (found.path, found.version) == (str(path), "2024.1.1.0")
    assert find_ncu("2024.1").version == "2024.1.1.0"
    assert find_ncu("2024.1.1.0").version == "2024.1.1.0"


@pytest.mark.parametrize("wanted", ["2024.11", "2025.1", "2024.1.1.0.1", "24"])
def test_other_version_than_wanted(ncu_on_path: Any, wanted: str) -> None:
    ncu_on_path(VERSION_TEXT)
    with pytest.raises(Outcome, match=f"asks for {wanted}") as caught:
        find_ncu(wanted)
    assert (caught.value.state, caught.value.reason) == ("unavailable", "ncu-version")


def test_later_minor_version_is_not_the_wanted_one(ncu_on_path: Any) -> None:
    ncu_on_path(VERSION_TEXT.replace("2024.1.1.0", "2024.10.0.0"))
    with pytest.raises(Outcome, match=r"asks for 2024\.1:"):
        find_ncu("2024.1")


def test_absent_ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Outcome, match="ncu is not on PATH") as caught:
        find_ncu(None)
    assert (caught.value.state, caught.value.reason) == ("unavailable", "no-ncu")


def test_something_else_named_ncu(ncu_on_path: Any) -> None:
    ncu_on_path("npm-check-updates 16\n")
    with pytest.raises(Outcome, match="names no version"):
        find_ncu(None)


def test_no_driver() -> None:
    def load(name: str) -> ctypes.CDLL:
        raise OSError("libcuda.so.1: cannot open shared object file: No such file or directory")

    with pytest.raises(UserError, match=r"no NVIDIA driver here \(libcuda.so.1: cannot open"):
        check_driver(load)


def test_driver_without_a_device() -> None:
    with pytest.raises(UserError, match="cuInit gave 100"):  # CUDA_ERROR_NO_DEVICE
        check_driver(lambda name: SimpleNamespace(cuInit=lambda flags: 100))  # type: ignore[arg-type,return-value]
    check_driver(lambda name: SimpleNamespace(cuInit=lambda flags: 0))  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("admin_only", "capabilities", "is_refused"),
    [
        ("1", "0000000000000000", True),
        ("1", "00000000a80425fb", True),  # a container's default set: no CAP_SYS_ADMIN
        ("1", "000001ffffffffff", False),  # root
        ("1", "0000004000000000", False),  # CAP_PERFMON alone
        ("0", "0000000000000000", False),
    ],
)
def test_rights_from_the_drivers_parameters(
    tmp_path: Path, admin_only: str, capabilities: str, is_refused: bool
) -> None:
    parameters, process = tmp_path / "params", tmp_path / "status"
    parameters.write_text(f"ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {admin_only}\nPreserveVideoMemory: 0\n")
    process.write_text(f"Name:\tpython\nCapInh:\t0000000000000000\nCapEff:\t{capabilities}\n")
    if not is_refused:
        check_rights(parameters, process)
        return
    with pytest.raises(Outcome, match="RmProfilingAdminOnly: 1") as caught:
        check_rights(parameters, process)
    assert (caught.value.state, caught.value.reason) == ("unavailable", "permission")


def test_rights_are_left_to_ncu_where_the_driver_does_not_tell(tmp_path: Path) -> None:
    check_rights(tmp_path / "absent", tmp_path / "absent")
