"""Checks of the node's GPU: the model that the cells claim, the driver, who else is on it, counters and clocks."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from gpustudy.base.errors import UserError
from gpustudy.launch.devices import Device, granted, list_devices, matching
from gpustudy.launch.preflight.checks import Finding, Place, failed, passed, refused, skipped, warned
from gpustudy.study.models import Gpu

LEAST_DRIVER: Mapping[int, tuple[int, ...]] = {11: (450, 80), 12: (525, 60), 13: (580,)}
"""CUDA major version -> oldest Linux driver that runs its programs, by minor-version compatibility.
Source: NVIDIA, CUDA Compatibility, table of minor version compatibility."""

_ADMIN_ONLY = re.compile(r"^RmProfilingAdminOnly:\s*(\d)", re.MULTILINE)
_CAPABILITIES = re.compile(r"^CapEff:\s*([0-9a-f]+)", re.MULTILINE)
_VIRTUAL = re.compile(r"Virtualization Mode\s*:\s*VGPU", re.IGNORECASE)
_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38
"""Bits of capabilities(7) with which counters can be read all the same; the second from driver R565 on."""

_HELD_DOWN = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""NVML's clock event reasons that make measured times too long; idle (0x1), chosen clocks (0x2) and the card's own
power cap (0x4) do not. Source: NVIDIA, NVML API reference, clock event reasons."""


def check_model(place: Place, name: str, gpu: Gpu) -> Finding:
    """Whether a device is granted here that is what cells of ``gpu`` claim to run on."""
    try:
        fitting = matching(granted(list_devices(place.runner), place.environment), gpu, name)
    except UserError as error:
        return refused(error)
    wanted = place.site.gpus_per_node
    counted = len({device.gpu_uuid for device in fitting})
    if place.site.executor == "local" and wanted is not None and counted < wanted:
        return failed(
            f"sites.{place.effective.site}.gpus_per_node is {wanted}, granted here: {counted} ({_seen(fitting)}): "
            f"set it to {counted} in an overlay and 'resources: gpu={counted}' in the profile, or ask for more.",
        )
    return passed(f"{counted} granted: {_seen(fitting)}, driver {fitting[0].driver}.")


def check_driver(place: Place, name: str, gpu: Gpu) -> Finding:
    """Whether the driver is new enough for the CUDA of the gpu's stack."""
    try:
        devices = list_devices(place.runner)
    except UserError:
        return skipped("No GPU is seen here.")
    cuda = _cuda_of(place, gpu)
    least = LEAST_DRIVER.get(int(cuda.split(".")[0])) if cuda else None
    if cuda is None or least is None:
        return skipped(f"The CUDA release of stack {gpu.stack} is not known here ({cuda or 'none stated'}).")
    found = devices[0].driver if devices else ""
    numbers = tuple(int(part) for part in re.findall(r"\d+", found))
    needed = ".".join(str(part) for part in least)
    if numbers < least:
        return failed(
            f"Driver {found or 'unknown'} is older than {needed}, which CUDA {cuda} of stack {gpu.stack} needs: "
            "give this gpu another stack, or run elsewhere.",
            f"Could the GPU nodes get an NVIDIA driver of at least {needed}? They have {found}, and our software is "
            f"built for CUDA {cuda}.",
        )
    return passed(f"Driver {found} runs CUDA {cuda} of stack {gpu.stack} (needs {needed} or newer).")


def _cuda_of(place: Place, gpu: Gpu) -> str | None:
    """Return the CUDA release that a gpu's torch is built for: the stack's, or that of this environment."""
    if place.site.runtime != "none":
        return place.effective.study.stacks[gpu.stack].cuda
    answer = place.ask(sys.executable, "-c", "import torch; print(torch.version.cuda or '')")
    return answer.out.strip() or None if answer.code == 0 else None


def check_alone(place: Place) -> Finding:
    """Whether other programs use the granted GPUs: times measured beside them are worthless."""
    try:
        devices = {device.gpu_uuid for device in granted(list_devices(place.runner), place.environment)}
    except UserError:
        return skipped("No GPU is granted here.")
    answer = place.ask("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,process_name", "--format=csv,noheader")
    if answer.code:
        return skipped(f"nvidia-smi does not list the programs on the GPUs: {answer.complaint}.")
    rows = [[part.strip() for part in line.split(",", 2)] for line in answer.out.splitlines() if "," in line]
    others = [f"{row[2]} (process {row[1]})" for row in rows if len(row) > 2 and row[0] in devices]
    if others:
        return warned(
            f"Other programs use the GPU: {', '.join(others)}; end them before anything is measured.",
            "Other users' programs run on the GPU that Slurm gave our job; are devices confined to jobs "
            "(ConstrainDevices=yes in cgroup.conf)?"
            if place.site.executor == "slurm"
            else "",
        )
    return passed("No other program uses the granted GPUs.")


def check_permission(place: Place) -> Finding:
    """Whether this user may read hardware counters, as far as the driver's settings tell."""
    parameters = place.read("/proc/driver/nvidia/params")
    if parameters is None or (admin_only := _ADMIN_ONLY.search(parameters)) is None:
        return skipped("/proc/driver/nvidia/params does not tell: the counters stage will.")
    if admin_only[1] == "0":
        return passed("The driver gives counters to all users (RmProfilingAdminOnly: 0).")
    status = place.read("/proc/self/status") or ""
    capabilities = _CAPABILITIES.search(status)
    held = int(capabilities[1], base=16) if capabilities else 0
    if held >> _CAP_SYS_ADMIN & 1 or held >> _CAP_PERFMON & 1:
        return passed("Counters are for administrators (RmProfilingAdminOnly: 1), and this process may act as one.")
    return warned(
        "Counters are for administrators only (RmProfilingAdminOnly: 1): cells will have times and census, their "
        "counters will be 'unavailable (permission)', and the report will say so.",
        "Could you allow users to read GPU performance counters on the GPU nodes, with the module option 'options "
        "nvidia NVreg_RestrictProfilingToAdminUsers=0'? 'grep RmProfilingAdminOnly /proc/driver/nvidia/params' says 1 "
        "now, and Nsight Compute ends with ERR_NVGPUCTRPERM (https://developer.nvidia.com/ERR_NVGPUCTRPERM).",
    )


def check_dcgm(place: Place) -> Finding:
    """Whether NVIDIA's monitoring may hold the counters, which only one program at a time can."""
    running = place.ask("pgrep", "-x", "nv-hostengine")
    if running.is_absent:
        return skipped("pgrep is not on PATH, so that nobody can tell whether DCGM runs.")
    if running.code:
        return passed("DCGM (nv-hostengine), which may hold the counters, does not run here.")
    return warned(
        "DCGM runs here and may hold the counters; where it does, the counters stage says 'driver-busy': "
        "run 'dcgmi profile --pause' before and 'dcgmi profile --resume' after, if you may.",
        "DCGM's profiling metrics keep Nsight Compute from the counters; could our jobs pause them with 'dcgmi profile "
        "--pause', or is there a node or a Slurm constraint without them?",
    )


def check_virtual(place: Place) -> Finding:
    """Whether the GPU is a virtual one, where counters are mostly off and clocks cannot be locked."""
    try:
        devices = granted(list_devices(place.runner), place.environment)
    except UserError:
        return skipped("No GPU is granted here.")
    named = [device.name for device in devices if _is_virtual(device)]
    if not named and not _VIRTUAL.search(place.ask("nvidia-smi", "-q").out):
        return passed("The GPUs are whole devices, not virtual ones.")
    return warned(
        f"This is a virtual GPU ({', '.join(named) or _seen(devices)}): counters are off unless the hypervisor turns "
        "them on, other machines may share the card, and times are no times of the whole card.",
        "Could our GPU machine get a whole device (PCI pass-through), or have the vGPU's plugin parameter "
        "enable_profiling=1 set in the hypervisor, so that Nsight Compute can read counters?",
    )


def check_clocks(place: Place) -> Finding:
    """Whether anything holds the clocks down now, and whether ncu could lock them as the config asks."""
    try:
        devices = granted(list_devices(place.runner), place.environment)
    except UserError:
        return skipped("No GPU is granted here.")
    controls = {
        place.effective.study.workloads[gpu.workload].counters.clock_control for gpu in place.cuda_gpus.values()
    }
    if "base" in controls and any(device.is_divided or _is_virtual(device) for device in devices):
        return warned(
            "ncu cannot lock the clocks of a GPU that is virtual or that MIG divides: set "
            "workload.counters.clock_control to 'none' for this study."
        )
    ids = ",".join(dict.fromkeys(device.gpu_uuid for device in devices))
    answer = _query(place, ids, "clocks.current.sm,clocks.max.sm")
    if answer is None:
        return skipped("nvidia-smi does not tell the clocks.")
    told = "; ".join(" of at most ".join(part.strip() for part in line.split(",")) for line in answer)
    slowed = _held_down(place, ids)
    if slowed:
        return warned(
            f"The GPU is held down now ({slowed}; {told}): times measured here would be too long.",
            f"A GPU of this node is held down ({slowed}); could you look at its cooling and power?",
        )
    return passed(
        f"{told}, nothing holds them down; whether ncu may lock them to base shows when it runs: the counters stage "
        "says so."
    )


def _held_down(place: Place, ids: str) -> str:
    """Return what holds the clocks down, or nothing; the field has another name before driver 535."""
    for field in ("clocks_event_reasons.active", "clocks_throttle_reasons.active"):
        if masks := _query(place, ids, field):
            active = 0
            for mask in masks:
                active |= int(mask, base=16) if mask.startswith("0x") else 0
            return ", ".join(text for bit, text in _HELD_DOWN.items() if active & bit)
    return ""


def _query(place: Place, ids: str, fields: str) -> list[str] | None:
    """Return a line per GPU; None where this nvidia-smi does not know the fields."""
    answer = place.ask("nvidia-smi", f"--query-gpu={fields}", f"--id={ids}", "--format=csv,noheader")
    lines = [line.strip() for line in answer.out.splitlines() if line.strip()]
    return None if answer.code or not lines else lines


def _is_virtual(device: Device) -> bool:
    return re.search(r"\bGRID\b|\bvGPU\b", device.name) is not None


def _seen(devices: list[Device]) -> str:
    return ", ".join(sorted({device.name for device in devices})) or "none"
