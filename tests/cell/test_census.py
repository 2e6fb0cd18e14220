"""Stage census: the trace accounts for the step, FLOPs and layouts are those of the model."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gpustudy.base.canonical import key_of
from gpustudy.base.status import Status, read_status, write_status
from gpustudy.cell.stages import run_stage
from tests.cell.conftest import SIDE, make_document

SELF_TIME_TOLERANCE = 1e-3
"""Share of a step that may be in neither an operator's nor an annotation's self time."""


@pytest.fixture(scope="module")
def census(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("census")
    document = make_document("census")
    cell = folder / "cell.json"
    cell.write_text(json.dumps({"key": key_of(document), "labels": {"config": "some"}, "document": document}))
    train = folder / "train"
    train.mkdir()
    write_status(train, Status("train", "a" * 12, "done"))
    run_stage("census", cell, prepared, folder / "out", train)
    assert read_status(folder / "out").state == "done"
    return folder / "out"


@pytest.fixture(scope="module")
def events(census: Path) -> list[dict[str, Any]]:
    with gzip.open(census / "trace.json.gz", "rt") as stream:
        trace = json.load(stream)
    return [event for event in trace["traceEvents"] if event.get("ph") == "X"]


def named(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event["name"] == name and event.get("cat") == "user_annotation"]


def inside(events: list[dict[str, Any]], outer: dict[str, Any]) -> list[dict[str, Any]]:
    end = outer["ts"] + outer["dur"]
    return [event for event in events if outer["ts"] <= event["ts"] and event["ts"] + event["dur"] <= end]


def test_each_step_holds_its_phases_once_per_micro_batch(events: list[dict[str, Any]]) -> None:
    steps = named(events, "gpustudy.step")
    assert len(steps) == 2
    for step in steps:
        counts = {
            name: len(inside(named(events, f"gpustudy.{name}"), step)) for name in ("data", "forward", "backward")
        }
        assert counts == {"data": 2, "forward": 2, "backward": 2}  # accumulation 2
        assert len(inside(named(events, "gpustudy.optimiser"), step)) == 1


def test_self_times_sum_to_the_step(events: list[dict[str, Any]]) -> None:
    for step in named(events, "gpustudy.step"):
        kept = [
            e for e in inside(events, step) if e.get("cat") in ("cpu_op", "user_annotation") and e["tid"] == step["tid"]
        ]
        kept.sort(key=lambda e: (e["ts"], -e["dur"]))
        total, open_events = 0.0, []
        self_times = {id(e): e["dur"] for e in kept}
        for event in kept:
            while open_events and open_events[-1]["ts"] + open_events[-1]["dur"] <= event["ts"]:
                open_events.pop()
            if open_events:
                self_times[id(open_events[-1])] -= event["dur"]
            open_events.append(event)
        total = sum(self_times.values())
        assert all(value > -1.0 for value in self_times.values())  # microseconds: events nest, none overlaps
        assert total == pytest.approx(step["dur"], rel=SELF_TIME_TOLERANCE)
        operators = sum(self_times[id(e)] for e in kept if e["cat"] == "cpu_op")
        assert operators > 0.5 * step["dur"]


def test_backward_runs_on_the_thread_of_the_step(events: list[dict[str, Any]]) -> None:
    step = named(events, "gpustudy.step")[0]
    backward = [e for e in events if e["name"] == "aten::convolution_backward"]
    assert backward
    assert {e["tid"] for e in backward} == {step["tid"]}
    ranges = named(events, "gpustudy.backward")
    assert all(any(inside([e], r) for r in ranges) for e in backward)


def test_flops_of_convolutions_are_those_of_their_shapes(census: Path) -> None:
    flops = json.loads((census / "flops.json").read_text())
    if flops["total"] is None:
        pytest.skip("this torch has no FlopCounterMode")
    # Convolutions as (C_in, C_out, kernel voxels, output voxels a side); multiply and add are two operations.
    side, half = SIDE, SIDE // 2
    down = [(3, 32, 27, side), *[(32, 32, 27, side)] * 2, (32, 32, 27, half)]
    coarse = [(32, 64, 27, half), (64, 64, 27, half), (32, 64, 1, half), *[(64, 64, 27, half)] * 4]
    up = [(128, 64, 27, half), (64, 64, 27, half), (128, 64, 1, half), (96, 64, 27, half), (64, 64, 27, half)]
    up += [(96, 64, 1, half), (64, 64, 27, side), (96, 32, 27, side), (32, 32, 27, side), (96, 32, 1, side)]
    up += [(64, 32, 27, side), (32, 32, 27, side), (64, 32, 1, side), (32, 1, 27, side)]
    volumes = sum(2 * c_in * c_out * kernel * voxels**3 for c_in, c_out, kernel, voxels in (*down, *coarse, *up))
    attention = 4 * (2 * 64 * 3 * 64 + 2 * 64 * 64) * half**3  # qkv and proj_out of four blocks
    assert flops["forward"]["aten.convolution"] == 2 * (volumes + attention)  # two micro-batches
    assert flops["total"] == sum(sum(flops[phase].values()) for phase in ("forward", "backward"))
    # Each convolution's backward is two more; the attention blocks (and their products) run forward once more there.
    products = 4 * 2 * (2 * 64 * half**6)  # q k^T and weights v
    assert flops["forward"]["aten.bmm"] == 2 * products
    assert flops["backward"]["aten.bmm"] == 2 * (products + 2 * products)
    assert flops["backward"]["aten.convolution"] == 2 * attention


def test_layouts_name_every_convolution_of_the_model(census: Path) -> None:
    with gzip.open(census / "layouts.jsonl.gz", "rt") as stream:
        rows = [json.loads(line) for line in stream]
    assert {row["phase"] for row in rows} <= {"data", "forward", "backward", "optimiser", "other"}
    modules = [row["module"] for row in rows if row["phase"] == "forward" and row["op"] == "aten.convolution"]
    assert modules.count("input_blocks.0.0") == 2  # once per micro-batch
    assert modules.count("output_blocks.3.0.skip_connection") == 2
    steps = [row for row in rows if row["phase"] == "optimiser"]
    assert steps
    assert not [row for row in rows if row["conversion"]]  # everything is contiguous without channels_last


def test_the_files_are_those_of_the_stage(census: Path) -> None:
    assert set(read_status(census).files) == {
        "cell.json",
        "trace.json.gz",
        "flops.json",
        "layouts.jsonl.gz",
        "switches.json",
        "provenance.json",
    }


def test_micro_batches_are_profiled_in_turn(prepared: Path, tmp_path: Path) -> None:
    """Those at the same time would run in threads that the profiler does not watch."""
    document = make_document("census")
    document["config"]["optimisations"] = ["bf16", "cast_once", "concurrent_micro_batches"]
    cell, train = tmp_path / "cell.json", tmp_path / "train"
    cell.write_text(json.dumps({"key": key_of(document), "labels": {"config": "some"}, "document": document}))
    train.mkdir()
    write_status(train, Status("train", "a" * 12, "done"))
    run_stage("census", cell, prepared, tmp_path / "out", train)
    assert read_status(tmp_path / "out").state == "done"
    switches = json.loads((tmp_path / "out" / "switches.json").read_text())
    assert [one["verified"] for one in switches["optimisations"]] == [True] * 3  # seen in the warm-up
    with gzip.open(tmp_path / "out" / "trace.json.gz", "rt") as stream:
        trace = [event for event in json.load(stream)["traceEvents"] if event.get("ph") == "X"]
    forwards, convolutions = named(trace, "gpustudy.forward"), [e for e in trace if e["name"] == "aten::convolution"]
    assert len(forwards) == 4  # two steps of two micro-batches
    assert all(inside(convolutions, forward) for forward in forwards)
    flops = json.loads((tmp_path / "out" / "flops.json").read_text())
    assert flops["total"] is None or (flops["forward"] and flops["backward"])  # torch 2.0 does not count
    with gzip.open(tmp_path / "out" / "layouts.jsonl.gz", "rt") as stream:
        rows = [json.loads(line) for line in stream]
    of_weights = {row["inputs"][1]["dtype"] for row in rows if row["op"] == "aten.convolution"}
    assert of_weights == {"bfloat16"}
    assert any(row["module"].startswith("input_blocks") for row in rows)
