"""Peak rates of known devices, from ``peaks.yaml``: what no run can exceed, and where the number is written."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpustudy.base.errors import UserError

PEAKS_FILE = Path(__file__).with_name("peaks.yaml")

MEMORY_SLACK = 0.08
"""Share by which the memory that a driver reports lies below the nominal size at most (ECC, reserved pages), and by
which GiB and GB are mixed up in configurations: 32, 40, 80, 96 and 141 stay apart."""

_PART = re.compile(r"\bMIG\b|\bGRID\b")
_WHOLE_VIRTUAL = re.compile(r"\bA100X-40C\b")

RATES = ("fp32", "tf32", "fp16", "bf16", "dram_bytes", "l2_bytes", "l1_bytes")
"""The rates of a device, as fields of ``Peaks``."""


class Peaks(BaseModel):
    """Peak rates of one device; None where no document of its maker states one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    product: str
    names: tuple[str, ...] = Field(min_length=1)
    architecture: str = Field(pattern=r"^sm_\d+$")
    memory_gb: float = Field(gt=0)
    sms: int = Field(gt=0)
    boost_hz: float = Field(gt=0)
    base_hz: float | None = Field(gt=0)
    fp32: float | None = Field(gt=0)
    tf32: float | None = Field(gt=0)
    fp16: float | None = Field(gt=0)
    bf16: float | None = Field(gt=0)
    dram_bytes: float | None = Field(gt=0)
    l2_bytes: float | None = Field(gt=0)
    l1_bytes: float | None = Field(gt=0)
    source: str = Field(min_length=1)
    note: str


@cache
def all_peaks() -> tuple[Peaks, ...]:
    """Return the devices of ``peaks.yaml`` in its order.

    Raises:
        UserError: the file cannot be read, is no YAML, or holds an entry that is no device.
    """
    return read_peaks(PEAKS_FILE)


def read_peaks(path: Path) -> tuple[Peaks, ...]:
    """Return the devices of a file such as ``peaks.yaml``; errors as of ``all_peaks``."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        return tuple(Peaks.model_validate(entry) for entry in content["devices"])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "an entry"
        raise _broken(path, f"{where}: {first['msg'][0].lower()}{first['msg'][1:]}") from error
    except (KeyError, TypeError) as error:
        raise _broken(path, "it has no list of devices") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise _broken(path, " ".join(str(error).split())) from error


def _broken(path: Path, why: str) -> UserError:
    return UserError(f"{path} cannot be read as peak rates of devices ({why}): correct it, or restore it from git.")


def peaks_of(architecture: str, device_name: str = "", memory_bytes: float | None = None) -> Peaks | None:
    """Return the peak rates of a device.

    Args:
        architecture: ``sm_80``, ...; ``cpu`` has no entry.
        device_name: what the device calls itself (``NVIDIA A100-SXM4-40GB``), or a part of that as in a study's
            configuration (``A100``).
        memory_bytes: memory of the device, to tell variants apart where the name does not.

    Returns:
        None for an unknown device, for a part of one (MIG, vGPU), and where the name fits variants whose rates differ.
    """
    if _PART.search(device_name) and not _WHOLE_VIRTUAL.search(device_name):
        return None
    known = [peaks for peaks in all_peaks() if peaks.architecture == architecture]
    exact = [peaks for peaks in known if any(name in device_name for name in peaks.names)]
    found = exact or [peaks for peaks in known if device_name and device_name in _generic(peaks)]
    if memory_bytes is not None:
        found = [peaks for peaks in found if _fits(peaks, memory_bytes)]
    rates = {tuple(getattr(peaks, rate) for rate in RATES) for peaks in found}
    return found[0] if len(rates) == 1 else None


def _generic(peaks: Peaks) -> tuple[str, str]:
    """Return the names that leave the variant open: ``A100``, ``NVIDIA A100``."""
    family = peaks.product.split("-")[0]
    return family, f"NVIDIA {family}"


def _fits(peaks: Peaks, memory_bytes: float) -> bool:
    """Say whether so much memory is this variant's: its size is nominal, and stated in GB or in GiB."""
    low = peaks.memory_gb * 1e9 * (1 - MEMORY_SLACK)
    high = peaks.memory_gb * 2**30 * (1 + MEMORY_SLACK / 2)
    return low <= memory_bytes <= high
