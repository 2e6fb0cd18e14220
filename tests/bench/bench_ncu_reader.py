"""Speed and memory of the report reader: a report of 2,001 launches and 69 MB, made by repeating a real one's blocks.

Run: python -m pytest tests/bench/bench_ncu_reader.py --benchmark-only

Numbers differ between machines, so each benchmark also says how many times as long as hashing the same file it takes,
and the last one compares four times the launches with one. Goals on two cores: catalogue 2.5 s, every metric 8 s,
500 MB for all processes together.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpustudy.base.digests import file_sha256
from gpustudy.metrics.ncu.container import PAYLOAD_BYTES, STRINGS, walk_whole
from gpustudy.metrics.ncu.extract import extract
from gpustudy.metrics.ncu.wire import decode, encode

REAL = "speedy_scan__profile.ncu-rep"
LAUNCHES = 2001
LAUNCH_BYTES = 34_300
"""What a launch of a real profile with sections and rules takes, without source counters."""

_METRIC = 13
_LENGTH = struct.Struct("<I")


def grow(source: Path, target: Path, launches: int) -> None:
    """Write a report with the first launch of ``source`` many times, cut to ``LAUNCH_BYTES``, without sources."""
    container = walk_whole(source)
    content = source.read_bytes()
    with target.open("wb") as stream:
        stream.write(content[: container.blocks[0].offset])
        for block in container.blocks:
            if not block.results and not block.sources:
                stream.write(content[block.offset : block.end])
        first = next(block for block in container.blocks if block.results)
        payload = _slim(content[first.end - _payload_bytes(first.header) : first.end])
        named = [field for field in first.header if field[0] != PAYLOAD_BYTES]
        repeated = [field for field in named if field[0] != STRINGS]
        for header in (named, *(repeated for _ in range(launches - 1))):
            stream.write(_prefixed(encode([*header, (PAYLOAD_BYTES, 0, len(payload))])) + payload)


def _payload_bytes(header: list[Any]) -> int:
    return int(next(value for number, _, value in header if number == PAYLOAD_BYTES))


def _slim(payload: bytes) -> bytes:
    """Leave out the longest metrics (those with an instance for each source line) until the launch is short enough."""
    fields = decode(payload[_LENGTH.size :])
    longest = sorted(
        (index for index, (number, _, _) in enumerate(fields) if number == _METRIC),
        key=lambda index: -len(fields[index][2]),  # type: ignore[arg-type]  # metrics are bytes
    )
    size, left_out = len(payload), set()
    for index in longest:
        if size <= LAUNCH_BYTES:
            break
        left_out.add(index)
        size -= len(encode([fields[index]]))
    return _prefixed(encode(field for index, field in enumerate(fields) if index not in left_out))


def _prefixed(message: bytes) -> bytes:
    return _LENGTH.pack(len(message)) + message


@pytest.fixture(scope="module")
def grown(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("grown") / "grown.ncu-rep"
    grow(shared_data / "ncu" / REAL, path, LAUNCHES)
    yield path
    path.unlink()


class PeakMemory:
    """Highest memory of this process and its children together while a block runs, in MB; Linux alone."""

    def __enter__(self) -> PeakMemory:
        self.mb, self._is_over = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(0.02):
            found = [int(word) for task in Path("/proc/self/task").iterdir() for word in _words(task / "children")]
            self.mb = max(self.mb, sum(_share_mb(str(process)) for process in ("self", *found)))


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _share_mb(process: str) -> float:
    """Proportional share of memory: pages that several processes use count once."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


def measure(benchmark: Any, report: Path, out: Path, *, all_metrics: bool) -> None:
    started = time.perf_counter()
    file_sha256(report)
    hashing_s = time.perf_counter() - started
    with PeakMemory() as memory:
        benchmark.pedantic(lambda: extract([report], out, all_metrics=all_metrics), rounds=1)
    benchmark.extra_info |= {
        "times_hashing": round(benchmark.stats["mean"] / hashing_s, 1),
        "peak_mb": round(memory.mb),
        "report_mb": round(report.stat().st_size / 1e6, 1),
    }


def test_catalogue(benchmark: Any, grown: Path, tmp_path: Path) -> None:
    measure(benchmark, grown, tmp_path / "out", all_metrics=False)


def test_every_metric(benchmark: Any, grown: Path, tmp_path: Path) -> None:
    measure(benchmark, grown, tmp_path / "out", all_metrics=True)


def test_four_times_the_launches(benchmark: Any, grown: Path, shared_data: Path, tmp_path: Path) -> None:
    large = tmp_path / "large.ncu-rep"
    grow(shared_data / "ncu" / REAL, large, 4 * LAUNCHES)
    one_s = _seconds(lambda: extract([grown], tmp_path / "one", all_metrics=False))
    measure(benchmark, large, tmp_path / "out", all_metrics=False)
    benchmark.extra_info["times_the_time_of_one"] = round(benchmark.stats["mean"] / one_s, 2)
    large.unlink()


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
