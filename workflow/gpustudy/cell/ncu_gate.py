"""Opens ncu's profiled window around chosen operator calls of a training step.

ncu's own filters cannot take the n-th launch of each stratum: it accepts one ``--kernel-id`` and one ``--kernel-name``
(a second is an error), its invocation numbers count per kernel name alone, and ``--filter-mode per-launch-config``
ignores names and is absent from older versions. So the program itself chooses: a dispatch mode sees every operator
call, forward and backward, and calls cudaProfilerStart before it and cudaProfilerStop after it while the operator
still has calls of that signature to give. Calls with equal operator, shapes, strides, types and integer arguments
launch the same kernels with the same grids, so every stratum's first launch lies inside some first call of a signature.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

HEARTBEAT_EVERY_S = 1.0
"""Seconds between touches of the heartbeat file: the watchdog's proof of progress where the log is buffered."""


class ProfilerWindow:
    """The CUDA profiler API, which opens and closes what ncu profiles."""

    def start(self) -> None:
        """Profile the launches from here on."""
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def stop(self) -> None:
        """Profile no launch from here on."""
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]  # torch leaves it untyped


class OperatorGate(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves the class hook untyped
    """Profiles, per step, the first calls of each operator signature.

    Args:
        quotas: operator name (``aten::add``) to calls of each of its signatures to profile.
        fallback: quota of operators not named.
        window: what to open and close.
        heartbeat: file to touch while calls return, or None.

    Attributes:
        calls: per phase, operator calls seen.
        profiled: per phase, operator calls inside the window.
        phase: the phase that the step is in; set it through ``in_phase``.
    """

    def __init__(
        self,
        quotas: Mapping[str, int],
        fallback: int,
        window: ProfilerWindow,
        heartbeat: Path | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self._quotas, self._fallback, self._window, self._heartbeat = quotas, fallback, window, heartbeat
        self._seen: Counter[Any] = Counter()
        self._last_beat = float("-inf")
        self.calls: Counter[str] = Counter()
        self.profiled: Counter[str] = Counter()
        self.phase = "other"

    def begin_step(self) -> None:
        """Count signatures anew: each profiled step gives its own sample."""
        self._seen.clear()

    def in_phase(self, name: str) -> AbstractContextManager[None]:
        """Say that the step enters phase ``name``; what follows belongs to it until the next."""
        self.phase = name
        return nullcontext()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call ``func``, inside the window where its signature has calls left to give."""
        arguments = kwargs or {}
        self.calls[self.phase] += 1
        self._beat()
        if not self._is_wanted(func, args, arguments):
            return func(*args, **arguments)
        self.profiled[self.phase] += 1
        self._window.start()
        try:
            return func(*args, **arguments)
        finally:
            self._window.stop()

    def _is_wanted(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        signature = (func, describe(args), describe(tuple(sorted(kwargs.items()))))
        self._seen[signature] += 1
        name = func._schema.name
        return self._seen[signature] <= self._quotas.get(name, self._fallback)

    def _beat(self) -> None:
        now = time.monotonic()
        if self._heartbeat is not None and now - self._last_beat >= HEARTBEAT_EVERY_S:
            self._last_beat = now
            self._heartbeat.touch()
            os.utime(self._heartbeat)


def describe(value: Any) -> Any:
    """Return what of an argument decides the kernels: shapes, strides, types and whole numbers, never the data.

    Floating-point numbers (learning rates, scales) are left out: they change from call to call and decide nothing.
    """
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride(), value.dtype, value.device.type
    if isinstance(value, (list, tuple)):
        return tuple(describe(item) for item in value)
    if isinstance(value, float):
        return "float"
    return value if isinstance(value, (bool, int, str, type(None))) else str(value)


def gated(call: Callable[[], Any], gate: OperatorGate) -> Any:
    """Run one step under ``gate``."""
    gate.begin_step()
    with gate:
        return call()
