"""Micro-batches by their number alone, prepared ahead of the training step by a thread.

Data order, timesteps and noise of micro-batch ``i`` come from counter-based generators keyed by the seed and
``i``: they are the same for every device and configuration, and a resumed run needs only ``i``.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gpustudy.medddpm.volumes import PreparedVolumes

__all__ = ["Loader", "MicroBatch", "MicroBatches", "PreparedVolumes"]

_ORDER_STREAM, _NOISE_STREAM = 1, 2
"""Tell the generators of the data order and of the noise apart."""

_PUT_TIMEOUT_S = 0.1
"""How often a thread that waits for room looks whether it should end."""

_JOIN_TIMEOUT_S = 10.0
"""How long ``close`` waits for the thread, which is at most one micro-batch."""


@dataclass(frozen=True)
class MicroBatch:
    """What one forward pass needs.

    Attributes:
        index: number of the micro-batch since the start of training, from 0.
        image: (B, C_image, D, H, W), float32 in [-1, 1].
        mask: (B, C_mask, D, H, W), float32.
        timesteps: (B,), int64.
        noise: standard normal, shape of ``image``.
    """

    index: int
    image: Tensor
    mask: Tensor
    timesteps: Tensor
    noise: Tensor

    def to(self, device: torch.device) -> MicroBatch:
        """Return the micro-batch on ``device``; from pinned memory the copies do not block."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> MicroBatch:
        """Return the micro-batch in page-locked memory."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> MicroBatch:
        tensors = (self.image, self.mask, self.timesteps, self.noise)
        return MicroBatch(self.index, *map(change, tensors))


class MicroBatches:
    """The endless sequence of micro-batches, each made from its number.

    Every pass over the cases is in a random order of its own; a batch may span two passes.

    Args:
        volumes: prepared volumes.
        batch_size: samples in a micro-batch.
        timesteps: T; each sample's timestep is uniform in 0..T-1.
        seed: of data order, timesteps and noise.
    """

    def __init__(self, volumes: PreparedVolumes, batch_size: int, timesteps: int, seed: int) -> None:
        self._volumes, self._batch_size, self._timesteps, self._seed = volumes, batch_size, timesteps, seed
        self._order: tuple[int, npt.NDArray[np.int64]] = (-1, np.empty(0, np.int64))

    def __getitem__(self, index: int) -> MicroBatch:
        """Return micro-batch ``index`` in ordinary memory."""
        first = index * self._batch_size
        cases = [self._case(position) for position in range(first, first + self._batch_size)]
        image, mask = self._volumes.images[cases], self._volumes.masks[cases]
        generator = self._generator(_NOISE_STREAM, index)
        timesteps = generator.integers(self._timesteps, size=self._batch_size, dtype=np.int64)
        noise = generator.standard_normal(image.shape, dtype=np.float32)
        return MicroBatch(index, *(torch.from_numpy(array) for array in (image, mask, timesteps, noise)))

    def _case(self, position: int) -> int:
        """Return the case at a position of the endless sequence of samples."""
        epoch, place = divmod(position, self._volumes.count)
        if self._order[0] != epoch:
            self._order = (epoch, self._generator(_ORDER_STREAM, epoch).permutation(self._volumes.count))
        return int(self._order[1][place])

    def _generator(self, stream: int, counter: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(np.random.SeedSequence((self._seed, stream, counter))))


class Loader:
    """Hands out micro-batches in order, prepared ahead by a thread.

    The thread reads the volumes, draws the noise and, for CUDA, copies into page-locked memory. An error in it
    is raised by the call of ``get`` that would have returned the micro-batch.

    Args:
        batches: the sequence.
        start: number of the first micro-batch.
        pin_memory: copy into page-locked memory.
        depth: micro-batches held ready.
    """

    def __init__(self, batches: MicroBatches, start: int = 0, pin_memory: bool = False, depth: int = 4) -> None:
        self._batches, self._pin_memory = batches, pin_memory
        self._ready: queue.Queue[MicroBatch | Exception] = queue.Queue(maxsize=depth)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._prepare, args=(start,), name="loader", daemon=True)
        self._thread.start()

    def get(self) -> tuple[MicroBatch, int]:
        """Return the next micro-batch and how long it was waited for, in nanoseconds."""
        if self._ends.is_set():
            raise RuntimeError("the loader is closed")
        start_ns = time.perf_counter_ns()
        item = self._ready.get()
        waited_ns = time.perf_counter_ns() - start_ns
        if isinstance(item, Exception):
            self.close()
            raise item
        return item, waited_ns

    def close(self) -> None:
        """End the thread; may be called more than once."""
        self._ends.set()
        self._thread.join(_JOIN_TIMEOUT_S)

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _prepare(self, index: int) -> None:
        while not self._ends.is_set():
            try:
                item: MicroBatch | Exception = self._batches[index]
                if self._pin_memory and isinstance(item, MicroBatch):
                    item = item.pinned()
            except Exception as error:  # whatever it is: the main thread raises it
                item = error
            self._put(item)
            if isinstance(item, Exception):
                return
            index += 1

    def _put(self, item: MicroBatch | Exception) -> None:
        """Wait for room, but not after ``close``."""
        while not self._ends.is_set():
            try:
                self._ready.put(item, timeout=_PUT_TIMEOUT_S)
            except queue.Full:
                continue
            return
