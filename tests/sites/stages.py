"""A checkout whose cells run in containers, and a stage that trains for minutes: to be ended in the middle."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpustudy.study.load import overlay
from tests.sites.images import give_test_image
from tests.support.checkout import TINY, Checkout, copy_checkout

CELL = "cpu/baseline/r1"
OVERLAY, LONG = "overlay.yaml", "long.yaml"
WAIT_S = 60.0
LONG_ITERATIONS = 5000


def make_place(folder: Path, runtime: str) -> tuple[Checkout, dict[str, str]]:
    """Return a copied checkout whose cells run in ``runtime``, and the environment in which its image is built."""
    checkout = copy_checkout(folder / "check, out")
    stacks, variables = give_test_image(checkout)
    content = overlay(overlay(TINY, stacks), {"sites": {"local": {"runtime": runtime}}})
    checkout.overlay(content, OVERLAY)
    train = {"iterations": LONG_ITERATIONS}
    checkout.overlay(overlay(content, {"workloads": {"demo": {"train": train}}}), LONG)
    return checkout, variables


def run_stage(place: Checkout, file: str = OVERLAY, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run the train stage of the cell and return how it ended."""
    return place.gpustudy("stage", "train", CELL, "--configfile", file, check=False, **extra)


@contextmanager
def training(place: Checkout, log: Path, **extra: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Start a stage of minutes, wait until it trains, and yield its launcher and the folder that it would make."""
    shown = place.gpustudy("why", f"{CELL}/train", "--configfile", LONG, "--json").stdout
    folder = place.root / "results" / "cells" / CELL / f"train-{json.loads(shown)['stages'][0]['key']}"
    command = [sys.executable, "-m", "gpustudy", "stage", "train", CELL, "--configfile", LONG]
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command, cwd=place.root, env=place.environment(**extra), stdout=stream, stderr=stream
        )
    try:
        assert wait_for(lambda: b"iteration" in log.read_bytes()), log.read_text()
        yield process, folder
    finally:
        process.terminate()
        process.wait(WAIT_S)


def wait_for(condition: Callable[[], object], limit_s: float = WAIT_S) -> bool:
    """Wait until ``condition`` holds; False when it does not in time."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False


def processes_with(text: str) -> list[int]:
    """Return the numbers of the processes on whose command line ``text`` stands."""
    folders = (path for path in Path("/proc").iterdir() if path.name.isdigit())
    return [int(folder.name) for folder in folders if text in _command_line(folder)]


def _command_line(folder: Path) -> str:
    try:
        return (folder / "cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:  # it has ended meanwhile
        return ""
