"""Preflight's checks of the machine that cells run on: GPU, driver, counters, clocks, software, folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpustudy.launch.images import wanted_image
from gpustudy.launch.preflight.checks import FAIL, PASS, SKIPPED, WARN, Check
from gpustudy.launch.preflight.survey import head_checks, node_checks, run_on_node
from gpustudy.launch.preflight.trials import check_container, check_counters
from gpustudy.launch.tools import Answer
from tests.launch.places import found, place_at, write_system_file
from tests.launch.smi import A100, H100, MIG_LIST, UUIDS, V100, Recorded, listing

CLOCKS = "1410 MHz, 1410 MHz\n"
GOOD: dict[str, str | Answer] = {
    "nvidia-smi --query-gpu=index": listing(A100),
    "nvidia-smi -L": MIG_LIST,
    "nvidia-smi -q": "    GPU Virtualization Mode\n        Virtualization Mode               : Pass-Through\n",
    "nvidia-smi --query-compute-apps": "",
    "nvidia-smi --query-gpu=clocks.current.sm": CLOCKS,
    "nvidia-smi --query-gpu=clocks_event_reasons.active": "0x0000000000000001\n",
    "pgrep -x nv-hostengine": Answer(1),
}
PARAMETERS = "/proc/driver/nvidia/params"


def look(
    tmp_path: Path, changed: dict[str, str | Answer] | None = None, site: str = "jetstream2", **more: Any
) -> dict[str, Check]:
    place = place_at(site, tmp_path, Recorded(GOOD | (changed or {})), **more)
    return found(place, node_checks(place, is_elsewhere=False))


def test_a_whole_a100_passes(tmp_path: Path) -> None:
    write_system_file(tmp_path, PARAMETERS, "RmProfilingAdminOnly: 0\n")
    write_system_file(tmp_path, "/proc/meminfo", "MemTotal: 125829120 kB\nMemAvailable:   104857600 kB\n")
    checks = look(tmp_path)
    names = (
        "gpu a100",
        "driver for a100",
        "alone on the gpu",
        "virtual gpu",
        "counter permission",
        "counters are free",
    )
    assert {name: checks[name].level for name in (*names, "clocks", "memory")} == dict.fromkeys(
        (*names, "clocks", "memory"), PASS
    )
    assert checks["gpu a100"].sentence == f"1 granted: {A100}, driver 550.54.15."
    assert "1410 MHz of at most 1410 MHz" in checks["clocks"].sentence


def test_another_model_than_the_cell_claims(tmp_path: Path) -> None:
    check = look(tmp_path, {"nvidia-smi --query-gpu=index": listing(V100)})["gpu a100"]
    assert check.level == FAIL
    assert f"a device named like 'A100', granted here: {V100}" in check.sentence


def test_a_slice_of_a_virtual_a100_is_refused_and_told_to_be_virtual(tmp_path: Path) -> None:
    """Jetstream2's g3.medium has a quarter of an A100 with 10 GB."""
    checks = look(
        tmp_path, {"nvidia-smi --query-gpu=index": f"0, {UUIDS[0]}, GRID A100X-10C, [N/A], 10240, 525.85.05\n"}
    )
    assert checks["gpu a100"].level == FAIL
    assert "memory_gib is 40, GRID A100X-10C here has 10 GiB" in checks["gpu a100"].sentence
    assert checks["virtual gpu"].level == WARN
    assert "enable_profiling=1" in checks["virtual gpu"].to_admins
    assert checks["clocks"].level == WARN


def test_mig_fails_the_whole_gpu_and_warns_of_clocks(tmp_path: Path) -> None:
    checks = look(tmp_path, {"nvidia-smi --query-gpu=index": listing(A100, mig="Enabled")})
    assert checks["gpu a100"].level == FAIL
    assert "MIG divides" in checks["gpu a100"].sentence
    assert "clock_control to 'none'" in checks["clocks"].sentence


def test_fewer_gpus_than_the_site_says_are_told(tmp_path: Path) -> None:
    check = look(tmp_path, {"nvidia-smi --query-gpu=index": listing(H100, H100)}, site="stampede3-node")["gpu h100"]
    assert check.level == FAIL
    assert "gpus_per_node is 4, granted here: 2" in check.sentence


@pytest.mark.parametrize(("driver", "level"), [("450.80.02", PASS), ("449.99", FAIL), ("550.54.15", PASS)])
def test_driver_against_the_cuda_of_the_stack(tmp_path: Path, driver: str, level: str) -> None:
    """The paper's stack is built for CUDA 11.8, which runs from driver 450.80 on (NVIDIA, CUDA Compatibility)."""
    check = look(tmp_path, {"nvidia-smi --query-gpu=index": listing(A100).replace("550.54.15", driver)})
    assert check["driver for a100"].level == level
    if level == FAIL:
        assert "older than 450.80, which CUDA 11.8 of stack paper needs" in check["driver for a100"].sentence
        assert "at least 450.80" in check["driver for a100"].to_admins


def test_programs_of_others_on_the_granted_gpu(tmp_path: Path) -> None:
    apps = f"{UUIDS[0]}, 4711, python3\n{UUIDS[1]}, 4712, other\n"
    check = look(tmp_path, {"nvidia-smi --query-compute-apps": apps})["alone on the gpu"]
    assert check.level == WARN
    assert "python3 (process 4711)" in check.sentence
    assert "4712" not in check.sentence


@pytest.mark.parametrize(
    ("parameters", "capabilities", "level"),
    [
        ("RmProfilingAdminOnly: 1\n", "0000000000000000", WARN),
        ("RmProfilingAdminOnly: 1\n", "0000000000200000", PASS),
        ("RmProfilingAdminOnly: 1\n", "0000004000000000", PASS),
        ("RmProfilingAdminOnly: 0\n", "0000000000000000", PASS),
        ("ModifyDeviceFiles: 1\n", "0000000000000000", SKIPPED),
    ],
)
def test_counter_permission(tmp_path: Path, parameters: str, capabilities: str, level: str) -> None:
    write_system_file(tmp_path, PARAMETERS, parameters)
    write_system_file(tmp_path, "/proc/self/status", f"Name:\tpython\nCapEff:\t{capabilities}\n")
    check = look(tmp_path)["counter permission"]
    assert check.level == level
    if level == WARN:
        assert "unavailable (permission)" in check.sentence
        assert "NVreg_RestrictProfilingToAdminUsers=0" in check.to_admins


def test_dcgm_in_the_way(tmp_path: Path) -> None:
    check = look(tmp_path, {"pgrep -x nv-hostengine": "1234\n"})["counters are free"]
    assert check.level == WARN
    assert "dcgmi profile --pause" in check.sentence


@pytest.mark.parametrize(
    ("field", "mask", "reason"),
    [
        ("clocks_event_reasons.active", "0x0000000000000048", "hardware slowdown, hardware thermal slowdown"),
        ("clocks_throttle_reasons.active", "0x0000000000000020", "software thermal slowdown"),
    ],
)
def test_clocks_that_are_held_down(tmp_path: Path, field: str, mask: str, reason: str) -> None:
    unknown = {"nvidia-smi --query-gpu=clocks_event_reasons.active": Answer(2, err="Field is not a valid field")}
    check = look(tmp_path, unknown | {f"nvidia-smi --query-gpu={field}": f"{mask}\n"})["clocks"]
    assert check.level == WARN
    assert f"held down now ({reason};" in check.sentence


def test_a_power_cap_of_the_card_itself_is_no_fault(tmp_path: Path) -> None:
    assert look(tmp_path, {"nvidia-smi --query-gpu=clocks_event_reasons.active": "0x4\n"})["clocks"].level == PASS


def test_without_a_driver_one_row_fails_and_the_others_are_silent(tmp_path: Path) -> None:
    place = place_at("jetstream2", tmp_path, Recorded({}))
    checks = found(place, node_checks(place, is_elsewhere=False))
    assert checks["gpu a100"].sentence == "There is no nvidia-smi here: run on a machine with an NVIDIA driver."
    others = ("driver for a100", "alone on the gpu", "virtual gpu", "clocks", "counter permission", "counters are free")
    assert {checks[name].level for name in others} == {SKIPPED}


def test_a_site_of_cpus_alone_asks_nothing_of_gpus(tmp_path: Path) -> None:
    place = place_at("local", tmp_path, Recorded({}))
    assert not [name for name, _ in node_checks(place, is_elsewhere=False) if "gpu" in name or "counter" in name]


NO_CONTAINER = {"sites": {"jetstream2": {"runtime": "none"}}}


@pytest.mark.parametrize(
    ("answer", "level", "sentence"),
    [
        (Answer(127), WARN, "unavailable (no-ncu)"),
        ("NVIDIA (R) Nsight Compute\nVersion 2025.1.1.0 (build 1) (public-release)\n", PASS, "ncu 2025.1.1.0"),
        ("garbage\n", WARN, "ncu does not run (garbage)"),
    ],
)
def test_nsight_compute_without_a_container(tmp_path: Path, answer: str | Answer, level: str, sentence: str) -> None:
    check = look(tmp_path, {"ncu --version": answer}, overlay=NO_CONTAINER)["nsight compute"]
    assert check.level == level
    assert sentence in check.sentence


def test_another_ncu_than_asked_for(tmp_path: Path) -> None:
    overlay = NO_CONTAINER | {"workloads": {"paper": {"counters": {"ncu_version": "2024.1"}}}}
    check = look(tmp_path, {"ncu --version": "Version 2025.1.1.0\n"}, overlay=overlay)["nsight compute"]
    assert check.level == WARN
    assert "asks for 2024.1" in check.sentence


def test_other_packages_than_the_stack_pins_without_a_container(tmp_path: Path) -> None:
    check = look(tmp_path, overlay=NO_CONTAINER)["stack paper"]
    assert check.level == FAIL
    assert "stack paper pins 2.0.1" in check.sentence


def test_the_runtime_is_found_by_the_sites_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    answers: dict[str, str | Answer] = {
        "bash -lc module load tacc-apptainer": "/opt/apps/tacc-apptainer/bin/apptainer\n",
        "/opt/apps/tacc-apptainer/bin/apptainer --version": "apptainer version 1.3.3\n",
    }
    brought = look(tmp_path, answers, site="stampede3-node")["container runtime"]
    assert brought.level == PASS
    assert brought.sentence.endswith("apptainer version 1.3.3, by the module tacc-apptainer.")
    absent = look(tmp_path, {"bash -lc": Answer(1)}, site="stampede3-node")["container runtime"]
    assert absent.level == FAIL
    assert "'module load tacc-apptainer' does not bring it" in absent.to_admins


def test_dockers_daemon_must_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text("#!/bin/sh\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(docker.parent))
    refused = Answer(1, err="permission denied while trying to connect to the Docker daemon socket")
    answers: dict[str, str | Answer] = {
        f"{docker} --version": "Docker version 20.10.24\n",
        f"{docker} version": refused,
    }
    overlay = {"sites": {"jetstream2": {"runtime": "docker"}}}
    check = look(tmp_path, answers, overlay=overlay)["container runtime"]
    assert check.level == FAIL
    assert "permission denied" in check.sentence
    assert (
        look(tmp_path, answers | {f"{docker} version": "20.10.24\n"}, overlay=overlay)["container runtime"].level
        == PASS
    )


def test_the_driver_of_the_newest_stack_must_be_newer(tmp_path: Path) -> None:
    """torch 2.13 from PyPI is built for CUDA 13, although its image's base is CUDA 12.8: driver 580 (NVIDIA)."""
    check = look(tmp_path, overlay={"gpus": {"a100": {"stack": "current"}}})["driver for a100"]
    assert check.level == FAIL
    assert "older than 580, which CUDA 13 of stack current needs" in check.sentence


class Trial:
    """Answers as the program in an image does; the command that starts it is kept."""

    def __init__(self, recorded: Recorded, answer: Answer) -> None:
        self.recorded, self.answer, self.command = recorded, answer, list[str]()

    def __call__(self, command: Sequence[str], timeout_s: float = 0.0) -> Answer:
        if command[0] == "env":
            self.command = list(command)
            return self.answer
        return self.recorded(command)


PAPER = {"torch": "2.0.1+cu118", "numpy": "1.26.4", "cuda": "11.8", "device": A100, "ncu": "2025.2.0.0"}


@pytest.mark.parametrize(
    ("changed", "code", "level", "sentence"),
    [
        ({}, 0, PASS, f"torch 2.0.1+cu118 (CUDA 11.8) uses {A100}, and ncu is 2025.2.0.0"),
        ({"device": None}, 0, FAIL, "finds no GPU (UserWarning: The NVIDIA driver on your system is too old)"),
        ({"ncu": None}, 0, WARN, "it has no ncu: no counters"),
        ({"torch": "2.13.0"}, 0, FAIL, "torch 2.13.0 (pinned: 2.0.1)"),
        (None, 255, FAIL, "does not start here as a stage would: FATAL: container creation failed"),
        (None, 124, WARN, "did not start within 25 s"),
    ],
)
def test_the_image_is_started_as_a_stage_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: dict[str, Any] | None,
    code: int,
    level: str,
    sentence: str,
) -> None:
    program = tmp_path / "bin" / "apptainer"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr("gpustudy.launch.preflight.trials.require_key", lambda wanted, path: None)
    errors = (
        "UserWarning: The NVIDIA driver on your system is too old" if code == 0 else "FATAL: container creation failed"
    )
    answer = Answer(code, "" if changed is None else json.dumps(PAPER | changed), errors)
    trial = Trial(Recorded({str(program): "apptainer version 1.4.5\n"}), answer)
    place = place_at(
        "jetstream2", tmp_path, trial, CUDA_VISIBLE_DEVICES="0", LD_LIBRARY_PATH="/opt/old", PATH="/usr/bin"
    )
    image = wanted_image(place.effective, "paper").path
    image.parent.mkdir(parents=True)
    image.write_bytes(b"an image")
    finding = check_container(place, "paper")
    assert finding.level == level
    assert sentence in finding.sentence
    assert {"--nv", "--cleanenv", "--contain", str(image)} <= set(trial.command)
    assert "APPTAINERENV_CUDA_VISIBLE_DEVICES=0" in trial.command


UNAVAILABLE = {
    "state": "unavailable",
    "reason": "permission",
    "detail": "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM): ask the site.",
    "ncu": "",
}


@pytest.mark.parametrize(
    ("printed", "level", "sentence"),
    [
        (json.dumps({"state": "done", "ncu": "2024.1.1.0"}), PASS, "ncu 2024.1.1.0 profiled a kernel, clocks base"),
        (json.dumps(UNAVAILABLE | {"reason": "no-ncu"}), WARN, "Counters cannot be had here (no-ncu)"),
        (json.dumps(UNAVAILABLE), WARN, "Counters cannot be had here (permission): this user may not read"),
        ("Killed", WARN, "The trial of counters came to no end (Killed)"),
    ],
)
def test_the_trial_of_counters(tmp_path: Path, printed: str, level: str, sentence: str) -> None:
    trial = Trial(Recorded({}), Answer(0, f"a warning of torch\n{printed}\n" if level == PASS else f"{printed}\n"))
    place = place_at("jetstream2", tmp_path, trial, overlay=NO_CONTAINER)
    finding = check_counters(place, place.gpus["a100"])
    assert finding.level == level
    assert sentence in finding.sentence
    assert trial.command[3:6] == ["-m", "gpustudy.cell.counter_trial", "--clock-control"]
    asks = finding.to_admins.startswith("Nsight Compute cannot read GPU performance counters in our jobs")
    assert asks is ("permission" in sentence), "an image without ncu is no matter of the site"


def test_trials_follow_the_looks_and_counters_come_last(tmp_path: Path) -> None:
    """What uses the GPU would show as another program on it, or hold its clocks down."""
    order: list[str] = []

    class Watching(Recorded):
        def __call__(self, command: Sequence[str], timeout_s: float = 0.0) -> Answer:
            order.append(" ".join(command))
            return super().__call__(command, timeout_s)

    place = place_at("jetstream2", tmp_path, Watching(GOOD), overlay=NO_CONTAINER)
    checks = run_on_node(place, node_checks(place, is_elsewhere=False), with_counters=True)
    assert [check.name for check in checks][-2:] == ["container paper", "counters"]
    assert order[-1].endswith("gpustudy.cell.counter_trial --clock-control base")
    names = [check.name for check in run_on_node(place, node_checks(place, is_elsewhere=False), with_counters=False)]
    assert names[-1] == "container paper"


def head(tmp_path: Path, site: str = "jetstream2", **more: Any) -> dict[str, Check]:
    place = place_at(site, tmp_path, Recorded({}), **more)
    return found(place, head_checks(place, [], has_job=False))


def test_an_image_that_is_missing_or_cut_off(tmp_path: Path) -> None:
    unbuildable = head(tmp_path)["image paper"]
    assert unbuildable.level == FAIL
    assert "needs TORCH_INDEX to be built" in unbuildable.sentence
    missing = head(tmp_path, TORCH_INDEX="an address")["image paper"]
    assert missing.level == WARN
    assert "gpustudy image import paper FILE" in missing.sentence
    path = Path(missing.sentence.split(" is not there")[0])
    path.parent.mkdir(parents=True)
    path.write_bytes(b"cut off")
    cut = head(tmp_path)["image paper"]
    assert cut.level == FAIL
    assert "is no Apptainer image" in cut.sentence


def test_scratch_must_exist_be_writable_and_large_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert head(tmp_path)["scratch"].level == PASS
    absent = head(tmp_path, GPUSTUDY_SCRATCH=str(tmp_path / "absent"))["scratch"]
    assert absent.level == FAIL
    assert f"mkdir -p {tmp_path / 'absent'}" in absent.sentence
    unset = head(tmp_path, site="stampede3-node", GPUSTUDY_SCRATCH="")["scratch"]
    assert unset.level == FAIL
    assert "is '$SCRATCH', and SCRATCH is not set" in unset.sentence
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=3 * 2**30))
    small = head(tmp_path)["scratch"]
    assert small.level == FAIL
    assert "has 3 GiB free, 35 GiB are needed (images of paper and temporary files)" in small.sentence


@pytest.mark.parametrize(("kind", "level"), [("lustre", PASS), ("nfs4", PASS), ("ext4", WARN)])
def test_the_checkout_lies_where_compute_nodes_see_it(tmp_path: Path, kind: str, level: str) -> None:
    write_system_file(tmp_path, "/proc/mounts", f"proc /proc proc rw 0 0\nserver / {kind} rw 0 0\n")
    from gpustudy.launch.preflight.storage import check_shared

    assert check_shared(place_at("expanse", tmp_path)).level == level
