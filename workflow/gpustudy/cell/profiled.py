"""The program below ncu: trains a few steps of a cell and opens the profiled window around chosen operator calls.

Started by the counters stage as ``python -m gpustudy.cell.profiled --cell FILE --data DIR --scratch DIR``. The scratch
folder holds the plan and takes the heartbeat, the record of what was done, and the session's own files. Warm-up,
and with it autotuning and compilation, happens before the window is ever open.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from gpustudy.base.atomic import write_json
from gpustudy.base.errors import EXIT_USER_ERROR, UserError
from gpustudy.base.progress import Progress
from gpustudy.cell.document import applicable, read_cell
from gpustudy.cell.ncu_command import HEARTBEAT_FILE, PLAN_FILE, RECORD_FILE, CounterSettings, read_settings
from gpustudy.cell.ncu_gate import OperatorGate, ProfilerWindow, gated
from gpustudy.cell.outcomes import Outcome, is_out_of_memory, out_of_memory
from gpustudy.cell.session import SWITCHES_FILE, Session, open_session
from gpustudy.cell.stages import Job

SESSION_FOLDER = "session"
"""In the scratch folder: switches.json and provenance.json of the profiled program itself."""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m gpustudy.cell.profiled", description="Train below ncu.")
    parser.add_argument("--cell", type=Path, required=True, metavar="FILE", help="cell.json of the counters stage")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of prepared data")
    parser.add_argument("--scratch", type=Path, required=True, metavar="DIR", help="folder shared with the stage")
    return parser


def main(argv: Sequence[str] | None = None, window: ProfilerWindow | None = None) -> int:
    """Train below ncu; return the exit code. An outcome of the science is told in the record, with exit code 0."""
    arguments = make_parser().parse_args(argv)
    try:
        record = train_profiled(arguments.cell, arguments.data, arguments.scratch, window or ProfilerWindow())
    except UserError as error:
        print(error, file=sys.stderr)
        return EXIT_USER_ERROR
    except Outcome as outcome:
        record = {"outcome": {"state": outcome.state, "reason": outcome.reason, "detail": outcome.detail}}
    write_json(arguments.scratch / RECORD_FILE, record)
    return 0


def train_profiled(cell_path: Path, data: Path, scratch: Path, window: ProfilerWindow) -> dict[str, Any]:
    """Warm up, then train the profiled steps; return what was done.

    Returns:
        ``gate`` (``operators`` or ``steps``), ``iterations`` profiled and their ``losses``, ``warmup_iterations``
        before them, seconds of both, and for gated steps the operator ``calls`` and how many of them were
        ``profiled``, by phase; the effective ``switches``.

    Raises:
        Outcome: out of memory, or an optimisation that this stack lacks.
        UserError: a device, data or workload that do not fit.
    """
    cell = read_cell(cell_path, "counters")
    settings = read_settings(cell.workload["counters"], f"{cell_path}: workload.counters")
    plan = json.loads((scratch / PLAN_FILE).read_text())
    applied, _ = applicable(cell)
    out = scratch / SESSION_FOLDER
    out.mkdir(exist_ok=True)
    gate = OperatorGate(plan["quotas"] or {}, plan["fallback"], window, scratch / HEARTBEAT_FILE)
    try:
        session = open_session(Job(cell, applied, data, out, None), gate.in_phase)
        with session.trainer:
            record = _train(session, settings, None if plan["quotas"] is None else gate, window)
        return record | {"switches": json.loads((out / SWITCHES_FILE).read_text())}
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(
            f"{cell.label} ran out of memory below ncu, which keeps copies of device memory: "
            "ask for fewer metrics, set workload.counters.replay to 'application', or take a smaller volume."
        ) from error


def _train(
    session: Session, settings: CounterSettings, gate: OperatorGate | None, window: ProfilerWindow
) -> dict[str, Any]:
    """Do the warm-up and the profiled steps; without a gate the window holds whole steps."""
    started = time.monotonic()
    session.warm_up(settings.warmup_iterations)
    _synchronize()
    warmed_up, warmup_iterations = time.monotonic(), session.trainer.iteration
    progress = Progress("below ncu", settings.iterations, "step")
    losses = []
    for done in range(1, settings.iterations + 1):
        losses.append(_step_whole(session, window) if gate is None else gated(session.trainer.step, gate).loss)
        progress.step(done, f"loss {losses[-1]:.4f}")
    return {
        "gate": "steps" if gate is None else "operators",
        "iterations": settings.iterations,
        "warmup_iterations": warmup_iterations,
        "losses": losses,
        "warmup_s": round(warmed_up - started, 3),
        "profiled_s": round(time.monotonic() - warmed_up, 3),
        "calls": {} if gate is None else dict(sorted(gate.calls.items())),
        "profiled": {} if gate is None else dict(sorted(gate.profiled.items())),
    }


def _step_whole(session: Session, window: ProfilerWindow) -> float:
    window.start()
    try:
        loss = session.trainer.step().loss
        _synchronize()
    finally:
        window.stop()
    return loss


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    sys.exit(main())
