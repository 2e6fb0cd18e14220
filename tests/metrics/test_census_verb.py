"""gpustudy census: any trace becomes the launches table, and a summary that can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustudy.base.digests import file_sha256
from gpustudy.cli import main
from gpustudy.metrics.schemas import read_table
from tests.metrics.traces import call, host, kernel, write_trace


def _gpu_trace(path: Path, name: str = "ampere_sgemm_128x64_nn") -> Path:
    events = [host("aten::mm", 0, 30), call(1, 5), call(2, 6), kernel(name, 1, 50, 90), kernel("odd(int)", 2, 150, 10)]
    return write_trace(path, events, deviceProperties=[{"id": 0, "name": "NVIDIA H100", "numSms": 132}])


def test_traces_are_told_apart_by_their_identity(tmp_path: Path) -> None:
    gpu, cpu = _gpu_trace(tmp_path / "a.json.gz"), write_trace(tmp_path / "b.json", [host("aten::mm", 0, 5)])
    assert main(["census", str(gpu), str(cpu), "-o", str(tmp_path / "out"), "--limit", "0.5"]) == 0
    table = read_table(tmp_path / "out" / "launches.parquet", "launches")
    found = {tuple(row[name] for name in ("gpu", "config", "repeat", "key")) for row in table.to_pylist()}
    assert found == {
        ("NVIDIA H100", "a.json.gz", 0, file_sha256(gpu)[:12]),
        ("cpu", "b.json", 0, file_sha256(cpu)[:12]),
    }
    assert table.num_rows == 3


def test_summary_has_count_time_and_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["census", str(_gpu_trace(tmp_path / "t.json")), "--limit", "0.5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:4] == ["gemm", "1", "0.090", "90.0%"]
    assert lines[2].split()[:4] == ["unclassified", "1", "0.010", "10.0%"]
    assert lines[3].split() == ["all", "2", "0.100", "100.0%"]


def test_too_much_unclassified_time_fails_after_the_table_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["census", str(_gpu_trace(tmp_path / "t.json")), "-o", str(tmp_path / "out")]) == 2
    assert "10.0% of the time is in kernels of no known class (limit 5%)" in capsys.readouterr().err
    assert (tmp_path / "out" / "launches.parquet").is_file()
    assert main(["census", str(tmp_path / "t.json"), "-o", str(tmp_path / "out"), "--limit", "0.5"]) == 0


def test_a_folder_of_something_else_is_not_written_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("text")
    assert main(["census", str(_gpu_trace(tmp_path / "t.json")), "-o", str(tmp_path / "docs")]) == 2
    assert "docs is there already and is no folder of launches: name another folder" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "docs").iterdir()] == ["index.md"]


def test_unclassified_names_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["census", "--unclassified", str(_gpu_trace(tmp_path / "t.json"))]) == 0
    assert capsys.readouterr().out.split() == ["0.010", "ms", "odd(int)"]
    assert main(["census", "--unclassified", str(write_trace(tmp_path / "u.json", [host("aten::mm", 0, 5)]))]) == 0
    assert capsys.readouterr().out == "all 1 names have a class.\n"


def test_a_file_that_is_no_trace_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.json").write_text("hello")
    assert main(["census", str(tmp_path / "x.json")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_real_traces_pass(shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces = sorted(str(path) for path in (shared_data / "kineto").glob("*.json.gz"))
    assert len(traces) == 4
    assert main(["census", *traces]) == 0
    assert "unclassified" not in capsys.readouterr().out
