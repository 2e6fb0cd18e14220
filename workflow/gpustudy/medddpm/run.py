"""Training and sampling on a person's own prepared data, outside the study."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpustudy.base.atomic import atomic_path
from gpustudy.base.errors import UserError
from gpustudy.base.progress import Progress
from gpustudy.medddpm.checkpoint import checkpoints, load_checkpoint, loading, save_checkpoint
from gpustudy.medddpm.diffusion import Diffusion
from gpustudy.medddpm.interrupt import stop_requests
from gpustudy.medddpm.memory import available_bytes, check_memory, estimate_training
from gpustudy.medddpm.published import load_published, to_published
from gpustudy.medddpm.rundir import MODEL_FILE, STEPS_FILE, claimed, forget_steps_after, read_run, write_run
from gpustudy.medddpm.switches import set_switches
from gpustudy.medddpm.trainer import Trainer, TrainOptions, TrainSettings
from gpustudy.medddpm.unet import UNet3D
from gpustudy.medddpm.volumes import PreparedVolumes

SAMPLES_FILE = "samples.npz"

RUN_SWITCHES: dict[str, Any] = {
    "attention_kernel": "sdpa",
    "attention_recompute": False,
    "lean_norm": True,
    "fast_convolution": True,
}
"""Forms of the network for a run outside the study: equal mathematics, less time and memory."""


@dataclass(frozen=True)
class RunSettings:
    """A run: network, training, and how often it is saved.

    Attributes:
        base_channels: width of the first level.
        channel_mult: width of each level over the first.
        res_blocks: residual blocks per level.
        attention_downsamples: downsampling factors with attention.
        train: of the training.
        seed: of first weights, data order, timesteps and noise.
        save_every: optimiser steps between checkpoints.
        keep: checkpoints kept.
        block_recompute: recompute residual blocks in backward, for memory.
    """

    base_channels: int = 64
    channel_mult: tuple[float, ...] = (1, 1, 2, 3, 4)
    res_blocks: int = 1
    attention_downsamples: tuple[int, ...] = (8,)
    train: TrainSettings = field(default_factory=TrainSettings)
    seed: int = 0
    save_every: int = 1000
    keep: int = 3
    block_recompute: bool = False

    def __post_init__(self) -> None:
        for name in ("save_every", "keep"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}: give at least one.")
        if self.seed < 0:
            raise UserError(f"seed is {self.seed}: give a whole number from 0.")
        factors = [2**level for level in range(len(self.channel_mult))]
        for factor in self.attention_downsamples:
            if factor not in factors:
                raise UserError(
                    f"attention_downsamples holds {factor}, but no level is downsampled by {factor}: a U-Net of "
                    f"{len(factors)} levels has {factors}."
                )

    def model_document(self, volumes: PreparedVolumes) -> dict[str, Any]:
        """Return the ``model`` section of a workload for these volumes."""
        return {
            "image_channels": volumes.image_channels,
            "mask_channels": volumes.mask_channels,
            "base_channels": self.base_channels,
            "channel_mult": list(self.channel_mult),
            "res_blocks": self.res_blocks,
            "attention_downsamples": list(self.attention_downsamples),
            "volume": list(volumes.volume),
        }


def train_run(
    data: Path,
    out: Path,
    settings: RunSettings | None = None,
    options: TrainOptions | None = None,
    weights: Path | None = None,
    resume: bool = False,
) -> Path:
    """Train on prepared data and return the final model file, in the published checkpoint layout.

    ``out`` gets run.json (what the run is), steps.jsonl (a line per optimiser step), checkpoint-*.pt (the last
    few, to resume from) and, at the end, model.pt.

    Args:
        data: prepared data directory.
        out: folder of the run; new, unless ``resume``.
        settings: of the run; a resumed run must be given the same (more iterations are allowed).
        options: how the steps are computed.
        weights: published checkpoint to start from.
        resume: go on from the last checkpoint of ``out``.

    Raises:
        UserError: settings, data or folder that do not fit, too little memory, or a loss that is not finite.
        KeyboardInterrupt: after Ctrl-C or SIGTERM, when the step is done and a checkpoint is written.
    """
    settings = RunSettings() if settings is None else settings
    options = TrainOptions() if options is None else options
    volumes = PreparedVolumes(data)
    document = settings.model_document(volumes)
    model = _first_model(document, settings, weights)
    switches = RUN_SWITCHES | {"block_recompute": settings.block_recompute}
    set_switches(model, **switches)
    estimate = estimate_training(
        document, settings.train, options.autocast_dtype, lambda network: set_switches(network, **switches)
    )
    check_memory(estimate, available_bytes(options.device), str(options.device))
    record = {
        "data": str(data.resolve()),
        "data_key": volumes.manifest.get("key"),
        "model": document,
        "settings": asdict(settings),
    }
    with claimed(out, record, resume), Trainer(model, settings.train, volumes, settings.seed, options) as trainer:
        if resume:
            _restore(trainer, out)
        write_run(out, record)
        _train(trainer, out, settings)
        content = to_published(
            model.state_dict(), trainer.ema.state_dict(), Diffusion(settings.train.timesteps), trainer.iteration
        )
        with atomic_path(out / MODEL_FILE) as temporary:
            torch.save(content, temporary)
    return out / MODEL_FILE


def sample_run(
    run: Path,
    out: Path,
    count: int = 1,
    ddim_steps: int | None = None,
    eta: float = 0.0,
    seed: int = 0,
    data: Path | None = None,
    device: torch.device | None = None,
) -> Path:
    """Draw images from the averaged weights of a run, for the condition masks of its data, one after the other.

    ``out`` gets samples.npz: samples (N, C, D, H, W) float32 in [-1, 1], masks, labels (N, D, H, W) where the
    data have them, case_ids, seeds, affine (4, 4).

    Args:
        run: folder of the run.
        out: folder of samples.npz.
        count: number of images; more than there are masks go round again, with other noise.
        ddim_steps: number of DDIM steps; None for ancestral sampling with all timesteps.
        eta: of DDIM.
        seed: image i is drawn with seed + i, whatever ``count`` is.
        data: prepared data directory; None for the one the run was trained on.
        device: where to sample; None for the CPU.

    Raises:
        UserError: no such run, none of its checkpoints, or data that do not fit.
    """
    if count < 1:
        raise UserError(f"count is {count}: draw at least one sample.")
    record = read_run(run)
    volumes = PreparedVolumes(Path(record["data"]) if data is None else data)
    device = torch.device("cpu") if device is None else device
    model = UNet3D.from_document(record["model"])
    volumes.check_fits(model.image_channels, model.mask_channels)
    model.architecture.check_volume(volumes.volume)
    _load_averaged(model, run)
    set_switches(model, **RUN_SWITCHES)
    model.to(device).eval()
    diffusion = Diffusion(record["settings"]["train"]["timesteps"]).to(device)
    cases = [index % volumes.count for index in range(count)]
    seeds = [seed + index for index in range(count)]
    masks = np.stack([volumes.masks[case] for case in cases])
    images = [
        _sample(model, diffusion, mask, volumes.image_channels, seed_of, ddim_steps, eta, f"sample {index}/{count}")
        for index, (mask, seed_of) in enumerate(zip(masks, seeds, strict=True), start=1)
    ]
    arrays: dict[str, Any] = {"samples": np.stack(images), "masks": masks, "seeds": np.array(seeds)}
    path = out / SAMPLES_FILE
    with atomic_path(path) as temporary:
        np.savez(temporary, **arrays, **_case_arrays(volumes, cases))
    return path


def _train(trainer: Trainer, out: Path, settings: RunSettings) -> None:
    """Step until the end, a loss that is not finite, or a request to stop; the last state is always saved."""
    total = settings.train.total_iterations
    progress = Progress(f"train {out.name}", total)
    with stop_requests() as requests, (out / STEPS_FILE).open("a") as log:
        while trainer.iteration < total:
            result = trainer.step()
            if not math.isfinite(result.loss):
                raise UserError(
                    f"{out}: the loss became {result.loss} at iteration {result.iteration}: resume from the last "
                    "checkpoint with a lower learning rate or in float32."
                )
            log.write(json.dumps({"iteration": result.iteration, "loss": result.loss}) + "\n")
            log.flush()
            progress.step(result.iteration, f"loss {result.loss:.4f}")
            if requests or result.iteration % settings.save_every == 0 or result.iteration == total:
                save_checkpoint(out, trainer.state_dict(), settings.keep)
            if requests and result.iteration < total:
                print(f"stopped after iteration {result.iteration}; go on with --resume.", file=sys.stderr)
                raise KeyboardInterrupt


def _first_model(document: Mapping[str, Any], settings: RunSettings, weights: Path | None) -> UNet3D:
    """Return the network with its first weights: drawn from the seed, or those of a published checkpoint."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = UNet3D.from_document(document)
    return model if weights is None else load_published(weights, model)


def _restore(trainer: Trainer, out: Path) -> None:
    """Go on from the last checkpoint, or from the start where a run was stopped before its first."""
    found = checkpoints(out)
    if found:
        state = load_checkpoint(found[-1])
        with loading(found[-1]):
            trainer.load_state_dict(state)
    forget_steps_after(out, trainer.iteration)


def _load_averaged(model: UNet3D, run: Path) -> None:
    found = checkpoints(run)
    if not found:
        raise UserError(f"{run} has no checkpoint yet: let it train until its first one.")
    weights = load_checkpoint(found[-1])["ema"]
    with loading(found[-1]):
        model.load_state_dict(weights)


def _sample(
    model: UNet3D,
    diffusion: Diffusion,
    mask: Any,
    image_channels: int,
    seed: int,
    ddim_steps: int | None,
    eta: float,
    label: str,
) -> Any:
    """Draw one image (C, D, H, W) for one mask (C_mask, D, H, W)."""
    progress = Progress(label, diffusion.timesteps if ddim_steps is None else ddim_steps, "step")
    condition = torch.tensor(mask)[None].to(diffusion.betas.device)
    shape = (1, image_channels, *condition.shape[2:])
    generator = torch.Generator().manual_seed(seed)
    if ddim_steps is None:
        image = diffusion.sample(model, shape, condition, generator, progress.step)
    else:
        image = diffusion.sample_ddim(model, shape, condition, generator, ddim_steps, eta, progress.step)
    return image[0].cpu().numpy()


def _case_arrays(volumes: PreparedVolumes, cases: list[int]) -> dict[str, Any]:
    """Return what else is known of the cases behind the masks."""
    names = volumes.manifest.get("cases") or [str(case) for case in range(volumes.count)]
    arrays: dict[str, Any] = {"case_ids": np.array([names[case] for case in cases])}
    arrays["affine"] = np.array(volumes.manifest.get("affine", np.eye(4).tolist()), dtype=np.float64)
    labels = volumes.directory / "labels.npy"
    if labels.exists():
        arrays["labels"] = np.load(labels, mmap_mode="r")[cases]
    return arrays
