"""Ctrl-C and a scheduler's SIGTERM as a request to stop after the present step."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Yield a list that receives the number of a first SIGINT or SIGTERM; a second one interrupts at once.

    Outside the main thread, where Python lets nobody handle signals, the list stays empty.
    """
    requests: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield requests
        return

    def note(number: int, frame: FrameType | None) -> None:
        if requests:
            raise KeyboardInterrupt
        requests.append(number)
        print("stopping after this step; once more to stop at once.", file=sys.stderr, flush=True)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
