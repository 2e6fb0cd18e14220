"""Step time and peak memory of training beside MONAI's U-Net with as many parameters, as ratios in one run.

Run: make bench, or this alone: python -m pytest tests/bench/bench_peers.py --benchmark-only
GPUSTUDY_BENCH_ROUNDS=9 takes more rounds than the default, which ends within ten minutes on two cores.

Every round steps each network once, in turn, so that what disturbs the machine disturbs all; MONAI's also a second time
with what is no part of a network: the allocator's setting of ``reuse_memory`` and micro-batches at the same time. That
setting holds for a process, so each network has one of its own, and only one works at a time. A ratio is that of one
round to MONAI as it comes, given as median (lowest to highest). Processor time says more where other programs run. A
step is forward and backward of one or two micro-batches and Adam, by the same lines for all networks. Memory is the
peak resident size of the process: 'training' leaves out what the interpreter and its libraries hold before, 'process'
is all of it.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from typing import Any

import pytest

from gpustudy.study.load import load_study
from tests.bench.peers import MONAI, MONAI_HELPED, Peer, bf16_instructions

CONFIGS = ("baseline", "tuned", "fast")
THREADS = 2

ROUNDS = {32: 5, 64: 3}
"""Side of the volume, in voxels -> rounds."""

MICRO_BATCHES = {32: 2, 64: 1}
"""Side -> micro-batches of a step: two as published, one where a step takes long."""

TIME_GOALS = {"tuned": {32: 0.95, 64: 1.0}, "fast": {32: 0.40, 64: 0.40}}
"""Config -> side -> highest ratio of step times to aim at; ``baseline`` has none, being the published sequence."""

MEMORY_GOALS = {"tuned": 0.9}


@pytest.fixture(scope="module")
def optimisations() -> dict[str, tuple[str, ...]]:
    """Config -> optimisations, as config.yaml defines them."""
    study = load_study()
    return {name: tuple(study.configs[name].optimisations) for name in CONFIGS}


@pytest.mark.parametrize("side", [32, 64])
def test_beside_monai(benchmark: Any, optimisations: dict[str, tuple[str, ...]], side: int) -> None:
    pytest.importorskip("monai.networks.nets")
    names = (MONAI, MONAI_HELPED, *CONFIGS)
    peers = {name: Peer(name, optimisations.get(name, ()), side, MICRO_BATCHES[side], THREADS) for name in names}
    parameters = {peer.parameters for peer in peers.values()}
    assert len(parameters) == 1

    def one_round() -> None:
        for peer in peers.values():
            peer.time_step()

    try:
        benchmark.pedantic(one_round, rounds=int(os.environ.get("GPUSTUDY_BENCH_ROUNDS", ROUNDS[side])))
    finally:
        for peer in peers.values():
            peer.close()
    first = peers[MONAI]
    benchmark.extra_info |= {
        "networks": f"{parameters.pop():,} parameters each, volume {side} x {side} x {side}, {THREADS} threads",
        "bfloat16 instructions of this CPU": bf16_instructions(),
        "monai": f"{statistics.median(first.seconds):.2f} s per step of {MICRO_BATCHES[side]} micro-batches, "
        f"{first.memory_mib[0]:.0f} MiB for training, {first.memory_mib[1]:.0f} MiB in the process",
    }
    for name in (MONAI_HELPED, *CONFIGS):
        own = peers[name]
        wall, cpu = _ratios(own.seconds, first.seconds), _ratios(own.cpu_seconds, first.cpu_seconds)
        training, process = _ratios(own.memory_mib, first.memory_mib)
        benchmark.extra_info[f"{name} {' + '.join(optimisations.get(name, ()))}".strip()] = (
            f"time {_spread(wall)}{_goal(TIME_GOALS.get(name, {}).get(side))}, processor time {_spread(cpu)}, "
            f"memory {training:.3f} for training{_goal(MEMORY_GOALS.get(name))}, {process:.3f} in the process"
        )


def _ratios(own: Sequence[float], other: Sequence[float]) -> list[float]:
    return [mine / theirs for mine, theirs in zip(own, other, strict=True)]


def _spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def _goal(limit: float | None) -> str:
    return "" if limit is None else f" [goal: at most {limit:g}]"
