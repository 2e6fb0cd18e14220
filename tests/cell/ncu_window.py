"""Windows in place of ncu's; as a program: the profiled one for real on the CPU, each opening logged as a launch."""

from __future__ import annotations

import json
import os
import sys
from itertools import cycle
from pathlib import Path

from gpustudy.base.canonical import key_of
from gpustudy.cell import profiled
from gpustudy.cell.ncu_gate import ProfilerWindow

NAMES = (
    "vectorized_elementwise_kernel",
    "implicit_convolveNd_sgemm",
    "wgrad_alg1_nd_float_engine",
    "reduce_kernel",
)


class LoggingWindow(ProfilerWindow):
    """Writes a line of ncu's log per opening."""

    def __init__(self, log: Path) -> None:
        self._log, self._names, self._number = log, cycle(NAMES), 0

    def start(self) -> None:
        with self._log.open("a") as stream:
            stream.write(f'==PROF== Profiling "{next(self._names)}" - {self._number}: 0%....50%....100% - 9 passes\n')
        self._number += 1

    def stop(self) -> None:
        pass


class CountingWindow(ProfilerWindow):
    """Counts openings, and refuses to be opened twice."""

    def __init__(self) -> None:
        self.opened = 0
        self.is_open = False

    def start(self) -> None:
        assert not self.is_open
        self.is_open = True
        self.opened += 1

    def stop(self) -> None:
        self.is_open = False


def main(words: list[str]) -> int:
    """Run the program with its arguments; the cell's device becomes the CPU."""
    at = words.index("--cell") + 1
    content = json.loads(Path(words[at]).read_text())
    on_cpu = {"device": "cpu", "architecture": "cpu", "device_name": "", "threads": 1, "memory_bytes": None}
    content["document"]["gpu"] |= on_cpu
    content["key"] = key_of(content["document"])
    words[at] = str(Path(words[words.index("--scratch") + 1]) / "cell-on-cpu.json")
    Path(words[at]).write_text(json.dumps(content))
    return profiled.main(words, LoggingWindow(Path(os.environ["FAKE_NCU_LOG"])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
