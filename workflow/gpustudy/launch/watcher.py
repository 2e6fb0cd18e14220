"""Ends a stage whose launcher was killed by SIGKILL and could not do so itself.

    python watcher.py GROUP [COMMAND ...]

It reads its standard input, whose other end the launcher holds. A byte says that the group has ended; the end of the
input without one says that the launcher is gone, and the process group GROUP is ended here. COMMAND is run either way.
(The kernel's own signal at a parent's death does not reach a container: entering its namespace clears it.)
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

_GRACE_S = 5.0
"""Seconds between SIGTERM and SIGKILL."""
_POLL_S = 0.1


def watch(group: int, command: list[str]) -> None:
    """Wait for the launcher's word or its end."""
    if not os.read(sys.stdin.fileno(), 1):
        _end(group)
    if command:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _end(group: int) -> None:
    deadline = time.monotonic() + _GRACE_S
    try:
        os.killpg(group, signal.SIGTERM)
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(_POLL_S)
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:  # it has ended
        return


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watch(int(sys.argv[1]), sys.argv[2:])
