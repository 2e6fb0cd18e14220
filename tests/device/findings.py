"""Looks at what the stages left: complete, whole, and such as a training of these configs must leave."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpustudy.base.digests import file_sha256
from gpustudy.base.errors import UserError
from gpustudy.base.status import Status, read_status
from gpustudy.cell.ncu_census import TRACE_FILE, read_census
from gpustudy.cell.ncu_verdict import REPORT_MAGIC

LOSS_TOLERANCE = 0.02
"""Relative difference of the first loss from the baseline's: same weights, data and noise; TF32 rounds to 2^-11."""

LEAST_PROFILED_SHARE = 0.8
"""Profiled launches over planned ones: the profiler may change a few kernels (kernel_names.json lists them)."""

Folders = Mapping[str, Mapping[str, Path]]
"""Config -> stage -> folder."""


def problems(folders: Folders, iterations: int) -> list[str]:
    """Return one sentence per thing that is not as it must be; empty when all is well.

    Args:
        folders: where each stage of each config lies.
        iterations: optimiser steps of the train stage, warm-up included.
    """
    found = []
    for config, stages in folders.items():
        for stage, folder in stages.items():
            found += [f"{config} {stage}: {problem}" for problem in _of_stage(stage, folder, iterations)]
    return found + list(_of_losses(folders))


def state_of(folder: Path) -> Status | None:
    """Return how a stage ended, or None when it left nothing."""
    try:
        return read_status(folder)
    except UserError:
        return None


def _of_stage(stage: str, folder: Path, iterations: int) -> Iterator[str]:
    status = state_of(folder)
    if status is None:
        yield "left no result (see run.log)"
        return
    for name, about in status.files.items():
        path = folder / name
        if not path.is_file() or file_sha256(path) != about["sha256"]:
            yield f"{name} is not the file that the status lists"
    if status.state != "done":
        yield f"ended as {status.state}({status.reason}): {status.detail}"
        return
    look = {"train": _of_train, "census": _of_census, "counters": _of_counters}[stage]
    yield from look(folder, iterations)


def _of_train(folder: Path, iterations: int) -> Iterator[str]:
    steps = _steps(folder)
    if len(steps) != iterations:
        yield f"has {len(steps)} steps instead of {iterations}"
    if not all(math.isfinite(step["loss"]) and step["step_ns"] > 0 for step in steps):
        yield "has a step without time or with an infinite loss"


def _of_census(folder: Path, iterations: int) -> Iterator[str]:
    phases = {launch.phase for launch in read_census(folder / TRACE_FILE).launches}
    for phase in ("forward", "backward", "optimiser"):
        if phase not in phases:
            yield f"has no kernel in {phase}"


def _of_counters(folder: Path, iterations: int) -> Iterator[str]:
    command = json.loads((folder / "command.json").read_text())
    for run in command["runs"]:
        if not (folder / run["report"]).read_bytes().startswith(REPORT_MAGIC):
            yield f"{run['report']} is no report"
        planned = command["plan"]["planned_launches"]
        if run["launches"] < LEAST_PROFILED_SHARE * planned:
            yield f"profiled {run['launches']} launches, planned were {planned:g}"


def _of_losses(folders: Folders) -> Iterator[str]:
    """Compare the first losses: the configs start from the same weights and see the same data and noise."""
    first = {}
    for config, stages in folders.items():
        steps = _steps(stages["train"])
        if steps:
            first[config] = steps[0]["loss"]
    if "baseline" not in first:
        return
    for config, loss in first.items():
        if not math.isclose(loss, first["baseline"], rel_tol=LOSS_TOLERANCE):
            yield f"{config} train: the first loss is {loss:.4f}, baseline's is {first['baseline']:.4f}"


def _steps(folder: Path) -> list[dict[str, Any]]:
    path = folder / "steps.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def summary(folders: Folders) -> dict[str, Any]:
    """Return per config the state of each stage, the median step time and the number of profiled launches."""
    return {
        config: {
            stage: (status.state if not status.reason else f"{status.state}({status.reason})") if status else "missing"
            for stage, status in ((stage, state_of(folder)) for stage, folder in stages.items())
        }
        | _numbers(stages)
        for config, stages in folders.items()
    }


def _numbers(stages: Mapping[str, Path]) -> dict[str, Any]:
    measured = sorted(step["step_ns"] for step in _steps(stages["train"]) if step["phase"] == "measured")
    command = stages["counters"] / "command.json"
    runs = json.loads(command.read_text())["runs"] if command.exists() else []
    return {
        "median_step_ns": measured[len(measured) // 2] if measured else None,
        "profiled_launches": sum(run["launches"] for run in runs),
    }
