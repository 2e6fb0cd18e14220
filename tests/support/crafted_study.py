"""A crafted study with known answers: every table of every stage, under the real keys, marked as crafted.

``craft_study`` writes results folders that every verb takes for results, from the kernels of
``crafted_kernels``: training goes through the real ``make_metrics``, the other stages through the real row makers and
writers. Nothing was measured, and that is said where it cannot get lost: in the raw provenance, in ``metrics.json`` and
as the origin of every row.

``Truth`` sets single answers to what a test needs, above what the kernels give::

    truth = Truth()
    truth.values["a100", "opt1", "warp_instructions", "total"] = 1e9
    effective = craft_study(crafted_effective(folder), truth)
    dataset = Dataset(survey(effective))
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpustudy.base.atomic import write_json, write_text
from gpustudy.base.digests import file_sha256
from gpustudy.base.status import STATUS_FILE, Status, read_status, write_status
from gpustudy.metrics.catalogue import load_catalogue
from gpustudy.metrics.cells import Row, cell_row, seconds_row
from gpustudy.metrics.census import census_rows
from gpustudy.metrics.launches import Launches
from gpustudy.metrics.layouts import layout_tables
from gpustudy.metrics.make import make_metrics
from gpustudy.metrics.schemas import Identity, write_table
from gpustudy.study.cells import Cell, Keys
from gpustudy.study.load import Effective
from gpustudy.study.paths import CELLS, METRICS, METRICS_FILE, stage_directory
from gpustudy.study.states import cell_state
from tests.analysis.crafted import QUALITY, gradient_png, load_study_of_checkout
from tests.support.crafted_counters import counter_tables
from tests.support.crafted_kernels import DEVICES, Kernel, kernels_of, launches_of, step_s

CRAFTED = "crafted"
CONFIGS = ("default", "baseline", "opt1", "opt2", "opt12")
GPUS = ("v100", "a100", "h100", "cpu")
GIB = 2**30

SPREAD = {1: 1.000, 2: 1.002, 3: 0.998}
"""Factor on times and counters of each repeat, the same for every config: ratios over baseline are exact."""
JITTER = {1: 1.0000, 2: 1.0004, 3: 0.9996}
"""Further factor of a config other than baseline, so that its ratio has an interval: a few tenths of a per cent."""

CENSUS_STEPS = 2
_STREAM = 7
_TF32_REASON = "tf32 does not exist on cpu: TF32 exists only in tensor cores from sm_80 on."


@dataclass
class Truth:
    """Answers that a test sets; each key begins with gpu and config.

    Attributes:
        step_s: (gpu, config) -> median time of a step in seconds.
        class_time: (gpu, config, class) -> factor on the time of its launches in the census.
        kernels: (gpu, config) -> kernels of a step, instead of those of ``crafted_kernels``.
        values: (gpu, config, quantity, scope) -> value in the cells table, over all classes, of every repeat.
        losses: (gpu, config) -> loss of the first measured step.
        provenance: gpu -> fields of its provenance.
        absent: gpus or (gpu, config) that have no result.
        lacking: stages that have no result.
        repeats: how many repeats have one.
    """

    step_s: dict[tuple[str, str], float] = field(default_factory=dict)
    class_time: dict[tuple[str, str, str], float] = field(default_factory=dict)
    kernels: dict[tuple[str, str], tuple[Kernel, ...]] = field(default_factory=dict)
    values: dict[tuple[str, str, str, str], float] = field(default_factory=dict)
    losses: dict[tuple[str, str], float] = field(default_factory=dict)
    provenance: dict[str, dict[str, Any]] = field(default_factory=dict)
    absent: set[str | tuple[str, str]] = field(default_factory=set)
    lacking: set[str] = field(default_factory=set)
    repeats: int = 3

    def has(self, cell: Cell, stage: str) -> bool:
        """Whether a stage has a result."""
        gone = {cell.gpu, (cell.gpu, cell.config)} & self.absent
        return not gone and stage not in self.lacking and cell.repeat <= self.repeats


def crafted_effective(folder: Path, site: str = "local", configs: Iterable[str] = CONFIGS) -> Effective:
    """Return the study of this checkout with some of its configs, and its results in ``folder``."""
    study = load_study_of_checkout()
    return Effective(
        study.model_copy(update={"configs": {name: study.configs[name] for name in configs}}), site, folder
    )


def craft_study(effective: Effective, truth: Truth | None = None, base: Path | None = None) -> Effective:
    """Write crafted results of every cell that ``truth`` does not leave out, and return ``effective``.

    Args:
        effective: the study and the results folder.
        truth: answers to set; the kernels' own where none is.
        base: results of an earlier call without a truth: what ``truth`` leaves alone is linked from there.
    """
    told = truth or Truth()
    keys = Keys(effective)
    for cell in keys.cells():
        if cell.gpu not in GPUS:
            continue
        for stage in keys.stages(cell.gpu):
            if told.has(cell, stage):
                if base is None or _is_told(told, cell):
                    _craft_stage(effective, keys, cell, stage, told)
                else:
                    _link_stage(effective, keys, cell, stage, base)
    return effective


def _is_told(truth: Truth, cell: Cell) -> bool:
    told: list[Any] = [*truth.step_s, *truth.class_time, *truth.kernels, *truth.values, *truth.losses]
    return cell.gpu in truth.provenance or any(key[:2] == (cell.gpu, cell.config) for key in told)


def _link_stage(effective: Effective, keys: Keys, cell: Cell, stage: str, base: Path) -> None:
    state = next(one for one in cell_state(base, keys, cell).stages if one.stage == stage)
    for folder in (state.raw, state.metrics):
        if folder is not None:
            shutil.copytree(folder, effective.results / folder.relative_to(base), copy_function=os.link)


def _craft_stage(effective: Effective, keys: Keys, cell: Cell, stage: str, truth: Truth) -> None:
    key = keys.stage_key(cell, stage)
    metrics_key = keys.metrics_key(key, stage)
    place = (cell.gpu, cell.config, cell.repeat, stage)
    raw = stage_directory(effective.results, CELLS, *place, key)
    out = stage_directory(effective.results, METRICS, *place, metrics_key)
    write_json(raw / "cell.json", keys.cell_file(cell, stage))
    write_json(raw / "provenance.json", provenance(cell, truth))
    write_text(raw / "crafted.txt", f"{cell} {stage}: crafted for a test or an example, not measured.\n")
    null_control = tuple(keys.document(cell, stage)["gpu"]["null_control"])
    if cell.gpu == "cpu" and cell.config in ("opt1", "opt12"):
        detail = f"{cell} {stage} cannot run: {_TF32_REASON}"
        write_status(raw, Status(stage, key, "unsupported", "optimisation", detail))
        make_metrics(raw, out, metrics_key)
        return
    if stage == "train":
        _write_train(raw, cell, truth)
    if stage == "census":
        _write_layouts(raw, cell)
    write_status(raw, Status(stage, key, "done", null_control=null_control, seconds=_SECONDS[stage]))
    identity = Identity(cell.gpu, cell.config, cell.repeat, key)
    if stage == "train":
        make_metrics(raw, out, metrics_key)
        _set_values(out, identity, truth, stage)
    else:
        rows = {"census": _census, "counters": _counters, "quality": _quality}[stage](raw, out, identity, truth)
        rows = [*rows, seconds_row(read_status(raw))]
        _write_cells(out, rows, identity, truth, stage)
    write_json(out / METRICS_FILE, _manifest(raw, out, stage, key, metrics_key, cell, truth, null_control))


_SECONDS = {"train": 30.0, "census": 12.0, "counters": 600.0, "quality": 45.0}
"""Wall time that each stage's status file tells."""


def provenance(cell: Cell, truth: Truth) -> dict[str, Any]:
    """Return the provenance of a cell: crafted, and said so."""
    device = DEVICES.get(cell.gpu)
    on_gpu = {
        "cuda": "11.8", "cudnn": 8902, "driver": "535.129.03", "ncu": "2024.1.1.0 (build 33998838)",
        "device_name": device.name if device else None, "device_uuid": "GPU-crafted", "mig": "Disabled",
        "torch": "2.0.1+cu118", "multiprocessors": device.sms if device else None, "image_sha256": "c" * 64,
    }  # fmt: skip
    on_cpu = {"torch": "2.13.0+cpu", "cpu_model": "a crafted processor", "threads": 2}
    return {
        "origin": CRAFTED, "python": "3.11.2", "numpy": "1.26.4", "host": "crafted-host", "job_id": None,
        "git_commit": "0" * 40, "git_dirty": False, "started": "2026-01-01T00:00:00+00:00", "argv": ["crafted"],
    } | (on_gpu if device else on_cpu) | truth.provenance.get(cell.gpu, {})  # fmt: skip


def _factor(cell: Cell | Identity) -> float:
    """Return what times and counters of this repeat are multiplied with."""
    return SPREAD.get(cell.repeat, 1.0) * (1.0 if cell.config == "baseline" else JITTER.get(cell.repeat, 1.0))


def _write_train(raw: Path, cell: Cell, truth: Truth) -> None:
    where = (cell.gpu, cell.config)
    seconds = truth.step_s.get(where, step_s(*where)) * _factor(cell)
    first = truth.losses.get(where, 0.8)
    peak = (18 if "2" in cell.config else 16) * GIB
    lines = [
        f'{{"iteration": {step + 1}, "phase": "{"measured" if step else "warmup"}", '
        f'"step_ns": {round(seconds * 1e9 * (1 + 0.001 * ((step % 5) - 2) if step else 4.0))}, '
        f'"loss": {first * (1.0 if step < 2 else 1 / step**0.5)}, "data_wait_ns": 1000, "peak_memory_bytes": {peak}}}'
        for step in range(26)
    ]
    write_text(raw / "steps.jsonl", "\n".join(lines) + "\n")
    write_json(raw / "memory.json", {"peak_bytes": peak, "kind": "device_allocated", "estimate_bytes": peak + GIB})


def _write_layouts(raw: Path, cell: Cell) -> None:
    volume = {"shape": [1, 64, 32, 32, 32], "dtype": "torch.float32"}
    last = cell.config in ("opt2", "opt12")
    form = "channels_last_3d" if last else "contiguous"
    calls: list[tuple[str, str, str, str, str, str | None]] = [
        ("forward", "unet.conv", "aten::convolution", form, form, None)
    ] * 14
    if last:
        calls += [("forward", "unet.norm", "aten::contiguous", form, "contiguous", "contiguous")] * 12
        calls += [("backward", "unet.norm", "aten::clone", "contiguous", form, "clone")] * 12
    records = [
        {"phase": phase, "module": module, "op": op, "inputs": [volume | {"format": given}],
         "output": volume | {"format": made}, "conversion": conversion}
        for phase, module, op, given, made, conversion in calls
    ]  # fmt: skip
    raw.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(raw / "layouts.jsonl.gz", "wb", mtime=0) as stream:
        stream.write("".join(f"{json.dumps(record)}\n" for record in records).encode())


def _told_kernels(identity: Identity, truth: Truth) -> list[Kernel]:
    """Return the kernels with the times that the truth and the repeat give them."""
    told = {name: factor for (gpu, config, name), factor in truth.class_time.items()
            if (gpu, config) == (identity.gpu, identity.config)}  # fmt: skip
    return [
        replace(kernel, us=kernel.us * _factor(identity) * told.get(kernel.kernel_class, 1.0))
        for kernel in truth.kernels.get((identity.gpu, identity.config), kernels_of(identity.gpu, identity.config))
    ]


def _census(raw: Path, out: Path, identity: Identity, truth: Truth) -> list[Row]:
    device = DEVICES.get(identity.gpu)
    slowness = device.slowness if device else 1.0
    kernels = _told_kernels(identity, truth)
    rows: list[dict[str, Any]] = []
    steps: list[int] = []
    now = 0
    for step in range(CENSUS_STEPS):
        begin = now
        for kernel in launches_of(kernels):
            duration = round(kernel.us * 1000 * slowness)
            rows.append(
                {"step": step, "phase": kernel.phase, "stream": _STREAM if device else None, "name": kernel.name,
                 "class": kernel.kernel_class, "grid": [216, 1, 1] if device else None,
                 "block": [256, 1, 1] if device else None, "registers_per_thread": 64 if device else None,
                 "shared_memory_bytes": 0 if device else None, "start_ns": now, "duration_ns": duration,
                 "operator": kernel.operator, "input_shapes": "[[1, 64, 32, 32, 32]]",
                 "flops": kernel.flops or None}
            )  # fmt: skip
            now += duration + 2000
        steps.append(now - begin)
        now += 10_000
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    write_table(out / "launches.parquet", "launches", columns, identity)
    return [*census_rows(Launches(columns, steps, device is not None)), *layout_tables(raw, out, identity)]


def _counters(raw: Path, out: Path, identity: Identity, truth: Truth) -> list[Row]:
    return counter_tables(out, identity, DEVICES[identity.gpu], _told_kernels(identity, truth))


def _quality(raw: Path, out: Path, identity: Identity, truth: Truth) -> list[Row]:
    out.mkdir(parents=True, exist_ok=True)
    (out / "mosaic.png").write_bytes(gradient_png(96, 64))
    spread = 0.001 * (identity.repeat - 2) * (1.0 if identity.config == "baseline" else 1.1)
    return [cell_row("quality", name, value * (1 + spread), scope, n=8) for (name, scope), value in QUALITY.items()]


def _set_values(out: Path, identity: Identity, truth: Truth, stage: str) -> None:
    """Write the cells table anew with the truth's values."""
    import pyarrow.parquet as pq

    rows = pq.read_table(out / "cells.parquet", partitioning=None).to_pylist()
    _write_cells(
        out, [{k: v for k, v in row.items() if k not in Identity._fields} for row in rows], identity, truth, stage
    )


def _write_cells(out: Path, rows: list[Row], identity: Identity, truth: Truth, stage: str) -> None:
    told = {
        (quantity, scope): value * _factor(identity)
        for (gpu, config, quantity, scope), value in truth.values.items()
        if (gpu, config) == (identity.gpu, identity.config)
    }
    marked = []
    for row in rows:
        place = (row["quantity"], row["scope"])
        is_whole = row.get("kernel_class") is None and row.get("phase") is None
        if is_whole and place in told:
            row = row | {"value": told[place], "low": None, "high": None, "interval": None, "state": "done"}
        marked.append(row | {"origin": CRAFTED})
    if stage == "counters":  # what the kernels do not give at all, such as a run that kept the caches
        there = {(row["quantity"], row["scope"]) for row in rows}
        units = {quantity.name: quantity.unit for quantity in load_catalogue().quantities}
        marked += [
            {"stage": stage, "quantity": quantity, "scope": scope, "value": value, "unit": units[quantity],
             "state": "done", "origin": CRAFTED}
            for (quantity, scope), value in told.items()
            if quantity in units and (quantity, scope) not in there
        ]  # fmt: skip
    write_table(out / "cells.parquet", "cells", marked, identity)


def _manifest(
    raw: Path,
    out: Path,
    stage: str,
    key: str,
    metrics_key: str,
    cell: Cell,
    truth: Truth,
    null_control: tuple[str, ...],
) -> dict[str, Any]:
    import pyarrow.parquet as pq

    described: dict[str, dict[str, Any]] = {}
    for path in sorted(path for path in out.rglob("*") if path.is_file() and path.name != METRICS_FILE):
        about: dict[str, Any] = {"sha256": file_sha256(path), "bytes": path.stat().st_size}
        if path.suffix == ".parquet":
            about["rows"] = pq.read_metadata(path).num_rows
        described[path.relative_to(out).as_posix()] = about
    return {
        "schema": 1, "stage": stage, "key": key, "metrics_key": metrics_key, "state": "done", "reason": "",
        "detail": "", "null_control": list(null_control), "provenance": provenance(cell, truth),
        "raw": {"status_sha256": file_sha256(raw / STATUS_FILE), "files": {}},
        "tables": {name: about for name, about in described.items() if name.endswith(".parquet")},
        "files": {name: about for name, about in described.items() if not name.endswith(".parquet")},
        "made_with": {"python": "crafted", "pyarrow": "crafted"},
    }  # fmt: skip
