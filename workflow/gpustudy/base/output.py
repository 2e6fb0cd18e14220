"""Standard output that says so when it cannot be written: a full disk, a closed descriptor."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, TextIO

_NAME = "standard output"


@contextmanager
def guarded_output() -> Iterator[None]:
    """Guard ``sys.stdout``: a failure to print is an ``OSError`` that names it, even where argparse swallows it.

    What was printed has reached its place when the context ends.

    Raises:
        OSError: something could not be printed; its ``filename`` is ``standard output``.
    """
    real: TextIO | None = sys.stdout
    guard = _Guard(real)
    try:
        with redirect_stdout(guard):
            yield
            guard.flush()
    finally:
        if guard.failure is not None:
            _drop(real)


class _Guard:
    """What verbs print to. ``failure`` is the first failure, with standard output as its file."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.failure: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        """Have everything else that the stream has, such as ``isatty``."""
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write ``text``, or fail by name; a closed stream fails as it does in other programs."""
        try:
            if self._stream is None:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            return self._stream.write(text)
        except OSError as error:
            raise self._named(error) from error

    def flush(self) -> None:
        """Flush, or fail by name; what failed before fails again."""
        if self.failure is not None:
            raise self.failure
        if self._stream is None:
            return
        try:
            self._stream.flush()
        except OSError as error:
            raise self._named(error) from error

    def _named(self, error: OSError) -> OSError:
        self.failure = OSError(error.errno, error.strerror, _NAME)
        return self.failure


def _drop(stream: TextIO | None) -> None:
    """Send what could not be printed nowhere, so that Python does not try again, with a traceback, at its end."""
    if stream is None:
        return
    with suppress(OSError, ValueError):
        stream.flush()
        return
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
