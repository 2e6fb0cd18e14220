"""The trace reader: exact times, every kind of trace, and one sentence for a file that is none."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpustudy.base.errors import UserError
from gpustudy.metrics.trace import read_trace
from tests.metrics.traces import host, kernel, write_trace


def _start(path: Path) -> int:
    return read_trace(path).operators[0].start_ns


def test_times_are_microseconds_and_keep_their_nanoseconds(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        '{"displayTimeUnit": "ns", "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1,'
        ' "ts": 1712195495505583.127, "dur": 0.004}]}'
    )
    event = read_trace(path).operators[0]
    assert event.start_ns == 1712195495505583127  # a float would have lost the last digits
    assert event.end_ns - event.start_ns == 4


def test_old_integer_times_are_microseconds_too(tmp_path: Path) -> None:
    assert _start(write_trace(tmp_path / "t.json", [host("a", 1695835542515301, 104)])) == 1695835542515301000


def test_packed_and_plain_files_and_a_bare_list_read_the_same(tmp_path: Path) -> None:
    events = [host("a", 1.5, 2)]
    plain = read_trace(write_trace(tmp_path / "t.json", events))
    assert read_trace(write_trace(tmp_path / "t.json.gz", events)) == plain
    (tmp_path / "list.json").write_text(json.dumps(events))
    assert read_trace(tmp_path / "list.json") == plain


def test_categories_of_old_versions_are_known(tmp_path: Path) -> None:
    events = [
        host("aten::add", 0, 5, category="Operator"),
        host("cudaLaunchKernel", 1, 1, category="Runtime", correlation=3),
        kernel("k", 3, 9, 1, category="Kernel"),
        kernel("Memcpy HtoD", 4, 19, 1, category="Memcpy"),
        kernel("Memset (Device)", 5, 29, 1, category="Memset"),
        host("python", 0, 5, category="python_function"),
    ]
    trace = read_trace(write_trace(tmp_path / "t.json", events))
    assert [len(held) for held in (trace.operators, trace.calls, trace.device)] == [1, 1, 3]


def test_the_device_is_named(tmp_path: Path) -> None:
    properties = [{"id": 0, "name": "NVIDIA A100-SXM4-40GB", "numSms": 108}]
    path = write_trace(tmp_path / "t.json", [host("a", 0, 1)], deviceProperties=properties)
    assert read_trace(path).device_name == "NVIDIA A100-SXM4-40GB"


def _one(**changes: Any) -> bytes:
    return json.dumps({"traceEvents": [host("a", 0, 1) | changes]}).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not complete JSON"),
        (b"hello", "not complete JSON"),
        (b"\x89PNG\r\n\x1a\n\xff", "not complete JSON"),
        (b'{"traceEvents": [{"ph": "X"', "not complete JSON"),
        (b'{"a": 1}', "no list 'traceEvents'"),
        (b"[1, 2]", "without any operator or kernel"),
        (b'{"traceEvents": []}', "without any operator or kernel"),
        (b'{"traceEvents": [{"ph": "M", "name": "process_name"}]}', "without any operator or kernel"),
        (b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a"}]}', "without a readable name, time or arguments"),
        (b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": "soon"}]}', "without a readable name"),
        (_one(ts=10**40), "a time is too large"),
        (_one(ts=1e300), "a time is too large"),
        (_one(name="\ud800"), "without a readable name"),
        (_one(args=[1]), "the arguments of 'a' are none"),
        (_one(args={"correlation": [1]}), "the arguments of 'a' are none"),
    ],
)
def test_a_file_that_is_no_trace_is_one_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        read_trace(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_a_cut_gzip_file_is_an_error_never_a_shorter_trace(tmp_path: Path, share: float) -> None:
    whole = gzip.compress(json.dumps({"traceEvents": [host(f"a{n}", n, 1) for n in range(500)]}).encode())
    path = tmp_path / "t.json.gz"
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(UserError, match=r"damaged or truncated|not complete JSON"):
        read_trace(path)


def test_an_absent_file_and_a_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        read_trace(tmp_path / "none.json")
    with pytest.raises(UserError, match="cannot be read"):
        read_trace(tmp_path)


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(UserError, match="is a pipe or a device"):
        read_trace(tmp_path / "pipe.json")


@pytest.mark.parametrize("name", ["hta_alexnet", "hta_ns_resolution", "hta_triton_example", "hta_cpu_only"])
def test_real_traces_have_as_many_events_as_plain_json_says(shared_data: Path, name: str) -> None:
    path = shared_data / "kineto" / f"{name}.json.gz"
    raw: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]

    def count(*categories: str) -> int:
        return sum(event.get("cat") in categories for event in raw)

    trace = read_trace(path)
    assert len(trace.operators) == count("cpu_op")
    assert len(trace.ranges) == count("user_annotation")
    assert len(trace.calls) == count("cuda_runtime", "cuda_driver")
    assert len(trace.device) == count("kernel", "gpu_memcpy", "gpu_memset")
