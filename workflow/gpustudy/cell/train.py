"""Stage ``train``: optimiser steps with no profiler attached; time, loss, waiting and peak memory of each."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import torch

from gpustudy.base.atomic import atomic_path, write_json
from gpustudy.base.progress import Progress
from gpustudy.cell.memory import PeakMemory
from gpustudy.cell.outcomes import Outcome
from gpustudy.cell.session import Session, open_session
from gpustudy.cell.stages import Job
from gpustudy.medddpm.trainer import StepResult, Trainer

STEPS_FILE = "steps.jsonl"
MEMORY_FILE = "memory.json"
CHECKPOINT_FILE = "checkpoint.pt"

_NS_PER_MS = 1e6
"""CUDA events tell milliseconds."""


def run(job: Job) -> None:
    """Write steps.jsonl, memory.json, checkpoint.pt, switches.json and provenance.json."""
    session = open_session(job)
    with session.trainer, (job.out / STEPS_FILE).open("w") as log:
        _Recorder(job, session, log).run()
        save_weights(job.out / CHECKPOINT_FILE, session.trainer)


class _Recorder:
    """Steps the trainer and writes a line per step."""

    def __init__(self, job: Job, session: Session, log: TextIO) -> None:
        self._session, self._log, self._out, self._label = session, log, job.out, job.cell.label
        device = session.trainer.options.device.type
        self._timed: Callable[[Trainer], tuple[StepResult, int]] = timed_on_cuda if device == "cuda" else timed_on_cpu
        self._memory = PeakMemory(device)
        self._progress = Progress(job.cell.label, session.settings.total_iterations)
        self._peaks: list[int] = []

    def run(self) -> None:
        """Do the warm-up and the measured steps, and write memory.json."""
        self._session.warm_up(on_step=lambda trainer: self._step("warmup"))
        for _ in range(self._session.settings.iterations):
            self._peaks.append(self._step("measured"))
        record = {
            "peak_bytes": max(self._peaks),
            "kind": self._memory.kind,
            "estimate_bytes": self._session.estimate_bytes,
        }
        write_json(self._out / MEMORY_FILE, record)

    def _step(self, phase: str) -> int:
        """Do one step, write its line and return its peak memory in bytes."""
        self._memory.reset()
        result, step_ns = self._timed(self._session.trainer)
        peak_bytes = self._memory.read()
        if not math.isfinite(result.loss):
            raise Outcome(
                "failed",
                "not_finite",
                f"{self._label}: the loss became {result.loss} at iteration {result.iteration}: "
                "lower the learning rate or take a config of higher precision.",
            )
        line: dict[str, Any] = {
            "iteration": result.iteration,
            "phase": phase,
            "step_ns": step_ns,
            "loss": result.loss,
            "data_wait_ns": result.data_wait_ns,
            "peak_memory_bytes": peak_bytes,
        }
        self._log.write(json.dumps(line) + "\n")
        self._progress.step(result.iteration, f"loss {result.loss:.4f}")
        return peak_bytes


def timed_on_cpu(trainer: Trainer) -> tuple[StepResult, int]:
    """Do one step; return its result and its wall time in nanoseconds."""
    start_ns = time.perf_counter_ns()
    result = trainer.step()
    return result, time.perf_counter_ns() - start_ns


def timed_on_cuda(trainer: Trainer) -> tuple[StepResult, int]:
    """Do one step; return its result and the time between device events around it, in nanoseconds."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]  # torch's own
    torch.cuda.synchronize()
    start.record()
    result = trainer.step()
    end.record()
    end.synchronize()
    return result, round(start.elapsed_time(end) * _NS_PER_MS)


def save_weights(path: Path, trainer: Trainer) -> None:
    """Write the network's weights and their moving average, on the CPU, readable with ``weights_only=True``."""
    content = {
        "iteration": trainer.iteration,
        "model": {name: value.detach().cpu() for name, value in trainer.model.state_dict().items()},
        "ema": {name: value.detach().cpu() for name, value in trainer.ema.state_dict().items()},
    }
    with atomic_path(path) as temporary:
        torch.save(content, temporary)
