"""Which GPU a stage runs on: one that the allocation grants, of the kind that the cell names, and that no one holds.

Snakemake counts GPUs but hands out none, and a whole node or a VM grants all it has, so that stages which run side
by side choose here. Devices are named by UUID: an index means another device inside a container or a job.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpustudy.base.errors import UserError
from gpustudy.launch.locks import hold_one_of
from gpustudy.launch.tools import Runner, ask
from gpustudy.study.models import Gpu

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable that limits a process to some devices: set by Slurm, by people, and here for the stage."""

_SLURM_LISTS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
"""Slurm's own lists of indices, the narrower first, for a job whose VISIBLE was unset on the way."""

_FIELDS = ("index", "uuid", "name", "mig.mode.current", "memory.total", "driver_version")
_QUERY = ("nvidia-smi", f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits")
_LIST = ("nvidia-smi", "-L")
_BYTES_PER_MIB = 2**20
_BYTES_PER_GIB = 2**30
LEAST_SHARE_OF_MEMORY = 0.9
"""Part of a gpu's memory that a device must have: drivers keep 1 to 3 % back, the largest slice of a GPU has 50 %."""

_LISTED_GPU = re.compile(r"^GPU \d+: .*\(UUID: (?P<uuid>GPU-[\w-]+)\)")
_LISTED_INSTANCE = re.compile(r"^\s+MIG (?P<profile>\S+)\s+Device\s+\d+: \(UUID: (?P<uuid>MIG-[\w/-]+)\)")
_NO_DEVICES = ("", "nodevfiles", "none", "void")
"""Values of VISIBLE that grant nothing; NoDevFiles is what Slurm sets in a job without GPUs."""


@dataclass(frozen=True)
class Device:
    """A GPU, or an instance of a GPU that MIG has divided.

    Attributes:
        index: of the GPU, as nvidia-smi numbers them (in PCI order).
        uuid: of the GPU or the instance; what the stage is given.
        gpu_uuid: of the GPU that it is, or that it is a part of; what is locked.
        name: such as ``NVIDIA H100 80GB HBM3``; of an instance as PyTorch has it, with `` MIG 3g.40gb`` at its end.
        memory_bytes: of the whole GPU; None where nvidia-smi does not tell.
        driver: version of the driver.
        is_divided: MIG is on.
    """

    index: int
    uuid: str
    gpu_uuid: str
    name: str
    memory_bytes: int | None
    driver: str
    is_divided: bool

    @property
    def is_instance(self) -> bool:
        """True for a part of a GPU, False for a whole one."""
        return self.uuid != self.gpu_uuid


def list_devices(runner: Runner = ask) -> list[Device]:
    """Return the GPUs of this machine, each followed by its MIG instances.

    Raises:
        UserError: nvidia-smi is absent, fails, or prints something else than asked for.
    """
    answer = runner(_QUERY)
    if answer.is_absent:
        raise UserError("there is no nvidia-smi here: run on a machine with an NVIDIA driver.")
    if answer.code:
        raise UserError(f"nvidia-smi cannot list the GPUs ({answer.complaint}): ask for help with this node's driver.")
    gpus = [_gpu(line) for line in answer.out.splitlines() if line.strip()]
    if not any(gpu.is_divided for gpu in gpus):
        return gpus
    instances = _instances(runner(_LIST).out, gpus)
    return [device for gpu in gpus for device in (gpu, *instances.get(gpu.uuid, ()))]


def _gpu(line: str) -> Device:
    values = [part.strip() for part in line.split(",")]
    if len(values) != len(_FIELDS) or not values[0].isdigit():
        raise UserError(f"nvidia-smi printed '{line.strip()}' instead of a GPU: ask for help with this node's driver.")
    index, uuid, name, mig, memory_mib, driver = values
    memory_bytes = int(memory_mib) * _BYTES_PER_MIB if memory_mib.isdigit() else None
    return Device(int(index), uuid, uuid, name, memory_bytes, driver, is_divided=mig == "Enabled")


def _instances(listing: str, gpus: Sequence[Device]) -> dict[str, list[Device]]:
    """Return GPU UUID -> its MIG instances, from ``nvidia-smi -L``."""
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    found: dict[str, list[Device]] = {}
    parent: Device | None = None
    for line in listing.splitlines():
        if gpu := _LISTED_GPU.match(line):
            parent = by_uuid.get(gpu["uuid"])
        elif (part := _LISTED_INSTANCE.match(line)) and parent is not None:
            name = f"{parent.name} MIG {part['profile']}"
            one = Device(parent.index, part["uuid"], parent.uuid, name, None, parent.driver, is_divided=True)
            found.setdefault(parent.uuid, []).append(one)
    return found


def granted(devices: Sequence[Device], environment: Mapping[str, str] = os.environ) -> list[Device]:
    """Return those of ``devices`` that this process may use, in the order in which its allocation names them.

    ``CUDA_VISIBLE_DEVICES`` is read as CUDA reads it: indices, UUIDs or their beginnings, up to the first entry that
    names nothing. Where it is unset, Slurm's own lists count; where these are unset too, all devices do.

    Raises:
        UserError: the allocation grants no device, or names one that is not here.
    """
    if VISIBLE in environment:
        return _visible(devices, environment[VISIBLE])
    for variable in _SLURM_LISTS:
        if listed := environment.get(variable):
            indices = [word.strip() for word in listed.split(",")]
            gpus = [device for device in devices if not device.is_instance]
            if len(gpus) <= len(indices):  # Slurm shows the job its own devices alone, numbered from 0 again
                return list(devices)
            return [device for device in devices if str(device.index) in indices]
    return list(devices)


def _visible(devices: Sequence[Device], value: str) -> list[Device]:
    if value.strip().lower() in _NO_DEVICES:
        raise UserError(f"{VISIBLE}='{value}' grants no GPU: ask for one in the allocation, or unset it.")
    found: list[Device] = []
    for word in (word.strip() for word in value.split(",")):
        if word.startswith("-"):  # CUDA's way to end the list
            break
        matching = [device for device in devices if _is_named(device, word)]
        if not matching:
            raise UserError(f"{VISIBLE}='{value}' names a GPU that is not here ({word}): correct it, or unset it.")
        found += [device for device in matching if device not in found]
    if not found:
        raise UserError(f"{VISIBLE}='{value}' grants no GPU: ask for one in the allocation, or unset it.")
    return found


def _is_named(device: Device, word: str) -> bool:
    """Tell whether an entry of the list means ``device``; a GPU that MIG has divided means its instances too."""
    if word.isdigit():
        return device.index == int(word)
    return device.uuid.startswith(word) or device.gpu_uuid.startswith(word)


def matching(devices: Sequence[Device], gpu: Gpu, name: str) -> list[Device]:
    """Return those of ``devices`` that are the gpu ``name``.

    A part of a GPU (MIG) is another processor than the whole one: it is taken only where ``device_name`` says MIG,
    as a gpu of its own in the config, and a GPU that is divided is never taken as a whole.

    Raises:
        UserError: none is; the sentence says why.
    """
    wants_instance = "MIG" in gpu.device_name
    named = [device for device in devices if gpu.device_name in device.name and device.is_instance is wants_instance]
    whole = [device for device in named if device.is_instance or not device.is_divided]
    large = [device for device in whole if _is_large_enough(device, gpu)]
    if large:
        return large
    seen = ", ".join(sorted({device.name for device in devices})) or "none"
    if not named:
        raise UserError(
            f"{name} is a device named like '{gpu.device_name}', granted here: {seen}; "
            f"run at a site that has {name}, or ask for one in the allocation."
        )
    if not whole:
        raise UserError(
            f"MIG divides {_names(named)} here and {name} is a whole GPU: have MIG switched off, or describe the "
            "part as a gpu of its own with device_name 'MIG ...' in the config (see docs/sites.md)."
        )
    sizes = ", ".join(f"{(device.memory_bytes or 0) / _BYTES_PER_GIB:.0f} GiB" for device in whole)
    raise UserError(
        f"gpus.{name}.memory_gib is {gpu.memory_gib:g}, {_names(whole)} here has {sizes}: a smaller card or a part of "
        "one is a gpu of its own in the config (see docs/add-a-gpu.md)."
    )


def _is_large_enough(device: Device, gpu: Gpu) -> bool:
    if device.memory_bytes is None or gpu.memory_gib is None:
        return True
    return device.memory_bytes >= LEAST_SHARE_OF_MEMORY * gpu.memory_gib * _BYTES_PER_GIB


def _names(devices: Sequence[Device]) -> str:
    return ", ".join(sorted({device.name for device in devices}))


def lock_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the device locks: /tmp, which is the machine's own and open to all its users.

    ``TMPDIR`` is not asked, as many sites give each job another one; ``GPUSTUDY_LOCKS`` names another folder.
    """
    return Path(environment.get("GPUSTUDY_LOCKS", "/tmp"))  # noqa: S108 - the one place that all users share


@contextmanager
def hold_device(
    gpu: Gpu,
    name: str,
    label: str,
    alone: bool = True,
    environment: Mapping[str, str] = os.environ,
    runner: Runner = ask,
) -> Iterator[dict[str, str]]:
    """Hold a device of the gpu ``name`` for one stage; wait, and say so, while other stages hold all of them.

    Args:
        gpu: what the config says of it.
        name: its name in the config.
        label: who holds it, such as ``a100/opt1/r1 train``.
        alone: False for a stage that measures nothing, which shares a CPU with others of its kind. A GPU is never
            shared: two stages would not fit into its memory.
        environment: of the allocation.
        runner: asks nvidia-smi.

    Yields:
        What to set in the stage's environment; empty for a CPU.

    Raises:
        UserError: no device of that kind is granted here.
    """
    if gpu.device == "cpu":
        with hold_one_of([gpu.device], label, Path(tempfile.gettempdir()), alone):
            yield {}
        return
    candidates = matching(granted(list_devices(runner), environment), gpu, name)
    by_gpu: dict[str, Device] = {}
    for device in candidates:  # instances of one GPU share its clocks and power, so that one of them is taken at a time
        by_gpu.setdefault(device.gpu_uuid, device)
    with hold_one_of(list(by_gpu), label, lock_folder(environment)) as taken:
        yield {VISIBLE: by_gpu[taken].uuid}
