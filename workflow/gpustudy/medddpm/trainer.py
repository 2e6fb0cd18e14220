"""Training as published: accumulated micro-batches, Adam, a moving average of the weights; whole resume."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from gpustudy.base.errors import UserError
from gpustudy.medddpm.cast_weights import CastWeights
from gpustudy.medddpm.diffusion import Diffusion, Network, model_input, noise_error
from gpustudy.medddpm.ema import Ema
from gpustudy.medddpm.loader import Loader, MicroBatch, MicroBatches, PreparedVolumes
from gpustudy.medddpm.micro_batch_threads import MicroBatchThreads, add_gradients
from gpustudy.medddpm.settings import TrainOptions, TrainSettings
from gpustudy.medddpm.unet import UNet3D

__all__ = ["PHASES", "StepResult", "TrainOptions", "TrainSettings", "Trainer"]

PHASES = ("data", "forward", "backward", "optimiser")
"""Parts of a step, in order; the first three once per micro-batch. Micro-batches that are computed at the same time
have no phases but the data's."""

STATE_SCHEMA = 1

Phase = Callable[[str], AbstractContextManager[Any]]


@dataclass(frozen=True)
class StepResult:
    """One optimiser step.

    Attributes:
        iteration: its number since the start of training, from 1.
        loss: mean of ``micro_losses``.
        micro_losses: loss of each micro-batch, in order.
        data_wait_ns: how long the step waited for data that was not ready.
    """

    iteration: int
    loss: float
    micro_losses: tuple[float, ...]
    data_wait_ns: int


class Trainer:
    """Trains a U-Net on prepared volumes, one optimiser step per call of ``step``.

    Everything random is drawn from the seed and the number of the micro-batch, so that two trainers with equal
    settings see the same data, timesteps and noise on any device, and a restored one goes on as if it had never
    stopped.

    Args:
        model: the network; it is moved to the device (and memory format) of ``options``.
        settings: what is computed.
        volumes: prepared volumes with the model's channels.
        seed: of data order, timesteps and noise. The weights come with ``model``.
        options: how it is computed.
        phase: entered as a context with each name of ``PHASES``, so that a profiler can mark them.
        network: what is called in place of ``model``, such as its compiled form; it must share its parameters.

    Attributes:
        iteration: optimiser steps done.
        ema: moving average of the weights.
        threads: of micro-batches that are computed at the same time, from the first step on, or None.

    Raises:
        UserError: volumes that the model cannot take.
    """

    def __init__(
        self,
        model: UNet3D,
        settings: TrainSettings,
        volumes: PreparedVolumes,
        seed: int,
        options: TrainOptions | None = None,
        phase: Phase = nullcontext,
        network: Network | None = None,
    ) -> None:
        volumes.check_fits(model.image_channels, model.mask_channels)
        model.architecture.check_volume(volumes.volume)
        self.model, self.settings, self.seed = model, settings, seed
        self.options = options = TrainOptions() if options is None else options
        self.phase = phase
        self._memory_format = torch.channels_last_3d if options.channels_last else torch.contiguous_format
        model.to(options.device)
        if options.channels_last:
            model.to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload]  # overload lacks the keyword alone
        self._cast = (
            CastWeights(model, options.autocast_dtype) if options.cast_once and options.autocast_dtype else None
        )
        self.network: Network = self.written_network if network is None else network
        self._parameters, self._leaves = list(model.parameters()), list(self.written_network.parameters())
        self.threads: MicroBatchThreads | None = None
        self._is_concurrent = options.concurrent and settings.accumulation > 1
        self.diffusion = Diffusion(settings.timesteps).to(options.device)
        self.optimizer = make_adam(model, settings.learning_rate, options.fused_adam)
        self.scaler = make_grad_scaler(options.device.type) if options.grad_scaler else None
        self.ema = Ema(model, settings.ema_decay, settings.ema_every, settings.ema_start)
        self.iteration = 0
        self._batches = MicroBatches(volumes, settings.batch_size, settings.timesteps, seed)
        self._loader: Loader | None = None

    def step(self) -> StepResult:
        """Do one optimiser step and return what it gave; on CUDA it returns when the losses are known."""
        losses, waited_ns = self._at_once() if self._is_concurrent else self._in_turn()
        with self.phase("optimiser"):
            self._update()
        self.iteration += 1
        micro_losses = tuple(torch.stack(losses).tolist())  # waits for the device once per step
        return StepResult(self.iteration, sum(micro_losses) / len(micro_losses), micro_losses, waited_ns)

    @property
    def written_network(self) -> UNet3D:
        """The module that is called where no compiler stands before it: the model, or its copy with cast weights."""
        return self.model if self._cast is None else self._cast.network

    def stop_concurrency(self) -> None:
        """Compute micro-batches in turn from now on, for a profiler, which watches the thread that began it."""
        self._is_concurrent = False
        self._close_threads()

    def state_dict(self) -> dict[str, Any]:
        """Return all that a resumed run needs: tensors, numbers and strings only (``weights_only`` can read it)."""
        return {
            "schema": STATE_SCHEMA,
            "iteration": self.iteration,
            "seed": self.seed,
            "settings": asdict(self.settings),
            "model": self.model.state_dict(),
            "ema": self.ema.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": {} if self.scaler is None else self.scaler.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``, which must come from a run with the same seed and settings.

        Only ``iterations`` may differ (a run may be made longer), unless the learning rate depends on it.

        Raises:
            UserError: the state is of another run.
        """
        self._check_same_run(state)
        self.close()
        self.model.load_state_dict(state["model"])
        self.ema.load_state_dict(state["ema"])
        _load_optimizer(self.optimizer, state["optimizer"])
        if self.scaler is not None and state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        self.iteration = int(state["iteration"])
        self._refresh_cast()

    def close(self) -> None:
        """End the threads of the loader and of micro-batches; a later step starts them again."""
        self._close_threads()
        if self._loader is not None:
            self._loader.close()
            self._loader = None

    def __enter__(self) -> Trainer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _close_threads(self) -> None:
        if self.threads is not None:
            self.threads.close()
            self.threads = None

    def _next_batch(self) -> tuple[MicroBatch, int]:
        if self._loader is None:
            first = self.iteration * self.settings.accumulation
            self._loader = Loader(self._batches, start=first, pin_memory=self.options.device.type == "cuda")
        batch, waited_ns = self._loader.get()
        return batch.to(self.options.device), waited_ns

    def _in_turn(self) -> tuple[list[Tensor], int]:
        """Compute the micro-batches one after the other; returns their losses and how long they waited for data."""
        losses, waited_ns = [], 0
        for _ in range(self.settings.accumulation):
            with self.phase("data"):
                batch, wait_ns = self._next_batch()
            waited_ns += wait_ns
            with self.phase("forward"):
                loss = self._loss(batch)
            with self.phase("backward"):
                self._backward(loss / self.settings.accumulation)
            losses.append(loss.detach())
        return losses, waited_ns

    def _at_once(self) -> tuple[list[Tensor], int]:
        """Compute them at the same time; gradients are added in order, so that the sum is always the same."""
        if self.threads is None:
            self.threads = MicroBatchThreads(self.settings.accumulation)
        with self.phase("data"):
            batches, waits_ns = zip(*(self._next_batch() for _ in range(self.settings.accumulation)), strict=True)
        losses = []
        for loss, gradients in self.threads.map(self._loss_and_gradients, batches):
            add_gradients(self._parameters, gradients)
            losses.append(loss)
        return losses, sum(waits_ns)

    def _loss_and_gradients(self, batch: MicroBatch) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        loss = self._loss(batch)
        return loss.detach(), self._gradients(loss / self.settings.accumulation)

    def _loss(self, batch: MicroBatch) -> Tensor:
        noisy = self.diffusion.q_sample(batch.image, batch.timesteps, batch.noise)
        seen = model_input(noisy, batch.mask).contiguous(memory_format=self._memory_format)
        with self._autocast():
            predicted = self.network(seen, batch.timesteps)
        return noise_error(predicted, batch.noise, self.settings.loss)

    def _autocast(self) -> AbstractContextManager[Any]:
        dtype = self.options.autocast_dtype
        return nullcontext() if dtype is None else torch.autocast(self.options.device.type, dtype=dtype)

    def _backward(self, loss: Tensor) -> None:
        if self._cast is None:
            torch.autograd.backward(self._scaled(loss))
        else:
            add_gradients(self._parameters, self._gradients(loss))

    def _gradients(self, loss: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the network that is called, without adding them to any."""
        return torch.autograd.grad(self._scaled(loss), self._leaves, allow_unused=True)

    def _scaled(self, loss: Tensor) -> Tensor:
        scaled: Tensor = loss if self.scaler is None else self.scaler.scale(loss)
        return scaled

    def _update(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate_at(self.iteration)
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.ema.update(self.iteration)
        self._refresh_cast()

    def _refresh_cast(self) -> None:
        if self._cast is not None:
            self._cast.refresh()

    def _check_same_run(self, state: Mapping[str, Any]) -> None:
        if state.get("schema") != STATE_SCHEMA:
            raise UserError(f"the checkpoint has schema {state.get('schema')}, this version reads {STATE_SCHEMA}.")
        if state["seed"] != self.seed:
            raise UserError(
                f"the checkpoint has seed {state['seed']}, this run {self.seed}: resume with the same seed."
            )
        for name, value in asdict(self.settings).items():
            may_differ = name == "iterations" and self.settings.first_half_learning_rate is None
            if state["settings"].get(name) != value and not may_differ:
                raise UserError(
                    f"the checkpoint has {name} {state['settings'].get(name)}, this run {value}: "
                    "resume with the same settings, or start a new run."
                )


def make_adam(model: UNet3D, learning_rate: float, fused: bool) -> torch.optim.Adam:
    """Return Adam with PyTorch's defaults, as published."""
    if fused:
        return torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
    return torch.optim.Adam(model.parameters(), lr=learning_rate)


def _load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Take over the state of a run whose memory format or form of Adam may have been another.

    Moments are brought into their parameters' memory format: fused Adam goes by addresses alone.
    """
    fused = [group["fused"] for group in optimizer.param_groups]
    optimizer.load_state_dict(state)
    for group, own in zip(optimizer.param_groups, fused, strict=True):
        group["fused"] = own
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            if value.shape == parameter.shape and value.stride() != parameter.stride():
                values[name] = torch.empty_like(parameter, requires_grad=False).copy_(value)


def make_grad_scaler(device_type: str) -> Any:
    """Return a gradient scaler: of ``torch.amp`` where it has one, else of ``torch.cuda.amp`` (PyTorch 2.0).

    Raises:
        UserError: this PyTorch scales gradients on CUDA alone.
    """
    scaler = getattr(torch.amp, "GradScaler", None)
    if scaler is not None:
        return scaler(device_type)
    if device_type != "cuda":
        raise UserError(f"this PyTorch scales gradients on CUDA alone, not on {device_type}: use bfloat16 or float32.")
    return torch.cuda.amp.GradScaler()
