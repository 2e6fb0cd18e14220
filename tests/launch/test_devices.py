"""Each stage gets a GPU of its own: of the right kind, among those granted, by UUID; and waits where all are held."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpustudy.base.errors import UserError
from gpustudy.cli import main
from gpustudy.launch.devices import granted, hold_device, list_devices, matching
from gpustudy.launch.locks import hold_one_of
from gpustudy.launch.tools import Answer
from gpustudy.study.models import Gpu
from tests.launch.smi import A100, H100, INSTANCES, UUIDS, V100, Recorded, install, machine

REPOSITORY = Path(__file__).resolve().parents[2]
NOBODY = 65534
"""The user id of nobody on Linux."""


def gpu(device_name: str = "V100", memory_gib: float | None = 32.0) -> Gpu:
    return Gpu(architecture="sm_70", device_name=device_name, memory_gib=memory_gib, workload="paper", stack="paper")


def chosen(runner: Recorded, environment: dict[str, str], wanted: Gpu) -> list[str]:
    return [device.uuid for device in matching(granted(list_devices(runner), environment), wanted, "wanted")]


def test_devices_are_read_with_index_name_memory_and_driver() -> None:
    first, second = list_devices(machine(V100, A100))
    assert (first.index, first.uuid, first.name, first.driver) == (0, UUIDS[0], V100, "550.54.15")
    assert second.memory_bytes == 40 * 2**30
    assert not second.is_divided


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"CUDA_VISIBLE_DEVICES": "2"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "3,1"}, [3, 1]),
        ({"CUDA_VISIBLE_DEVICES": UUIDS[1]}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-cccc"}, [2]),
        ({"CUDA_VISIBLE_DEVICES": "0,-1,2"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "1", "SLURM_JOB_GPUS": "0"}, [1]),
        ({"SLURM_JOB_GPUS": "1,3"}, [1, 3]),
        ({"SLURM_JOB_GPUS": "0,1,2,3", "SLURM_STEP_GPUS": "2"}, [2]),
        ({"SLURM_JOB_GPUS": "4,5,6,7"}, [0, 1, 2, 3]),
    ],
)
def test_only_what_the_allocation_grants_is_used(environment: dict[str, str], expected: list[int]) -> None:
    assert chosen(machine(V100, V100, V100, V100), environment, gpu()) == [UUIDS[index] for index in expected]


@pytest.mark.parametrize("value", ["", "NoDevFiles", "-1"])
def test_an_allocation_without_gpus_is_told(value: str) -> None:
    with pytest.raises(UserError, match="grants no GPU: ask for one"):
        chosen(machine(V100), {"CUDA_VISIBLE_DEVICES": value}, gpu())


def test_a_granted_device_that_is_not_here_is_told() -> None:
    with pytest.raises(UserError, match=r"names a GPU that is not here \(3\)"):
        chosen(machine(V100), {"CUDA_VISIBLE_DEVICES": "0,3"}, gpu())


def test_other_models_are_left_out() -> None:
    assert chosen(machine(V100, A100, V100), {}, gpu()) == [UUIDS[0], UUIDS[2]]
    with pytest.raises(UserError, match=f"named like 'H100', granted here: {A100}, {V100}"):
        chosen(machine(V100, A100), {}, gpu("H100"))


def test_a_smaller_card_of_the_same_name_is_another_gpu() -> None:
    with pytest.raises(UserError, match="memory_gib is 32, Tesla V100-SXM2-32GB here has 16 GiB"):
        chosen(machine(V100, memory_mib=16384), {}, gpu())
    assert chosen(machine(H100), {}, gpu("H100", 96.0)) == [UUIDS[0]]  # 95.6 GiB of the 96 on the label


def test_a_divided_gpu_is_refused_as_a_whole_and_taken_by_its_part() -> None:
    divided = machine(A100, mig="Enabled")
    with pytest.raises(UserError, match=r"MIG divides .* have MIG switched off"):
        chosen(divided, {}, gpu("A100", 40.0))
    part = gpu("A100-SXM4-40GB MIG 3g.20gb", 20.0)
    assert chosen(divided, {}, part) == list(INSTANCES)
    assert chosen(divided, {"CUDA_VISIBLE_DEVICES": INSTANCES[1]}, part) == [INSTANCES[1]]
    with pytest.raises(UserError, match=r"named like 'A100-SXM4-40GB MIG 3g\.20gb'"):
        chosen(machine(A100), {}, part)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (Answer(127), "there is no nvidia-smi here"),
        (Answer(9, err="NVIDIA-SMI has failed because it couldn't communicate with the driver"), "communicate with"),
        (Answer(0, "No devices were found\n"), "printed 'No devices were found' instead of a GPU"),
    ],
)
def test_a_broken_driver_is_told_in_one_sentence(answer: Answer, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        list_devices(Recorded({"nvidia-smi": answer}))


def test_a_cpu_asks_for_no_device() -> None:
    runner = Recorded({})
    cpu = Gpu(device="cpu", architecture="cpu", workload="demo", stack="current", threads=1)
    with hold_device(cpu, "cpu", "cpu/baseline/r1 quality", alone=False, environment={}, runner=runner) as extra:
        assert extra == {}
    assert runner.asked == []


@pytest.mark.parametrize(
    ("names", "sentence"),
    [((), "there is no nvidia-smi here"), ((A100,), f"named like 'V100', granted here: {A100}")],
)
def test_a_stage_without_its_gpu_ends_in_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    names: tuple[str, ...],
    sentence: str,
) -> None:
    (tmp_path / "config.yaml").write_text((REPOSITORY / "config.yaml").read_text())
    (tmp_path / "here.yaml").write_text("sites: {local: {gpus: [cpu, v100]}}\n")
    (tmp_path / "bin").mkdir()
    if names:
        install(tmp_path / "bin", *names)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    for name in ("GPUSTUDY_CONFIG", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS"):
        monkeypatch.delenv(name, raising=False)
    assert main(["stage", "train", "v100/baseline/r1", "--configfile", "here.yaml"]) == 2
    assert sentence in capsys.readouterr().err


HOLDER = """
import os, sys, time
from gpustudy.launch.devices import hold_device
from gpustudy.study.models import Gpu
gpu = Gpu(architecture="sm_70", device_name="V100", memory_gib=32.0, workload="paper", stack="paper")
with hold_device(gpu, "v100", sys.argv[1]) as extra:
    print(extra["CUDA_VISIBLE_DEVICES"], flush=True)
    sys.stdin.read()
"""


class Stage:
    """A process that holds a device until its input is closed."""

    def __init__(self, label: str, folder: Path, user: int | None = None) -> None:
        environment = {
            **os.environ,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY / "workflow"),
            "GPUSTUDY_LOCKS": str(folder),
        }
        for name in ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "GPUSTUDY_MAIN_PID"):
            environment.pop(name, None)
        self.log = folder / f"{label}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", HOLDER, label],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                user=user,
            )

    def device(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(timeout=30) == 0

    def waits_for(self) -> str:
        deadline = time.monotonic() + 30
        while not (text := self.log.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return text


@pytest.fixture
def two_gpus(tmp_path: Path) -> Path:
    install(tmp_path / "bin", V100, V100)
    return tmp_path


def test_stages_side_by_side_get_a_device_each_and_a_third_waits(two_gpus: Path) -> None:
    first, second = Stage("first", two_gpus), Stage("second", two_gpus)
    taken = {first.device(), second.device()}
    assert taken == {UUIDS[0], UUIDS[1]}
    third = Stage("third", two_gpus)
    message = third.waits_for()
    assert message.startswith("third: waiting, ")
    assert f"first (process {first.process.pid}) holds" in message
    assert third.process.poll() is None
    first.end()
    assert third.device() in taken
    for stage in (second, third):
        stage.end()


def test_a_killed_stage_leaves_its_device_free(two_gpus: Path) -> None:
    holders = [Stage("first", two_gpus), Stage("second", two_gpus)]
    devices = [holder.device() for holder in holders]
    holders[0].process.send_signal(signal.SIGKILL)
    holders[0].process.wait(timeout=30)
    successor = Stage("successor", two_gpus)
    assert successor.device() == devices[0]
    assert "waiting" not in successor.log.read_text()
    for stage in (holders[1], successor):
        stage.end()


def _can_import(user: int) -> bool:
    command = [sys.executable, "-c", "import gpustudy.launch.devices"]
    environment = {"PYTHONPATH": str(REPOSITORY / "workflow")}
    try:
        return subprocess.run(command, user=user, env=environment, cwd="/", capture_output=True).returncode == 0
    except PermissionError:
        return False


@pytest.fixture
def everybodys() -> Iterator[Path]:
    """A folder like /tmp: all may write, nobody may remove another's files."""
    if os.geteuid() != 0:
        pytest.skip("acting as two users needs root")
    folder = Path(tempfile.mkdtemp(prefix="gpustudy-locks-", dir="/tmp"))
    folder.chmod(0o1777)
    install(folder / "bin", V100)
    try:
        if not _can_import(NOBODY):
            pytest.skip("another user cannot read this checkout or this Python")
        yield folder
    finally:
        shutil.rmtree(folder)


def test_two_users_of_one_machine_take_turns(everybodys: Path) -> None:
    first = Stage("first", everybodys, user=NOBODY)
    device = first.device()
    second = Stage("second", everybodys)
    assert f"first (process {first.process.pid}) holds {device}" in second.waits_for()
    first.end()
    assert second.device() == device
    second.end()


def test_a_lock_file_is_open_to_all_users(two_gpus: Path) -> None:
    first = Stage("first", two_gpus)
    lock = two_gpus / f"gpustudy-{first.device()}.lock"
    assert oct(lock.stat().st_mode & 0o777) == "0o666"
    first.end()


def test_a_lock_file_that_a_cleaner_removed_locks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a stage's open and its lock the file goes: the lock that it gets is one that nobody else sees."""
    lock = tmp_path / "gpustudy-gpu.lock"
    locked: list[int] = []

    def flock(descriptor: int, operation: int) -> None:
        if not locked:
            lock.unlink()
        fcntl.flock(descriptor, operation)
        locked.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr("gpustudy.launch.locks.fcntl", SimpleNamespace(**vars(fcntl) | {"flock": flock}))
    with hold_one_of(["gpu"], "stage", tmp_path):
        assert len(locked) == 2
        assert lock.stat().st_ino == locked[1]
        assert "stage (process" in lock.read_text()
