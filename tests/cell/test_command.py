"""The command line of the cell side: what it refuses, what it decides without torch, what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gpustudy
from gpustudy.base.errors import UserError
from gpustudy.base.status import Status, read_status, write_status
from gpustudy.cell.stages import run_stage
from tests.cell.conftest import TRAIN, WriteCell, make_document

PACKAGE_PARENT = Path(gpustudy.__file__).parent.parent


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "gpustudy.cell", *map(str, arguments)]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(PACKAGE_PARENT)}


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), env=environment(), capture_output=True, text=True, timeout=120, check=False
    )


def test_help_shows_an_example() -> None:
    result = run("--help")
    assert result.returncode == 0
    assert "python -m gpustudy.cell train --cell cell.json" in result.stdout


def test_mistakes_on_the_command_line_are_one_sentence() -> None:
    for arguments in (["train"], ["trian", "--cell", "c", "--data", "d", "--out", "o"], ["train", "--sell", "c"]):
        result = run(*arguments)
        assert result.returncode == 2
        assert len(result.stderr.strip().splitlines()) == 1


def test_a_cell_file_that_is_absent_is_named(tmp_path: Path) -> None:
    result = run("train", "--cell", tmp_path / "none.json", "--data", tmp_path, "--out", tmp_path / "out")
    assert result.returncode == 2
    assert "none.json" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_tf32_on_a_cpu_is_unsupported_without_importing_torch(
    prepared: Path, write_cell: WriteCell, tmp_path: Path
) -> None:
    cell = write_cell("train", ("tf32",))
    arguments = f"['train', '--cell', {str(cell)!r}, '--data', {str(prepared)!r}, '--out', {str(tmp_path / 'out')!r}]"
    code = (
        "import sys; from gpustudy.cell.__main__ import main\n"
        f"code = main({arguments})\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
        "sys.exit(code)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    status = read_status(tmp_path / "out")
    assert (status.state, status.reason) == ("unsupported", "device")
    assert "sm_80" in status.detail
    assert set(status.files) == {"cell.json", "provenance.json"}


def test_a_census_on_a_cpu_says_nothing_but_its_own_progress(
    prepared: Path, write_cell: WriteCell, tmp_path: Path
) -> None:
    train = tmp_path / "train"
    train.mkdir()
    write_status(train, Status("train", "a" * 12, "done"))
    cell = write_cell("census", previous={"stage": "train", "key": "a" * 12})
    out = tmp_path / "out"
    result = run("census", "--cell", cell, "--data", prepared, "--previous", train, "--out", out)
    assert result.returncode == 0, result.stderr
    assert {line.split(":")[0] for line in result.stderr.splitlines()} == {"cpu/some/r1 census"}


@pytest.mark.parametrize(
    ("name", "architecture"), [("tf32", "sm_70"), ("bf16", "sm_70"), ("bf16", "sm_75"), ("tf32", "sm_75")]
)
def test_what_volta_and_turing_lack_is_unsupported(
    name: str, architecture: str, prepared: Path, write_cell: WriteCell, tmp_path: Path
) -> None:
    gpu = {"name": "v100", "device": "cuda", "architecture": architecture, "device_name": "V100"}
    status = run_stage("train", write_cell("train", (name,), gpu=gpu), prepared, tmp_path / "out")
    assert (status.state, status.reason) == ("unsupported", "device")
    assert architecture in status.detail


def test_a_null_control_is_left_out_and_the_rest_runs(prepared: Path, write_cell: WriteCell, tmp_path: Path) -> None:
    cell = write_cell("train", ("tf32", "channels_last"), gpu={"null_control": ["tf32"]})
    status = run_stage("train", cell, prepared, tmp_path / "out")
    assert status.state == "done"
    assert read_status(tmp_path / "out").null_control == ("tf32",)
    switches = json.loads((tmp_path / "out" / "switches.json").read_text())
    assert [entry["name"] for entry in switches["optimisations"]] == ["channels_last"]
    assert switches["left_out"] == ["tf32"]


def test_optimisations_that_exclude_each_other_are_refused(
    write_cell: WriteCell, prepared: Path, tmp_path: Path
) -> None:
    for pair in (("bf16", "fp16"), ("keep_attention", "checkpointing")):
        with pytest.raises(UserError, match="exclude each other"):
            run_stage("train", write_cell("train", pair), prepared, tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"key": "f" * 12}, "edited by hand"),
        ({"sources": {"digest": "0" * 64, "files": ["base/atomic.py"]}}, "planned with other sources"),
        ({"sources": {"digest": "0" * 64, "files": ["base/no_such_file.py"]}}, "no_such_file.py"),
        ({"stack": {"name": "old", "key": "b" * 12, "pins": {"torch": "1.13.1"}}}, "stack 'old' pins 1.13.1"),
        ({"data": {"name": "tiny", "key": "c" * 12}}, "needs cccccccccccc"),
        ({"config": {"optimisations": ["warp"], "pytorch_defaults": False}}, "unknown optimisation 'warp'"),
        ({"schema": 2}, "schema 2"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    changes: dict, sentence: str, prepared: Path, write_cell: WriteCell, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=sentence):
        run_stage("train", write_cell(**changes), prepared, tmp_path / "out")
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_another_stage_than_the_cell_s_is_refused(prepared: Path, write_cell: WriteCell, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="stage 'train', not 'census'"):
        run_stage("census", write_cell("train"), prepared, tmp_path / "out")


def test_a_local_label_is_no_part_of_a_pin(prepared: Path, write_cell: WriteCell) -> None:
    from gpustudy.cell.document import check_pins, read_cell

    stack = make_document()["stack"]
    stack["pins"]["torch"] += "+cu118"
    check_pins(read_cell(write_cell(stack=stack), "train"))


@pytest.mark.parametrize(("state", "reason"), [("unsupported", "device"), ("failed", "oom")])
def test_a_stage_ends_as_the_one_before_it(
    state: str, reason: str, prepared: Path, write_cell: WriteCell, tmp_path: Path
) -> None:
    before = tmp_path / "before"
    before.mkdir()
    write_status(before, Status("train", "a" * 12, state, reason, "Because."))
    run_stage("census", write_cell("census"), prepared, tmp_path / "out", before)
    status = read_status(tmp_path / "out")
    assert (status.state, status.reason) == (state, "upstream")
    assert "'train'" in status.detail


def test_the_stage_before_must_be_the_one_named(prepared: Path, write_cell: WriteCell, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--previous"):
        run_stage("census", write_cell("census"), prepared, tmp_path / "out")
    before = tmp_path / "before"
    before.mkdir()
    write_status(before, Status("train", "d" * 12, "done"))
    with pytest.raises(UserError, match="needs train-aaaaaaaaaaaa"):
        run_stage("census", write_cell("census"), prepared, tmp_path / "out", before)


def test_a_place_that_cannot_be_written_is_named_in_one_sentence(
    prepared: Path, write_cell: WriteCell, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    result = run("train", "--cell", write_cell(), "--data", prepared, "--out", tmp_path / "file" / "out")
    assert result.returncode == 1
    assert len(result.stderr.strip().splitlines()) == 1
    assert "run it again" in result.stderr


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_killed_stage_leaves_nothing_that_counts(
    kind: signal.Signals, prepared: Path, write_cell: WriteCell, tmp_path: Path
) -> None:
    workload = make_document()["workload"] | {"train": TRAIN | {"iterations": 10_000}}
    cell = write_cell(workload=workload)
    out = tmp_path / "out"
    process = subprocess.Popen(
        command("train", "--cell", cell, "--data", prepared, "--out", out),
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:  # in the middle of training
        if "iteration 3/" in line or "iteration 2/" in line or "iteration 1/" in line:
            break
    process.send_signal(kind)
    process.wait(timeout=60)
    process.stderr.close()
    assert process.returncode != 0
    assert not out.exists()
    leftovers = list(tmp_path.glob(".out.*"))
    assert bool(leftovers) == (kind is signal.SIGKILL)
    run_stage("train", write_cell("train", ("tf32",)), prepared, out)  # the next run clears them
    assert not list(tmp_path.glob(".out.*"))


def test_an_outcome_known_at_once_takes_well_under_a_second(
    prepared: Path, write_cell: WriteCell, tmp_path: Path
) -> None:
    cell = write_cell("train", ("tf32",))
    start = time.process_time()
    run_stage("train", cell, prepared, tmp_path / "out")
    assert time.process_time() - start < 0.5
