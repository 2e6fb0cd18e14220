"""A crafted survey: tables with known answers, written through the writer that the metrics room uses.

Nothing here was measured; the origin of every value says so.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from gpustudy.metrics.schemas import Identity, write_table
from gpustudy.study.load import read_yaml, validate
from gpustudy.study.models import Study
from gpustudy.study.states import CellState, StageState, Survey

REPOSITORY = Path(__file__).resolve().parents[2]
STAGES = ("train", "census", "quality")
GIB = 2**30

CLASS_NS = {  # (phase, class) -> ns per step of a baseline census
    ("forward", "convolution"): 300_000_000,
    ("forward", "normalisation"): 100_000_000,
    ("backward", "convolution"): 500_000_000,
    ("backward", "elementwise"): 60_000_000,
    ("optimiser", "optimizer"): 40_000_000,
    ("data", "copy"): 5_000_000,
}
QUALITY = {  # (quantity, scope) -> value
    ("ms_ssim_generated", "pairs"): 0.40,
    ("ms_ssim_real", "pairs"): 0.62,
    ("mmd2_rbf", "total"): 0.013,
    ("mmd_p_value", "total"): 0.04,
    ("histogram_distance", "label_1"): 0.11,
    ("histogram_distance", "label_2"): 0.17,
    ("mask_fidelity", "foreground"): 0.71,
    ("mask_fidelity_real", "foreground"): 0.64,
}


@cache
def load_study_of_checkout() -> Study:
    """The study of config.yaml: descriptions and sites come from it, cells from the crafted survey."""
    return validate([(REPOSITORY / "config.yaml", read_yaml(REPOSITORY / "config.yaml"))])


class Crafted:
    """Builds a survey cell by cell."""

    def __init__(self, root: Path, origin: str = "crafted") -> None:
        self.root, self.origin = root, origin
        self.cells: list[CellState] = []

    def survey(self, site: str = "local") -> Survey:
        return Survey(load_study_of_checkout(), site, self.root, tuple(self.cells))

    def done(
        self,
        gpu: str,
        config: str,
        repeat: int,
        step_s: Sequence[float],
        *,
        loss: Sequence[float] | None = None,
        peak_bytes: int = 2 * GIB,
        slower: float = 1.0,
        conversions: Iterable[tuple[str, int, int]] = (),
        stages: Sequence[str] = STAGES,
        null_control: tuple[str, ...] = (),
        accepted: bool = False,
        quality_shift: float = 0.0,
    ) -> None:
        """Add a done cell whose measured steps take ``step_s`` seconds, after one warm-up step of ten times that."""
        made = []
        for stage in STAGES:
            folder = self.root / "metrics" / gpu / config / f"r{repeat}" / f"{stage}-{stage[:4]}00{repeat}"
            identity = Identity(gpu, config, repeat, f"{stage[:4]}00{repeat}")
            if stage in stages:
                if stage == "train":
                    self._train(folder, identity, step_s, loss, peak_bytes)
                elif stage == "census":
                    self._census(folder, identity, slower, conversions)
                else:
                    self._quality(folder, identity, quality_shift)
                (folder / "metrics.json").write_text(json.dumps(manifest(stage, identity)))
            made.append(
                _stage(
                    stage, identity.key, "done" if stage in stages else "missing", folder if stage in stages else None
                )
            )
        state = "done" if set(stages) == set(STAGES) else "missing"
        self.cells.append(CellState(gpu, config, repeat, state, "", null_control, accepted, tuple(made)))

    def absent(self, gpu: str, config: str, repeat: int, state: str, reason: str = "") -> None:
        """Add a cell without any data."""
        stages = tuple(
            _stage(stage, f"{stage[:4]}00{repeat}", state.removeprefix("foreign-"), None, reason) for stage in STAGES
        )
        self.cells.append(CellState(gpu, config, repeat, state, reason, (), False, stages))

    def _train(
        self, folder: Path, identity: Identity, step_s: Sequence[float], loss: Sequence[float] | None, peak: int
    ) -> None:
        times = [10 * step_s[0], *step_s]
        losses = list(loss or [1.0 / (position + 1) for position in range(len(times))])
        rows = [
            {
                "iteration": position + 1,
                "phase": "measured" if position else "warmup",
                "step_ns": round(seconds * 1e9),
                "loss": losses[position],
                "data_wait_ns": 1000,
                "peak_memory_bytes": peak if position else peak // 2,
            }
            for position, seconds in enumerate(times)
        ]
        write_table(folder / "steps.parquet", "steps", rows, identity)
        write_table(
            folder / "cells.parquet", "cells", [self._cell("train", "steps", "total", float(len(step_s)), "")], identity
        )

    def _census(
        self, folder: Path, identity: Identity, slower: float, conversions: Iterable[tuple[str, int, int]]
    ) -> None:
        launches = [
            {
                "step": step,
                "phase": phase,
                "name": f"{name}_kernel",
                "class": name,
                "start_ns": step * 10**9,
                "duration_ns": round(ns * slower / 2),
            }
            for step in (0, 1)
            for (phase, name), ns in CLASS_NS.items()
            for _ in (0, 1)  # two launches of half the time each
        ]
        launches.append(
            {"step": -1, "phase": "other", "name": "outside", "class": "outside", "start_ns": 0, "duration_ns": 10**12}
        )
        write_table(folder / "launches.parquet", "launches", launches, identity)
        layouts: list[dict[str, Any]] = [
            {"phase": "forward", "module": "unet", "operator": f"aten::{kind}", "input_format": "contiguous",
             "output_format": "channels_last_3d", "conversion": kind, "calls": calls, "bytes": size}
            for kind, calls, size in conversions
        ]  # fmt: skip
        plain = {"module": "unet.conv", "operator": "aten::convolution", "input_format": "contiguous"}
        layouts.append({"phase": "forward", **plain, "output_format": "contiguous", "calls": 50, "bytes": GIB})
        write_table(folder / "layouts.parquet", "layouts", layouts, identity)
        write_table(folder / "cells.parquet", "cells", [self._cell("census", "launches", "total", 24.0, "")], identity)

    def _quality(self, folder: Path, identity: Identity, shift: float) -> None:
        rows = [self._cell("quality", name, scope, value + shift, "") for (name, scope), value in QUALITY.items()]
        write_table(folder / "cells.parquet", "cells", rows, identity)
        (folder / "mosaic.png").write_bytes(gradient_png(96, 64))

    def _cell(self, stage: str, quantity: str, scope: str, value: float, unit: str) -> dict[str, Any]:
        return {
            "stage": stage,
            "quantity": quantity,
            "scope": scope,
            "value": value,
            "unit": unit,
            "state": "done",
            "origin": self.origin,
        }


def manifest(stage: str, identity: Identity) -> dict[str, Any]:
    """The metrics.json of a stage, as far as the analysis reads it."""
    provenance = {"python": "3.11.2", "torch": "2.13.0+cpu", "cuda": None, "cudnn": None, "driver": None,
                  "device_name": f"crafted {identity.gpu}", "git_commit": "0" * 40, "git_dirty": False}  # fmt: skip
    return {"schema": 1, "stage": stage, "key": identity.key, "state": "done", "reason": "", "provenance": provenance}


def gradient_png(width: int, height: int) -> bytes:
    """A grey picture, dark at the left, written by hand so that the test needs no imaging library."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = b"\0" + bytes(255 * x // (width - 1) for x in range(width))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(row * height))
        + chunk(b"IEND", b"")
    )


def _stage(stage: str, key: str, state: str, metrics: Path | None, reason: str = "") -> StageState:
    return StageState(stage, key, state, reason, None, metrics, "")


BASELINE_S = {1: 1.00, 2: 1.02, 3: 0.98}
"""Median step time of the crafted baseline on a100, by repeat."""

RATIOS = {  # config -> time over baseline by repeat
    "opt1": (0.5, 0.5, 0.5),  # FASTER, 2x
    "opt2": (1.25, 1.24, 1.26),  # SLOWER, 0.8x
    "opt12": (0.9, 1.1, 1.0),  # AMBIGUOUS
    "default": (1.001, 0.999, 1.0),  # SAME
}
CONFIGS = ("default", "baseline", "opt1", "opt2", "opt12")
TF32_REASON = "train cannot run: tf32 does not exist on cpu: TF32 exists only in tensor cores from sm_80 on."


def full_study(root: Path) -> Survey:
    """v100: foreign-missing. a100: every verdict. h100: stale but for one cell. cpu: two configs unsupported."""
    crafted = Crafted(root)
    for config in CONFIGS:
        for repeat in (1, 2, 3):
            crafted.absent("v100", config, repeat, "foreign-missing")
    for config in CONFIGS:
        for repeat, base in BASELINE_S.items():
            ratio = RATIOS.get(config, (1.0, 1.0, 1.0))[repeat - 1]
            time = base * ratio
            crafted.done(
                "a100", config, repeat, [time * 0.9, time, time, time * 1.5, time],
                slower=ratio, peak_bytes=(20 if config == "opt2" else 16) * GIB,
                conversions=[("contiguous", 40, 4 * GIB), ("clone", 8, GIB)] if config in ("opt2", "opt12") else [],
                quality_shift=0.01 * repeat,
                accepted=config == "default",
            )  # fmt: skip
    for config in CONFIGS:
        for repeat in (1, 2, 3):
            if config == "opt1" and repeat == 1:
                crafted.done("h100", config, repeat, [0.25] * 5, null_control=("tf32",))
            else:
                crafted.absent("h100", config, repeat, "foreign-stale")
    for config in CONFIGS:
        for repeat in (1, 2, 3):
            if config in ("opt1", "opt12"):
                crafted.absent("cpu", config, repeat, "unsupported", f"cpu/{config}/r{repeat} {TF32_REASON}")
            else:
                crafted.done("cpu", config, repeat, [0.030 + 0.001 * repeat] * 5, peak_bytes=900 * 2**20)
    return crafted.survey()
