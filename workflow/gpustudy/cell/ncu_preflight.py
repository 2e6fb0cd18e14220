"""Finds out before any training whether counters can be had here at all: ncu, driver, rights.

Each finding has the outcome of its row in the table of failures; what only ncu itself can find out is left to it.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpustudy.base.errors import UserError
from gpustudy.cell.ncu_failures import UNAVAILABLE, row
from gpustudy.cell.outcomes import Outcome

VERSION_TIMEOUT_S = 60.0
"""Seconds to wait for ``ncu --version``; on a cold parallel file system it takes many."""

_ADMIN_ONLY = re.compile(r"^RmProfilingAdminOnly:\s*(\d)", re.MULTILINE)
_EFFECTIVE_CAPABILITIES = re.compile(r"^CapEff:\s*([0-9a-f]+)", re.MULTILINE)
_CAP_SYS_ADMIN, _CAP_PERFMON = 21, 38
"""Bits of capabilities(7); the driver takes the first, from R565 on the second too."""


@dataclass(frozen=True)
class Ncu:
    """The Nsight Compute found.

    Attributes:
        path: its executable.
        version: such as ``2024.1.1.0``.
    """

    path: str
    version: str


def find_ncu(wanted_version: str | None) -> Ncu:
    """Return the ncu on PATH.

    Raises:
        Outcome: ``unavailable``: none there, one that does not run, or one of another version than wanted.
    """
    path = shutil.which("ncu")
    if path is None:
        raise Outcome(
            UNAVAILABLE, "no-ncu", "ncu is not on PATH: load the site's Nsight Compute module or install it, and retry."
        )
    try:
        result = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Outcome(UNAVAILABLE, "no-ncu", f"{path} does not run ({error}): mend the installation.") from error
    match = re.search(r"^Version (\d+(?:\.\d+)*)", result.stdout, re.MULTILINE)
    if match is None:
        raise Outcome(UNAVAILABLE, "no-ncu", f"{path} --version names no version: put Nsight Compute's ncu on PATH.")
    version = match[1]
    if wanted_version is not None and not f"{version}.".startswith(f"{wanted_version}."):
        raise Outcome(
            UNAVAILABLE,
            "ncu-version",
            f"{path} is version {version}, workload.counters.ncu_version asks for {wanted_version}: "
            "put that one on PATH.",
        )
    return Ncu(path, version)


def check_driver(load: Callable[[str], ctypes.CDLL] = ctypes.CDLL) -> None:
    """Refuse a machine without a working NVIDIA driver.

    Raises:
        UserError: libcuda.so.1 cannot be loaded, or finds no device.
    """
    try:
        driver = load("libcuda.so.1")
    except OSError as error:
        raise UserError(
            f"there is no NVIDIA driver here ({error}): run the counters stage on a machine with a CUDA GPU."
        ) from error
    if code := driver.cuInit(0):
        raise UserError(f"the NVIDIA driver finds no device (cuInit gave {code}): run on a machine with a CUDA GPU.")


def check_rights(
    parameters: Path = Path("/proc/driver/nvidia/params"), process: Path = Path("/proc/self/status")
) -> None:
    """Refuse where the driver gives counters to administrators only and this process is none.

    Raises:
        Outcome: ``unavailable(permission)``. Nothing is refused where either file cannot be read: ncu will say.
    """
    try:
        admin_only = _ADMIN_ONLY.search(parameters.read_text())
        capabilities = _EFFECTIVE_CAPABILITIES.search(process.read_text())
    except OSError:
        return
    if admin_only is None or capabilities is None or admin_only[1] == "0":
        return
    held = int(capabilities[1], base=16)
    if not held >> _CAP_SYS_ADMIN & 1 and not held >> _CAP_PERFMON & 1:
        permission = row("permission")
        raise Outcome(
            UNAVAILABLE,
            permission.name,
            f"{permission.sentence}; {parameters} says RmProfilingAdminOnly: 1. {permission.next_step}.",
        )
