"""Stage census: the trace accounts for the step, FLOPs and layouts are those of the model."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gpustudy.base.status import read_status
from gpustudy.cell.stages import run_stage
from tests.cell.conftest import make_document

SELF_TIME_TOLERANCE = 0.02
"""Share of a step that may be in neither an operator's nor an annotation's self time."""


@pytest.fixture(scope="module")
def census(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from gpustudy.base.canonical import key_of
    from gpustudy.base.status import Status, write_status

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
