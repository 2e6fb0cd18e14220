"""From a job to a trainer that is ready to step: device, network, optimisations, data, and the proof of each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from gpustudy.base.atomic import write_json
from gpustudy.base.errors import UserError
from gpustudy.cell.document import Cell
from gpustudy.cell.optimisations import Setup, apply_optimisations, verify_optimisations
from gpustudy.cell.outcomes import out_of_memory
from gpustudy.cell.probe import Probe, take_probe
from gpustudy.cell.provenance import write_provenance
from gpustudy.cell.stages import Job
from gpustudy.cell.switches import read_switches
from gpustudy.medddpm.memory import available_bytes, check_memory, estimate_training
from gpustudy.medddpm.switches import read_switches as read_model_switches
from gpustudy.medddpm.switches import set_switches
from gpustudy.medddpm.trainer import Trainer, TrainOptions, TrainSettings
from gpustudy.medddpm.unet import UNet3D
from gpustudy.medddpm.volumes import PreparedVolumes

SWITCHES_FILE = "switches.json"

Phase = Callable[[str], AbstractContextManager[Any]]


@dataclass
class Session:
    """A trainer with all that was decided about it.

    Attributes:
        trainer: ready for its first step; the caller closes it.
        settings: of the training.
        setup: the run as the optimisations left it.
        estimate_bytes: memory that the training was estimated to take; None after a stage that has run it.
    """

    trainer: Trainer
    settings: TrainSettings
    setup: Setup
    estimate_bytes: int | None
    _job: Job
    _probe: Probe
    _changes: dict[str, str]

    def warm_up(self, iterations: int | None = None, on_step: Callable[[Trainer], object] = Trainer.step) -> None:
        """Do the warm-up, then prove the optimisations and write switches.json.

        Args:
            iterations: optimiser steps; None for those of the ``train`` section.
            on_step: does one of them.

        Raises:
            Outcome: ``unsupported``, when an optimisation has no effect.
        """
        for _ in range(self.settings.warmup_iterations if iterations is None else iterations):
            on_step(self.trainer)
        names = self._job.optimisations
        self.setup.threads = self.trainer.threads
        evidence = verify_optimisations(self.setup, names, self._probe)
        cell = self._job.cell
        record = {
            "pytorch_defaults": cell.pytorch_defaults,
            "effective": read_switches(torch),
            "model": read_model_switches(self.trainer.model),
            "optimisations": [
                {"name": name, "changed": self._changes[name]} | asdict(evidence[name]) for name in names
            ],
            "left_out": [name for name in cell.optimisations if name not in names],
        }
        write_json(self._job.out / SWITCHES_FILE, record)


def open_device(cell: Cell) -> torch.device:
    """Return the device that ``cell`` names, after a look that it is the one; set the CPU's threads.

    Raises:
        UserError: no CUDA device, or one of another name or architecture.
    """
    gpu = cell.gpu
    if gpu.threads is not None:
        torch.set_num_threads(gpu.threads)
    if gpu.device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UserError(f"{cell.label} needs a CUDA device and torch finds none: run it at a site that has {gpu.name}.")
    name, capability = torch.cuda.get_device_name(0), "sm_{}{}".format(*torch.cuda.get_device_capability(0))
    if gpu.device_name not in name or capability != gpu.architecture:
        raise UserError(
            f"{cell.label} is for a device named like '{gpu.device_name}' ({gpu.architecture}), here is {name} "
            f"({capability}): choose the device by CUDA_VISIBLE_DEVICES, or run another gpu's cell."
        )
    return torch.device("cuda", 0)


def open_session(job: Job, phase: Phase = nullcontext) -> Session:
    """Build the trainer of a job, apply its optimisations, write provenance.json; no step is done yet.

    Args:
        job: of a stage whose workload has ``model`` and ``train``.
        phase: entered as a context with the name of each part of a step, as ``Trainer`` says.

    Raises:
        Outcome: an optimisation that this stack lacks, or a training that does not fit into memory.
        UserError: a device, data or workload that do not fit.
    """
    cell = job.cell
    device = open_device(cell)
    volumes = open_volumes(cell, job.data)
    settings = TrainSettings.from_document(cell.workload["train"])
    setup = Setup(device.type, first_model(cell))
    changes = apply_optimisations(setup, job.optimisations, cell.pytorch_defaults)
    write_provenance(job.out, cell)
    options = TrainOptions(device=device, **setup.options)
    estimate_bytes = _check_memory(cell, settings, options, setup.model) if job.previous is None else None
    trainer = Trainer(setup.model, settings, volumes, cell.seed, options, phase, setup.network)
    setup.optimizer, setup.called = trainer.optimizer, trainer.written_network
    return Session(trainer, settings, setup, estimate_bytes, job, take_probe(setup.model, options), changes)


def first_model(cell: Cell) -> UNet3D:
    """Return the network of ``cell`` with weights drawn from its seed."""
    torch.manual_seed(cell.seed)
    return UNet3D.from_document(cell.workload["model"])


def open_volumes(cell: Cell, data: Path) -> PreparedVolumes:
    """Return the prepared volumes, refused when they were damaged or are of another size than the workload's."""
    volumes = PreparedVolumes(data)
    volumes.check_sums()
    wanted = tuple(cell.workload["model"]["volume"])
    if volumes.volume != wanted:
        raise UserError(f"{data} holds volumes of {volumes.volume}, the workload has {wanted}: prepare them anew.")
    return volumes


def _check_memory(cell: Cell, settings: TrainSettings, options: TrainOptions, model: UNet3D) -> int:
    """Return the bytes that training is estimated to take; what cannot fit is an outcome, not an error."""
    switches = {name: value for name, value in read_model_switches(model).items() if value is not None}
    estimate = estimate_training(
        *(cell.workload["model"], settings, options.autocast_dtype),
        prepare=lambda network: set_switches(network, **switches),
        concurrent=options.concurrent,
    )
    free = available_bytes(options.device)
    limits = [limit for limit in (free, cell.gpu.memory_bytes) if limit is not None]
    try:
        check_memory(estimate, min(limits, default=None), cell.gpu.name)
    except UserError as error:
        raise out_of_memory(f"{cell.label} would not fit: {error}") from error
    return estimate.total_bytes
