"""A progress line that a person can follow: which cell, which step, time left."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_LINE_EVERY_S = 2.0
"""Seconds between lines, so that a log of a long run stays short."""


class Progress:
    """Prints ``LABEL: NOUN 12/25, 3.20 s each, 41 s left`` to standard error, at most every two seconds.

    The first and the last step always print.
    """

    def __init__(self, label: str, total: int, noun: str = "iteration", stream: TextIO | None = None) -> None:
        self._label, self._total, self._noun = label, total, noun
        self._stream = sys.stderr if stream is None else stream
        self._start = time.monotonic()
        self._last_line = float("-inf")

    def step(self, done: int, note: str = "") -> None:
        """Say that ``done`` of the total are complete; ``note`` follows in the line."""
        now = time.monotonic()
        if 1 < done < self._total and now - self._last_line < _LINE_EVERY_S:
            return
        self._last_line = now
        each = (now - self._start) / max(done, 1)
        left = each * (self._total - done)
        text = f"{self._label}: {self._noun} {done}/{self._total}, {each:.2f} s each, {left:.0f} s left"
        print(f"{text}, {note}" if note else text, file=self._stream, flush=True)
