"""Export and import of a gigabyte, beside sha256sum and cp of the same bytes.

Run: python -m pytest tests/bench/bench_archive.py --benchmark-only

Goal: each at most 3 times as long as sha256sum plus cp. All are timed in one run, on warm files, flushed to disk.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gpustudy.base.status import Status, write_status
from gpustudy.study.cells import Cell, Keys
from gpustudy.study.load import Effective, effective, read_yaml
from tests.archive.helpers import export, take
from tests.support.checkout import REPOSITORY
from tests.support.crafted_results import craft_stage

FILES = 8
FILE_BYTES = 128 * 2**20
MOST_TIMES = 3.0


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Effective:
    """A study with one gigabyte of raw files, as checkpoints are: eight stages with a file of 128 MiB each."""
    study = effective([(Path("config.yaml"), read_yaml(REPOSITORY / "config.yaml"))])
    found = replace(study, results=tmp_path_factory.mktemp("archive") / "there")
    keys = Keys(found)
    block = os.urandom(2**20)
    cells = [Cell("a100", config, repeat) for config in ("default", "baseline", "opt1", "opt2") for repeat in (1, 2)]
    for cell in cells[:FILES]:
        raw, _ = craft_stage(found, keys, cell, "train", metrics=False)
        with (raw / "checkpoint.pt").open("wb") as stream:
            for _ in range(FILE_BYTES // len(block)):
                stream.write(block)
        write_status(raw, Status("train", keys.stage_key(cell, "train"), "done"))
    return found


@pytest.fixture(scope="module")
def plain_s(there: Effective, tmp_path_factory: pytest.TempPathFactory) -> float:
    """Seconds of sha256sum plus cp of the same bytes, flushed to disk as the archive is."""
    files = sorted(there.results.rglob("checkpoint.pt"))
    target = tmp_path_factory.mktemp("copy")
    os.sync()
    start = time.monotonic()
    subprocess.run(["sha256sum", *files], check=True, stdout=subprocess.DEVNULL)
    for number, file in enumerate(files):
        subprocess.run(["cp", file, target / str(number)], check=True)
    os.sync()
    seconds = time.monotonic() - start
    shutil.rmtree(target)
    return seconds


def timed(benchmark, plain_s, function, *arguments):
    start = time.monotonic()
    benchmark.pedantic(function, arguments, rounds=1)
    seconds = time.monotonic() - start
    benchmark.extra_info |= {
        "bytes": FILES * FILE_BYTES,
        "seconds": round(seconds, 2),
        "sha256sum_and_cp_seconds": round(plain_s, 2),
        "times": round(seconds / plain_s, 2),
    }
    print(f"\n{benchmark.extra_info}")
    assert seconds <= MOST_TIMES * plain_s


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("file") / "a.zip"


def test_export_of_a_gigabyte(benchmark, there, archive, plain_s):
    timed(benchmark, plain_s, export, there, archive)


def test_import_of_a_gigabyte(benchmark, there, archive, plain_s, tmp_path):
    if not archive.exists():
        export(there, archive)
    timed(benchmark, plain_s, take, replace(there, results=tmp_path / "here"), archive)
