"""Stage train: its raw files, and that equal seeds give equal numbers."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tests.cell.conftest import WriteCell

from gpustudy.base.status import read_status
from gpustudy.cell.stages import run_stage


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_train_writes_every_raw_file(prepared: Path, write_cell: WriteCell, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_stage("train", write_cell(), prepared, out)
    status = read_status(out)
    assert status.state == "done"
    assert set(status.files) == {
        "cell.json",
        "steps.jsonl",
        "switches.json",
        "memory.json",
        "checkpoint.pt",
        "provenance.json",
    }
