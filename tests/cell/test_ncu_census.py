"""Reading the census trace: launches inside steps, their phase by time, their operators by thread."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from gpustudy.base.errors import UserError
from gpustudy.cell.ncu_census import _OperatorIndex, read_census
from tests.cell.ncu_trace import ADD, FORWARD_CONV, REDUCE, WGRAD, training_trace


def test_launches_with_phase_operators_and_shape(tmp_path: Path) -> None:
    census = read_census(training_trace().write(tmp_path / "trace.json.gz"))
    assert census.steps == 2
    first_step = census.launches[:5]
    assert [launch.name for launch in first_step] == [ADD, ADD, FORWARD_CONV, WGRAD, REDUCE]
    assert [launch.phase for launch in first_step] == ["forward"] * 3 + ["backward"] * 2
    assert first_step[2].operators == ("aten::conv3d", "aten::cudnn_convolution")
    assert first_step[3].operators == ("ConvolutionBackward0", "aten::convolution_backward")
    assert first_step[3].duration_ns == 50_000
    assert (first_step[2].grid, first_step[2].block, first_step[2].shared_memory_bytes) == (
        (8, 1, 1),
        (128, 1, 1),
        1024,
    )
    assert len(census.launches) == 10


def test_launch_between_ranges_is_of_phase_other(tmp_path: Path) -> None:
    trace = training_trace(steps=1)
    trace.events = [event for event in trace.events if event["name"] != "gpustudy.backward"]
    census = read_census(trace.write(tmp_path / "trace.json.gz"))
    assert [launch.phase for launch in census.launches] == ["forward"] * 3 + ["other"] * 2


def test_operators_around_a_call_skip_those_that_ended() -> None:
    def event(name: str, start: float, duration: float) -> dict:
        return {"name": name, "ts": start, "dur": duration, "tid": 1}

    index = _OperatorIndex(
        [event("outer", 0, 100), event("first", 10, 10), event("inner", 30, 20), event("leaf", 32, 2)]
    )
    assert index.around({"tid": 1, "ts": 33}) == ("outer", "inner", "leaf")
    assert index.around({"tid": 1, "ts": 40}) == ("outer", "inner")
    assert index.around({"tid": 1, "ts": 25}) == ("outer",)
    assert index.around({"tid": 1, "ts": 101}) == ()
    assert index.around({"tid": 2, "ts": 33}) == ()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"no gzip", "is not a profiler trace"),
        (gzip.compress(b"{"), "is not a profiler trace"),
        (gzip.compress(b'{"traceEvents": []}'), "has no 'gpustudy.step' range"),
        (
            gzip.compress(
                json.dumps(
                    {
                        "traceEvents": [
                            {"ph": "X", "cat": "user_annotation", "name": "gpustudy.step", "ts": 0, "dur": 9, "tid": 1}
                        ]
                    }
                ).encode()
            ),
            "has no kernel inside its steps",
        ),
    ],
)
def test_file_that_is_no_census_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        read_census(path)


def test_real_trace_with_a_step_range_around_it(shared_data: Path, tmp_path: Path) -> None:
    """A V100 trace with 4,350 kernels: all are found, and the operators around them are PyTorch's."""
    with gzip.open(shared_data / "kineto" / "hta_ns_resolution.json.gz", "rt") as stream:
        content = json.load(stream)
    times = [event["ts"] for event in content["traceEvents"] if event.get("ph") == "X"]
    content["traceEvents"].append(
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": "gpustudy.step",
            "pid": 1,
            "tid": 1,
            "ts": min(times),
            "dur": max(times) - min(times),
        }
    )
    path = tmp_path / "trace.json.gz"
    with gzip.open(path, "wt") as stream:
        json.dump(content, stream)
    census = read_census(path)
    assert len(census.launches) == 4350
    with_operators = [launch for launch in census.launches if launch.operators]
    assert len(with_operators) / len(census.launches) > 0.9
    concatenations = [launch for launch in census.launches if "CatArrayBatchedCopy" in launch.name]
    assert all("aten::cat" in launch.operators for launch in concatenations)
