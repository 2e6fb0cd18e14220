"""The device check: measures five configs on this machine's GPU within a time limit, looks at them, packs them.

Started by ``run.sh``. Stages run one after another, all trainings first, so that running out of time costs counters
and no timing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

from gpustudy.base.atomic import write_json
from gpustudy.base.errors import EXIT_USER_ERROR, UserError
from gpustudy.cell.ncu_watchdog import end_group
from tests.device import documents, findings, packing, volumes
from tests.device.documents import Machine

TIME_LIMIT_S = 450
"""Seconds for all stages: 8 minutes less packing."""
LEAST_STAGE_S = 15
"""Seconds without which no further stage is begun: it could not even import torch and warm up."""
EXIT_PROBLEMS = 1
EXIT_TERMINATED = 128 + signal.SIGTERM
MADE_UP = Machine("NVIDIA H200", "sm_90", 139 * 2**30, {})
"""The machine of a dry run, which asks no device."""

_DESCRIPTION = "Measure default, baseline, opt1, opt2 and opt12 on this machine's GPU."
_EPILOG = """\
examples:
  tests/device/run.sh --data results/data/mni152-demo-0123456789ab
  tests/device/run.sh --dry-run
  cat device-results/cells.tar.gz.part* | tar -xz -C unpacked && gpustudy archive import unpacked

Exit codes: 0 all as it must be; 1 something is missing or wrong (summary.json says what); 2 it cannot run here.
"""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="tests/device/run.sh",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of prepared data (default: results/data/*)")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the files go (run.sh: $OUT)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="also keep the unpacked folder here")
    parser.add_argument("--seconds", type=float, default=TIME_LIMIT_S, metavar="S", help="time for all stages")
    parser.add_argument("--dry-run", action="store_true", help="print the cells and stop before the device is asked")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = make_parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(EXIT_TERMINATED))
    try:
        with tempfile.TemporaryDirectory(prefix="gpustudy-device-") as scratch:
            return _run(arguments, Path(scratch))
    except UserError as error:
        print(f"run.sh: {error}", file=sys.stderr)
        return EXIT_USER_ERROR


def _run(arguments: argparse.Namespace, scratch: Path) -> int:
    started = time.monotonic()
    prepared = volumes.find_prepared(arguments.data, volumes.ROOT / "results", scratch)
    pins = _installed()
    if arguments.dry_run:
        machine, free_bytes = Machine(**vars(MADE_UP) | {"pins": pins}), MADE_UP.memory_bytes
    else:
        machine, free_bytes = this_machine(pins)
    model = volumes.fitting_model(prepared, free_bytes, _training_bytes)
    prepared = volumes.crop(prepared, tuple(model["volume"]), scratch)
    sections = documents.workload(model)
    data = {"name": prepared.name, "key": prepared.key}
    cells = {config: documents.stage_cells(machine, config, sections, data) for config in documents.CONFIGS}
    if arguments.dry_run:
        print(
            json.dumps({"volume": model["volume"], "base_channels": model["base_channels"], "cells": cells}, indent=1)
        )
        return 0
    results, out = scratch / "results", arguments.out
    out.mkdir(parents=True, exist_ok=True)
    with (out / "run.log").open("w") as log:
        _run_stages(cells, prepared.folder, results, started + arguments.seconds, log)
    return _finish(cells, results, out, sections, arguments.keep, time.monotonic() - started)


def _installed() -> dict[str, str]:
    """Return the versions of torch and numpy.

    Raises:
        UserError: one is not installed.
    """
    try:
        return {name: metadata.version(name) for name in ("torch", "numpy")}
    except metadata.PackageNotFoundError as error:
        raise UserError(
            f"{error.name} is not installed for {sys.executable}: set PYTHON to an interpreter that has it."
        ) from error


def this_machine(pins: dict[str, str]) -> tuple[Machine, int]:
    """Return this machine and the bytes free on its first CUDA device.

    Raises:
        UserError: no CUDA device, or no ncu.
    """
    command = [sys.executable, str(Path(__file__).with_name("machine.py"))]
    result = subprocess.run(command, capture_output=True, text=True)
    try:
        found = json.loads(result.stdout.splitlines()[-1])
    except (IndexError, ValueError) as error:
        last = (result.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise UserError(f"torch cannot be asked about the device ({last}): mend the installation.") from error
    if not found:
        raise UserError("torch finds no CUDA device: run this on a machine with one CUDA GPU and its driver.")
    if shutil.which("ncu") is None:
        raise UserError("ncu is not on PATH: install NVIDIA Nsight Compute or load its module.")
    free_bytes = found.pop("free_bytes")
    return Machine(**found, pins=pins), free_bytes


def _training_bytes(model: Any) -> int:
    from gpustudy.medddpm.memory import estimate_training_bytes

    return estimate_training_bytes(model, documents.workload(model)["train"])


def _run_stages(
    cells: dict[str, dict[str, dict[str, Any]]], data: Path, results: Path, deadline: float, log: TextIO
) -> None:
    """Run every stage of every config, stage by stage, until the time is over."""
    for stage, previous in documents.PREVIOUS.items():
        for config, of_config in cells.items():
            folder = documents.folder_of(results, of_config[stage])
            before = None if previous is None else documents.folder_of(results, of_config[previous])
            left_s = deadline - time.monotonic()
            if before is not None and findings.state_of(before) is None:
                _say(log, f"{config} {stage}: not run, the stage before it left nothing")
            elif left_s < LEAST_STAGE_S:
                _say(log, f"{config} {stage}: not run, the time is over")
            else:
                _run_stage(stage, config, of_config[stage], data, folder, before, left_s, log)


def stage_command(stage: str, cell: Path, data: Path, out: Path, previous: Path | None) -> list[str]:
    """Return the command of one stage."""
    command = [sys.executable, "-m", "gpustudy.cell", stage]
    command += ["--cell", str(cell), "--data", str(data), "--out", str(out)]
    return command if previous is None else [*command, "--previous", str(previous)]


def _run_stage(
    stage: str,
    config: str,
    cell: dict[str, Any],
    data: Path,
    folder: Path,
    previous: Path | None,
    limit_s: float,
    log: TextIO,
) -> None:
    cell_file = folder.parent / f"{stage}.json"
    write_json(cell_file, cell)
    began = time.monotonic()
    process = subprocess.Popen(
        stage_command(stage, cell_file, data, folder, previous),
        stdout=log,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        said = f"exit code {process.wait(limit_s)}"
    except subprocess.TimeoutExpired:
        said = "ended, the time is over"
    finally:
        end_group(process)
        cell_file.unlink()
    status = findings.state_of(folder)
    state = f"{status.state} {status.reason} {status.detail}".strip() if status else "nothing left"
    _say(log, f"{config} {stage}: {said}, {state}, {time.monotonic() - began:.1f} s")


def _finish(
    cells: dict[str, dict[str, dict[str, Any]]],
    results: Path,
    out: Path,
    sections: dict[str, Any],
    keep: Path | None,
    seconds: float,
) -> int:
    """Look at the results, pack them, say what is wrong."""
    folders = {
        config: {stage: documents.folder_of(results, cell) for stage, cell in stages.items()}
        for config, stages in cells.items()
    }
    iterations = sections["train"]["iterations"] + sections["train"]["warmup_iterations"]
    found = findings.problems(folders, iterations)
    content = {"seconds": round(seconds, 1), "problems": found, "configs": findings.summary(folders)}
    trimmed = {stages["train"].as_posix(): packing.trim(stages["train"]) for stages in folders.values()}
    about = {
        "made_by": "tests/device/run.sh",
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "trimmed": {
            Path(name).relative_to(results).as_posix(): removed for name, removed in trimmed.items() if removed
        },
    }
    expendable = [stages["counters"] for stages in reversed(list(folders.values()))]
    if (results / "cells").is_dir():
        content["left_out"] = packing.pack(results, out, about, expendable)
        if keep is not None:
            shutil.copytree(results, keep, dirs_exist_ok=True, ignore=shutil.ignore_patterns("left-out"))
    write_json(out / "summary.json", content)
    for problem in found:
        print(f"run.sh: {problem}", file=sys.stderr)
    print(f"{len(found)} problems, {seconds:.0f} s; results in {out}")
    return EXIT_PROBLEMS if found else 0


def _say(log: TextIO, text: str) -> None:
    print(text, file=sys.stderr, flush=True)
    print(text, file=log, flush=True)
