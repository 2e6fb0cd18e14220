"""What the C library does with memory that is freed: give it back to the system, or keep it for the next tensor.

PyTorch takes every CPU tensor from the C library's ``malloc``. glibc gives large blocks (above 32 MiB always) back to
the system when they are freed, which then clears every page again for the next tensor: a page fault per 4 KiB. The
switches are those of mallopt(3); they hold for the whole process. A heap that is kept is asked for in huge pages, too
(madvise(2)), which spare the processor most of its address translation; a kernel that has none gives ordinary ones.
"""

from __future__ import annotations

import ctypes
import mmap
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gpustudy.medddpm.memory import available_bytes

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
"""Parameters of mallopt, from glibc's malloc.h."""

_KEEPING = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1), (_M_ARENA_MAX, 1))
"""No block is mapped on its own, the top of the heap is never given back, and all threads share that heap: those of
other threads are limited to 64 MiB and give memory back."""

PROBED_BYTES = 36 << 20
"""Size of the block whose page faults ``page_faults_of_reuse`` counts: little above what glibc keeps by itself, as it
stays with the process where memory is kept."""

_FREED_BYTES = 40 << 20
"""Size of the block that is freed before: larger, as small blocks may take a part of its place."""


def can_keep_memory() -> bool:
    """Tell whether the C library has ``mallopt``: glibc has, musl and macOS have not."""
    return _mallopt() is not None


def keep_freed_memory() -> bool:
    """Keep memory that is freed from now on, in huge pages where there are any.

    Returns:
        Whether the C library took the switches.
    """
    mallopt = _mallopt()
    if mallopt is None or not all(mallopt(*value) for value in _KEEPING):
        return False
    _ask_for_huge_pages()
    return True


def heap_in_huge_pages_bytes(smaps: Path = Path("/proc/self/smaps")) -> int:
    """Return how much of the heap lies in huge pages; 0 where the system does not tell (``smaps`` as in proc(5))."""
    if not smaps.exists():
        return 0
    mappings = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", smaps.read_text(), flags=re.MULTILINE)
    found = (re.search(r"^AnonHugePages: +(\d+) kB", one, re.MULTILINE) for one in mappings if "[heap]" in one)
    return sum(int(match[1]) << 10 for match in found if match)


def page_faults_of_reuse() -> int:
    """Return the page faults of writing a tensor of 36 MiB right after a larger one was written and freed.

    Where memory is kept there are next to none; else there is one for each page, or for each 2 MiB under huge pages.
    The least of three tries, as the heap does not always fill the newest hole first.
    """
    return min(_page_faults_of_reuse() for _ in range(3))


def _ask_for_huge_pages() -> None:
    """Grow the heap by half of the free memory, of which nothing is used yet, and ask for huge pages there."""
    library: Any = ctypes.CDLL(None)
    malloc, free, madvise = library.malloc, library.free, library.madvise
    malloc.restype, malloc.argtypes, free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    size = (available_bytes(torch.device("cpu")) or 0) // 2
    while size > PROBED_BYTES:
        address = malloc(size)
        if address is not None:
            start = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE
            madvise(start, size - (start - address), mmap.MADV_HUGEPAGE)
            free(address)
            return
        size //= 2  # less than that may be within the limits of this process


def _page_faults_of_reuse() -> int:
    _write_block(_FREED_BYTES)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    _write_block(PROBED_BYTES)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def _write_block(size: int) -> None:
    torch.empty(size, dtype=torch.uint8).fill_(1)


def _mallopt() -> Callable[..., int] | None:
    library: Any = ctypes.CDLL(None)
    return getattr(library, "mallopt", None)
