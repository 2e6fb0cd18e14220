"""The micro-batches of an optimiser step at the same time, each on its share of the CPU's threads.

One micro-batch on all threads leaves some idle wherever an operator is too small to be split, or Python works; several
on fewer threads each do not. The price is memory: their activations and gradients exist at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor, nn

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class MicroBatchThreads:
    """Threads that each compute a micro-batch, with a share of PyTorch's intra-op threads.

    Args:
        count: micro-batches of a step.

    Attributes:
        share: intra-op threads of each: those of the caller divided by ``count``, at least one.
        most_at_once: most micro-batches that were seen at work at the same time.
    """

    def __init__(self, count: int) -> None:
        threads = torch.get_num_threads()
        self.share = max(threads // count, 1)
        self.most_at_once = 0
        self._at_once, self._lock = 0, threading.Lock()
        started = threading.Barrier(count + 1)
        self._pool = ThreadPoolExecutor(count, "micro-batch", _take_share, (started,))
        torch.set_num_threads(self.share)  # a thread keeps what holds when it first asks
        try:
            for _ in range(count):
                self._pool.submit(bool)  # each first task starts a thread
            started.wait()
        finally:
            torch.set_num_threads(threads)

    def map(self, function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
        """Return ``function`` of each item, in order, each computed in a thread of its own."""
        waiting = [self._pool.submit(self._watched, function, item) for item in items]
        return [one.result() for one in waiting]

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def _watched(self, function: Callable[[_Item], _Result], item: _Item) -> _Result:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return function(item)
        finally:
            with self._lock:
                self._at_once -= 1


def add_gradients(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    """Add ``gradients`` to those that the parameters hold, as ``backward`` does; None adds nothing.

    A parameter's gradient lies in memory as the parameter does: PyTorch's fused Adam goes through both by their
    addresses alone, so that it would silently pair others.
    """
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            continue
        if parameter.grad is None:
            parameter.grad = torch.empty_like(parameter).copy_(gradient)
        else:
            parameter.grad.add_(gradient)


def _take_share(started: threading.Barrier) -> None:
    torch.get_num_threads()
    started.wait()
