"""A raw stage directory becomes its metrics directory: right values, whole or not at all, never from changed files."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpustudy.base.errors import UserError
from gpustudy.cli import main
from gpustudy.metrics.make import make_metrics
from gpustudy.metrics.schemas import read_table
from tests.metrics import raw_stages
from tests.metrics.traces import annotation, host

KEY = "ba9876543210"


def _cells(out: Path) -> dict[tuple[str, ...], dict[str, Any]]:
    rows = read_table(out / "cells.parquet", "cells").to_pylist()
    return {(row["quantity"], row["kernel_class"] or "", row["phase"] or ""): row for row in rows}


def flip_last_byte(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def _made(raw: Path, out: Path) -> dict[tuple[str, ...], dict[str, Any]]:
    make_metrics(raw, out, KEY)
    return _cells(out)


def test_train_gives_its_steps_and_their_median(tmp_path: Path) -> None:
    cells = _made(raw_stages.train(tmp_path / "raw"), tmp_path / "out")
    steps = read_table(tmp_path / "out" / "steps.parquet", "steps").to_pylist()
    assert [step["iteration"] for step in steps] == list(range(1, 9))
    assert steps[0]["phase"] == "warmup"
    step = cells["step_s", "", ""]
    assert (step["value"], step["n"], step["unit"]) == (0.115, 7, "s")  # of 100 105 110 115 120 130 140 ms
    assert (step["low"], step["high"]) == (0.100, 0.140)  # of 7, the extremes hold the median with 98.4 %
    assert cells["data_wait_share", "", ""]["value"] == pytest.approx(7 / 820)
    assert (cells["loss_first", "", ""]["value"], cells["loss_last", "", ""]["value"]) == (0.5, 0.125)
    assert (cells["peak_memory_bytes", "", ""]["value"], cells["peak_memory_bytes", "", ""]["scope"]) == (
        1008,
        "process_rss",
    )
    assert cells["memory_estimate_bytes", "", ""]["origin"] == "modelled"
    assert {(row["gpu"], row["config"], row["repeat"], row["state"]) for row in cells.values()} == {
        ("cpu", "baseline", 2, "done")
    }


def test_census_gives_class_times_flops_and_layouts(tmp_path: Path) -> None:
    cells = _made(raw_stages.census(tmp_path / "raw"), tmp_path / "out")
    assert cells["class_time_ns", "gemm", "forward"]["value"] == 150_000
    assert cells["class_time_ns", "gemm", "backward"]["value"] == 200_000
    assert cells["class_time_ns", "elementwise", "optimiser"]["value"] == 100_000
    assert cells["class_time_ns", "framework", "backward"]["value"] == 300_000
    assert cells["class_launches", "gemm", "backward"]["value"] == 2
    assert cells["census_step_s", "", ""]["value"] == 1e-3
    assert cells["self_time_share", "", ""]["value"] == 1
    assert cells["flops", "", ""]["value"] == 3 * 4096
    assert cells["phase_flops", "", "backward"]["value"] == 2 * 4096
    assert cells["flops_per_s", "", ""]["value"] == pytest.approx(3 * 4096 / 1e-3)
    assert cells["flops_relative_difference", "", ""]["value"] == 0
    assert cells["layout_conversions", "", "forward"]["value"] == 1
    assert cells["layout_conversion_bytes", "", "forward"]["value"] == 4 * 2 * 64
    assert cells["channels_last_share", "", "forward"]["value"] == 0.5
    layouts = read_table(tmp_path / "out" / "layouts.parquet", "layouts").to_pylist()
    assert {(row["operator"], row["input_format"], row["output_format"], row["calls"]) for row in layouts} == {
        ("aten.convolution", "contiguous", "contiguous", 1),
        ("aten.convolution", "channels_last_3d", "channels_last_3d", 1),
        ("aten.clone", "channels_last_3d", "contiguous", 1),
    }


def test_a_wrong_count_of_flops_shows(tmp_path: Path) -> None:
    cells = _made(raw_stages.census(tmp_path / "raw", counted=2 * 4096), tmp_path / "out")
    assert cells["flops_relative_difference", "", ""]["value"] == pytest.approx(0.5)


def test_a_census_with_much_unclassified_time_is_refused(tmp_path: Path) -> None:
    raw = raw_stages.census(tmp_path / "raw", extra=(host("my::new_operator", 1000, 900),))
    with pytest.raises(UserError, match="no known class"):
        make_metrics(raw, tmp_path / "out", KEY)
    assert not (tmp_path / "out").exists()


def test_a_census_without_steps_is_refused(tmp_path: Path) -> None:
    raw = raw_stages.census(tmp_path / "raw")
    raw_stages.write_trace(raw / "trace.json.gz", [annotation("else", 0, 9), host("aten::mm", 0, 5)])
    with pytest.raises(UserError, match=r"holds no range 'gpustudy\.step'"):
        make_metrics(raw_stages.finish(raw, "census"), tmp_path / "out", KEY)


@pytest.mark.parametrize("stage", ["train", "census", "counters", "quality"])
def test_a_stage_that_is_not_done_gives_its_outcome(tmp_path: Path, stage: str) -> None:
    raw = raw_stages.finish(tmp_path / "raw", stage, state="failed", reason="oom", gpu="v100")
    make_metrics(raw, tmp_path / "out", KEY)
    (row,) = read_table(tmp_path / "out" / "cells.parquet", "cells").to_pylist()
    assert (row["gpu"], row["stage"], row["quantity"], row["value"], row["state"]) == (
        "v100",
        stage,
        "outcome",
        None,
        "failed(oom)",
    )
    manifest = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert (manifest["state"], manifest["reason"]) == ("failed", "oom")


def test_the_manifest_names_what_was_read_and_written(tmp_path: Path) -> None:
    raw, out = raw_stages.train(tmp_path / "raw"), tmp_path / "out"
    make_metrics(raw, out, KEY)
    manifest = json.loads((out / "metrics.json").read_text())

    def sha256(path: Path) -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest()

    assert manifest["raw"]["status_sha256"] == sha256(raw / "status.json")
    assert manifest["raw"]["files"]["steps.jsonl"] == sha256(raw / "steps.jsonl")
    assert manifest["tables"]["steps.parquet"] == {
        "rows": 8,
        "bytes": (out / "steps.parquet").stat().st_size,
        "sha256": sha256(out / "steps.parquet"),
    }
    assert (manifest["stage"], manifest["metrics_key"], manifest["schema"]) == ("train", KEY, 1)


def test_provenance_and_the_reason_of_an_outcome_travel_with_the_tables(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "provenance.json").write_text('{"torch": "2.13.0", "driver": null}')
    make_metrics(raw_stages.finish(raw, "train", state="failed", reason="oom"), tmp_path / "out", KEY)
    manifest = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert manifest["provenance"] == {"torch": "2.13.0", "driver": None}
    assert manifest["detail"] == "A sentence."


def test_the_same_raw_files_give_the_same_bytes(tmp_path: Path) -> None:
    raw = raw_stages.census(tmp_path / "raw")
    for name in ("a", "b"):
        make_metrics(raw, tmp_path / name, KEY)
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()
    }


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda raw: (raw / "steps.jsonl").write_text("{}\n"), r"steps\.jsonl is not the file"),
        (lambda raw: flip_last_byte(raw / "memory.json"), r"memory\.json is not the file"),
        (lambda raw: (raw / "steps.jsonl").unlink(), r"steps\.jsonl is missing"),
        (lambda raw: (raw / "status.json").unlink(), "not a readable status file"),
        (lambda raw: (raw / "status.json").write_text("{"), "not a readable status file"),
    ],
)
def test_changed_raw_files_are_refused_by_name(tmp_path: Path, harm: Any, message: str) -> None:
    raw = raw_stages.train(tmp_path / "raw")
    harm(raw)
    with pytest.raises(UserError, match=message):
        make_metrics(raw, tmp_path / "out", KEY)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cell.json", "{}", "not a readable cell"),
        (
            "cell.json",
            json.dumps(
                {
                    "key": "0" * 12,
                    "labels": {"config": "a"},
                    "document": {"stage": "census", "gpu": {"name": "g"}, "repeat": 1},
                }
            ),
            "mixed up",
        ),
        ("steps.jsonl", "no json\n", "line 1 is not JSON"),
        ("steps.jsonl", '{"iteration": 1, "phase": "warmup"}\n', "does not hold steps"),
        ("steps.jsonl", "", "no measured step"),
    ],
)
def test_raw_files_that_hold_something_else_are_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    raw = raw_stages.train(tmp_path / "raw")
    (raw / name).write_text(content)
    status = json.loads((raw / "status.json").read_text())
    status["files"][name] = {"sha256": hashlib.sha256(content.encode()).hexdigest(), "bytes": len(content.encode())}
    (raw / "status.json").write_text(json.dumps(status))
    with pytest.raises(UserError, match=message):
        make_metrics(raw, tmp_path / "out", KEY)


def test_metrics_that_were_there_stay_when_making_them_fails(tmp_path: Path) -> None:
    raw, out = raw_stages.train(tmp_path / "raw"), tmp_path / "out"
    make_metrics(raw, out, KEY)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    (raw / "steps.jsonl").write_text("{}")
    with pytest.raises(UserError):
        make_metrics(raw, out, KEY)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "raw"]


def test_the_verb_makes_them_and_tells_a_mistake_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw, out = raw_stages.train(tmp_path / "raw"), tmp_path / "out"
    assert main(["metrics", str(raw), "-o", str(out), "--metrics-key", KEY]) == 0
    assert (out / "metrics.json").is_file()
    assert main(["metrics", str(tmp_path / "none"), "-o", str(out), "--metrics-key", KEY]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_tables_are_made_without_the_heavy_libraries(tmp_path: Path) -> None:
    """A process per stage and cell: what it imports is what it costs. (pyarrow itself looks for pandas.)"""
    raw = raw_stages.census(tmp_path / "raw")
    program = (
        "import sys; from pathlib import Path; from gpustudy.metrics.make import make_metrics;"
        f"make_metrics(Path({str(raw)!r}), Path({str(tmp_path / 'out')!r}), 'k');"
        "print(sorted({'torch', 'monai', 'matplotlib', 'scipy', 'nibabel'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout.strip() == "[]"
