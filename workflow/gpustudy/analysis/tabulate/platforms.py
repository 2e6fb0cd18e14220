"""One row for each gpu: what the study calls it, the device that cells ran on, and the peak rates of its maker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpustudy.analysis.overview import measured_first
from gpustudy.analysis.style import amount_of_bytes, number
from gpustudy.analysis.tables import NOTHING, Column, Content, Value
from gpustudy.study.peaks import peaks_of

if TYPE_CHECKING:
    from gpustudy.analysis.dataset import Dataset
    from gpustudy.study.peaks import Peaks

_BYTES_PER_GIB = 2**30
_TERA, _GIGA = 1e12, 1e9
_RATES = {"fp32": "FP32 TFLOP/s", "tf32": "TF32 TFLOP/s", "fp16": "FP16 TFLOP/s", "dram_bytes": "DRAM GB/s"}
_UNITS = {"fp32": "fp32_flops", "tf32": "tf32_flops", "fp16": "fp16_flops", "dram_bytes": "dram_bytes_per_s"}

COLUMNS = (
    Column("GPU", ("gpu",)),
    Column("device found", ("device_name",)),
    Column("architecture", ("architecture",)),
    Column("memory", ("memory_bytes",), is_number=True),
    Column("SMs", ("sms",), is_number=True),
    Column("boost MHz", ("boost_hz",), is_number=True),
    *(Column(title, (_UNITS[rate],), is_number=True) for rate, title in _RATES.items()),
    Column("sites", ("sites",), is_printed=False),
    Column("cells with results", ("cells_with_results", "cells"), is_number=True, is_printed=False),
    Column("source of the peak rates", ("source",), is_long=True),
)


def content(dataset: Dataset) -> Content:
    """Return columns and rows: gpus with results first."""
    return COLUMNS, tuple(_row(dataset, gpu) for gpu in measured_first(dataset))


def _row(dataset: Dataset, name: str) -> tuple[Value, ...]:
    study = dataset.survey.study
    gpu = study.gpus.get(name)
    found = _devices(dataset, name)
    memory = None if gpu is None or gpu.memory_gib is None else gpu.memory_gib * _BYTES_PER_GIB
    asked = found[0] if len(found) == 1 else gpu.device_name if gpu else ""
    peaks = peaks_of(gpu.architecture, asked, None if found else memory) if gpu else None
    cells = [cell for cell in dataset.survey.cells if cell.gpu == name]
    there = sum(any(stage.metrics for stage in cell.stages) for cell in cells)
    return (
        Value(name),
        Value(", ".join(found) or "not measured yet"),
        Value(gpu.architecture if gpu else ""),
        NOTHING if memory is None else Value(amount_of_bytes(memory), (memory,)),
        NOTHING if peaks is None else Value(str(peaks.sms), (float(peaks.sms),)),
        NOTHING if peaks is None else Value(f"{peaks.boost_hz / 1e6:.0f}", (peaks.boost_hz,)),
        *(_rate(peaks, rate) for rate in _RATES),
        Value(", ".join(site for site, about in study.sites.items() if name in about.gpus)),
        Value(f"{there} of {len(cells)}", (float(there), float(len(cells)))),
        Value("" if peaks is None else f"{peaks.product}: {peaks.source}"),
    )


def _devices(dataset: Dataset, name: str) -> list[str]:
    """Return the names of the devices that the gpu's cells ran on."""
    told = (manifest.get("provenance") or {} for cell, _, manifest in dataset.manifests if cell.gpu == name)
    return list(dict.fromkeys(str(one.get("device_name") or one.get("cpu_model")) for one in told if one))


def _rate(peaks: Peaks | None, name: str) -> Value:
    rate = getattr(peaks, name, None)
    if rate is None:
        return NOTHING
    return Value(number(rate / (_GIGA if name == "dram_bytes" else _TERA)), (rate,))
