"""Stage train: its raw files, that equal seeds give equal numbers, and how running out of memory ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from gpustudy.base.status import read_status
from gpustudy.cell.outcomes import is_out_of_memory
from gpustudy.cell.stages import run_stage
from gpustudy.medddpm.memory import estimate_training_bytes
from gpustudy.medddpm.switches import SWITCHES
from gpustudy.medddpm.trainer import Trainer
from gpustudy.medddpm.unet import UNet3D
from tests.cell.conftest import MODEL, TRAIN, WORKLOADS, WriteCell


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def trained(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from gpustudy.base.canonical import key_of
    from tests.cell.conftest import make_document

    folder = tmp_path_factory.mktemp("trained")
    document = make_document("train")
    cell = folder / "cell.json"
    cell.write_text(json.dumps({"key": key_of(document), "labels": {"config": "some"}, "document": document}))
    run_stage("train", cell, prepared, folder / "out")
    return folder / "out"


def test_train_writes_every_raw_file(trained: Path) -> None:
    status = read_status(trained)
    assert status.state == "done"
    assert set(status.files) == {
        "cell.json",
        "steps.jsonl",
        "switches.json",
        "memory.json",
        "checkpoint.pt",
        "provenance.json",
    }


def test_steps_say_which_were_measured(trained: Path) -> None:
    steps = lines(trained / "steps.jsonl")
    assert [(step["iteration"], step["phase"]) for step in steps] == [(1, "warmup"), (2, "measured"), (3, "measured")]
    assert all(step["step_ns"] > 1_000_000 for step in steps)  # no step of this size takes less than a millisecond
    assert all(0 <= step["data_wait_ns"] < step["step_ns"] for step in steps)
    shares = [step["data_wait_ns"] / step["step_ns"] for step in steps[1:]]
    assert min(shares) < 0.02  # the loader is ahead; the least, as the machine may be busy
    # an untrained network predicts zero, so the first L1 loss is E|n| = sqrt(2 / pi) = 0.798 of normal noise
    assert steps[0]["loss"] == pytest.approx(0.798, abs=0.02)


def test_peak_memory_is_that_of_the_measured_steps(trained: Path) -> None:
    memory = json.loads((trained / "memory.json").read_text())
    steps = lines(trained / "steps.jsonl")
    assert memory["kind"] in ("process_rss", "process_rss_lifetime")
    assert memory["peak_bytes"] == max(step["peak_memory_bytes"] for step in steps[1:])
    assert memory["peak_bytes"] > memory["estimate_bytes"] > 0  # the process holds the interpreter besides


def test_the_checkpoint_holds_weights_and_average_of_the_model(trained: Path) -> None:
    checkpoint = torch.load(trained / "checkpoint.pt", weights_only=True)
    model = UNet3D.from_document(WORKLOADS["train"]["model"])
    model.load_state_dict(checkpoint["model"])
    assert checkpoint["ema"].keys() == dict(model.named_parameters()).keys()
    assert checkpoint["iteration"] == 3


def test_baseline_has_tf32_off_and_the_published_sequence(trained: Path) -> None:
    switches = json.loads((trained / "switches.json").read_text())
    assert set(switches["effective"]["tf32"]["values"].values()) <= {"ieee", False}
    published = {
        "attention_kernel": "explicit",
        "attention_recompute": True,
        "block_recompute": False,
        "norm_in_float32": True,
    }
    assert published.items() <= switches["model"].items()
    assert switches["model"] == {name: switch.published for name, switch in SWITCHES.items()}
    assert switches["optimisations"] == []


def test_provenance_names_versions_and_device(trained: Path) -> None:
    record = json.loads((trained / "provenance.json").read_text())
    assert record["torch"] == torch.__version__
    assert record["threads"] == 1
    assert record["driver"] is None  # nvidia-smi is not asked for a CPU cell
    assert record["clocks"] is None
    assert {"python", "numpy", "cuda", "host", "cpu_model", "job_id", "git_commit", "image_sha256", "argv"} <= set(
        record
    )


def test_two_runs_with_one_thread_give_bit_identical_losses(
    trained: Path, prepared: Path, write_cell: WriteCell, tmp_path: Path
) -> None:
    run_stage("train", write_cell("train"), prepared, tmp_path / "again")
    first, again = (
        [step["loss"].hex() for step in lines(folder / "steps.jsonl")] for folder in (trained, tmp_path / "again")
    )
    assert first == again
    run_stage("train", write_cell("train", seed=2028), prepared, tmp_path / "other")
    assert [step["loss"].hex() for step in lines(tmp_path / "other" / "steps.jsonl")] != first


@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory"),
        MemoryError(),
    ],
)
def test_running_out_of_memory_is_an_outcome(
    error: Exception, prepared: Path, write_cell: WriteCell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = Trainer.step

    def step(trainer: Trainer) -> Any:
        if trainer.iteration == 2:
            raise error
        return done(trainer)

    monkeypatch.setattr(Trainer, "step", step)
    run_stage("train", write_cell(), prepared, tmp_path / "out")
    status = read_status(tmp_path / "out")
    assert (status.state, status.reason) == ("failed", "oom")
    assert "checkpointing" in status.detail  # what to do next
    assert len(lines(tmp_path / "out" / "steps.jsonl")) == 2  # what was measured until then stays


def test_another_error_is_no_outcome(
    prepared: Path, write_cell: WriteCell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(trainer: Trainer) -> Any:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(Trainer, "step", step)
    with pytest.raises(RuntimeError, match="device-side assert"):
        run_stage("train", write_cell(), prepared, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not is_out_of_memory(ValueError("out of memory"))


def test_a_training_that_cannot_fit_does_not_start(prepared: Path, write_cell: WriteCell, tmp_path: Path) -> None:
    run_stage("train", write_cell(gpu={"memory_bytes": 1_000_000}), prepared, tmp_path / "out")
    status = read_status(tmp_path / "out")
    assert (status.state, status.reason) == ("failed", "oom")
    assert "would not fit" in status.detail
    assert not (tmp_path / "out" / "steps.jsonl").exists()


def test_a_config_that_keeps_less_is_not_refused_for_what_baseline_would_keep(
    prepared: Path, write_cell: WriteCell, tmp_path: Path
) -> None:
    baseline = estimate_training_bytes(MODEL, TRAIN)
    gpu = {"memory_bytes": baseline - 1}
    assert run_stage("train", write_cell(gpu=gpu), prepared, tmp_path / "baseline").reason == "oom"
    lean = run_stage("train", write_cell("train", ("lean_norm",), gpu=gpu), prepared, tmp_path / "lean")
    assert lean.state == "done", lean.detail
    memory = json.loads((tmp_path / "lean" / "memory.json").read_text())
    assert memory["estimate_bytes"] < 0.95 * baseline


def test_a_loss_that_is_not_finite_is_an_outcome(prepared: Path, write_cell: WriteCell, tmp_path: Path) -> None:
    workload = WORKLOADS["train"] | {"train": TRAIN | {"learning_rate": 1e30}}
    run_stage("train", write_cell(workload=workload), prepared, tmp_path / "out")
    status = read_status(tmp_path / "out")
    assert (status.state, status.reason) == ("failed", "not_finite")


def test_all_that_equal_mathematics_offers_runs_together(prepared: Path, write_cell: WriteCell, tmp_path: Path) -> None:
    names = ("sdpa", "keep_attention", "lean_norm", "fast_convolution", "native_norm")
    status = run_stage("train", write_cell("train", names), prepared, tmp_path / "out")
    assert status.state == "done", status.detail
    switches = json.loads((tmp_path / "out" / "switches.json").read_text())
    assert {entry["name"]: entry["verified"] for entry in switches["optimisations"]} == dict.fromkeys(names, True)


def test_low_precision_runs_with_what_composes_with_it(prepared: Path, write_cell: WriteCell, tmp_path: Path) -> None:
    names = ("bf16", "channels_last", "sdpa", "keep_attention", "lean_norm", "native_norm", "fast_convolution")
    status = run_stage("train", write_cell("train", names), prepared, tmp_path / "out")
    assert status.state == "done", status.detail
    status = run_stage("train", write_cell("train", ("bf16", "checkpointing")), prepared, tmp_path / "out2")
    assert status.state == "done", status.detail
