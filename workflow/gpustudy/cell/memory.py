"""Peak memory: what the allocator held on a CUDA device, what the process held on the CPU."""

from __future__ import annotations

import resource
from pathlib import Path

import torch

_RESET_PEAK = "5"
"""Written to /proc/self/clear_refs it resets the process's peak resident size (proc(5))."""

_KIBIBYTE = 1024
"""Bytes in the kB of /proc/self/status and of ru_maxrss on Linux."""


class PeakMemory:
    """Measures the peak since the last ``reset``.

    Attributes:
        kind: ``device_allocated`` (torch.cuda.max_memory_allocated), ``process_rss`` (peak resident size since
            the reset) or ``process_rss_lifetime`` (where the system does not let a process reset its peak).
    """

    def __init__(self, device: str, proc: Path = Path("/proc/self")) -> None:
        self._proc = proc
        self.kind = "device_allocated" if device == "cuda" else "process_rss"
        self.reset()

    def reset(self) -> None:
        """Start a new peak."""
        if self.kind == "device_allocated":
            torch.cuda.reset_peak_memory_stats()
        elif self.kind == "process_rss":
            try:
                (self._proc / "clear_refs").write_text(_RESET_PEAK)
            except OSError:
                self.kind = "process_rss_lifetime"

    def read(self) -> int:
        """Return the peak in bytes since the last reset."""
        if self.kind == "device_allocated":
            return int(torch.cuda.max_memory_allocated())
        if self.kind == "process_rss":
            status = (self._proc / "status").read_text()
            peak = next((line for line in status.splitlines() if line.startswith("VmHWM:")), None)
            if peak is not None:
                return int(peak.split()[1]) * _KIBIBYTE
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIBIBYTE
