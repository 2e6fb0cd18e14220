"""The physical floor: work and traffic by hand, and a value that never passes for measured."""

from __future__ import annotations

import csv
import io

import pandas as pd
import pytest

from gpustudy.analysis import style
from gpustudy.analysis.dataset import Dataset, Group
from gpustudy.analysis.draw import figure_of
from gpustudy.analysis.floor import NO_PEAKS, NO_SHAPES, elements, floor_of, floor_parts, why_no_floor
from gpustudy.analysis.tables import build, to_csv
from tests.analysis.test_figures import texts_of

FP32, DRAM = 19.5e12, 1555e9
"""Peaks of the A100 of 40 GB."""

ELEMENTS = 64 * 32**3
"""Elements of the only input that crafted operators have."""

CALLS = 1 + 6 + 6 + 2 + 2 + 8 + 2 + 2 + 1
"""Calls of the crafted operators without operations: softmax, norm, SiLU, upsampling, cat, add, sum, Adam, copy."""

FLOPS = 6 * 40e9 + 2 * 20e9 + 12 * 40e9 + 2 * 2e9
"""Operations of the crafted convolutions and products of a step."""


def group(dataset: Dataset, gpu: str, config: str) -> Group:
    return next(one for one in dataset.groups(gpu) if one.config == config)


def test_the_floor_of_a_crafted_step_is_that_of_hand_computation(counted: Dataset) -> None:
    floor = floor_of(counted, group(counted, "a100", "baseline"))
    assert floor is not None
    memory_s = CALLS * 4 * ELEMENTS / DRAM
    assert floor.seconds == pytest.approx(FLOPS / FP32 + memory_s, rel=1e-6)
    assert floor.origin == "modelled"
    assert "A100" in floor.source
    assert sum(part.compute_s for part in floor.parts) == pytest.approx(FLOPS / FP32)
    assert floor.of_phase("backward") == pytest.approx(12 * 40e9 / FP32 + 10 * 4 * ELEMENTS / DRAM)


def test_tf32_lowers_the_floor_of_products_alone(counted: Dataset) -> None:
    floor = floor_of(counted, group(counted, "a100", "opt1"))
    assert floor is not None
    assert floor.seconds == pytest.approx(FLOPS / 156e12 + CALLS * 4 * ELEMENTS / DRAM, rel=1e-6)


def test_a_device_without_cited_peaks_has_no_floor_and_says_so(counted: Dataset) -> None:
    assert floor_of(counted, group(counted, "cpu", "baseline")) is None
    assert why_no_floor(counted, group(counted, "cpu", "baseline")) == NO_PEAKS
    assert why_no_floor(counted, group(counted, "a100", "baseline")) == NO_SHAPES
    with style.look():
        texts = texts_of(figure_of("floor", counted))
    assert any(NO_PEAKS in text for text in texts)
    assert any("modelled" in text for text in texts)


def test_the_table_of_the_floor_is_marked_and_adds_up(counted: Dataset) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(build("floor_parts", counted)))))
    assert {row["origin"] for row in rows} == {"modelled"}
    assert {row["gpu"] for row in rows} == {"a100", "h100"}  # no floor for the cpu
    base = [row for row in rows if (row["gpu"], row["config"]) == ("a100", "baseline")]
    step, parts = base[0], base[1:]
    assert (step["phase"], step["bound"]) == ("step", "operations")
    assert float(step["floor_s"]) == pytest.approx(sum(float(part["floor_s"]) for part in parts))
    convolution = next(part for part in parts if (part["phase"], part["family"]) == ("backward", "convolution"))
    assert float(convolution["time_over_floor"]) == pytest.approx(6 * (7 + 8) / (12 * 40e9 / FP32 * 1e3), rel=1e-3)


def work(*rows: tuple[str, str, str, str, float, float, float, float]) -> pd.DataFrame:
    names = ["class", "operator", "input_shapes", "name", "launches", "counted", "flops", "duration_ns"]
    return pd.DataFrame([dict(zip(names, row, strict=True)) | {"phase": "forward"} for row in rows])


def test_a_call_is_counted_once_whatever_it_launches() -> None:
    """Two calls of a convolution, each with a layout kernel first: the operations belong to the convolution."""
    done = work(
        ("layout", "aten::convolution", "[[10, 10]]", "nchwToNhwc", 2, 2, 2e6, 10.0),
        ("conv_forward", "aten::convolution", "[[10, 10]]", "fprop", 2, 0, 0.0, 90.0),
        ("reduction", "aten::sum", "[[1000]]", "reduce_a", 6, 0, 0.0, 5.0),
        ("reduction", "aten::sum", "[[1000]]", "reduce_b", 3, 0, 0.0, 5.0),
    )
    parts = {part.family: part for part in floor_parts(done, 1e9, 1e9, 1e6, 4)}
    convolution = parts["convolution"]
    assert (convolution.flops, convolution.bytes) == (2e6, 2 * 4 * 100)
    assert convolution.seconds == pytest.approx(2e-3)  # work bounds it: 0.8 ms for the bytes
    assert convolution.compute_s == convolution.seconds
    total = parts["elementwise, reduction"]
    assert total.bytes == 3 * 4 * 1000  # three calls, of two and one launches
    assert total.seconds == pytest.approx(0.012)
    assert total.compute_s == 0.0


@pytest.mark.parametrize(
    ("shapes", "count"),
    [("", 0), ("[]", 0), ("[[2, 3], [4], []]", 10), ("[[[2, 3], [4]], [5]]", 15), ("[[1, 64, 32, 32, 32]]", ELEMENTS)],
)
def test_elements_of_recorded_shapes(shapes: str, count: int) -> None:
    assert elements(shapes) == count
