"""Planning a study of 10,000 cells that is up to date, beside a bare workflow of as many jobs; and its status.

Run: python -m pytest tests/bench/bench_planning.py --benchmark-only

Goals: at most 1.3 times Snakemake's own time for the bare workflow, 1 GB, and 3 s for 'gpustudy status'. Times are CPU
seconds of the child processes, which another program on the same cores does not change much.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.support.checkout import REPOSITORY, Checkout, copy_checkout

CONFIGS = 100
REPEATS = 100
STAGES = ("train", "census", "quality")
CELLS = CONFIGS * REPEATS
MOST_TIMES = 1.3
MOST_BYTES = 10**9
MOST_STATUS_S = 3.0
KIB = 1024

_CRAFT = """
import os
os.fsync = lambda descriptor: None
from pathlib import Path
from gpustudy.study.load import load_effective
from gpustudy.study.workplan import Workplan
from tests.support.crafted_results import craft
effective = load_effective()
craft(effective, ("cpu",))
plan = Workplan(effective)
for path in map(Path, [*plan.markers.values(), plan.gathered]):
    path.parent.mkdir(exist_ok=True)
    path.touch()
"""

_BARE = """
configs, repeats, stages = {configs}, {repeats}, {stages}
cells = [(c, r, s) for c in range(configs) for r in range(repeats) for s in stages]

rule all:
    input: ["tables/c%d/r%d/%s.json" % cell for cell in cells]

rule table:
    input: "raw/c{{config}}/r{{repeat}}/{{stage}}.json"
    output: "tables/c{{config}}/r{{repeat}}/{{stage}}.json"
    shell: "cp {{input}} {{output}}"

rule stage:
    output: "raw/c{{config}}/r{{repeat}}/{{stage}}.json"
    shell: "touch {{output}}"
"""


@dataclass(frozen=True)
class Cost:
    """What a child process took: CPU seconds, and its largest resident memory in bytes."""

    seconds: float
    memory_bytes: int
    output: str


def cost(command: list[str], folder: Path, environment: dict[str, str]) -> Cost:
    """Run a command and return what it took."""
    log = folder / "output.log"
    with log.open("w") as stream:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=stream, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, log.read_text()[-2000:]
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * KIB, log.read_text())


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout whose study has 10,000 cells, all crafted and current."""
    checkout = copy_checkout(tmp_path_factory.mktemp("study") / "checkout")
    path = checkout.root / "config.yaml"
    content = yaml.safe_load(path.read_text())
    content["gpus"] = {"cpu": content["gpus"]["cpu"]}
    for site in content["sites"].values():
        site["gpus"] = [gpu for gpu in site["gpus"] if gpu == "cpu"]
    content |= {"repeats": REPEATS, "configs": {f"c{number}": {"optimisations": []} for number in range(CONFIGS)}}
    path.write_text(yaml.safe_dump(content))
    places = os.pathsep.join([str(checkout.root / "workflow"), str(REPOSITORY)])
    environment = checkout.environment(PYTHONPATH=places)
    subprocess.run([sys.executable, "-c", _CRAFT], cwd=checkout.root, env=environment, check=True)
    return checkout


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Cost:
    """What Snakemake takes to find that a bare workflow of as many jobs has nothing to do."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "Snakefile").write_text(_BARE.format(configs=CONFIGS, repeats=REPEATS, stages=STAGES))
    for room in ("raw", "tables"):
        for config in range(CONFIGS):
            for repeat in range(REPEATS):
                place = folder / room / f"c{config}" / f"r{repeat}"
                place.mkdir(parents=True)
                for stage in STAGES:
                    (place / f"{stage}.json").touch()
    found = cost([sys.executable, "-m", "snakemake", "-n", "-q", "--cores", "1"], folder, dict(os.environ))
    assert "Nothing to be done" in found.output
    return found


def test_planning_ten_thousand_current_cells(benchmark, study, bare):
    command = [sys.executable, "-m", "snakemake", "-n", "-q", "--cores", "1"]
    found = benchmark.pedantic(cost, (command, study.root, study.environment()), rounds=1)
    assert "Nothing to be done" in found.output
    ratio = found.seconds / bare.seconds
    benchmark.extra_info |= {
        "cells": CELLS,
        "seconds": round(found.seconds, 1),
        "bare_seconds": round(bare.seconds, 1),
        "times_bare": round(ratio, 2),
        "memory_mb": round(found.memory_bytes / 1e6),
        "bare_memory_mb": round(bare.memory_bytes / 1e6),
    }
    print(f"\n{benchmark.extra_info}")
    assert ratio <= MOST_TIMES
    assert found.memory_bytes <= MOST_BYTES


def test_status_of_ten_thousand_cells(benchmark, study):
    command = [sys.executable, "-m", "gpustudy", "status"]
    found = benchmark.pedantic(cost, (command, study.root, study.environment()), rounds=3, warmup_rounds=1)
    benchmark.extra_info |= {"cells": CELLS, "seconds": round(found.seconds, 2)}
    print(f"\n{benchmark.extra_info}")
    assert found.seconds < MOST_STATUS_S
