"""Two networks of equal size beside each other: MONAI's DiffusionModelUNet and ours as a config of the study has it."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from torch import Tensor, nn

from gpustudy.cell.allocator import keep_freed_memory
from gpustudy.cell.memory import PeakMemory
from gpustudy.cell.optimisations import Setup, apply_optimisations
from gpustudy.medddpm.cast_weights import CastWeights
from gpustudy.medddpm.micro_batch_threads import MicroBatchThreads, add_gradients
from gpustudy.medddpm.trainer import TrainOptions, make_adam
from gpustudy.medddpm.unet import UNet3D

MONAI = "monai"
MONAI_HELPED = "monai + reuse_memory + concurrent_micro_batches"
"""With what is no part of a network: the allocator's setting, and micro-batches at the same time."""

SEED = 2026
LEARNING_RATE = 1e-5
TIMESTEP = 17

_MIB = 2**20

BF16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16")
"""Flags of /proc/cpuinfo with which a CPU multiplies in bfloat16."""


def monai_network() -> nn.Module:
    """MONAI's U-Net with the widths, levels and attention of the whole-head model: 40,226,433 parameters as well."""
    from monai.networks.nets import DiffusionModelUNet

    return DiffusionModelUNet(
        spatial_dims=3,
        in_channels=3,
        out_channels=1,
        channels=(64, 64, 128, 192, 256),
        num_res_blocks=1,
        attention_levels=(False, False, False, True, False),
        num_head_channels=(0, 0, 0, 192, 256),
        norm_num_groups=32,
    )


@dataclass
class Contestant:
    """A network that is trained by the same lines as all others.

    Attributes:
        model: its parameters.
        network: what is called.
        options: precision, memory format and optimiser.
        side: of the volume, in voxels.
        accumulation: micro-batches of a step.
        seconds: wall time of each timed step.
        cpu_seconds: processor time of each timed step, over all threads.
    """

    model: nn.Module
    network: Callable[[Tensor, Tensor], Tensor]
    options: TrainOptions
    side: int
    accumulation: int
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        layout = torch.channels_last_3d if self.options.channels_last else torch.contiguous_format
        self.model.to(memory_format=layout)  # type: ignore[call-overload]  # overload lacks the keyword alone
        self._adam = make_adam(self.model, LEARNING_RATE, self.options.fused_adam)  # type: ignore[arg-type]  # any module
        dtype = self.options.autocast_dtype
        self._cast = CastWeights(self.model, dtype) if self.options.cast_once and dtype else None
        if self._cast is not None:
            self.network = self._cast.network
        is_concurrent = self.options.concurrent and self.accumulation > 1
        self._threads = MicroBatchThreads(self.accumulation) if is_concurrent else None
        self._parameters = list(self.model.parameters())
        volume = (self.side,) * 3
        self._x = torch.randn(1, 3, *volume).contiguous(memory_format=layout)  # (B, C, D, H, W)
        self._noise = torch.randn(1, 1, *volume)
        self._timesteps = torch.tensor([TIMESTEP])

    def step(self) -> None:
        micro_batches = range(self.accumulation)
        if self._threads is not None:
            for gradients in self._threads.map(self._gradients, micro_batches):
                add_gradients(self._parameters, gradients)
        elif self._cast is not None:
            for index in micro_batches:
                add_gradients(self._parameters, self._gradients(index))
        else:
            for _ in micro_batches:
                self._loss().backward()
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        if self._cast is not None:
            self._cast.refresh()

    def time_step(self) -> None:
        start, cpu_start = time.perf_counter(), time.process_time()
        self.step()
        self.seconds.append(time.perf_counter() - start)
        self.cpu_seconds.append(time.process_time() - cpu_start)

    def peak_bytes(self) -> int:
        """Return the highest resident size of the process in a step, when Adam's moments exist as well."""
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self._adam.step()
        memory = PeakMemory("cpu")
        self.step()
        return memory.read()

    def _loss(self) -> Tensor:
        dtype = self.options.autocast_dtype
        with torch.autocast("cpu", dtype, dtype is not None):
            predicted = self.network(self._x, self._timesteps)
        return (predicted.float() - self._noise).abs().mean() / self.accumulation

    def _gradients(self, index: int) -> tuple[Tensor, ...]:
        leaves = self._parameters if self._cast is None else list(self._cast.network.parameters())
        return torch.autograd.grad(self._loss(), leaves)


def contestant(name: str, optimisations: tuple[str, ...], side: int, accumulation: int) -> Contestant:
    """Return MONAI's network, or ours with the optimisations of a config, applied as a stage applies them."""
    torch.manual_seed(SEED)
    if name in (MONAI, MONAI_HELPED):
        helped = name == MONAI_HELPED
        if helped:
            keep_freed_memory()
        model = monai_network()
        return Contestant(model, model, TrainOptions(concurrent=helped), side, accumulation)
    setup = Setup("cpu", UNet3D.whole_head())
    apply_optimisations(setup, optimisations, pytorch_defaults=False)
    network = setup.model if setup.network is None else setup.network
    return Contestant(setup.model, network, TrainOptions(**setup.options), side, accumulation)


class Peer:
    """A contestant in a process of its own, as the C library's allocator keeps its state per process.

    Attributes:
        parameters: of its network.
        memory_mib: peak of a step above what the process held before the network was built, and the whole peak.
        seconds: wall time of each timed step.
        cpu_seconds: processor time of each timed step, over all threads.
    """

    def __init__(self, name: str, optimisations: tuple[str, ...], side: int, accumulation: int, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs, name, optimisations, side, accumulation, threads), daemon=True
        )
        self._process.start()
        theirs.close()
        self.parameters: int
        self.memory_mib: tuple[float, float]
        self.parameters, self.memory_mib = self._connection.recv()
        self.seconds: list[float] = []
        self.cpu_seconds: list[float] = []

    def time_step(self) -> None:
        """Time one step."""
        self._connection.send(None)
        seconds, cpu_seconds = self._connection.recv()
        self.seconds.append(seconds)
        self.cpu_seconds.append(cpu_seconds)

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join()


def _serve(
    connection: Connection, name: str, optimisations: tuple[str, ...], side: int, accumulation: int, threads: int
) -> None:
    """Build the contestant, tell its size and memory, then time a step for each request, until no more can come."""
    torch.set_num_threads(threads)
    memory = PeakMemory("cpu")
    before = memory.read()
    alone = contestant(name, optimisations, side, accumulation)
    parameters = sum(one.numel() for one in alone.model.parameters())
    peak = alone.peak_bytes()
    alone.step()  # before the answer: no other network works meanwhile
    connection.send((parameters, ((peak - before) / _MIB, peak / _MIB)))
    with contextlib.suppress(EOFError):
        while True:
            connection.recv()
            alone.time_step()
            connection.send((alone.seconds[-1], alone.cpu_seconds[-1]))


def bf16_instructions(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Name the instructions for bfloat16 that this CPU has."""
    flags = cpuinfo.read_text().split() if cpuinfo.exists() else []
    return ", ".join(flag for flag in BF16_INSTRUCTIONS if flag in flags) or "none"
