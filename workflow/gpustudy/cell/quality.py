"""Stage ``quality``: volumes sampled from the trained weights, for the masks of the training data, seeds fixed.

Sampling uses the moving average of the weights, as published, and the optimisations of the cell.
"""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gpustudy.base.atomic import atomic_path
from gpustudy.base.errors import UserError
from gpustudy.base.progress import Progress
from gpustudy.cell.document import whole_file
from gpustudy.cell.optimisations import Setup, apply_optimisations
from gpustudy.cell.provenance import write_provenance
from gpustudy.cell.session import first_model, open_device, open_volumes
from gpustudy.cell.stages import Job
from gpustudy.cell.train import CHECKPOINT_FILE
from gpustudy.medddpm.diffusion import Diffusion
from gpustudy.medddpm.volumes import PreparedVolumes

SAMPLES_FILE = "samples.npz"

_NOT_FOR_SAMPLING = ("compile",)
"""Left out here: equal mathematics, and compiling takes longer than the few samples."""


def run(job: Job) -> None:
    """Write samples.npz and provenance.json."""
    cell = job.cell
    plan = cell.workload["quality"]
    device = open_device(cell)
    volumes = open_volumes(cell, job.data)
    setup = Setup(device.type, first_model(cell))
    names = tuple(name for name in job.optimisations if name not in _NOT_FOR_SAMPLING)
    apply_optimisations(setup, names, cell.pytorch_defaults)
    write_provenance(job.out, cell)
    setup.model.load_state_dict(_average(job))
    sampler = _Sampler(setup, _timesteps(cell.workload), plan["ddim_steps"], device)
    cases = [index % volumes.count for index in range(plan["samples"])]
    seeds = [plan["seed"] + index for index in range(plan["samples"])]
    progress = Progress(cell.label, len(cases), "sample")
    samples = []
    for done, (case, seed) in enumerate(zip(cases, seeds, strict=True), start=1):
        samples.append(sampler.draw(volumes.masks[case], seed))
        progress.step(done)
    _write_samples(job.out / SAMPLES_FILE, np.stack(samples), volumes, cases, seeds)


class _Sampler:
    """Draws one volume for one mask by DDIM."""

    def __init__(self, setup: Setup, timesteps: int, ddim_steps: int, device: torch.device) -> None:
        self._format = torch.channels_last_3d if setup.options.get("channels_last") else torch.contiguous_format
        self._model = setup.model.eval().to(device)
        if self._format is torch.channels_last_3d:
            self._model.to(memory_format=self._format)  # type: ignore[call-overload]  # overload lacks the keyword alone
        self._autocast_dtype: torch.dtype | None = setup.options.get("autocast_dtype")
        self._diffusion = Diffusion(timesteps).to(device)
        self._steps, self._device = ddim_steps, device

    def draw(self, mask: npt.NDArray[np.float32], seed: int) -> npt.NDArray[np.float32]:
        """Return a volume (C, D, H, W) in [-1, 1] for ``mask`` (C_mask, D, H, W)."""
        condition = torch.tensor(mask)[None].to(self._device)
        shape = (1, self._model.image_channels, *condition.shape[2:])
        generator = torch.Generator().manual_seed(seed)
        image = self._diffusion.sample_ddim(self._network, shape, condition, generator, self._steps)
        volume: npt.NDArray[np.float32] = image[0].float().cpu().numpy()
        return volume

    def _network(self, x: Tensor, timesteps: Tensor) -> Tensor:
        dtype = self._autocast_dtype
        with torch.autocast(self._device.type, dtype, dtype is not None):
            noise: Tensor = self._model(x.contiguous(memory_format=self._format), timesteps)
        return noise


def _timesteps(workload: Mapping[str, Any]) -> int:
    """Return T of the diffusion, from the section that this workload has."""
    section = workload.get("diffusion") or workload["train"]
    return int(section["timesteps"])


def _average(job: Job) -> dict[str, Tensor]:
    """Return the moving average of the weights that stage ``train`` left.

    Raises:
        UserError: the stage before is not ``train``, or its checkpoint is not the one it wrote, or cannot be read.
    """
    if job.previous is None:
        raise UserError(f"{job.cell.label} samples trained weights: its 'previous' must be stage 'train'.")
    path = whole_file(job.previous, CHECKPOINT_FILE)
    try:
        average: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)["ema"]
    except (OSError, KeyError, RuntimeError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path} cannot be read as trained weights ({type(error).__name__}): "
            "set stage 'train' aside with 'gpustudy retry' and run again."
        ) from error
    return average


def _write_samples(
    path: Path, samples: npt.NDArray[np.float32], volumes: PreparedVolumes, cases: list[int], seeds: list[int]
) -> None:
    """Write the samples with what judges them: real volumes, masks and tissue labels of the cases, seeds, affine."""
    manifest = volumes.manifest
    with atomic_path(path) as temporary:
        np.savez(
            temporary,
            samples=samples,
            real=volumes.images[cases],
            masks=volumes.masks[cases],
            labels=np.load(volumes.directory / "labels.npy", mmap_mode="r")[cases],
            case_ids=np.array([manifest["cases"][case] for case in cases]),
            seeds=np.array(seeds, dtype=np.int64),
            affine=np.array(manifest["affine"], dtype=np.float64),
        )
