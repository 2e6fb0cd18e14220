"""Stage ``census``: every operator and kernel launch of a few steady steps, their FLOPs and memory formats.

Two runs: the profiler's, without anything else attached; then one iteration under dispatch modes, which count FLOPs
and record layouts and whose times mean nothing.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from gpustudy.base.atomic import atomic_path, write_json
from gpustudy.base.progress import Progress
from gpustudy.cell.layouts import FAST_COMPRESSION, LayoutRecorder, recorded_layouts, write_layouts
from gpustudy.cell.session import Phase, Session, open_session
from gpustudy.cell.stages import Job
from gpustudy.medddpm.trainer import Trainer

try:
    from torch.utils.flop_counter import FlopCounterMode
except ImportError:  # before torch 2.1
    FlopCounterMode = None  # type: ignore[assignment,misc]  # asked for below

TRACE_FILE = "trace.json.gz"
FLOPS_FILE = "flops.json"

_KINETO_SILENT = "6"
"""KINETO_LOG_LEVEL above all levels of PyTorch's profiler: its notes of start and stop are nothing to a reader."""

ANNOTATION = "gpustudy."
"""Begins the name of every range of ours in a trace: gpustudy.step, and inside it one per phase."""


class PhaseSwitch:
    """What the trainer enters around each part of a step; a run sets ``now`` to what it needs.

    Attributes:
        now: given the phase's name, returns the context to enter.
    """

    def __init__(self) -> None:
        self.now: Phase = nullcontext

    def __call__(self, name: str) -> AbstractContextManager[Any]:
        """Return the context of the phase ``name``."""
        return self.now(name)


def run(job: Job) -> None:
    """Write trace.json.gz, flops.json, layouts.jsonl.gz (where asked for), switches.json and provenance.json."""
    plan = job.cell.workload["census"]
    phases = PhaseSwitch()
    session = open_session(job, phases)
    with session.trainer as trainer:
        session.warm_up(plan["warmup_iterations"])
        trainer.stop_concurrency()
        phases.now = lambda name: record_function(ANNOTATION + name)
        _profile(job, trainer, plan["iterations"])
        _dispatch_run(job, session, phases, plan["layouts"])


def _profile(job: Job, trainer: Trainer, iterations: int) -> None:
    """Profile steady steps and write the trace."""
    activities = [ProfilerActivity.CPU]
    if trainer.options.device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
        with profile(activities=activities):  # the first use sets CUPTI up, which holds the device back
            trainer.step()
    else:  # on CUDA the same switch would also silence what CUPTI says of a device that may not be traced
        os.environ.setdefault("KINETO_LOG_LEVEL", _KINETO_SILENT)
    progress = Progress(job.cell.label, iterations, "profiled iteration")
    with profile(activities=activities, record_shapes=True) as profiler:
        for done in range(1, iterations + 1):
            with record_function(ANNOTATION + "step"):
                trainer.step()
            progress.step(done)
        if trainer.options.device.type == "cuda":
            torch.cuda.synchronize()
    write_trace(job.out / TRACE_FILE, profiler)


def write_trace(path: Path, profiler: profile) -> None:
    """Write the profiler's Chrome trace, gzip-compressed."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        plain = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(plain))
        with (
            plain.open("rb") as source,
            atomic_path(path) as temporary,
            gzip.open(temporary, "wb", compresslevel=FAST_COMPRESSION) as target,
        ):
            shutil.copyfileobj(source, target)


def _dispatch_run(job: Job, session: Session, phases: PhaseSwitch, layouts: bool) -> None:
    """Do one iteration under dispatch modes and write FLOPs and layouts.

    Compiled networks run uncompiled here: dispatch modes see the operators of the model as it is written.
    """
    trainer = session.trainer
    trainer.network = trainer.written_network
    counter = None if FlopCounterMode is None else FlopCounterMode(display=False)
    tally = FlopTally(counter)
    with ExitStack() as modes:
        if counter is not None:
            modes.enter_context(counter)
        recorder = modes.enter_context(recorded_layouts(trainer.written_network)) if layouts else None
        phases.now = lambda name: _watched(name, tally, recorder)
        trainer.step()
        phases.now = nullcontext
    write_json(job.out / FLOPS_FILE, tally.phases | {"total": counter and counter.get_total_flops()})
    if recorder is not None:
        write_layouts(job.out, recorder.rows)


class FlopTally:
    """Splits a counter's growing total into phases; without a counter (torch 2.0 has none) there is nothing to split.

    Attributes:
        phases: FLOPs by operator in ``forward`` and in ``backward`` (recomputation included).
    """

    def __init__(self, counter: FlopCounterMode | None) -> None:
        self._counter = counter
        self.phases: dict[str, dict[str, int]] = {"forward": {}, "backward": {}}

    def counts(self) -> Counter[str]:
        """Return the FLOPs so far, by operator."""
        counts = {} if self._counter is None else self._counter.get_flop_counts().get("Global", {})
        return Counter({str(name): int(flops) for name, flops in counts.items()})

    def add(self, phase: str, before: Counter[str]) -> None:
        """Add to ``phase`` what came since ``before``; phases without arithmetic of note are left out."""
        if phase in self.phases:
            grown = self.counts()
            grown.subtract(before)
            total = Counter(self.phases[phase]) + grown
            self.phases[phase] = dict(sorted(total.items()))


@contextmanager
def _watched(name: str, tally: FlopTally, recorder: LayoutRecorder | None) -> Iterator[None]:
    """Name the phase to the recorder, and give it the FLOPs counted inside."""
    before = tally.counts()
    if recorder is not None:
        recorder.phase = name
    yield
    if recorder is not None:
        recorder.phase = "other"
    tally.add(name, before)
