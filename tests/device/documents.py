"""Cells of the device check: their documents, keys and chain, made with the standard library and ``gpustudy.base``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gpustudy
from gpustudy.base.canonical import key_of
from gpustudy.base.digests import source_digest

PACKAGE = Path(gpustudy.__file__).resolve().parent
SOURCES = ("__init__.py", "base/*.py", "cell/*.py", "medddpm/*.py")

SEED = 2026
"""Seed base of the study; repeat r uses the seed base + r."""
REPEAT = 1

CONFIGS: dict[str, dict[str, Any]] = {
    "default": {"optimisations": [], "pytorch_defaults": True},
    "baseline": {"optimisations": [], "pytorch_defaults": False},
    "opt1": {"optimisations": ["tf32"], "pytorch_defaults": False},
    "opt2": {"optimisations": ["channels_last"], "pytorch_defaults": False},
    "opt12": {"optimisations": ["tf32", "channels_last"], "pytorch_defaults": False},
}
"""The paper's configs, as in config.yaml."""

PREVIOUS = {"train": None, "census": "train", "counters": "census"}
"""Stages in order, each with the stage before it."""

_TRAIN = {
    "iterations": 5,
    "warmup_iterations": 2,
    "accumulation": 2,
    "batch_size": 1,
    "learning_rate": 1e-5,
    "loss": "l1",
    "timesteps": 250,
    "ema_decay": 0.995,
    "ema_every": 10,
    "ema_start": 2000,
}
_CENSUS = {"warmup_iterations": 1, "iterations": 2, "layouts": True}

METRICS = (
    "gpu__time_duration.sum",
    "sm__cycles_active.avg",
    "gpc__cycles_elapsed.max",
    "smsp__inst_executed.sum",
    "sm__inst_executed.avg.per_cycle_active",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "l1tex__t_sector_hit_rate.pct",
    "lts__t_sector_hit_rate.pct",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
)
"""Names that V100, A100 and H100 all have; few, so that a launch takes few passes and the check little time."""
_COUNTERS = {
    "sections": ["SpeedOfLight", "LaunchStats", "Occupancy"],
    "metrics": list(METRICS),
    "replay": "kernel",
    "cache_control": "all",
    "clock_control": "none",  # a check leaves the clocks of a borrowed device alone
    "launches_per_stratum": 1,
    "iterations": 1,
    "warmup_iterations": 2,
    "stall_timeout_s": 90,
    "ncu_version": None,
}

_DEVICE_WORDS = re.compile(r"\b(?:RTX |GTX )?(?:[A-Z]{1,2}\d{1,4}[A-Z]?|\d{4}(?: Ti| SUPER)?)\b")
"""The part of torch's device name that names the chip: V100, A100, H200, RTX 3070, GTX 1660 Ti."""


@dataclass(frozen=True)
class Machine:
    """What the cells say of the machine.

    Attributes:
        device_name: as torch gives it.
        architecture: ``sm_NN``.
        memory_bytes: of the device.
        pins: installed version of torch and numpy.
    """

    device_name: str
    architecture: str
    memory_bytes: int
    pins: dict[str, str]


def chip_name(device_name: str) -> str:
    """Return the part of a device's name that names its chip; the whole name where none is recognised."""
    match = _DEVICE_WORDS.search(device_name)
    return match[0] if match else device_name


def gpu_name(device_name: str) -> str:
    """Return a gpu's name as config.yaml would have it, such as ``a100`` or ``rtx3070``."""
    return re.sub(r"[^a-z0-9]", "", chip_name(device_name).lower())


def workload(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return all sections of the check's workload for a ``model`` section."""
    return {"model": dict(model), "train": _TRAIN, "census": _CENSUS, "counters": _COUNTERS}


def stage_cells(
    machine: Machine, config: str, sections: Mapping[str, Any], data: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Return cell.json of every stage of one config, each continuing the one before.

    Args:
        machine: where they run.
        config: a name of ``CONFIGS``.
        sections: as ``workload`` gives them.
        data: ``name`` and ``key`` of the prepared data.
    """
    cells: dict[str, dict[str, Any]] = {}
    for stage, previous in PREVIOUS.items():
        document = {
            "schema": 1,
            "stage": stage,
            "gpu": _gpu(machine, CONFIGS[config]["optimisations"]),
            "config": CONFIGS[config],
            "repeat": REPEAT,
            "seed": SEED + REPEAT,
            "workload": {name: sections[name] for name in ("model", "train", stage)},
            "data": dict(data),
            "stack": {"name": "device", "key": key_of({"pins": machine.pins}), "pins": machine.pins},
            "sources": {"digest": source_digest(PACKAGE, source_files()), "files": list(source_files())},
            "previous": None if previous is None else {"stage": previous, "key": cells[previous]["key"]},
        }
        cells[stage] = {"key": key_of(document), "labels": {"config": config}, "document": document}
    return cells


def folder_of(results: Path, cell: Mapping[str, Any]) -> Path:
    """Return where a stage's raw files lie: ``results/cells/{gpu}/{config}/r{repeat}/{stage}-{key}``."""
    document = cell["document"]
    place = results / "cells" / document["gpu"]["name"] / cell["labels"]["config"] / f"r{document['repeat']}"
    return Path(place / f"{document['stage']}-{cell['key']}")


@cache
def source_files() -> tuple[str, ...]:
    """Return every source file of the cell side, relative to the package."""
    found = {path.relative_to(PACKAGE).as_posix() for pattern in SOURCES for path in PACKAGE.glob(pattern)}
    return tuple(sorted(found))


def _gpu(machine: Machine, optimisations: list[str]) -> dict[str, Any]:
    has_tf32 = int(machine.architecture.removeprefix("sm_")) >= 80  # Ampere, as the optimisation registry has it
    return {
        "name": gpu_name(machine.device_name),
        "device": "cuda",
        "architecture": machine.architecture,
        "device_name": chip_name(machine.device_name),
        "threads": None,
        "null_control": [] if has_tf32 else [name for name in optimisations if name == "tf32"],
        "memory_bytes": machine.memory_bytes,
    }
