"""The program below ncu, on the CPU with a window that writes what ncu would: warm-up outside, backward inside."""

from __future__ import annotations

import json
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpustudy.base.canonical import key_of
from gpustudy.cell import profiled
from tests.cell.ncu_window import CountingWindow
from tests.device.documents import Machine, stage_cells, workload

SIDE = 16
MODEL = {
    "image_channels": 1,
    "mask_channels": 2,
    "base_channels": 32,
    "channel_mult": [1, 1],
    "res_blocks": 1,
    "attention_downsamples": [2],
    "volume": [SIDE] * 3,
}


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    machine = Machine("Crafted A100", "sm_80", 2**34, {name: metadata.version(name) for name in ("torch", "numpy")})
    sections = workload(MODEL)
    sections["counters"] = sections["counters"] | {"warmup_iterations": 3}
    sections["train"] = sections["train"] | {"accumulation": 1}
    content = stage_cells(machine, "baseline", sections, {"name": "crafted", "key": "0123456789ab"})["counters"]
    on_cpu = {"device": "cpu", "architecture": "cpu", "device_name": "", "threads": 1, "memory_bytes": None}
    content["document"]["gpu"] |= on_cpu
    content["key"] = key_of(content["document"])
    path = tmp_path / "cell.json"
    path.write_text(json.dumps(content))
    return path


def _run(
    tmp_path: Path, cell: Path, prepared: Path, plan: dict[str, Any]
) -> tuple[int, dict[str, Any], CountingWindow]:
    window, scratch = CountingWindow(), tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "plan.json").write_text(json.dumps(plan))
    code = profiled.main(["--cell", str(cell), "--data", str(prepared), "--scratch", str(scratch)], window)
    record = scratch / "profiled.json"
    return code, json.loads(record.read_text()) if record.exists() else {}, window


def test_gated_step_opens_the_window_in_every_phase_after_the_warm_up(
    tmp_path: Path, cell: Path, prepared: Path
) -> None:
    plan = {"quotas": {"aten::convolution": 1}, "fallback": 1}
    code, record, window = _run(tmp_path, cell, prepared, plan)
    assert code == 0
    assert record["gate"] == "operators"
    assert record["warmup_iterations"] == 3
    assert all(record["profiled"][phase] > 0 for phase in ("forward", "backward", "optimiser"))
    assert window.opened == sum(record["profiled"].values()) < sum(record["calls"].values())
    assert len(record["losses"]) == 1
    assert (tmp_path / "scratch" / "heartbeat").exists()
    assert (tmp_path / "scratch" / "session" / "switches.json").exists()


def test_plan_without_quotas_opens_the_window_once_per_step(tmp_path: Path, cell: Path, prepared: Path) -> None:
    code, record, window = _run(tmp_path, cell, prepared, {"quotas": None, "fallback": 0})
    assert (code, record["gate"], window.opened) == (0, "steps", 1)


def test_memory_that_runs_out_is_told_as_an_outcome(
    tmp_path: Path, cell: Path, prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: Any) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    monkeypatch.setattr(profiled, "gated", no_memory)
    code, record, _ = _run(tmp_path, cell, prepared, {"quotas": {}, "fallback": 1})
    assert code == 0
    assert (record["outcome"]["state"], record["outcome"]["reason"]) == ("failed", "oom")


def test_data_that_do_not_fit_are_one_sentence(
    tmp_path: Path, cell: Path, prepared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = shutil.copytree(prepared, tmp_path / "broken")
    np.save(broken / "masks.npy", np.zeros((2, 2, 32, 32, 32), np.float32))
    code, record, _ = _run(tmp_path, cell, broken, {"quotas": {}, "fallback": 1})
    assert (code, record) == (2, {})
    assert "masks.npy" in capsys.readouterr().err
