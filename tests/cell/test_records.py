"""Peak memory and provenance as the system tells them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpustudy
from gpustudy.cell.document import read_cell
from gpustudy.cell.memory import PeakMemory
from gpustudy.cell.provenance import collect, cpu_model, parse_smi
from tests.cell.conftest import WriteCell

MEBIBYTE = 2**20


def test_the_peak_holds_what_was_freed_and_starts_anew() -> None:
    code = """
import torch
from gpustudy.cell.memory import PeakMemory
memory = PeakMemory("cpu")
before = memory.read()
block = torch.ones(64 * 2**20 // 4)
del block
peak = memory.read()
memory.reset()
print(memory.kind, before, peak, memory.read())
"""  # in a process of its own: this one may hold freed memory that the block would fit into
    environment = os.environ | {"PYTHONPATH": str(Path(gpustudy.__file__).parent.parent)}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    kind, *values = result.stdout.split()
    before, peak, after = map(int, values)
    assert peak - before > 60 * MEBIBYTE
    if kind == "process_rss":
        assert after < peak - 30 * MEBIBYTE


def test_where_the_peak_cannot_be_reset_it_is_that_of_the_process(tmp_path: Path) -> None:
    memory = PeakMemory("cpu", tmp_path / "no-proc")
    assert memory.kind == "process_rss_lifetime"
    assert memory.read() > 10 * MEBIBYTE


def test_the_launcher_s_variables_are_recorded(write_cell: WriteCell) -> None:
    cell = read_cell(write_cell(), "train")
    given = {
        "GPUSTUDY_GIT_COMMIT": "abc123",
        "GPUSTUDY_GIT_DIRTY": "1",
        "GPUSTUDY_IMAGE_SHA256": "f" * 64,
        "SLURM_JOB_ID": "42",
        "OMP_NUM_THREADS": "2",
        "SECRET": "no",
    }
    record = collect(cell, given)
    assert (record["git_commit"], record["git_dirty"], record["job_id"]) == ("abc123", True, "42")
    assert record["image_sha256"] == "f" * 64
    assert record["environment"] == {"OMP_NUM_THREADS": "2"}
    unknown = collect(cell, {})
    assert unknown["git_dirty"] is None
    assert unknown["job_id"] is None


def test_a_line_of_nvidia_smi_is_read() -> None:
    line = "Tesla V100-SXM2-32GB, GPU-1d2c3b4a-0000-1111-2222-333344445555, 535.104.05, [N/A]\n"
    names = ["device_name", "device_uuid", "driver", "mig"]
    assert parse_smi(line, names) == {
        "device_name": "Tesla V100-SXM2-32GB",
        "device_uuid": "GPU-1d2c3b4a-0000-1111-2222-333344445555",
        "driver": "535.104.05",
        "mig": None,
    }
    assert parse_smi("No devices were found", names) == {}


def test_nvidia_smi_is_asked_for_a_cuda_cell_alone(
    write_cell: WriteCell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    tool = folder / "nvidia-smi"
    tool.write_text(
        '#!/bin/sh\ncase "$*" in\n'
        "*name,uuid*) echo 'NVIDIA A100-SXM4-40GB, GPU-1, 535.104.05, Disabled, Enabled';;\n"
        "*clocks_event_reasons*) exit 6;;\n"
        "*clocks_throttle_reasons*) echo '0x0000000000000001';;\n"
        "*clocks.current.sm*) echo '1410, 1215, 1410, 1215, [N/A], 400.00, 31';;\nesac\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    cuda = {"name": "a100", "device": "cuda", "architecture": "sm_80", "device_name": "A100"}
    record = collect(read_cell(write_cell(gpu=cuda), "train"))
    assert record["driver"] == "535.104.05"
    assert record["mig"] == "Disabled"
    assert record["throttle"] == "0x0000000000000001"
    assert record["clocks"]["sm_mhz"] == "1410"
    assert record["clocks"]["application_sm_mhz"] is None
    assert collect(read_cell(write_cell(), "train"))["driver"] is None


def test_the_processor_has_a_name(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text(
        "processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\nprocessor\t: 1\nmodel name\t: Some CPU @ 2.00GHz\n"
    )
    assert cpu_model(info) == "Some CPU @ 2.00GHz"
