"""The physical floor of a step: the least time that its operators can take on a device, by work and by traffic.

Every call of an operator takes at least its operations over the peak rate of its precision, and at least the bytes of
its inputs over the memory bandwidth; the larger of both is its floor, and calls follow each other. Operations come from
shapes (convolutions, matrix products, attention), bytes from the shapes of the tensors that an operator reads, each
once, outputs left out: both can only be too small. It is a model, marked ``modelled`` wherever it appears. It assumes
the operators as they were called: fusing them, or finding their inputs in a cache, can undercut it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpustudy.analysis import quantities
from gpustudy.analysis.bounds import precision_of_group
from gpustudy.analysis.families import by_family
from gpustudy.analysis.launches import work
from gpustudy.study.peaks import Peaks, peaks_of

if TYPE_CHECKING:
    import pandas as pd

    from gpustudy.analysis.dataset import Dataset, Group

MODELLED = "modelled"
"""Origin of every value of this module."""

NO_PEAKS = "no cited peak rates for this device"
NO_SHAPES = "no shapes in the census"

_BYTES_OF = {"fp32": 4, "tf32": 4, "fp16": 2}
"""Bytes of a tensor's element by the precision of the matrix work: a mixed step reads some tensors in 4."""

_MATRIX_FAMILIES = ("convolution", "matrix product, attention")
_GIB = 2**30


@dataclass(frozen=True)
class FloorPart:
    """The floor of one family in one phase.

    Attributes:
        phase: phase of the step.
        family: family of kernel classes.
        seconds: least time.
        flops: operations.
        bytes: bytes read.
        compute_s: part of ``seconds`` in calls that the peak rate bounds; the memory bounds the rest.
    """

    phase: str
    family: str
    seconds: float
    flops: float
    bytes: float
    compute_s: float


@dataclass(frozen=True)
class Floor:
    """The floor of a step and what it rests on."""

    parts: tuple[FloorPart, ...]
    peak_flops: float
    peak_bytes: float
    source: str
    origin: str = MODELLED

    @property
    def seconds(self) -> float:
        """The least time of a step."""
        return math.fsum(part.seconds for part in self.parts)

    def of_phase(self, phase: str) -> float:
        """Return the least time of one phase, in seconds."""
        return math.fsum(part.seconds for part in self.parts if part.phase == phase)


@dataclass(frozen=True)
class Ceiling:
    """A rate that cannot be exceeded, and where it is from: a document, or the counters."""

    rate: float
    source: str
    is_cited: bool


def device_peaks(dataset: Dataset, gpu: str) -> Peaks | None:
    """Return the peak rates of a gpu: of the device that its cells ran on, else as the study describes it.

    None for a device that is not known: the study's description then says nothing of what was measured.
    """
    known = dataset.survey.study.gpus.get(gpu)
    if known is None:
        return None
    memory = None if known.memory_gib is None else known.memory_gib * _GIB
    for cell, _, manifest in dataset.manifests:
        name = (manifest.get("provenance") or {}).get("device_name")
        if cell.gpu == gpu and name:
            own = peaks_of(known.architecture, str(name))
            return own or peaks_of(known.architecture, str(name), memory)
    return peaks_of(known.architecture, known.device_name, memory)


def matrix_ceiling(peaks: Peaks, precision: str) -> Ceiling:
    """Return the peak rate of matrix work in operations per second; a device without the precision does it in FP32."""
    rates = {"fp32": peaks.fp32, "tf32": peaks.tf32 or peaks.fp32, "fp16": peaks.bf16 or peaks.fp16 or peaks.fp32}
    return Ceiling(rates[precision] or math.inf, peaks.source, True)


def dram_ceiling(dataset: Dataset, gpu: str, peaks: Peaks | None) -> Ceiling | None:
    """Return the memory bandwidth in bytes per second: cited, else what the counters take as 100 %; None if unknown."""
    if peaks is not None and peaks.dram_bytes is not None:
        return Ceiling(peaks.dram_bytes, peaks.source, True)
    for group in dataset.groups(gpu):
        rate = quantities.value(dataset, group, "dram_bytes_per_s")
        percent = quantities.value(dataset, group, "dram_throughput_pct")
        if rate is not None and percent is not None and percent.value > 0:
            return Ceiling(100 * rate.value / percent.value, "hardware counters: traffic over its share of peak", False)
    return None


def floor_of(dataset: Dataset, group: Group) -> Floor | None:
    """Return the floor of a step of ``group``; None without a census, operations, or peak rates."""
    path = dataset.first_census.get((group.gpu, group.config))
    peaks = device_peaks(dataset, group.gpu)
    memory = dram_ceiling(dataset, group.gpu, peaks)
    if path is None or peaks is None or memory is None:
        return None
    precision = precision_of_group(dataset, group)
    matrix = matrix_ceiling(peaks, precision)
    parts = floor_parts(work(path), matrix.rate, peaks.fp32 or math.inf, memory.rate, _BYTES_OF[precision])
    source = matrix.source if memory.is_cited else f"{matrix.source}; memory from {memory.source}"
    return Floor(tuple(parts), matrix.rate, memory.rate, source) if parts else None


def why_no_floor(dataset: Dataset, group: Group) -> str:
    """Say why a group with a census has no floor."""
    peaks = device_peaks(dataset, group.gpu)
    return NO_PEAKS if peaks is None or dram_ceiling(dataset, group.gpu, peaks) is None else NO_SHAPES


def floor_parts(
    done: pd.DataFrame, matrix_rate: float, plain_rate: float, memory_rate: float, element_bytes: int
) -> list[FloorPart]:
    """Return the floor by phase and family.

    Args:
        done: as ``launches.work`` gives it.
        matrix_rate: operations per second of convolutions and matrix products.
        plain_rate: operations per second of all others.
        memory_rate: bytes per second.
        element_bytes: bytes of an element of a tensor.
    """
    calls = _calls(done[done["operator"].notna()])
    sizes = {shapes: elements(shapes) for shapes in calls["input_shapes"].unique()}
    rates = calls["family"].isin(_MATRIX_FAMILIES).map({True: matrix_rate, False: plain_rate})
    held = calls["input_shapes"].map(sizes).astype("float64")  # without any shape, pandas would keep it as text
    calls["bytes"] = calls["calls"] * element_bytes * held
    compute_s, memory_s = calls["flops"] / rates, calls["bytes"] / memory_rate
    calls["seconds"] = compute_s.where(compute_s >= memory_s, memory_s)
    calls["compute_s"] = compute_s.where(compute_s >= memory_s, 0.0)
    sums = calls.groupby(["phase", "family"])[["seconds", "flops", "bytes", "compute_s"]].sum()
    return [
        FloorPart(str(phase), str(family), *(float(value) for value in values))
        for (phase, family), *values in sums[sums["seconds"] > 0].itertuples()
    ]


def _calls(done: pd.DataFrame) -> pd.DataFrame:
    """Return phase, family, operator, input_shapes, calls and flops of each operator with each list of shapes.

    Where the operations are known, each call has them once. Else a call launches every kernel of its operator at least
    once, so that the kernel with the fewest launches tells the most calls that are certain.
    """
    known = done.assign(
        family=done["operator"].map(_families_of_operators(done)), input_shapes=done["input_shapes"].fillna("")
    )
    keys = ["phase", "family", "operator", "input_shapes"]
    by_kernel = known.groupby([*keys, "name"])[["launches", "counted", "flops"]].sum()
    by_call = by_kernel.groupby(keys).agg({"launches": "min", "counted": "sum", "flops": "sum"}).reset_index()
    by_call["calls"] = by_call["counted"].where(by_call["counted"] > 0, by_call["launches"])
    return by_call


def elements(shapes: str) -> int:
    """Return how many elements the tensors of a recorded list of shapes have; lists of tensors count each."""
    return _elements(json.loads(shapes)) if shapes else 0


def _elements(shape: Any) -> int:
    if isinstance(shape, list) and shape and all(isinstance(side, int) for side in shape):
        return math.prod(shape)
    return sum(_elements(part) for part in shape) if isinstance(shape, list) else 0


def _families_of_operators(done: pd.DataFrame) -> Mapping[str, str]:
    """Return the family of each operator: that of the launches which take most of its time.

    A convolution's first launch can be a layout kernel; its operations are still a convolution's.
    """
    by_operator = done.assign(family=by_family(done["class"])).groupby(["operator", "family"])
    time = by_operator[["duration_ns"]].sum().reset_index()
    ordered = time.sort_values(["duration_ns", "family"], kind="stable")
    return dict(zip(ordered["operator"], ordered["family"], strict=True))  # the last of an operator, its largest, stays
