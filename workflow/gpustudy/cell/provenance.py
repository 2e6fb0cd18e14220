"""What a result was made with: versions, device, clocks, host, commit; each None where it is not known.

torch is asked only when the stage has imported it already.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from gpustudy.base.atomic import write_json
from gpustudy.cell.document import Cell

PROVENANCE_FILE = "provenance.json"
_TOOL_TIMEOUT_S = 20.0
"""Seconds to wait for nvidia-smi or ncu: nvidia-smi takes seconds where persistence mode is off."""

_SMI_FIELDS = {
    "device_name": "name",
    "device_uuid": "uuid",
    "driver": "driver_version",
    "mig": "mig.mode.current",
    "persistence": "persistence_mode",
}
_SMI_CLOCKS = {
    "sm_mhz": "clocks.current.sm",
    "memory_mhz": "clocks.current.memory",
    "sm_max_mhz": "clocks.max.sm",
    "memory_max_mhz": "clocks.max.memory",
    "application_sm_mhz": "clocks.applications.graphics",
    "power_limit_w": "power.limit",
    "temperature_c": "temperature.gpu",
}
_SMI_THROTTLE = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
"""Bit mask of why clocks are held down; the second is the name before driver 535."""

_ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDNN_LOGDEST_DBG",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "MALLOC_CONF",
    "LD_PRELOAD",
)
"""Variables that change speed or numerics; those that are set are recorded."""


def collect(cell: Cell, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the provenance of a stage of ``cell`` that runs now, in this process."""
    record: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": _package_version("torch"),
        "numpy": _package_version("numpy"),
        "cuda": None,
        "cudnn": None,
        "driver": None,
        "device_name": None,
        "device_uuid": None,
        "mig": None,
        "persistence": None,
        "clocks": None,
        "throttle": None,
        "ncu": None,
        "host": socket.gethostname(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu_model": cpu_model(),
        "cpu_capability": None,
        "cpus": len(os.sched_getaffinity(0)),
        "threads": None,
        "job_id": environment.get("SLURM_JOB_ID"),
        "git_commit": environment.get("GPUSTUDY_GIT_COMMIT"),
        "git_dirty": _truth(environment.get("GPUSTUDY_GIT_DIRTY")),
        "image_sha256": environment.get("GPUSTUDY_IMAGE_SHA256"),
        "environment": {name: environment[name] for name in _ENVIRONMENT if name in environment},
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "argv": sys.argv,
    }
    if "torch" in sys.modules:
        record |= _from_torch(cell)
    if cell.gpu.device == "cuda":
        smi = _from_nvidia_smi(record["device_uuid"])
        record |= {name: value for name, value in smi.items() if record.get(name) is None}
        record["ncu"] = _ncu_version()
    return record


def write_provenance(directory: Path, cell: Cell) -> dict[str, Any]:
    """Write provenance.json into ``directory`` and return its content."""
    record = collect(cell)
    write_json(directory / PROVENANCE_FILE, record)
    return record


def cpu_model(path: Path = Path("/proc/cpuinfo")) -> str | None:
    """Return the processor's name, or None where the system does not tell."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return platform.processor() or None
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or None


def parse_smi(line: str, names: list[str]) -> dict[str, str | None]:
    """Split one line of ``nvidia-smi --format=csv,noheader,nounits`` into named values; N/A becomes None."""
    values = [part.strip() for part in line.split(",")]
    if len(values) != len(names):
        return {}
    unknown = ("[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "")
    return {name: None if value in unknown else value for name, value in zip(names, values, strict=True)}


def _package_version(package: str) -> str | None:
    """Return the version that runs, with its local label where the module is loaded, or None."""
    module = sys.modules.get(package)
    if module is not None:
        return str(module.__version__)
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _truth(text: str | None) -> bool | None:
    return None if not text else text.lower() in ("1", "true", "yes")


def _from_torch(cell: Cell) -> dict[str, Any]:
    """Return what torch itself knows of versions, threads and the device."""
    import torch

    record: dict[str, Any] = {"threads": torch.get_num_threads(), "cuda": torch.version.cuda}
    capability = getattr(getattr(torch.backends, "cpu", None), "get_cpu_capability", None)  # from torch 2.1
    record["cpu_capability"] = capability() if capability else None
    if cell.gpu.device == "cuda" and torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        uuid = getattr(properties, "uuid", None)  # from torch 2.3
        record |= {
            "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]  # untyped in torch
            "device_name": properties.name,
            "device_uuid": f"GPU-{uuid}" if uuid else None,
            "device_memory_bytes": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
        }
    return record


def _from_nvidia_smi(uuid: str | None) -> dict[str, Any]:
    """Return what nvidia-smi tells of the device; empty where it cannot be asked."""
    device = uuid or os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    record: dict[str, Any] = dict(_query_smi(device, _SMI_FIELDS))
    clocks = _query_smi(device, _SMI_CLOCKS)
    if clocks:
        record["clocks"] = clocks
    for field in _SMI_THROTTLE:
        if throttle := _query_smi(device, {"throttle": field}):
            return record | throttle
    return record


def _query_smi(device: str, fields: Mapping[str, str]) -> dict[str, str | None]:
    output = _tool_output(
        "nvidia-smi", f"--id={device}", f"--query-gpu={','.join(fields.values())}", "--format=csv,noheader,nounits"
    )
    return parse_smi(output.splitlines()[0], list(fields)) if output else {}


def _ncu_version() -> str | None:
    """Return the version line of Nsight Compute's command line, or None where it is not on PATH."""
    lines = [line for line in (_tool_output("ncu", "--version") or "").splitlines() if line.startswith("Version")]
    return lines[0].removeprefix("Version ").strip() if lines else None


def _tool_output(*command: str) -> str | None:
    """Return the standard output of ``command``, or None when it is absent, fails or hangs."""
    if shutil.which(command[0]) is None:
        return None
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout
