"""Crafted raw stage directories, as the stages of a cell leave them. Nothing in them was measured."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy import ndimage

from gpustudy.base.canonical import key_of
from gpustudy.base.status import Status, write_status
from tests.metrics.traces import Event, annotation, host, write_trace

STEP_NS = (900, 100, 130, 110, 120, 140, 105, 115)
"""Time of each step in ms times 1e6; the first is warm-up."""


def finish(raw: Path, stage: str, *, state: str = "done", reason: str = "", gpu: str = "cpu") -> Path:
    """Write cell.json and status.json into a raw directory and return it."""
    raw.mkdir(parents=True, exist_ok=True)
    document = {"schema": 1, "stage": stage, "gpu": {"name": gpu}, "repeat": 2, "seed": 2028}
    key = key_of(document)
    cell = {"key": key, "labels": {"config": "baseline"}, "document": document}
    (raw / "cell.json").write_text(json.dumps(cell))
    write_status(raw, Status(stage, key, state, reason, "A sentence." if reason else ""))
    return raw


def train(raw: Path) -> Path:
    """A train stage of one warm-up and seven measured steps."""
    raw.mkdir(parents=True)
    lines = [
        {
            "iteration": number,
            "phase": "warmup" if number == 1 else "measured",
            "step_ns": step * 1_000_000,
            "loss": 1 / number,
            "data_wait_ns": 1_000_000,
            "peak_memory_bytes": 1000 + number,
        }
        for number, step in enumerate(STEP_NS, start=1)
    ]
    (raw / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    memory = {"peak_bytes": 1008, "kind": "process_rss", "estimate_bytes": 900}
    (raw / "memory.json").write_text(json.dumps(memory))
    return finish(raw, "train")


def _census_step(start: int) -> list[Event]:
    """1 ms: forward 300 us with a product of 4096 FLOP, backward 500 us, optimiser 200 us."""
    shapes = {"Input Dims": [[8, 16], [16, 16]]}
    return [
        annotation("gpustudy.step", start, 1000),
        annotation("gpustudy.forward", start, 300),
        host("aten::mm", start + 100, 150, **shapes),
        annotation("gpustudy.backward", start + 300, 500),
        host("aten::mm", start + 350, 100, **shapes),
        host("aten::mm", start + 450, 100, **shapes),
        annotation("gpustudy.optimiser", start + 800, 200),
        host("aten::addcdiv_", start + 850, 100),
    ]


def census(raw: Path, *, extra: tuple[Event, ...] = (), counted: int = 3 * 4096) -> Path:
    """A census of two equal steps, with a layout run of three calls."""
    raw.mkdir(parents=True)
    write_trace(raw / "trace.json.gz", [*_census_step(0), *_census_step(2000), *extra])
    (raw / "flops.json").write_text(json.dumps({"forward": {"aten.mm": 4096}, "backward": {}, "total": counted}))
    volume = {"shape": [1, 2, 4, 4, 4], "dtype": "float32", "format": "contiguous"}
    last = volume | {"format": "channels_last_3d"}
    bias = {"shape": [2], "dtype": "float32", "format": "contiguous"}
    rows: list[dict[str, Any]] = [
        _layout("aten.convolution", [volume, volume, bias], volume),
        _layout("aten.convolution", [last, last, bias], last),
        _layout("aten.clone", [last], volume, "contiguous"),
    ]
    with gzip.open(raw / "layouts.jsonl.gz", "wt") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)
    return finish(raw, "census")


def _layout(
    operator: str, inputs: list[dict[str, Any]], output: dict[str, Any], conversion: str | None = None
) -> dict[str, Any]:
    return {
        "phase": "forward",
        "module": "input_blocks.0",
        "op": operator,
        "inputs": inputs,
        "output": output,
        "conversion": conversion,
    }


def volumes(count: int, side: int, seed: int, channels: int = 1) -> np.ndarray:
    """Smooth random volumes (N, C, D, H, W) in [-1, 1]: a bright ball with a texture, each a little different."""
    generator = np.random.default_rng(seed)
    axes = np.meshgrid(*[np.linspace(-1, 1, side)] * 3, indexing="ij")
    radius = np.sqrt(sum(axis**2 for axis in axes))
    made = []
    for _ in range(count * channels):
        texture = ndimage.gaussian_filter(generator.standard_normal((side, side, side)), 1.5)
        ball = radius < generator.uniform(0.6, 0.8)
        made.append(np.where(ball, 0.3 + 2 * texture, -1.0))
    return np.clip(made, -1, 1).reshape(count, channels, side, side, side).astype(np.float32)


def samples(raw: Path, *, count: int = 4, side: int = 16, **changes: Any) -> Path:
    """A quality stage: generated volumes like the real ones, of an own seed; ``changes`` replace or drop arrays."""
    raw.mkdir(parents=True)
    real = volumes(count, side, seed=1)
    foreground = (real[:, 0] > -0.9).astype(np.uint8)
    foreground[:, : side // 2] *= 2  # two tissues
    arrays: dict[str, Any] = {
        "samples": volumes(count, side, seed=2),
        "real": real,
        "masks": foreground[:, None].astype(np.float32),
        "labels": foreground,
        "case_ids": np.array([f"case {index}" for index in range(count)]),
        "seeds": np.arange(count),
        "affine": np.array([[2.0, 0, 0, -10], [0, 2, 0, -20], [0, 0, 3, -30], [0, 0, 0, 1]]),
    }
    kept = {name: value for name, value in (arrays | changes).items() if value is not None}
    np.savez(raw / "samples.npz", **kept)
    return finish(raw, "quality")
